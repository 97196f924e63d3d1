#!/usr/bin/env bash
# dtplan redistribute: the trace, the report against its schema, runs that pass. Usage: redistribute_cli.sh BIN_DIR
set -u
dtplan=$1/dtplan
failed=0
expect() {
    [ "$2" = "$3" ] || { echo "FAIL: $1: got '$2', wanted '$3'"; failed=1; }
}
field() { # name
    sed -n "s/^  \"$1\": \"\(.*\)\",\$/\1/p" <<<"$json"
}

json=$("$dtplan" redistribute --mesh a:2,b:2 --shape 8,8 --from S0,S0 --to R,R --compat torch --run --json)
expect "exit code" $? 0
expect trace "$(field trace)" "S(0)[0]S(0)[1]→S(0)R→RR"
expect planner "$(field planner)" torch
grep -q '"pass": true' <<<"$json" || { echo "FAIL: the run does not pass"; failed=1; }

# One all-to-all over the flattened mesh that moves 7/8 of a shard of 64 * 64 / 8 floats.
json=$("$dtplan" redistribute --mesh a:2,b:2,c:2 --shape 64,64 --from S0,S0,S0 --to S1,S1,S1 --run --json)
expect trace "$(field trace)" "S(0)[0]S(0)[1]S(0)[2]→S(1)[0]S(1)[1]S(1)[2]"
expect moved "$(sed -n 's/.*"moved_bytes": \([0-9]*\),/\1/p' <<<"$json")" $((64 * 64 / 8 * 4 * 7 / 8))
expect collectives "$(grep -A1 '"collectives"' <<<"$json" | tail -1 | tr -d ' ')" '"all_to_all":1'

text=$("$dtplan" redistribute --mesh a:4 --shape 10,3 --dtype bf16 --from 'P(max)' --to S-2 --run)
expect "text exit code" $? 0
expect "last line" "$(tail -1 <<<"$text")" "run on 4 virtual ranks: all 30 elements right"

if /usr/bin/env python3 -c 'from jsonschema import Draft202012Validator' 2>/dev/null; then
    for args in "--from S0,S1 --to S1,R --run" "--from P,R --to R,P(sum) --compat torch" "--from R,R --to R,R" \
        "--from P(avg),P --to S1,S1 --machine models/machines/a100_8.json"; do
        # shellcheck disable=SC2086
        "$dtplan" redistribute --mesh a:2,b:2 --shape 8,8,8 $args --json | python3 -c '
import json, sys
from jsonschema import Draft202012Validator
schema = json.load(open("docs/formats/redistribute.schema.json", encoding="utf-8"))
Draft202012Validator(schema).validate(json.load(sys.stdin))' || { echo "FAIL: schema: $args"; failed=1; }
    done
fi
exit $failed
