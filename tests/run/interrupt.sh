#!/usr/bin/env bash
# A run that is told to end: at the end of the step, with one message, the code of the signal, and a checkpoint of just that
# step, which loads; on one rank, on virtual ranks, under the mpirun that dtrun starts, and under one of the user's.
# Usage: interrupt.sh BIN_DIR MPIRUN...
set -u
bin=$1
shift
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
root=()
[ "$(id -u)" -eq 0 ] && root=(--allow-run-as-root)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
count=0 failed=0
# Lines of progress tell when the steps have begun. They are few: mpirun reads nothing between its signal and the ranks',
# and a rank that fills its pipe in that second sleeps in a write.
run=(run models/mlp_digits.json --rules batch:x --threads 1 --log-every 50 --steps 1000000000)

complain() {
    echo "FAIL: $*"
    grep -v '^[^ ]* step' "$dir/err" | head -5
    failed=$((failed + 1))
}

begun() {
    for ((i = 0; i < 600; i++)); do
        [ "$(wc -l <"$dir/err")" -ge 5 ] && return
        sleep 0.05
    done
    complain "no steps"
}

# interrupt SIGNAL CODE COMMAND...
interrupt() {
    local sig=$1 code=$2 pid rc step
    shift 2
    count=$((count + 1))
    rm -rf "$dir/saved"
    : >"$dir/err"
    # a shell that does not wait for jobs starts them with SIGINT ignored
    env --default-signal=INT "$@" --save "$dir/saved" >"$dir/out" 2>"$dir/err" &
    pid=$!
    begun
    kill "-$sig" $pid
    wait $pid
    rc=$?
    [ $rc -eq "$code" ] || complain "$sig: exit $rc: $*"
    [ "$(grep -c "^dtrun: " "$dir/err")" -eq 1 ] || complain "$sig: not one message: $*"
    ! grep -v -e '^[^ ]* step' -e '^dtrun: ' "$dir/err" || complain "$sig: more than one line: $*"
    step=$(sed -n "s/^dtrun: interrupted by SIG$sig after step \([0-9]*\)$/\1/p" "$dir/err")
    grep -qs "\"step\": $step\b" "$dir"/saved/*.json || complain "$sig: no checkpoint of step '$step': $*"
    "$bin/dtrun" run models/mlp_digits.json --threads 1 --quiet --load "$dir/saved" >/dev/null || complain "$sig: does not load"
}

mpirun=("$@")
for pair in INT:130 TERM:143; do
    sig=${pair%:*} code=${pair#*:}
    interrupt "$sig" "$code" "$bin/dtrun" "${run[@]}" --mesh x:1 --comm self
    interrupt "$sig" "$code" "$bin/dtrun" "${run[@]}" --mesh x:2 --comm sim
    interrupt "$sig" "$code" "$bin/dtrun" "${run[@]}" --mesh x:2 --comm mpi "${root[@]}"
done
# Open MPI makes a SIGTERM of it, and ends with 1; its 1 s before SIGKILL is little on a busy machine
interrupt TERM 1 "${mpirun[@]}" --mca odls_base_sigkill_timeout 5 -n 2 "$bin/dtrun" "${run[@]}" --mesh x:2

# a second signal ends a run whose step does not
count=$((count + 1))
: >"$dir/err"
env --default-signal=INT "$bin/dtrun" run models/gpt_bytes.json --dim batch=1024 --threads 1 --log-every 1 --steps 10 \
    >"$dir/out" 2>"$dir/err" &
pid=$!
sleep 3
kill -INT $pid
sleep 0.3
kill -INT $pid 2>/dev/null
wait $pid
rc=$?
[ $rc -eq 130 ] || complain "two signals: exit $rc"
echo "$count cases, $failed failed"
[ $failed -eq 0 ]
