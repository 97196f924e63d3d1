#!/usr/bin/env bash
# Runs what README.md and docs/ show: every command of a ```sh block that calls build/dev/bin/dtplan or dtrun, in order,
# in one temporary folder that holds the README's model as out/tiny.json and links to models/ and tests/. Each must exit with 0.
# Lines that call ./dev or other programs are left out. What takes a minute is made smaller: `dtrun bench --quick` takes the
# least of everything (machines_cli measures with --quick), and the search over variants of llama3_8b has 4 layers.
# They write into out/ alone, of which git ignores everything. What README.md shows in ```text blocks its commands print, line by
# line (`...`: lines that are left out), and they draw its figure. Usage: docs.sh BIN_DIR
set -u
bin=$(realpath "$1")
root=$PWD
here=$(mktemp -d)
work=$here/work
trap 'rm -rf "$here"' EXIT
mkdir -p "$work/out"
ln -s "$root/models" "$root/tests" "$work"

# The first ```json block of the README.
awk '/^```json$/ {inside = 1; next} /^```$/ {if (inside) exit} inside' README.md >"$work/out/tiny.json"
[ -s "$work/out/tiny.json" ] || { echo "README.md has no json block"; exit 1; }

# Commands of the sh blocks of a file, one a line; a trailing backslash joins lines, comments go.
commands() {
    awk '/^```sh$/ {inside = 1; next} /^```$/ {inside = 0}
         inside {line = line $0; if (sub(/\\$/, "", line)) next; print line; line = ""}' "$1"
}

count=0 failed=0
bad() {
    echo "FAIL: $*"
    failed=$((failed + 1))
}

run_file() {
    local file=$1 command run
    while IFS= read -r command; do
        [[ $command == *build/dev/bin/dt* ]] || continue
        count=$((count + 1))
        run=${command//bench --quick/bench --tiny}
        run=${run//llama3_8b.json --dim batch=128 /llama3_8b.json --dim batch=128 --dim layers=4 }
        run=${run//build\/dev\/bin/$bin}
        [ "$(id -u)" -eq 0 ] || run=${run//--allow-run-as-root/}
        (cd "$work" && bash -c "$run") >"$here/printed" 2>&1 </dev/null || bad "$file: $command: $(tail -5 "$here/printed")"
        cat "$here/printed" >>"$here/said"
    done < <(commands "$file")
}

run_file README.md
git -C "$root" check-ignore -q out/any.json 2>/dev/null
[ $? -ne 1 ] || bad "git does not ignore out/any.json" # 128: not a clone
shown=0
while IFS= read -r line; do
    shown=$((shown + 1))
    grep -qxF -e "$line" "$here/said" || bad "README.md: its commands do not print: $line"
done < <(awk '/^```text$/ {inside = 1; next} /^```$/ {inside = 0} inside && $0 != "..."' README.md)
cmp -s "$work/out/llama3_8b.svg" docs/report/llama3_8b.svg || bad "README.md: its commands draw another docs/report/llama3_8b.svg"
[ $shown -ge 8 ] || bad "README.md shows $shown lines of output"
while read -r file; do
    run_file "$file"
done < <(find docs -name '*.md' | sort)
[ "$(cd "$work" && echo *)" = "models out tests" ] || bad "commands write beside out/: $(ls "$work")"
echo "$count commands of the documents, $failed failed"
[ $count -gt 0 ] && [ $failed -eq 0 ]
