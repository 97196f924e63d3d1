#!/usr/bin/env bash
# dtplan plan, show and viz of plans with recomputed blocks and microbatches, from rules and from styles. What the plans compute is
# looked at by test_verify_saving.c. Usage: saving_shown.sh BIN_DIR
set -u
bin=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
model="models/gpt_bytes_dropout.json --dim length=16 --dim heads=4 --dim batch=8 --dim layers=2"
count=0 failed=0
while IFS='|' read -r layouts choices; do
    count=$((count + 1))
    # shellcheck disable=SC2086
    "$bin/dtplan" plan $model $layouts $choices --machine models/machines/a100_8.json --target cpu -o "$dir/plan.json" >"$dir/plan.txt" &&
        "$bin/dtplan" show $model --plan "$dir/plan.json" --stage program >"$dir/program.txt" &&
        "$bin/dtplan" viz $model --plan "$dir/plan.json" --tensor layers.1.mlp.up >"$dir/viz.txt" &&
        [ -s "$dir/program.txt" ] && [ -s "$dir/viz.txt" ] && continue
    echo "FAIL: $layouts $choices"
    failed=$((failed + 1))
done <<'CASES'
--mesh x:2 --rules batch:x|
--mesh x:2 --rules batch:x|--remat all --microbatches 4
--mesh x:2;y:2 --rules batch:x;heads:y;d_ff:y;vocab:y|--remat layer:0 --microbatches 2
--devices 4 --objective memory|--remat layer --microbatches batch=2
--mesh x:2 --style **:data|--microbatches 2
--mesh x:2 --style **:data --style **:zero1|--microbatches 4
--mesh x:2 --style **:data --style **:zero2|--remat all --microbatches 4
--mesh x:2 --style **:data --style **:fsdp|--remat all --microbatches 2
--mesh x:2 --style layers.*.mlp.up.mm:colwise --style layers.*.mlp.down.mm:rowwise|--remat layer:1 --microbatches 2
--mesh tp:2 --style layers.*.{attn.{q,k,v}*,mlp.up*}:colwise --style layers.*.{attn.mm,mlp.down.mm}:rowwise(output=length) --style {layers.*.ln_*,ln_f}:sequence|--remat all --microbatches 2
--mesh cp:2 --style layers.*.attn:context(ring) --pin x0:length@cp|--remat all --microbatches 2
CASES
# what is kept: plan, show and JSON say it, and a glob that matches nothing is an error
keep='layer:0 keep=**.{attn,attn.mm}$;layer:1'
# shellcheck disable=SC2086
{
    "$bin/dtplan" plan $model --mesh x:2 --rules batch:x --remat "$keep" --machine models/machines/a100_8.json --target cpu \
        -o "$dir/keep.json" >"$dir/keep.txt" &&
        "$bin/dtplan" show $model --plan "$dir/keep.json" >"$dir/shown.txt" &&
        "$bin/dtplan" show $model --plan "$dir/keep.json" --stage program >"$dir/program.txt" || failed=$((failed + 1))
    for file in keep shown; do
        grep -qF 'recomputed: layer:0 keep=**.{attn,attn.mm}$; layer:1' "$dir/$file.txt" || { echo "FAIL: $file.txt"; failed=$((failed + 1)); }
    done
    grep -qF '"remat": ["layer:0 keep=**.{attn,attn.mm}$", "layer:1"]' "$dir/keep.json" || { echo "FAIL: keep.json"; failed=$((failed + 1)); }
    grep -q 'remat\.layers\.0\.attn\b[^.]' "$dir/program.txt" && { echo "FAIL: kept and recomputed"; failed=$((failed + 1)); }
    sed 's/attn.mm}/atn.mm}/; s/{attn,/{atn,/' "$dir/keep.json" >"$dir/wrong.json"
    for given in "--remat|layer keep=**.atn.mm\$" "--plan|$dir/wrong.json"; do
        "$bin/dtplan" show $model "${given%%|*}" "${given#*|}" >"$dir/out.txt" 2>"$dir/err.txt"
        [ $? -eq 2 ] && grep -q "matches no node of the block; the nearest names are 'layers.0.attn.mm'" "$dir/err.txt" ||
            { echo "FAIL: $given:"; cat "$dir/err.txt"; failed=$((failed + 1)); }
    done
}
echo "$count plans shown, $failed failed"
[ $failed -eq 0 ]
