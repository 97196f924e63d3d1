#!/usr/bin/env bash
# Modules of devices that cannot be used: one line that says why, exit code 2, and on the CPU everything runs.
# Usage: modules.sh BIN_DIR EMULATED_DIR WRONG_DIR
set -u
dtrun=$1/dtrun emulated=$2 wrong=$3
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
fail=0
expect() { # words, folder of libraries, options
    local out code
    out=$(LD_LIBRARY_PATH=$2 "$dtrun" run models/mlp_digits.json --dim batch=16 --dim pixels=16 --dim hidden=24 --dim classes=12 \
        --steps 2 --quiet --comm self "${@:3}" 2>&1)
    code=$?
    if [ $code -ne 2 ] || [ "$(wc -l <<<"$out")" -ne 1 ] || ! grep -qE "$1" <<<"$out"; then
        echo "$2 ${*:3}: exit code $code: $out"
        fail=1
    fi
}
cuda=(--backend cuda)
# The real module is found behind these, where it was built.
[ -e "$(dirname "$1")/lib/dtp/dtp_cuda.so" ] ||
    expect "backend cuda: its module dtp_cuda.so is not installed with this dtp \(cmake -DDTP_CUDA=ON builds it\)" "" "${cuda[@]}"
for kind in abi layout name symbol; do
    case $kind in
    abi | layout) words="backend cuda: dtp_cuda.so is of another build: its ABI is [0-9]+ \([0-9a-f]+\), that of this dtp [0-9]+ \(" ;;
    name) words="backend cuda: dtp_cuda.so is that of backend 'npu'" ;;
    symbol) words="backend cuda: dtp_cuda.so has no dtp_device_module" ;;
    esac
    expect "$words" "$wrong/$kind" "${cuda[@]}"
done
# A library that the module needs is missing.
cp "$emulated/dtp_cuda.so" "$here"
expect "backend cuda: dtp_cuda.so cannot be opened: libcuda_emu.so: .*; it needs cuBLASLt of the CUDA toolkit \(package" "$here" "${cuda[@]}"
# NCCL is opened when its transport is made; this one is empty.
cp "$emulated/libcuda_emu.so" "$here"
cp "$wrong/symbol/dtp_cuda.so" "$here/libnccl.so.2"
CUDA_EMU_DEVICES=2 expect "transport nccl: libnccl.so.2 has no ncclAllGather" "$here" "${cuda[@]}" --comm sim --mesh x:2 --rules batch:x \
    --transport nccl
LD_LIBRARY_PATH=$here CUDA_EMU_DEVICES=2 "$dtrun" run models/mlp_digits.json "${cuda[@]}" --comm self --steps 2 --quiet >"$here/out" 2>&1 ||
    { cat "$here/out"; fail=1; }
# Names of files are not names of backends; what there is, is named.
expect "no backend 'npu'; there are: cpu, ref, cuda$" "" --backend npu
expect "no backend '\.\./emulated/dtp_cuda'; there are: cpu, ref, cuda$" "" --backend ../emulated/dtp_cuda
expect "backend 'cpu' has no transport 'nccl'" "" --backend cpu --transport nccl
expect "the backend has no switch 'no_epilogues'" "" --backend cpu --switches no_epilogues
# What is not the module links nothing of CUDA.
for file in "$1/dtrun" "$1/dtplan" "$(dirname "$1")"/libdtp*.so; do
    ! readelf -d "$file" | grep -E 'NEEDED.*(libcu|nvidia|nccl)' || { echo "$file links CUDA"; fail=1; }
done
exit $fail
