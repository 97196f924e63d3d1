#!/usr/bin/env python3
"""Batch norm in microbatches: statistics are those of each part of the batch, and running averages follow after every part, as in
PyTorch where gradients are accumulated. Oracle: the parts as batches of their own, one after the other, at a learning rate of 0.
Their gradients' mean is the gradient of the whole, and the averages at the end are the same.

usage: batch_parts.py DTRUN"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

DTRUN, BATCH, SEED = sys.argv[1], 16, 11
DIMS = {"batch": BATCH, "pixels": 6, "features": 4, "classes": 5}


def norm(name, x, features):
    """Nodes of a batch norm of x, and its parameters."""
    n = lambda s: f"{name}.{s}"
    nodes = [{"id": n("mean.batch"), "op": "reduce", "in": [x], "kind": "mean", "over": ["batch"]},
             {"id": n("mean"), "op": "in_training", "in": [n("mean.batch"), n("running_mean")]},
             {"id": n("centred"), "op": "sub", "in": [x, n("mean")]},
             {"id": n("squares"), "op": "square", "in": [n("centred")]},
             {"id": n("var.batch"), "op": "reduce", "in": [n("squares")], "kind": "mean", "over": ["batch"]},
             {"id": n("var"), "op": "in_training", "in": [n("var.batch"), n("running_var")]},
             {"id": n("eps"), "op": "constant", "in": [], "out": [features], "value": 1e-5},
             {"id": n("sum"), "op": "add", "in": [n("var"), n("eps")]},
             {"id": n("rate"), "op": "rsqrt", "in": [n("sum")]},
             {"id": n("scaled"), "op": "mul", "in": [n("centred"), n("rate")]},
             {"id": name, "op": "mul", "in": [n("scaled"), n("gamma")]}]
    for what in ("mean", "var"):
        nodes += [{"id": n(what + ".old"), "op": "scale", "in": [n("running_" + what)], "factor": 0.9},
                  {"id": n(what + ".new"), "op": "scale", "in": [n(what)], "factor": 0.1},
                  {"id": n(what + ".next"), "op": "add", "in": [n(what + ".old"), n(what + ".new")]}]
    params = {n("gamma"): {"dims": [features], "init": "ones"},
              n("running_mean"): {"dims": [features], "init": "zeros", "update": n("mean.next")},
              n("running_var"): {"dims": [features], "init": "ones", "update": n("var.next")}}
    return nodes, params


def model():
    first, some = norm("first", "hidden", "features")
    second, more = norm("second", "product", "features")
    return {"format": "dtp.model/1", "name": "norms", "dims": DIMS,
            "inputs": {"x": {"dims": ["batch", "pixels"]}, "y": {"dims": ["batch"], "dtype": "i32", "below": "classes"}},
            "params": {"w": {"dims": ["pixels", "features"], "init": {"normal": 0.5}}, **some, **more,
                       "head": {"dims": ["features", "classes"], "init": {"normal": 0.5}}},
            "nodes": [{"id": "hidden", "op": "einsum", "in": ["x", "w"], "out": ["batch", "features"]}, *first,
                      {"id": "act", "op": "relu", "in": ["first"]},
                      {"id": "product", "op": "add", "in": ["act", "hidden"]}, *second,
                      {"id": "logits", "op": "einsum", "in": ["second", "head"], "out": ["batch", "classes"]},
                      {"id": "loss", "op": "cross_entropy", "in": ["logits", "y"], "over": "classes"}],
            "train": {"loss": "loss", "optimizer": {"sgd": {"lr": 0}}}}


def write(path, kind, shape, numbers):
    head = str({"descr": kind, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
                struct.pack(f"<{len(numbers)}{'f' if kind == '<f4' else 'i'}", *numbers))


def floats(path):
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack_from("<H", data, 8)
    size = 8 if b"<f8" in data[:10 + n] else 4
    return struct.unpack(f"<{(len(data) - 10 - n) // size}{'d' if size == 8 else 'f'}", data[10 + n:])


def step(here, batch, more):
    """Gradients and averages of a step."""
    params = model()["params"]
    trained = [p for p in params if "update" not in params[p]]
    names = [f"grad.{p}" for p in trained] + [p for p in params if "update" in params[p]] + ["loss"]
    fetch = [a for i, n in enumerate(names) for a in ("--fetch", f"{n}={here}/{i}.npy")]
    p = subprocess.run([DTRUN, "run", f"{here}/m.json", "--dim", f"batch={batch}", "--steps", "1", *more, *fetch],
                       capture_output=True, text=True, check=False)
    if p.returncode != 0:
        sys.exit(f"{' '.join(p.args)}: exit {p.returncode}\n{p.stderr}")
    return {n: floats(f"{here}/{i}.npy") for i, n in enumerate(names)}


def apart(here, x, y, parts):
    """The same of parts that are batches of their own."""
    size, sums, saved = BATCH // parts, {}, []
    for j in range(parts):
        write(f"{here}/xj.npy", "<f4", (size, DIMS["pixels"]), x[j * size * DIMS["pixels"]:][:size * DIMS["pixels"]])
        write(f"{here}/yj.npy", "<i4", (size,), y[j * size:][:size])
        got = step(here, size, ["--feed", f"x={here}/xj.npy", "--feed", f"y={here}/yj.npy", *saved, "--save", f"{here}/s{j}"])
        saved = ["--load", f"{here}/s{j}"]
        for name, numbers in got.items():
            before = sums.get(name, [0] * len(numbers))
            summed = name == "loss" or name.startswith("grad.")
            sums[name] = [a + b / parts for a, b in zip(before, numbers)] if summed else numbers
    return sums


def main():
    rng = random.Random(SEED)
    print("seed", SEED)
    x = [rng.gauss(0, 1) for _ in range(BATCH * DIMS["pixels"])]
    y = [rng.randrange(DIMS["classes"]) for _ in range(BATCH)]
    with tempfile.TemporaryDirectory() as here:
        with open(f"{here}/m.json", "w", encoding="utf-8") as f:
            json.dump(model(), f)
        write(f"{here}/x.npy", "<f4", (BATCH, DIMS["pixels"]), x)
        write(f"{here}/y.npy", "<i4", (BATCH,), y)
        feeds = ["--feed", f"x={here}/x.npy", "--feed", f"y={here}/y.npy"]
        for parts in (1, 2, 4):
            want = apart(here, x, y, parts)
            micro = ["--microbatches", str(parts)] if parts > 1 else []
            split = ["--comm", "sim", "--mesh", "x:2", "--rules"]
            for more in ([], [*split, "batch:x"], [*split, "features:x"]):
                got = step(here, BATCH, [*feeds, *micro, *more])
                for name, numbers in want.items():
                    top = max(map(abs, numbers)) or 1
                    worst = max(abs(a - b) for a, b in zip(got[name], numbers)) / top
                    if not worst <= 2e-5:
                        sys.exit(f"{parts} parts, {' '.join(more)}: {name} differs by {worst:.1e}: {got[name]}, not {numbers}")
                print(f"{parts} parts, {' '.join(more) or 'one rank'}: equal")


if __name__ == "__main__":
    main()
