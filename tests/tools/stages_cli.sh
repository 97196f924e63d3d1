#!/usr/bin/env bash
# Plans with stages through the tools: written, read back and shown with the same prediction; the same bytes twice and on one thread;
# plans whose stages are not of the model, and commands that take no stages yet, end with 2 and one line. Usage: stages_cli.sh BIN_DIR
set -u
bin=$1 model=models/gpt_bytes.json machine=models/machines/h100_64.json
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0
bad() {
    echo "FAIL: $*"
    failed=$((failed + 1))
}
small=(--dim batch=8 --dim length=16)
plan() { # FILE OPTIONS...
    local file=$1
    shift
    "$bin/dtplan" plan "$model" "${small[@]}" --mesh x:2 --microbatches 4 --machine "$machine" -o "$here/$file" "$@" >"$here/out" 2>"$here/err" ||
        bad "plan $*: $(cat "$here/err")"
}

plan a --stages 2 --rules batch:x
plan b --stages 2 --rules batch:x
cmp "$here/a" "$here/b" || bad "other bytes the second time"
plan c --stages layer:0,2 --slots 1f1b --rules batch:x
cmp "$here/a" "$here/c" || bad "borders by hand are not those of two equal stages"
grep -q '^stages: layer:0, layer:2; 2 microbatches in flight on the first$' "$here/out" || bad "the text does not say the stages"
plan d --stages layer:0,1,3 --slots gpipe --remat all --precision bf16 --style '**: data' --style '**: zero1'
for p in a d; do
    "$bin/dtplan" show "$model" --plan "$here/$p" --machine "$machine" --stage pipeline >"$here/shown" 2>"$here/err" || bad "show $p"
    [ -s "$here/err" ] && bad "show $p says: $(cat "$here/err")"
    python3 - "$here/$p" "$here/shown" <<'END' || bad "table of $p"
import json, sys
p = json.load(open(sys.argv[1]))
text = open(sys.argv[2]).read()
n, m = len(p["stages"]), p["microbatches"]
assert text.count("forward  microbatch") == n * m and text.count("backward microbatch") == n * m, text
assert f"{n} stages, {m} microbatches; step " in text
q = p["predicted"]
assert q["bubble_s"] > 0 and q["imbalance_s"] >= 0 and q["exposed_sends_s"] > 0
assert q["bubble_s"] + q["exposed_sends_s"] < q["step_time_s"]
END
done
"$bin/dtplan" show "$model" --plan "$here/a" >/dev/null || bad "show --stage plan"
# What is communicated, when it is planned as of the file.
"$bin/dtplan" show "$model" --plan "$here/a" --comm-report --json >"$here/shown" || bad "show --comm-report --json"
"$bin/dtplan" plan "$model" "${small[@]}" --mesh x:2 --microbatches 4 --machine "$machine" --stages 2 --rules batch:x --comm-report --json >"$here/out" ||
    bad "plan --comm-report"
cmp "$here/shown" "$here/out" || bad "another communication report of the plan's file"
# Chunks: the table, the reports of every program, and the trace, whose sections are those of the table.
plan k --stages 2x2 --rules batch:x --target cpu
for what in "--stage program" "--stage memory" --comm-report --counters; do
    # shellcheck disable=SC2086
    "$bin/dtplan" show "$model" --plan "$here/k" $what >"$here/shown" || bad "show $what"
    [ "$(grep -cE '^stage [01], chunk [01]$' "$here/shown")" = 4 ] || bad "$what is not of 4 programs"
done
"$bin/dtplan" show "$model" --plan "$here/k" --machine "$machine" --stage pipeline >"$here/shown" || bad "show --stage pipeline"
"$bin/dtplan" show "$model" --plan "$here/k" --machine "$machine" --stage schedule >"$here/trace" || bad "show --stage schedule"
python3 - "$here/k" "$here/shown" "$here/trace" <<'END' || bad "chunks"
import json, sys
p, text, trace = json.load(open(sys.argv[1])), open(sys.argv[2]).read(), json.load(open(sys.argv[3]))
assert len(p["stages"]) == 4 and p["chunks"] == 2 and "2 stages, 2 chunks on each, 4 microbatches" in text, text
slices = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] == "section"]
assert len(slices) == 2 * 2 * (2 * 4 + 1) == text.count("begins at"), len(slices)
for pid in (1, 2):
    mine = sorted((e["ts"], e["dur"]) for e in slices if e["pid"] == pid)
    assert all(a + d <= b + 1e-3 for (a, d), (b, _) in zip(mine, mine[1:])), mine
