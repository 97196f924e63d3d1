#!/usr/bin/env python3
"""What can be measured on a card alone: conformance, sanitizers, machine files, verification against the CPU, predicted
against measured step times, speed against PyTorch, training in bf16.

Every part writes OUT/PART.json with the commit that it ran at; parts that have run at this commit are left out, and so are
the runs of a part that was interrupted or ran out of time, so the script goes on where it was. At the end the report is
written from what there is. With --emulated the same script runs on the emulated device of the tests, with small models:
that shows that the script works, and nothing about a card.
Usage: gpu.py [--emulated] [--fewest] [--fresh] [--out DIR] [--part-s S] BUILD_DIR TESTS_DIR [PART...]
PART: device, ops, sanitizers, bench, verify, predict, torch, training"""
import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

PARTS = ["device", "ops", "sanitizers", "bench", "verify", "predict", "torch", "training"]
LAYOUTS = [("one device", ""), ("data parallel", "--mesh x:2 --rules batch:x"), ("tensor parallel", "--mesh x:2 --rules '{split}'")]
SPLITS = {"mlp_digits": "hidden:x"}  # else heads and d_ff
LLAMA = "--dim batch=4 --dim length=256 --dim layers=2 --dim kv_heads=4 --dim d_ff=1024 --dim vocab=8192"
MLP_TINY = "--dim batch=16 --dim pixels=16 --dim hidden=24 --dim classes=12"
GPT_TINY = "--dim batch=4 --dim length=8 --dim vocab=32 --dim layers=2 --dim heads=4 --dim d_head=4"
# Models with options; predict has 10 combinations of model and batch on a card.
CARD = {
    "predict": [
        ("gpt2_small", "--dim batch=4"), ("gpt2_small", "--dim batch=8"), ("gpt2_small", "--dim batch=16"),
        ("gpt2_small", "--dim batch=8 --dim length=512"), ("bert_large", "--dim batch=4"), ("bert_large", "--dim batch=8"),
        ("vit_b16", "--dim batch=16"), ("vit_b16", "--dim batch=32"), ("mtf_lm", "--dim batch=32"),
        ("gpt_bytes", "--dim batch=64"),
    ],
    "verify": [("mlp_digits", ""), ("gpt_bytes", ""), ("gpt2_small", "--dim batch=2 --dim length=256"), ("llama3_8b", LLAMA),
               ("mixtral_8x7b", LLAMA)],
    "precisions": [("f32", 1e-4), ("bf16", 2e-2)],
    "tests": lambda name: name.startswith("test_cuda_") and name.endswith("_device"),
    "bench": "--quick",
    "training": ("gpt2_small", "--dim batch=8 --dim length=512", 200),
}
EMULATED = {
    "predict": [("mlp_digits", MLP_TINY), ("gpt_bytes", GPT_TINY), ("gpt_bytes", GPT_TINY.replace("length=8", "length=16"))],
    "verify": [("mlp_digits", MLP_TINY), ("gpt_bytes", GPT_TINY)],
    "precisions": CARD["precisions"],
    "tests": lambda name: name in ("test_cuda_elements", "test_cuda_ops", "test_cuda_products", "test_cuda_rows"),
    "bench": "--tiny",
    "training": ("gpt_bytes", "--dim batch=4 --dim length=16 --dim layers=1 --dim heads=4 --dim d_head=8", 30),
}
FEWEST = {**EMULATED, "predict": EMULATED["predict"][:2], "verify": EMULATED["verify"][:1],
          "tests": lambda name: name == "test_cuda_products",
          "training": (*EMULATED["training"][:2], 6)}


def commit_of_tree():
    """The commit, with a hash of what differs from it; "" outside of a repository: nothing is kept there."""
    def git(*words):
        return subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    commit, changes = git("rev-parse", "--short", "HEAD"), git("diff", "HEAD", "--", ".", ":(exclude)docs/results/gpu.md").stdout
    if commit.returncode != 0:
        return ""
    return commit.stdout.strip() + ("+" + hashlib.sha1(changes.encode()).hexdigest()[:7] if changes else "")


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def write_json(path, value):
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)
    os.replace(path + ".new", path)


