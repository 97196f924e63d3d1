#!/usr/bin/env python3
"""What a card alone can show, the most valuable first: peaks, a verified model, a training step with its profile, plans
against the CPU, every op, products by algorithm, PyTorch's side of the same step, counters, sanitizers, a machine file.

Every step has a time limit of its own, and the next one runs whatever became of it. OUT/report.json and OUT/report.md are
written after every row of a step. OUT has at most eight files and no folder: the reports, machine files, and files.tar.gz
with all others. Steps come in two calls of at most ten minutes; steps that have run to their end at this commit, as
OUT/report.json or that of --done says, are left out. A run of dtrun that fails is tried
again without fused epilogues, without graphs and with all logits, so that what follows can go on; the report says which
way it took. DTP_GPU_OPTIONS is added to every command of dtrun.
Usage: gpu.py [--emulated] [--fresh] [--total-s S] [--done REPORT] [--write FILE] --bin DIR --out DIR [1|2|STEP...]"""
import argparse
import concurrent.futures
import ctypes
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA = "--dim batch=4 --dim length=256 --dim layers=2 --dim kv_heads=4 --dim d_ff=1024 --dim vocab=8192"
MLP_TINY = "--dim batch=16 --dim pixels=16 --dim hidden=24 --dim classes=12"
GPT_TINY = "--dim batch=4 --dim length=8 --dim vocab=32 --dim layers=2 --dim heads=4 --dim d_head=4"
CARD = {
    "first": ("mlp_digits", ""),
    "train": ("gpt2_small", "--dim batch=32 --dim length=1024", 32 * 1024),
    "verify": [("gpt_bytes", ""), ("gpt2_small", "--dim batch=2 --dim length=256"), ("llama3_8b", LLAMA), ("mixtral_8x7b", LLAMA)],
    "predict": [("gpt2_small", "--dim batch=4"), ("gpt2_small", "--dim batch=16"), ("bert_large", "--dim batch=8"),
                ("vit_b16", "--dim batch=32"), ("mtf_lm", "--dim batch=32"), ("gpt_bytes", "--dim batch=64")],
    "training": ("gpt2_small", "--dim batch=8 --dim length=512", 200),
    "algorithms": 8, "more products": {"50304 classes": "--dim vocab=50304", "50304 classes, apart": "--dim vocab=50304 --switches no_epilogues"},
    "processes": 16, "bench": "--quick", "ops": [], "programs": ["rows", "shards", "comm"], "sanitized": ["attention", "layer_norm", "softmax", "scatter_add"],
}
EMULATED = {
    "first": ("mlp_digits", MLP_TINY),
    "train": ("gpt_bytes", GPT_TINY, 32),
    "verify": [("gpt_bytes", GPT_TINY)],
    "predict": [("mlp_digits", MLP_TINY)],
    "training": ("gpt_bytes", "--dim batch=4 --dim length=16 --dim layers=1 --dim heads=4 --dim d_head=8", 6),
    "algorithms": 2, "more products": {},
    "processes": 2, "bench": "--tiny", "ops": ["softmax", "einsum"], "programs": ["shards"], "sanitized": [],
}
PRECISIONS = [("f32", 1e-4), ("bf16", 2e-2)]
WAYS_ROUND = ["", "--switches no_epilogues", "--no-graph", "--no-graph --switches no_epilogues", "--no-graph --outputs all"]
SPLITS = {"mlp_digits": "hidden:x"}  # else heads and d_ff
LIBC, PR_SET_PDEATHSIG, PARENT = ctypes.CDLL(None), 1, os.getpid()


def end_with_parent():
    """Of a child: a group of its own in this session, which is killed when this process is, so that nothing stays on the card."""
    os.setpgid(0, 0)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != PARENT:
        os._exit(1)


class LeftOut(Exception):
    """What cannot run here, and why."""


class Failed(Exception):
    """What a step found to be wrong; `result` is what it has all the same."""

    def __init__(self, text, result=None):
        super().__init__(text)
        self.result = result


