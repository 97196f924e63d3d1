#!/usr/bin/env python3
"""Lets allocations of commands fail, one at a time, and checks how the command ends.

Usage: alloc_sweep.py BIN_DIR FAIL_LIBRARY [--sample N | --all] [--burst] [--only REGEX] [--seed S] [--jobs J]
                      [--timeout S] [--sanitized]

Every case of CASES runs once to count its allocations and to keep its product, then once for every N that is tried,
with the N-th allocation failing (or all from the N-th on, --burst). A run must end with exit 1, one more line on
standard error than before, which says "memory", nothing on standard output (dtrun: a beginning of it) and every
output file as it was; or, where the command does without the memory, exactly as without the failure. No run may be
ended by a signal or take longer than its limit, and no other file may be left. What dtrun fetched or saved before the
failure is whole. Run from the root of the repository.
"""
import argparse
import concurrent.futures
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import quarter

MACHINE = "models/machines/cpu_2.json"
A100 = "models/machines/a100_8.json"
MLP = "models/mlp_digits.json"
GPT = "models/gpt_bytes.json --dim batch=4 --dim length=8 --dim layers=2 --dim heads=2"

# name | command; {x} is a prepared input, {out/name} a file that the command writes
CASES = [case.split("|") for case in f"""
plan_rules|dtplan plan {MLP} --mesh x:2 --machine {MACHINE} -o {{out/plan}}
plan_json|dtplan plan {MLP} --mesh x:2 --machine {MACHINE} --json
plan_devices|dtplan plan {MLP} --devices 4 --machine {A100} --mode rules -o {{out/plan}}
plan_tensor|dtplan plan {MLP} --mesh x:2;y:2 --machine {A100} --mode tensor --memory 112K -o {{out/plan}}
plan_tensor_devices|dtplan plan {MLP} --devices 4 --machine {A100} --mode tensor --threads 1 -o {{out/plan}}
plan_tensor_prices|dtplan plan {MLP} --mesh x:2;y:2 --machine {A100} --mode tensor --memory 150K --pin w1:hidden@y --prices
plan_pins|dtplan plan {MLP} --mesh x:2 --machine {A100} --pin w1:hidden@x --comm-report
plan_style|dtplan plan {GPT} --mesh x:2 --machine {A100} --style layers.*.mlp.up.mm:colwise --style layers.*.mlp.down.mm:rowwise --style **:zero1 -o {{out/plan}}
plan_style_file|dtplan plan {GPT} --mesh x:2 --machine {A100} --style-file models/styles/gpt_bytes.tp.json --style-names self_attn=attn --style-names q_proj=q --style-names k_proj=k --style-names v_proj=v --style-names o_proj={{mm,out}} --style-names up_proj=up --style-names down_proj={{down,out}} --style-names lm_head=logits -o {{out/plan}}
plan_outputs|dtplan plan {MLP} --mesh x:2 --machine {A100} --mode rules --outputs logits -o {{out/plan}}
plan_remat|dtplan plan {GPT} --mesh x:2 --machine {A100} --rules batch:x --remat all --microbatches 2 -o {{out/plan}}
plan_remat_auto|dtplan plan {GPT} --mesh x:2 --machine {A100} --mode rules --remat auto --microbatches auto -o {{out/plan}}
plan_gpt|dtplan plan {GPT} --mesh x:2;y:2 --machine {A100} --mode rules -o {{out/plan}}
plan_gpt_tensor|dtplan plan {GPT} --mesh x:2 --machine {A100} --mode tensor -o {{out/plan}}
plan_gpt_tensor_tight|dtplan plan {GPT} --mesh x:2 --machine {A100} --mode tensor --memory 2M -o {{out/plan}}
plan_fit|dtplan plan {GPT} --mesh x:2 --machine {A100} --memory 2M -o {{out/plan}}
plan_infeasible|dtplan plan {MLP} --mesh x:2 --machine {MACHINE} --memory 1K
plan_tensor_infeasible|dtplan plan {MLP} --mesh x:2;y:2 --machine {A100} --mode tensor --memory 104K --remat none --microbatches 1
plan_conflict|dtplan plan {MLP} --mesh x:2;y:2 --machine {A100} --mode tensor --memory 128K --pin w1:replicated --pin w2:hidden@x --remat none --microbatches 1
plan_objective_memory|dtplan plan {MLP} --devices 4 --objective memory --machine {A100} --mode rules -o {{out/plan}}
plan_auto_mtf|dtplan plan models/mtf_lm.json --mesh x:4;y:4 --machine models/machines/h100_64.json --compat auto_mtf
plan_torch|dtplan plan {MLP} --mesh x:2 --machine {A100} --compat torch --pin w1:hidden@x
plan_trace|dtplan plan {MLP} --mesh x:2 --machine {A100} --mode rules -o {{out/plan}} --trace {{out/trace}}
plan_bad_model|dtplan plan tests/bad/models/node_dim_sizes_differ.json --mesh x:2 --machine {A100}
show_graph|dtplan show {MLP} --stage graph
show_strategies|dtplan show {MLP} --stage strategies
show_problem|dtplan show {MLP} --mesh x:2 --machine {A100} --stage problem
show_plan|dtplan show {MLP} --plan {{a.plan}} --stage plan
show_report|dtplan show {MLP} --plan {{a.plan}} --comm-report --json
show_trace|dtplan show {MLP} --plan {{a.plan}} --trace
show_counters|dtplan show {MLP} --mesh x:2 --rules batch:x --counters
show_program|dtplan show {MLP} --plan {{a.plan}} --stage program
show_schedule|dtplan show {MLP} --plan {{a.plan}} --machine {A100} --stage schedule
show_memory|dtplan show {MLP} --plan {{a.plan}} --stage memory
show_rules|dtplan show {MLP} --mesh x:2 --rules batch:x --stage plan
explain|dtplan explain {MLP} {{a.plan}} w2 --machine {A100}
explain_json|dtplan explain {MLP} {{a.plan}} h.mm --machine {A100} --exact --json
report|dtplan report {MLP} {{a.plan}} --machine {A100} --against {{free.plan}} -o {{out/page}}
report_svg|dtplan report {MLP} {{a.plan}} --machine {A100} --svg pareto --points 2
diff|dtplan diff {MLP} {{free.plan}} {{a.plan}} --machine {A100}
diff_json|dtplan diff {MLP} {{free.plan}} {{a.plan}} --json
pareto|dtplan pareto {MLP} --mesh x:2;y:2 --machine {A100} --points 3
sensitivity|dtplan sensitivity {MLP} {{a.plan}} --machine {A100} --steps 1 --only flops
import|dtplan import tests/interop/hf/mixtral -o {{out/model.json}}
import_json|dtplan import tests/interop/hf/gpt_neox_fast -o {{out/model.json}} --no-train --allow-approximate --json
export|dtplan export {MLP} {{a.plan}} --as placements -o {{out/placements}}
export_hf|dtplan export {MLP} {{a.plan}} --as hf
export_torch|dtplan export {MLP} {{a.plan}} --as torch
export_jax|dtplan export {MLP} {{a.plan}} --as jax
export_rules|dtplan export {MLP} {{a.plan}} --as rules
solve|dtplan solve models/selection/example.json -o {{out/solution}}
solve_gz|dtplan solve {{example.gz}} --json
solve_plain|dtplan solve models/selection/example.json --without consistency,merge,dominance,eliminate,rows,cap
solve_large|dtplan solve {{random.json}} --solver large --iterations 20 --threads 1
solve_exact|dtplan solve {{random.json}} --solver exact --iterations 20 --threads 1
solve_write_lp|dtplan solve models/selection/example.json --write lp -o {{out/lp}}
solve_write|dtplan solve models/selection/example.json --write iopddl
redistribute|dtplan redistribute --mesh a:2,b:2 --shape 8,8,8 --from S0,S1 --to S1,R --run --json
redistribute_torch|dtplan redistribute --mesh a:2,b:2 --shape 8,8 --from S0,S1 --to S1,S0 --compat torch --min-cost
viz|dtplan viz {MLP} --mesh x:2 --rules batch:x --tensor w1
viz_svg|dtplan viz {MLP} --plan {{a.plan}} --tensor w1 --svg {{out/svg}}
viz_json|dtplan viz --mesh x:2;y:2 --shape 4,4 --layout S0,S1 --json
verify_rules|dtplan verify-rules relu
run|dtrun run {MLP} --plan {{two.plan}} --machine {MACHINE} --comm sim --steps 2 --feed images=models/data/digits_images.npy --feed labels=models/data/digits_labels.npy --json -o {{out/report}}
run_quiet|dtrun run {MLP} --mesh x:2 --rules batch:x --comm sim --steps 1 --quiet --fetch w1={{out/w1.npy}} --save {{out/w.safetensors}}
run_save|dtrun run {GPT} --mesh x:2 --rules batch:x --comm sim --steps 1 --save {{folder}}
run_load|dtrun run {GPT} --mesh x:2 --rules vocab:x --comm sim --steps 1 --load {{saved}} --quiet
run_hf|dtrun run {GPT} --mesh x:2 --rules vocab:x --comm sim --steps 0 --load {{hf}} --quiet --save-hf {{folder}}
run_hf_files|dtrun run {GPT} --comm sim --steps 0 --load {{hf}} --quiet --save-hf {{folder}} --save-hf-size 500K
run_profile|dtrun run {MLP} --mesh x:2 --rules hidden:x --comm sim --steps 1 --profile
run_trace|dtrun run {MLP} --mesh x:2 --rules hidden:x --machine {MACHINE} --comm sim --steps 1 --trace /dev/null
run_self|dtrun run {MLP} --comm self --steps 1 --backend ref
run_resume|dtrun run {GPT} --mesh x:2 --rules batch:x --comm sim --steps 1 --save {{folder}} --resume --log-json /dev/null
run_eval|dtrun run {MLP} --mesh x:2 --rules batch:x --comm sim --steps 1 --eval-every 1 --eval-feed images=models/data/digits_images.npy --eval-feed labels=models/data/digits_labels.npy
eval|dtrun eval {MLP} --plan {{two.plan}} --comm sim --feed images=models/data/digits_images.npy --feed labels=models/data/digits_labels.npy --json -o {{out/evaluation}}
sample|dtrun sample {GPT} --mesh x:2 --rules batch:x --comm sim --load {{saved}} --prompt ab --tokens 2
verify|dtrun verify {MLP} --plan {{two.plan}} --comm sim --steps 1
verify_json|dtrun verify {MLP} --plan {{a.plan}} --comm sim --steps 1 --json
""".strip().splitlines()]

