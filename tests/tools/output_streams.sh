#!/usr/bin/env bash
# Every command with standard output on a full device and closed: exit 1 and one line on standard error; a command that
# fails anyway keeps its code; files of -o are whole. Usage: output_streams.sh BIN_DIR [bench|mpirun]
set -u
bin=$1
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
model=models/mlp_digits.json
machine="--machine models/machines/cpu_2.json"
sim="--mesh x:2 --rules batch:x --comm sim --steps 1"
failed=0 count=0
fail() {
    echo "FAIL: $*"
    sed 's/^/    /' "$here/err" | head -4
    failed=1
}

# judge NAME CODE WANT: one line that names standard output
judge() {
    count=$((count + 1))
    [ "$2" -eq "$3" ] || fail "$1: exit $2, wanted $3"
    [ "$(wc -l <"$here/err")" -eq 1 ] || fail "$1: $(wc -l <"$here/err") lines on standard error, wanted 1"
    grep -qF "cannot write standard output" "$here/err" || fail "$1: no word of standard output"
}

# lost WANT COMMAND...: without a place to print to
lost() {
    local want=$1
    shift
    "$bin/$1" "${@:2}" >/dev/full 2>"$here/err" </dev/null
    judge "$* >/dev/full" $? "$want"
    "$bin/$1" "${@:2}" >&- 2>"$here/err" </dev/null
    judge "$* >&-" $? "$want"
}

if [ "${2:-}" = mpirun ]; then # mpirun itself forgets such errors
    export ASAN_OPTIONS=detect_leaks=0 # of Open MPI
    root=()
    [ "$(id -u)" -eq 0 ] && root=(--allow-run-as-root)
    lost 1 dtrun run $model --mesh x:2 --rules batch:x --steps 1 --quiet "${root[@]}"
    lost 1 dtrun verify $model --mesh x:2 --rules batch:x --steps 1 --json "${root[@]}"
    # Open MPI gives rank 0 a terminal: no reason for colours in a file
    TERM=xterm "$bin/dtrun" verify $model --mesh x:2 --rules batch:x --steps 1 "${root[@]}" >"$here/out" 2>"$here/err" ||
        fail "verify on two ranks"
    ! grep -q $'\x1b' "$here/out" || fail "colours in a file"
    exit $failed
fi
if [ "${2:-}" = bench ]; then
    "$bin/dtrun" bench --tiny --quiet --comm self --threads 1 >/dev/full 2>"$here/err"
    judge "dtrun bench >/dev/full" $? 1
    exit $failed
fi

# shellcheck disable=SC2086
{
    "$bin/dtplan" plan $model --mesh x:2 $machine -o "$here/a.plan" >/dev/null || fail "no plan"
    "$bin/dtplan" plan $model --mesh x:2 $machine --rules batch:x -o "$here/b.plan" >/dev/null || fail "no plan"
    for tool in dtplan dtrun; do
        lost 1 $tool help
        lost 1 $tool --help
        lost 1 $tool --version
    done
    for command in plan show verify-rules viz redistribute explain report diff pareto sensitivity import export solve; do
        lost 1 dtplan $command --help
    done
    for command in run verify bench; do
        lost 1 dtrun $command --help
    done
    for json in "" --json; do
        lost 1 dtplan plan $model --mesh x:2 $machine $json
        lost 1 dtplan plan $model --mesh x:2 $machine --comm-report $json
        lost 1 dtplan verify-rules relu $json
        lost 1 dtplan viz --mesh "x:2;y:2" --shape 8,6 --layout S0,S1 $json
        lost 1 dtplan redistribute --mesh a:2 --shape 8,8 --from S0 --to S1 $json
        lost 1 dtplan explain $model "$here/a.plan" w1 $machine $json
        lost 1 dtplan diff $model "$here/a.plan" "$here/b.plan" $machine $json
        lost 1 dtplan pareto $model --mesh x:2 $machine --points 2 $json
        lost 1 dtplan sensitivity $model "$here/a.plan" $machine --steps 1 --only flops $json
        lost 1 dtplan import tests/interop/hf/llama -o "$here/imported.json" $json
        lost 1 dtplan solve models/selection/example.json $json
        lost 1 dtrun run $model $sim --quiet $json
        lost 1 dtrun verify $model $sim $json
    done
    lost 1 dtplan plan $model --mesh x:2 --compat auto_mtf
    for stage in graph strategies problem program memory; do
        lost 1 dtplan show $model --mesh x:2 --rules batch:x $machine --stage $stage
    done
    lost 1 dtplan show $model --stage plan --plan "$here/a.plan"
    lost 1 dtplan report $model "$here/a.plan" $machine
    for form in placements torch jax hf rules; do
        lost 1 dtplan export $model "$here/a.plan" --as $form
    done
    lost 1 dtplan solve models/selection/example.json --write iopddl
    lost 1 dtplan solve models/selection/example.json --write lp
    lost 1 dtplan redistribute --mesh a:2 --shape 8,8 --from S0 --to S1 --run
    lost 1 dtrun run $model --steps 1 --quiet # one rank

    # A command that fails anyway keeps its code.
    sed 's/"usage_limit": 50/"usage_limit": 39/' models/selection/example.json >"$here/tight.json"
    lost 3 dtplan solve "$here/tight.json"
    lost 4 dtrun verify $model $sim --tolerance 0

    # What goes to a file is whole, also when no standard stream is open and files could take their numbers.
    for streams in '>/dev/full' '>&-' '<&- >&- 2>&-'; do
        rm -f "$here/c.plan"
        eval "\"$bin/dtplan\" plan $model --mesh x:2 $machine -o $here/c.plan 2>$here/err $streams"
        code=$?
        [ $code -eq 1 ] || fail "plan -o $streams: exit $code, wanted 1"
        cmp -s "$here/a.plan" "$here/c.plan" || fail "plan -o $streams: the file differs"
        rm -rf "$here/ck" "$here/loss.npy"
        eval "\"$bin/dtrun\" run $model $sim --seed 3 --log-every 1 --save $here/ck --fetch w1=$here/w1.npy \
            -o $here/report.json 2>$here/err $streams"
        code=$?
        [ $code -eq 1 ] || fail "run -o $streams: exit $code, wanted 1"
        "$bin/dtrun" run $model $sim --load "$here/ck" --quiet --fetch w1="$here/w1_next.npy" >/dev/null 2>"$here/err" ||
            fail "run --save $streams: the checkpoint does not load"
        md5sum <"$here/w1.npy" >>"$here/sums"
        grep -q '^{' "$here/report.json" || fail "run -o $streams: no report"
    done
    [ "$(sort -u "$here/sums" | wc -l)" -eq 1 ] || fail "run --fetch: other bytes with other streams"
}
echo "$count command lines"
exit $failed
