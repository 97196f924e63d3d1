#!/usr/bin/env python3
"""requires_grad of the parameters of a program: "frozen" of the model. The adapters of make_pt2.py are trained for three
steps and compared with PyTorch 2.15 (AdamW(trained, lr=0.0003, weight_decay=0.1) in f64); the other programs are those
with requires_grad edited.

usage: frozen_pt2.py DTPLAN DTRUN FOLDER"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

LOSS = [2.174800001192137, 2.1724248362446272, 2.170058577865005]
GRADIENTS = {  # of the third step, the first four numbers
    "norm.bias": [-0.0036480118965103586, -0.005489469765622012, -0.04473499105948647, 0.13926222410630656],
    "h.0.a.weight": [-0.0229442569089818, -0.023744279651845928, -0.18133520232412234, -0.017415368680439275]}
TRAINED = {"norm.bias"} | {f"h.{k}.{n}.weight" for k in range(3) for n in "ab"}
DTPLAN, DTRUN, FOLDER = sys.argv[1:]


def run(*args, code=0):
    p = subprocess.run(args, capture_output=True, text=True, check=False)
    if p.returncode != code:
        sys.exit(f"{' '.join(args)}: exit {p.returncode}, not {code}\n{p.stdout}{p.stderr}")
    return p.stdout if code == 0 else p.stderr


def check(what, holds, text=""):
    if not holds:
        sys.exit(f"{what}: {text}")


def edited(name, out, edit):
    """A copy of a program, its graph changed by edit(tensor_values, config of the weights)."""
    with zipfile.ZipFile(os.path.join(FOLDER, name + ".pt2")) as z, zipfile.ZipFile(out, "w") as to:
        texts = {e: z.read(e) for e in z.namelist()}
        graph, weights = f"{name}/models/model.json", f"{name}/data/weights/model_weights_config.json"
        model, config = json.loads(texts[graph]), json.loads(texts[weights])
        edit(model["graph_module"]["graph"]["tensor_values"], config["config"])
        texts[graph], texts[weights] = json.dumps(model).encode(), json.dumps(config).encode()
        for e, data in texts.items():
            to.writestr(e, data)
    return out


def freeze(wanted):
    def edit(values, _):
        for name, v in values.items():
            if name.startswith("p_"):
                v["requires_grad"] = not wanted(name)
    return edit


def all_params(model):
    """name -> spec, those of blocks as "h.*.base.weight"."""
    out = dict(model["params"])
    for node in model["nodes"]:
        for name, spec in model.get("blocks", {}).get(node.get("repeat"), {}).get("params", {}).items():
            out[f"{node['as']}.*.{name}"] = spec
    return out


def import_(source, tmp):
    path = os.path.join(tmp, "m.json")
    said = run(DTPLAN, "import", source, "-o", path, "--weights", os.path.join(tmp, "w.safetensors"))
    with open(path, encoding="utf-8") as f:
        return path, json.load(f), said


def trained(tmp):
    path, model, _ = import_(os.path.join(FOLDER, "adapters.pt2"), tmp)
    got = {n for n, spec in all_params(model).items() if not spec.get("frozen")}
    check("trained", got == {n.replace("h.0", "h.*") for n in TRAINED if "h.1" not in n and "h.2" not in n}, got)
    with zipfile.ZipFile(os.path.join(FOLDER, "adapters.pt2")) as z:
        z.extractall(tmp, [n for n in z.namelist() if "/test/" in n])
    feeds = [a for n in ("ids", "labels") for a in ("--feed", f"{n}={tmp}/adapters/test/in.{n}.npy")]
    fetch = [a for n in GRADIENTS for a in ("--fetch", f"grad.{n}={tmp}/{n}.npy")]
    for mesh in ([], ["--mesh", "x:2", "--rules", "batch:x", "--comm", "sim"]):
        report = json.loads(run(DTRUN, "run", path, *mesh, "--load", f"{tmp}/w.safetensors", *feeds, *fetch, "--steps", "3",
                                "--save", f"{tmp}/after.safetensors", "--json", "--quiet"))
        off = max(abs(a / b - 1) for a, b in zip(report["loss"], LOSS))
        check("losses", len(report["loss"]) == 3 and off < 1e-6, f"{report['loss']} differ by {off}")
        for name, want in GRADIENTS.items():
            with open(f"{tmp}/{name}.npy", "rb") as f:
                data = f.read()
            got = struct.unpack_from("<4f", data, 10 + struct.unpack_from("<H", data, 8)[0])
            check("gradients", max(abs(a - b) for a, b in zip(got, want)) < 1e-5, f"{name}: {got}")
    before, after = read(f"{tmp}/w.safetensors"), read(f"{tmp}/after.safetensors")
    for name, data in before.items():
        check("weights", (after[name] == data) == (name not in TRAINED), f"'{name}' has{' not' * (name in TRAINED)} changed")


def read(path):
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        header, data = json.loads(f.read(n)), f.read()
    return {name: data[slice(*e["data_offsets"])] for name, e in header.items() if name != "__metadata__"}


def blocks(tmp):
    """Layers are instances of one block where the same of their parameters are frozen."""
    for what, wanted, count in (("none", lambda n: False, 2), ("embed", lambda n: "embed" in n, 2),
                                ("norms", lambda n: "norm" in n, 2), ("first layer", lambda n: "layers_0" in n, 0),
                                ("a norm of the second", lambda n: n == "p_layers_1_norm_1_weight", 0)):
        path, model, _ = import_(edited("llama_loss", f"{tmp}/e.pt2", freeze(wanted)), tmp)
        repeats = sum(node.get("count", 0) for node in model["nodes"])
        check(what, repeats == count, f"{repeats} instances")
        graph = run(DTPLAN, "show", path, "--stage", "graph")
        got = {line.split()[1] for line in graph.splitlines() if line.startswith("param") and line.endswith(" frozen")}
        params = {line.split()[1] for line in graph.splitlines() if line.startswith("param")}
        check(what, got == {n for n in params if wanted("p_" + n.replace(".", "_"))}, got)
        for name in got:
            check(what, f"update.{name} " not in graph and f"adamw.m.{name} " not in graph, name)
        run(DTRUN, "verify", path, "--mesh", "x:2", "--rules", "batch:x", "--comm", "sim", "--dim", "length=8")


def nothing_to_train(tmp):
    path, model, said = import_(edited("adapters", f"{tmp}/e.pt2", freeze(lambda n: True)), tmp)
    check("all frozen", "train" not in model and len(model["outputs"]) == 1, model["outputs"])
    check("all frozen", "no parameter requires a gradient" in said, said)
    run(DTRUN, "run", path)


def refusals(tmp):
    def number(values, _):
        values["p_norm_bias"]["requires_grad"] = 1

    def shared(values, config):
        config["head.weight"]["path_name"] = config["table.weight"]["path_name"]
        values["p_head_weight"]["requires_grad"] = True

    for edit, words in ((number, "requires_grad"),
                        (shared, "'table.weight' and 'head.weight' share their elements, and only 'head.weight' requires")):
        text = run(DTPLAN, "import", edited("adapters", f"{tmp}/e.pt2", edit), "-o", f"{tmp}/never.json", code=2)
        check(words, words in text and text.count("\n") == 1 and not os.path.exists(f"{tmp}/never.json"), text)


for part in (trained, blocks, nothing_to_train, refusals):
    with tempfile.TemporaryDirectory() as folder:
        part(folder)
