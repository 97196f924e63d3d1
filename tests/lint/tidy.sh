#!/usr/bin/env bash
# clang-tidy with the checks of .clang-tidy over the library and tool sources (each_file.py: which of them). The argument
# is the build folder, which holds compile_commands.json.
#
# A file that two targets compile, for a device and its emulation, is looked at with its first command.
#
# One file a process: clang-tidy 14 reports every va_list as uninitialised from the second file on
# when it is given several (clang-analyzer-valist looks va_start up in the first file only).
. "$(dirname "$0")/common.sh"
command -v clang-tidy >/dev/null || exit 77
[ -f "$1/compile_commands.json" ] || { echo "$1/compile_commands.json is missing"; exit 1; }

once=$(mktemp -d)
trap 'rm -rf "$once"' EXIT
python3 -c 'import json, sys
json.dump(list({e["file"]: e for e in reversed(json.load(sys.stdin))}.values()), sys.stdout)' \
    <"$1/compile_commands.json" >"$once/compile_commands.json" || exit 1

# The analyzer walks this many states of a function; by default 225,000, which takes 3.4 times as long.
export STATES=60000

# Prints the findings of file $2; a run that fails without a finding is one itself.
tidy_one() {
    local out rc
    out=$(clang-tidy -p "$1" --quiet "$2" --extra-arg=-Xclang --extra-arg=-analyzer-config \
        --extra-arg=-Xclang --extra-arg=max-nodes="$STATES" 2>&1)
    rc=$?
    grep -E '(warning|error): ' <<<"$out" ||
        [ "$rc" -eq 0 ] || echo "$2: error: clang-tidy exited with $rc: $(tail -n 1 <<<"$out")"
}
export -f tidy_one

# The communicator that says "no MPI" is not compiled where there is one, and the other way round.
absent=executor/comm/mpi_absent.c
grep -q "$absent" "$1/compile_commands.json" && absent=executor/comm/mpi.c

product c | grep -vxF "$absent" | each_file --version "$(clang-tidy --version)" --with .clang-tidy --with "$0" \
    --commands "$1/compile_commands.json" bash -c 'tidy_one "$@"' tidy_one "$once"
