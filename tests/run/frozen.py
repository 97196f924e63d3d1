"""Training with frozen parameters: low-rank adapters beside a frozen layer, a frozen norm and a frozen table that is tied to
the head, as PyTorch 2.15 trains them; under layouts, variants and checkpoints. What is frozen stays as it was to the bit, and
has no states. Also the errors, the plan that carries --freeze, and what exports say.

The numbers below are, in f64, those of torch.optim.AdamW(trained, lr=0.05, weight_decay=0.1) in three steps of
    x = layer_norm(Embedding.from_pretrained(table)(ids), gamma, beta); h = gelu(x @ up + x @ a @ b)
    cross_entropy((h @ down + bias) @ table.T, labels); clip_grad_norm_(parameters, 0.5)
with requires_grad=False of gamma, up and down, and the initial values and feeds of values() and FEEDS.

python3 frozen.py FOLDER_OF_THE_TOOLS SOURCE_FOLDER
"""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile

TOOLS, SOURCE = sys.argv[1], sys.argv[2]
DIMS = {"batch": 8, "vocab": 11, "d": 6, "h": 8, "r": 2}
SHAPES = {"table": ("vocab", "d"), "gamma": ("d",), "beta": ("d",), "up": ("d", "h"), "a": ("d", "r"), "b": ("r", "h"),
          "down": ("h", "d"), "bias": ("d",)}
FROZEN = ("table", "gamma", "up", "down")
FEEDS = {"ids": [(3 * i + 1) % 11 for i in range(8)], "labels": [(5 * i + 2) % 11 for i in range(8)]}
LOSS = [3.4074550394360825, 3.0692773751279825, 2.8981129310893285]
NORM = [1.9362031054822686, 1.100244693587003, 0.5750453467791039]
TRAINED = {
    "beta": [0.2635786, -0.4511673, 0.3605053, -0.0067851, -0.424274, 0.7019676],
    "a": [0.5310144, 0.2338019, 0.1717136, 0.4327766, 0.3526958, 0.0818973, 0.0327278, 0.2610727, -0.046795, 0.1976439,
          0.1726225, -0.1654268],
    "b": [-0.024958, -0.2230611, -0.6573408, -0.7290044, -0.6169294, -0.357901, -0.4054752, -0.2708004, 0.2426558, 0.4514119,
          0.3323665, 0.4351281, 0.5376939, 0.5318978, 0.2500219, 0.0503669],
    "bias": [-0.17273, 0.3261474, 0.2544689, -0.5445199, -0.6216163, 0.1633241]}
MACHINE = ["--machine", f"{SOURCE}/models/machines/l4_16.json", "--target", "cpu"]
# arguments of dtrun run, or of dtplan plan with a mesh; the bound on the difference
RUNS = {"one": ([], 1e-5), "data": (["--mesh", "x:2", "--rules", "batch:x"], 1e-5),
        "tensor": (["--mesh", "x:2", "--rules", "h:x"], 1e-5),
        "2x2": (["--mesh", "x:2;y:2", "--rules", "batch:x;h:y"], 1e-5),
        "norm dim": (["--mesh", "x:2", "--rules", "d:x"], 1e-5),
        "microbatches": (["--mesh", "x:2", "--rules", "batch:x", "--microbatches", "2"], 1e-5),
        "bf16": (["--mesh", "x:2", "--rules", "batch:x", "--precision", "bf16"], 0.08),
        "f16": (["--precision", "f16", "--microbatches", "4"], 0.02)}
PLANS = {"tensor mode": ["--mode", "tensor"],
         "zero1": ["--style", "**: data", "--style", "**: zero1"], "zero3": ["--style", "**: data", "--style", "**: zero3"],
         "zero2 bf16": ["--style", "**: data", "--style", "**: zero2", "--precision", "bf16"]}
failed = []


def check(what, holds, text):
    if not holds:
        failed.append(what)
        print(f"FAILED {what}: {text}")


def values(name):
    n, k = math.prod(DIMS[d] for d in SHAPES[name]), sum(map(ord, name)) % 17 + 3
    more = 1.0 if name == "gamma" else 0.0
    return [0.6 * math.sin(1.7 * i + 0.31 * k * i + k) + more for i in range(n)]


