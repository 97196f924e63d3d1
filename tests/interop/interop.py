#!/usr/bin/env python3
"""Plans run under PyTorch and JAX from one checkpoint of dtrun: losses, bytes of parameters and collectives beside ours.

For gpt_bytes and mlp_digits on x:2;y:2 and plans of mode rules and tensor (every legal baseline, the optimum): five
losses equal those of dtrun within 1e-5, relative; every rank has the bytes of parameters that the plan says, where
nothing is lost that changes them. The same for the program of examples/torch_export.py, imported: PyTorch alone, three
plans. Collectives are shown, without a bound. Called by ./dev interop, which has
DTP_TORCH_PYTHON and DTP_JAX_PYTHON name interpreters. Writes its part of docs/results/interop.md when both ran and nothing
failed.
Usage: interop.py BIN_DIR [torch|jax]
"""
import ast
import json
import math
import os
import struct
import subprocess
import sys

MESH = {"x": 2, "y": 2}
CASES = {  # model -> options, rules
    "gpt_bytes": (["--dim", "batch=8", "--dim", "length=64", "--dim", "layers=2"], "batch:x;heads:y;d_ff:y;vocab:y"),
    "mlp_digits": ([], "batch:x;hidden:y"),
    "gpt": ([], "batch:x;heads:y;d_ff:y;vocab:y"),  # of a program
}
PROGRAM_PLANS = ("optimum", "rules", "zero3")
FRAMEWORKS = {"torch": "PyTorch", "jax": "JAX"}
SHORT = {"all_gather": "AG", "reduce_scatter": "RS", "all_reduce": "AR", "all_to_all": "A2A", "collective_permute": "CP"}
STEPS, TOLERANCE = 5, 1e-5
RESULTS, HERE = "docs/results/interop.md", "build/interop"
NEXT = "\n## "  # the parts of other scripts
failures = []


