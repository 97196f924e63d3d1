"""Applies a plan, written by `dtplan export MODEL PLAN --as torch`, to a PyTorch module.

    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("x", "y"))   # the plan's mesh
    parallelize(module, mesh, "plan.torch.json")                          # before the optimizer is made
    part, parts = data_parallel(mesh, "plan.torch.json")                  # this rank's part of every batch
    with loss_parallel("plan.torch.json"):
        loss = F.cross_entropy(module(tokens), targets)                   # a mean over the rank's own part
        loss.backward()                                                   # gradients are averaged over the parts

The module is called with this rank's part of the batch and computes a mean over it. Names of parameters and keys of the
state dict stay as they are. Needs torch 2.6 or later and nothing else.
"""
from __future__ import annotations

import contextlib
import inspect
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from types import MethodType
from typing import Any, Union

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import parallel as tp
from torch.distributed.tensor.placement_types import Placement
from torch.distributed.tensor.experimental import implicit_replication, register_sharding
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_map_only

from .errors import DtplanWarning, InputError

Json = dict[str, Any]
Where = Union[str, Json]  # a path, or what json.load made of it
Owners = list[tuple[nn.Module, str]]
LossOf = Callable[[nn.Module, dict[str, Tensor]], Tensor]
OptimizerOf = Callable[..., torch.optim.Optimizer]
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
COMPUTED = {"bf16": torch.bfloat16, "f16": torch.float16, "fp8": torch.bfloat16,
            "fp8_row": torch.bfloat16}  # by the precision of a plan


def parallelize(module: nn.Module, mesh: DeviceMesh, placements: Where) -> nn.Module:
    """Changes the module in place and returns it. placements: a path, or what json.load made of it. A module that is
    parallelized already is an error, and so is a step of an optimizer that has parameters which were replaced here."""
    plan = _read(placements)
    if "stages" in plan["torch"]:
        raise InputError("dtp_torch: the plan has pipeline stages: call pipeline")
    _check(plan, module, mesh)
    plan = _by_first_names(plan, module)
    before = _parameters(module)
    how = plan["torch"]
    low = plan["precision"].split(",")[0]
    if not how["fully_shard"] and low in COMPUTED:
        warnings.warn(f"dtp_torch: the plan computes in {plan['precision']}, which only fully_shard sets: use torch.autocast",
                      DtplanWarning, stacklevel=3)
    if low in ("fp8", "fp8_row"):
        warnings.warn(f"dtp_torch: products in {low} are set by torchao's convert_to_float8_training; without it they are in bf16",
                      DtplanWarning, stacklevel=3)
    _recompute(module, how["checkpoint"])
    (_place if how["form"] == "placements" else _by_modules)(module, mesh, plan)
    _take_plain_checkpoints(module)
    _refuse_stale_optimizers(before, module)
    module._dtp_torch = True
    return module


def _by_modules(module: nn.Module, given: DeviceMesh, plan: Json) -> None:
    mesh, plan = _data_outermost(given, plan)
    how = plan["torch"]
    whole = {name: p.detach() for name, p in _parameters(module).items() if name in how["redistribute"]}
    styles = _styles(module, mesh, how)
    moved = {name: _redistribute(module, mesh, plan, name, p, styles.get(_module_of(name)[0])) for name, p in whole.items()}
    sharded = how["fully_shard"]["dims"] if how["fully_shard"] else {}
    for name, p in _parameters(module).items():
        if name not in moved and name not in sharded and isinstance(p, DTensor):
            _hook(_owners(module, name), _reduce_once)
    left = [name for name in _parameters(module) if name not in moved and name not in sharded]
    _hold_whole(module, mesh, plan, moved, sharded)
    if sharded:
        _fully_shard(module, mesh, plan, moved, left)
    if how["data_dims"] and left:
        trained = [name for name in left if module.get_parameter(name).requires_grad]
        _Average(module, submesh(given, how["data_dims"]), _buckets(module, plan, trained))


def data_parallel(mesh: DeviceMesh, placements: Where) -> tuple[int, int]:
    """(part, parts): which of how many equal parts of the batch this rank computes."""
    part, parts = 0, 1
    for name in _read(placements)["torch"]["data_dims"]:
        size = mesh[name].size()
        part, parts = part * size + mesh[name].get_local_rank(), parts * size
    return part, parts


def loss_parallel(placements: Where) -> contextlib.AbstractContextManager[Any]:
    """The context for forward, loss and backward: cross_entropy over logits that are split over the classes, if they are;
    outside of it the module gathers them. In the form placements tensors that the module makes by itself, as positions,
    count as replicated."""
    how = _read(placements)["torch"]
    if how["form"] == "placements":
        whole: contextlib.AbstractContextManager[Any] = implicit_replication()
        return whole
    return _split_classes() if how["loss_parallel"] else contextlib.nullcontext()


_classes_stay_split = False


@contextlib.contextmanager
def _split_classes() -> Iterator[None]:
    global _classes_stay_split
    before, _classes_stay_split = _classes_stay_split, True
    try:
        with tp.loss_parallel():
            yield
    finally:
        _classes_stay_split = before


