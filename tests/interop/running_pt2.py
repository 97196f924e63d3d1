#!/usr/bin/env python3
"""Buffers that change in training: batch norms and an average that the module keeps itself (`Running` of pt2_modules.py).
Losses of ten steps, the buffers afterwards and the loss in evaluation equal PyTorch's, which the program's file holds, on one
rank and with rows or channels split; saved on one mesh they are the same on another. The program is changed in ways that are
refused.

usage: running_pt2.py DTPLAN DTRUN FOLDER"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

DTPLAN, DTRUN, FOLDER = sys.argv[1:]
SOURCE = os.path.join(FOLDER, "running.pt2")
MESHES = ((), ("--mesh", "x:2", "--rules", "batch:x"), ("--mesh", "x:2;y:2", "--rules", "batch:x,stem_weight_0:y"))


def run(*args, code=0):
    p = subprocess.run(args, capture_output=True, text=True, check=False)
    if p.returncode != code:
        sys.exit(f"{' '.join(args)}: exit {p.returncode}, not {code}\n{p.stdout}{p.stderr}")
    return p.stdout if code == 0 else p.stderr


def numbers(path):
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack_from("<H", data, 8)
    return struct.unpack(f"<{(len(data) - 10 - n) // 8}d", data[10 + n :])


def stored(path):
    """Parameters of a safetensors file."""
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        header, data = json.loads(f.read(n)), f.read()
    kinds = {"F32": "f", "F64": "d"}
    return {name: struct.unpack(f"<{(e['data_offsets'][1] - e['data_offsets'][0]) // (4 if e['dtype'] == 'F32' else 8)}{kinds[e['dtype']]}",
                                data[slice(*e["data_offsets"])])
            for name, e in header.items() if name != "__metadata__" and e["dtype"] in kinds}


def compare(what, got, want, bar=1e-5):
    top = max(map(abs, want))
    worst = max(abs(a - b) for a, b in zip(got, want)) if len(got) == len(want) else float("inf")
    if not worst <= bar * top:
        sys.exit(f"{what}: {list(got)}, not {list(want)}")


def trained(tmp, model, weights):
    with zipfile.ZipFile(SOURCE) as z:
        names = [n for n in z.namelist() if "/test/" in n]
        z.extractall(tmp, names)
    test = lambda name: f"{tmp}/running/test/{name}.npy"
    buffers = [os.path.basename(n)[len("buffer.") : -len(".npy")] for n in names if "/buffer." in n]
    if len(buffers) != 11:
        sys.exit(f"{len(buffers)} buffers in {SOURCE}")
    feeds = [a for n in "xy" for a in ("--feed", f"{n}={test('in.' + n)}")]
    for i, mesh in enumerate(MESHES):
        sim = ("--comm", "sim") if mesh else ()
        after = f"{tmp}/{i}.safetensors"
        report = json.loads(run(DTRUN, "run", model, *mesh, *sim, "--load", weights, *feeds, "--steps", "10",
                                "--save", after, "--json", "--quiet"))
        compare(f"{mesh} losses", report["loss"], numbers(test("losses")))
        got = stored(after)
        for name in buffers:
            compare(f"{mesh} {name}", got[name], numbers(test("buffer." + name)), 1e-4)
        for other in MESHES:
            sim = ("--comm", "sim") if other else ()
            said = json.loads(run(DTRUN, "eval", model, *other, *sim, "--load", after, *feeds, "--json"))
            compare(f"{mesh} then {other} evaluated", [said["loss"]], numbers(test("evaluated")))
    for precision in ("bf16", "bf16,gradients=f32"):
        run(DTRUN, "run", model, "--precision", precision, "--load", weights, *feeds, "--steps", "10", "--save", after, "--quiet")
        got = stored(after)
        for name in [n for n in buffers if n.endswith("var") or n == "twice.running_mean"]:  # others are almost 0
            compare(f"{precision} {name}", got[name], numbers(test("buffer." + name)), 0.02)


def refused(tmp):
    def edited(edit):
        path = f"{tmp}/e.pt2"
        with zipfile.ZipFile(SOURCE) as z, zipfile.ZipFile(path, "w") as to:
            for name in z.namelist():
                data = z.read(name)
                if name.endswith("models/model.json"):
                    model = json.loads(data)
                    edit(model["graph_module"]["graph"])
                    data = json.dumps(model).encode()
                to.writestr(name, data)
        return path

    def momentum(graph):  # a cumulative average, by the counter
        next(i for n in graph["nodes"] if "batch_norm" in n["target"] for i in n["inputs"] if i["name"] == "momentum")["arg"] = {"as_none": True}

    def counted(graph):  # the counter is read
        node = next(n for n in graph["nodes"] if n["target"] == "torch.ops.aten.sub.Tensor")
        next(i for i in node["inputs"] if i["name"] == "other")["arg"] = {"as_tensor": {"name": "b_steps"}}

    for edit, words in ((momentum, "batch_norm"), (counted, "the buffer 'steps' is changed and read, and is no float")):
        text = run(DTPLAN, "import", edited(edit), "-o", f"{tmp}/never.json", code=2)
        if words not in text or text.count("\n") > 3 or os.path.exists(f"{tmp}/never.json"):
            sys.exit(text)


with tempfile.TemporaryDirectory() as folder:
    run(DTPLAN, "import", SOURCE, "-o", f"{folder}/m.json", "--weights", f"{folder}/w.safetensors")
    trained(folder, f"{folder}/m.json", f"{folder}/w.safetensors")
    refused(folder)
