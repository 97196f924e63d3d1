#!/usr/bin/env bash
# dtplan solve: verdicts, exit codes, files against their schemas. Usage: solve_cli.sh BIN_DIR
set -u
dtplan=$1/dtplan
example=models/selection/example.json
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0
expect() {
    [ "$2" = "$3" ] || { echo "FAIL: $1: got '$2', wanted '$3'"; failed=1; }
}
field() { # name file
    sed -n "s/^  \"$1\": \(.*[^,]\),\{0,1\}$/\1/p" "$2"
}

"$dtplan" solve $example --json -o "$here/solution.json" >"$here/report.json"
expect "exit code" $? 0
for file in report solution; do
    expect "$file: cost" "$(field cost "$here/$file.json")" 445
    expect "$file: bound" "$(field bound "$here/$file.json")" 445
    expect "$file: status" "$(field status "$here/$file.json")" '"optimal"'
done

# The written problem, packed, has the same solution; so has the problem with fewer reductions.
"$dtplan" solve $example --write iopddl | gzip >"$here/again.json.gz"
"$dtplan" solve "$here/again.json.gz" -o "$here/again.json" >/dev/null
cmp -s "$here/solution.json" "$here/again.json" || { echo "FAIL: the written problem differs"; failed=1; }
"$dtplan" solve $example --without consistency,merge,dominance,eliminate,rows,cap --json >"$here/plain.json"
expect "plain: cost" "$(field cost "$here/plain.json")" 445
expect "plain: merged" "$(grep -o '"merged_nodes": [0-9]*' "$here/plain.json")" '"merged_nodes": 0'

# Parameters: every one may be set, to its own value too, which changes nothing.
"$dtplan" solve --parameters >"$here/parameters"
expect "parameters: exit code" $? 0
set --
while read -r name value _; do
    [ "$name" = parameter ] || set -- "$@" --set "$name=$value"
done < <(grep -v "^ " "$here/parameters")
"$dtplan" solve $example "$@" -o "$here/set.json" >/dev/null
cmp -s "$here/solution.json" "$here/set.json" || { echo "FAIL: defaults that are set differ"; failed=1; }
expect "parameters: one set" "$("$dtplan" solve --parameters --set dive_steps=7 | awk '$1 == "dive_steps" { print $2 }')" 7

sed 's/"usage_limit": 50/"usage_limit": 39/' $example >"$here/tight.json"
"$dtplan" solve "$here/tight.json" --json -o "$here/none.json" >"$here/tight_report.json"
expect "infeasible: exit code" $? 3
expect "infeasible: status" "$(field status "$here/tight_report.json")" '"infeasible"'
expect "infeasible: cost" "$(field cost "$here/tight_report.json")" null

if /usr/bin/env python3 -c 'from jsonschema import Draft202012Validator' 2>/dev/null; then
    while read -r schema file; do
        python3 -c '
import json, sys
from jsonschema import Draft202012Validator
schema, file = (json.load(open(path, encoding="utf-8")) for path in sys.argv[1:])
Draft202012Validator(schema).validate(file)' "docs/formats/$schema.schema.json" "$file" ||
            { echo "FAIL: $file does not fit $schema"; failed=1; }
    done <<FILES
iopddl $example
solve $here/report.json
solve $here/tight_report.json
selection $here/solution.json
selection $here/none.json
FILES
fi
exit $failed