def check(module: nn.Module, mesh: DeviceMesh | None, placements: Where,
          loss: LossOf | None = None, optimizer: OptimizerOf = torch.optim.AdamW) -> Json:
    """One training step of rank 0 of the plan, with tensors without data and ranks that are not there: neither a GPU nor other
    processes are needed, and the module is left as it is (it may be on the meta device).

    mesh: None, or one of fake ranks as init_device_mesh made it over the backend "fake".
    loss(module, inputs): a scalar; inputs: name -> this rank's part, as the plan's inputs. Without it the module is called
    with the inputs in their order, and its result, its member "loss" or the first of a tuple is the scalar.
    Returns {"collectives": kind -> {"predicted", "counted", "bytes": {"predicted", "counted"}}, "peak_bytes": {"predicted",
    "tracked", "ratio"}}; bytes are of the larger side of every collective on a rank, of an all-gather what it gives. What is
    counted has the sum of the loss over data ranks, which a plan has as well. predicted is None where the file has none.
    """
    from . import dtp_torch_check
    return dtp_torch_check.check(module, mesh, _read(placements), loss, optimizer)


def pipeline(module: nn.Module, mesh: DeviceMesh, placements: Where, example: tuple[Tensor, ...],
             loss: Callable[[Tensor, Tensor], Tensor]) -> tuple[Any, nn.Module]:
    """This rank's part of a plan with pipeline stages: (schedule, part). Every rank has the whole module.

    mesh: "stage" and the plan's mesh dims. example: the arguments of one microbatch, by which the module is traced.
    loss(output, target): of a microbatch, on the last stage; gradients are those of the mean over the microbatches.
    Every rank calls schedule.step: the first stage with the batch, the last one with target= and losses=, a list. The
    optimizer is one of part.parameters(), which have the names of the module.
    """
    from . import dtp_torch_stages
    return dtp_torch_stages.pipeline(module, mesh, _read(placements), example, loss)


# ---- the plan -------------------------------------------------------------------------------------------------------


def _read(placements: Where) -> Json:
    if not isinstance(placements, dict):
        with open(placements, encoding="utf-8") as f:
            placements = json.load(f)
    plan: Json = placements if isinstance(placements, dict) else {}
    if plan.get("format") != "dtp.torch/1":
        raise InputError(f"dtp_torch: expected dtp.torch/1 (dtplan export --as torch), not {plan.get('format')!r}")
    return plan


def _parameters(module: nn.Module, tied: bool = False) -> dict[str, nn.Parameter]:
    """By name; of a tied parameter, under its first name alone or under all."""
    return dict(module.named_parameters(remove_duplicate=not tied))


def _check(plan: Json, module: nn.Module, mesh: DeviceMesh) -> None:
    """One error that names all that differs."""
    if getattr(module, "_dtp_torch", False) or any(isinstance(p, DTensor) for p in module.parameters()):
        raise InputError("dtp_torch: the module is parallelized already: parallelize a new one, and load the state dict into it")
    wrong = []
    wanted, given = [tuple(d) for d in plan["mesh"]], list(zip(mesh.mesh_dim_names or (), mesh.shape))
    if wanted != given:
        wrong.append(f"the mesh is {given}, the plan's {wanted}")
    had, shapes = _parameters(module, tied=True), {p["name"]: tuple(p["shape"]) for p in plan["params"]}
    frozen = {p["name"] for p in plan["params"] if p.get("frozen")}
    known = {id(p) for name, p in had.items() if name in shapes}
    for name, shape in shapes.items():
        if name not in had:
            wrong.append(f"the module has no parameter {name!r} {list(shape)} of the plan")
        elif tuple(had[name].shape) != shape:
            wrong.append(f"{name!r} is {list(had[name].shape)} in the module and {list(shape)} in the plan")
        elif name in frozen and had[name].requires_grad:
            wrong.append(f"{name!r} is frozen in the plan and requires_grad in the module")
    wrong += [f"the plan has no parameter {n!r} {list(p.shape)} of the module" for n, p in had.items() if id(p) not in known]
    if wrong:
        raise InputError("dtp_torch: " + "; ".join(wrong[:8]) + (f"; and {len(wrong) - 8} more" if wrong[8:] else ""))
    still = [name for name in shapes if name not in frozen and not had[name].requires_grad]
    if still and any(p.requires_grad for p in had.values()):
        warnings.warn(f"dtp_torch: the module freezes {len(still)} parameters ({still[0]!r}, ...) that the plan trains and "
                      "whose gradients it prices: plan with --freeze", DtplanWarning, stacklevel=4)


