"""Experts by index against the one-hot form of the same model: on the reference backend, in f64, losses, logits and every gradient
are equal on one device to the bit and under layouts to 1e-12; loads and dropped choices are those of the experts that were chosen,
counted here. And the planner finds the all-to-all of tokens, one each way, without pins.

python3 experts.py FOLDER_OF_THE_TOOLS SOURCE_FOLDER
"""

import array
import ast
import json
import os
import subprocess
import sys
import tempfile

TOOLS, SOURCE = sys.argv[1], sys.argv[2]
LAYERS, BATCH, LENGTH, CHOICES = 2, 4, 8, 2
SMALL = {"batch": BATCH, "layers": LAYERS, "length": LENGTH, "choices": CHOICES, "vocab": 32, "kv_heads": 4, "group": 2,
         "d_head": 4, "d_ff": 24}
# experts and the places that each has in a row: some choices are dropped, most are, none is
SIZES = [{"experts": 4, "capacity": 3}, {"experts": 8, "capacity": 1}, {"experts": 4, "capacity": LENGTH}]
LAYOUTS = [("x:2", "batch:x;rows:x"), ("x:4", "batch:x;experts:x"), ("x:2", "kv_heads:x;d_ff:x;vocab:x"),
           ("x:2;y:2", "batch:x;batch:y;experts:x;rows:y"), ("x:2;y:2", "batch:x;experts:x;kv_heads:y;d_ff:y;vocab:y")]
failed = []


def check(what, holds, text):
    if not holds:
        failed.append(what)
        print(f"FAILED {what}: {text}")


def read_npy(path):
    with open(path, "rb") as f:
        data = f.read()
    end = 10 + int.from_bytes(data[8:10], "little")
    header = ast.literal_eval(data[10:end].decode())
    values = array.array({"<f8": "d", "<f4": "f", "<i4": "i"}[header["descr"]])
    values.frombytes(data[end:])
    return values


def model_file(name):
    return os.path.join(SOURCE, "models", name + ".json")


def run(model, sizes, fetch, args=()):
    """The tensors of `fetch` after one step on the reference backend."""
    with tempfile.TemporaryDirectory() as folder:
        command = [os.path.join(TOOLS, "dtrun"), "run", model_file(model), "--backend", "ref", "--comm", "sim", "--quiet", *args]
        for name, size in sizes.items():
            command += ["--dim", f"{name}={size}"]
        for name in fetch:
            command += ["--fetch", f"{name}={folder}/{name}.npy"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr}")
        return {name: read_npy(f"{folder}/{name}.npy") for name in fetch}


def results(model):
    """Loss, logits and gradients, by name."""
    with open(model_file(model), encoding="utf-8") as f:
        text = json.load(f)
    params = list(text["params"]) + [f"layers.{i}.{p}" for i in range(LAYERS) for p in text["blocks"]["layer"]["params"]]
    return ["loss", "logits"] + ["grad." + p for p in params]


def difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b)) / max(max(map(abs, b)), 1e-30)


def check_equal(what, got, want, bound):
    worst = {name: difference(got[name], want[name]) for name in got}
    name = max(worst, key=worst.get)
    check(what, all(len(got[n]) == len(want[n]) for n in got) and worst[name] <= bound, f"'{name}' differs by {worst[name]:.2e}")
    print(f"{what}: {len(got)} tensors, largest difference {worst[name]:.1e}")


def check_counts(what, got, sizes):
    """Loads and dropped choices: the first choices of a row take places in order of position, then the second ones."""
    loads, dropped = [], []
    for layer in range(LAYERS):
        chosen = got[f"layers.{layer}.moe.top.indices"]
        load, drops = [0] * sizes["experts"], 0
        for row in range(BATCH):
            taken = [0] * sizes["experts"]
            for choice in range(CHOICES):
                for position in range(LENGTH):
                    expert = chosen[(row * LENGTH + position) * CHOICES + choice]
                    drops += taken[expert] >= sizes["capacity"]
                    taken[expert] += 1
            load = [a + b for a, b in zip(load, taken)]
        loads += load
        dropped.append(drops)
    check(what, list(got["expert_load"]) == loads, f"loads are {list(got['expert_load'])}, chosen were {loads}")
    check(what, list(got["dropped"]) == dropped, f"dropped are {list(got['dropped'])}, without a place were {dropped}")


def check_forms():
    for sizes in SIZES:
        dims = {**SMALL, **sizes}
        names = results("mixtral_8x7b")
        want = run("mixtral_8x7b", dims, names)
        what = f"{sizes['experts']} experts of {sizes['capacity']}"
        check_equal(what, run("mixtral_8x7b_index", dims, names), want, 0.0)
        layouts = [["--mesh", mesh, "--rules", rules] for mesh, rules in LAYOUTS]
        for args in layouts:
            check_equal(f"{what}, {' '.join(args[1::2])}", run("mixtral_8x7b_index", dims, names, args), want, 1e-12)
        names = [n for n in names if n != "logits"]
        args = layouts[0] + ["--microbatches", "2"]
        check_equal(f"{what}, 2 microbatches", run("mixtral_8x7b_index", dims, names, args), want, 1e-12)
        names = [f"layers.{i}.moe.top.indices" for i in range(LAYERS)]
        whole = run("mixtral_8x7b_index", dims, names + ["expert_load", "dropped"])
        for args in [[]] + layouts + [args]:
            got = {**whole, **run("mixtral_8x7b_index", dims, ["expert_load", "dropped"], args)}
            check_counts(f"{what}, {' '.join(args[1::2])}", got, dims)


def check_plan(model, machine, mesh, dims):
    """In tensor mode without pins, the tokens of every layer go to the experts by one all-to-all over each mesh dim and back by
    one, in both passes, and no activation is gathered or reduced: in the fastest plan, less memory may take more."""
    command = [os.path.join(TOOLS, "dtplan"), "plan", model_file(model), "--mesh", mesh,
               "--machine", os.path.join(SOURCE, "models", "machines", machine), "--mode", "tensor", "--memory", "none", "--slack", "0", "--comm-report", "--json", "--threads", "1"]
    for name, size in dims.items():
        command += ["--dim", f"{name}={size}"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for layer in range(dims["layers"]):
        for phase in ("forward", "backward"):
            found = [c for c in report["collectives"] if c["module"].startswith(f"layers.{layer}.moe") and c["phase"] == phase]
            over = sorted("+".join(c["mesh_dims"]) for c in found if c["kind"] == "all_to_all")
            other = {c["kind"] for c in found if c["kind"] != "all_to_all"}
            want = sorted(2 * [d.split(":")[0] for d in mesh.split(";")])
            sums = {"all_reduce", "reduce_scatter"} if phase == "backward" else set()
            check(f"{model} on {mesh}", over == want and other <= sums, f"layer {layer}, {phase}: all-to-alls over {over}, also {sorted(other)}")
    print(f"{model} on {mesh}: all-to-alls of a layer are over {over} in each pass")


check_forms()
check_plan("mixtral_8x7b_index", "a100_8.json", "x:8", {"layers": 2, "batch": 8, "length": 1024})
check_plan("mixtral_8x7b_index", "h100_64.json", "x:8;y:8", {"layers": 2})
check_plan("mixtral_8x7b_index", "h100_64.json", "x:8", {"layers": 2, "batch": 8, "length": 1024})
sys.exit(1 if failed else 0)
