#!/usr/bin/env python3
"""Programs with convolutions and buffers (import_libraries.py, import_people.py), trained: exported by torch.export in training
mode, imported with their weights, trained by dtrun on one rank and by PyTorch in f64. Gradients of the first step, losses of five
steps and buffers after ten are compared; also with the batch, rows, and rows and columns split. Called by ./dev interop trained,
which without names runs NAMES and writes docs/results/imports-trained.md; other programs of these files can be named, too.
Usage: imports_trained.py BIN_DIR [NAME ..]
"""
import copy
import json
import os
import re
import shutil
import sys

import numpy as np

from imports import reason, run, sources

HERE, RESULTS = "build/imports-trained", "docs/results/imports-trained.md"
TOLERANCE = 1e-4  # of the largest element, and
FLOOR = 1e-6      # ... of the largest gradient of all: a bias before a norm has none
OF_CHANGE = 0.01  # losses: also of what the steps change, which is as little as 1e-4
STEPS, LATER = 5, 10
MOMENTUM = {"lr": 0.0001, "momentum": 0.9}  # AdamW makes much of a gradient that is nothing but rounding
NAMES = ("resnet18", "resnet50", "efficientnet", "timm_convnext", "u_net", "dcgan", "unet", "whisper", "wav2vec2", "sam_vision",
         "falcon_h1")


def with_loss(module, feeds):
    """A module that gives a loss, its own or the squared distance to a target, and its arguments."""
    import torch

    def loss_of(out):
        out = out["loss"] if hasattr(out, "keys") and "loss" in out else out
        return next(t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.is_floating_point())

    class Trained(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.m = module

        def forward(self, feeds, target=None):
            out = loss_of(self.m(**feeds))
            return out if target is None else torch.nn.functional.mse_loss(out, target)

    with torch.no_grad():
        out = loss_of(copy.deepcopy(module)(**feeds))
    return Trained().train(), (feeds,) if out.ndim == 0 else (feeds, torch.randn_like(out))


def without_dropout(module):
    import torch
    for m in module.modules():
        if isinstance(m, torch.nn.modules.dropout._DropoutNd):
            m.p = 0.0
        for name in ("attention_dropout", "activation_dropout", "drop_prob", "layerdrop"):
            if isinstance(getattr(m, name, None), float):
                setattr(m, name, 0.0)
    return module.train()


def reference(module, args):
    """What PyTorch makes of it in f64."""
    import torch
    tree = torch.utils._pytree
    module = copy.deepcopy(module).double().train()
    args = tree.tree_map(lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v, args)
    optimizer = torch.optim.SGD(module.parameters(), **MOMENTUM)
    losses, out = [], {}
    for i in range(LATER):
        optimizer.zero_grad()
        loss = module(*args)
        loss.backward()
        if i == 0:
            out.update({f"grad.{n}": p.grad.numpy().copy() for n, p in module.named_parameters() if p.grad is not None})
        optimizer.step()
        losses.append(loss.item())
    out.update({f"buffer.{n}": b.numpy() for n, b in module.named_buffers() if b.is_floating_point()})
    return {**out, "losses": np.array(losses)}


def export(name, folder):
    import torch
    import import_people  # noqa: F401, which registers its own
    from import_libraries import PROGRAMS
    torch.manual_seed(7)
    torch.set_num_threads(1)
    module, feeds = PROGRAMS[name]()
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.02 * torch.randn_like(p))
    module, args = with_loss(without_dropout(module), feeds)
    program = torch.export.export(module, args)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    torch.export.save(program, os.path.join(folder, "program.pt2"))
    for n, v in zip(program.graph_signature.user_inputs, torch.utils._pytree.tree_leaves(args)):
        if isinstance(v, torch.Tensor):
            np.save(os.path.join(folder, f"in.{n}.npy"), v.numpy())
    for n, v in reference(module, args).items():
        np.save(os.path.join(folder, n + ".npy"), v)


def distance(got, want, floor=0.0):
    return float(np.abs(got.astype(np.float64).ravel() - want.ravel()).max() / max(np.abs(want).max(), floor, 1e-300))


def stored(path):
    from safetensors.numpy import load_file
    return load_file(path)


def splits(m):
    """Meshes and layout rules: one rank; the batch, the rows of images or sequences, and rows and columns split."""
    spatial = [n["spatial"] for n in m["nodes"] if "spatial" in n]
    rows = sorted({s[0] for s in spatial})
    columns = sorted({s[1] for s in spatial if len(s) > 1} - set(rows))
    rules = lambda names, dim: ",".join(f"{n}:{dim}" for n in names)
    both = rules(rows, "x") + "," + rules(columns, "y") if columns else ""
    return ((None, ""), ("x:2", "batch:x"), ("x:4", "batch:x"), ("x:2", rules(rows, "x")), ("x:4", rules(rows, "x")),
            ("x:2;y:2", both))


