#!/usr/bin/env bash
# docs/examples.md and docs/operators.md show the programs and the script as they are: every ```c and ```bash block is part of a
# file of examples/, word for word, and every file is named.
set -u
failed=0

# shown LANGUAGE PAGE FILE...
shown() {
    local language=$1 page=$2 block="" inside=0 count=0 all line
    shift 2
    all=$(cat "$@")$'\n'
    for source in "$@"; do
        grep -q "(../$source)" "$page" || { echo "$page does not name $source"; failed=1; }
    done
    while IFS= read -r line; do
        case $line in
        "\`\`\`$language") inside=1 block="" ;;
        '```')
            if [ $inside -eq 1 ]; then
                count=$((count + 1))
                [[ $all == *"$block"* ]] || { echo "not in examples/: ${block:0:80}"; failed=1; }
            fi
            inside=0
            ;;
        *) [ $inside -eq 1 ] && block+="$line"$'\n' ;;
        esac
    done <"$page"
    echo "$count blocks of $page compared"
    [ $count -gt 0 ] || failed=1
}

shown c docs/examples.md examples/*.c
shown bash docs/operators.md examples/slurm.sh
bash -n examples/slurm.sh || failed=1
exit $failed
