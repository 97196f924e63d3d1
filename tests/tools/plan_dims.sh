#!/usr/bin/env bash
# A plan carries the dims that it was made for: commands take them from it, and never run or show a step of other dims under its
# price. Usage: plan_dims.sh BIN
set -u
bin=$1 model=models/mlp_digits.json machine=models/machines/cpu_2.json
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0
bad() {
    echo "FAIL: $*"
    failed=$((failed + 1))
}

"$bin/dtplan" plan "$model" --dim batch=48 --dim hidden=96 --mesh x:2 --machine "$machine" -o "$here/p" >/dev/null || bad "plan"
"$bin/dtplan" plan "$model" --mesh x:2 --machine "$machine" -o "$here/whole" >/dev/null || bad "plan of the model's own dims"

# the step of the plan, in picoseconds of a report: with its dims, said or not
step() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["predicted"]["step_time_s"])' "$1"; }
price=$(step "$here/p")
for dims in "" "--dim batch=48" "--dim batch=48 --dim hidden=96"; do
    "$bin/dtrun" run "$model" --plan "$here/p" --comm sim $dims --quiet -o "$here/r" >/dev/null 2>"$here/err" || bad "run $dims"
    [ -s "$here/err" ] && bad "run $dims says: $(cat "$here/err")"
    [ "$(step "$here/r")" = "$price" ] || bad "run $dims: another price"
    grep -q '"images": \[48' "$here/r" 2>/dev/null
    "$bin/dtrun" verify "$model" --plan "$here/p" --comm sim $dims --steps 1 >/dev/null 2>"$here/err" || bad "verify $dims"
    [ -s "$here/err" ] && bad "verify $dims says: $(cat "$here/err")"
    "$bin/dtplan" explain "$model" "$here/p" h --machine "$machine" $dims >"$here/out" 2>"$here/err" || bad "explain $dims"
    [ -s "$here/err" ] && bad "explain $dims says: $(cat "$here/err")"
    "$bin/dtplan" show "$model" --plan "$here/p" --stage program $dims >"$here/out" 2>"$here/err" || bad "show $dims"
    { grep -q 'images\[48,64\]' "$here/out" && [ ! -s "$here/err" ]; } || bad "show $dims: $(cat "$here/err")"
done
"$bin/dtrun" run "$model" --plan "$here/p" --comm sim --backend ref --quiet >/dev/null 2>"$here/err" || bad "run on ref"
[ -s "$here/err" ] && bad "run on ref says: $(cat "$here/err")"

# other dims: an error without a machine, with one the price of these dims, and both are said once
for command in "dtrun run $model --comm sim" "dtplan show $model --stage program"; do
    for dims in "--dim batch=96" "--dim hidden=64 --dim batch=48"; do
        "$bin"/$command --plan "$here/p" $dims >/dev/null 2>"$here/err"
        [ $? -eq 2 ] && [ "$(wc -l <"$here/err")" -eq 1 ] && grep -q "$here/p: the plan was made for .*=.*--machine" "$here/err" ||
            bad "$command $dims: $(cat "$here/err")"
    done
done
# what is shown without prices may have other dims, and says so
"$bin/dtrun" verify "$model" --plan "$here/p" --comm sim --dim batch=8 --steps 1 >/dev/null 2>"$here/err" || bad "verify of other dims"
[ "$(wc -l <"$here/err")" -eq 1 ] && grep -q "made for batch=48, not batch=8; its prices are left out" "$here/err" ||
    bad "verify of other dims says: $(cat "$here/err")"
for dims in "batch=96" "batch=96 --dim hidden=192"; do
    "$bin/dtrun" run "$model" --plan "$here/p" --comm sim --dim $dims --machine "$machine" --quiet -o "$here/r" >/dev/null 2>"$here/err" ||
        bad "run --dim $dims with a machine"
    [ "$(wc -l <"$here/err")" -eq 1 ] && grep -q "made for batch=48.*, not batch=96.*; its step takes .* now, .* before" "$here/err" ||
        bad "run --dim $dims says: $(cat "$here/err")"
    [ "$(step "$here/r")" != "$price" ] || bad "run --dim $dims: the old price"
done
# the dims of another plan of the same layouts: its price
[ "$(step "$here/r")" = "$(step "$here/whole")" ] || bad "the new price $(step "$here/r") is not that of a plan for these dims"

# a plan without dims, as older versions wrote it, does not lend its price to other sizes either
python3 -c 'import json, sys; p = json.load(open(sys.argv[1])); del p["dims"]; json.dump(p, open(sys.argv[2], "w"))' "$here/p" "$here/old"
"$bin/dtrun" run "$model" --plan "$here/old" --comm sim --quiet -o "$here/r" >/dev/null 2>"$here/err" || bad "a plan without dims"
grep -q "another version of the model; its prices are left out" "$here/err" || bad "a plan without dims says: $(cat "$here/err")"
grep -q '"predicted": null' "$here/r" || bad "a plan without dims: the old price"

# a plan of the model without training says so
"$bin/dtplan" plan "$model" --forward --mesh x:2 --machine "$machine" -o "$here/f" >/dev/null || bad "plan --forward"
for command in "dtrun run $model --comm sim --quiet" "dtrun verify $model --comm sim --steps 1" "dtplan show $model --stage program"; do
    "$bin"/$command --plan "$here/f" >"$here/out" 2>"$here/err" && [ ! -s "$here/err" ] || bad "a forward plan, $command: $(cat "$here/err")"
    ! grep -q 'grad\.' "$here/out" || bad "a forward plan, $command: has gradients"
done

# once per job, also where dtrun starts the ranks
if [ "${2-0}" = 1 ]; then
    root=()
    export ASAN_OPTIONS=detect_leaks=0 # of Open MPI
    [ "$(id -u)" -eq 0 ] && root=(--allow-run-as-root)
    "$bin/dtrun" run "$model" --plan "$here/p" --dim batch=96 --machine "$machine" --threads 1 --quiet "${root[@]}" >/dev/null 2>"$here/err" ||
        bad "run under mpirun"
    [ "$(grep -c 'other_dims' "$here/err")" -eq 1 ] || bad "run under mpirun says: $(cat "$here/err")"
fi
echo "$failed failed"
[ $failed -eq 0 ]
