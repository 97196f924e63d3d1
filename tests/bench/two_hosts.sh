#!/usr/bin/env bash
# Predicted and measured steps with and without overlap, on two hosts joined by 1 Gbit/s (tests/support/hosts.sh), each a
# rank with a core of its own. One row for a model and plan; all rows of a model have the same losses to the bit. Exit
# code 77: no two hosts here. Usage: two_hosts.sh BUILD_DIR [RATE]
set -eu
bin=$1/bin rate=${2:-1gbit}
. tests/support/hosts.sh
export DTRUN=$bin/dtrun OMP_NUM_THREADS=1
dir=$(mktemp -d)
trap 'hosts_down; rm -rf "$dir"' EXIT
hosts_up 2 "$rate" own || { echo "no namespaces for two hosts"; exit 77; }
common=(--comm mpi) # one thread a rank, as a host has one core
[ "$(id -u)" -eq 0 ] && common+=(--allow-run-as-root)
hosts_dtrun bench --ranks 2 "${common[@]}" --quiet -o "$dir/machine.json" >/dev/null

# row PLAN MODEL STEPS OPTION...: the step with the overlap of the plan and without, in turn, so that what slows the
# machine for a while slows both
row() {
    local plan=$1 model=$2 steps=$3 style=(--style '**: data') round
    shift 3
    [ "$plan" = FSDP ] && style+=(--style '**: fsdp')
    "$bin/dtplan" plan "models/$model.json" "$@" --mesh x:2 --machine "$dir/machine.json" "${style[@]}" \
        -o "$dir/with.json" >/dev/null
    python3 tests/bench/two_hosts.py serial "$dir/with.json" "$dir/without.json"
    for round in 1 2 3; do
        for way in with without; do
            hosts_dtrun run "models/$model.json" "$@" --plan "$dir/$way.json" --machine "$dir/machine.json" \
                --steps "$steps" --feed text=models/data/text.txt "${common[@]}" --quiet -o "$dir/$way.$round" >/dev/null
        done
    done
    python3 tests/bench/two_hosts.py row "$model $*" "$plan" "$dir/with.json" "$dir/$model.losses" \
        "$dir/with".[1-3] "$dir/without".[1-3]
}
python3 tests/bench/two_hosts.py head "$dir/machine.json"
for plan in "data parallel" FSDP; do
    row "$plan" gpt_bytes 50 --dim batch=8
    row "$plan" gpt2_small 4 --dim batch=2 --dim length=256
done
