#!/usr/bin/env bash
# Every fuzz target for a share of the time: a corpus of its own that stays in the build folder and the seeds of the tests. A finding
# (crash, leak, sanitizer, time, memory) is kept beside it and fails the run. Prints executions per target.
# Usage: soak.sh BUILD_DIR MINUTES [TARGET...]
set -u
build=$(realpath "$1") minutes=$2
shift 2
here=tests/interop
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cd $here && grep -l LLVMFuzzerTestOneInput -- *.c | sed 's/\.c$//')
seconds=$((minutes * 60 / ${#targets[@]}))
[ "$seconds" -gt 0 ] || { echo "soak: ${#targets[@]} targets need a minute or more" >&2; exit 2; }
failed=0
seeds_of() {
    case $1 in
    fuzz_import_config) echo $here/configs/* ;;
    fuzz_import_pt2*) echo $here/pt2 $here/onnx ;;
    fuzz_weights) echo models $here/hf/* ;;
    esac
}
for target in "${targets[@]}"; do
    corpus=$build/soak/$target
    mkdir -p "$corpus/corpus" "$corpus/found"
    # shellcheck disable=SC2046
    UBSAN_OPTIONS=print_stacktrace=1 "$build/bin/$target" -max_total_time=$seconds -timeout=20 -rss_limit_mb=3072 -print_final_stats=1 \
        -reload=0 -artifact_prefix="$corpus/found/" "$corpus/corpus" $(seeds_of "$target") >"$corpus/log" 2>&1
    status=$?
    runs=$(sed -nE 's/^stat::number_of_executed_units: +//p' "$corpus/log" | tail -1)
    [ -n "$runs" ] || runs=$(sed -nE 's/^#([0-9]+).*/\1/p' "$corpus/log" | tail -1)
    echo "$target: ${runs:-0} executions in $seconds s"
    if [ $status -ne 0 ] || [ "${runs:-0}" -eq 0 ]; then
        failed=$((failed + 1))
        tail -40 "$corpus/log"
        echo "FAIL: $target: exit $status; inputs in $corpus/found, again with: $build/bin/$target FILE"
    fi
done
echo "${#targets[@]} targets, $failed failed"
[ $failed -eq 0 ]
