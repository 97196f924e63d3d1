#!/usr/bin/env bash
# Machines by name, from the build folder and from where the tools are installed; without --machine this machine is
# measured once, and that is said.
# Usage: machines_cli.sh BIN_DIR
set -u
bin=$(realpath "$1")
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
export XDG_CACHE_HOME=$here/cache
failures=0
bad() { echo "$*"; failures=$((failures + 1)); }

cmake --install "$bin/.." --prefix "$here/prefix" >"$here/install.log" || bad "the tools cannot be installed"
for at in "$bin" "$here/prefix/bin"; do
    names=$("$at/dtplan" machines | awk 'NR > 1 && !/^ / { print $1 }')
    [ "$names" = "$(ls models/machines | sed 's/\.json$//')" ] || bad "$at/dtplan machines lists" $names
    "$at/dtplan" plan models/mlp_digits.json --mesh 'x:8;y:8' --machine h100_64 -o "$here/plan.json" >/dev/null ||
        bad "$at: --machine h100_64 is not found"
    cmp -s "$here/plan.json" <("$at/dtplan" plan models/mlp_digits.json --mesh 'x:8;y:8' \
        --machine models/machines/h100_64.json --json) || bad "$at: a machine by name gives another plan than its file"
done

# ---- models by name, as dtrun has them
for at in "$bin" "$here/prefix/bin"; do
    cmp -s <("$at/dtplan" plan mlp_digits --mesh x:2 --machine h100_64 --json) \
        <("$at/dtplan" plan models/mlp_digits.json --mesh x:2 --machine h100_64 --json) || bad "$at: a model by name gives another plan"
    "$at/dtrun" verify mlp_digits --mesh x:2 --rules batch:x --comm sim --steps 1 >/dev/null || bad "$at: dtrun takes no model by name"
done

# ---- numbers of machines
set_() { "$bin/dtplan" machines h100_64 "$@" -o "$here/set.json" || bad "machines $*"; }
number() { # KEY WANTED: of set.json
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); v = eval(sys.argv[2], d); w = float(sys.argv[3])
sys.exit(f"{sys.argv[2]} is {v}, not {w}" if abs(v - w) > 1e-9 * abs(w) else 0)' "$here/set.json" "$@" || bad "--set"
}
set_ --set memory=141GiB --set ib.bandwidth=0.5x --set nvlink.latency=2.7us --set ib.size=16 --set flops=2x --set launch=3us \
    --set memory.bandwidth=4.8e12
number "device['memory_bytes']" 151397597184
number "levels[1]['bw_Bps']" 2e11
number "levels[0]['latency_s']" 2.7e-6
number "levels[1]['size']" 16
number "device['flops']['bf16']" 1.978e15
number "device['launch_s']" 3e-6
number "device['mem_bw_Bps']" 4.8e12
number "efficiency['torch']['products']" "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["efficiency"]["torch"]["products"])' models/machines/h100_64.json)"
set_ --set ib.bandwidth=0.5x --set ib.bandwidth=400GB/s
number "levels[1]['bw_Bps']" 4e11
same() { # a command with --set says what it says with the machine's file
    "$bin/$1" "${@:2}" --machine h100_64 --set memory.bandwidth=0.5x >"$here/one" 2>&1 || bad "$1 $2 --set: $(cat "$here/one")"
    "$bin/$1" "${@:2}" --machine "$here/half.json" >"$here/two" 2>&1 || bad "$1 $2: $(cat "$here/two")"
    cmp -s "$here/one" "$here/two" || bad "$1 $2 --set says something else"
}
"$bin/dtplan" machines h100_64 --set memory.bandwidth=0.5x -o "$here/half.json" || bad "machines -o"
"$bin/dtplan" plan mlp_digits --mesh x:2 --machine "$here/half.json" -o "$here/half.plan.json" >/dev/null || bad "a plan of the file"
same dtplan plan mlp_digits --mesh x:2 --json
same dtplan explain mlp_digits "$here/half.plan.json" w1 --json
same dtplan diff mlp_digits "$here/half.plan.json" "$here/half.plan.json" --json
same dtplan pareto mlp_digits --mesh x:2 --points 2 --json
same dtplan sensitivity mlp_digits "$here/half.plan.json" --only flops --steps 1 --json
same dtplan redistribute --mesh a:2 --shape 8,8 --from S0 --to R --json
same dtplan show mlp_digits --mesh x:2 --stage problem
same dtplan show mlp_digits --plan "$here/half.plan.json" --stage schedule

