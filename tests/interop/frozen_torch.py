#!/usr/bin/env python3
"""A module with frozen parameters, exported, imported, planned and trained under its plans by dtp_torch (gloo): losses and
parameters are those of one process and losses those of dtrun, what is frozen stays so to the bit, and FSDP gathers it and
reduces nothing of it. Also what dtp_torch says of a module that another plan is for. Part of ./dev interop.

Usage: frozen_torch.py BIN_DIR        with an interpreter that has torch, numpy and safetensors
"""
import json
import math
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import multiprocessing, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "interop", "python"))
from dtplan import dtp_torch  # noqa: E402

STEPS, VOCAB, D, ROWS = 3, 32, 16, 8
TENSOR = ["--style", "h.*.l: colwise({0})", "--style", "h.*.o: rowwise({0})"]
FSDP = ["--style", "**: data(x)", "--style", "**: zero3(x)"]
# mesh, options of dtplan plan; whether all of its gathers and reduce-scatters are fully_shard's
PLANS = {
    "fsdp": ("x:2", FSDP, True),
    "data": ("x:2", FSDP[:2], True),
    "tensor": ("x:2", [t.format("x") for t in TENSOR], True),
    "sequence": ("x:2", [t.format("x") for t in TENSOR] + ["--style", "h.*.n: sequence(x)"], False),
    "2x2": ("x:2;y:2", FSDP + [t.format("y") for t in TENSOR], True),
}


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n, self.l, self.o = nn.LayerNorm(D), nn.Linear(D, 2 * D), nn.Linear(2 * D, D)

    def forward(self, x):
        return x + self.o(F.gelu(self.l(self.n(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.emb, self.head = nn.Embedding(VOCAB, D), nn.Linear(D, VOCAB)
        self.h = nn.ModuleList(Layer() for _ in range(4))
        for frozen in (self.emb, self.h[0], self.h[1].l, self.h[1].o, self.h[2].l, self.h[2].o, self.h[3].n):
            frozen.requires_grad_(False)

    def forward(self, ids):
        x = self.emb(ids)
        for layer in self.h:
            x = layer(x)
        return self.head(x)


class Loss(Net):
    def forward(self, ids, labels):
        return F.cross_entropy(super().forward(ids), labels)


def feeds():
    random = torch.Generator().manual_seed(1)
    return [torch.randint(0, VOCAB, (ROWS,), generator=random) for _ in range(2)]


def whole(x):
    return x.full_tensor().detach() if isinstance(x, DTensor) else x.detach()


def train(rank, size, plan, port, results):
    torch.set_num_threads(1)
    module, (ids, labels), part, parts = Net(), feeds(), 0, 1
    context = torch.enable_grad
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{port}", rank=rank, world_size=size)
        mesh = init_device_mesh("cpu", [n for _, n in plan["mesh"]], mesh_dim_names=[d for d, _ in plan["mesh"]])
        dtp_torch.parallelize(module, mesh, plan)
        part, parts = dtp_torch.data_parallel(mesh, plan)

        def context():
            return dtp_torch.loss_parallel(plan)
    trained = {name for name, p in module.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=0.0003, weight_decay=0.1)
    losses, counter = [], None
    for _ in range(STEPS):
        counter = CommDebugMode()
        with counter:
            optimizer.zero_grad()
            with context():
                loss = F.cross_entropy(module(ids.chunk(parts)[part]), labels.chunk(parts)[part])
                loss.backward()
            optimizer.step()
        mean = whole(loss).clone()
        if size > 1:
            dist.all_reduce(mean)
        losses.append(float(mean) / size)
    counts = {str(kind): n for kind, n in counter.get_comm_counts().items()}
    counts = tuple(sum(n for kind, n in counts.items() if "base" in kind and word in kind.replace("_", "")) for word in
                   ("allgather", "reducescatter"))
    last = {name: whole(p).clone().numpy() for name, p in module.named_parameters()}
    if rank == 0:
        results.put((losses, trained, counts, last))
    if size > 1:
        dist.destroy_process_group()


def launch(size, plan, folder):
    spawn, port = multiprocessing.get_context("spawn"), os.path.join(folder, "port")
    if os.path.exists(port):
        os.remove(port)
    results = spawn.Queue()
    ranks = [spawn.Process(target=train, args=(r, size, plan, port, results), daemon=True) for r in range(size)]
    for r in ranks:
        r.start()
    result = results.get(timeout=300)
    for r in ranks:
        r.join(60)
    return result


def call(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout


def check(what, holds, text):
    if not holds:
        sys.exit(f"FAIL: frozen, {what}: {text}")


def checks_of_modules(plan):
    """A module with other frozen parameters than the plan."""
    class Mesh:
        mesh_dim_names, shape = [d for d, _ in plan["mesh"]], [n for _, n in plan["mesh"]]

    module = Net()
    dtp_torch._check(plan, module, Mesh)
    module.emb.requires_grad_(True)
    try:
        dtp_torch._check(plan, module, Mesh)
        check("check", False, "a module that trains what the plan freezes is taken")
    except ValueError as e:
        check("check", "'emb.weight' is frozen in the plan and requires_grad in the module" in str(e), str(e))
    for change, words in ((lambda m: m.head.requires_grad_(False), "2 parameters ('head.weight', ...)"),
                          (lambda m: m.requires_grad_(False), None)):  # a module that is not to be trained
        module = Net()
        change(module)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            dtp_torch._check(plan, module, Mesh)
        text = " ".join(str(w.message) for w in said)
        check("check", words in text and "--freeze" in text if words else not text, text)


def main(bin_dir):
    dtplan, dtrun = (os.path.join(bin_dir, tool) for tool in ("dtplan", "dtrun"))
    with tempfile.TemporaryDirectory() as folder:
        model, weights = f"{folder}/m.json", f"{folder}/w.safetensors"
        inputs = feeds()
        torch.export.save(torch.export.export(Loss(), tuple(inputs)), f"{folder}/m.pt2")
        call(dtplan, "import", f"{folder}/m.pt2", "-o", model, "--weights", weights)
        for name, x in zip(("ids", "labels"), inputs):
            np.save(f"{folder}/{name}.npy", x.numpy())
        ours = json.loads(call(dtrun, "run", model, "--load", weights, "--steps", str(STEPS), "--json", "--quiet",
                               *[a for n in ("ids", "labels") for a in ("--feed", f"{n}={folder}/{n}.npy")]))["loss"]
        losses, trained, _, last = launch(1, None, folder)
        off = max(abs(a / b - 1) for a, b in zip(losses, ours))
        check("one process", off < 1e-5 and len(trained) == 10, f"losses {losses}, dtrun has {ours}; trained {trained}")
        first = {name: p.detach().numpy() for name, p in Net().named_parameters()}
        for what, (mesh, options, alone) in PLANS.items():
            call(dtplan, "plan", model, "--mesh", mesh, "--machine", "models/machines/h100_64.json", "--target", "torch",
                 "--precision", "f32", "--dim", "batch=65536", *options, "-o", f"{folder}/plan")
            plan = json.loads(call(dtplan, "export", model, f"{folder}/plan", "--as", "torch"))
            got, still, counts, now = launch(math.prod(n for _, n in plan["mesh"]), plan, folder)
            off = max(abs(a / b - 1) for a, b in zip(got, losses))
            worst = max(float(abs(now[n] - last[n]).max()) for n in last)
            check(what, off < 1e-5 and worst < 1e-5, f"losses {got}, not {losses}; parameters differ by {worst}")
            check(what, still == trained, f"trained {sorted(still ^ trained)}")
            check(what, all((now[n] == first[n]).all() for n in first if n not in trained), "a frozen parameter has changed")
            wanted = tuple(plan["predicted"]["collectives"][kind]["count"] for kind in ("all_gather", "reduce_scatter"))
            check(what, not alone or counts == wanted, f"{counts} gathers and reduce-scatters of FSDP, not {wanted}")
            print(f"frozen, {what} ({plan['torch']['form']}): losses within {off:.0e}, parameters within {worst:.0e}", flush=True)
            if what == "fsdp":
                checks_of_modules(plan)


if __name__ == "__main__":
    main(sys.argv[1])
