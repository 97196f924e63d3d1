#!/usr/bin/env python3
"""What can be measured on a card alone: conformance, sanitizers, machine files, verification against the CPU, predicted
against measured step times, speed against PyTorch, training in bf16.

Every part writes BUILD/gpu/PART.json with the commit that it ran at; parts that have run at this commit are left out, so
an interrupted run goes on where it was. At the end docs/results/gpu.md is written from what there is.
Usage: gpu.py BUILD_DIR TESTS_DIR [PART...]     PART: device, ops, sanitizers, bench, verify, predict, torch, training"""
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

PART_S = 600
MODELS = [  # model, options: 10 combinations of model and batch
    ("gpt2_small", "--dim batch=4"), ("gpt2_small", "--dim batch=8"), ("gpt2_small", "--dim batch=16"),
    ("gpt2_small", "--dim batch=8 --dim length=512"), ("bert_large", "--dim batch=4"), ("bert_large", "--dim batch=8"),
    ("vit_b16", "--dim batch=16"), ("vit_b16", "--dim batch=32"), ("mtf_lm", "--dim batch=32"),
    ("gpt_bytes", "--dim batch=64"),
]
LAYOUTS = [("one device", ""), ("data parallel", "--mesh x:2 --rules batch:x"), ("tensor parallel", "--mesh x:2 --rules '{split}'")]
SPLITS = {"gpt2_small": "heads:x;d_ff:x", "bert_large": "heads:x;d_ff:x", "vit_b16": "heads:x;d_ff:x", "mtf_lm": "heads:x;d_ff:x",
          "gpt_bytes": "heads:x;d_ff:x"}
VERIFY = [("mlp_digits", ""), ("gpt_bytes", ""), ("gpt2_small", "--dim batch=2 --dim length=256"),
          ("llama3_8b", "--dim batch=4 --dim length=256 --dim layers=2 --dim kv_heads=4 --dim d_ff=1024 --dim vocab=8192"),
          ("mixtral_8x7b", "--dim batch=4 --dim length=256 --dim layers=2 --dim kv_heads=4 --dim d_ff=1024 --dim vocab=8192")]