def _by_first_names(plan: Json, module: nn.Module) -> Json:
    """The plan with every parameter under its first name in the module: of a tied one a plan may have another."""
    first = {id(p): name for name, p in _parameters(module).items()}
    names = {name: first[id(p)] for name, p in _parameters(module, tied=True).items()}
    how = dict(plan["torch"])
    how["redistribute"] = {names[name]: layout for name, layout in how["redistribute"].items()}
    how["gradient_buckets"] = [[names[name] for name in bucket] for bucket in how.get("gradient_buckets", [])]
    if how["fully_shard"]:
        dims = {names[name]: dim for name, dim in how["fully_shard"]["dims"].items()}
        how["fully_shard"] = {**how["fully_shard"], "dims": dims}
    return {**plan, "torch": how, "params": [{**p, "name": names[p["name"]]} for p in plan["params"]]}


def _data_outermost(mesh: DeviceMesh, plan: Json) -> tuple[DeviceMesh, Json]:
    """The mesh and the plan over it with mesh dims in the order that fully_shard has: copies, shards, tensor dims. DTensors over a
    mesh whose dims are in another order than those of its root cannot be redistributed, and gathered over a flattened mesh whose ranks
    do not ascend, parts come back displaced (torch 2.15): dims of several kinds are not flattened here."""
    how, names = plan["torch"], list(mesh.mesh_dim_names or ())
    if not how["fully_shard"]:
        return mesh, plan
    shard = how["fully_shard"]["mesh_dims"]
    rank = {name: 3 if name in how["tensor_dims"] else 2 if name in shard else 1 for name in names}
    order = sorted(range(len(names)), key=lambda i: rank[names[i]])
    if order == sorted(order):
        return mesh, plan

    def turned(texts: list[str]) -> list[str]:
        return [texts[i] for i in order]

    with unset_fake_temporarily():
        mesh = DeviceMesh(mesh.device_type, mesh.mesh.permute(order), mesh_dim_names=tuple(turned(names)))
    params = [{**p, "kept": turned(p["kept"]), "read": turned(p["read"])} for p in plan["params"]]
    moved = {name: turned(texts) for name, texts in how["redistribute"].items()}
    return mesh, {**plan, "torch": {**how, "redistribute": moved}, "params": params}


def _placement(text: str) -> Placement:
    return Replicate() if text == "R" else Partial() if text == "P" else Shard(int(text[2:-1]))


def _placements(texts: list[str]) -> list[Placement]:
    return [_placement(text) for text in texts]


def submesh(mesh: DeviceMesh, names: list[str]) -> Any:
    """The mesh of these dims as one dim; None without dims."""
    with unset_fake_temporarily():  # within check
        if len(names) > 1:
            return (mesh[tuple(names)] if len(names) < mesh.ndim else mesh)._flatten("_".join(names))
        return mesh[names[0]] if names else None


def _joined(meshes: list[DeviceMesh]) -> Any:
    """A mesh of the dims of several."""
    with unset_fake_temporarily():
        return type(meshes[0])._concatenate(meshes) if len(meshes) > 1 else meshes[0]


def _home(mesh: DeviceMesh, how: Json) -> tuple[Any, list[list[str]]]:
    """The mesh of parameters that are DTensors beside those of fully_shard, and the plan's mesh dims of each of its dims."""
    if not how["fully_shard"]:
        return mesh, [[name] for name in mesh.mesh_dim_names]
    shard = how["fully_shard"]["mesh_dims"]
    groups = [g for g in ([d for d in how["data_dims"] if d not in shard], shard, how["tensor_dims"]) if g]
    return _joined([submesh(mesh, names) for names in groups]), groups


def _at_home(mesh: DeviceMesh, groups: list[list[str]], placements: list[Placement]) -> list[Placement] | None:
    """Placements over the plan's mesh, over that of _home; None: mesh dims that are one there do not all do the same."""
    of = dict(zip(mesh.mesh_dim_names, placements))
    same = all(of[name] == of[group[0]] for group in groups for name in group)
    return [of[group[0]] for group in groups] if same else None


def _module_of(name: str) -> tuple[str, str]:
    path, _, leaf = name.rpartition(".")
    return path, leaf


def _owners(module: nn.Module, name: str) -> Owners:
    """(module, leaf) of all names of a parameter: of a tied one there are several."""
    p = module.get_parameter(name)
    paths = [_module_of(n) for n, q in _parameters(module, tied=True).items() if q is p]
    return [(module.get_submodule(path), leaf) for path, leaf in paths]


def _replace(owners: Owners, p: Any) -> None:
    for owner, leaf in owners:
        owner.register_parameter(leaf, p)


def _matches(module: nn.Module, pattern: str) -> list[str]:
    """Names of the modules that a pattern means; '*' stands for a number."""
    regex = re.compile(re.escape(pattern).replace(r"\*", r"\d+"))
    names = [name for name, _ in module.named_modules() if regex.fullmatch(name)]
    if not names:
        raise InputError(f"dtp_torch: the module has no submodule {pattern!r}")
    return names


# ---- tensor dims: parallelize_module --------------------------------------------------------------------------------


