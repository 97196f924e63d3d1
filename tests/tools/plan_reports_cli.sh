#!/usr/bin/env bash
# dtplan plan --mode tensor, explain, diff, pareto, sensitivity: exit codes, words, the same bytes twice, reports against
# their schemas. Usage: plan_reports_cli.sh BIN_DIR
set -u
dtplan=$1/dtplan
model=models/mlp_digits.json
machine="--machine models/machines/a100_8.json"
mesh="--mesh x:2;y:2 --target cpu"
gpt="models/gpt_bytes.json --dim batch=16 --dim length=64 --dim layers=2 $machine --mesh x:2 --target cpu"
as_it_is="--remat none --microbatches 1" # nothing is searched to make a plan fit
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0
fail() {
    echo "FAIL: $*"
    failed=1
}
expect() {
    [ "$2" = "$3" ] || fail "$1: got '$2', wanted '$3'"
}
# run NAME EXIT ARGS...: standard output in NAME.out, errors in NAME.err
run() {
    local name=$1 want=$2
    shift 2
    "$dtplan" "$@" >"$here/$name.out" 2>"$here/$name.err"
    expect "$name: exit code" $? "$want"
}
says() { # file words, which may be on two lines
    grep -qF -- "$2" "$here/$1" || tr -s ' \n' ' ' <"$here/$1" | grep -qF -- "$2" || fail "$1 does not say '$2': $(head -3 "$here/$1")"
}

