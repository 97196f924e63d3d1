#!/usr/bin/env bash
# dtrun bench --as torch, with a stand-in for the interpreter that has torch: the list it is given, the machine that is fitted to its
# times, whose rates plans then have and what is said where they do not, and what is refused. Usage: bench_torch.sh BIN_DIR
set -u
bin=$1
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0
bad() { echo "FAIL: $*"; failed=$((failed + 1)); }
bench() { "$bin/dtrun" bench --quiet --as torch --tiny "$@" 2>"$here/err"; }
refused() { # CODE WORDS COMMAND...
    local code=$1 words=$2
    shift 2
    rm -f "$here/none.json"
    "$@" -o "$here/none.json" >/dev/null 2>"$here/more"
    [ $? -eq "$code" ] || bad "exit code of $*, wanted $code"
    cat "$here/more" >>"$here/err"
    grep -qF -- "$words" "$here/err" || { bad "'$words' is not said:"; cat "$here/err"; }
    [ ! -e "$here/none.json" ] || bad "$* wrote a file"
}

cat >"$here/python" <<'PYTHON'
#!/usr/bin/env python3
"""Times that a formula gives; MODE: what is wrong with them."""
import json, math, os, sys
script, path = sys.argv[1:]
assert os.path.basename(script) == "dtp_torch_bench.py" and os.path.exists(script), script
todo, mode = json.load(open(path)), os.environ.get("MODE", "")
json.dump(todo, open(os.environ["LIST"], "w"))
def size(spec):
    return math.prod(spec[2::2]) * {"f32": 4, "i32": 4, "bool": 1}.get(spec[0], 2)
def time(s):
    if s["kind"] == "launch":
        return 5e-6
    if s["kind"] == "product":
        return 5e-6 + 2 * s["out"][0][-1] * math.prod(s["in"][0][2::2]) / 1e11
    if s["kind"] == "beside":
        return [1e-2, 1.5, 1.25]
    if s["kind"] == "collective":
        return 1e-4 + s["bytes"] / 1e9
    if s["kind"] == "move":
        return 1e-6 + 8 * math.prod(s["sizes"]) / 1e10
    return None if s["name"] == "gelu" else 2e-6 + sum(map(size, s["in"])) / 1e9
times = [time(s) for s in todo["samples"]]
if mode == "few":
    times.pop()
if mode == "negative":
    times[0] = -1.0
if mode == "none":
    sys.exit(3)
if mode == "fails":
    sys.exit("no room")
out = {"format": "dtp.torch_bench/1", "torch": "9.9", "device": "", "memory_bytes": 0, "host_s": 0.0, "times": times}
print("no JSON" if mode == "text" else json.dumps(out))
PYTHON
chmod +x "$here/python"
export DTP_TORCH_PYTHON="$here/python" LIST="$here/list.json" XDG_CACHE_HOME="$here"
bench --ranks 2 --threads 3 --name here -o "$here/torch.json" || { bad "bench"; cat "$here/err"; }
[ ! -e "$here/dtp" ] || bad "a machine of PyTorch was kept for plans without --machine"

/usr/bin/env python3 - "$here" <<'PYTHON' || bad "list or machine"
import json, sys
here = sys.argv[1]
read = lambda name: json.load(open(f"{here}/{name}.json"))
todo, m = read("list"), read("torch")
assert (todo["format"], todo["device"], todo["ranks"], todo["threads"]) == ("dtp.torch_bench_list/1", "cpu", 2, 3), todo
of = {}
for s in todo["samples"]:
    of.setdefault(s["kind"], []).append(s)
