#!/usr/bin/env bash
# Runs what README.md and docs/ show: every command of a ```sh block that calls build/dev/bin/dtplan or dtrun, in order,
# in one temporary folder that holds the README's model as tiny.json and links to models/ and tests/. Each must exit with 0.
# Lines that call ./dev or other programs are left out. What takes a minute is made smaller: `dtrun bench --quick` takes the
# least of everything (machines_cli measures with --quick), and the search over variants of llama3_8b has 4 layers. Usage: docs.sh BIN_DIR
set -u
bin=$(realpath "$1")
root=$PWD
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
ln -s "$root/models" "$here/models"
ln -s "$root/tests" "$here/tests"

# The first ```json block of the README.
awk '/^```json$/ {inside = 1; next} /^```$/ {if (inside) exit} inside' README.md >"$here/tiny.json"
[ -s "$here/tiny.json" ] || { echo "README.md has no json block"; exit 1; }

# Commands of the sh blocks of a file, one a line; a trailing backslash joins lines, comments go.
commands() {
    awk '/^```sh$/ {inside = 1; next} /^```$/ {inside = 0}
         inside {line = line $0; if (sub(/\\$/, "", line)) next; print line; line = ""}' "$1"
}

count=0 failed=0
while read -r file; do
    while IFS= read -r command; do
        [[ $command == *build/dev/bin/dt* ]] || continue
        count=$((count + 1))
        run=${command//bench --quick/bench --tiny}
        run=${run//llama3_8b.json --dim batch=128 /llama3_8b.json --dim batch=128 --dim layers=4 }
        run=${run//build\/dev\/bin/$bin}
        [ "$(id -u)" -eq 0 ] || run=${run//--allow-run-as-root/}
        if ! (cd "$here" && bash -c "$run") >"$here/out" 2>&1 </dev/null; then
            echo "FAIL: $file: $command"
            tail -5 "$here/out"
            failed=$((failed + 1))
        fi
    done < <(commands "$file")
done < <(ls README.md; find docs -name '*.md' | sort)
echo "$count commands of the documents, $failed failed"
[ $count -gt 0 ] && [ $failed -eq 0 ]
