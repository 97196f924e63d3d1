#!/usr/bin/env bash
# Loss scaling of f16 with gradients that overflow: steps are skipped until the scale fits, on one rank and on two, whose
# partial gradients overflow on one rank alone. Usage: loss_scale.sh BIN_DIR
set -u
bin=$1
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/model.json" <<'M'
{"format": "dtp.model/1", "name": "overflow", "dims": {"b": 4, "f": 3},
 "inputs": {"x": {"dims": ["b", "f"], "dtype": "f32"}},
 "params": {"w": {"dims": ["f"], "init": "ones"}},
 "nodes": [{"id": "y", "op": "mul", "in": ["x", "w"]},
           {"id": "loss", "op": "reduce", "kind": "sum", "over": ["b", "f"], "in": ["y"]}],
 "train": {"loss": "loss", "optimizer": {"sgd": {"lr": 0.5}}}}
M
python3 - "$dir/x.npy" <<'P'
import struct, sys
head = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), }"
head += " " * (63 - (10 + len(head)) % 64) + "\n"
rows = [1, 2, 3, 0.5, 0, 0, 0, 1, 0, 0, 0, 0.25]
open(sys.argv[1], "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack("<12f", *rows))
P
failed=0
# A checkpoint of another precision: the scale keeps its first value. 16-bit tensors are written as f32.
for precision in bf16 f32 f16; do
    "$bin/dtrun" run models/mlp_digits.json --backend ref --precision $precision --steps 1 --quiet \
        --save "$dir/$precision.safetensors" --fetch logits="$dir/$precision.npy" >"$dir/out.txt" 2>&1 &&
        [ "$(stat -c %s "$dir/$precision.npy")" = 3968 ] && # 96 x 10 of f32 behind 128 bytes

        "$bin/dtrun" run models/mlp_digits.json --backend ref --precision f16 --steps 1 --quiet \
            --load "$dir/$precision.safetensors" 2>&1 | grep -q "^loss scale 65536, 0 steps skipped" && continue
    echo "FAIL: f16 from a checkpoint of $precision"
    failed=1
done
run() { # NAME, STEPS, options
    "$bin/dtrun" run "$dir/model.json" --precision f16 --feed x="$dir/x.npy" --steps "$2" --quiet --json \
        --fetch w="$dir/$1.npy" -o "$dir/$1.json" "${@:3}" || failed=1
}
for backend in ref; do
    run first-$backend 1 --backend $backend
    run one-$backend 4 --backend $backend
    run micro-$backend 4 --backend $backend --microbatches 2
    run two-$backend 4 --backend $backend --comm sim --mesh x:2 --rules b:x
    python3 - "$dir" $backend <<'P' || failed=1
import json, struct, sys
folder, backend = sys.argv[1:]
def state(name):
    path = f"{folder}/{name}-{backend}"
    return struct.unpack("<3f", open(path + ".npy", "rb").read()[-12:]), json.load(open(path + ".json"))["loss_scale"]
# Gradients of w: 1.5, 3, 3.25. Times 65536 and 32768 they overflow f16, times 16384 they do not.
assert state("first") == ((1, 1, 1), {"scale": 32768, "skipped_steps": 1}), state("first")
for name in "one", "micro", "two":
    w, scale = state(name)
    assert scale == {"scale": 16384, "skipped_steps": 2}, (name, scale)
    assert w == (1 - 1.5, 1 - 3, 1 - 3.25), (name, w) # two steps of lr 0.5, exact
P
done
# Verification skips the steps that training skips, on one rank and on two, whose parts overflow on one alone; gradients
# that no scale makes finite agree, and are named.
for backend in ref cpu; do
    for layout in "x:1 b:x" "x:2 b:x" "x:3 f:x"; do
        "$bin/dtrun" verify "$dir/model.json" --precision f16 --feed x="$dir/x.npy" --backend $backend --comm sim \
            --mesh "${layout% *}" --rules "${layout#* }" >"$dir/out.txt" 2>&1 &&
            tr -s '\n ' ' ' <"$dir/out.txt" | grep -q "2 steps skipped, whose gradients overflow f16" && continue
        echo "FAIL: verify of gradients that overflow, $backend, $layout"
        cat "$dir/out.txt"
        failed=1
    done
done
sed 's/"op": "mul"/"op": "mul", "id": "p"/; s/{"id": "y", /{/; s/"in": \["y"\]/"in": ["root"]/
s/{"id": "loss"/{"id": "root", "op": "sqrt", "in": ["p"]},\n           &/' "$dir/model.json" >"$dir/root.json"
"$bin/dtrun" verify "$dir/root.json" --precision f16 --feed x="$dir/x.npy" --backend ref >"$dir/out.txt" 2>&1
if [ $? -ne 0 ] || ! tr -s '\n ' ' ' <"$dir/out.txt" | grep -q "40 steps skipped.* NaN on both sides: gradients 'w' step 41"; then
    echo "FAIL: verify of gradients that are not finite"
    cat "$dir/out.txt"
    failed=1
fi
[ $failed -eq 0 ] && echo "loss scaling: steps skipped and scale halved as expected"
exit $failed