def compared(words, path, want):
    """What a run gives beside PyTorch: the distance of gradients, losses and buffers, and the tensor that is farthest."""
    names = stored(path("w.safetensors"))
    grads = [g for g in want if g.startswith("grad.") and g[5:] in names]
    buffers = [b for b in want if b.startswith("buffer.") and b[7:] in names]
    fetch = [x for g in grads for x in ("--fetch", f"{g}={path('got.' + g + '.npy')}")]
    code, _, errors = run(*words, *fetch)
    if code == 0:
        code, out, errors = run(*words, "--steps", str(LATER), "--save", path("after.safetensors"))
    if code != 0:
        return f"FAIL: dtrun exits {code}: {errors.strip()[-300:]}"
    top = max(np.abs(want[g]).max() for g in grads)
    after = stored(path("after.safetensors"))
    apart = {g: distance(np.load(path("got." + g + ".npy")), want[g], FLOOR / TOLERANCE * top) for g in grads}
    losses, told = want["losses"][:STEPS], np.array(json.loads(out)["loss"][:STEPS])
    apart["losses"] = distance(told, losses)
    if np.abs(told - losses).max() > OF_CHANGE * np.ptp(losses):
        return f"FAIL: losses {told}, not {losses}"
    apart.update({b: distance(after[b[7:]], want[b], FLOOR) for b in buffers})
    worst = max(apart, key=apart.get)
    say = lambda kind: max([0.0] + [d for n, d in apart.items() if n.startswith(kind)])
    text = f"{say('grad'):.0e}, {say('losses'):.0e}" + (f", {say('buffer'):.0e}" if buffers else "")
    return text + (f" FAIL: {worst}" if apart[worst] > TOLERANCE else "")


def result(bin_dir, name):
    """The cells of the table behind the name."""
    folder = os.path.join(HERE, name)
    path = lambda part: os.path.join(folder, part)
    dtplan, dtrun = (os.path.join(bin_dir, n) for n in ("dtplan", "dtrun"))
    code, _, errors = run(dtplan, "import", path("program.pt2"), "-o", path("m.json"), "--weights", path("w.safetensors"))
    if code != 0:
        return [f"refused: {reason(errors)}" if code == 2 else f"FAIL: import exits {code}: {errors[-300:]}"]
    with open(path("m.json"), encoding="utf-8") as f:
        m = json.load(f)
    m["train"]["optimizer"] = {"momentum": MOMENTUM}
    with open(path("m.json"), "w", encoding="utf-8") as f:
        json.dump(m, f)
    want = {f[:-4]: np.load(path(f)) for f in os.listdir(folder) if re.match(r"(grad|buffer)\.|losses", f)}
    feeds = [x for n in m["inputs"] for x in ("--feed", f"{n}={path(f'in.{n}.npy')}")]
    words = [dtrun, "run", path("m.json"), "--load", path("w.safetensors"), *feeds, "--json", "--quiet"]
    names = stored(path("w.safetensors"))
    cells = [", ".join(str(sum(n.startswith(kind) and n[len(kind):] in names for n in want)) for kind in ("grad.", "buffer."))]
    for mesh, rules in splits(m):
        split = ["--mesh", mesh, "--rules", rules, "--uneven", "--comm", "sim"] if mesh else []
        cells.append(compared([*words, *split], path, want) if rules or not mesh else "")
    return cells


def main(bin_dir, *names):
    known = sources()
    unknown = set(names) - set(known)
    if unknown:
        sys.exit(f"no program {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    rows = {}
    for name in names or NAMES:
        if not os.path.exists(os.path.join(HERE, name, "losses.npy")):
            export(name, os.path.join(HERE, name))
        rows[name] = result(bin_dir, name)
        print(f"{name}: {' | '.join(rows[name])}", flush=True)
    if not names:
        write(rows)
    return 1 if any("FAIL" in cell or "refused" in cell for row in rows.values() for cell in row) else 0


def write(rows):
    with open(RESULTS, "w", encoding="utf-8") as f:
        f.write(f"""# Programs with convolutions, trained beside PyTorch

    ./dev interop trained

Each program is exported by `torch.export` in training mode with small sizes, random weights and no dropout, imported with its
weights, and trained by dtrun in f32 and by PyTorch in f64, with momentum. A program without a loss has the squared distance to a
random target. A cell has the largest distance of gradients of the first step, losses of {STEPS} steps and buffers after {LATER},
as a share of the largest element of the tensor (gradients: of at least {FLOOR / TOLERANCE:g} of the largest one of all).
At most {TOLERANCE:g} is allowed, of losses also {OF_CHANGE:g} of what the steps change.

| program | gradients, buffers | one rank | batch on 2 | batch on 4 | rows on 2 | rows on 4 | rows and columns on 2 x 2 |
|---|---|---|---|---|---|---|---|
""")
        for name, cells in rows.items():
            f.write(f"| {name} | {' | '.join(c.replace('|', '/') for c in cells)} |\n")
        f.write("""
`./dev interop trained NAME ..` runs some and writes nothing here.
""")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
