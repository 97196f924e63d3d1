#!/usr/bin/env bash
# dtplan machines beside measurements: --nccl-tests and --check, and what they refuse.
# Usage: measured_cli.sh BIN_DIR
set -u
dtplan=$(realpath "$1")/dtplan
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failures=0
bad() { echo "$*"; failures=$((failures + 1)); }

# Tables as nccl-tests 2.13 prints them: PERF RANKS HOSTS FACTOR (busbw / algbw), times 20 us + size / 200 GB/s.
table() {
    awk -v perf="$1" -v ranks="$2" -v hosts="$3" -v bus="$4" 'BEGIN {
        if (perf != "") print "# Collective test starting: " perf
        print "# nThread 1 nGpus 1 minBytes 1024 maxBytes 268435456 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1"
        print "#\n# Using devices"
        for (i = 0; i < ranks; i++)
            printf "#  Rank %2d Group  0 Pid %6d on node%d device %2d [0000:%02x:00] NVIDIA H100 80GB HBM3\n", i, 100 + i, int(i * hosts / ranks), i % 8, i
        print "#\n#                                                              out-of-place                       in-place"
        print "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
        print "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)"
        for (s = 1024; s <= 268435456; s *= 4) {
            us = 20 + s / 200000; alg = s / us / 1000
            redop = perf ~ /all_gather|alltoall/ ? "none" : "sum"
            printf "%12d %12d float %7s -1 %8.2f %7.2f %7.2f 0 %8.2f %7.2f %7.2f N/A\n", s, s / 4, redop, us, alg, bus * alg, us, alg, bus * alg
        }
        print "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 60.1\n#"
    }'
}
fit() { "$dtplan" machines h100_64 --nccl-tests "$here/t.txt" --level "$@" -o "$here/mine.json" >"$here/out" 2>"$here/err"; }
refused() { # WHAT SAYS ARGS...: exit 2, one line, nothing written
    rm -f "$here/mine.json"
    fit "${@:3}"
    [ $? -eq 2 ] && [ "$(wc -l <"$here/err")" -ge 1 ] && grep -qF -- "$2" <(tr '\n' ' ' <"$here/err" | tr -s ' ') &&
        ! [ -e "$here/mine.json" ] || bad "$1: $(cat "$here/err")"
}
level() { # NAME KIND KEY: of the written machine
    python3 -c 'import json, sys
print({l["name"]: l for l in json.load(open(sys.argv[1]))["levels"]}[sys.argv[2]]["collectives"][sys.argv[3]][sys.argv[4]])' "$here/mine.json" "$@"
}
near() { python3 -c 'import sys; g, w = map(float, sys.argv[1:]); sys.exit(abs(g / w - 1) > 0.1)' "$1" "$2"; }