def _styles(module: nn.Module, mesh: DeviceMesh, how: Json) -> dict[str, list[str]]:
    """Name -> mesh dims of the modules whose parameters parallelize_module makes DTensors."""
    first: dict[str, Any] = {}
    then: dict[str, Any] = {}
    over: dict[str, Any] = {}
    frozen = [name for name, p in _parameters(module, tied=True).items() if not p.requires_grad]
    tied = {name: owners for name in _parameters(module) if len(owners := _owners(module, name)) > 1}
    for pattern, spec in how["parallelize_module"].items():
        spec = spec if isinstance(spec, dict) else {"style": spec}
        sides = {key: _placement(spec[key]) for key in ("input", "output", "made") if key in spec}
        for name in _matches(module, pattern):
            over[name] = spec.get("mesh_dims", how["tensor_dims"])
            if sides.get("output") == Shard(1) and isinstance(module.get_submodule(name), torch.nn.Embedding):
                _count_positions(module)
            local = not spec.get("dtensor", False) and name != how["loss_parallel"]
            if spec["style"] in ("colwise", "rowwise"):
                style = tp.ColwiseParallel if spec["style"] == "colwise" else tp.RowwiseParallel
                if isinstance(module.get_submodule(name), torch.nn.Embedding):
                    sides.setdefault("input", Replicate())  # indices: every rank has them all
                    moved = f"{name}.weight" in how["redistribute"]
                    style = _RowwiseTable if style is tp.RowwiseParallel and not moved else style
                first[name] = style(input_layouts=sides.get("input"), output_layouts=sides.get("output"),
                                    use_local_output=local)
                continue
            if spec["style"] == "sequence":
                first[name] = tp.SequenceParallel(use_local_output="output" not in sides)
                sides.setdefault("made", Shard(1))
            if "output" in sides:
                then[name] = tp.PrepareModuleOutput(output_layouts=sides["made"], use_local_output=local,
                                                    desired_output_layouts=sides["output"])
    for styles in (first, then):
        for name, style in styles.items():
            tp.parallelize_module(module.get_submodule(name), submesh(mesh, over[name]), style)
    for name in frozen:  # some styles make new parameters that require gradients
        module.get_parameter(name).requires_grad_(False)
    for name, owners in tied.items():
        _replace(owners, module.get_parameter(name))
    if how["loss_parallel"]:
        last = module.get_submodule(how["loss_parallel"])
        last.forward = torch.compiler.disable(last.forward)  # a graph whose result is a DTensor fails when compiled again (2.15)
        last.register_forward_hook(_gather_classes)
        between = [_module_of(name)[0] for name, style in then.items() if not style.use_local_output and name in how["parallelize_module"]]
        if any(type(module.get_submodule(path)).forward is not nn.Module.forward for path in between if path):
            _run_eagerly(module, "the result of a module within it is a DTensor, whose gradient PyTorch (2.15) does not trace")
    return {name: over[name] for name in first}


def _count_positions(module: nn.Module) -> None:
    """Modules of transformers count positions by the length of what their table gave, which is a part of the sequence here."""
    for mod in module.modules():
        names = list(inspect.signature(mod.forward).parameters)
        if "input_ids" in names and "position_ids" in names:

            def before(mod: nn.Module, args: Any, kwargs: Any, names: list[str] = names) -> Any:
                given = {**dict(zip(names, args)), **kwargs}
                if given.get("input_ids") is not None and given.get("position_ids") is None:
                    ids = given["input_ids"]
                    given["position_ids"] = torch.arange(ids.shape[1], device=ids.device)[None]
                return (), given

            mod.register_forward_pre_hook(before, with_kwargs=True)


class _RowwiseTable(tp.ParallelStyle):  # type: ignore[misc]
    """A table split by rows: a rank looks up the ids that it has, and the terms are summed. DTensor does the same with a mask
    that it keeps between calls, which torch.compile does not take (torch 2.15)."""

    def __init__(self, input_layouts: Placement | None, output_layouts: Placement | None, use_local_output: bool) -> None:
        super().__init__()
        self.input, self.output, self.local = input_layouts, output_layouts or Replicate(), use_local_output

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        whole = module.weight
        weight = distribute_tensor(whole.detach(), device_mesh, [Shard(0)], src_data_rank=None)
        module.register_parameter("weight", torch.nn.Parameter(weight, whole.requires_grad))
        first = -(-whole.shape[0] // device_mesh.size()) * device_mesh.get_local_rank()
        kept = []

        def before(mod: nn.Module, args: Any) -> Any:
            ids = args[0] if isinstance(args[0], DTensor) else DTensor.from_local(args[0], device_mesh, [self.input], run_check=False)
            ids = ids.redistribute(placements=[Replicate()]).to_local() - first
            weight, padding = mod._parameters["weight"], mod.padding_idx
            mod._parameters["weight"] = rows = weight.to_local(grad_placements=weight.placements)
            others = (ids < 0) | (ids >= rows.shape[0])
            here = padding is not None and first <= padding < first + rows.shape[0]
            mod.padding_idx = padding - first if here else None
            kept.append((weight, padding, others))
            return (ids.masked_fill(others, 0), *args[1:])

        def after(mod: nn.Module, args: Any, out: Any) -> Any:
            mod._parameters["weight"], mod.padding_idx, others = kept.pop()
            if out is None:  # the module failed
                return None
            terms = DTensor.from_local(out.masked_fill(others.unsqueeze(-1), 0), device_mesh, [Partial()], run_check=False)
            out = terms.redistribute(placements=[self.output])
            return out.to_local() if self.local else out

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after, always_call=True)
        module._dtp_reads_local = True
        return module


