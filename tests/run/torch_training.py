"""Training with a schedule, clipping and groups of parameters equals PyTorch's, under every layout: torch_training/make.py
says what is trained. Also that clipping adds one all-reduce per set of mesh dims.

python3 torch_training.py FOLDER_OF_THE_TOOLS SOURCE_FOLDER
"""

import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import quarter  # noqa: E402

TOOLS, SOURCE = sys.argv[1], sys.argv[2]
DATA = os.path.join(SOURCE, "tests", "run", "torch_training")
FEEDS = ["--feed", f"images={DATA}/images.npy", "--feed", f"labels={DATA}/labels.npy"]
DIMS = ["--dim", "batch=48", "--dim", "hidden=32"]
SCHEDULE = {"cosine": {"warmup": 5, "steps": 20, "last": 0.1}}
OPTIMIZERS = {
    "sgd": ({"sgd": {"lr": 0.3, "weight_decay": 0.01}}, {"lr": 0.1, "weight_decay": 0}),
    "adamw": ({"adamw": {"lr": 0.01, "weight_decay": 0.05}}, {"lr": 0.003, "weight_decay": 0}),
}
# mesh, arguments of dtplan plan, the sets of mesh dims over which a norm is added up
LAYOUTS = {
    "one": ("", [], []),
    "data": ("x:2", ["--rules", "batch:x"], []),
    "tensor": ("x:2", ["--rules", "hidden:x"], ["x"]),
    "zero3": ("x:4", ["--style", "**: data", "--style", "**: zero3"], ["x"]),
    "2x2": ("x:2;y:2", ["--rules", "batch:x;hidden:y"], ["y"]),
    "replicated": ("x:2;y:2", ["--rules", "hidden:x"], ["x"]),
}
# arguments, bound on the difference of parameters: f32 relative to the largest of a tensor, bf16 in the norm of a tensor
# relative to that of its change; and on that of losses and norms
VARIANTS = {"f32": (["--precision", "f32"], 1e-5), "bf16": (["--precision", "bf16"], 0.06),
            "microbatches": (["--precision", "f32", "--microbatches", "4"], 1e-5)}
PARAMS = ("w1", "b1", "w2", "b2")
failed = []


def check(what, holds, text):
    if not holds:
        failed.append(f"{what}: {text}")
        print(f"FAILED {what}: {text}")


def read_safetensors(path):
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        header, data = json.loads(f.read(n)), f.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
    return tensors


def read_npy(path):
    with open(path, "rb") as f:
        data = f.read()
    data = data[10 + int.from_bytes(data[8:10], "little"):]
    return struct.unpack(f"<{len(data) // 4}f", data)


def run(*args):
    done = subprocess.run(args, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(args)}\n{done.stderr}")
    return done.stdout


def write_model(path, optimizer, clip):
    with open(os.path.join(SOURCE, "models", "mlp_digits.json"), encoding="utf-8") as f:
        model = json.load(f)
    whole, biases = OPTIMIZERS[optimizer]
    model["train"] = {"loss": "loss", "optimizer": whole, "groups": [{"params": "b?", **biases}], "schedule": SCHEDULE}
    if clip:
        model["train"]["clip_norm"] = 0.6
    with open(path, "w", encoding="utf-8") as f:
        json.dump(model, f)


def all_reduces(model, layout, args):
    """The sets of mesh dims over which the all-reduces of the program go, one entry for each."""
    plan(model, layout, args, model + ".plan")
    text = run(f"{TOOLS}/dtplan", "show", model, "--plan", model + ".plan", "--stage", "program", *DIMS)
    return re.findall(r"start +all_reduce\(sum\) over ([a-z+]+) ", text)


def plan(model, layout, args, out):
    mesh, how, _ = LAYOUTS[layout]
    run(f"{TOOLS}/dtplan", "plan", model, "--mesh", mesh, "--machine", f"{SOURCE}/models/machines/l4_16.json", "--target",
        "cpu", "--memory", "none", *DIMS, *how, *args, "-o", out)


