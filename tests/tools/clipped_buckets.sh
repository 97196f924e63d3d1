#!/usr/bin/env bash
# Clipping adds one small all-reduce per set of mesh dims to the program, the norm's, and none of gradients: the buckets of a
# program whose collectives are hidden are as large as those of one in which they are seen. Usage: clipped_buckets.sh BIN
set -u
bin=$1 model=models/gpt2_small.json
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0
bad() {
    echo "FAIL: $*"
    failed=$((failed + 1))
}
sed 's/"train": {/"train": {"clip_norm": 1.0, /' "$model" >"$here/clipped.json"
cmp -s "$model" "$here/clipped.json" && bad "the model has no 'train' to clip"

# START instructions of all-reduces in the update phase of "$1" on machine $2 and mesh $3
gradients() {
    "$bin/dtplan" plan "$1" --mode rules --dim batch=32 --mesh "$3" --precision "$4" --microbatches 4 --machine "models/machines/$2.json" \
        -o "$here/p" >/dev/null 2>"$here/err" || bad "$1 $2 $3: $(cat "$here/err")"
    "$bin/dtplan" show "$1" --plan "$here/p" --stage program 2>/dev/null | grep -c 'update .*start .*all_reduce'
}
for at in "h100_64 x:4;y:2 bf16 13" "h100_64 x:2 bf16 13" "b200_64 x:4 bf16 13" "h100_64 x:4 f32 13" "a100_8 x:8 bf16 13"; do
    read -r machine mesh precision expected <<<"$at"
    plain=$(gradients "$model" "$machine" "$mesh" "$precision")
    clipped=$(gradients "$here/clipped.json" "$machine" "$mesh" "$precision")
    # the number of the norm, on meshes on which gradients are split
    [ "$plain" -eq "$expected" ] && [ "$clipped" -ge "$plain" ] && [ "$clipped" -le $((plain + 1)) ] ||
        bad "$at: $plain all-reduces of gradients, $clipped with clipping"
done
exit $((failed > 0))
