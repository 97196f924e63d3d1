#!/usr/bin/env bash
# Plans the digits MLP and the byte-level GPT for 1, 2, 3, 4 and 8 devices, searching the mesh shape, and verifies every plan on
# virtual ranks against one device. Usage: verify_planned.sh BIN_DIR
set -u
bin=$1
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
count=0 failed=0
for n in 1 2 3 4 8; do
    for case in "mlp_digits||memory" "gpt_bytes|--dim length=32|time" "gpt_bytes|--dim length=32|memory"; do
        IFS='|' read -r model options objective <<<"$case"
        feed=
        [ "$model" = gpt_bytes ] && feed="--feed text=models/data/text.txt"
        count=$((count + 1))
        # shellcheck disable=SC2086
        "$bin/dtplan" plan "models/$model.json" $options --devices $n --objective $objective --machine models/machines/a100_8.json \
            -o "$dir/plan.json" | grep -E '^(model |rules)' &&
            "$bin/dtrun" verify "models/$model.json" $options --plan "$dir/plan.json" --comm sim --threads 1 $feed | tail -1 &&
            [ "${PIPESTATUS[0]}" -eq 0 ] && continue
        echo "FAIL: $model for $n devices"
        failed=$((failed + 1))
    done
done
echo "$count plans verified, $failed failed"
[ $failed -eq 0 ]