class Card:
    def __init__(self, args):
        self.emulated, self.bin, self.out = args.emulated, os.path.abspath(args.bin), os.path.abspath(args.out)
        self.what = EMULATED if args.emulated else CARD
        self.dtrun = os.path.join(self.bin, "dtrun")
        self.options = os.environ.get("DTP_GPU_OPTIONS", "")
        self.way = ""  # of WAYS_ROUND
        self.deadline = 0.0
        self.before = [os.path.dirname(os.path.abspath(path)) for path in args.done]
        self.keep = lambda rows: None  # puts the rows of the step that runs into the report
        self.work = tempfile.mkdtemp(prefix="dtp-gpu-")
        os.makedirs(self.out, exist_ok=True)

    def run(self, command, limit=None, env=None):
        """(exit code, output) of a shell command, within the time of the step."""
        left = self.deadline - time.time()
        left = left if limit is None else min(left, limit)
        if left <= 0:
            raise TimeoutError("the time of the step is over")
        with subprocess.Popen("exec " + command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              preexec_fn=end_with_parent, env=env) as p:
            try:
                text, _ = p.communicate(timeout=left)
            except BaseException:
                os.killpg(p.pid, signal.SIGKILL)
                raise
        return p.returncode, text

    def path(self, name):
        return os.path.join(self.work, name)

    def publish(self):
        """Machine files, and an archive of all others."""
        with tarfile.open(os.path.join(self.out, "files.tar.gz.new"), "w:gz") as tar:
            for name in sorted(os.listdir(self.work)):
                if name.startswith("machine_") and name.endswith(".json"):
                    shutil.copy(self.path(name), os.path.join(self.out, name))
                else:
                    tar.add(self.path(name), name)
        os.replace(os.path.join(self.out, "files.tar.gz.new"), os.path.join(self.out, "files.tar.gz"))

    def report_of(self, words, name="run.json"):
        """The report of dtrun run, by the first way round that works; what failed before is kept in it."""
        failures, path = {}, self.path(name)
        for way in [self.way] + [w for w in WAYS_ROUND if w != self.way]:
            code, text = self.run(f"{self.dtrun} run {words} {way} {self.options} --backend cuda --quiet -o {path}")
            if code == 0:
                self.way = way
                return {**read_json(path), "way": way, "failed ways": failures}
            failures[way or "as it is"] = text.strip()[-500:]
        raise Failed("; ".join(f"{way}: {text}" for way, text in failures.items()))

    # ---- steps ----

    def device(self):
        libraries = {}
        for name, version in (("libcublasLt.so", "cublasLtGetVersion"), ("libnccl.so", None)):
            found = [p for d in os.environ.get("LD_LIBRARY_PATH", "").split(":") for p in sorted(glob.glob(os.path.join(d, name + ".*")))]
            libraries[name] = found[0] if found else "not found"
            if found and version:
                function = getattr(ctypes.CDLL(found[0]), version)
                function.restype = ctypes.c_size_t
                libraries[name] += f" {function()}"
        if self.emulated:
            return {"card": "none: the emulated device", "libraries": libraries}
        code, text = self.run("nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader", 20)
        if code != 0:
            raise Failed("nvidia-smi: " + text.strip()[-500:], {"libraries": libraries})
        found = {"card": text.strip(), "libraries": libraries}
        self.keep(found)
        return {**found, "torch": self.torch_says("peak")}

    def torch_says(self, what):
        """The last line of PyTorch's side, which is JSON. It finds its own libraries, not those of the bundle."""
        env = dict(os.environ)
        env["LD_LIBRARY_PATH"] = env.get("DTP_LD_LIBRARY_PATH_BEFORE", env.get("LD_LIBRARY_PATH", ""))
        code, text = self.run(f"{sys.executable} {HERE}/torch_gpt2.py {what}", env=env)
        if code != 0:
            return {"left out": text.strip()[-500:]}
        return json.loads(text.strip().splitlines()[-1])

    def verify_one(self, model, dims, mesh, precision, bound):
        comm = "--comm sim" if mesh else "--comm self"
        code, text = self.run(f"{self.dtrun} verify models/{model}.json {dims} {mesh} {self.options} --backend cuda --reference cpu {comm} "
                              f"--precision {precision} --tolerance {bound} --json")
        error = re.search(r'"max_rel_err":\s*([0-9.e+-]+)', text)
        return {"passed": code == 0, "max_rel_err": error and float(error.group(1)), **({} if code == 0 else {"said": text.strip()[-500:]})}

    def verify_all(self, jobs):
        found = {}
        for model, dims, mesh, precision, bound in jobs:
            found[" ".join((model, precision, mesh)).strip()] = self.verify_one(model, dims, mesh, precision, bound)
            self.keep(found)
        wrong = [name for name, row in found.items() if not row["passed"]]
        if wrong:
            raise Failed("wrong: " + "; ".join(wrong), found)
        return found

    def first(self):
        return self.verify_all([(*self.what["first"], "", "f32", 1e-4)])

    def train(self):
        model, dims, tokens = self.what["train"]
        words = f"models/{model}.json {dims} --comm self --precision bf16 --outputs none"
        rows = {}
        for name, more in (("as it is", "--steps 12"), ("profile", "--steps 3 --profile"), ("no graph", "--steps 4 --no-graph")):
            r = self.report_of(f"{words} {more}", f"train_{name.split()[0]}.json")
            step = r["step_time_s"]["median"]
            rows[name] = {"step_s": step, "tokens_per_s": tokens / step, "loss": r["loss"], "peak_bytes": r["measured"]["peak_bytes"],
                          "way": r["way"], "failed ways": r["failed ways"]}
            if "instructions" in r:
                rows[name]["slowest"] = slowest(r["instructions"])
            self.keep(rows)
        return rows

    def verify(self):
        return self.verify_all([(model, dims, mesh, precision, bound) for model, dims in self.what["verify"] for precision, bound in PRECISIONS
                                for mesh in ("", "--mesh x:2 --rules batch:x --transport device")])

    def ops(self):
        """Every op in every dtype, in processes that share the cases, then rows, shards and transports."""
        n = self.what["processes"]
        words = " ".join(self.what["ops"])
        commands = {f"ops {i}/{n}": f"{self.bin}/test_cuda_ops_device {i}/{n} 1 {words}" for i in range(1, n + 1)}
        commands.update({name: f"{self.bin}/test_cuda_{name}_device" for name in self.what["programs"]})
        found, wrong = {"cases": 0, "tests": 0}, []
        with concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
            jobs = {pool.submit(self.run, command): name for name, command in commands.items()}
            for job in concurrent.futures.as_completed(jobs):
                name = jobs[job]
                code, text = job.result() if job.exception() is None else (124, str(job.exception()))
                found[name] = code
                cases, tests = re.search(r"(?m)^(\d+) of \d+ cases", text), re.search(r"PASSED  \] (\d+) test", text)
                found["cases"] += int(cases.group(1)) if cases else 0
                found["tests"] += int(tests.group(1)) if tests else 0
                if code == 0 and not tests:
                    code = found[name] = "no test ran"
                self.keep(found)
                if code != 0:
                    with open(self.path("ops.txt"), "a", encoding="utf-8") as f:
                        f.write(f"== {name}: {code}\n{text[-20000:]}\n")
                    wrong.append(f"{name}: {' | '.join(re.findall(r'(?m)^(?:FAIL|wrong):? .*', text)[:4]) or text.strip()[-200:]}")
        if wrong or found["cases"] == 0:
            raise Failed("; ".join(wrong) or "no case ran", found)
        return found

    def products(self):
        """Seconds of every kind of product of a step, by algorithm; with epilogues fused and apart; with 50304 classes."""
        model, dims, _ = self.what["train"]
        words = f"models/{model}.json {dims} --comm self --precision bf16 --outputs none --steps 3 --profile"
        runs = {f"algorithm {k}": f"--switches algorithm={k}" for k in range(self.what["algorithms"])}
        runs.update({"apart": "--switches no_epilogues", **self.what["more products"]})
        found = {}
        for name, more in runs.items():
            code, text = self.run(f"{self.dtrun} run {words} {more} --backend cuda --quiet -o {self.path('products.json')}")
            by_kind = {}
            for i in read_json(self.path("products.json"))["instructions"] if code == 0 else []:
                if re.search("einsum|product|operand_sum|linear_loss", i.get("op", "")):
                    kind = f"{i['op']} {re.sub('[.][0-9]+[.]', '.*.', i['node'])}"
                    by_kind[kind] = by_kind.get(kind, 0.0) + i["measured_s"]
            found[name] = by_kind if code == 0 else text.strip()[-500:]
            self.keep(found)
        kinds = sorted({kind for row in found.values() if isinstance(row, dict) for kind in row})
        result = {kind: {name: row.get(kind) for name, row in found.items() if isinstance(row, dict)} for kind in kinds}
        wrong = {name: row for name, row in found.items() if not isinstance(row, dict)}
        if wrong:
            raise Failed(json.dumps(wrong), result)
        return result

    def torch(self):
        if self.emulated:
            raise LeftOut("PyTorch does not run on the emulated device")
        found = {}
        for what in ("step", "parts"):
            found[what] = self.torch_says(what)
            self.keep(found)
        if all("left out" in row for row in found.values()):
            raise LeftOut(found["step"]["left out"])
        return found

    def counters(self):
        tool = find_tool("ncu")
        if self.emulated or tool is None:
            raise LeftOut("there is no ncu, or no card")
        model, dims, _ = self.what["train"]
        code, text = self.run(f"{tool} --clock-control none --kernel-name regex:'attention|norm|rows|loss' --launch-skip 4 --launch-count 10 "
                              f"--section SpeedOfLight --section Occupancy {self.dtrun} run models/{model}.json {dims} --comm self "
                              f"--precision bf16 --outputs none --steps 1 --no-graph --quiet --backend cuda {self.options}")
        with open(self.path("ncu.txt"), "w", encoding="utf-8") as f:
            f.write(text)
        if code != 0:
            raise Failed(text.strip()[-500:])
        return {"kernels": len(re.findall(r"Duration", text)), "text": "ncu.txt"}

    def sanitizers(self):
        tool = find_tool("compute-sanitizer")
        if self.emulated or tool is None:
            raise LeftOut("there is no compute-sanitizer, or no card")
        found = {}
        for name in ("memcheck", "racecheck"):
            code, text = self.run(f"{tool} --tool {name} --error-exitcode 9 {self.bin}/test_cuda_ops_device 1 {' '.join(self.what['sanitized'])}")
            found[name] = {"clean": code == 0, "summary": re.findall(r"(?:ERROR|RACECHECK) SUMMARY.*", text)[-1:]}
            self.keep(found)
        if not all(row["clean"] for row in found.values()):
            raise Failed("not clean", found)
        return found

    def bench(self):
        path = self.path("machine_1.json")
        code, text = self.run(f"{self.dtrun} bench --backend cuda --comm self --ranks 1 {self.what['bench']} {self.options} --quiet --output {path}")
        if code != 0:
            raise Failed(text.strip()[-500:])
        m = read_json(path)
        return {key: m["device"][key] for key in ("flops", "mem_bw_Bps", "launch_s", "launch_graph_s")}

    def machine(self):
        """The machine file of the step bench, which perhaps ran in a call before; None when it did not come back."""
        paths = [os.path.join(folder, "machine_1.json") for folder in (self.work, self.out, *self.before)]
        return next((path for path in paths if os.path.exists(path)), None)

    def predict(self):
        """Predicted and measured steps on one device and on two ranks of it."""
        two, rows = self.path("machine_2.json"), []
        if self.machine() is None:
            raise Failed("there is no machine_1.json here or beside the report of --done: the step bench has to run again")
        code, text = self.run(f"{self.dtrun} bench --backend cuda --comm sim --ranks 2 {self.what['bench']} --quiet --output {two}")
        if code != 0:
            raise Failed(text.strip()[-500:])
        self.publish()
        for model, dims in self.what["predict"]:
            split = SPLITS.get(model, "heads:x;d_ff:x")
            for layout in ("", "--mesh x:2 --rules batch:x", f"--mesh x:2 --rules '{split}'"):
                machine, comm = (two, "sim") if layout else (self.machine(), "self")
                r = self.report_of(f"models/{model}.json {dims} {layout} --comm {comm} --precision bf16 --machine {machine} --steps 12")
                rows.append({"model": f"{model} {dims}", "layout": layout, "measured_s": r["step_time_s"]["median"],
                             "predicted_s": r["predicted"]["step_time_s"],
                             "peak exact": r["measured"]["peak_bytes"] == r["predicted"]["peak_bytes"]})
                self.keep({"rows": rows})
        found = {"rows": rows, "mean error": statistics.mean(abs(r["predicted_s"] / r["measured_s"] - 1) for r in rows)}
        if not all(r["peak exact"] for r in rows):
            raise Failed("a peak is not the predicted one", found)
        return found

    def training(self):
        model, dims, steps = self.what["training"]
        loss = {}
        for p in ("f32", "bf16"):
            words = f"models/{model}.json {dims} --comm self --feed text=models/data/text.txt,dtype=u1 --outputs none --precision {p}"
            loss[p] = self.report_of(f"{words} --steps {steps}")["loss"][-1]
            self.keep(loss)
        return {**loss, "difference": loss["bf16"] / loss["f32"] - 1}