def _gather_classes(mod: nn.Module, args: Any, out: Any) -> Any:
    """Logits stay split over the classes for a loss within loss_parallel alone."""
    if _classes_stay_split or not isinstance(out, DTensor):
        return out
    whole = out.redistribute(placements=[Replicate()] * out.device_mesh.ndim)
    return whole.to_local(grad_placements=[Replicate()] * out.device_mesh.ndim)


# ---- parameters that no style keeps and reads as the plan does ------------------------------------------------------


def _hook(owners: Owners, install: Callable[[Any], None]) -> None:
    """install(parameter) registers hooks. What takes a parameter's place afterwards gets them too: to, to_empty and
    load_state_dict(assign=True) make other parameters, without hooks."""
    for owner, leaf in owners:
        if not hasattr(owner, "_dtp_hooks"):
            owner._dtp_hooks = (id(owner), [])  # a copy of the module has none
            owner._apply = MethodType(_apply, owner)
            owner.register_load_state_dict_post_hook(_set_hooks)
        owner._dtp_hooks[1].append((leaf, install))
        owner._parameters[leaf].__dict__.setdefault("_dtp_has", [])
        _set_hooks(owner)


def _apply(owner: nn.Module, fn: Any, recurse: bool = True) -> nn.Module:
    type(owner)._apply(owner, fn, recurse)
    _set_hooks(owner)
    return owner


def _set_hooks(owner: Any, *_: Any) -> None:
    home, hooks = owner._dtp_hooks
    for leaf, install in hooks if home == id(owner) else []:
        p = owner._parameters[leaf]
        if "_dtp_has" not in p.__dict__:  # PyTorch swaps DTensors; the lists of hooks stay, and nothing calls them (torch 2.15)
            p._dtp_has, p._backward_hooks, p._post_accumulate_grad_hooks = [], None, None
        if p.requires_grad and install not in p._dtp_has:
            p._dtp_has.append(install)
            install(p)


def _reduce_once(p: Any) -> None:
    """The gradient of a DTensor is brought to where the parameter is before an optimizer reads it several times."""
    p.register_hook(lambda g: g.redistribute(placements=p.placements))


def _swap(owner: nn.Module, leaf: str, read: Callable[[Any], Any]) -> None:
    """While its owner computes, a parameter is read(parameter). State dicts see the parameter alone."""
    kept = []

    def before(mod: nn.Module, args: Any) -> Any:
        kept.append(mod._parameters[leaf])
        mod._parameters[leaf] = read(kept[-1])

    def after(mod: nn.Module, args: Any, out: Any) -> Any:
        mod._parameters[leaf] = kept.pop()

    owner.register_forward_pre_hook(before)
    owner.register_forward_hook(after, always_call=True, prepend=True)  # what was read last is restored first


def _hold(module: nn.Module, name: str, mesh: DeviceMesh, placements: list[Placement]) -> None:
    """Makes a parameter, whole or a DTensor over a part of the mesh, a DTensor over the mesh; its module reads what it was."""
    old, owners = module.get_parameter(name), _owners(module, name)
    inner = (old.device_mesh, old.placements, old.shape, old.stride()) if isinstance(old, DTensor) else None
    local = old.to_local() if inner else old
    kept = torch.nn.Parameter(DTensor.from_local(local.detach(), mesh, placements, run_check=False, shape=old.shape,
                                                 stride=old.stride()), old.requires_grad)
    _replace(owners, kept)

    def as_it_was(p: Any) -> Any:
        local = p.to_local(grad_placements=p.placements)
        if not inner:
            return local
        over, parts, shape, stride = inner
        return DTensor.from_local(local, over, parts, run_check=False, shape=shape, stride=stride)

    for owner, leaf in owners:
        if not getattr(owner, "_dtp_reads_local", False):
            _swap(owner, leaf, as_it_was)
    if inner:
        _hook(owners, _reduce_once)


def _hold_whole(module: nn.Module, mesh: DeviceMesh, plan: Json, moved: dict[str, nn.Parameter], sharded: dict[str, int]) -> None:
    """Parameters that lie as DTensors beside others are DTensors over one mesh, so that optimizers and norms of gradients
    take all of them together."""
    how, parameters = plan["torch"], _parameters(module)
    kinds = {isinstance(p, DTensor) and p.device_mesh for p in parameters.values()}
    kept = {p["name"]: _placements(p["kept"]) for p in plan["params"]}
    if sharded:
        over = submesh(mesh, how["tensor_dims"]) if len(kinds) > 1 or False not in kinds else None
        home, groups = _home(mesh, how if over is not None else {**how, "tensor_dims": []})
        for name, p in parameters.items():
            at = _at_home(mesh, groups, kept[name]) if name in kept and name not in sharded else None
            if name not in moved and at is not None:
                _hold(module, name, home, at)
            elif not isinstance(p, DTensor) and over is not None:
                _hold(module, name, over, [Replicate()])
    elif len(kinds - {False}) == 1 and not moved:
        over = submesh(mesh, how["tensor_dims"])
        for name, p in parameters.items():
            if not isinstance(p, DTensor) and over is not None:
                _hold(module, name, over, [Replicate()])
    elif len(kinds) > 1:
        for name in parameters:
            if name not in moved and name in kept:
                _hold(module, name, mesh, kept[name])