class Card:
    def __init__(self, build, tests):
        self.bin, self.tests = os.path.join(build, "bin"), tests
        self.out = os.path.join(build, "gpu")
        os.makedirs(self.out, exist_ok=True)
        self.commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
        self.machine = {n: os.path.join(self.out, f"machine_{n}.json") for n in (1, 2)}
        self.deadline = 0.0

    def run(self, command, check=True):
        """(exit code, output) of a shell command within the time that is left to the part."""
        left = self.deadline - time.time()
        if left <= 0:
            raise TimeoutError(command)
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=left)
        if check and done.returncode != 0:
            raise RuntimeError(f"{command}: {(done.stderr or done.stdout).strip()[-400:]}")
        return done.returncode, done.stdout + done.stderr

    def json_of(self, command):
        path = os.path.join(self.out, "run.json")
        self.run(f"{command} -o {path}")
        with open(path, encoding="utf-8") as f:
            return json.load(f)

    # ---- parts ----

    def device(self):
        _, text = self.run("nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader")
        return {"card": text.strip()}

    def ops(self):
        rows = {}
        for test in sorted(f for f in os.listdir(self.tests) if f.startswith("test_cuda_") and f.endswith("_device")):
            code, text = self.run(os.path.join(self.tests, test), check=False)
            rows[test] = {"passed": code == 0, "last": text.strip().splitlines()[-1:] if code else []}
        return rows

    def sanitizers(self):
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not os.path.exists(tool):
            return {"left out": "there is no compute-sanitizer"}
        rows = {}
        for check in ("memcheck", "racecheck"):
            code, text = self.run(f"{tool} --tool {check} --error-exitcode 9 {self.tests}/test_cuda_ops_device", check=False)
            rows[check] = {"clean": code == 0, "summary": re.findall(r"(?:ERROR|RACECHECK) SUMMARY.*", text)[-1:]}
        return rows

    def bench(self):
        for ranks, path in self.machine.items():
            self.run(f"{self.bin}/dtrun bench --backend cuda --comm {'sim' if ranks > 1 else 'self'} --ranks {ranks} "
                     f"--quick --quiet --output {path}")
        with open(self.machine[1], encoding="utf-8") as f:
            m = json.load(f)
        return {"flops": m["device"]["flops"], "mem_bw_Bps": m["device"]["mem_bw_Bps"], "launch_s": m["device"]["launch_s"],
                "device": m["provenance"].get("device")}

    def verify(self):
        rows = {}
        for model, dims in VERIFY:
            for precision, bound in (("f32", 1e-4), ("bf16", 2e-2)):
                for mesh in ("", "--mesh x:2 --rules batch:x"):
                    command = (f"{self.bin}/dtrun verify models/{model}.json {dims} {mesh} --backend cuda --reference cpu "
                               f"--comm {'sim' if mesh else 'self'} --precision {precision} --tolerance {bound} --json")
                    code, text = self.run(command, check=False)
                    found = re.search(r'"max_rel_err":\s*([0-9.e+-]+)', text)
                    rows[" ".join(command.split()[2:])] = {"passed": code == 0, "max_rel_err": found and float(found.group(1))}
        return rows

    def predict(self):
        rows = []
        for model, dims in MODELS:
            for name, layout in LAYOUTS:
                ranks = 2 if layout else 1
                layout = layout.replace("{split}", SPLITS[model])
                r = self.json_of(f"{self.bin}/dtrun run models/{model}.json {dims} {layout} --backend cuda --precision bf16 "
                                 f"--comm {'sim' if layout else 'self'} --machine {self.machine[ranks]} --steps 12 --quiet")
                rows.append({"model": f"{model} {dims}", "layout": name, "measured": r["step_time_s"]["median"],
                             "predicted": r["predicted"]["step_time_s"],
                             "peak exact": r["measured"]["peak_bytes"] == r["predicted"]["peak_bytes"]})
        error = statistics.mean(abs(r["predicted"] / r["measured"] - 1) for r in rows)
        return {"rows": rows, "mean_error": error, "spearman": spearman(rows)}

    def torch(self):
        rows = {}
        for outputs in ("all", "none"):
            r = self.json_of(f"{self.bin}/dtrun run models/gpt2_small.json --dim batch=32 --dim length=1024 --backend cuda "
                             f"--comm self --precision bf16 --outputs {outputs} --steps 20 --quiet")
            rows[outputs] = {"tokens_per_s": 32 * 1024 / r["step_time_s"]["median"], "peak_bytes": r["measured"]["peak_bytes"]}
        ours = rows["none"]["tokens_per_s"]  # as in PyTorch, where the loss alone is left of a step
        _, text = self.run(f"{sys.executable} tests/gpu/torch_gpt2.py")
        theirs = json.loads(text.strip().splitlines()[-1])
        with open(self.machine[1], encoding="utf-8") as f:
            peak = json.load(f)["device"]["flops"].get("bf16", 0)
        flops = 6 * 124e6 + 12 * 12 * 768 * 1024
        return {"tokens_per_s": ours, "outputs": rows, "torch": theirs, "ratio": ours / theirs["tokens_per_s"],
                "share of measured matmul peak": ours * flops / peak if peak else None}

    def training(self):
        rows = {}
        for precision in ("f32", "bf16"):
            r = self.json_of(f"{self.bin}/dtrun run models/gpt2_small.json --dim batch=8 --dim length=512 --backend cuda --comm self "
                             f"--feed text=models/data/text.txt --outputs none --precision {precision} --steps 200 --quiet")
            rows[precision] = r["loss"][-1]
        return {**rows, "difference": rows["bf16"] / rows["f32"] - 1}


def spearman(rows):
    def ranks(key):
        order = sorted(range(len(rows)), key=lambda i: rows[i][key])
        return {i: k for k, i in enumerate(order)}
    a, b, n = ranks("measured"), ranks("predicted"), len(rows)
    return 1 - 6 * sum((a[i] - b[i]) ** 2 for i in range(n)) / (n * (n * n - 1))


def write_report(card, parts):
    lines = ["# On a card", "", f"`./dev gpu`, commit {card.commit}.", ""]
    for name in parts:
        path = os.path.join(card.out, f"{name}.json")
        lines += [f"## {name}", ""]
        if not os.path.exists(path):
            lines += ["Not run.", ""]
            continue
        with open(path, encoding="utf-8") as f:
            part = json.load(f)
        lines += ["```json", json.dumps(part["result"], indent=1), "```", ""]
    with open("docs/results/gpu.md", "w", encoding="utf-8") as f:
        f.write("\n".join(lines))


def main():
    parts = ["device", "ops", "sanitizers", "bench", "verify", "predict", "torch", "training"]
    card = Card(sys.argv[1], sys.argv[2])
    failed = 0
    for name in sys.argv[3:] or parts:
        path = os.path.join(card.out, f"{name}.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                if json.load(f)["commit"] == card.commit:
                    print(f"{name}: has run at this commit")
                    continue
        card.deadline = time.time() + PART_S
        try:
            result = getattr(card, name)()
        except (RuntimeError, TimeoutError, subprocess.TimeoutExpired, OSError, KeyError, ValueError) as e:
            print(f"{name}: {e}")
            failed += 1
            continue
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"commit": card.commit, "result": result}, f, indent=1)
        print(f"{name}: {json.dumps(result)[:400]}")
    write_report(card, parts)
    sys.exit(1 if failed else 0)


main()
