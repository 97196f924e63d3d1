#!/usr/bin/env bash
# Saves of `dtrun run` on one rank, virtual ranks and MPI ranks, all with the same words and exit codes: values that are not
# finite, a disk that is full, two jobs with one target, --keep. Usage: saves.sh BIN MPI (1: there is one)
set -u
dtrun=$1/dtrun mpi=$2
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
root=()
[ "$(id -u)" -eq 0 ] && root=(--allow-run-as-root)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=0

fail() {
    echo "FAIL: $*"
    failed=$((failed + 1))
}

# the parameter grows by 8.1e11 in every step: it is infinite after the fourth
cat >"$place/grow.json" <<'J'
{"format": "dtp.model/1", "name": "growing", "dims": {"batch": 8, "features": 4, "classes": 4},
 "inputs": {"x": {"dims": ["batch", "features"], "dtype": "f32"},
            "labels": {"dims": ["batch"], "dtype": "i32", "below": "classes"}},
 "params": {"w": {"dims": ["features", "classes"], "init": {"normal": 0.3}}},
 "nodes": [{"id": "logits", "op": "einsum", "in": ["x", "w"], "out": ["batch", "classes"]},
           {"id": "nll", "op": "cross_entropy", "in": ["logits", "labels"], "over": "classes", "reduce": "mean"}],
 "train": {"loss": "nll", "optimizer": {"sgd": {"lr": 9e5, "weight_decay": 9e5}}}}
J

grow() { # RANKS COMM ARGS...
    local ranks=$1 comm=$2
    shift 2
    "$dtrun" run "$place/grow.json" --mesh "x:$ranks" --rules batch:x --comm "$comm" --threads 1 --quiet "${root[@]}" "$@"
}

# as grow; exit code in $rc, standard error in $said
run() {
    grow "$@" >"$place/out" 2>"$place/err"
    rc=$?
    said=$(cat "$place/err")
}

# expect CODE WORDS WHAT: the code, and one message that begins with the words ("": none)
expect() {
    if [ $rc -ne "$1" ] || [[ $said != "${2:+dtrun: }$2"* ]] || { [ -z "$2" ] && [ -n "$said" ]; } ||
        [ "$(wc -l <<<"$said")" -ne 1 ]; then
        fail "$3: exit $rc, said '$said', expected exit $1, '$2'"
        cat "$place/err"
    fi
}

