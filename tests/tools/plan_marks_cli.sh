#!/usr/bin/env bash
# Small promises of the commands: a plan that follows pins needs no machine and says no times; baselines above the memory
# limit are marked; a forward run does not wonder at the optimizer states of a checkpoint. Usage: plan_marks_cli.sh BIN_DIR
set -u
bin=$1
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0
bad() { echo "FAIL: $*"; failed=$((failed + 1)); }
model=models/mlp_digits.json machine=models/machines/cpu_2.json

# ---- baselines above the limit
"$bin/dtplan" plan $model --mesh x:2 --machine $machine --json >"$here/free.json" || bad "plan"
"$bin/dtplan" plan $model --mesh x:2 --machine $machine --objective memory --json >"$here/least.json" || bad "plan for memory"
limit=$(/usr/bin/env python3 - "$here" <<'PYTHON'
import json, sys
peaks = [json.load(open(f"{sys.argv[1]}/{f}.json"))["predicted"]["peak_bytes"] for f in ("least",)]
print(peaks[0])
PYTHON
)
"$bin/dtplan" plan $model --mesh x:2 --machine $machine --memory "$limit" --json >"$here/tight.json" || bad "plan at the limit"
"$bin/dtplan" plan $model --mesh x:2 --machine $machine --memory "$limit" >"$here/tight.txt" || bad "plan at the limit"
/usr/bin/env python3 - "$here" "$limit" <<'PYTHON' || bad "marks of baselines"
import json, sys
here, limit = sys.argv[1], int(sys.argv[2])
plan = json.load(open(f"{here}/tight.json"))
rows = {line.split()[0]: line for line in open(f"{here}/tight.txt") if line.strip()}
above = 0
for name, b in plan["baselines"].items():
    if not b["legal"]:
        continue
    over = b["peak_bytes"] > limit
    above += over
    assert (b.get("fits", True) is False) == over, (name, b)
    assert rows[name].rstrip().endswith("*") == over, rows[name]
assert above > 0, "no baseline is above the limit"
assert not any(b.get("fits") is False for b in json.load(open(f"{here}/free.json"))["baselines"].values())
try:
    from jsonschema import Draft202012Validator
    Draft202012Validator(json.load(open("docs/formats/plan.schema.json"))).validate(plan)
except ImportError:
    pass
PYTHON
"$bin/dtplan" plan $model --mesh x:2 --machine $machine --memory "$limit" -o "$here/tight.plan" >"$here/out" || bad "plan -o"
"$bin/dtplan" show $model --plan "$here/tight.plan" >"$here/shown" || bad "a marked plan is not read"

# ---- pins need no machine
"$bin/dtplan" plan $model --mesh x:2 --pin "images: batch@x" -o "$here/pins.plan" >"$here/pins.txt" 2>"$here/err" ||
    bad "--pin without --machine: $(head -1 "$here/err")"
grep -q 'peak per rank' "$here/pins.txt" || bad "the peak of memory is not said"
grep -Eq '(^| )[0-9.]+ s|total s|compute s|vs plan| ps' "$here/pins.txt" && bad "times without a machine"
"$bin/dtplan" plan $model --mesh x:2 --pin "images: batch@x" --machine $machine -o "$here/priced.plan" >/dev/null || bad "with a machine"
/usr/bin/env python3 - "$here" <<'PYTHON' || bad "the plan without a machine"
import json, sys
here = sys.argv[1]
plan, priced = json.load(open(f"{here}/pins.plan")), json.load(open(f"{here}/priced.plan"))
assert "machine" not in plan and "machine" not in plan["hashes"], plan["hashes"]
assert set(plan["predicted"]) == {"peak_bytes", "collectives"}, plan["predicted"]
for key in ("peak_bytes", "collectives"):
    assert plan["predicted"][key] == priced["predicted"][key], key
assert plan["tensors"] == priced["tensors"] and plan["baselines"] == {}
try:
    from jsonschema import Draft202012Validator
    Draft202012Validator(json.load(open("docs/formats/plan.schema.json"))).validate(plan)
except ImportError:
    pass
PYTHON
"$bin/dtplan" show $model --plan "$here/pins.plan" >"$here/shown" 2>"$here/err" || bad "show: $(head -1 "$here/err")"
"$bin/dtrun" run $model --plan "$here/pins.plan" --comm sim --steps 1 >"$here/run" 2>"$here/err" || bad "run: $(head -1 "$here/err")"
"$bin/dtrun" run $model --plan "$here/pins.plan" --machine $machine --comm sim --steps 1 >"$here/run" 2>"$here/err" ||
    bad "run with a machine: $(head -1 "$here/err")"
grep -q another "$here/err" && bad "a plan without a machine was made for another machine"
"$bin/dtplan" plan $model --mesh x:2 --pin "images: batch@x" --memory 1000 >"$here/out" 2>"$here/err"
[ $? -eq 3 ] || bad "above --memory: $(head -1 "$here/err")"
for needs in "" "--mode tensor" "--rules batch:x" "--mode tensor --pin images:batch@x"; do
    # shellcheck disable=SC2086
    XDG_CACHE_HOME='' HOME='' "$bin/dtplan" plan $model --mesh x:2 $needs >"$here/out" 2>"$here/err"
    [ $? -eq 2 ] && grep -q 'neither XDG_CACHE_HOME nor HOME' "$here/err" || bad "'$needs' without a machine: $(head -1 "$here/err")"
done

# ---- the plan in words: context parallelism, a plan that mixes, and 80 columns
"$bin/dtplan" plan models/gpt2_small.json --mesh cp:2 --machine h100_64 --style 'layers.*.attn: context(ring)' \
    --pin 'x0: length@cp' >"$here/out" 2>"$here/err" || bad "context: $(head -1 "$here/err")"
grep -q '^  cp (2): .*context parallel: attention by length$' "$here/out" || bad "context parallelism is not said"
"$bin/dtplan" plan models/llama3_8b.json --mesh 'x:8;y:8' --machine h100_64 --target cpu --mode tensor >"$here/out" 2>"$here/err" ||
    bad "mixed: $(head -1 "$here/err")"
grep -q '^  y (8): mixed: ' "$here/out" || bad "it is not said that a plan mixes"
awk 'length($0) > 80 { print; found = 1 } END { exit !found }' "$here/out" && bad "lines of more than 80 columns"

# ---- optimizer states of a checkpoint, forward
adam=models/mlp_digits.json
dtplan_states=("$bin/dtrun" run "$adam" --comm sim --steps 1)
"${dtplan_states[@]}" --save "$here/ckpt" >"$here/out" 2>"$here/err" || bad "save: $(head -1 "$here/err")"
"${dtplan_states[@]}" --forward --load "$here/ckpt" >"$here/out" 2>"$here/err" || bad "load: $(head -1 "$here/err")"
grep -q 'checkpoint unused' "$here/err" && bad "a forward run: $(grep unused "$here/err" | head -1)"
echo "$failed wrong"
[ $failed -eq 0 ]
