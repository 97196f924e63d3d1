#!/usr/bin/env bash
# A rank that is killed, stopped or cut off at a random moment of a step ends all others within the deadline and 5 s, with
# a message that names it: on this host, and between two hosts (tests/support/hosts.sh), on which losses are those of
# virtual ranks, too. In turn ranks split the batch, or are pipeline stages, whose messages name stage and microbatch.
# Exit code 77: no two hosts here. Usage: lost_ranks.sh BIN_DIR [MOMENTS [SEED]]
set -u
bin=$1 moments=${2:-6} RANDOM=${3:-1}
cd "$(dirname "$0")/../.." || exit 1
. tests/support/hosts.sh
export DTRUN=$bin/dtrun OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
dir=$(mktemp -d)
trap 'hosts_down; rm -rf "$dir"' EXIT
timeout=2 failed=0
model=(models/gpt_bytes.json --dim length=64 --dim layers=2 --dim batch=8)
steps=(--threads 1 --log-every 1 --steps 1000000 --timeout $timeout --comm mpi)
[ "$(id -u)" -eq 0 ] && steps+=(--allow-run-as-root)
complain() {
    echo "FAIL: $*"
    grep -v '^[^ ]* step' "$dir/said" | tail -30
    failed=$((failed + 1))
}
# choose rules|stages: what runs
choose() {
    kind=$1
    if [ $kind = rules ]; then
        job=(run "${model[@]}" --mesh x:2 --rules batch:x)
    else
        job=(run "${model[0]}" --plan "$dir/stages.json")
    fi
}
stages() { # FILE N DIMS...
    local file=$1 n=$2
    shift 2
    "$bin/dtplan" plan "${model[0]}" "$@" --dim layers="$n" --dim batch=8 --mesh x:1 --stages "$n" --microbatches 4 \
        --style '**: data' --target cpu -o "$dir/$file" >/dev/null || complain "a plan with $n stages"
}
now_ms() { date +%s%3N; }
goes_on() { grep -q '^State:[[:space:]]*[^Z[:space:]]' "/proc/$1/status" 2>/dev/null; }
# ended MS PROCESS: within so many ms after $start
ended() {
    while goes_on "$2"; do
        [ $(($(now_ms) - start)) -gt "$1" ] && return 1
        sleep 0.05
    done
}
children() { grep -l "^PPid:[[:space:]]*$1\$" /proc/[0-9]*/status 2>/dev/null | cut -d/ -f3; }

# begin COMMAND...: starts a job, $run; false: it does not come to its second step
begin() {
    : >"$dir/said"
    "$@" "${job[@]}" "${steps[@]}" >"$dir/said" 2>&1 &
    run=$!
    for ((i = 0; i < 600; i++)); do
        grep -q '^[^ ]* step 2/' "$dir/said" && return
        goes_on $run || return
        sleep 0.05
    done
    return 1
}

# where a rank is that waits
place='\(step .*: instruction .*node\|step .*: stage [01] .* microbatch [0-3]: \|step .*: loss\|after step\)'
stages stages.json 2 --dim length=64
stages four.json 4 --dim length=16 --dim heads=2 --dim d_head=8

# one host
for kind in rules stages; do
    choose $kind
    begin "$bin/dtrun" || complain "one host, $kind: no steps"
    mapfile -t ranks < <(children "$(children $run)")
    start=$(now_ms)
    kill -STOP "${ranks[1]}"
    ended $((1000 * timeout + 5000)) "${ranks[0]}" || complain "one host, $kind: rank 0 goes on"
    ended $((1000 * timeout + 10000)) $run || complain "one host, $kind: dtrun goes on"
    grep -q "^dtrun: rank [01]: $place.*rank [01] \(has not come\|does not answer\)" "$dir/said" || complain "one host, $kind: no message"
    kill -9 $run "${ranks[@]}" 2>/dev/null
    wait $run 2>/dev/null
done

# two hosts
hosts_up 2 1gbit || { echo "one host, $failed failed; no namespaces for two"; exit $((failed > 0 ? 1 : 77)); }
cat >"$dir/machine.json" <<'MACHINE'
{"format": "dtp.machine/1", "name": "two-hosts", "yes_units": true,
 "device": {"kind": "cpu", "memory_bytes": 17179869184, "mem_bw_Bps": 8e9, "launch_s": 2e-6,
   "flops": {"f32": 1e10, "f64": 5e9}, "overlap": true, "overlap_slowdown": 1.1},
 "levels": [{"name": "host", "size": 2, "latency_s": 2e-6, "bw_Bps": 4e9},
   {"name": "ethernet", "size": 2, "latency_s": 2e-4, "bw_Bps": 1.1e8}],
 "provenance": {"how": "datasheet", "host": "two namespaces"}}
MACHINE
"$bin/dtplan" plan "${model[@]}" --mesh 'x:2;y:2' --machine "$dir/machine.json" --mode tensor -o "$dir/plan.json" >/dev/null ||
    complain "a plan with overlap"
