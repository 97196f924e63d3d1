#!/usr/bin/env bash
# Buckets have the size that suits the links: the slower they are, the smaller is a bucket, and no step is longer than with
# buckets of 4 MiB. Usage: bucket_size.sh BIN
set -u
bin=$1 model=models/gpt_bytes.json
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0
bad() {
    echo "FAIL: $*"
    failed=$((failed + 1))
}
sed 's/"overlap": false/"overlap": true/' models/machines/cpu_2.json >"$here/m.json"
cmp -s models/machines/cpu_2.json "$here/m.json" && bad "cpu_2 overlaps by itself"

before=$((32 << 20))
for rate in 100x 1x 0.1x 0.01x; do
    set -- --dim layers=2 --dim batch=16 --machine "$here/m.json" --set "shared_memory.bandwidth=$rate"
    "$bin/dtplan" plan "$model" --mesh x:2 --rules batch:x "$@" -o "$here/p" >/dev/null 2>"$here/err" ||
        bad "$rate: $(cat "$here/err")"
    size=$(sed -n 's/.*"bucket_bytes": \([0-9]*\).*/\1/p' "$here/p")
    [ "${size:=$((4 << 20))}" -le "$before" ] || bad "$rate: buckets of $size bytes, on faster links of $before"
    before=$size
    grep -v '"bucket_bytes"' "$here/p" >"$here/4M"
    "$bin/dtplan" diff "$model" "$here/p" "$here/4M" "$@" >"$here/words" 2>"$here/err" ||
        bad "$rate: $(cat "$here/err")"
    read -r ours theirs < <(sed -n 's/^step *\([0-9.]*\) ms *\([0-9.]*\) ms.*/\1 \2/p' "$here/words")
    awk -v a="$ours" -v b="$theirs" 'BEGIN { exit !(a > 0 && a <= b) }' || bad "$rate: $ours ms, $theirs with 4 MiB"
done
# 7 MB of gradients in buckets of 4 MiB have nothing to hide behind
awk -v a="$ours" -v b="$theirs" 'BEGIN { exit !(a < 0.8 * b) }' || bad "slow links: $ours ms, $theirs with 4 MiB"
exit $((failed > 0))