end = max(e["ts"] + e["dur"] for e in slices)
assert abs(end - 1e6 * p["predicted"]["step_time_s"]) < 1e-3 * end, (end, p["predicted"]["step_time_s"])
END
plan e --stages 2 --rules batch:x --target cpu
grep -q '^2 stages, 4 microbatches$' "$here/out" || bad "the text of the plan has no table of stages"

# Above 30 billion parameters a plan without stages says so.
large() { # D_FF
    "$bin/dtplan" plan models/llama3_70b.json --dim layers=1 --dim batch=8 --dim length=16 --dim d_ff="$1" --mesh x:32 --style "**: fsdp" \
        --machine "$machine" 2>"$here/err" | grep -c 'pipeline stages were not tried'
}
[ "$(large 2097152)" = 1 ] || bad "stages that were not tried are not named: $(cat "$here/err")"
[ "$(large 16384)" = 0 ] || bad "a small model is told of stages"

# The loss of a large head is one kernel with its gradient, in the backward section.
small=(--dim batch=64 --dim length=512 --dim vocab=65536)
plan f --stages 2 --rules batch:x --target cuda --precision bf16
small=(--dim batch=8 --dim length=16)
search() { # FILE OPTIONS...
    local file=$1
    shift
    "$bin/dtplan" plan "$model" "${small[@]}" --machine "$machine" -o "$here/$file" "$@" >"$here/out" 2>"$here/err" || bad "plan $*: $(cat "$here/err")"
}
search g --devices 4 --stages auto --remat auto --microbatches auto
search h --devices 4 --stages auto --remat auto --microbatches auto --threads 1
cmp "$here/g" "$here/h" || bad "other bytes of a search on one thread"
for n in 1 2 4; do
    grep -q "\"--stages $n[ :]" "$here/g" || bad "$n stages were not tried"
done
# Where no stages pay it is the plan without, but for what was tried.
search f --devices 4 --remat auto --microbatches auto
python3 - "$here/g" "$here/f" <<'END' || bad "another plan than without stages"
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
tried = a.pop("tried")
assert tried[0].startswith("--stages 1: ") and b.pop("tried")
# The kernels alone, with nothing recomputed, take less than the best plan: no number of stages is dropped.
for n in 2, 4:
    assert [t for t in tried if t.startswith(f"--stages {n} ") and "MiB" in t], tried
assert "stages" not in a and a == b
END
search g --devices 4 --stages 2 --microbatches auto --target cpu
grep -q '^2 stages, ' "$here/out" || bad "the number of stages that is given is not kept"
# The plan of a search is the one of its own settings, and the fastest that was tried.
read -r mesh count < <(python3 - "$here/g" <<'END'
import json, sys
p = json.load(open(sys.argv[1]))
print(";".join(f"{name}:{size}" for name, size in p["mesh"]), p["microbatches"])
END
)
search h --mesh "$mesh" --stages 2 --microbatches "$count" --target cpu
python3 - "$here/g" "$here/h" <<'END' || bad "another step for the same settings"
import json, sys
a, b = (json.load(open(f))["predicted"]["step_time_s"] for f in sys.argv[1:])
assert a == b, (a, b)
END
"$bin/dtrun" verify "$model" --plan "$here/g" --comm sim --threads 1 >"$here/out" 2>"$here/err" || bad "verify of a searched plan: $(cat "$here/err")"

# Where nothing fits, the smallest limit that works is named, with the stage that needs most: it works, and a little less does not.
limit() { # WORDS OPTIONS...
    local words=$1 least
    shift
    "$bin/dtplan" plan "$model" "${small[@]}" --machine "$machine" --memory 64K "$@" -o "$here/h" >"$here/out" 2>"$here/err"
    [ $? -eq 3 ] || bad "a plan within 64 KiB: $*"
    least=$(tr -s '\n ' '  ' <"$here/err" | sed -n 's/.*(--memory \([^ ;)]*\)[;)].*/\1/p')
    tr -s '\n ' '  ' <"$here/err" | grep -qF -- "$words" || bad "no '$words': $(cat "$here/err")"
    "$bin/dtplan" plan "$model" "${small[@]}" --machine "$machine" --memory "$least" "$@" -o "$here/h" >"$here/out" 2>"$here/err" ||
        bad "--memory $least does not work: $* $(cat "$here/err")"
    least=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["predicted"]["peak_bytes"] * 9 // 10)' "$here/h")
    "$bin/dtplan" plan "$model" "${small[@]}" --machine "$machine" --memory "$least" "$@" -o "$here/h" >"$here/out" 2>"$here/err"
    [ $? -eq 3 ] || bad "--memory $least works: $*"
}
small=(--dim batch=8 --dim length=16 --dim layers=2)
limit ", of whose 2 stages stage 0 needs most" --mesh x:2 --stages 2 --microbatches 2 --rules batch:x
limit ", of whose 2 stages stage 0 needs most" --devices 2 --stages 2 --microbatches 4
small=(--dim batch=8 --dim length=16)

