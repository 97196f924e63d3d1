#!/usr/bin/env bash
# Ranks that cannot have their card or transport: one line that says why, and an exit code, on the emulated device.
# Usage: errors.sh DTRUN sim|mpi
set -u
dtrun=$1 comm=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fail=0
expect() { # devices, exit code, words, options
    local out code
    out=$(CUDA_EMU_DEVICES=$1 "$dtrun" run models/mlp_digits.json --backend cuda --comm "$comm" --mesh x:2 --rules batch:x \
        --dim batch=16 --dim pixels=16 --dim hidden=24 --dim classes=12 --steps 2 --quiet "${@:4}" 2>&1)
    code=$?
    if [ $code -ne "$2" ] || [ "$(echo "$out" | wc -l)" -ne 1 ] || ! echo "$out" | grep -qF "$3"; then
        echo "$comm, $1 devices, ${*:4}: exit code $code: $out"
        fail=1
    fi
}
expect 0 2 "backend cuda: there is no GPU on this machine"
expect 1 2 "transport nccl: it needs a card for every rank" --transport nccl
expect 2 2 "there is no transport 'rings'; there are: auto, device, nccl, staged" --transport rings
if [ "$comm" = mpi ]; then
    expect 1 2 "transport device: the ranks are processes" --transport device
    # The emulated NCCL does not leave its process: the peer never comes.
    expect 2 1 "ncclCommInitRankConfig is not done after 2 s" --transport nccl --timeout 2
fi
exit $fail