# What differs from run to run: times, and what follows from them.
TIMES = [(re.compile(pattern), text) for pattern, text in (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "T"), (r"(tokens/s|per device)( +[-\d.]+)+", r"\1 T"),
    (r"\d+(\.\d+)?(e[-+]\d+)?( ?)(s|ms|us|steps/s)\b", "T"), (r'("[a-z_]*(_s|_Bps|seconds)": )[^,\n]*', r"\1T"))]
TIMED_FILES = {"report", "evaluation"}


def masked(text):
    for pattern, replacement in TIMES:
        text = pattern.sub(replacement, text)
    return re.sub(r"[ \d.]*\d+\.\d+[ \d.x%e+-]*", " T ", text)


def read(path):
    if os.path.isdir(path):
        return {name: read(os.path.join(path, name)) for name in sorted(os.listdir(path))}
    with open(path, "rb") as f:
        return f.read()


class Sweep:
    def __init__(self, options, folder):
        self.bin, self.library, self.folder, self.options = options.bin, options.library, folder, options
        self.inputs = {name: os.path.join(folder, name) for name in
                       ("a.plan", "free.plan", "two.plan", "example.gz", "random.json", "saved", "hf")}
        self.env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        self.prepare()

    def run(self, words):
        subprocess.run([os.path.join(self.bin, words[0])] + words[1:], check=True, stdout=subprocess.DEVNULL)

    def prepare(self):
        i = self.inputs
        tensor = f"dtplan plan {MLP} --mesh x:2;y:2 --machine {A100} --mode tensor".split()
        self.run(tensor + ["--memory", "112K", "-o", i["a.plan"]])
        self.run(tensor + ["-o", i["free.plan"]])
        self.run(f"dtplan plan {MLP} --mesh x:2 --machine {MACHINE} -o".split() + [i["two.plan"]])
        self.run(f"dtrun run {GPT} --comm self --steps 1 --quiet --save".split() + [i["saved"], "--save-hf", i["hf"]])
        with open(i["example.gz"], "wb") as f:
            subprocess.run(["gzip", "-c", "models/selection/example.json"], check=True, stdout=f)
        draw = random.Random(5)
        n, k = 30, 4
        pairs = [[a, b] for a in range(n) for b in range(a + 1, min(n, a + 4))]
        problem = {"nodes": {"intervals": [[j, j + 3] for j in range(n)],
                             "costs": [[draw.randrange(100) for _ in range(k)] for _ in range(n)],
                             "usages": [[draw.randrange(1, 20) for _ in range(k)] for _ in range(n)]},
                   "edges": {"nodes": pairs, "costs": [[draw.randrange(60) for _ in range(k * k)] for _ in pairs]},
                   "usage_limit": 60}
        with open(i["random.json"], "w", encoding="utf-8") as f:
            json.dump({"problem": problem}, f)

    def attempt(self, words, fail_at, burst=False):
        """One run in a folder of its own: code, stdout, stderr, files, calls, frames."""
        with tempfile.TemporaryDirectory(dir=self.folder) as here:
            out = os.path.join(here, "out")
            os.mkdir(out)
            command, outputs = [], set()
            for w in words:
                for found in re.findall(r"\{([^},]*)\}", w):
                    if found == "folder":
                        w = w.replace("{folder}", os.path.join(out, "folder"))
                    elif found.startswith("out/"):
                        outputs.add(found[4:])
                        w = w.replace("{" + found + "}", os.path.join(here, found))
                    elif found in self.inputs:
                        w = w.replace("{" + found + "}", self.inputs[found])
                command.append(w)
            for name in outputs:
                with open(os.path.join(out, name), "w", encoding="utf-8") as f:
                    f.write("before\n")
            report = os.path.join(here, "calls")
            env = dict(self.env, LD_PRELOAD=self.library, DTP_ALLOC_FAIL=str(fail_at), DTP_ALLOC_REPORT=report,
                       DTP_ALLOC_ALL="1" if burst else "0")
            command[0] = os.path.join(self.bin, command[0])
            try:
                p = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                                   timeout=self.options.timeout, check=False)
                code, stdout, stderr = p.returncode, p.stdout, p.stderr
            except subprocess.TimeoutExpired:
                code, stdout, stderr = "timeout", b"", b""
            calls, frames = -1, []
            if os.path.exists(report):
                with open(report, encoding="utf-8") as f:
                    lines = f.read().split("\n")
                calls, frames = int(lines[0].split()[1]), [x.split()[1] for x in lines[1:] if x]
            place = lambda text: text.decode(errors="replace").replace(here, "HERE")
            return {"code": code, "out": place(stdout), "err": place(stderr), "files": read(out), "calls": calls,
                    "frames": frames}

    def complaint(self, words, base, got):
        """What is wrong with the end of a run; None: nothing."""
        same = lambda a, b: a == b or masked(a) == masked(b)
        if got["code"] == "timeout" or (isinstance(got["code"], int) and got["code"] < 0):
            return f"ended by {got['code']}"
        if got["code"] == base["code"] and same(got["out"], base["out"]) and same(got["err"], base["err"]):
            if got["files"].keys() != base["files"].keys():
                return f"files {sorted(got['files'])} instead of {sorted(base['files'])}"
            for name, text in got["files"].items():
                if text != base["files"][name] and not (name in TIMED_FILES and same(
                        text.decode(), base["files"][name].decode())):
                    return f"exit {got['code']} with another {name}"
            return None
        if got["code"] != 1:
            return f"exit {got['code']}"
        more = got["err"].splitlines()
        for line in base["err"].splitlines():
            if line in more:
                more.remove(line)
        if words[0] == "dtrun":  # progress lines
            more = [line for line in more if "memory" in line or line.startswith("dtrun")]
        if len(more) != 1 or "memory" not in more[0]:
            return "no line about memory" if len(more) == 1 else f"{len(more)} lines"
        if got["out"] and not (words[0] == "dtrun" and masked(base["out"]).startswith(masked(got["out"]))):
            return "something printed"
        for name, text in got["files"].items():
            # dtrun: what was fetched and saved before is whole; a folder counts by its index
            whole = words[0] == "dtrun" and text == base["files"].get(name)
            whole = whole or isinstance(text, dict) and not any(
                part.endswith(".json") or part == "model.safetensors" for part in text)
            if text != b"before\n" and not whole:
                return f"{name} written"
        return None

    def where(self, frames, program):
        """Names of the frames of a call, from inside out."""
        if not frames:
            return ""
        p = subprocess.run(["addr2line", "-f", "-s", "-e", os.path.join(self.bin, program)] + frames, check=False,
                           capture_output=True, encoding="utf-8")
        lines = p.stdout.split("\n")
        names = [f"{a} ({b})" for a, b in zip(lines[0::2], lines[1::2]) if not a.startswith("?")]
        return " < ".join(names[:9])

    def case(self, name, words):
        o = self.options
        base = self.attempt(words, 0)
        if base["calls"] < 0 or not isinstance(base["code"], int):
            return f"{name}: the run without failure: {base['code']} {base['err']}", 0, 1
        total = base["calls"]
        draw = random.Random(f"{o.seed} {name}")
        tried = range(1, total + 1)
        if not o.all and total > o.sample:
            # the calls of a command come in phases: one of each stretch
            edges = [1 + total * i // o.sample for i in range(o.sample + 1)]
            tried = [draw.randrange(a, b) for a, b in zip(edges, edges[1:])]
        seen, bad = {}, 0
        with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
            runs = {n: pool.submit(self.attempt, words, n, o.burst) for n in tried}
            for n, run in runs.items():
                got = run.result()
                what = self.complaint(words, base, got)
                if what is not None:
                    bad += 1
                    # runs that failed alike are shown once
                    key = (what, got["err"] or tuple(got["frames"][:6]))
                    seen.setdefault(key, []).append((n, got))
        lines = [f"{name}: exit {base['code']}, {total} allocations, {len(tried)} failed, {bad} wrong"]
        for (what, _), runs in seen.items():
            n, got = runs[0]
            lines.append(f"  {what}: allocation {n} and {len(runs) - 1} more: {got['err'].strip()[:300]}")
            lines.append(f"    {self.where(got['frames'], words[0])}")
        return "\n".join(lines), len(tried), bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("library")
    parser.add_argument("--sample", type=int, default=12)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--burst", action="store_true")
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=60)
    options = parser.parse_args()
    if options.sanitized:
        print("skipped: sanitizers have allocators of their own")
        return 77
    print(f"seed {options.seed}")
    folder = tempfile.mkdtemp()
    total = failed = 0
    try:
        sweep = Sweep(options, folder)
        for name, command in quarter.of(c for c in CASES if re.fullmatch(options.only or ".*", c[0])):
            text, n, bad = sweep.case(name, command.split())
            total, failed = total + n, failed + bad
            print(text, flush=True)
    finally:
        shutil.rmtree(folder)
    print(f"{total} failing allocations, {failed} ended wrongly")
    return 1 if failed else 0


sys.exit(main())
