#!/usr/bin/env bash
# Threads of ranks that are not told how many: as many as the processors that each may use, shared by the ranks of the machine
# that may use the very same ones. And how long threads of dtrun look for work. Usage: threads.sh TEST_THREADS DTRUN MPIRUN...
set -u
prog=$1 dtrun=$2 failed=0
shift 2
mpirun=("$@")
cpus=$(taskset -cp $$ | sed 's/.*: //' | tr , '\n' | awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }')
n=$(wc -l <<<"$cpus") first=$(head -1 <<<"$cpus") second=$(sed -n 2p <<<"$cpus")
expect() {
    "$@" || {
        echo "FAIL: $*"
        failed=1
    }
}
expect "$prog" 1 "$n"
expect "$prog" 2 $((n / 2 > 0 ? n / 2 : 1))
expect taskset -c "$first" "$prog" 1 1
expect "${mpirun[@]}" -n 2 "$prog" 2 $((n / 2 > 0 ? n / 2 : 1))
expect "${mpirun[@]}" -n 1 taskset -c "$first" "$prog" 1 1
[ "$n" -ge 2 ] || exit $failed
# what the user says about waiting stands
spins() {
    env "${@:2}" OMP_DISPLAY_ENV=verbose "$dtrun" --version 2>&1 >/dev/null | grep GOMP_SPINCOUNT | tail -1 | grep -q "'$1'"
}
expect spins 2000 -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY
expect spins 7 GOMP_SPINCOUNT=7
expect spins 0 -u GOMP_SPINCOUNT OMP_WAIT_POLICY=passive
# bound ranks do not divide
expect "${mpirun[@]}" -n 1 taskset -c "$first" "$prog" 2 1 : -n 1 taskset -c "$second" "$prog" 2 1
expect "${mpirun[@]}" -n 1 taskset -c "$first" "$prog" 2 1 : -n 1 taskset -c "$first,$second" "$prog" 2 2
exit $failed
