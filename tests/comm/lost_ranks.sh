#!/usr/bin/env bash
# A rank that is killed, stopped or cut off at a random moment of a step ends all others within the deadline and 5 s, with
# a message that names it: on this host, and between two hosts (tests/support/hosts.sh), on which losses are those of
# virtual ranks, too. Exit code 77: no two hosts here. Usage: lost_ranks.sh BIN_DIR [MOMENTS [SEED]]
set -u
bin=$1 moments=${2:-6} RANDOM=${3:-1}
cd "$(dirname "$0")/../.." || exit 1
. tests/support/hosts.sh
export DTRUN=$bin/dtrun OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
dir=$(mktemp -d)
trap 'hosts_down; rm -rf "$dir"' EXIT
root=()
[ "$(id -u)" -eq 0 ] && root=(--allow-run-as-root)
timeout=2 failed=0
job=(run models/gpt_bytes.json --dim length=64 --dim layers=2 --dim batch=8 --mesh x:2 --threads 1)
steps=(--rules batch:x --log-every 1 --steps 1000000 --timeout $timeout)
complain() {
    echo "FAIL: $*"
    tail -12 "$dir/said"
    failed=$((failed + 1))
}
now_ms() { date +%s%3N; }
begun() {
    for ((i = 0; i < 600; i++)); do
        grep -q '^step 2/' "$dir/said" && return
        sleep 0.05
    done
    complain "no steps"
}
# ended MS PROCESS: within so many ms after $start
ended() {
    while grep -q '^State:[[:space:]]*[^Z[:space:]]' "/proc/$2/status" 2>/dev/null; do
        [ $(($(now_ms) - start)) -gt "$1" ] && return 1
        sleep 0.05
    done
}
children() { grep -l "^PPid:[[:space:]]*$1\$" /proc/[0-9]*/status 2>/dev/null | cut -d/ -f3; }

# one host
: >"$dir/said"
"$bin/dtrun" "${job[@]}" "${steps[@]}" --comm mpi "${root[@]}" >"$dir/said" 2>&1 &
run=$!
begun
mapfile -t ranks < <(children "$(children $run)")
start=$(now_ms)
kill -STOP "${ranks[1]}"
ended $((1000 * timeout + 5000)) "${ranks[0]}" || complain "one host: rank 0 goes on"
ended $((1000 * timeout + 10000)) $run || complain "one host: dtrun goes on"
grep -q '^dtrun: rank [01]: \(step .*: instruction .*node\|step .*: loss\|after step\).*rank [01] has not come' "$dir/said" || complain "one host: no message"
kill -9 $run "${ranks[@]}" 2>/dev/null
wait $run 2>/dev/null

# two hosts
hosts_up 2 1gbit || { echo "one host, $failed failed; no namespaces for two"; exit $((failed > 0 ? 1 : 77)); }
cat >"$dir/machine.json" <<'MACHINE'
{"format": "dtp.machine/1", "name": "two-hosts",
 "device": {"kind": "cpu", "memory_bytes": 17179869184, "mem_bw_Bps": 8e9, "launch_s": 2e-6,
   "flops": {"f32": 1e10, "f64": 5e9}, "overlap": true, "overlap_slowdown": 1.1},
 "levels": [{"name": "host", "size": 2, "latency_s": 2e-6, "bw_Bps": 4e9},
   {"name": "ethernet", "size": 2, "latency_s": 2e-4, "bw_Bps": 1.1e8}],
 "provenance": {"how": "datasheet", "host": "two namespaces"}}
MACHINE
"$bin/dtplan" plan "${job[@]:1:7}" --mesh 'x:2;y:2' --machine "$dir/machine.json" --mode tensor -o "$dir/plan.json" >/dev/null ||
    complain "a plan with overlap"
for rules in batch:x 'heads:x;vocab:x' 'batch:y;heads:x' 'batch:x;heads:y' plan; do
    run=("${job[@]:0:8}" --threads 1 --steps 4 --quiet)
    case $rules in
    plan) run+=(--plan "$dir/plan.json") ;;
    *y*) run+=(--mesh 'x:2;y:2' --rules "$rules") ;;
    *) run+=(--mesh x:2 --rules "$rules") ;;
    esac
    case "${run[*]}" in *y:2* | *plan.json*) hosts_slots 2 ;; esac
    hosts_dtrun "${run[@]}" -o "$dir/hosts.json" >/dev/null 2>"$dir/said" || complain "$rules: a run"
    "$bin/dtrun" "${run[@]}" --comm sim -o "$dir/sim.json" >/dev/null || complain "$rules: sim"
    for way in hosts sim; do grep -o '"loss": *[^,}]*' "$dir/$way.json" >"$dir/$way"; done
    [ -s "$dir/sim" ] && cmp -s "$dir/hosts" "$dir/sim" || complain "$rules: losses differ"
done
hosts_slots 1
for ((m = 0; m < moments; m++)); do
    how=$(printf '%s\n' kill stop link | sed -n $((m % 3 + 1))p) victim=$((RANDOM % 2)) pause=$((RANDOM % 1000))
    what="rank $victim: $how $pause ms after a step"
    : >"$dir/said"
    hosts_dtrun "${job[@]}" "${steps[@]}" >"$dir/said" 2>&1 &
    run=$!
    begun
    ranks=("$(hosts_ranks 1)" "$(hosts_ranks 2)")
    sleep "0.$(printf %03d $pause)"
    start=$(now_ms)
    case $how in
    kill) kill -9 "${ranks[victim]}" ;;
    stop) kill -STOP "${ranks[victim]}" ;;
    link) hosts_link $((victim + 1)) down ;;
    esac
    ended $((1000 * timeout + 5000)) "${ranks[1 - victim]}" || complain "$what: the other one goes on"
    [ $how != link ] || ended $((1000 * timeout + 5000)) "${ranks[victim]}" || complain "$what: it goes on"
    ended $((1000 * timeout + 10000)) $run || complain "$what: dtrun goes on"
    # an instruction, or host data at the end of the step
    words="^dtrun: rank $((1 - victim)): \(step .*: instruction .*node\|step .*: loss\|after step\).*rank $victim does not answer"
    [ $how = kill ] && words="process rank $victim .* exited on signal 9"
    grep -q "$words" "$dir/said" || complain "$what: no '$words'"
    kill -9 $run "${ranks[@]}" 2>/dev/null
    wait $run 2>/dev/null
    [ $how != link ] || { hosts_link $((victim + 1)) up && sleep 0.5; }
done
echo "$moments moments, $failed failed"
[ $failed -eq 0 ]