class Card:
    def __init__(self, args):
        self.emulated, self.tests = args.emulated, args.tests_dir
        self.what = FEWEST if args.fewest else EMULATED if args.emulated else CARD
        self.dtrun = os.path.join(args.tests_dir, "dtrun_emulated") if args.emulated else os.path.join(args.build_dir, "bin", "dtrun")
        self.out = args.out or os.path.join(args.build_dir, "gpu-emulated" if args.emulated else "gpu")
        os.makedirs(self.out, exist_ok=True)
        self.commit = commit_of_tree()
        self.machine = {n: os.path.join(self.out, f"machine_{n}.json") for n in (1, 2)}
        self.part, self.deadline, self.failures = "", 0.0, {}
        if args.emulated:
            os.environ.setdefault("CUDA_EMU_DEVICES", "1")

    def path(self, part, ending=".json"):
        return os.path.join(self.out, part + ending)

    def has_run(self, part, ending=".json"):
        path = self.path(part, ending)
        return self.commit != "" and os.path.exists(path) and read_json(path)["commit"] == self.commit

    def run(self, command, check=True):
        """(exit code, output) of a shell command within the time that is left to the part."""
        left = self.deadline - time.time()
        if left <= 0:
            raise TimeoutError("the time of the part is over; another call goes on here")
        with subprocess.Popen(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              start_new_session=True) as p:
            try:
                text, _ = p.communicate(timeout=left)
            except BaseException:
                os.killpg(p.pid, signal.SIGKILL)
                raise
        if check and p.returncode != 0:
            raise RuntimeError(f"{command}: {text.strip()[-400:]}")
        return p.returncode, text

    def each(self, jobs):
        """{key: result} of jobs, (key, function) each; those that an earlier call ended at this commit are not run again."""
        done = read_json(self.path(self.part, ".partial"))["result"] if self.has_run(self.part, ".partial") else {}
        for key, job in jobs:
            if key not in done:
                done[key] = job()
                write_json(self.path(self.part, ".partial"), {"commit": self.commit, "result": done})
        return done

    def json_of(self, command):
        path = self.path("run")
        self.run(f"{command} -o {path}")
        return read_json(path)

    def comm(self, ranks):
        return "--comm sim" if ranks > 1 else "--comm self"

    # ---- parts ----

    def device(self):
        if self.emulated:
            return {"card": "none: the emulated device"}
        _, text = self.run("nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader")
        return {"card": text.strip()}

    def ops(self):
        def test(name):
            code, text = self.run(os.path.join(self.tests, name), check=False)
            return {"passed": code == 0, "last": text.strip().splitlines()[-1:] if code else []}
        names = sorted(f for f in os.listdir(self.tests) if self.what["tests"](f))
        if not names:
            raise RuntimeError(f"{self.tests} has no tests of the device: the build is without CUDA")
        return self.each((name, lambda name=name: test(name)) for name in names)

    def sanitizers(self):
        if self.emulated:
            return {"left out": "they look at code of a card; the emulated device checks memory and order by itself"}
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not os.path.exists(tool):
            return {"left out": "there is no compute-sanitizer"}

        def check(name):
            code, text = self.run(f"{tool} --tool {name} --error-exitcode 9 {self.tests}/test_cuda_ops_device", check=False)
            return {"clean": code == 0, "summary": re.findall(r"(?:ERROR|RACECHECK) SUMMARY.*", text)[-1:]}
        return self.each((name, lambda name=name: check(name)) for name in ("memcheck", "racecheck"))

    def bench(self):
        for ranks, path in self.machine.items():
            self.run(f"{self.dtrun} bench --backend cuda {self.comm(ranks)} --ranks {ranks} {self.what['bench']} --quiet --output {path}")
        m, two = read_json(self.machine[1]), read_json(self.machine[2])
        keys = ("flops", "mem_bw_Bps", "launch_s", "launch_graph_s")
        return {**{key: m["device"][key] for key in keys}, "device": m["provenance"]["device"],
                "two ranks": {**two["levels"][0], "overlap_slowdown": two["device"]["overlap_slowdown"]}}

    def verify(self):
        def check(command):
            code, text = self.run(command, check=False)
            found = re.search(r'"max_rel_err":\s*([0-9.e+-]+)', text)
            return {"passed": code == 0, "max_rel_err": found and float(found.group(1))}
        commands = [f"{self.dtrun} verify models/{model}.json {dims} {mesh} --backend cuda --reference cpu "
                    f"{self.comm(2 if mesh else 1)} --precision {precision} --tolerance {bound} --json"
                    for model, dims in self.what["verify"] for precision, bound in self.what["precisions"]
                    for mesh in ("", "--mesh x:2 --rules batch:x")]
        return self.each((" ".join(c.split()[2:]), lambda c=c: check(c)) for c in commands)

    def predict(self):
        def row(model, dims, name, layout):
            ranks = 2 if layout else 1
            layout = layout.replace("{split}", SPLITS.get(model, "heads:x;d_ff:x"))
            r = self.json_of(f"{self.dtrun} run models/{model}.json {dims} {layout} --backend cuda --precision bf16 "
                             f"{self.comm(ranks)} --machine {self.machine[ranks]} --steps 12 --quiet")
            return {"model": f"{model} {dims}", "layout": name, "measured": r["step_time_s"]["median"],
                    "predicted": r["predicted"]["step_time_s"],
                    "peak exact": r["measured"]["peak_bytes"] == r["predicted"]["peak_bytes"]}
        rows = list(self.each((f"{m} {dims} {name}", lambda m=m, d=dims, n=name, l=layout: row(m, d, n, l))
                              for m, dims in self.what["predict"] for name, layout in LAYOUTS).values())
        error = statistics.mean(abs(r["predicted"] / r["measured"] - 1) for r in rows)
        return {"rows": rows, "mean_error": error, "spearman": spearman(rows)}

    def torch(self):
        if self.emulated:
            return {"left out": "PyTorch does not run on the emulated device"}
        rows = {}
        for outputs in ("all", "none"):
            r = self.json_of(f"{self.dtrun} run models/gpt2_small.json --dim batch=32 --dim length=1024 --backend cuda "
                             f"--comm self --precision bf16 --outputs {outputs} --steps 20 --quiet")
            rows[outputs] = {"tokens_per_s": 32 * 1024 / r["step_time_s"]["median"], "peak_bytes": r["measured"]["peak_bytes"]}
        ours = rows["none"]["tokens_per_s"]  # as in PyTorch, where the loss alone is left of a step
        _, text = self.run(f"{sys.executable} tests/gpu/torch_gpt2.py")
        theirs = json.loads(text.strip().splitlines()[-1])
        peak = read_json(self.machine[1])["device"]["flops"].get("bf16", 0)
        flops = 6 * 124e6 + 12 * 12 * 768 * 1024
        return {"tokens_per_s": ours, "outputs": rows, "torch": theirs, "ratio": ours / theirs["tokens_per_s"],
                "share of measured matmul peak": ours * flops / peak if peak else None}

    def training(self):
        model, dims, steps = self.what["training"]

        def loss(precision):
            return self.json_of(f"{self.dtrun} run models/{model}.json {dims} --backend cuda --comm self --feed "
                                f"text=models/data/text.txt --outputs none --precision {precision} --steps {steps} --quiet")["loss"][-1]
        rows = self.each((precision, lambda precision=precision: loss(precision)) for precision in ("f32", "bf16"))
        return {**rows, "difference": rows["bf16"] / rows["f32"] - 1}