refuse() { # WORDS COMMAND...
    local words=$1
    shift
    "$@" >"$here/out" 2>"$here/err"
    { [ $? -eq 2 ] && grep -qF -- "$words" "$here/err" && [ "$(wc -l <"$here/err")" -eq 1 ]; } || bad "expected '$words': $* $(cat "$here/err")"
}
run() { # OPTIONS...
    "$bin/dtrun" "$@" --threads 1
}
run verify "$model" --plan "$here/e" --comm sim >"$here/out" 2>"$here/err" || bad "verify: $(cat "$here/err")"
grep -q '^verify: 4 ranks against one device' "$here/out" || bad "verify does not run 2 stages of 2 ranks"
refuse "is one rank, but the mesh has 4" run verify "$model" --plan "$here/e" --comm self
refuse "--eval-every is of plans without stages" run run "$model" --plan "$here/e" --comm sim --eval-every 1 --eval-feed "tokens=$here/none"
refuse "has 2 stages" run eval "$model" --plan "$here/e" --comm sim --load "$here/none" --feed "tokens=$here/none"
refuse "has 2 stages" "$bin/dtplan" explain "$model" "$here/a" wte --machine "$machine"
refuse "has 2 stages" "$bin/dtplan" diff "$model" "$here/a" "$here/d" --machine "$machine"
refuse "has 2 stages" "$bin/dtplan" sensitivity "$model" "$here/a" --machine "$machine"
refuse "--against is of plans without stages" "$bin/dtplan" report "$model" "$here/a" --machine "$machine" --against "$here/d" -o "$here/page"
[ ! -e "$here/page" ] || bad "a refused report has written a file"
refuse "has 2 stages" run sample "$model" --plan "$here/e" --comm sim --load "$here/none" --prompt a
for form in jax hf rules placements; do
    refuse "has 2 stages, which --as torch alone says" "$bin/dtplan" export "$model" "$here/a" --as $form -o "$here/exported"
done
[ ! -e "$here/exported" ] || bad "a refused export has written a file"
# Export: modules of each stage, the table that show prints, flags of Megatron; uneven borders, GPipe, tensor dims.
export_as_torch() { # PLAN
    "$bin/dtplan" export "$model" "$here/$1" --as torch -o "$here/$1.torch" >"$here/out" 2>"$here/err" || bad "export $1: $(cat "$here/err")"
}
plan t --stages layer:0,1,3 --rules 'heads:x;d_ff:x;vocab:x'
for p in a d t; do
    export_as_torch $p
    "$bin/dtplan" show "$model" --plan "$here/$p" --stage pipeline >"$here/shown" || bad "show $p"
    python3 - "$here/$p.torch" "$here/shown" <<'END' || bad "export of $p"
import json, re, sys
d = json.load(open(sys.argv[1]))
s, text = d["torch"]["stages"], open(sys.argv[2]).read()
cells = []
for rank, part in enumerate(re.split(r"^stage \d+$", text, flags=re.M)[1:]):
    found = re.findall(r"(forward|backward) +microbatch (\d+)", part)
    cells.append(",".join(f"{rank}{kind[0].upper()}{m}" for kind, m in found))
assert s["table"] == cells, (s["table"], cells)
assert sorted({c for row in s["modules"] for c in row}) == sorted(c for row in s["modules"] for c in row), s["modules"]
names = [p["name"] for p in d["params"]]
assert all(any(n == m or n.startswith(m + ".") for row in s["modules"] for m in row) for n in names)
assert s["modules"][0][:2] == ["wte", "wpe"] and {"ln_f", "head"} <= set(s["modules"][-1])
three = len(s["modules"]) == 3
assert s["begin"] == (["layers.1", "layers.3"] if three else ["layers.2"]), s["begin"]
assert s["microbatches"] == 4 and s["microbatch_size"] == (2 if ["x"] == d["torch"]["tensor_dims"] else 1)
if s["schedule"] == "GPipe":
    assert s["slots"] == [4, 4, 4] and s["megatron"] == []
