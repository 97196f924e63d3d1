#!/usr/bin/env bash
# The end of a job is the same however its ranks are run: exit code and message on one rank, on virtual ranks, under the
# mpirun that dtrun starts, and under one of the user's. The message comes once, and dtrun's own mpirun adds nothing.
# Usage: outcome.sh BIN_DIR MPIRUN...
set -u
bin=$1
shift
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
root=()
[ "$(id -u)" -eq 0 ] && root=(--allow-run-as-root)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
count=0 failed=0
model=models/mlp_digits.json
ranks=(--mesh x:2 --rules batch:x)

# end NAME COMMAND...: keeps exit code and standard error
end() {
    local name=$1
    shift
    timeout 60 "$@" >/dev/null 2>"$dir/$name"
    echo $? >"$dir/$name.code"
}

complain() {
    echo "FAIL: $*"
    head -8 "$dir"/{alone,sim,own,user} 2>/dev/null
    failed=$((failed + 1))
}

# same WHAT COMMAND ARGS...: one rank says what counts
same() {
    local what=$1
    shift
    count=$((count + 1))
    end alone "$bin/dtrun" "$@" --comm self
    end sim "$bin/dtrun" "$@" "${ranks[@]}" --comm sim
    end own "$bin/dtrun" "$@" "${ranks[@]}" --comm mpi "${root[@]}"
    end user "${mpirun[@]}" -n 2 "$bin/dtrun" "$@" "${ranks[@]}"
    [ "$(cat "$dir/alone.code")" -ne 0 ] && [ "$(wc -l <"$dir/alone")" -le 1 ] || complain "$what: one rank"
    for way in sim own user; do
        cmp -s "$dir/alone.code" "$dir/$way.code" || complain "$what: $way: exit $(cat "$dir/$way.code")"
        [ $way = user ] && sed -i '/^dtrun: /!d' "$dir/user" # mpirun has its own to say
        cmp -s "$dir/alone" "$dir/$way" || complain "$what: $way: another message"
    done
}

mpirun=("$@")
run=(run $model --threads 1 --quiet)
"$bin/dtrun" "${run[@]}" --save "$dir/damaged" >/dev/null || failed=1
for file in "$dir"/damaged/*.safetensors; do printf x | dd of="$file" bs=1 seek=4000 conv=notrunc 2>/dev/null; done
same "an option that is not there" "${run[@]}" --bogus
same "a model that is not there" run no/such/model.json --threads 1
same "an input that is not there" "${run[@]}" --feed nothing=README.md
same "a feed that is not there" "${run[@]}" --feed images=no/such/file
same "a checkpoint that is not there" "${run[@]}" --load no/such/folder
same "a damaged checkpoint" "${run[@]}" --load "$dir/damaged"
same "a checkpoint that cannot be written" "${run[@]}" --save /proc/no/such
same "a tensor that cannot be written" "${run[@]}" --fetch loss=/no/such/file.npy
same "a report that cannot be written" "${run[@]}" -o /no/such/file

# numbers that differ: the code alone says so
count=$((count + 1))
verify=(verify $model --threads 1 --tolerance 0 --steps 1)
end sim "$bin/dtrun" "${verify[@]}" "${ranks[@]}" --comm sim
end own "$bin/dtrun" "${verify[@]}" "${ranks[@]}" --comm mpi "${root[@]}"
end user "${mpirun[@]}" -n 2 "$bin/dtrun" "${verify[@]}" "${ranks[@]}"
for way in sim own user; do
    [ "$(cat "$dir/$way.code")" -eq 4 ] && ! grep -q '^dtrun: ' "$dir/$way" || complain "a mismatch: $way"
done
# every rank says so, not the first alone
end user "${mpirun[@]}" -n 2 bash -c '"$@"; echo "code $?" >&2' - "$bin/dtrun" "${verify[@]}" "${ranks[@]}"
[ "$(grep -c '^code 4$' "$dir/user")" -eq 2 ] || complain "a mismatch: on every rank"

# Open MPI gives rank 0 a terminal also where its output ends in a pipe: no colours there
count=$((count + 1))
TERM=xterm timeout 60 "${mpirun[@]}" -n 2 "$bin/dtrun" "${verify[@]}" "${ranks[@]}" 2>&1 | cat >"$dir/piped"
grep -q $'\033' "$dir/piped" && { cp "$dir/piped" "$dir/user" && complain "colours in a pipe"; }

# a mesh that does not fit the job
count=$((count + 1))
end user "${mpirun[@]}" -n 3 "$bin/dtrun" "${run[@]}" "${ranks[@]}"
[ "$(cat "$dir/user.code")" -eq 2 ] && [ "$(grep -c "^dtrun: the mesh 'x:2' has 2 ranks but the MPI job has 3" "$dir/user")" -eq 1 ] ||
    complain "a mesh that does not fit"
echo "$count cases, $failed failed"
[ $failed -eq 0 ]