assert set(of) == {"product", "op", "move", "collective", "launch", "beside"}, set(of)
assert {s["name"] for s in of["collective"]} == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute"}
assert {"layer_norm", "layer_norm_grad", "attention", "attention_grad", "adamw", "cross_entropy"} <= {s["name"] for s in of["op"]}
norm = next(s for s in of["op"] if s["name"] == "layer_norm" and s["arithmetic"] == "f32")
assert norm["in"] == [["f32", "r", 4, "c", 256], ["f32", "c", 256], ["f32", "c", 256]] and norm["out"][0] == norm["in"][0], norm
assert m["runtime"] == "torch" and m["name"] == "here" and "PyTorch 9.9" in m["provenance"]["tool"] and "efficiency" not in m, m
assert (m["provenance"]["ranks"], m["provenance"]["threads"]) == (2, 3)
d = m["device"]
near = lambda a, b: abs(a - b) <= 1e-6 * b
assert near(d["launch_s"], 5e-6) and near(d["flops"]["f32"], 1e11), d
assert d["overlap"] and d["overlap_slowdown"] == {"compute": 1.5, "comm": 1.25}, d
ops = {c["op"]: c for c in d["curves"]["ops"] if "dtype" not in c}
assert "gelu" not in ops and {"*", "add", "pack", "layer_norm"} <= set(ops), sorted(ops)
for bytes_, _, measured in ops["tanh"]["points"]:
    assert near(measured, 2e-6 + bytes_ / 2 / 1e9), (bytes_, measured)  # half of them are read
rates = m["levels"][0]["collectives"]
assert set(rates) == {s["name"] for s in of["collective"]}, rates
for kind, r in rates.items():
    assert abs(r["start_s"] + r["rank_s"] - 1e-4) < 1e-5, (kind, r)
PYTHON

# ---- whose rates plans have
plan() { "$bin/dtplan" plan models/mlp_digits.json --mesh x:2 --rules batch:x -o "$here/mlp.plan" "$@" >/dev/null 2>"$here/err" || bad "plan"; }
said() { grep -qF -- "$1" "$here/err" || { bad "'$1' is not said:"; cat "$here/err"; }; }
plan --machine "$here/torch.json" --target torch
[ ! -s "$here/err" ] || { bad "a machine of PyTorch for target torch:"; cat "$here/err"; }
grep -q '"runtime": "torch"' "$here/mlp.plan" || bad "the plan has no runtime"
"$bin/dtplan" explain models/mlp_digits.json "$here/mlp.plan" w1 --machine "$here/torch.json" >/dev/null 2>"$here/err" || bad "explain"
[ ! -s "$here/err" ] || { bad "explain says:"; cat "$here/err"; }
plan --machine "$here/torch.json" --target cpu
said "no rates of runtime 'cpu' but those of torch"
for target in torch torch_compile; do
    plan --machine cpu_2 --target $target
    said "'dtrun bench --as torch' measures it"
done
plan --machine cpu_2 --target cpu
[ ! -s "$here/err" ] || { bad "target cpu on cpu_2 says:"; cat "$here/err"; }
plan --machine h100_64 --target torch # has a set
! grep -q "no rates" "$here/err" || bad "h100_64 has a set of torch"

# ---- what is refused
MODE=none refused 2 "has no torch; DTP_TORCH_PYTHON names an interpreter that has torch" bench
DTP_TORCH_PYTHON=$here/absent refused 2 "cannot be started" bench
MODE=fails refused 2 "failed (exit code 1)" bench
MODE=text refused 2 "dtp_torch_bench.py" bench
MODE=few refused 2 "times of" bench
MODE=negative refused 2 "cannot take -1 s" bench
refused 2 "--op and --collective write none" "$bin/dtrun" bench --as torch --op add
refused 2 "not of 'ref'" bench --backend ref
refused 2 "gloo: no --comm" bench --comm sim
sed 's/"runtime": "torch",/&"efficiency": {},/' "$here/torch.json" >"$here/both.json"
"$bin/dtplan" plan models/mlp_digits.json --mesh x:2 --rules batch:x --machine "$here/both.json" >/dev/null 2>"$here/err"
[ $? -eq 2 ] || bad "exit code of a machine with both"
said "give one of them"
[ $failed -eq 0 ] && echo "bench_torch: pass"
exit $((failed > 0))
