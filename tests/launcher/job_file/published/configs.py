"""By hand: the rows of configs.jsonl against the config.json files as they are published.

  python3 configs.py FOLDER            compares: FOLDER holds NAME.json for each row
  python3 configs.py FOLDER --write    writes the configs of the rows anew

A row's config is the file's with every list shortened to its distinct items, the first three of
them: what a list says by block is said by what is in it."""
import json
import math
import pathlib
import sys

ROWS = pathlib.Path(__file__).with_name("configs.jsonl")


def short(value):
    if isinstance(value, dict):
        return {key: short(each) for key, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no such number
    if not isinstance(value, list):
        return value
    items = []
    for each in value:
        if short(each) not in items:
            items.append(short(each))
    return items[:3]


def main():
    folder = pathlib.Path(sys.argv[1])
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    different = 0
    for row in rows:
        config = short(json.loads((folder / (row["name"] + ".json")).read_text()))
        if row.get("config") != config:
            different += 1
            print(row["name"], "differs")
        row["config"] = config
    if "--write" in sys.argv:
        ROWS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    extra = {path.stem for path in folder.glob("*.json")} - {row["name"] for row in rows}
    print(f"{len(rows)} rows, {different} differ; files without a row: {sorted(extra) or 'none'}")
    return 1 if different or extra else 0


if __name__ == "__main__":
    sys.exit(main())
