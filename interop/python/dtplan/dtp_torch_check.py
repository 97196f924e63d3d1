"""dtp_torch.check: a training step of one rank under a plan, without data and without other ranks, beside the prediction."""
from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from . import dtp_torch
from .dtp_torch import Json, LossOf, OptimizerOf
from .errors import InputError


def check(module: nn.Module, mesh: DeviceMesh | None, plan: Json, loss: LossOf | None, optimizer: OptimizerOf) -> Json:
    began = not dist.is_initialized()
    if mesh is None:
        mesh = _fake_mesh(plan)
    elif dist.get_backend(mesh.get_group(0)) != "fake":
        raise InputError("dtp_torch: check: the mesh has real ranks: give None, or a mesh over the backend 'fake'")
    try:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with mode:
            twin = _without_data(module)
        dtp_torch.parallelize(twin, mesh, plan)
        with mode:
            step = _Step(twin, mesh, plan, loss or _loss_of, optimizer)
            tracked, counts = step.track(), step.count()
    finally:
        if began and dist.is_initialized():
            dist.destroy_process_group()
    return _beside(plan.get("predicted"), tracked, counts)


def _fake_mesh(plan: Json) -> DeviceMesh:
    if dist.is_initialized():
        raise InputError("dtp_torch: check: this process is in a group already: give a mesh over the backend 'fake'")
    sizes = [size for _, size in plan["mesh"]]
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=math.prod(sizes))
    return init_device_mesh("cpu", sizes, mesh_dim_names=[name for name, _ in plan["mesh"]])


def _without_data(module: nn.Module) -> nn.Module:
    """A copy whose parameters and buffers are fake tensors on the CPU."""
    copies = {}
    for x in [*module.parameters(), *module.buffers()]:
        fake = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cpu")
        copies[id(x)] = torch.nn.Parameter(fake, x.requires_grad) if isinstance(x, torch.nn.Parameter) else fake
    return copy.deepcopy(module, copies)


def _loss_of(module: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    out = module(*inputs.values())
    out = getattr(out, "loss", None) if not isinstance(out, (torch.Tensor, tuple)) else out
    out = out[0] if isinstance(out, tuple) else out
    if not isinstance(out, torch.Tensor) or out.numel() != 1:
        raise InputError("dtp_torch: check: the module gives no scalar: say loss=lambda module, inputs: ...")
    return out


class _Collectives(CommDebugMode):  # type: ignore[misc]
    """Counts bytes, too: of the larger side of a collective, on this rank."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self.get_total_counts()
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if self.get_total_counts() > before:
            name = str(func._overloadpacket)
            self.bytes[name] = self.bytes.get(name, 0) + max(map(_bytes, [*args, out]))
        return out


def _bytes(x: Any) -> int:
    if isinstance(x, (list, tuple)):
        return sum(map(_bytes, x))
    return x.numel() * x.element_size() if isinstance(x, torch.Tensor) else 0


class _Step:
    """A training step: forward and backward passes of all microbatches, the mean of the loss, an update."""

    DTYPES = {**dtp_torch.TYPES, "i32": torch.int32, "i64": torch.int64, "bool": torch.bool, "f64": torch.float64}

    def __init__(self, module: nn.Module, mesh: DeviceMesh, plan: Json, loss: LossOf, optimizer: OptimizerOf) -> None:
        self.module, self.plan, self.loss, self.mesh = module, plan, loss, mesh
        self.optimizer = optimizer(module.parameters())
        parts = dtp_torch.data_parallel(mesh, plan)[1] * plan.get("microbatches", 1)
        self.inputs = {}
        for i in plan["inputs"]:
            shape = list(i["shape"])
            if parts > 1:
                shape[0] = -(-shape[0] // parts)
            self.inputs[i["name"]] = torch.zeros(shape, dtype=self.DTYPES[i["dtype"]], device="cpu")

    def run(self) -> None:
        low = dtp_torch.COMPUTED.get(self.plan["precision"].split(",")[0])
        autocast = low in (torch.bfloat16, torch.float16) and not self.plan["torch"]["fully_shard"]
        means = []
        for _ in range(self.plan.get("microbatches", 1)):
            with dtp_torch.loss_parallel(self.plan), torch.autocast("cpu", low, enabled=autocast):
                loss = self.loss(self.module, self.inputs)
                loss.backward()
            means.append(loss.detach().to_local() if isinstance(loss, DTensor) else loss.detach())
        if self.plan["torch"]["data_dims"]:
            dist.all_reduce(torch.stack(means), group=dtp_torch.submesh(self.mesh, self.plan["torch"]["data_dims"]).get_group())
        self.optimizer.step()
        self.optimizer.zero_grad()

    def track(self) -> int:
        """Bytes at the peak of a step, after one that made the optimizer's states."""
        if self.plan["torch"]["fully_shard"]:
            tracker = FSDPMemTracker(self.module, self.optimizer)
            tracker.track_inputs(tuple(self.inputs.values()))
        else:
            tracker = MemTracker()
            tracker.track_external(self.module, self.optimizer, *self.inputs.values())
        with tracker:
            self.run()
            tracker.reset_mod_stats()
            self.run()
        return max(int(kinds["Total"]) for kinds in tracker.get_tracker_snapshot("peak").values())

    def count(self) -> tuple[dict[str, int], dict[str, int]]:
        with _Collectives() as mode:
            self.run()
        return _by_kind({str(name): n for name, n in mode.get_comm_counts().items()}), _by_kind(mode.bytes)


def _by_kind(of: dict[str, int]) -> dict[str, int]:
    """Names of PyTorch's ops as the plan's kinds."""
    kinds = dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"), 0)
    for name, n in of.items():
        flat = name.rpartition(".")[2].replace("_", "")
        kind = next((k for k in kinds if k.replace("_", "") in flat), flat)
        kinds[kind] = kinds.get(kind, 0) + n
    return kinds


def _beside(predicted: Json | None, tracked: int, counted: tuple[dict[str, int], dict[str, int]]) -> Json:
    said = (predicted or {}).get("collectives", {})
    table: Json = {}
    for kind in {**counted[0], **said}:
        of = said.get(kind, {"count": 0, "bytes": 0})
        count, size = (of["count"], of["bytes"]) if predicted else (None, None)
        table[kind] = {"predicted": count, "counted": counted[0].get(kind, 0),
                       "bytes": {"predicted": size, "counted": counted[1].get(kind, 0)}}
    peak = predicted["peak_bytes"] if predicted else None
    return {"collectives": table, "peak_bytes": {"predicted": peak, "tracked": tracked,
                                                 "ratio": peak / tracked if peak and tracked else None}}