def model(frozen, half=()):
    """Parameters in `half` are stored in bf16, and cast where they are read."""
    def param(name):
        return {"dims": list(SHAPES[name]), "init": "zeros", **({"frozen": True} if name in frozen else {}),
                **({"dtype": "bf16"} if name in half else {})}

    def node(name, op, ins, **attrs):
        return {"id": name, "op": op, "in": [i + ".f32" * (i in half) for i in ins.split()], **attrs}

    return {"format": "dtp.model/1", "name": "adapters", "dims": DIMS,
            "inputs": {name: {"dims": ["batch"], "dtype": "i32", "below": "vocab"} for name in FEEDS},
            "params": {name: param(name) for name in SHAPES},
            "nodes": [{"id": name + ".f32", "op": "cast", "in": [name], "dtype": "f32"} for name in half] + [
                node("e", "embedding", "table ids", over="vocab"), node("x", "layer_norm", "e gamma beta", over="d"),
                node("xu", "einsum", "x up", out=["batch", "h"]), node("xa", "einsum", "x a", out=["batch", "r"]),
                node("xab", "einsum", "xa b", out=["batch", "h"]), node("s", "add", "xu xab"), node("g", "gelu_erf", "s"),
                node("hd", "einsum", "g down", out=["batch", "d"]), node("o", "add", "hd bias"),
                node("logits", "einsum", "o table", out=["batch", "vocab"]),
                node("loss", "cross_entropy", "logits labels", over="vocab", reduce="mean")],
            "train": {"loss": "loss", "clip_norm": 0.5, "optimizer": {"adamw": {"lr": 0.05, "weight_decay": 0.1}}}}


def write_safetensors(path):
    header, data = {}, b""
    for name, dims in SHAPES.items():
        part = struct.pack(f"<{math.prod(DIMS[d] for d in dims)}f", *values(name))
        header[name] = {"dtype": "F32", "shape": [DIMS[d] for d in dims], "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)


def read_safetensors(path):
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        header, data = json.loads(f.read(n)), f.read()
    return {name: data[slice(*e["data_offsets"])] for name, e in header.items() if name != "__metadata__"}


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def rounded(data):
    """f32 in bf16: to the nearest, ties to even."""
    words = struct.unpack(f"<{len(data) // 4}I", data)
    return struct.pack(f"<{len(words)}H", *((w + 0x7fff + (w >> 16 & 1)) >> 16 for w in words))


def write_npy(path, ids):
    text = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({len(ids)},), }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + struct.pack(f"<{len(ids)}i", *ids))


