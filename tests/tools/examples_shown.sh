#!/usr/bin/env bash
# docs/examples.md, docs/operators.md and docs/python/ show programs and scripts as they are: every ```c, ```bash and ```python block is
# part of a file of examples/, word for word, and every file is named.
set -u
failed=0

# shown LANGUAGE PAGE FILE...
shown() {
    local language=$1 page=$2 block="" inside=0 count=0 all line
    shift 2
    all=$(cat "$@")$'\n'
    for source in "$@"; do
        grep -qF "../$source)" "$page" || { echo "$page does not name $source"; failed=1; }
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
for name in torchrun accelerate torchtitan trainer; do
    shown python docs/python/$name.md examples/python/with_$name.py
done
bash -n examples/slurm.sh || failed=1
exit $failed