def shortcomings(name, result):
    """What a part found to be wrong, though it ran to its end."""
    if name in ("ops", "verify", "sanitizers"):
        return [key for key, row in result.items() if isinstance(row, dict) and not row.get("passed", row.get("clean"))]
    if name == "predict":
        return [f"{r['model']} {r['layout']}: another peak" for r in result["rows"] if not r["peak exact"]]
    return []


def spearman(rows):
    def ranks(key):
        order = sorted(range(len(rows)), key=lambda i: rows[i][key])
        return {i: k for k, i in enumerate(order)}
    a, b, n = ranks("measured"), ranks("predicted"), len(rows)
    return 1 - 6 * sum((a[i] - b[i]) ** 2 for i in range(n)) / (n * (n * n - 1))


def write_report(card, path):
    title = "# On the emulated device: times and rates are those of its clock" if card.emulated else "# On a card"
    command = "./dev gpu --emulated" if card.emulated else "./dev gpu"
    lines = [title, "", f"`{command}`, commit {card.commit}.", ""]
    for name in PARTS:
        lines += [f"## {name}", ""]
        if name in card.failures:
            lines += [f"Failed: {card.failures[name]}", ""]
        if os.path.exists(card.path(name)):
            part = read_json(card.path(name))
            lines += [f"Of commit {part['commit']}.", ""] if part["commit"] != card.commit else []
            lines += ["```json", json.dumps(part["result"], indent=1), "```", ""]
        elif name not in card.failures:
            lines += ["Not run.", ""]
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines))


def run_part(card, name, part_s):
    card.part, card.deadline = name, time.time() + part_s
    try:
        result = getattr(card, name)()
    except (RuntimeError, TimeoutError, subprocess.TimeoutExpired, OSError, KeyError, ValueError) as e:
        card.failures[name] = f"{type(e).__name__}: {e}"
        print(f"{name}: {card.failures[name]}")
        return
    write_json(card.path(name), {"commit": card.commit, "result": result})
    if os.path.exists(card.path(name, ".partial")):
        os.remove(card.path(name, ".partial"))
    print(f"{name}: {json.dumps(result)[:400]}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--emulated", action="store_true", help="on the emulated device of the tests, without a card")
    p.add_argument("--fewest", action="store_true", help="with --emulated: the least that runs every part")
    p.add_argument("--fresh", action="store_true", help="what has run at this commit runs again")
    p.add_argument("--out", help="folder of the results")
    p.add_argument("--part-s", type=float, default=600, help="seconds that a part may take")
    p.add_argument("build_dir")
    p.add_argument("tests_dir")
    p.add_argument("part", nargs="*", help="of " + ", ".join(PARTS))
    args = p.parse_args()
    if set(args.part) - set(PARTS) or (args.fewest and not args.emulated):
        p.error("the parts are " + ", ".join(PARTS) + "; --fewest goes with --emulated")
    card = Card(args)
    for name in args.part or PARTS:
        if not args.fresh and card.has_run(name):
            print(f"{name}: has run at this commit")
        else:
            for ending in (".json", ".partial") if args.fresh else ():
                if os.path.exists(card.path(name, ending)):
                    os.remove(card.path(name, ending))
            run_part(card, name, args.part_s)
        if name not in card.failures and shortcomings(name, read_json(card.path(name))["result"]):
            card.failures[name] = "; ".join(shortcomings(name, read_json(card.path(name))["result"]))[:400]
            print(f"{name}: failed: {card.failures[name]}")
    write_report(card, card.path("report", ".md") if card.emulated else "docs/results/gpu.md")
    sys.exit(1 if card.failures else 0)


main()