# shellcheck disable=SC2086
{
    run plan 0 plan $model $machine $mesh --mode tensor --memory 112K -o "$here/a.plan"
    run again 0 plan $model $machine $mesh --mode tensor --memory 112K --threads 1 -o "$here/b.plan"
    cmp -s "$here/a.plan" "$here/b.plan" || fail "one thread and two threads give other bytes"
    run free 0 plan $model $machine $mesh --mode tensor -o "$here/free.plan"
    run prices 0 plan $model $machine $mesh --mode tensor --memory 150K --pin 'w1: hidden@y' --prices -o "$here/priced.plan"
    says prices.out "price of 'pin w1: hidden@y'"
    run search 0 plan $model $machine --devices 4 --mode tensor
    says search.out "innermost in the network"
    says search.out "x:2;y:2"
    run smallest 3 plan $model $machine $mesh --mode tensor --memory 104K $as_it_is
    says smallest.err "the smallest memory limit that works is"
    run named 0 plan $model $machine $mesh --mode tensor --memory "$(grep -o 'memory [0-9.]*K' "$here/smallest.err" | cut -d' ' -f2)"
    run exact 3 plan $model $machine $mesh --mode tensor --memory 104K --json $as_it_is
    limit=$(grep -o 'memory [0-9]*[;)]' "$here/exact.err" | tr -dc 0-9)
    run named_exact 0 plan $model $machine $mesh --mode tensor --memory "$limit"
    run one_less 3 plan $model $machine $mesh --mode tensor --memory $((limit - 1)) $as_it_is
    run conflict 3 plan $model $machine $mesh --mode tensor --memory 128K --pin 'w1: replicated' --pin 'w2: hidden@x' $as_it_is
    says conflict.err "  pin w1: replicated"
    grep -qF 'w2' "$here/conflict.err" && fail "a pin that is harmless is named"
    run auto 0 plan $model $machine $mesh --mode tensor --memory 104K --remat auto --microbatches auto -o "$here/auto.plan"
    run auto_one 0 plan $model $machine $mesh --mode tensor --memory 104K --remat auto --microbatches auto --threads 1 -o "$here/auto_one.plan"
    says auto.out "tried: as it is: infeasible"
    cmp -s "$here/auto.plan" "$here/auto_one.plan" || fail "auto: one thread and two threads give other bytes"
    run helps 3 plan ${gpt%% --machine*} --machine models/machines/cpu_2.json --mesh x:2 --mode tensor --memory 12M
    says helps.err "it fits with --"
    # On accelerators what makes it fit is searched, and nothing where it fits as it is.
    run fit 0 plan $model $machine $mesh --memory 104K -o "$here/fit.plan"
    says fit.out "tried: as it is: infeasible"
    run fit_asked 0 plan $model $machine $mesh --memory 104K --mode tensor --remat none -o "$here/fit_micro.plan"
    says fit_asked.out "microbatches: "
    grep -q recomputed "$here/fit_asked.out" && fail "recomputation that was refused"
    # Where nothing makes it fit, more devices are tried; the command that is named plans.
    run more 3 plan $model $machine --mesh x:8 --target cpu --set memory=30KiB
    says more.err "the same model fits on 16 such devices: --mesh 'x:16' --set nvlink.size=16,"
    run more_named 0 plan $model $machine --mesh x:16 --target cpu --set memory=30KiB --set nvlink.size=16
    run more_tried 3 plan $model $machine --mesh x:2 --target cpu --set memory=60KiB
    says more_tried.err "tried: 4 devices do not suffice"
    run fits 0 plan $model $machine $mesh -o "$here/fits.plan"
    run fits_as_it_is 0 plan $model $machine $mesh --mode tensor $as_it_is -o "$here/fits_as_it_is.plan"
    cmp -s "$here/fits.plan" "$here/fits_as_it_is.plan" || fail "a plan that fits as it is depends on what would make it fit"
    run auto_rules 0 plan $gpt --mode rules --remat auto --microbatches 2
    says auto_rules.out "tried: as it is: "
    run auto_none 3 plan $gpt --mode tensor --memory 8230K --remat auto --microbatches auto
    says auto_none.err "infeasible; the limit named is that of this variant"
    run auto_pins 2 plan models/gpt_bytes.json $machine $mesh --pin 'head: vocab@x' --remat auto
    says auto_pins.err "auto of --precision, --remat and --microbatches is for --mode rules and tensor"
    run explain 0 explain $model "$here/a.plan" w2 $machine --json
    run explain_exact 0 explain $model "$here/a.plan" h.mm $machine --exact --json
    run explain_text 0 explain $model "$here/a.plan" w2 $machine
    says explain_text.out "uneven: dim 'classes' of size 10 into 4 parts"
    run diff 0 diff $model "$here/free.plan" "$here/a.plan" $machine --json
    run diff_bare 0 diff $model "$here/free.plan" "$here/a.plan" --json
    run diff_text 0 diff $model "$here/free.plan" "$here/a.plan" $machine
    says diff_text.out "redistribution"
    run diff_same 0 diff $model "$here/a.plan" "$here/b.plan" $machine
    says diff_same.out "0 tensors differ"
    run pareto 0 pareto $model $machine $mesh --points 4 --json
    run pareto_text 0 pareto $model $machine $mesh --points 4
    run pareto_none 3 pareto $model $machine $mesh --memory 1K
    run sensitivity 0 sensitivity $model "$here/a.plan" $machine --steps 2 --json
    run sensitivity_text 0 sensitivity $model "$here/a.plan" $machine --steps 2 --only flops
    says sensitivity_text.out "flops"
    # Throughput: tokens of a step over its time, beside every time whose rates they are; no word of
    # either where the model has no tokens.
    run tokens_plan 0 plan $gpt --json -o "$here/gpt.plan"
    run tokens_pareto 0 pareto $gpt --points 2 --json
    run tokens_text 0 pareto $gpt --points 1
    run tokens_explain 0 explain ${gpt% --mesh*} "$here/gpt.plan" wte --json
    run tokens_diff 0 diff ${gpt% --mesh*} "$here/gpt.plan" "$here/gpt.plan" --json
    "$1/dtrun" run ${gpt%% --machine*} --plan "$here/gpt.plan" --comm sim --steps 2 --quiet --json >"$here/tokens_run.out" ||
        fail "dtrun run of a plan with tokens"
    "$1/dtrun" run ${gpt%% --machine*} --plan "$here/gpt.plan" --comm sim --quiet >"$here/tokens_run_text.out"
    for text in tokens_text tokens_run_text; do
        says $text.out ", at rates of the datasheet"
        says $text.out "MFU"
        says $text.out "per device"
    done
    says explain_text.out ", at rates of the datasheet)"
    says diff_text.out "predicted, at rates of the datasheet"
    says sensitivity_text.out ", at rates of the datasheet"
    grep -qE 'MFU|tokens' "$here/pareto_text.out" && fail "a model without tokens has a throughput"
    python3 - "$here" <<'P' || fail "throughput or rates of a report"
import json, sys
def read(name): return json.load(open(f"{sys.argv[1]}/{name}.out"))
KEYS = {"tokens_per_s", "tokens_per_s_per_device", "mfu"}
for name in ("plan", "pareto", "explain", "diff"):
    assert read(f"tokens_{name}")["rates"] == "datasheet", name
run = read("tokens_run")
assert run["predicted"]["rates"] == "datasheet"
plan = read("tokens_plan")["predicted"]
for step in [run["predicted"], run["measured"]] + read("tokens_pareto")["points"]:
    assert KEYS <= step.keys() and step["exposed_comm_s"] >= 0, step
    assert abs(step["tokens_per_s"] * step["step_time_s"] - 16 * 64) < 1e-6, step
    assert abs(step["tokens_per_s_per_device"] * 2 - step["tokens_per_s"]) < 1e-6, step
for step in (run["predicted"], run["measured"]): # the same FLOPs at the same peak
    assert abs(step["mfu"] * step["step_time_s"] / (plan["mfu"] * plan["step_time_s"]) - 1) < 1e-9, step
assert not KEYS & set(read("pareto")["points"][0])
P
    # What a plan for target cuda takes under torch: that of its layouts in a plan for target torch.
    run torch_line 0 plan ${gpt%% --machine*} $machine --mesh x:2 --rules batch:x -o "$here/cuda.plan"
    sed 's/"target": "cuda"/"runtime": "torch", "target": "torch"/' "$here/cuda.plan" >"$here/torch.plan"
    run torch_same 0 diff ${gpt%% --machine*} "$here/torch.plan" "$here/torch.plan" $machine
    both() { # NAME ROW: its two columns
        sed -n '/^this plan by the target/,/^$/p' "$here/$1.out" | sed -nE "s|^ *$2  +(.*)|\1|p" | tr -s ' '
    }
    own() { sed -nE "s/^this plan +([0-9.]+ [a-z]*s) .*/\1/p" "$here/$1.out" | head -1; }
    expect "steps of both targets" "$(both torch_line step)" \
        "$(own torch_line) $(sed -nE 's/^step +([0-9.]+ [a-z]*s) .*/\1/p' "$here/torch_same.out")"
    says torch_line.out "$(sed -nE 's/^peak +([0-9.]+ [A-Za-z]*B) .*/\1/p' "$here/torch_same.out")"
    expect "rates of both targets" "$(both torch_line rates)" "datasheet fitted"
    for row in tokens/s MFU peak; do
        [ -n "$(both torch_line $row)" ] || fail "no row $row of both targets"
    done
    grep -q '^tokens: ' "$here/torch_line.out" && fail "throughput of one target beside the table of both"
    hidden=$(python3 -c 'import json, sys
p = json.load(open(sys.argv[1]))["predicted"]
print("%.1f %% of it beside compute" % (100 * (1 - p["exposed_comm_s"] / p["comm_s"])))' "$here/cuda.plan")
    says torch_line.out "${hidden:?}"
    grep -q '^this plan by the target' "$here/plan.out" && fail "a plan for target cpu says what it takes under torch"
    run torch_bare 0 plan ${gpt%% --machine*} $machine --mesh x:2 --target torch
    expect "rates of a plan for torch" "$(both torch_bare rates)" "fitted datasheet"
    # PyTorch takes single steps: a tied plan over replicas costs less than the bound without tying.
    run torch_tied 0 plan models/bert_large.json --dim layers=3 --dim batch=4 --mesh 'x:2;y:2' --target torch --mode tensor \
        --machine models/machines/h100_64.json --precision bf16,gradients=f32 --outputs none --memory none
    # Target and precision: every command that prices what no plan decides takes them as `plan` does.
    for command in $("$dtplan" help | sed -nE 's/^  ([a-z-]+) .*/\1/p'); do
        "$dtplan" "$command" --help >"$here/help" 2>&1
        if grep -q '^  --machine ' "$here/help" && ! head -1 "$here/help" | grep -q ' PLAN'; then
            grep -q -- '--target NAME' "$here/help" || fail "$command prices, and has no --target"
            commands="${commands:-} $command"
        fi
    done
    expect "commands with --target" "${commands:-}" " plan show pareto sweep redistribute"
    for target in cpu cuda; do
        run "plan_$target" 0 plan $model $machine --mesh x:4 --mode tensor --memory none --target $target --precision bf16 --json
        run "pareto_$target" 0 pareto $model $machine --mesh x:4 --points 1 --target $target --precision bf16 --json
        python3 - "$here/plan_$target.out" "$here/pareto_$target.out" $target <<'P' || fail "pareto does not have the plan of target $target"
import json, sys
plan, pareto = (json.load(open(path)) for path in sys.argv[1:3])
point = pareto["points"][0]
assert plan.get("target", "cpu") == pareto["target"] == sys.argv[3]
assert (plan["predicted"]["step_time_s"], plan["certificate"]["cost"]) == (point["step_time_s"], point["cost"])
P
        run "problem_$target" 0 show $model $machine --mesh x:4 --stage problem --mode tensor --target $target
        run "moves_$target" 0 redistribute --mesh x:4 --shape 64,64 --from S0 --to S1 $machine --target $target
    done
    for report in plan pareto problem moves; do
        cmp -s "$here/${report}_cpu.out" "$here/${report}_cuda.out" && fail "$report: both targets give the same"
    done
    for command in "plan $model --mesh x:2" "show $model --rules batch:x --mesh x:2" "pareto $model --mesh x:2" \
        "redistribute --mesh x:4 --shape 64,64 --from S0 --to S1"; do
        run nowhere 2 $command $machine --target nowhere
        says nowhere.err "there is no target 'nowhere'"
    done
    run decided 2 show $model --plan "$here/a.plan" --target cpu
    says decided.err "leave out --target"
}

if /usr/bin/env python3 -c 'from jsonschema import Draft202012Validator' 2>/dev/null; then
    while read -r schema file; do
        python3 -c '
import json, sys
from jsonschema import Draft202012Validator
schema, file = (json.load(open(path, encoding="utf-8")) for path in sys.argv[1:])
Draft202012Validator(schema).validate(file)' "docs/formats/$schema.schema.json" "$here/$file" 2>"$here/schema.err" ||
            fail "$file does not fit $schema: $(tail -3 "$here/schema.err")"
    done <<FILES
plan a.plan
plan free.plan
plan priced.plan
explain explain.out
explain explain_exact.out
diff diff.out
diff diff_bare.out
pareto pareto.out
pareto tokens_pareto.out
report tokens_run.out
sensitivity sensitivity.out
FILES
fi
exit $failed