for rules in batch:x 'heads:x;vocab:x' 'batch:y;heads:x' 'batch:x;heads:y' plan four; do
    run=(run "${model[0]}")
    case $rules in
    plan | four) run+=(--plan "$dir/$rules.json") ;;
    *y*) run+=("${model[@]:1}" --mesh 'x:2;y:2' --rules "$rules") ;;
    *) run+=("${model[@]:1}" --mesh x:2 --rules "$rules") ;;
    esac
    run+=(--threads 1 --steps 4 --quiet)
    case "${run[*]}" in *y:2* | *.json*.json*) hosts_slots 2 ;; esac
    hosts_dtrun "${run[@]}" -o "$dir/hosts.json" >/dev/null 2>"$dir/said" || complain "$rules: a run"
    "$bin/dtrun" "${run[@]}" --comm sim -o "$dir/sim.json" >/dev/null || complain "$rules: sim"
    for way in hosts sim; do grep -o '"loss": *[^,}]*' "$dir/$way.json" >"$dir/$way"; done
    [ -s "$dir/sim" ] && cmp -s "$dir/hosts" "$dir/sim" || complain "$rules: losses differ"
done
hosts_dtrun verify "${model[0]}" --plan "$dir/four.json" --threads 1 >"$dir/said" 2>&1 || complain "four stages: verify"
hosts_down

# begin_on_hosts: a job on new hosts, on which nothing is left of the moment before; false: it did not begin
begin_on_hosts() {
    hosts_up 2 1gbit || return
    begin hosts_dtrun && ranks=("$(hosts_ranks 1)" "$(hosts_ranks 2)") && [ -n "${ranks[0]}" ] && [ -n "${ranks[1]}" ]
}
# follow RANK0 RANK1 DTRUN: waits for the processes; says in $times when each ended; false: a rank goes on 5 s after the
# deadline, or dtrun, which waits for a host that is cut off, 10 s after it
follow() {
    local limits=(5000 5000 10000) ms=(- - -) left i now ok=0
    for ((left = 3; left > 0; )); do
        sleep 0.02
        now=$(($(now_ms) - start - 1000 * timeout))
        for i in 0 1 2; do
            [ "${ms[i]}" = - ] || continue
            if ! goes_on "${@:i+1:1}"; then
                ms[i]=$now left=$((left - 1))
                [ $now -le "${latest[i]}" ] || latest[i]=$now
            elif [ $now -gt ${limits[i]} ]; then
                ms[i]="goes on" left=$((left - 1)) ok=1
            fi
        done
    done
    times="ended in ms after the deadline: rank 0 ${ms[0]}, rank 1 ${ms[1]}, dtrun ${ms[2]}"
    return $ok
}
begun=0 idle=0 latest=(-$((1000 * timeout)) -$((1000 * timeout)) -$((1000 * timeout)))
for ((m = 0; m < moments; m++)); do
    how=$(printf '%s\n' kill stop link | sed -n $((m % 3 + 1))p) victim=$((RANDOM % 2)) pause=$((RANDOM % 1000))
    choose "$(printf '%s\n' rules stages | sed -n $((m / 3 % 2 + 1))p)"
    what="moment $m: $kind, rank $victim: $how $pause ms after a step" times=
    # a job that does not begin is no moment in a step
    if ! begin_on_hosts; then
        idle=$((idle + 1))
        echo "$what: the job did not begin"
        cat "$dir/said"
        hosts_down
        begin_on_hosts || { complain "$what: nor did another job"; hosts_down; continue; }
    fi
    begun=$((begun + 1))
    sleep "0.$(printf %03d $pause)"
    start=$(now_ms)
    case $how in
    kill) kill -9 "${ranks[victim]}" ;;
    stop) kill -STOP "${ranks[victim]}" ;;
    link) hosts_link $((victim + 1)) down ;;
    esac
    follow "${ranks[@]}" $run || complain "$what: $times"
    # an instruction, or host data at the end of the step
    words="^dtrun: rank $((1 - victim)): $place.*rank $victim does not answer"
    if [ $how = kill ]; then
        words=${words/does not answer/\\(does not answer\\|has not come\\)}
        grep -q "process rank $victim .* exited on signal 9" "$dir/said" || complain "$what: mpirun names no rank: $times"
    fi
    grep -q "$words" "$dir/said" || complain "$what: no '$words': $times"
    kill -9 $run "${ranks[@]}" 2>/dev/null
    hosts_down
    wait $run 2>/dev/null
done
echo "$begun of $moments moments, $failed failed, $idle jobs that did not begin at first; at the latest, rank 0 ended" \
    "${latest[0]} ms after the deadline, rank 1 ${latest[1]} ms, dtrun ${latest[2]} ms"
[ $failed -eq 0 ] && [ $begun -eq "$moments" ]
