#!/usr/bin/env python3
"""Trains a model in PyTorch under a plan that dtplan exported, with processes over gloo; prints what came of it as JSON.

The parameters come from a checkpoint of dtrun, through the names file beside the model. --reference: one
process, no plan.
Usage: run_torch.py MODEL.json EXPORT.json CHECKPOINT_DIR --feed INPUT=FILE.npy... [--steps 5] [--reference] [--out FILE]
Result: losses; local_param_bytes, per rank; collectives, kind -> how many a step has, as CommDebugMode counts them; their bytes,
of whole buffers: what is reduced, or what all ranks gather.
"""
import argparse
import json
import math
import os
import re
import sys
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import implicit_replication
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "interop", "python"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples"))
from dtplan import dtp_torch  # noqa: E402
import torch_gpt  # noqa: E402
from stored_params import read_json, read_params  # noqa: E402


# ---- the models, with the names of models/*.names.json ----

def attention_of_dtensors(q, k, v):
    """DTensor has no rule for the CPU's attention."""
    if not isinstance(q, DTensor):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    mask = torch.full((q.shape[-2], k.shape[-2]), -math.inf).triu(1)
    with implicit_replication():
        return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask, -1) @ v


torch_gpt.attention = attention_of_dtensors


class GptBytes(torch_gpt.Gpt):
    def loss(self, feeds):
        text = feeds["text"].long()
        return F.cross_entropy(self(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


class MlpDigits(nn.Module):
    def __init__(self, shapes):
        super().__init__()
        self.fc1, self.fc2 = (nn.Linear(*reversed(shapes[f"fc{i}.weight"])) for i in (1, 2))

    def forward(self, images):
        return self.fc2(F.relu(self.fc1(images)))

    def loss(self, feeds):
        return F.cross_entropy(self(feeds["images"]), feeds["labels"].long())


MODELS = {"gpt_bytes": GptBytes, "mlp_digits": MlpDigits, "gpt": GptBytes}


# ---- training ----

def local(x):
    return x.to_local() if isinstance(x, DTensor) else x


class CollectiveBytes(TorchDispatchMode):
    """Bytes by op: of the larger of what a collective takes and gives, which is its whole buffer."""

    def __init__(self):
        super().__init__()
        self.bytes = {}

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        out = op(*args, **(kwargs or {}))
        name = str(op)
        if "c10d" in name.partition(".")[0] and re.search("reduce|gather|to_?all|broadcast", name):
            sizes = [sum(x.numel() * x.element_size() for x in tree_leaves(part) if isinstance(x, torch.Tensor))
                     for part in (*args, out)]
            self.bytes[name] = self.bytes.get(name, 0) + max(sizes)
        return out


def train(rank, args, size, port_file):
    torch.set_num_threads(1)
    model, arrays, _ = read_params(args.model, args.checkpoint)
    params = {name: torch.from_numpy(value) for name, value in arrays.items()}
    module = MODELS[model["name"]]({name: p.shape for name, p in params.items()})
    module.load_state_dict(params)
    feeds = {name: torch.from_numpy(np.load(path)) for name, path in (feed.split("=", 1) for feed in args.feed)}
    context, part, parts = torch.enable_grad, 0, 1
    if size > 1:
        plan = read_json(args.export)
        dist.init_process_group("gloo", init_method=f"file://{port_file}", rank=rank, world_size=size)
        mesh = init_device_mesh("cpu", [n for _, n in plan["mesh"]], mesh_dim_names=[d for d, _ in plan["mesh"]])
        dtp_torch.parallelize(module, mesh, plan)
        if list(module.state_dict()) != list(params) and sorted(module.state_dict()) != sorted(params):
            sys.exit("the keys of the state dict have changed")
        part, parts = dtp_torch.data_parallel(mesh, plan)
        feeds = {name: x.chunk(parts)[part] for name, x in feeds.items()}

        def context():
            return dtp_torch.loss_parallel(plan)
    hyper = dict(model["train"]["optimizer"]["adamw"])
    betas = (hyper.pop("beta1", 0.9), hyper.pop("beta2", 0.999))
    optimizer = torch.optim.AdamW(module.parameters(), betas=betas, **hyper)
    losses, counts, moved = [], {}, 0
    for _ in range(args.steps):
        counter, sizes = CommDebugMode(), CollectiveBytes()
        with sizes, counter:
            optimizer.zero_grad()
            with context():
                loss = module.loss(feeds)
                loss.backward()
            optimizer.step()
        counts = {str(kind): n for kind, n in counter.get_comm_counts().items()}
        moved = sum(sizes.bytes.values())
        mean = loss.detach().full_tensor() if isinstance(loss, DTensor) else loss.detach()
        if size > 1:
            dist.all_reduce(mean)
        losses.append(float(mean) / size)
    held = [sum(local(p).numel() * p.element_size() for p in module.parameters())]
    if size > 1:
        everyones = [None] * size
        dist.all_gather_object(everyones, held[0])
        held = everyones
        dist.destroy_process_group()
    if rank == 0:
        result = {"losses": losses, "local_param_bytes": held, "collectives": by_kind(counts), "bytes": moved}
        text = json.dumps(result, indent=2) + "\n"
        if args.out:
            with open(args.out, "w", encoding="utf-8") as file:
                file.write(text)
        else:
            print(text, end="")


def by_kind(counts):
    kinds = {}
    for name, n in counts.items():
        for kind, words in (("all_reduce", "all_?reduce"), ("reduce_scatter", "reduce_scatter"),
                            ("all_gather", "all_?gather"), ("all_to_all", "all_?to_?all"), ("broadcast", "broadcast")):
            if re.search(words, name):
                kinds[kind] = kinds.get(kind, 0) + n
                break
        else:
            kinds[name] = kinds.get(name, 0) + n
    return kinds


def main():
    parser = argparse.ArgumentParser()
    for name in ("model", "export", "checkpoint"):
        parser.add_argument(name)
    parser.add_argument("--feed", action="append", default=[])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    size = 1 if args.reference else math.prod(n for _, n in read_json(args.export)["mesh"])
    with tempfile.TemporaryDirectory() as here:
        if size == 1:
            train(0, args, 1, None)
        else:
            torch.multiprocessing.spawn(train, (args, size, os.path.join(here, "ranks")), nprocs=size)


if __name__ == "__main__":
    main()