def _brought(p: Any, placements: list[Placement]) -> Any:
    """p.redistribute, one mesh dim after the other where several split an axis unevenly: gathered at once over a flattened
    mesh, parts come back displaced (torch 2.15)."""
    for axis, size in enumerate(p.shape):
        sizes = [n for n, at in zip(p.device_mesh.shape, p.placements) if at.is_shard(axis)]
        if len(sizes) > 1 and size % math.prod(sizes):
            now = list(p.placements)
            for i in reversed(range(len(now))):
                now[i] = placements[i]
                p = p.redistribute(placements=now)
            return p
    return p.redistribute(placements=placements)


def _redistribute(module: nn.Module, mesh: DeviceMesh, plan: Json, name: str,
                  whole: Tensor, dims: list[str] | None) -> nn.Parameter:
    """Keeps a parameter as the plan does; its module reads a local tensor or, with a style over dims, a DTensor."""
    param = next(p for p in plan["params"] if p["name"] == name)
    owners = _owners(module, name)
    kept, read, gradient = (_placements(texts) for texts in (param["kept"], param["read"], plan["torch"]["redistribute"][name]))
    over = [i for i, d in enumerate(mesh.mesh_dim_names) if d in (dims or [])]
    for i in over:
        gradient[i] = read[i]
    inner = [read[over[0]]] if dims else None
    parts = data_parallel(mesh, plan)[1]
    home, groups = _home(mesh, plan["torch"])
    there = [at for placements in (kept, read, gradient) if (at := _at_home(mesh, groups, placements)) is not None]
    if len(there) == 3:
        kept, read, gradient = there
    else:
        home = mesh
    kept = torch.nn.Parameter(distribute_tensor(whole, home, kept), module.get_parameter(name).requires_grad)
    _replace(owners, kept)

    def as_read(p: Any) -> Any:
        local = _brought(p, read).to_local(grad_placements=gradient)
        if local.requires_grad and parts > 1:
            local.register_hook(lambda g: g / parts)
        local = _computed(local, plan)
        return DTensor.from_local(local, submesh(mesh, dims), inner, run_check=False) if dims else local

    for owner, leaf in owners:
        _swap(owner, leaf, as_read)
    return kept


# ---- data dims: fully_shard, or averages of gradients ---------------------------------------------------------------


def _computed(p: Any, plan: Json) -> Any:
    """A parameter that fully_shard ignores, in the type to which it casts the others and all inputs."""
    low = plan["precision"].split(",")[0]
    return p.to(COMPUTED[low]) if plan["torch"]["fully_shard"] and low in COMPUTED else p


def _fully_shard(module: nn.Module, mesh: DeviceMesh, plan: Json, moved: dict[str, nn.Parameter], left: list[str]) -> None:
    how = plan["torch"]["fully_shard"]
    for name in left:
        for owner, leaf in _owners(module, name):
            _swap(owner, leaf, lambda p: _computed(p, plan))
    ignored = set(moved.values()) | {module.get_parameter(name) for name in left}
    copies = [d for d in plan["torch"]["data_dims"] if d not in how["mesh_dims"]]
    over = submesh(mesh, how["mesh_dims"])
    if copies:
        over = _joined([submesh(mesh, copies), over])
    parameters = _parameters(module)
    dims = {id(parameters[name]): Shard(dim) for name, dim in how["dims"].items()}
    low, reduce = (plan["precision"].split(",") + [""])[:2]
    policy = MixedPrecisionPolicy()
    if low in COMPUTED:
        policy = MixedPrecisionPolicy(COMPUTED[low], torch.float32 if reduce == "gradients=f32" else COMPUTED[low])
    units = []
    for group in how["modules"]:
        units += [[name] for name in _matches(module, group)] if isinstance(group, str) else [group]
    stay = how.get("stay_gathered")
    for names in [*units, [""]]:
        modules = [module.get_submodule(name) for name in names]
        again = None if stay is None else not all(name in stay for name in names)  # PyTorch's own: all but the root
        fully_shard(modules if len(modules) > 1 else modules[0], mesh=over, shard_placement_fn=lambda p: dims[id(p)],
                    reshard_after_forward=again, mp_policy=policy, ignored_params=ignored)


