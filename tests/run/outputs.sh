#!/usr/bin/env bash
# The tools with plans that keep fewer outputs of their model (what the plans compute is looked at by test_verify_saving.c): losses
# are the same to the bit, what is kept is verified, and what is not cannot be fetched. Commands that plan by themselves take the
# choice from options, those that read a plan from the plan. Usage: outputs.sh BIN_DIR
set -u
bin=$1
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
model="models/gpt_bytes_dropout.json --dim length=16 --dim heads=4 --dim batch=8 --dim layers=2 --dim vocab=512"
machine="--machine models/machines/a100_8.json"
feed="--feed text=models/data/text.txt,dtype=u1"
failed=0
fail() {
    echo "FAIL: $*"
    failed=$((failed + 1))
}
layouts="--mesh x:2 --rules batch:x --target cpu"
for outputs in all none; do
    # shellcheck disable=SC2086 # options are words
    "$bin/dtplan" plan $model $layouts $machine --outputs $outputs -o "$dir/$outputs.plan" >/dev/null &&
        "$bin/dtrun" run $model --threads 1 --plan "$dir/$outputs.plan" --comm sim $feed --steps 3 --quiet \
            --fetch loss="$dir/$outputs.npy" >/dev/null || fail "$outputs"
done
cmp "$dir/all.npy" "$dir/none.npy" || fail "another loss without outputs"
# shellcheck disable=SC2086
"$bin/dtplan" plan $model $layouts $machine -o "$dir/default.plan" >/dev/null && cmp "$dir/default.plan" "$dir/all.plan" ||
    fail "all is not the default"
grep -q '"outputs"' "$dir/all.plan" && fail "all: outputs in the plan"
grep -q '"outputs": \[\]' "$dir/none.plan" || fail "none: no outputs in the plan"
# shellcheck disable=SC2086
out=$("$bin/dtrun" verify $model --threads 1 --plan "$dir/none.plan" --comm sim $feed) || fail "verify: $out"
echo "$out" | grep -q "outputs    pass     1 compared" || fail "$out"
# shellcheck disable=SC2086
"$bin/dtrun" run $model --threads 1 --plan "$dir/none.plan" --comm sim --quiet --fetch logits="$dir/no.npy" >"$dir/out" 2>&1
[ $? -eq 2 ] && [ "$(wc -l <"$dir/out")" -eq 1 ] && grep -q "the output 'logits' is not kept" "$dir/out" && [ ! -e "$dir/no.npy" ] ||
    fail "$(cat "$dir/out")"

# The loss in chunks, with its gradients in the place of two products: what only the forward one read is not gathered.
large="models/gpt_bytes.json --dim vocab=65536 --dim batch=64 --dim length=128"
# shellcheck disable=SC2086
for outputs in all none; do
    "$bin/dtplan" plan $large --mesh x:2 $machine --target cuda --precision f32 --style '**:data' --style '**:fsdp' --outputs $outputs \
        -o "$dir/$outputs.plan" >/dev/null &&
        "$bin/dtplan" show $large --plan "$dir/$outputs.plan" --stage program >"$dir/lines" || fail "fsdp $outputs"
    # an instruction a line
    sed 's/^ \{1,5\}\([0-9]\)/#\1/' "$dir/lines" | tr -s '\n ' ' ' | tr '#' '\n' >"$dir/$outputs.program"
    gathers=$(grep -c "all_gather .* -> %[0-9]*:head\[" "$dir/$outputs.program")
    kernels=$(grep -c "kernel  *linear_loss_grad" "$dir/$outputs.program")
    [ "$gathers $kernels" = "$([ $outputs = all ] && echo 2 0 || echo 1 1)" ] || fail "fsdp $outputs: $gathers gathers, $kernels kernels"
done

# All variants of a search keep the same; a plan of microbatches keeps no rows of the batch anyway.
# shellcheck disable=SC2086
"$bin/dtplan" plan $model --mesh x:2 $machine --mode rules --target cpu --remat auto --microbatches auto --outputs none -o "$dir/auto.plan" >"$dir/out" ||
    fail "auto"
grep -q "outputs: none" "$dir/out" && grep -q "tried: as it is: [0-9]" "$dir/out" || fail "auto: $(cat "$dir/out")"
grep -q '"outputs": \[\]' "$dir/auto.plan" || fail "auto: no outputs in the plan"
# shellcheck disable=SC2086
for outputs in all none; do
    "$bin/dtplan" plan $model --mesh x:1 $machine --mode rules --target cpu --microbatches 2 --outputs $outputs -o "$dir/$outputs.plan" >/dev/null ||
        fail "microbatches $outputs"
done
diff "$dir/all.plan" "$dir/none.plan" | grep '^[<>]' | grep -v '"outputs": \[\]' && fail "microbatches: other plans"

# Reports: on the plan's graph, and of searches of their own.
# shellcheck disable=SC2086
{
    "$bin/dtplan" sensitivity $model "$dir/auto.plan" $machine --steps 1 --only flops >/dev/null || fail sensitivity
    for outputs in all none; do
        "$bin/dtplan" pareto $model --mesh x:2 $machine --target cpu --mode rules --points 2 --outputs $outputs --json >"$dir/$outputs.pareto" ||
            fail "pareto $outputs"
        "$bin/dtplan" show $model --outputs $outputs --stage memory >"$dir/$outputs.memory" || fail "show $outputs"
    done
}
cmp -s "$dir/all.pareto" "$dir/none.pareto" && fail "pareto: the same without outputs"
cmp -s "$dir/all.memory" "$dir/none.memory" && fail "show: the same without outputs"
[ $failed -eq 0 ]
