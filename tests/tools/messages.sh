#!/usr/bin/env bash
# Messages about names from files and from the command line: one line without control characters, which names the file.
# Usage: messages.sh BIN_DIR
set -u
bin=$1
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
model=models/mlp_digits.json
machine=models/machines/cpu_2.json
esc=$'\e[31m\n\xc2\x9b'
failed=0 count=0

# refused FRAGMENT COMMAND...
refused() {
    local want=$1
    shift
    count=$((count + 1))
    timeout 20 "$bin/$1" "${@:2}" >"$here/out" 2>"$here/err" </dev/null
    local code=$?
    if [ $code -ne 2 ] || [ "$(wc -l <"$here/err")" -ne 1 ] || [ -s "$here/out" ] ||
        LC_ALL=C grep -q $'[\x01-\x08\x0b-\x1f\x7f]\|\xc2\x9b' "$here/err" || ! grep -qF -- "$want" "$here/err"; then
        echo "FAIL: $*: exit $code, wanted 2 and one clean line with '$want':"
        head -3 "$here/err" | cat -v
        failed=1
    fi
}

# Values of options.
refused "unknown command 'x\\x1b[31m\\n\\u009b'" dtplan "x$esc"
refused "./x\\x1b[31m\\n\\u009b: cannot open" dtplan plan "./x$esc" --mesh x:2 --machine $machine
refused '\x1b[31m' dtplan plan $model --mesh "x$esc:2" --machine $machine
refused '\x1b[31m' dtplan plan $model --mesh x:2 --machine $machine --rules "x$esc:x"
refused '\x1b[31m' dtplan plan $model --mesh x:2 --machine $machine --pin "x$esc: batch@x"
refused '\x1b[31m' dtplan plan $model --mesh x:2 --machine $machine --memory "5$esc"
refused '\x1b[31m' dtrun run $model --fetch "x$esc=$here/x.npy"
refused '\x1b[31m' dtrun run $model --feed "x$esc=$here/x.npy"
refused '\x1b[31m' dtrun run $model --comm "x$esc"
# Texts of files.
printf '{"x\\u001b[31m\\n": 1}' >"$here/odd.json"
refused "odd.json:1:2: [\"x\\x1b[31m\\n\"]: unknown key" dtplan plan $model --mesh x:2 --machine "$here/odd.json"
header="{'descr': '<f4', 'fortran_order': False, 'x$(printf '\033')[31m': (1,), }"
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$header" >"$here/odd.npy"
refused 'odd.npy: ' dtrun run $model --feed "images=$here/odd.npy"
text='{"w1":{"dtype":"F3\u001b[31m2","shape":[1],"data_offsets":[0,4]}}'
printf "\\x$(printf %02x ${#text})\\0\\0\\0\\0\\0\\0\\0%s1234" "$text" >"$here/odd.safetensors"
refused '\x1b[31m' dtrun run $model --load "$here/odd.safetensors"
# Errors that come late name the file that is at fault.
printf '{\n "nomatch.*": "colwise"}' >"$here/style.json"
for mode in "" "--mode tensor"; do
    # shellcheck disable=SC2086
    refused "$here/style.json:2:2: " dtplan plan $model --mesh x:2 --machine $machine $mode --style-file "$here/style.json"
done
refused "$here/style.json:2:2: " dtplan pareto $model --mesh x:2 --machine $machine --style-file "$here/style.json"
refused "$machine: mesh 'x:4' has 4 ranks" dtplan plan $model --mesh x:4 --machine $machine
refused "$machine: mesh 'x:4' has 4 ranks" dtrun run $model --mesh x:4 --machine $machine
# A pipe without a writer does not hang; where a file is needed, a pipe is refused.
mkfifo "$here/pipe"
refused "$here/pipe:1:1: expected" dtplan plan "$here/pipe" --mesh x:2 --machine $machine
refused "$here/pipe:1:1: expected" dtplan plan $model --mesh x:2 --machine "$here/pipe"
refused "$here/pipe:1:1: expected" dtplan solve "$here/pipe"
refused "$here/pipe: not a regular file" dtrun run $model --load "$here/pipe"
refused "not a regular file" dtrun run models/gpt_bytes.json --feed text="$here/pipe"
mkdir "$here/ck"
mkfifo "$here/x.npy" "$here/ck/model.safetensors" "$here/x.safetensors"
refused "$here/x.npy: not a regular file" dtrun run $model --feed images="$here/x.npy"
refused "$here/x.safetensors: not a regular file" dtrun run $model --load "$here/x.safetensors"
refused "$here/ck/model.safetensors: not a regular file" dtrun run $model --load "$here/ck"
mkfifo "$here/ck/dtp.checkpoint.json"
refused "$here/ck/dtp.checkpoint.json:1:1: expected" dtrun run $model --load "$here/ck"
# A pipe with a writer, also one that comes a moment later, is read to its end, however slowly it comes.
"$bin/dtplan" plan $model --mesh x:2 --machine $machine --json >"$here/want"
"$bin/dtplan" plan $model --mesh x:2 --machine <(head -c 50 $machine; sleep 0.3; tail -c +51 $machine) --json >"$here/got" ||
    failed=1
cmp -s "$here/want" "$here/got" || { echo "FAIL: a machine file through a pipe gives another plan"; failed=1; }
(sleep 0.2; cat $machine >"$here/pipe") &
"$bin/dtplan" plan $model --mesh x:2 --machine "$here/pipe" --json >"$here/got" || failed=1
wait
cmp -s "$here/want" "$here/got" || { echo "FAIL: a machine file through a named pipe gives another plan"; failed=1; }
"$bin/dtplan" solve <(sleep 0.3; gzip -c models/selection/example.json) >"$here/got" || failed=1
grep -qF 'optimal' "$here/got" || { echo "FAIL: a packed problem through a pipe"; failed=1; }
echo "$count messages"
exit $failed