# Steps of the first and of the second call, each with its limit in seconds: a call has ten minutes.
CALLS = {"1": [("device", 40), ("first", 30), ("train", 90), ("verify", 90), ("ops", 80), ("products", 80), ("torch", 110)],
         "2": [("bench", 90), ("predict", 220), ("training", 130), ("counters", 40), ("sanitizers", 60)]}
STEPS = CALLS["1"] + CALLS["2"]


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def find_tool(name):
    return shutil.which(name) or next(iter(glob.glob(f"/usr/local/cuda*/bin/{name}")), None)


def slowest(instructions):
    """Time by op, the longest first."""
    by_op = {}
    for i in instructions:
        by_op[i.get("op", i["kind"])] = by_op.get(i.get("op", i["kind"]), 0.0) + i["measured_s"]
    return dict(sorted(by_op.items(), key=lambda row: -row[1])[:12])


def commit_of_tree():
    """That of the bundle, or the commit with a hash of what differs from it."""
    if os.path.exists("COMMIT"):
        with open("COMMIT", encoding="utf-8") as f:
            return f.read().strip()

    def git(*words):
        return subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    changes = git("diff", "HEAD", "--", ".", ":(exclude)docs/results/gpu.md").stdout
    return git("rev-parse", "--short", "HEAD").stdout.strip() + ("+" + hashlib.sha1(changes.encode()).hexdigest()[:7] if changes else "")