class Folder:
    def __init__(self, path):
        self.path = path
        for name, args in (("frozen", (FROZEN,)), ("free", ((),)), ("half", (FROZEN, FROZEN))):
            with open(f"{path}/{name}.json", "w", encoding="utf-8") as f:
                json.dump(model(*args), f)
        write_safetensors(f"{path}/first.safetensors")
        for name, ids in FEEDS.items():
            write_npy(f"{path}/{name}.npy", ids)
        self.feeds = [a for name in FEEDS for a in ("--feed", f"{name}={path}/{name}.npy")]

    def call(self, tool, command, *args, code=0):
        done = subprocess.run([f"{TOOLS}/{tool}", command, *args], capture_output=True, text=True, check=False, cwd=self.path)
        if done.returncode != code:
            raise SystemExit(f"{tool} {command} {' '.join(args)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout if code == 0 else done.stderr

    def train(self, file, *args, steps=3, load="first.safetensors"):
        return json.loads(self.call("dtrun", "run", file, *args, *self.feeds, "--comm", "sim", "--steps", str(steps), "--json",
                                    "--quiet", *(["--load", load] if load else [])))


def compare(folder, what, file, args, bound):
    report = folder.train(file, *args, "--save", "after.safetensors")
    off = max(abs(a / b - 1) for a, b in zip(report["loss"] + report["grad_norm"], LOSS + NORM))
    check(what, len(report["loss"]) == 3 and off < bound, f"losses and norms differ by {off:g}: {report['loss']}")
    first, after = read_safetensors(f"{folder.path}/first.safetensors"), read_safetensors(f"{folder.path}/after.safetensors")
    for name in SHAPES:
        if name in FROZEN and file == "half.json":
            check(what, after[name] == rounded(first[name]), f"the frozen '{name}' is not that of the file in bf16")
        elif name in FROZEN:
            check(what, first[name] == after[name], f"the frozen '{name}' has changed")
        else:
            worst = max(abs(a - b) for a, b in zip(floats(after[name]), TRAINED[name]))
            check(what, worst < bound, f"'{name}' differs by {worst:g}")
    states = {name for name in after if name not in SHAPES}
    check(what, {name.split(".")[-1] for name in states if name.startswith("adamw")} == set(TRAINED), f"states {states}")
    check(what, (report["predicted"] is not None) == ("--plan" in args), "no prediction")
    if report["predicted"] is not None:
        check(what, report["predicted"]["peak_bytes"] == report["measured"]["peak_bytes"],
              f"peak {report['measured']['peak_bytes']}, predicted {report['predicted']['peak_bytes']}")
    return report


def trains(folder):
    for what, (args, bound) in RUNS.items():
        compare(folder, what, "frozen.json", args, bound)
    peaks = [compare(folder, f"{file} in bf16", f"{file}.json", RUNS["bf16"][0], 0.08)["measured"]["peak_bytes"]
             for file in ("frozen", "half")]
    check("half", peaks[1] < peaks[0], f"peaks {peaks}")
    compare(folder, "half", "half.json", ["--mesh", "x:2", "--rules", "h:x"], 0.08)
    globs = [a for name in FROZEN for a in ("--freeze", name)]
    compare(folder, "--freeze", "free.json", ["--mesh", "x:2", "--rules", "h:x", *globs], 1e-5)
    for what, args in PLANS.items():
        folder.call("dtplan", "plan", "free.json", "--mesh", "x:2", *MACHINE, *args, *globs, "-o", "plan")
        compare(folder, what, "free.json", ["--plan", "plan"], 0.08 if "bf16" in what else 1e-5)
        folder.call("dtrun", "verify", "free.json", "--plan", "plan", "--comm", "sim", "--steps", "2")
    folder.call("dtrun", "verify", "free.json", "--mesh", "x:2", "--rules", "h:x", *globs, "--comm", "sim")
    folder.call("dtplan", "plan", "free.json", "--mesh", "x:2", *MACHINE, "--rules", "batch:x", *globs, "-o", "plan")
    report = folder.train("free.json", "--plan", "plan", "--backend", "ref")
    off = max(abs(a / b - 1) for a, b in zip(report["loss"], LOSS))
    check("f64", off < 1e-6, f"losses differ by {off:g}: {report['loss']}")


def collectives(folder):
    """All-reduces of gradients over x: of the trained ones alone. ZeRO-3 gathers what is frozen and reduces nothing of it."""
    bytes_of, style = {}, ["--style", "**: data", "--style", "**: zero3"]
    for file in ("frozen", "free"):
        for how, args in (("data", ["--rules", "batch:x"]), ("zero3", style)):
            folder.call("dtplan", "plan", f"{file}.json", "--mesh", "x:2", *MACHINE, *args, "-o", "plan")
            with open(f"{folder.path}/plan", encoding="utf-8") as f:
                bytes_of[file, how] = json.load(f)["predicted"]
    trained, whole = (sum(4 * len(values(n)) for n in names) for names in (TRAINED, SHAPES))
    for file, size in (("frozen", trained), ("free", whole)):
        sent = bytes_of[file, "data"]["collectives"]["all_reduce"]["bytes"]
        check("collectives", size <= sent <= size + 64, f"{file}: {sent} bytes of gradients are reduced, not {size}")
        sent = bytes_of[file, "zero3"]["collectives"]["reduce_scatter"]["bytes"]
        check("collectives", sent <= size and (file == "frozen" or sent > trained), f"{file}: {sent} bytes of {size} scattered")
    for how in ("data", "zero3"):
        saved = bytes_of["free", how]["peak_bytes"] - bytes_of["frozen", how]["peak_bytes"]
        parts = 2 if how == "zero3" else 1
        check("memory", saved >= 2 * (whole - trained) // parts, f"{how}: {saved} bytes less")


def checkpoints(folder):
    folder.train("frozen.json", "--mesh", "x:2", "--rules", "h:x", "--save", "set", steps=2)
    report = folder.train("frozen.json", "--save", "set", "--resume", steps=3, load=None)
    check("resume", len(report["loss"]) == 1 and abs(report["loss"][0] / LOSS[2] - 1) < 1e-5, f"losses {report['loss']}")
    # what was trained whole goes on with a part of it frozen, its weights and the states of the rest taken over
    folder.train("free.json", "--save", "whole.safetensors", steps=1)
    folder.train("frozen.json", "--load", "whole.safetensors", "--save", "part.safetensors", steps=2, load=None)
    whole, part = (read_safetensors(f"{folder.path}/{name}.safetensors") for name in ("whole", "part"))
    check("load", all(whole[n] == part[n] for n in FROZEN) and whole["a"] != part["a"], "frozen weights have changed")
    # evaluation and sampling know nothing of it
    report = json.loads(folder.call("dtrun", "eval", "frozen.json", "--load", "first.safetensors", *folder.feeds, "--json"))
    check("eval", abs(report["loss"] / LOSS[0] - 1) < 1e-5, str(report))


def errors(folder):
    def refused(words, tool, command, *args):
        text = folder.call(tool, command, *args, code=2)
        check(" ".join(args), words in text and text.count("\n") == 1, text)
        check(" ".join(args), not os.path.exists(f"{folder.path}/never"), "a file was written")

    plan = ["plan", "free.json", "--mesh", "x:2", *MACHINE, "-o", "never"]
    refused("free.json: freeze: 'upp' matches no parameter; the nearest names are 'up'", "dtplan", *plan, "--freeze", "upp")
    refused("free.json: freeze: the braces in '{a' do not pair up", "dtplan", *plan, "--freeze", "{a")
    refused("train: the loss 'loss' depends on no parameter that is not frozen", "dtplan", *plan, "--freeze", "**")
    refused("train: the loss 'loss' depends on no parameter that is not frozen", "dtrun", "run", "frozen.json", "--freeze",
            "{beta,a,b,bias}")
    refused("--freeze is about training, which --forward leaves out", "dtplan", *plan, "--freeze", "up", "--forward")
    refused("no tensor 'grad.up': this parameter is frozen", "dtrun", "run", "frozen.json", "--fetch", "grad.up=never")
    folder.call("dtplan", "plan", "free.json", "--mesh", "x:2", *MACHINE, "--freeze", "up", "--mode", "tensor", "-o", "plan")
    refused("leave out --freeze", "dtrun", "run", "free.json", "--plan", "plan", "--freeze", "up")
    with open(f"{folder.path}/plan", encoding="utf-8") as f:
        plan = json.load(f)
    check("plan", plan["freeze"] == ["up"] and "adamw.m.up" not in plan["tensors"], plan["freeze"])
    for freeze, words in ((["upp"], "'upp' matches no parameter"), ("up", "freeze"), ([], "has no layout")):
        with open(f"{folder.path}/other", "w", encoding="utf-8") as f:
            json.dump({**plan, "freeze": freeze}, f)
        refused(words, "dtrun", "run", "free.json", "--plan", "other", "--comm", "sim")


def exports(folder):
    folder.call("dtplan", "plan", "frozen.json", "--mesh", "x:2", *MACHINE, "--rules", "batch:x", "-o", "plan")
    for form in ("placements", "torch", "jax", "hf", "rules"):
        folder.call("dtplan", "export", "frozen.json", "plan", "--as", form, "-o", "out")
        with open(f"{folder.path}/out", encoding="utf-8") as f:
            params = json.load(f).get("params")
        if form in ("placements", "torch"):
            params = {p["name"]: p for p in params}
        if params is not None:
            said = {name for name, p in params.items() if p.get("frozen")}
            check(f"export {form}", said == set(FROZEN), f"frozen: {sorted(said)}")
    folder.call("dtplan", "plan", "frozen.json", "--forward", "--mesh", "x:2", *MACHINE, "-o", "plan")
    text = folder.call("dtplan", "export", "frozen.json", "plan", "--as", "torch")
    check("export of a forward plan", '"frozen"' not in text, "says what is trained")


def main():
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        for part in (trains, collectives, checkpoints, errors, exports):
            part(folder)
    sys.exit(1 if failed else 0)


main()