def _buckets(module: nn.Module, plan: Json, names: list[str]) -> list[list[str]]:
    """The plan's buckets of these parameters, by type; what it has in none comes behind, the last parameter first."""
    limit = plan["torch"].get("bucket_bytes", 4 << 20)
    buckets = [[n for n in bucket if n in names] for bucket in plan["torch"].get("gradient_buckets", [])]
    known, size = {n for bucket in buckets for n in bucket}, limit
    for name in reversed([n for n in names if n not in known]):
        p = module.get_parameter(name)
        bytes_here = p.numel() * p.element_size()
        if size + bytes_here > limit:
            buckets.append([])
            size = 0
        buckets[-1].append(name)
        size += bytes_here
    types = {name: module.get_parameter(name).dtype for name in names}
    return [[n for n in bucket if types[n] == of] for bucket in buckets for of in dict.fromkeys(types[n] for n in bucket)]


class _Average:
    """Averages gradients over a mesh, a bucket in one all-reduce beside the rest of the backward pass. Every rank reduces all
    buckets, in their order. A bucket of several parameters is a copy, with the number of ranks that have each gradient; a
    parameter alone is reduced in place. Where one rank has a gradient, all get one."""

    def __init__(self, module: nn.Module, mesh: DeviceMesh, buckets: list[list[str]]) -> None:
        self.group, self.size, self.task = mesh.get_group(), mesh.size(), None
        self.sent: list[Any] = []
        self.buckets = [[_owners(module, name) for name in bucket] for bucket in buckets]
        for i, bucket in enumerate(self.buckets):
            for owners in bucket:
                _hook(owners, partial(self._install, i))

    def _install(self, i: int, p: nn.Parameter) -> None:
        p.register_post_accumulate_grad_hook(lambda p: self._ready(i))

    def _parameters(self, i: int) -> list[Any]:
        return [owner._parameters[leaf] for (owner, leaf), *_ in self.buckets[i]]

    def _ready(self, i: int) -> None:
        task = torch._C._current_graph_task_id()
        if self.task != task:  # the first gradient of this backward pass, or of one after another that failed
            self.task, self.sent, self.done, self.missing = task, [], 0, [len(bucket) for bucket in self.buckets]
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        self.missing[i] -= 1
        while len(self.sent) < len(self.buckets) and self.missing[len(self.sent)] == 0:
            self._send()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _send(self) -> None:
        bucket = self._parameters(len(self.sent))
        grads = [torch.zeros_like(_local(p)) if p.grad is None else _local(p.grad) for p in bucket]
        flat = grads[0].contiguous()
        if len(bucket) > 1:
            there = torch.tensor([float(p.grad is not None) for p in bucket], dtype=flat.dtype, device=flat.device)
            flat = torch.cat([g.reshape(-1) for g in grads] + [there])
        self.sent.append((flat, dist.all_reduce(flat, group=self.group, async_op=True)))
        if len(self.sent) > self.done + 2:  # copies of two buckets at a time
            self._take()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _take(self) -> None:
        bucket, (flat, work) = self._parameters(self.done), self.sent[self.done]
        work.wait()
        self.sent[self.done], self.done = None, self.done + 1
        parts = flat.split([_local(p).numel() for p in bucket] + [1] * len(bucket)) if len(bucket) > 1 else [flat, flat]
        for p, total, there in zip(bucket, parts, parts[len(bucket):]):
            mean = total.div_(self.size).view_as(_local(p))
            if p.grad is not None:
                if _local(p.grad).untyped_storage()._cdata != mean.untyped_storage()._cdata:
                    _local(p.grad).copy_(mean)
            elif there.any():
                p.grad = _like(mean.clone(), p)

    def _finish(self) -> None:
        self.task = None
        while len(self.sent) < len(self.buckets):
            self._send()
        while self.done < len(self.buckets):
            self._take()


def _local(x: Any) -> Any:
    return x.to_local() if isinstance(x, DTensor) else x


def _like(local: Tensor, p: Any) -> Any:
    """A local tensor as the DTensor that p is, if it is one."""
    return DTensor.from_local(local, p.device_mesh, p.placements, run_check=False, shape=p.shape,
                              stride=p.stride()) if isinstance(p, DTensor) else local


# ---- plans that modules do not say: DTensors throughout -------------------------------------------------------------