plan() { "$bin/dtplan" plan models/mlp_digits.json --mesh x:2 -o "$1" >/dev/null 2>"$here/err"; }
plan "$here/first.json" || bad "no plan without --machine: $(cat "$here/err")"
grep -q '^no --machine: measuring this machine on 2 rank' "$here/err" || bad "it is not said that the machine is measured"
plan "$here/second.json" || bad "no second plan without --machine: $(cat "$here/err")"
grep -q "^no --machine: $here/cache/dtp/cpu_2.json, measured before" "$here/err" || bad "the second plan says: $(cat "$here/err")"
cmp -s "$here/first.json" "$here/second.json" || bad "the second plan is another one"
! XDG_CACHE_HOME='' HOME='' "$bin/dtplan" plan models/mlp_digits.json --mesh x:2 >/dev/null 2>"$here/err" ||
    bad "a plan without a place for the machine"
grep -q 'neither XDG_CACHE_HOME nor HOME' "$here/err" || bad "without a place it says: $(cat "$here/err")"

# ---- runtimes: whose kernels are priced, and what is the default on which machine
model=models/mlp_digits.json
priced() { # NAME ARGS...: the plan as JSON in NAME.json, what is said in NAME.err
    "$bin/dtplan" plan $model --mesh x:2 --json -o /dev/null "${@:2}" >"$here/$1.json" 2>"$here/$1.err" || bad "$1: $(cat "$here/$1.err")"
}
has() { # NAME KEY VALUE
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); p = d.get("precision", {}).get("compute", "f32")
d["compute"] = p; sys.exit(d.get(sys.argv[2], "") != sys.argv[3])' "$here/$1.json" "$2" "$3" || bad "$1: $2 is not '$3'"
}
sed 's/"efficiency": {/"x": {/' models/machines/h100_64.json | python3 -c 'import json, sys
d = json.load(sys.stdin); del d["x"]; d["name"] = "ours"; print(json.dumps(d))' >"$here/ours.machine.json"
priced cuda --machine h100_64
has cuda target cuda && has cuda compute bf16 && has cuda rates datasheet && has cuda runtime ''
priced torch --machine h100_64 --target torch
has torch rates fitted && has torch runtime torch && has torch compute bf16
[ -s "$here/torch.err" ] && bad "a set of its own: $(cat "$here/torch.err")"
priced older --machine h100_64 --target torch --runtime torch-2023
has older runtime torch-2023
priced peaks --machine h100_64 --target torch --runtime datasheet
has peaks rates datasheet && has peaks runtime ''
priced cpu --machine h100_64 --target cpu
has cpu target '' && has cpu compute f32
priced volta --machine v100_16 # states no rate of bf16
has volta target cuda && has volta compute f32
priced amd --machine mi300x_64 # no backend of dtrun
has amd target torch && has amd compute bf16 && has amd mode tensor
priced pinned --machine h100_64 --rules batch:x
has pinned mode rules
priced here --machine cpu_2
has here target '' && has here mode rules
# A model that was imported is planned for the framework; dtrun's target is one option away.
for framework in torch transformers; do
    sed "s/\"name\": \"mlp_digits\"/&, \"framework\": \"$framework\"/" models/mlp_digits.json >"$here/theirs.json"
    grep -q framework "$here/theirs.json" || bad "no framework in the model"
    model=$here/theirs.json priced imported --machine h100_64
    has imported target torch && has imported rates fitted
    model=$here/theirs.json priced imported --machine h100_64 --target cuda
    has imported target cuda
    model=$here/theirs.json priced imported --machine cpu_2
    has imported target ''
done
priced form --machine h100_64 --expressible hf
has form target torch
sed -i 's/"framework": "transformers"/"framework": "jax"/' "$here/theirs.json"
"$bin/dtplan" plan "$here/theirs.json" --mesh x:2 --machine h100_64 >"$here/out" 2>"$here/err"
[ $? -eq 2 ] && grep -q "theirs.json:.*'jax' is neither torch nor transformers" "$here/err" || bad "framework jax: $(cat "$here/err")"
priced ours --machine "$here/ours.machine.json" --target torch
has ours runtime torch
grep -q "ours.machine.json: the efficiency of runtime 'torch' is that of h100-128" "$here/ours.err" || bad "borrowed: $(cat "$here/ours.err")"
cmp -s <(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["predicted"])' "$here/ours.json") \
    <(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["predicted"])' "$here/torch.json") || bad "a borrowed set gives another prediction"
"$bin/dtplan" plan $model --mesh x:2 --machine h100_64 --runtime jax >"$here/out" 2>"$here/err"
[ $? -eq 2 ] && grep -q "no efficiencies of runtime 'jax', only of maxtext, megatron, torch, torch-2023" "$here/err" || bad "runtime jax: $(cat "$here/err")"
"$bin/dtplan" plan $model --mesh x:2 --machine h100_64 --target torch -o "$here/torch.plan" >/dev/null
"$bin/dtrun" run $model --plan "$here/torch.plan" --comm sim --steps 1 >"$here/out" 2>"$here/err"
[ $? -eq 2 ] && grep -q "which PyTorch runs" "$here/err" || bad "dtrun runs a plan for torch: $(cat "$here/err")"
[ "$failures" -eq 0 ]