kinds="1:self 4:sim"
[ "$mpi" = 1 ] && kinds="$kinds 2:mpi"
for kind in $kinds; do
    ranks=${kind%:*} comm=${kind#*:}
    for target in folder one.safetensors; do
        to="$place/$comm$ranks-$target" what="$comm $ranks $target"
        words="on all $ranks ranks"
        [ "$ranks" = 1 ] && words="on rank 0"
        run "$ranks" "$comm" --steps 8 --save "$to"
        expect 1 "step 5: node 'nll': the loss is nan $words" "$what, NaN"
        [ ! -e "$to" ] || fail "$what: NaN was saved or a folder made"
        run "$ranks" "$comm" --steps 4
        expect 1 "after step 4: node 'update.w': parameter 'w' holds " "$what, parameter"
        run "$ranks" "$comm" --steps 8 --allow-nan
        expect 0 "" "$what, allowed"
        run "$ranks" "$comm" --steps 2 --save "$to"
        expect 0 "" "$what, good"
        before=$(find "$to" -type f -exec cksum {} + | sort)
        for allow in "" --allow-nan; do
            # shellcheck disable=SC2086
            run "$ranks" "$comm" --steps 2 --load "$to" --save "$to" $allow
            expect 1 "$to: not saved: after step 4: node 'update.w': parameter 'w' holds " "$what, over a good one"
        done
        if [ "$comm" != mpi ]; then # Open MPI writes files of its own
            said=$(
                (
                    trap '' XFSZ
                    ulimit -f 0
                    grow "$ranks" "$comm" --load "$to" --save "$to"
                ) 2>&1 >/dev/null
            )
            rc=$?
            expect 1 "$to" "$what, full disk"
        fi
        [ "$(find "$to" -type f -exec cksum {} + | sort)" = "$before" ] || fail "$what: the good checkpoint changed: $(ls "$to")"
        [ "$(find "$place" -name '*.tmp.*' -o -name '*.lock')" = "" ] || fail "$what: left over: $(find "$place")"

        # the second job fails before it trains; the first is killed, then there is no refusal
        lock="$to.lock"
        [ "$target" = folder ] && lock="$to/checkpoint.lock"
        setsid "$dtrun" run models/mlp_digits.json --dim hidden=16 --mesh "x:$ranks" --rules batch:x --comm "$comm" --threads 1 \
            --quiet "${root[@]}" --steps 100000000 --save "$to" >/dev/null 2>&1 &
        first=$!
        for _ in $(seq 300); do
            [ -s "$lock" ] && break
            sleep 0.05
        done
        run "$ranks" "$comm" --steps 2 --save "$to"
        expect 2 "$lock: held by another job (process " "$what, second job"
        kill -KILL -- -$first
        wait $first 2>/dev/null
        run "$ranks" "$comm" --steps 1 --save "$to"
        for _ in $(seq 100); do # ranks that lost their launcher save and end
            [ $rc -eq 0 ] && break
            sleep 0.1
            run "$ranks" "$comm" --steps 1 --save "$to"
        done
        expect 0 "" "$what, after a killed job"
        [ ! -e "$lock" ] || fail "$what: the lock is left"
    done
done

run 1 self --keep 2
expect 2 "--keep " "--keep alone"
run 1 self --keep 2 --save "$place/x.safetensors"
expect 2 "--keep " "--keep with a file"
for i in 1 2 3; do
    run 1 self --save "$place/kept" --keep 2 --seed $i
    expect 0 "" "--keep, save $i"
done
run 1 self --load "$place/kept/dtp.checkpoint.2.json"
expect 0 "" "--load of the older of two"
[ "$(find "$place/kept" -name 'rank-*' | wc -l)" -eq 2 ] || fail "kept: $(ls "$place/kept")"

# one rank of two has a full disk: 7 MB a rank, of which 6 can be written
if [ "$mpi" = 1 ]; then
    to="$place/half" model=(models/mlp_digits.json --dim hidden=16384 --mesh x:2 --rules hidden:x --comm mpi --threads 1 --quiet)
    "$dtrun" run "${model[@]}" "${root[@]}" --save "$to" >/dev/null 2>&1 || fail "one full disk: the first save"
    before=$(find "$to" -type f -exec cksum {} + | sort)
    for rank in 0 1; do
        # shellcheck disable=SC2016
        mpirun "${root[@]}" --oversubscribe -n 2 bash -c 'if [ "$OMPI_COMM_WORLD_RANK" = '$rank' ]; then trap "" XFSZ; ulimit -f 6144; fi
            exec "$@"' limited "$dtrun" run "${model[@]}" --load "$to" --save "$to" >"$place/out" 2>"$place/err"
        rc=$?
        [ $rc -eq 1 ] && [ "$(grep -c '^dtrun: ' "$place/err")" -eq 1 ] &&
            grep -q "^dtrun: $to/rank-$rank-of-2.2.safetensors: cannot write: File too large" "$place/err" ||
            { fail "one full disk: exit $rc" && cat "$place/err"; }
        [ "$(find "$to" -type f -exec cksum {} + | sort)" = "$before" ] || fail "one full disk: $(ls -l "$to")"
    done
    "$dtrun" run "${model[@]}" "${root[@]}" --load "$to" >/dev/null 2>&1 || fail "one full disk: the good one does not load"
fi

# what other writers put into safetensors files beside the tensors is no error: their metadata, tensors of types and ranks
# that are not read here, as long as nobody asks for them
run 1 self --steps 2 --save "$place/ours.safetensors"
foreign() { # NAME METADATA ["also"]: the file with other metadata; a tensor's type changed when asked
    python3 - "$place/ours.safetensors" "$place/$1.safetensors" "$2" "${3-}" <<'P'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n, = struct.unpack("<Q", data[:8])
head, body = json.loads(data[8:8 + n]), data[8 + n:]
head["__metadata__"] = json.loads(sys.argv[3])
head["other.complex"] = {"dtype": "C64", "shape": [1], "data_offsets": [len(body), len(body) + 8]}
head["other.long"] = {"dtype": "U8", "shape": [1] * 12, "data_offsets": [len(body) + 8, len(body) + 9]}
if sys.argv[4]:
    head["w"]["dtype"] = "F4"
text = json.dumps(head).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + body + b"complex!1")
P
}
i=0
for meta in '{"format": "pt"}' '{"step": "epoch 3"}' '{"crc32": "none"}' '{"step": 7, "loss": [1, null], "k": {"v": true}}' 'null'; do
    i=$((i + 1))
    foreign "theirs$i" "$meta"
    run 1 self --steps 1 --load "$place/theirs$i.safetensors"
    [ $rc -eq 0 ] && grep -q "unused tensors=2 " <<<"$said" || fail "metadata $meta: exit $rc, '$said'"
done
foreign asked '{"format": "pt"}' also
run 1 self --steps 1 --load "$place/asked.safetensors"
expect 2 "$place/asked.safetensors: tensor 'w' cannot be read: element type 'F4'" "a type that cannot be read"
foreign damaged '{"format": "dtp", "step": "epoch 3", "crc32": "00000000"}'
run 1 self --steps 1 --load "$place/damaged.safetensors"
expect 2 "$place/damaged.safetensors: __metadata__.step 'epoch 3' is not a step" "our metadata, damaged"

echo "$failed failed"
[ $failed -eq 0 ]
