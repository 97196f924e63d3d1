#!/usr/bin/env bash
# Every command line of tests/bad/commands.txt exits with 2, says one line that names what is wrong, prints no
# product and writes no file. Usage: bad_commands.sh BIN_DIR
set -u
bin=$1
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
machine=models/machines/cpu_2.json
"$bin/dtplan" plan models/mlp_digits.json --mesh x:2 --machine $machine -o "$here/plan.json" >/dev/null || exit 1
# A plan that lists a step which no single redistribution takes, and one that lists nothing.
"$bin/dtplan" plan models/mlp_digits.json --mesh "x:2;y:2" --machine models/machines/a100_8.json --rules batch:x \
    -o "$here/rules.json" >/dev/null || exit 1
steps='{"dtype": "f32", "shape": [96, 64], "from": "S0, S1", "steps": ["S1, S0"]}'
sed "s|\"redistributions\": \[|&$steps, |" "$here/rules.json" >"$here/steps.json"
sed '/"redistributions": \[/,/^  \]/c "redistributions": [],' "$here/rules.json" >"$here/none.json"
before=$(git status --porcelain --ignored | md5sum)
count=0 failed=0
while IFS='|' read -r command fragment; do
    [[ $command == \#* || -z ${command// /} ]] && continue
    fragment=${fragment# }
    read -ra words <<<"$command"
    for i in "${!words[@]}"; do
        case ${words[$i]} in
        M) words[$i]=models/mlp_digits.json ;;
        P) words[$i]=$here/plan.json ;;
        S) words[$i]=$here/steps.json ;;
        N) words[$i]=$here/none.json ;;
        C) words[$i]=$machine ;;
        esac
    done
    [ "$fragment" = P ] && fragment=$here/plan.json
    out=$("$bin/${words[0]}" "${words[@]:1}" 2>"$here/err" </dev/null)
    rc=$?
    lines=$(wc -l <"$here/err")
    count=$((count + 1))
    [ "$fragment" = usage ] && lines=1
    if [ $rc -ne 2 ] || [ "$lines" -ne 1 ] || [ -n "$out" ] || ! grep -qF -- "$fragment" "$here/err"; then
        echo "FAIL: $command -> exit $rc, $lines line(s), wanted '$fragment':"
        head -3 "$here/err"
        failed=$((failed + 1))
    fi
done <tests/bad/commands.txt
[ "$before" = "$(git status --porcelain --ignored | md5sum)" ] || { echo "FAIL: a file was written"; failed=$((failed + 1)); }
echo "$count bad command lines, $failed wrong"
[ $failed -eq 0 ]