{ table all_reduce_perf 8 1 1.75; table all_gather_perf 8 1 0.875; } >"$here/t.txt"
fit nvlink || bad "two tables of a host: $(cat "$here/err")"
near "$(level nvlink all_reduce share)" 0.78 || bad "share of all-reduce: $(level nvlink all_reduce share)"
near "$(level nvlink all_gather share)" 0.39 || bad "share of all-gather: $(level nvlink all_gather share)"
[ "$(level nvlink all_to_all share)" = "$(python3 -c 'import json
print(json.load(open("models/machines/h100_64.json"))["levels"][0]["collectives"]["all_to_all"]["share"])')" ] ||
    bad "what was not measured has changed"
"$dtplan" plan models/mlp_digits.json --mesh x:8 --machine "$here/mine.json" -o "$here/plan.json" >/dev/null || bad "no plan on it"
"$dtplan" machines "$here/mine.json" --nccl-tests "$here/t.txt" --level nvlink -o "$here/again.json" >/dev/null &&
    cmp -s "$here/mine.json" "$here/again.json" || bad "the same text fits another machine"

table alltoall_perf 32 4 0.96875 | sed 's/^/[1,0]<stdout>:/' >"$here/t.txt"
fit ib || bad "four hosts, with tags of mpirun: $(cat "$here/err")"
table sendrecv_perf 8 1 1 >"$here/t.txt"
fit nvlink || bad "messages: $(cat "$here/err")"
near "$(level nvlink collective_permute share)" 0.444 || bad "share of messages: $(level nvlink collective_permute share)"
"$dtplan" plan models/mlp_digits.json --mesh x:8 --machine "$here/mine.json" -o "$here/plan.json" >/dev/null || bad "no plan with messages"
table sendrecv_perf 32 4 0.96875 >"$here/t.txt"
refused "messages with the bandwidth of a gather" "which is no collective_permute" ib
table '' 16 2 1.875 >"$here/t.txt" # an older text, which does not name its collective
fit ib || bad "all-reduce told by its bandwidths: $(cat "$here/err")"
table '' 16 2 0.9375 | sed 's/  sum/ none/' >"$here/t.txt"
refused "neither all-gather nor all-to-all" "--collective all_gather or all_to_all" ib
fit ib --collective all_gather || bad "--collective: $(cat "$here/err")"
refused "another collective than stated" "is no all_reduce of the 16 ranks" ib --collective all_reduce

table all_reduce_perf 8 1 1.75 >"$here/whole.txt"
lines=$(wc -l <"$here/whole.txt")
for keep in 3 8 14 17 $((lines - 3)); do
    head -n "$keep" "$here/whole.txt" >"$here/t.txt"
    refused "cut off after $keep lines" "t.txt" nvlink
done
head -c $(($(wc -c <"$here/whole.txt") - 180)) "$here/whole.txt" >"$here/t.txt"
refused "cut off within a line" "t.txt" nvlink
change() { sed "$1" "$here/whole.txt" >"$here/t.txt"; }
change '17s/ 0 / 12 /' && refused "wrong values" "12 wrong values" nvlink
change '17s/N\/A/3/' && refused "wrong values in place" "3 wrong values" nvlink
change '17s/$/ extra/' && refused "a column too many" "columns instead of" nvlink
change '17s/\(-1 *\)[0-9.]*/\1nan/' && refused "no numbers" "t.txt:17" nvlink
change '17s/\(-1 *\)[0-9.]*/\1-20.5/' && refused "a negative time" "t.txt:17" nvlink
change '16i node3: Test NCCL failure common.cu:958 unhandled system error' && refused "a failure" "the run failed" nvlink
change 's/: 0 OK/: 4 FAILED/' && refused "out of bounds" "the run failed" nvlink
change '/Rank/d' && refused "no ranks" "the lines '# Rank' are missing" nvlink
change '/Rank  7/d' && refused "other ranks than the bandwidths" "is no all_reduce of the 7 ranks" nvlink
change 's/all_reduce_perf/broadcast_perf/' && refused "broadcast" "there are no prices of this" nvlink
cp "$here/whole.txt" "$here/t.txt"
refused "8 ranks of one host on the level of hosts" "no group of 8 ranks on 1 host has level 'ib'" ib
refused "no such level" "has the levels nvlink, ib" eth
table all_reduce_perf 16 1 1.875 >"$here/t.txt"
refused "16 ranks on a host of 8" "no group of 16 ranks on 1 host" nvlink
: >"$here/t.txt"
refused "an empty text" "no table of nccl-tests" nvlink
head -c 4096 /dev/zero >"$here/t.txt"
refused "no text" "not a text" nvlink

# ---- --check
check() { "$dtplan" machines h100_64 --check "$here/c.csv" "$@" >"$here/out" 2>"$here/err"; }
denied() { # WHAT SAYS
    check
    [ $? -eq 2 ] && grep -qF -- "$2" <(tr '\n' ' ' <"$here/err" | tr -s ' ') && ! [ -s "$here/out" ] || bad "$1: $(cat "$here/err")"
}
columns=device,collective,ranks,bytes,ms_median
printf '%s\n' $columns h100,all_reduce,8,4096,0.016 h100,all_reduce,8,134217728,0.58 a100,all_reduce,8,4096,0.02 >"$here/c.csv"
check && grep -q '^all .* 2 ' "$here/out" && grep -q 'without 1 rows of other devices' "$here/out" || bad "--check: $(cat "$here/out" "$here/err")"
check --json && python3 -c 'import json, sys
d = json.load(open(sys.argv[1])); r = d["rows"]
sys.exit(not (d["other_devices"] == 1 and len(r) == 2 and all(0.8 < x["predicted_s"] / x["measured_s"] < 1.25 for x in r)))' "$here/out" ||
    bad "--check --json: $(cat "$here/out")"
printf '%s\n' 'source,gpu,gpus_per_host,hosts,network,collective,algo_env,bytes,us,busbw_GBps,health' \
    '"a, b",H100,8,2,ib,all_reduce,none,1073741824,4500,447,ok' 'x,H100-80G,8,2,ib,alltoall,none,67108864,,45,ok' \
    'x,H100-80G,8,2,ib,sendrecv,none,67108864,,42,ok' \
    'x,H100,8,2,ib,all_reduce,RING,1024,40,0,ok' 'x,H100,8,2,ib,all_reduce,none,1024,400,0,complaint' >"$here/c.csv"
check && grep -q '^all .* 3 ' "$here/out" && grep -q 'without 2 rows of runs' "$here/out" || bad "hosts: $(cat "$here/out" "$here/err")"
printf 'device,dtype,m,n,k,ms_median\r\nh100,bfloat16,4096,4096,4096,0.2\r\n' >"$here/c.csv"
check && grep -q 'products, bfloat16' "$here/out" || bad "products: $(cat "$here/err")"
printf 'device,batch,length,heads,kv_heads,head_dim,ms_median\nh100,2,4096,32,8,128,0.6\n' >"$here/c.csv"
check && grep -q 'attention, head_dim 128' "$here/out" || bad "attention: $(cat "$here/err")"
for row in h100,all_reduce,8,4096,x h100,all_reduce,8,4096,-1 h100,all_reduce,8,4096,0 h100,all_reduce,8,4096,nan \
    h100,all_reduce,8,4096,1e999 h100,all_reduce,8.5,4096,1 h100,all_reduce,0,4096,1 h100,all_reduce,8,,1 h100,all_reduce,8; do
    printf '%s\n' $columns "$row" >"$here/c.csv"
    denied "row $row" "c.csv:2"
done
printf '%s\n' device,kind,ranks,bytes,ms h100,all_reduce,8,4096,1 >"$here/c.csv"
denied "other columns" "c.csv:1: not the columns of"
printf '%s\n' $columns >"$here/c.csv"
denied "no rows" "no rows in it"
printf '%s\n' $columns v100,all_reduce,8,4096,1 >"$here/c.csv"
denied "another device" "no row of device 'h100-64'"
printf '%s\n' $columns h100,broadcast,8,4096,1 h100,all_reduce,9999999,4096,1 >"$here/c.csv"
denied "without a price" "2 without a price"
printf 'device,batch,length,heads,kv_heads,head_dim,ms_median\nh100,2,4096,32,5,128,0.6\n' >"$here/c.csv"
denied "heads that share no whole number" "32 heads share 5 kv_heads"
# What a level reaches: a line for 2, 4, ... members, less for each doubling where rings wait at every host.
curve() { "$dtplan" machines "$1" --level "$2" | awk '$1 ~ /^[0-9]+$/ { printf "%s%s", sep, $4; sep = " " }'; }
python3 - "$(curve h100_512_efa efa)" "$(curve h100_512 ib)" "$(curve h100_512 nvlink)" <<'PYTHON' || bad "curves of levels"
import sys
efa, ib, nvlink = ([float(x) for x in text.split()] for text in sys.argv[1:])
assert len(efa) == len(ib) == 6 and len(nvlink) == 3
assert all(a > b for a, b in zip(efa, efa[1:])) and efa[-1] < 0.6 * ib[-1], (efa, ib)
PYTHON
for args in '--check a.csv' 'h100_64 --check a.csv --nccl-tests b.txt' 'h100_64 --check a.csv -o x.json' 'h100_64 --check a.csv --level ib' '--level ib' 'h100_64 --level ib -o x.json' 'h100_64 --level ib --json' '--json'; do
    "$dtplan" machines $args >"$here/out" 2>"$here/err"
    [ $? -eq 2 ] || bad "machines $args: exit code"
done

# ---- start and transfer of collectives, apart
"$dtplan" plan models/mlp_digits.json --mesh x:8 --machine h100_64 --rules hidden:x --mode rules -o "$here/h.plan" >/dev/null 2>"$here/err" ||
    "$dtplan" plan models/mlp_digits.json --mesh x:8 --machine h100_64 --mode tensor --pin 'w1: hidden@x' -o "$here/h.plan" >/dev/null 2>"$here/err" ||
    bad "no plan split over hidden: $(cat "$here/err")"
for node in logits.mm logits; do
    "$dtplan" explain models/mlp_digits.json "$here/h.plan" $node --machine h100_64 --json >"$here/$node.json" 2>/dev/null
done
python3 -c 'import json, sys
c = [x for f in sys.argv[1:] for x in json.load(open(f))["collectives"]]
sys.exit(not (c and all(x["start_ps"] > 4000000 and 0 < x["transfer_ps"] < x["start_ps"] and x["bytes"] > 0 for x in c)))' \
    "$here/logits.mm.json" "$here/logits.json" || bad "explain names no start and transfer: $(cat "$here"/logits*.json)"
"$dtplan" sensitivity models/mlp_digits.json "$here/h.plan" --machine h100_64 --steps 1 --only nvlink.latency --json >"$here/out" 2>"$here/err" &&
    grep -q '"nvlink.latency"' "$here/out" || bad "sensitivity of the start: $(cat "$here/err")"
[ "$failures" -eq 0 ]
