"""Holds a schema against job files with the jsonschema library.

usage: schema_witness.py SCHEMA JOB...
Prints a line per job: "JOB: ok", or "JOB: " and where the first thing is wrong.
Ends with 77 if the library is not there.
"""
import json
import re
import sys

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(missing)
    sys.exit(77)

# Numbers as YAML 1.2 has them, which weft and editors read: 1e-05 needs no point.
yaml.SafeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"), list("-+.0123456789"))

with open(sys.argv[1], encoding="utf-8") as file:
    schema = json.load(file)
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
for path in sys.argv[2:]:
    with open(path, encoding="utf-8") as file:
        job = yaml.safe_load(file)
    wrong = jsonschema.exceptions.best_match(validator.iter_errors(job))
    where = "" if wrong is None else ".".join(str(part) for part in wrong.absolute_path)
    print(f"{path}: " + ("ok" if wrong is None else f"{where}: {wrong.message[:200]}"))
