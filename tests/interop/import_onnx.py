#!/usr/bin/env python3
"""Files of tests/interop/onnx (make_onnx.py): imported, run on one rank and planned on x:2;y:2, against what PyTorch
gave; and what was recognised in them.

usage: import_onnx.py DTPLAN DTRUN NAME FOLDER"""
import json
import os
import sys
import tempfile
import zipfile

from import_pt2 import KEYS, compare, cut, floats, machine_of_4, run

# as KEYS; weights whose names are made up
RECOGNISED = {
    "gpt_17": (7744, 2, 2, 5, 0, 2, 1, 2, 10),
    "gpt_18": (7840, 2, 2, 5, 0, 2, 1, 2, 9),
    "llama_18": (4848, 2, 2, 5, 4, 0, 1, 2, 15),
    "llama_23": (4848, 2, 2, 5, 4, 0, 1, 2, 15),
    "loss_18": (4848, 2, 2, 5, 4, 0, 1, 2, 15),
    "bert_17": (5523, 2, 0, 5, 0, 2, 1, 2, 12),
    "bert_18": (5523, 2, 0, 5, 0, 2, 1, 2, 12),
    "vit_18": (5607, 2, 0, 5, 0, 2, 1, 2, 12),
    "t5_17": (2056, 3, 0, 7, 0, 0, 0, 0, 17),
    "dlrm_17": (2265, 0, 0, 0, 0, 0, 0, 0, 0),
    "resizes_18": (0, 0, 0, 0, 0, 0, 0, 0, 0),
    "windows_17": (396, 0, 0, 0, 0, 0, 0, 0, 0),
    "rows_17": (15, 0, 0, 0, 0, 0, 0, 0, 0),
}


def main(dtplan, dtrun, name, folder):
    with tempfile.TemporaryDirectory() as tmp:
        path = lambda *parts: os.path.join(tmp, *parts)
        source, model, weights = os.path.join(folder, name + ".onnx"), path("m.json"), path("w.safetensors")
        with zipfile.ZipFile(os.path.join(folder, name + ".npz")) as z:
            z.extractall(tmp)
        report = json.loads(run(dtplan, "import", source, "-o", model, "--weights", weights, "--json"))
        run(dtplan, "plan", model, "--mesh", "x:2;y:2", "--machine", machine_of_4(path("cpu_4.json")), "-o", path("plan"))
        params = json.loads(run(dtplan, "export", model, path("plan"), "--as", "placements"))
        lost = [n for l in params["lost"] if l["what"] == "name" for n in l["names"]]
        got = tuple(report[k] for k in KEYS) + (len(lost),)
        if got != RECOGNISED[name]:
            sys.exit(f"{name}: {got}, not {RECOGNISED[name]}\n{report['notes']}")
        with open(model) as f:
            m = json.load(f)
        if '"broadcast"' in json.dumps(m) and name not in ("rows_17", "resizes_18"):  # of keys and values: their heads are grouped
            sys.exit(f"{name}: heads are repeated")
        outputs = ([m["train"]["loss"]] if "train" in m else []) + m["outputs"]
        feeds = [a for n in m["inputs"] for a in ("--feed", f"{n}={path('in.' + n + '.npy')}")]
        fetch = [a for i, o in enumerate(outputs) for a in ("--fetch", f"{o}={path(f'{i}.npy')}")]
        for what, more in (("one rank", []), ("x:2;y:2", ["--plan", path("plan"), "--comm", "sim"])):
            forward = [] if more and "train" in m else ["--forward"]  # a plan is of the training graph
            run(dtrun, "run", model, *forward, "--load", weights, *feeds, *fetch, *more)
            for i, o in enumerate(outputs):
                compare(f"{what}: {o}", path(f"{i}.npy"), path(f"out.{i}.npy"))
            run(dtrun, "verify", model, *more)
        if report["attention"] and report["attention"] == report["causal"] and name != "gpt_17":  # it has a table of 10 rows
            shorter(dtrun, model, weights, m, path, outputs[-1], fetch[-2:])


def shorter(dtrun, model, weights, m, path, output, fetch):
    """Neither batch nor length is fixed."""
    cut(path("in.ids.npy"), path("cut.npy"), (2, 5))
    run(dtrun, "run", model, "--forward", "--load", weights, "--feed", f"ids={path('cut.npy')}", *fetch, "--dim", "batch=2",
        "--dim", "length=5")
    n, last = m["dims"]["vocab"], len(m["outputs"]) - (0 if "train" in m else 1)
    whole = floats(path(f"out.{last}.npy"))
    rows = [x for b in range(2) for x in whole[b * m["dims"]["length"] * n :][: 5 * n]]
    compare(f"2 x 5: {output}", fetch[1].split("=")[1], rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
