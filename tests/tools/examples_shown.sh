#!/usr/bin/env bash
# docs/examples.md shows the programs as they are: every ```c block is part of a file of examples/,
# word for word, and every program is named.
set -u
failed=0
all=$(cat examples/*.c)
for source in examples/*.c; do
    grep -q "(../$source)" docs/examples.md || { echo "docs/examples.md does not name $source"; failed=1; }
done
block="" inside=0 count=0
while IFS= read -r line; do
    case $line in
    '```c') inside=1 block="" ;;
    '```')
        if [ $inside -eq 1 ]; then
            count=$((count + 1))
            [[ $all == *"$block"* ]] || { echo "not in examples/: ${block:0:80}"; failed=1; }
        fi
        inside=0
        ;;
    *) [ $inside -eq 1 ] && block+="$line"$'\n' ;;
    esac
done <docs/examples.md
echo "$count blocks of docs/examples.md compared"
[ $failed -eq 0 ] && [ $count -gt 0 ]
