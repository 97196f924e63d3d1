#!/usr/bin/env bash
# Planning that is ended early: dtplan plan --limit-s and SIGINT give the best plan so far with a certificate that says so, or
# one error and no file; a limit that is not reached changes nothing. Usage: anytime.sh BIN_DIR
set -u
dtplan=$1/dtplan
gpt2="models/gpt2_small.json --machine models/machines/v100_16.json --mesh x:4;y:4"
mixtral="models/mixtral_8x7b.json --machine models/machines/h100_512.json --mesh x:8;y:8;z:8"
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0
fail() {
    echo "FAIL: $*"
    failed=1
}
field() { # name file
    sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" "$2" | head -1
}
# check NAME MODEL REASON COST: a plan file that is complete and reads back, and a bound of at most COST, that of a plan.
check() {
    local name=$1 file=$here/$1.plan why
    why=$(field ended "$file")
    [ "$why" = "$3" ] || fail "$name: ended is '$why', not '$3'"
    [ "$(field bound "$file")" -le "$4" ] || fail "$name: bound $(field bound "$file") is above the cost of a plan, $4"
    "$dtplan" show "$2" --plan "$file" >"$here/$name.shown" || fail "$name: the plan cannot be read"
    grep -qF "ended early: $3" "$here/$name.shown" || fail "$name: dtplan show does not say why planning ended"
}

# A limit that is not reached changes nothing; its plan's cost is what any bound must stay below.
for mode in rules tensor; do
    # shellcheck disable=SC2086
    "$dtplan" plan $gpt2 --mode $mode -o "$here/whole.plan" >/dev/null || fail "$mode: no plan"
    # shellcheck disable=SC2086
    "$dtplan" plan $gpt2 --mode $mode --limit-s 1000 -o "$here/unused.plan" >/dev/null || fail "$mode: no plan with a limit"
    cmp -s "$here/whole.plan" "$here/unused.plan" || fail "$mode: a limit that is not reached changes the plan"
    grep -q '"ended"' "$here/unused.plan" && fail "$mode: a limit that is not reached has ended something"
done
least=$(field least_cost "$here/whole.plan")
least=${least:-$(field cost "$here/whole.plan")}

# Ever longer limits: a plan, or the error, the file there only with a plan. The first is over before planning begins.
for limit in 0.01 0.05 0.1 0.3; do
    # shellcheck disable=SC2086
    "$dtplan" plan $gpt2 --mode tensor --limit-s $limit -o "$here/limit.plan" >/dev/null 2>"$here/limit.err"
    code=$?
    case $code in
    0) [ -z "$(field ended "$here/limit.plan")" ] || check limit models/gpt2_small.json "time limit" "$least" ;;
    3)
        tr -s '\n ' ' ' <"$here/limit.err" | grep -q '^dtplan: no plan was found, any needs [0-9.]* GiB: ended early (time limit)' ||
            fail "limit $limit: $(cat "$here/limit.err")"
        [ ! -e "$here/limit.plan" ] || fail "limit $limit: a file without a plan"
        ;;
    *) fail "limit $limit: exit code $code: $(cat "$here/limit.err")" ;;
    esac
    rm -f "$here/limit.plan"
done
# shellcheck disable=SC2086
"$dtplan" plan $mixtral --mode tensor --limit-s 0.01 -o "$here/none.plan" >/dev/null 2>"$here/none.err"
if [ $? != 3 ] || [ -e "$here/none.plan" ] || [ "$(wc -l <"$here/none.err")" != 1 ]; then
    fail "no plan: $(cat "$here/none.err")"
fi

# Rules mode once went round in circles here; its plan has a cost that no bound of tensor mode is above.
# shellcheck disable=SC2086
timeout 60 "$dtplan" plan $mixtral --mode rules -o "$here/rules.plan" >/dev/null || fail "rules mode: no plan within 60 s"
cost=$(field cost "$here/rules.plan")
# SIGINT after the first solution.
mkfifo "$here/log"
# shellcheck disable=SC2086
"$dtplan" plan $mixtral --mode tensor --verbose -o "$here/interrupt.plan" >/dev/null 2>"$here/log" &
planner=$!
exec 3<"$here/log"
while read -r line <&3 && [ "${line#*solved}" = "$line" ]; do :; done
kill -INT $planner
wait $planner
code=$?
[ $code = 0 ] || fail "SIGINT: exit code $code: $(cat <&3)"
check interrupt models/mixtral_8x7b.json interrupt "$cost"

# A plan that was ended early runs as any other.
gpt=models/gpt_bytes.json
"$dtplan" plan $gpt --machine models/machines/a100_8.json --target cpu --mesh x:4 --mode tensor --limit-s 0.03 -o "$here/early.plan" >/dev/null 2>"$here/early.err"
if [ -e "$here/early.plan" ]; then
    "$1/dtrun" verify $gpt --plan "$here/early.plan" --comm sim --dim batch=4 --feed text=models/data/text.txt >/dev/null ||
        fail "dtrun verify of a plan that was ended early"
fi

# 20,000 nodes without blocks: one layout is lowered, and little is done beyond the limit.
python3 - >"$here/long.json" <<'MODEL'
import json
nodes = [{"id": f"y{i}", "op": "mul", "in": [f"y{i - 1}" if i else "x", "w"]} for i in range(20000)]
nodes.append({"id": "loss", "op": "reduce", "kind": "mean", "in": ["y19999"], "over": ["b", "d"]})
print(json.dumps({"format": "dtp.model/1", "name": "long", "dims": {"b": 64, "d": 64}, "inputs": {"x": {"dims": ["b", "d"]}},
                  "params": {"w": {"dims": ["d"], "init": "ones"}}, "nodes": nodes,
                  "train": {"loss": "loss", "optimizer": {"sgd": {"lr": 0.1}}}}))
MODEL
timeout 250 "$dtplan" plan "$here/long.json" --machine models/machines/h100_64.json --mesh 'x:4;y:2' --mode rules --limit-s 1 \
    -o "$here/long.plan" >/dev/null || fail "20,000 nodes: no plan"
[ "$(field ended "$here/long.plan")" = "time limit" ] || fail "20,000 nodes: not ended by the limit"

exit $failed
