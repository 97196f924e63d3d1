#!/usr/bin/env bash
# dtrun ends although its mpirun does not, as for a host that it cannot reach: when the ranks have not begun by the deadline,
# after they have ended, with their exit code and all that they said, and by signals. The mpirun here ignores signals, and runs
# the job with the real one or not at all. Usage: launcher.sh BIN_DIR
set -u
bin=$1
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0 REAL_MPIRUN
REAL_MPIRUN=$(command -v mpirun) || exit 77
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
count=0 failed=0
cat >"$dir/mpirun" <<'FAKE'
#!/usr/bin/env bash
trap '' INT TERM USR1 USR2
[ "$FAKE" = never ] || "$REAL_MPIRUN" "$@"
echo $$ >"$FAKE_STARTED"
while :; do sleep 100; done
FAKE
chmod +x "$dir/mpirun"
export FAKE_STARTED=$dir/started
job=(run models/mlp_digits.json --rules batch:x --mesh x:2 --comm mpi --threads 1)
[ "$(id -u)" -eq 0 ] && job+=(--allow-run-as-root)

complain() {
    echo "FAIL: $*"
    head -5 "$dir/out" "$dir/err"
    failed=$((failed + 1))
}

goes_on() { grep -q '^State:[[:space:]]*[^Z[:space:]]' "/proc/$1/status" 2>/dev/null; }

# case_of NAME CODE FAKE SIGNALS ARGS...: the exit code, one message about mpirun, and nobody left
case_of() {
    local name=$1 code=$2 signals=$4 pid rc
    export FAKE=$3
    shift 4
    count=$((count + 1))
    rm -f "$dir/started"
    : >"$dir/err"
    PATH=$dir:$PATH env --default-signal=INT,TERM "$bin/dtrun" "${job[@]}" "$@" >"$dir/out" 2>"$dir/err" &
    pid=$!
    for signal in $signals; do
        if [ "$FAKE" = never ]; then
            until [ -s "$dir/started" ]; do sleep 0.05; done
        else
            until grep -q 'Z step' "$dir/err"; do sleep 0.05; done
            sleep 0.5
        fi
        kill "-$signal" $pid
    done
    wait $pid
    rc=$?
    [ $rc -eq "$code" ] || complain "$name: exit $rc instead of $code"
    [ "$(grep -c '^dtrun: mpirun did not end' "$dir/err")" -eq 1 ] || complain "$name: no message"
    ! grep -q 'dtrun ranks' "$dir/err" || complain "$name: what ranks tell the launcher is shown"
    [ ! -s "$dir/started" ] || ! goes_on "$(cat "$dir/started")" || complain "$name: mpirun is left"
}

case_of "not begun" 1 never "" --timeout 0.5
case_of "a signal before the ranks" 130 never INT
case_of "the same, TERM" 143 never TERM
case_of "ended" 0 real "" --timeout 5 --steps 3 --log-every 1
grep -q 'Z step 3/3' "$dir/err" || complain "ended: the last step is not shown"
grep -q 'loss' "$dir/out" || complain "ended: no report"
case_of "failed" 2 real "" --timeout 5 --load "$dir/nothing"
case_of "steps that nobody ends" 143 real "TERM TERM" --steps 1000000000 --log-every 50
echo "$count cases, $failed failed"
[ $failed -eq 0 ]
