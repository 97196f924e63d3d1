#!/usr/bin/env python3
"""Steps of a model in PyTorch under an exported plan, processes over gloo: prints {"step_s": seconds}, the lower decile.
Usage: run_order.py MODEL.json EXPORT.json STEPS
"""
import json
import math
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import run_torch
from run_torch import dtp_torch
from stored_params import read_json


def work(rank, plan, name, steps, here):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    sizes = [n for _, n in plan["mesh"]]
    dist.init_process_group("gloo", init_method=f"file://{here}/ranks", rank=rank, world_size=math.prod(sizes))
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=[d for d, _ in plan["mesh"]])
    module = run_torch.MODELS[name]({p["name"]: p["shape"] for p in plan["params"]})
    dtp_torch.parallelize(module, mesh, plan)
    part, parts = dtp_torch.data_parallel(mesh, plan)
    feeds = {i["name"]: torch.rand(i["shape"]) if i["name"] == "images" else torch.randint(0, 10, i["shape"])
             for i in plan["inputs"]}
    feeds = {key: x.chunk(parts)[part] for key, x in feeds.items()}
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    times = []
    for _ in range(steps):
        dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad()
        with dtp_torch.loss_parallel(plan):
            module.loss(feeds).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    mine = torch.tensor([sorted(times)[steps // 10]])
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"step_s": float(mine)}), flush=True)
    dist.barrier()  # threads of gloo end with the last message
    dist.destroy_process_group()


def main():
    name, plan, steps = read_json(sys.argv[1])["name"], read_json(sys.argv[2]), int(sys.argv[3])
    with tempfile.TemporaryDirectory() as here:
        torch.multiprocessing.spawn(work, (plan, name, steps, here), nprocs=math.prod(n for _, n in plan["mesh"]))


if __name__ == "__main__":
    main()
