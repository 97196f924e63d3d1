#!/usr/bin/env bash
# Predicted against measured step time: measures this machine, runs 3 models under 4 rule sets and the plans of both modes
# of the planner on 2 MPI ranks, prints the mean absolute percentage error, the rank correlation per model, the regret of
# the predicted best, and how much slower or faster the plans are than the best rule set.
# Usage: accuracy.sh BUILD_DIR
set -euo pipefail
bin=$1/bin
out=$1/bench
mkdir -p "$out"
root=()
[ "$(id -u)" -eq 0 ] && root=(--allow-run-as-root)
"$bin/dtrun" bench --ranks 2 "${root[@]}" -o "$out/machine.json"

# model | steps | options | layouts; '=MODE' is what the planner finds
cases=(
    "mlp_digits|40|--dim batch=2048 --dim hidden=2048|;batch:x;hidden:x;pixels:x;=rules;=tensor"
    "gpt_bytes|8||;batch:x;heads:x,d_ff:x,vocab:x;d_ff:x;=rules;=tensor"
    "mtf_lm|4|--dim batch=4|;batch:x;heads:x,d_ff:x,vocab:x;d_ff:x,vocab:x;=rules;=tensor"
)
: >"$out/accuracy.jsonl"
for c in "${cases[@]}"; do
    IFS='|' read -r model steps options layouts <<<"$c"
    IFS=';' read -ra list <<<"$layouts"
    for rules in "${list[@]}"; do
        how=(--mesh x:2 --rules "${rules//,/;}")
        if [ "${rules#=}" != "$rules" ]; then
            how=(--plan "$out/plan.json")
            # shellcheck disable=SC2086
            "$bin/dtplan" plan "models/$model.json" $options --mesh x:2 --mode "${rules#=}" --machine "$out/machine.json" \
                -o "$out/plan.json" >"$out/plan.txt"
        fi
        # shellcheck disable=SC2086
        "$bin/dtrun" run "models/$model.json" $options "${how[@]}" --steps "$steps" \
            --machine "$out/machine.json" --quiet --json "${root[@]}" >"$out/run.json"
        python3 - "$model" "$rules" "$out/run.json" >>"$out/accuracy.jsonl" <<'P'
import json, sys
r = json.load(open(sys.argv[3]))
print(json.dumps({"model": sys.argv[1], "rules": sys.argv[2], "measured": r["step_time_s"]["median"],
                  "predicted": r["predicted"]["step_time_s"]}))
P
    done
done
python3 - "$out/accuracy.jsonl" <<'P'
import json, sys
rows = [json.loads(l) for l in open(sys.argv[1])]
def ranks(v):
    order = sorted(range(len(v)), key=lambda i: v[i])
    return [order.index(i) for i in range(len(v))]
print("%-12s %-26s %12s %12s %8s" % ("model", "rules", "measured s", "predicted s", "error"))
for r in rows:
    e = r["predicted"] / r["measured"] - 1
    print("%-12s %-26s %12.5f %12.5f %+7.1f%%" % (r["model"], r["rules"] or "(replicated)", r["measured"], r["predicted"], 100 * e))
mape = sum(abs(r["predicted"] / r["measured"] - 1) for r in rows) / len(rows)
print("mean absolute percentage error over %d runs: %.1f %%" % (len(rows), 100 * mape))
for m in sorted(set(r["model"] for r in rows)):
    g = [r for r in rows if r["model"] == m]
    a, b = ranks([r["measured"] for r in g]), ranks([r["predicted"] for r in g])
    n = len(g)
    rho = 1 - 6 * sum((x - y) ** 2 for x, y in zip(a, b)) / (n * (n * n - 1))
    chosen = min(g, key=lambda r: r["predicted"])["measured"]
    print("%-12s Spearman %.2f, regret %.1f %%" % (m, rho, 100 * (chosen / min(r["measured"] for r in g) - 1)))
    best = min(r["measured"] for r in g if not r["rules"].startswith("="))
    for r in g:
        if r["rules"].startswith("="):
            print("%-12s plan of %s mode: %+.1f %% against the best of the rule sets" % (m, r["rules"][1:], 100 * (r["measured"] / best - 1)))
P
