#!/usr/bin/env python3
"""Programs that people have (import_libraries.py, import_people.py): exported by torch.export, imported, run by dtrun on one rank against
PyTorch. Called by ./dev interop imports. Exports are kept in build/imports and made once. Without names all are run and
docs/results/imports.md is written. A program passes when every output differs by at most 1e-4 of the largest number.
Usage: imports.py BIN_DIR [NAME ..]
"""
import json
import os
import re
import subprocess
import sys

import numpy as np

HERE, RESULTS, TOLERANCE = "build/imports", "docs/results/imports.md", 1e-4


def export(name, folder):
    """FOLDER/program.pt2, and what is fed to it and what it gives, as one .npy file each; FOLDER/call.json names
    them."""
    import torch
    import import_people  # noqa: F401, which registers its own
    from import_libraries import PROGRAMS
    torch.manual_seed(7)
    torch.set_num_threads(1)
    module, feeds = PROGRAMS[name]()
    module.eval()
    with torch.no_grad():
        for p in module.parameters():  # zeros and ones of initial weights would hide mistakes
            p.add_(0.02 * torch.randn_like(p))
    program = torch.export.export(module, (), feeds)
    with torch.no_grad():
        out = module(**feeds)
    flat = lambda tree: torch.utils._pytree.tree_leaves(tree)
    os.makedirs(folder, exist_ok=True)
    torch.export.save(program, os.path.join(folder, "program.pt2"))
    signature, call = program.graph_signature, {"in": [], "out": [], "source": PROGRAMS[name].__doc__}
    for key, names, values in (("in", signature.user_inputs, flat(feeds)), ("out", signature.user_outputs, flat(out))):
        for n, v in zip(names, values):
            if isinstance(v, torch.Tensor):
                np.save(os.path.join(folder, f"{key}.{n}.npy"), v.detach().float().numpy() if v.is_floating_point() else v.numpy())
                call[key].append(n)
    with open(os.path.join(folder, "call.json"), "w", encoding="utf-8") as f:
        json.dump(call, f)


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    return done.returncode, done.stdout, done.stderr


def result(bin_dir, name):
    """The line of the table."""
    folder = os.path.join(HERE, name)
    path = lambda *parts: os.path.join(folder, *parts)
    dtplan, dtrun = (os.path.join(bin_dir, n) for n in ("dtplan", "dtrun"))
    if not os.path.exists(path("call.json")):
        return "torch.export fails"
    with open(path("call.json"), encoding="utf-8") as f:
        call = json.load(f)
    code, _, errors = run(dtplan, "import", path("program.pt2"), "-o", path("m.json"), "--weights", path("w.safetensors"))
    if code != 0:
        return f"refused: {reason(errors)}" if code == 2 else f"FAIL: import exits {code}: {errors[-300:]}"
    with open(path("m.json"), encoding="utf-8") as f:
        m = json.load(f)
    feeds = [x for n in m["inputs"] for x in ("--feed", f"{n}={path(f'in.{n}.npy')}")]
    outputs = ([m["train"]["loss"]] if "train" in m else []) + m["outputs"]
    fetch = [x for i, o in enumerate(outputs) for x in ("--fetch", f"{o}={path(f'got.{i}.npy')}")]
    code, _, errors = run(dtrun, "run", path("m.json"), "--forward", "--load", path("w.safetensors"), *feeds, *fetch)
    if code != 0:
        return f"FAIL: dtrun exits {code}: {errors.strip()[-300:]}"
    want = {n: np.load(path(f"out.{n}.npy")) for n in call["out"]}
    names = list(call["out"])
    if "train" in m:  # the loss is the first one
        loss = next(n for n in names if want[n].ndim == 0 and want[n].dtype == np.float32)
        names.remove(loss)
        names.insert(0, loss)
    worst = 0.0
    if len(names) != len(outputs):
        return f"FAIL: {len(outputs)} outputs, PyTorch has {len(names)}"
    for i, n in enumerate(names):
        got, whole = np.load(path(f"got.{i}.npy")).astype(np.float64), want[n].astype(np.float64)
        if got.size != whole.size:
            return f"FAIL: output {n} has {got.size} elements, PyTorch's {whole.size}"
        top = np.abs(whole).max() if whole.size else 0
        worst = max(worst, float(np.abs(got.ravel() - whole.ravel()).max() / (top or 1)))
    return f"equal within {worst:.0e}" if worst <= TOLERANCE else f"FAIL: differs by {worst:.1e} of the largest"


def reason(errors):
    """The first error without folders."""
    lines = [re.sub(r"build/imports/[^/ ]*/", "", l) for l in errors.strip().split("\n")]
    text = re.sub(r"\s+", " ", re.sub(r"\(File [^)]*\)", "", lines[-1])).strip()
    text = re.sub(r"(dtp\.\w+) in '[^']*' ?", r"\1", text)
    text = re.sub(r"\d+ ops? (?:is|are) not supported, the first is aten\.(\w+)\S* in '[^']*'", r"\1", text)
    return text.removeprefix("dtplan: program.pt2: ").replace(" :", ":").split(", and only")[0][:76]


def sources():
    """By program: where it is from. Without importing PyTorch."""
    found = {}
    for file in ("import_libraries.py", "import_people.py"):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), file), encoding="utf-8") as f:
            found.update(re.findall(r"@program\ndef (\w+)\(\):\n    \"\"\"(.*)\"\"\"", f.read()))
    return found


def main(bin_dir, *names):
    every = sources()
    unknown = set(names) - set(every)
    if unknown:
        sys.exit(f"no program {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    rows = {}
    for name in names or every:
        if not os.path.exists(os.path.join(HERE, name, "call.json")):
            try:
                export(name, os.path.join(HERE, name))
            except Exception as e:  # torch.export or the library, not ours
                print(f"{name}: torch.export: {str(e)[:300]}")
        rows[name] = result(bin_dir, name)
        print(f"{name}: {rows[name]}", flush=True)
    good = sum(r.startswith("equal") for r in rows.values())
    print(f"{good} of {len(rows)} programs run and equal PyTorch")
    if not names:
        write(every, rows)
    return 1 if any(r.startswith("FAIL") for r in rows.values()) else 0


def write(origin, rows):
    good = sum(r.startswith("equal") for r in rows.values())
    with open(RESULTS, "w", encoding="utf-8") as f:
        f.write(f"""# Programs of PyTorch that are imported

    ./dev interop imports

Each program is exported by `torch.export` with small sizes and random weights, imported with its weights, run by dtrun
on one rank and compared with PyTorch on the same inputs. {good} of {len(rows)} run and equal PyTorch.

| program | from | result |
|---|---|---|
""")
        for name, text in rows.items():
            f.write(f"| {name} | {origin[name]} | {text.replace('|', '/')} |\n")
        f.write("""
"equal within E": no element of any output differs by more than E of the largest element of that output. "refused":
the first thing that the importer does not support. Those with convolutions are trained on [a page of their
own](imports-trained.md); gradients of other programs are compared by tests/interop/import_pt2.py. `./dev interop imports NAME ..`
runs some and writes nothing here.
""")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
