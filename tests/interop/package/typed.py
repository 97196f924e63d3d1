"""The three lines as mypy --strict reads them in a user's script; nothing runs it."""
import torch
from torch.distributed.device_mesh import init_device_mesh

import dtplan


def parallel(model: torch.nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.nn.Module:
    machine: dtplan.Machine = dtplan.machine("h100_64").set(ib="0.5x")
    plan = dtplan.plan(model, (tokens, targets), machine=machine, mesh={"dp": 8, "tp": 8}, style=["**: data(dp)"], gap=0.01)
    step_s: float = plan.predicted.step_s
    kept: tuple[str, ...] = plan.layouts["lm_head.weight"].kept
    print(plan, step_s, kept, plan.explain("lm_head.weight"), plan.baselines["zero3"].peak_bytes)
    device_mesh = init_device_mesh("cuda", (8, 8), mesh_dim_names=("dp", "tp"))
    part, parts = plan.data_parallel(device_mesh)
    with plan.loss_parallel():
        model(tokens.chunk(parts)[part], targets.chunk(parts)[part])
    return plan.parallelize(model, device_mesh)
