"""dtp_torch.pipeline: this rank's stage of a plan with pipeline stages, and the schedule that runs it."""
from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from . import dtp_torch
from .dtp_torch import Json
from .errors import InputError


def pipeline(module: nn.Module, mesh: DeviceMesh, plan: Json, example: tuple[Tensor, ...], loss: Any) -> tuple[Any, nn.Module]:
    how, stages = plan["torch"], plan["torch"].get("stages")
    if stages is None:
        raise InputError("dtp_torch: pipeline: the plan has no stages")
    names = [name for name, _ in plan["mesh"]]
    wanted, given = ("stage", len(stages["table"])), list(zip(mesh.mesh_dim_names or (), mesh.shape))
    if given[:1] != [wanted] or len(given) != 1 + len(names):
        raise InputError(f"dtp_torch: pipeline: the mesh is {given}, the plan's {[wanted, *map(tuple, plan['mesh'])]}")
    if how["tensor_dims"] or how["fully_shard"] or how["redistribute"]:
        raise InputError("dtp_torch: pipeline: parameters are split within the stages: cut the module by the lists of 'modules', "
                         "and apply the styles to each part")
    dtp_torch._check(plan, module, mesh[tuple(names)] if len(names) > 1 else mesh[names[0]])
    begin = dict.fromkeys(stages["begin"], pipelining.SplitPoint.BEGINNING)
    if len(begin) != len(stages["modules"]) - 1:
        raise InputError("dtp_torch: pipeline: a stage does not begin with a module of a numbered list")
    pipe = pipelining.pipeline(module, mb_args=example, split_spec=begin)
    rank = mesh["stage"].get_local_rank()
    chunks = range(rank, len(stages["modules"]), len(stages["table"]))  # PyTorch's stages of this rank
    parts = [pipe.get_stage_module(chunk) for chunk in chunks]
    for chunk, part in zip(chunks, parts):
        strange = [name for name, _ in part.named_parameters()
                   if not any(name == m or name.startswith(m + ".") for m in stages["modules"][chunk])]
        if strange:
            raise InputError(f"dtp_torch: pipeline: {strange[0]!r} lies on stage {rank} in the module, and not in the plan")
        dtp_torch._recompute(part, [name for name in how["checkpoint"] if name in stages["modules"][chunk]])
    built = [pipe.build_stage(chunk, next(module.parameters()).device, mesh["stage"].get_group()) for chunk in chunks]
    schedule = _PipelineScheduleRuntime(built, stages["microbatches"], loss_fn=loss)
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "table.csv")
        with open(table, "w", encoding="utf-8") as f:
            f.write("\n".join(stages["table"]) + "\n")
        schedule._load_csv(table)
    part = parts[0] if len(parts) == 1 else nn.ModuleList(parts)
    if how["data_dims"]:
        schedule.step = _averaged(schedule.step, part, dtp_torch.submesh(mesh, how["data_dims"]).get_group())
    return schedule, part


def _averaged(step: Callable[..., Any], part: nn.Module, group: Any) -> Callable[..., Any]:
    """A step behind which gradients are averaged over data ranks, once for all microbatches."""
    def run(*args: Any, **named: Any) -> Any:
        out = step(*args, **named)
        for p in part.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad, group=group)
                p.grad /= dist.get_world_size(group)
        return out
    return run
