#!/usr/bin/env python3
"""Says what a run of ctest spent its time on: its 30 slowest entries, and the seconds of each label.

    report_tests.py RESULTS ENTRIES

RESULTS is what `ctest --output-junit` wrote, ENTRIES what `ctest --show-only=json-v1` printed, which
knows the labels.

With WEFT_GATE in the environment it fails, with exit code 1, if an entry of the labels `process` or
`hosts` was skipped: the gate's machine has the programs, namespaces and daemons that these need, so
such a test has proven nothing. Entries of `gpu` want a device, and some of `unit` another user than
root, or a device.
"""
import collections
import json
import os
import sys
import xml.etree.ElementTree

SLOWEST = 30
NEVER_SKIPPED = {"process", "hosts"}


def labels_by_entry(path):
    """Returns the labels of each entry; those without one have "none"."""
    with open(path, encoding="utf-8") as file:
        entries = json.load(file)["tests"]
    labels = {}
    for entry in entries:
        properties = {each["name"]: each["value"] for each in entry.get("properties", [])}
        labels[entry["name"]] = properties.get("LABELS", ["none"])
    return labels


def main(results, entries):
    cases = list(xml.etree.ElementTree.parse(results).getroot().iter("testcase"))
    labels = labels_by_entry(entries)
    seconds = collections.Counter()
    count = collections.Counter()
    for case in cases:
        for label in labels[case.get("name")]:
            seconds[label] += float(case.get("time") or 0)
            count[label] += 1
    print(f"== the {SLOWEST} slowest of {len(cases)} entries")
    for case in sorted(cases, key=lambda each: -float(each.get("time") or 0))[:SLOWEST]:
        print(f"{float(case.get('time') or 0):8.1f} s  {case.get('name')}")
    print("== seconds of each label (entries run beside each other)")
    for label, total in seconds.most_common():
        print(f"{total:8.1f} s  {label}: {count[label]} entries")
    if "WEFT_GATE" not in os.environ:
        return 0
    skipped = [case for case in cases
               if case.get("status") in ("notrun", "disabled") and NEVER_SKIPPED & set(labels[case.get("name")])]
    for case in skipped:
        print(f"weft: {case.get('name')} was skipped, which no test of processes or hosts may be in the "
              "gate; its output says what it lacks", file=sys.stderr)
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