else:
    layout = "Et*1|t*2|t*1L" if three else "Et*2|t*2L"
    flags = dict(f.lstrip("-").split("=") for f in s["megatron"])
    assert s["schedule"] == "1F1B" and flags["pipeline-model-parallel-layout"] == layout, flags
    assert flags["tensor-model-parallel-size"] == ("2" if three else "1")
    assert int(flags["micro-batch-size"]) == s["microbatch_size"] and flags["global-batch-size"] == "8"
END
done
# A tensor is drawn on its home, of what crosses a border with where it goes; a mask lies on both.
drawn() { # TENSOR WORDS
    "$bin/dtplan" viz "$model" --plan "$here/a" --tensor "$1" --svg "$here/drawn.svg" >"$here/out" 2>"$here/err" || bad "viz $1: $(cat "$here/err")"
    for words in "${@:2}"; do
        grep -qF -- "$words" "$here/out" || bad "viz $1: no '$words': $(cat "$here/out")"
        [ "${words#|}" != "$words" ] || grep -qF -- "${words//>/\&gt;}" "$here/drawn.svg" || bad "viz $1: no '$words' in the SVG"
    done
    "$bin/dtplan" viz "$model" --plan "$here/a" --tensor "$1" --json >"$here/drawn" || bad "viz $1 --json"
}
drawn wte "stage 0 of 2" "| 0, 1 "
drawn head "stage 1 of 2" "| 2, 3 "
drawn layers.1.x2 "stage 0 of 2; sent 0 -> 1 behind forward"
python3 - "$here/drawn" <<'END' || bad "viz --json"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["stages"] == {"home": 0, "on": [0], "sends": [{"from": 0, "to": 1, "section": "forward"}]}, d["stages"]
assert [r["rank"] for r in d["ranks"]] == [0, 1]
END
drawn grad.layers.2.ln_1.1 "stage 1 of 2; sent 1 -> 0 behind backward"
"$bin/dtplan" plan models/gpt2_small.json --dim length=8 --dim layers=4 --dim heads=2 --dim d_head=4 --dim vocab=32 --dim batch=16 --mesh x:1 \
    --stages 2 --style '**: data' --microbatches 4 --target cpu -o "$here/tied" >/dev/null || bad "a plan with a tied embedding"
"$bin/dtplan" viz models/gpt2_small.json --plan "$here/tied" --tensor wte >"$here/out" || bad "viz of a tied embedding"
grep -q '^stage 0 of 2; also on stage 1; sent 0 -> 1 behind update.1$' "$here/out" || bad "a copy is not named: $(cat "$here/out")"
refuse "--trace is of plans without stages" "$bin/dtplan" show "$model" --plan "$here/a" --trace
refuse "--json is of one program: the plan has 2 stages" "$bin/dtplan" show "$model" --plan "$here/a" --counters --json
tried() { # WORDS OPTIONS...
    local words=$1
    shift
    refuse "$words" "$bin/dtplan" plan "$model" "${small[@]}" --machine "$machine" "$@"
}
tried "takes no mesh" --mesh x:2 --stages auto
tried "do not divide 4 devices" --devices 4 --stages 3 --microbatches 4
tried "no --forward" --devices 4 --stages auto --forward
tried "need at least 2 microbatches" --devices 4 --stages 2
tried "searched in --mode tensor" --devices 4 --stages 2 --mode rules
tried "no --uneven" --devices 4 --stages auto --uneven
tried "slots: '0'" --devices 4 --stages auto --slots 0
change() { # SED WORDS
    sed "$1" "$here/a" >"$here/changed"
    refuse "$2" "$bin/dtplan" show "$model" --plan "$here/changed"
    grep -q 'changed:' "$here/err" || bad "$1: the place is missing: $(cat "$here/err")"
}
change 's/"layer:0", "layer:2"/"layer:2", "layer:0"/' "leaves out layer:0"
change 's/"layer:0", "layer:2"/"layer:0", "layer:0"/' "not ascending"
change 's/"layer:0", "layer:2"/"layer:0", "layer:9"/' "has no instance 'layer:9'"
change 's/"layer:0", "layer:2"/"layer:0"/' "1 stages, expected 2 to 64"
change 's/"slots": 1/"slots": 0/' "slots"
change 's/"slots": 1/"slots": 5/' "slots"
change '/"stages":/d' "slots are those of stages"
change 's/"slots": 1/"slots": 1, "chunks": 1/' "chunks"
change 's/"slots": 1/"slots": 1, "chunks": 2/' "2 stages, expected 4 to 64, as many chunks on each"
change 's/"slots": 1/"chunks": 3/' "2 stages, expected 6 to 64, as many chunks on each"
change '/"stages":/d;s/"slots": 1/"chunks": 2/' "chunks are those of stages"
exit $((failed > 0))