def table(report):
    lines = ["# " + ("On the emulated device: times and rates are those of its clock" if report["emulated"] else "On a card"), "",
             f"`./dev gpu{' --emulated' if report['emulated'] else ''}`, commit {report['commit']}, {report['date']}.", "",
             "| step | became | seconds |", "|---|---|---|"]
    lines += [f"| {name} | {s['became']} | {s['seconds']:.0f} |" for name, s in report["steps"].items()]
    for name, s in report["steps"].items():
        lines += ["", f"## {name}", ""]
        lines += [s["error"], ""] if s.get("error") else []
        lines += ["```json", json.dumps(s["result"], indent=1), "```"] if s.get("result") is not None else []
    return "\n".join(lines) + "\n"


def save(card, report):
    for name, text in (("report.json", json.dumps(report, indent=1)), ("report.md", table(report))):
        path = os.path.join(card.out, name)
        with open(path + ".new", "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(path + ".new", path)


def run_step(card, report, name, limit):
    """The step's entry in the report, which has its rows as they come: they stay, whatever ends the step."""
    start = time.time()
    entry = report["steps"][name] = {"became": "begun", "seconds": 0.0, "result": None}

    def keep(rows):
        entry.update(result=rows, seconds=time.time() - start)
        save(card, report)

    card.deadline, card.keep = start + limit, keep
    save(card, report)
    try:
        entry.update(became="done", result=getattr(card, name)())
    except LeftOut as e:
        entry.update(became="left out", error=str(e)[:500])
    except Failed as e:
        entry.update(became="failed", error=str(e)[:500], **({} if e.result is None else {"result": e.result}))
    except (TimeoutError, subprocess.TimeoutExpired) as e:
        entry.update(became="out of time", error=str(e)[:500])
    except (OSError, KeyError, ValueError, TypeError, AttributeError, statistics.StatisticsError) as e:
        entry.update(became="failed", error=f"{type(e).__name__}: {e}"[:500])
    entry["seconds"] = time.time() - start
    card.publish()
    save(card, report)
    return entry


def steps_done(paths, commit):
    """Steps that reports of this commit have as done."""
    steps = {}
    for path in paths:
        old = read_json(path)
        steps.update({n: s for n, s in old["steps"].items() if s["became"] == "done"} if old.get("commit") == commit else {})
    return steps


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--emulated", action="store_true", help="small models, for the emulated device of the tests")
    p.add_argument("--fresh", action="store_true", help="what has run at this commit runs again")
    p.add_argument("--total-s", type=float, default=3600, help="seconds for all steps together")
    p.add_argument("--bin", required=True, help="folder of the programs")
    p.add_argument("--out", required=True, help="folder of the results")
    p.add_argument("--done", metavar="REPORT", action="append", default=[], help="report.json of a call before: what is done there is left out")
    p.add_argument("--write", metavar="FILE", help="the report besides")
    p.add_argument("step", nargs="*", help="1, 2: the steps of that call; of " + ", ".join(name for name, _ in STEPS))
    args = p.parse_args()
    wanted = {name for step in args.step for name, _ in CALLS.get(step, [(step, 0)])}
    if wanted - {name for name, _ in STEPS}:
        p.error("the steps are " + ", ".join(name for name, _ in STEPS))
    card, end = Card(args), time.time() + args.total_s
    report = {"commit": commit_of_tree(), "emulated": args.emulated, "date": time.strftime("%Y-%m-%d")}
    here = os.path.join(card.out, "report.json")
    report["steps"] = steps_done(args.done + ([here] if os.path.exists(here) and not args.fresh else []), report["commit"])
    if card.machine() is None and "predict" not in report["steps"]:
        report["steps"].pop("bench", None)  # its machine file did not come back
    for name, limit in STEPS:
        if (wanted and name not in wanted) or name in report["steps"]:
            continue
        left = end - time.time()
        if left > 1:
            run_step(card, report, name, min(limit, left))
        else:
            report["steps"][name] = {"became": "no time left", "seconds": 0.0}
        s = report["steps"][name]
        print(f"{name}: {s['became']} in {s['seconds']:.0f} s {s.get('error', '')} {json.dumps(s.get('result'))[:300]}", flush=True)
        save(card, report)
    shutil.rmtree(card.work)
    if args.write:
        with open(args.write, "w", encoding="utf-8") as f:
            f.write(table(report))
    sys.exit(any(s["became"] not in ("done", "left out") for s in report["steps"].values()))


if __name__ == "__main__":
    main()