def _place(module: nn.Module, mesh: DeviceMesh, plan: Json) -> nn.Module:
    """Every parameter is a DTensor over the whole mesh, and so is every value inside the module."""
    _register_attention_of_the_cpu()
    data = plan["torch"]["data_dims"]
    ends = [Shard(0) if d in data else Replicate() for d in mesh.mesh_dim_names]
    parts = data_parallel(mesh, plan)[1]
    for p in plan["params"]:
        owners, old, read = _owners(module, p["name"]), module.get_parameter(p["name"]), _placements(p["read"])
        kept = torch.nn.Parameter(distribute_tensor(old.detach(), mesh, _placements(p["kept"])), old.requires_grad)
        _replace(owners, kept)
        _hook(owners, _reduce_once)
        for owner, leaf in owners:
            _swap(owner, leaf, partial(_brought, placements=read))
    for value in plan["activations"]:
        if "module" in value and "P" not in value["read"]:
            module.get_submodule(value["module"]).register_forward_hook(_summed_to(_placements(value["read"])))

    def before(mod: nn.Module, args: Any, kwargs: Any) -> Any:
        return tree_map_only(torch.Tensor, lambda x: DTensor.from_local(x, mesh, ends, run_check=False), (args, kwargs))

    def to_local(out: Any) -> Tensor:
        if out.ndim == 0:  # as a loss, of which every rank has that of the whole batch
            whole: Tensor = out.redistribute(placements=[Replicate()] * mesh.ndim).to_local()
            return whole
        local = out.redistribute(placements=ends).to_local()
        if local.requires_grad and parts > 1:
            local.register_hook(lambda g: g / parts)
        return local

    def after(mod: nn.Module, args: Any, out: Any) -> Any:
        return tree_map_only(DTensor, to_local, out)

    module.register_forward_pre_hook(before, with_kwargs=True)
    module.register_forward_hook(after)
    # sharding propagation of batched products over several mesh dims, and the mask of a table split by rows, read values of fake tensors
    _run_eagerly(module, "the plan has the form placements, and PyTorch (2.15) does not trace DTensors through attention and split tables")
    return module


@cache
def _register_attention_of_the_cpu() -> None:
    """DTensor has no rule for it (torch 2.15): batch or heads are split, or nothing. A mask of several rows is whole, and so is all."""
    ways = (Replicate(), Shard(0), Shard(1))

    def forward(*args: Any, attn_mask: Any = None, **_: Any) -> Any:
        more: list[None] = [None] * (len(args) - 3)
        return [([at] * 2, [at] * 3 + more) for at in ways[:3 if attn_mask is None or tuple(attn_mask.shape[:2]) == (1, 1) else 1]]

    def backward(*args: Any, attn_mask: Any = None, **_: Any) -> Any:
        more: list[None] = [None] * (len(args) - 6)
        return [([at] * 3, [at] * 6 + more) for at in ways[:3 if attn_mask is None or tuple(attn_mask.shape[:2]) == (1, 1) else 1]]

    register_sharding(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default)(forward)
    register_sharding(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default)(backward)


def _run_eagerly(module: nn.Module, why: str) -> None:
    """torch.compile calls the module and traces nothing of it."""
    reason = f"dtp_torch: torch.compile leaves this module as it is: {why}"
    eager = torch.compiler.disable(module._call_impl, reason=reason)
    tell = torch.compiler.disable(lambda: warnings.warn(reason, DtplanWarning), reason=reason)

    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            tell()
        return eager(*args, **kwargs)

    module._call_impl = call


def _summed_to(to: list[Placement]) -> Callable[[Any, Any, Any], Any]:
    return lambda mod, args, out: _sum_first(out, to) if isinstance(out, DTensor) else out


def _sum_first(x: Any, to: list[Placement]) -> Any:
    """Redistributes x in two steps: the sum that a table split by rows leaves can be made only where its ids are."""
    split = [p for p in x.placements if p.is_shard()]
    first = [p if not p.is_partial() else Replicate() if t in split else t for p, t in zip(x.placements, to)]
    return x.redistribute(placements=first).redistribute(placements=to)


# ---- what comes after -----------------------------------------------------------------------------------------------


def _take_plain_checkpoints(module: nn.Module) -> None:
    """load_state_dict takes whole tensors, equal on all ranks, where parameters are DTensors."""

    def distribute(mod: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for leaf, p in mod._parameters.items():
            value = state.get(prefix + leaf)
            if isinstance(p, DTensor) and isinstance(value, torch.Tensor) and not isinstance(value, DTensor) \
                    and value.shape == p.shape:
                device = p.device_mesh.device_type if p.is_meta else p.device  # with assign=True a value takes the place
                state[prefix + leaf] = distribute_tensor(value.to(device), p.device_mesh, p.placements, src_data_rank=None)

    for mod in module.modules():
        if any(isinstance(p, DTensor) for p in mod._parameters.values()):
            mod.register_load_state_dict_pre_hook(distribute)


def _refuse_stale_optimizers(before: dict[str, nn.Parameter], module: nn.Module) -> None:
    """Parameters that were replaced are marked: an optimizer that has them would train nothing."""
    now = {id(p) for p in module.parameters()}
    for name, p in before.items():
        if id(p) not in now:
            p._dtp_replaced = name
    if not _registered:
        _registered.append(register_optimizer_step_pre_hook(_refuse_stale))


_registered: list[Any] = []


def _refuse_stale(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for p in group["params"]:
            if getattr(p, "_dtp_replaced", None) is not None:
                raise RuntimeError(f"dtp_torch: the optimizer has the parameter {p._dtp_replaced!r} as it was before parallelize: "
                                   "make the optimizer afterwards")


def _recompute(module: nn.Module, names: list[str]) -> None:
    """These modules are computed again in the backward pass."""
    if names:
        from torch.distributed._composable import checkpoint
    for name in names:
        checkpoint(module.get_submodule(name))
