#!/usr/bin/env bash
# The model, rules and machine files under models/ fit the schemas of docs/formats; every schema
# there is itself valid. That the schemas reject something is checked on an empty object.
. "$(dirname "$0")/common.sh"
/usr/bin/env python3 -c 'from jsonschema import Draft202012Validator' 2>/dev/null || {
    echo "python3 has no jsonschema module with draft 2020-12"
    exit 77
}
while IFS= read -r finding; do bad "$finding"; done < <(/usr/bin/env python3 - 2>&1 <<'PYTHON'
import glob
import json

from jsonschema import Draft202012Validator, exceptions


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def place(error):
    return "/".join(str(step) for step in error.absolute_path) or "top level"


validators = {}
for path in sorted(glob.glob("docs/formats/*.schema.json")):
    kind = path.split("/")[-1].removesuffix(".schema.json")
    try:
        Draft202012Validator.check_schema(read(path))
    except (exceptions.SchemaError, ValueError) as error:
        print(f"{path}: {str(error).splitlines()[0]}")
        continue
    validators[kind] = Draft202012Validator(read(path))
    if validators[kind].is_valid({}):
        print(f"{path}: accepts an empty object")

rules, names = (set(glob.glob(f"models/*.{kind}.json")) for kind in ("rules", "names"))
files = {
    "model": set(glob.glob("models/*.json")) - rules - names,
    "rules": rules,
    "names": names,
    "machine": set(glob.glob("models/machines/*.json")),
    "suite": {"tests/regress/plans.json", "tests/regress/published.json"},
    "jobs": {"tests/regress/jobs.json"},
}
for kind, paths in files.items():
    if not paths:
        print(f"there is no {kind} file to check")
    if kind not in validators:
        print(f"docs/formats/{kind}.schema.json is missing or invalid")
        continue
    for path in sorted(paths):
        try:
            for error in validators[kind].iter_errors(read(path)):
                print(f"{path}: {place(error)}: {error.message[:200]}")
        except ValueError as error:
            print(f"{path}: {error}")
PYTHON
)
finish