def fail(text):
    failures.append(text)
    print("FAIL: " + text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def run(words):
    """Whether it succeeded, and its standard output or the end of its errors."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=900,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    errors = "\n".join(done.stderr.decode().splitlines()[-12:])
    return (True, done.stdout.decode()) if done.returncode == 0 else (
        False, f"{' '.join(words)}: exit {done.returncode}: {errors}")


def call(words):
    """Standard output of a tool of ours, which has to succeed."""
    good, text = run(words)
    if not good:
        sys.exit(text)
    return text


# ---- inputs: the first rows of the data of the project ----

def write_npy(path, kind, shape, data):
    header = str({"descr": kind, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)
    return path


def first_rows(name, rows):
    with open(f"models/data/{name}.npy", "rb") as file:
        data = file.read()
    start = 10 + struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:start].decode())
    shape = (rows,) + header["shape"][1:]
    return write_npy(f"{HERE}/{name}.npy", header["descr"], shape, data[start:start + 4 * math.prod(shape)])


def make_feeds(model):
    if model != "mlp_digits":
        kind = "i" if model == "gpt_bytes" else "q"
        with open("models/data/text.txt", "rb") as file:
            text = file.read(8 * 65)
        path = f"{HERE}/{model}.text.npy"
        return {"text": write_npy(path, f"<i{struct.calcsize(kind)}", (8, 65), struct.pack(f"={len(text)}{kind}", *text))}
    return {"images": first_rows("digits_images", 96), "labels": first_rows("digits_labels", 96)}


# ---- our side ----

class Model:
    def __init__(self, name, bin_dir):
        self.name, self.file = name, f"models/{name}.json" if name != "gpt" else f"{HERE}/gpt.json"
        self.dims, self.rules = CASES[name]
        self.dtplan, self.dtrun = (os.path.join(bin_dir, tool) for tool in ("dtplan", "dtrun"))
        self.checkpoint = f"{HERE}/{name}.checkpoint"
        self.results = {}  # framework, text of an export -> what came of it
        if name == "gpt":
            program = f"{HERE}/gpt.pt2"
            call([os.environ["DTP_TORCH_PYTHON"], "examples/torch_export.py", program])
            call([self.dtplan, "import", program, "-o", self.file])
        self.feeds = [word for item in make_feeds(name).items() for word in ("--feed", "=".join(item))]
        call([self.dtrun, "run", self.file, "--forward", "--comm", "self", "--quiet", "--save", self.checkpoint] + self.dims)

    def path(self, plan, kind):
        return f"{HERE}/{self.name}.{plan}.{kind}.json"

    def plan(self, name, *options):
        file = self.path(name, "plan")
        call([self.dtplan, "plan", self.file, "--mesh", ";".join(f"{m}:{n}" for m, n in MESH.items()), "--target", "cpu",
              "--machine", "models/machines/a100_8.json", "--precision", "f32", *self.dims, *options, "-o", file])
        return file

    def plans(self):
        """Names; their files are written."""
        free = read(self.plan("optimum", "--mode", "tensor"))
        self.plan("rules", "--rules", self.rules)
        self.by_rules = {"rules": self.rules}
        names = ["optimum", "rules"]
        for name, baseline in free["baselines"].items():
            if baseline["legal"] and (self.name != "gpt" or name in PROGRAM_PLANS):
                styles = baseline.get("styles", [f"**: replicate({m})" for m in MESH])
                options = [word for style in styles for word in ("--style", style)]
                self.by_rules.update({name: baseline["rules"]} if baseline.get("rules") else {})
                self.plan(name, *(["--rules", baseline["rules"]] if baseline.get("rules") else options))
                names.append(name)
        return names

    def sent_for_jax(self, plan):
        """kB that a plan by the same layout rules sends which is planned with --expressible jax."""
        if self.by_rules.get(plan) is None:
            return ""
        kinds = read(self.plan("for_jax", "--rules", self.by_rules[plan], "--expressible", "jax"))["predicted"]["collectives"]
        return f"{sum(kind['bytes'] for kind in kinds.values()) / 1e3:,.0f}"

    def export(self, plan, form):
        file = self.path(plan, form)
        call([self.dtplan, "export", self.file, self.path(plan, "plan"), "--as", form, "-o", file])
        return file

    def run(self, *options):
        """Losses, and collectives per step by kind."""
        report = json.loads(call([self.dtrun, "run", self.file, "--steps", str(STEPS), "--load", self.checkpoint,
                                  "--quiet", "--json", *self.feeds, *options]))
        counts = {}
        for entry in report["collectives"]:
            counts[entry["kind"]] = counts.get(entry["kind"], 0) + entry["count"]
        return {"losses": report["loss"], "collectives": counts, "bytes": sum(entry["bytes"] for entry in report["collectives"])}

    def run_under(self, framework, plan):
        """Under an exported plan that no earlier one is equal to; else what came of that."""
        with open(self.export(plan, framework), encoding="utf-8") as file:
            key = framework, file.read()
        if key not in self.results:
            self.results[key] = self.run_script(framework, plan)
        return self.results[key]

    def run_script(self, framework, plan, *options):
        """The result of the script of a framework, None after a failure."""
        out = self.path(plan, framework + ".result")
        script = os.path.join(os.path.dirname(__file__), f"run_{framework}.py")
        exported = self.path(plan, framework)
        good, text = run([os.environ[f"DTP_{framework.upper()}_PYTHON"], script, self.file, exported, self.checkpoint,
                     *self.feeds, "--steps", str(STEPS), "--out", out, *options])
        if not good:
            fail(text)
        return read(out) if good else None


def bytes_of(placements):
    """Of parameters, on a rank."""
    total = 0
    for p in placements["params"]:
        shape = list(p["shape"])
        for size, place in zip(MESH.values(), p["kept"]):
            if place != "R":
                axis = int(place[2:-1])
                shape[axis] = -(-shape[axis] // size)
        total += 4 * math.prod(shape)
    return total


# ---- beside each other ----

def worst_difference(losses, wanted):
    return max(abs(a - b) / abs(b) for a, b in zip(losses, wanted))


def counts_text(result):
    """Counts by kind, and kilobytes of whole buffers."""
    counts = sorted(result["collectives"].items(), key=lambda c: -c[1])
    text = " + ".join(f"{n} {SHORT.get(kind, kind)}" for kind, n in counts if n)
    return f"{text}: {result['bytes'] / 1e3:,.0f}" if text else "–"


def compare(what, result, ours, held, framework):
    """Text of the loss difference, for the table."""
    if result is None:
        return "failed"
    if len(result["losses"]) != STEPS or not all(map(math.isfinite, result["losses"])):
        fail(f"{what}: {framework}: losses {result['losses']}")
        return "failed"
    difference = worst_difference(result["losses"], ours["losses"])
    if difference > TOLERANCE:
        fail(f"{what}: {framework}: losses {result['losses']}, dtrun has {ours['losses']}")
    if held is not None and set(result["local_param_bytes"]) != {held}:
        fail(f"{what}: {framework}: bytes of parameters {result['local_param_bytes']}, the plan has {held}")
    return f"{difference:.0e}"


def rows_of(model, frameworks):
    frameworks = [f for f in frameworks if model.name != "gpt" or f == "torch"]
    whole = model.run("--comm", "self", *model.dims)
    references = {f: model.run_script(f, "one", "--reference") for f in frameworks}
    yield ["one device", "", *(compare(model.name, references[f], whole, None, f) for f in frameworks), "",
           *("" for _ in frameworks), *([""] if "jax" in frameworks else [])]
    for plan in model.plans():
        what = f"{model.name}, {plan}"
        ours = model.run("--plan", model.path(plan, "plan"), "--comm", "sim")
        if worst_difference(ours["losses"], whole["losses"]) > TOLERANCE:
            fail(f"{what}: dtrun: losses {ours['losses']}, on one rank {whole['losses']}")
        held = bytes_of(read(model.export(plan, "placements")))
        texts, counts = [], []
        for f in frameworks:
            lost = {item["what"] for item in read(model.export(plan, f))["lost"]}
            result = model.run_under(f, plan)
            texts.append(compare(what, result, ours, None if lost & {"uneven", "parts"} else held, f))
            counts.append(counts_text(result) if result else "")
        yield [plan, f"{held:,}", *texts, counts_text(ours), *counts, *([model.sent_for_jax(plan)] if "jax" in frameworks else [])]


def write_table(rows, frameworks):
    names = [FRAMEWORKS[f] for f in frameworks]
    head = ["model", "plan", "bytes", *(f"loss: {name}" for name in names), "dtrun", *names, "for jax"]
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines)


TEXT = f"""# Plans under PyTorch and JAX

`./dev interop`: gpt_bytes (batch 8, length 64, 2 layers) and mlp_digits on x:2;y:2, with layout rules, every legal
baseline and the optimum of tensor mode; `gpt`: the program of [torch_export.py](../../examples/torch_export.py), imported.
{STEPS} steps of AdamW in f32 from one checkpoint of `dtrun`: PyTorch on 4 processes
(gloo), JAX on 4 host devices, `dtrun` on 4 virtual ranks.

%s

`bytes`: of parameters on a rank, as the plan says; in PyTorch and JAX they are equal. `loss`: the worst relative
difference of a loss from that of `dtrun` under the same plan; more than {TOLERANCE:.0e} fails. Then the collectives in a step: AG
all-gather, RS reduce-scatter, AR all-reduce, A2A all-to-all, CP collective-permute, and kB of their whole buffers (what is
reduced, what all ranks gather); of PyTorch as CommDebugMode counts them, of JAX in the compiled program, where one all-reduce
may sum many tensors. XLA makes no reduce-scatter for CPUs: an all-reduce stands for it, and what is gathered forward is kept for
the backward pass. It reduces the gradients of q, k and v one by one: `for jax` are the kB of a plan by the same layout rules that is
planned with `--expressible jax`. PyTorch gathers a group of
parameters at once. What an export cannot say, such as the optimizer states of zero1 and zero2, is under its `lost`
([placements](../formats/placements.md)).
"""


def main():
    frameworks = sys.argv[2:] or list(FRAMEWORKS)
    os.makedirs(HERE, exist_ok=True)
    rows = []
    for name in CASES:
        if name == "gpt" and "torch" not in frameworks:
            continue
        for row in rows_of(Model(name, sys.argv[1]), frameworks):
            if len(row) < 3 + 2 * len(frameworks):  # a program, PyTorch alone
                row = [*row[:3], "", *row[3:], "", ""]
            rows.append([name, *row])
            print(" | ".join(rows[-1]), flush=True)
    if failures:
        print(f"{len(failures)} failures")
        return 1
    if list(FRAMEWORKS) == sorted(frameworks, key=list(FRAMEWORKS).index):
        with open(RESULTS, encoding="utf-8") as file:  # what order.py and interop_next.py wrote stays
            _, begin, rest = file.read().partition(NEXT)
        with open(RESULTS, "w", encoding="utf-8") as file:
            file.write(TEXT % write_table(rows, frameworks) + begin + rest)
        print(f"written: {RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
