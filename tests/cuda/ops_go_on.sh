#!/usr/bin/env bash
# The test of ops goes on after a failure and lists all of them; a lost device ends it with the list so far; parts share the
# cases. Usage: ops_go_on.sh TEST_CUDA_OPS
set -u
ops=$1
fail=0
# name, exit status ('0' or 'not 0'), pattern, ...: what a run of `out` and `status` is to be
expect() {
    local name=$1 wanted=$2
    shift 2
    if [ "$wanted" = 0 ] && [ $status != 0 ] || [ "$wanted" != 0 ] && [ $status = 0 ]; then
        echo "FAIL: $name: exit status $status"
        fail=1
    fi
    for pattern; do
        grep -qE -- "$pattern" <<<"$out" || {
            echo "FAIL: $name: no '$pattern' in"
            echo "$out" | tail -12
            fail=1
        }
    done
}
run() { # variables of the environment, then --, then arguments
    local vars=()
    while [ "$1" != -- ]; do vars+=("$1") && shift; done
    shift
    out=$(env "${vars[@]}" "$ops" "$@" 2>&1)
    status=$?
}
cases() { sed -nE 's/^([0-9]+) cases, .*/\1/p' <<<"$out"; }

run -- 7 einsum cross_entropy
expect "no fault" 0 "^[0-9]+ cases, 0 failures$"
all=$(cases)
run CUDA_EMU_NO_ALGORITHM=2 -- 7 einsum cross_entropy
expect "a kernel that is refused" "not 0" "^$all cases, 1 failures$" "^  einsum \\(.*\\) of (f32|bf16) on cuda: .*NOT_SUPPORTED"
run CUDA_EMU_DROP_BARRIER=1 -- 7 einsum cross_entropy
expect "wrong values" "not 0" "^$all cases, [1-9][0-9]* failures$" "^  einsum .* off by .*, allowed"
run CUDA_EMU_FAIL_LAUNCH=30 -- 7 einsum cross_entropy
expect "a lost device" "not 0" "^[0-9]+ cases, 1 failures$" "^  [a-z_]+ \\(.* on cuda: " "^ended: .*launch failure"
[ "$(cases)" -lt "$all" ] || expect "a lost device ends early" 0 "^none$"
sum=0
for part in 1 2 3; do
    run -- $part/3 7 einsum cross_entropy
    expect "part $part" 0 "part $part of 3" "^[0-9]+ cases, 0 failures$"
    sum=$((sum + $(cases)))
done
[ $sum = "$all" ] || {
    echo "FAIL: parts have $sum cases, not $all"
    fail=1
}
for part in 0/3 4/3 1/0; do
    run -- $part 7 einsum
    expect "part $part" "not 0" "part ${part%/*} of ${part#*/}"
done
exit $fail
