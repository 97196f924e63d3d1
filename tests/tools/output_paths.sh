#!/usr/bin/env bash
# Output options: a path that cannot be written to is refused before the work starts (exit 2, one line that names option
# and path, nothing printed, nothing left); links and modes of replaced files stay. Usage: output_paths.sh BIN_DIR
set -u
bin=$1
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
umask 022
model=models/mlp_digits.json
machine="--machine models/machines/cpu_2.json"
failed=0 count=0
fail() {
    echo "FAIL: $*"
    sed 's/^/    /' "$here/err" | head -4
    failed=1
}
mkdir "$here/folder" "$here/folder.safetensors"
touch "$here/file" "$here/empty.json" "$here/empty.plan.json"
cp models/selection/example.json "$here/model.json"

# refused OPTION PATH COMMAND...: the model is empty, so that any work would fail with other words.
refused() {
    local option=$1 path=$2
    shift 2
    count=$((count + 1))
    "$bin/$1" "${@:2}" >"$here/out" 2>"$here/err" </dev/null
    local code=$?
    [ $code -eq 2 ] || fail "$*: exit $code, wanted 2"
    [ "$(wc -l <"$here/err")" -eq 1 ] || fail "$*: $(wc -l <"$here/err") lines, wanted 1"
    grep -qF -- "$option: $path: cannot write" "$here/err" || fail "$*: does not say '$option: $path: cannot write'"
    [ -s "$here/out" ] && fail "$*: printed something"
}

# shellcheck disable=SC2086
for bad in "$here/no/x" "$here/folder" "$here/folder/" "$here/file/x"; do
    refused --output "$bad" dtplan plan "$here/empty.json" --mesh x:2 $machine -o "$bad"
    refused --trace "$bad" dtplan plan "$here/empty.json" --mesh x:2 $machine --trace "$bad"
    refused --output "$bad" dtplan solve "$here/empty.json" -o "$bad"
    refused --output "$bad" dtplan import absent -o "$bad"
    refused --output "$bad" dtplan export "$here/empty.json" "$here/empty.plan.json" --as hf -o "$bad"
    refused --output "$bad" dtplan solve "$here/empty.json" --write lp -o "$bad"
    refused --svg "$bad" dtplan viz "$here/empty.json" --svg "$bad"
    refused --output "$bad" dtrun bench --ranks 4 --comm sim -o "$bad"
    refused --output "$bad" dtrun run "$here/empty.json" -o "$bad"
    refused --log-json "$bad" dtrun run "$here/empty.json" --log-json "$bad"
    refused --trace "$bad" dtrun run "$here/empty.json" --trace "$bad"
    refused --fetch "$bad" dtrun run "$here/empty.json" --fetch w1="$here/w1.npy" --fetch loss="$bad"
done
for bad in "$here/no/x" "$here/file" "$here/file/x"; do
    refused --save "$bad" dtrun run "$here/empty.json" --save "$bad"
done
refused --save "$here/folder.safetensors" dtrun run "$here/empty.json" --save "$here/folder.safetensors"
refused --save "$here/no/x.safetensors" dtrun run "$here/empty.json" --save "$here/no/x.safetensors"
if [ "$(id -u)" -ne 0 ]; then
    chmod 555 "$here/folder"
    refused --output "$here/folder/x" dtplan solve "$here/empty.json" --write lp -o "$here/folder/x"
    chmod 755 "$here/folder"
fi
[ "$(cd "$here" && echo *)" = "empty.json empty.plan.json err file folder folder.safetensors model.json out" ] || fail "left: $(cd "$here" && echo *)"
[ -z "$(ls -A "$here/folder")" ] || fail "left: $(ls -A "$here/folder")"

# A path that is checked is still written to: link, mode, folder made by --save.
ln -s real.json "$here/link.json"
(umask 077 && echo old >"$here/real.json")
"$bin/dtplan" solve models/selection/example.json --write iopddl -o "$here/link.json" 2>"$here/err" || fail "--write through a link"
[ -L "$here/link.json" ] || fail "the link is replaced"
[ "$(stat -c %a "$here/real.json")" = 600 ] || fail "mode $(stat -c %a "$here/real.json") instead of 600"
grep -q '"problem"' "$here/real.json" || fail "the target of the link is not written"
"$bin/dtrun" run $model --comm self --quiet --save "$here/ck" --fetch w1="$here/w1.npy" >"$here/out" 2>"$here/err" ||
    fail "run --save --fetch"
[ -e "$here/ck/dtp.checkpoint.json" ] && [ -e "$here/w1.npy" ] || fail "run --save --fetch: nothing written"

# A full disk under -o is a failure (1), not a mistake of the command line (2).
"$bin/dtplan" solve models/selection/example.json --write iopddl -o /dev/full >"$here/out" 2>"$here/err"
code=$?
[ $code -eq 1 ] || fail "-o /dev/full: exit $code, wanted 1"
grep -qF '/dev/full: cannot write: ' "$here/err" || fail "-o /dev/full: no word of it"
# A link like /dev/stdout goes where standard output goes, behind what is there.
ln -s /proc/self/fd/1 "$here/stdout"
echo before >"$here/out"
"$bin/dtplan" solve models/selection/example.json --write iopddl -o "$here/stdout" >>"$here/out" 2>"$here/err" || fail "-o /dev/stdout"
[ "$(head -1 "$here/out")" = before ] && grep -q '"problem"' "$here/out" || fail "-o /dev/stdout: $(head -c 99 "$here/out")"
"$bin/dtplan" solve models/selection/example.json --write iopddl -o "$here/stdout" 2>"$here/err" | cmp -s - "$here/real.json" ||
    fail "-o /dev/stdout into a pipe"

# What a killed run left goes with the next one.
touch "$here/real.json.tmp.123.0" "$here/real.json.tmp.123"
"$bin/dtplan" solve models/selection/example.json --write iopddl -o "$here/link.json" 2>"$here/err" || fail "--write again"
[ "$(cd "$here" && echo *.tmp*)" = real.json.tmp.123 ] || fail "left: $(cd "$here" && echo *.tmp*)"
echo "$count bad paths"
exit $failed