def compare(optimizer, layout, variant, folder):
    what = f"{optimizer}, {layout}, {variant}"
    args, bound = VARIANTS[variant]
    model, planned = os.path.join(folder, "model.json"), os.path.join(folder, "plan.json")
    write_model(model, optimizer, True)
    source = args
    if layout != "one":
        plan(model, layout, args, planned)
        source = ["--plan", planned]
    report = json.loads(run(f"{TOOLS}/dtrun", "run", model, *source, *DIMS, *FEEDS, "--comm", "sim", "--steps", "20",
                            "--load", f"{DATA}/initial.safetensors", "--save", f"{folder}/after.safetensors", "--json",
                            "--quiet", *[a for p in PARAMS for a in ("--fetch", f"grad.{p}={folder}/{p}.npy")]))
    whole = math.hypot(*(math.hypot(*read_npy(f"{folder}/{p}.npy")) for p in PARAMS))
    off = abs(report["grad_norm"][-1] / whole - 1)
    check(what, off < 1e-6, f"the norm of the gradients that are fetched is {whole}, {off:g} away from that reported")
    before, after = read_safetensors(f"{DATA}/initial.safetensors"), read_safetensors(f"{folder}/after.safetensors")
    worst = 0.0
    for name, want in read_safetensors(f"{DATA}/{optimizer}.safetensors").items():
        off = [abs(a - b) for a, b in zip(want, after[name])]
        if variant == "bf16":  # Adam makes full steps of what rounding left of a gradient: no bound on one element
            of = math.hypot(*(a - b for a, b in zip(want, before[name])))
            worst = max(worst, math.hypot(*off) / of)
        else:
            worst = max(worst, max(off) / max(map(abs, want)))
    check(what, worst <= bound, f"parameters differ by {worst:g}, the bound is {bound:g}")
    with open(f"{DATA}/steps.json", encoding="utf-8") as f:
        steps = json.load(f)[optimizer]
    for key, limit in (("rate", 1e-12), ("grad_norm", bound), ("loss", bound)):
        off = max(abs(a - b) / b for a, b in zip(report[key], steps[key]))
        check(what, len(report[key]) == 20 and off <= limit, f"'{key}' differs by {off:g}, the bound is {limit:g}")
    print(f"{what}: parameters within {worst:.2g}")


def count(layout, variant, folder):
    """Clipping adds an all-reduce for each set of mesh dims, or none where it shares that of the loss."""
    found = []
    for clip in (False, True):
        model = os.path.join(folder, f"count{clip}.json")
        write_model(model, "adamw", clip)
        found.append(all_reduces(model, layout, VARIANTS[variant][0]))
    for dims in set(found[0] + found[1]):
        most = 1 if dims in LAYOUTS[layout][2] else 0
        more = found[1].count(dims) - found[0].count(dims)
        check(f"{layout}, {variant}", 0 <= more <= most, f"{more} more all-reduces over {dims}, expected at most {most}")


def overflow(folder):
    """A loss that is finite with a gradient that is not: the root of a sum of 0."""
    model = os.path.join(folder, "root.json")
    with open(model, "w", encoding="utf-8") as f:
        json.dump({"format": "dtp.model/1", "name": "root", "dims": {"n": 4}, "inputs": {"x": {"dims": ["n"]}},
                   "params": {"w": {"dims": ["n"], "init": "zeros"}},
                   "nodes": [{"id": "sum", "op": "einsum", "in": ["x", "w"], "out": []},
                             {"id": "loss", "op": "sqrt", "in": ["sum"]}],
                   "train": {"loss": "loss", "clip_norm": 1, "optimizer": {"sgd": {"lr": 0.1}}}}, f)
    done = subprocess.run([f"{TOOLS}/dtrun", "run", model, "--mesh", "x:2", "--rules", "n:x", "--comm", "sim", "--save",
                           f"{folder}/never"], capture_output=True, text=True, check=False)
    words = "step 1: node 'grad_norm': the norm of the gradients is inf, the loss 0"
    check("overflow", done.returncode == 1 and words in done.stderr and not os.path.exists(f"{folder}/never"),
          f"{done.returncode}, {done.stderr}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        overflow(folder)
    cases = [(o, layout, v) for o in OPTIMIZERS for layout in LAYOUTS for v in VARIANTS]
    for case in quarter.of(cases):
        with tempfile.TemporaryDirectory() as folder:
            compare(*case, folder)
            if case[1] != "one":
                count(case[1], case[2], folder)
    sys.exit(1 if failed else 0)


main()
