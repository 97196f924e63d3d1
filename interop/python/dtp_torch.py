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
import contextlib
import json
import math
import re
import warnings

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import parallel as tp
from torch.distributed.tensor.experimental import implicit_replication
from torch.utils._pytree import tree_map_only

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def parallelize(module, mesh, placements):
    """Changes the module in place and returns it. placements: a path, or what json.load made of it."""
    plan = _read(placements)
    _check(plan, module, mesh)
    how = plan["torch"]
    if not how["fully_shard"] and plan["precision"].split(",")[0] in ("bf16", "f16"):
        warnings.warn(f"dtp_torch: the plan computes in {plan['precision']}, which only fully_shard sets: use torch.autocast")
    _recompute(module, how["checkpoint"])
    if how["form"] == "placements":
        return _place(module, mesh, plan)
    whole = {name: p.detach() for name, p in _parameters(module).items() if name in how["redistribute"]}
    styles = _styles(module, mesh, how)
    moved = {name: _redistribute(module, mesh, plan, name, p, styles.get(_module_of(name)[0])) for name, p in whole.items()}
    for name, p in _parameters(module).items():
        if name not in moved and isinstance(p, DTensor):
            _reduce_once(p)
    sharded = how["fully_shard"]["dims"] if how["fully_shard"] else {}
    left = {name: p for name, p in _parameters(module).items() if name not in moved and name not in sharded}
    if sharded:
        for name in left:
            for owner, leaf in _owners(module, name):
                _swap(owner, leaf, lambda p: _computed(p, plan))
        _fully_shard(module, mesh, plan, set(moved.values()) | set(left.values()))
    if how["data_dims"] and left:
        _Average(left.values(), _submesh(mesh, how["data_dims"]))
    return module


def data_parallel(mesh, placements):
    """(part, parts): which of how many equal parts of the batch this rank computes."""
    part, parts = 0, 1
    for name in _read(placements)["torch"]["data_dims"]:
        size = mesh[name].size()
        part, parts = part * size + mesh[name].get_local_rank(), parts * size
    return part, parts


def loss_parallel(placements):
    """The context for forward, loss and backward: cross_entropy over logits that are split over the classes, if they are; in
    the form placements tensors that the module makes by itself, as positions, count as replicated."""
    how = _read(placements)["torch"]
    if how["form"] == "placements":
        return implicit_replication()
    return tp.loss_parallel() if how["loss_parallel"] else contextlib.nullcontext()


# ---- the plan -------------------------------------------------------------------------------------------------------


def _read(placements):
    if not isinstance(placements, dict):
        with open(placements, encoding="utf-8") as f:
            placements = json.load(f)
    if placements.get("format") != "dtp.torch/1":
        raise ValueError(f"dtp_torch: expected dtp.torch/1 (dtplan export --as torch), not {placements.get('format')!r}")
    return placements


def _parameters(module, tied=False):
    """By name; of a tied parameter, under its first name alone or under all."""
    return dict(module.named_parameters(remove_duplicate=not tied))


def _check(plan, module, mesh):
    """One error that names all that differs."""
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
        raise ValueError("dtp_torch: " + "; ".join(wrong[:8]) + (f"; and {len(wrong) - 8} more" if wrong[8:] else ""))
    still = [name for name in shapes if name not in frozen and not had[name].requires_grad]
    if still and any(p.requires_grad for p in had.values()):
        warnings.warn(f"dtp_torch: the module freezes {len(still)} parameters ({still[0]!r}, ...) that the plan trains and "
                      "whose gradients it prices: plan with --freeze")


def _placement(text):
    return Replicate() if text == "R" else Partial() if text == "P" else Shard(int(text[2:-1]))


def _placements(texts):
    return [_placement(text) for text in texts]


def _submesh(mesh, names):
    """The mesh of these dims as one dim; None without dims."""
    if len(names) > 1:
        return (mesh[tuple(names)] if len(names) < mesh.ndim else mesh)._flatten("_".join(names))
    return mesh[names[0]] if names else None


def _module_of(name):
    path, _, leaf = name.rpartition(".")
    return path, leaf


def _owners(module, name):
    """(module, leaf) of all names of a parameter: of a tied one there are several."""
    p = module.get_parameter(name)
    paths = [_module_of(n) for n, q in _parameters(module, tied=True).items() if q is p]
    return [(module.get_submodule(path), leaf) for path, leaf in paths]


def _replace(owners, p):
    for owner, leaf in owners:
        owner.register_parameter(leaf, p)


def _matches(module, pattern):
    """Names of the modules that a pattern means; '*' stands for a number."""
    regex = re.compile(re.escape(pattern).replace(r"\*", r"\d+"))
    names = [name for name, _ in module.named_modules() if regex.fullmatch(name)]
    if not names:
        raise ValueError(f"dtp_torch: the module has no submodule {pattern!r}")
    return names


# ---- tensor dims: parallelize_module --------------------------------------------------------------------------------


def _styles(module, mesh, how):
    """Name -> mesh dims of the modules whose parameters parallelize_module makes DTensors."""
    first, then, over = {}, {}, {}
    frozen = [name for name, p in _parameters(module, tied=True).items() if not p.requires_grad]
    tied = {name: owners for name in _parameters(module) if len(owners := _owners(module, name)) > 1}
    for pattern, spec in how["parallelize_module"].items():
        spec = spec if isinstance(spec, dict) else {"style": spec}
        sides = {key: _placement(spec[key]) for key in ("input", "output", "made") if key in spec}
        for name in _matches(module, pattern):
            over[name] = spec.get("mesh_dims", how["tensor_dims"])
            local = not spec.get("dtensor", False) and name != how["loss_parallel"]
            if spec["style"] in ("colwise", "rowwise"):
                style = tp.ColwiseParallel if spec["style"] == "colwise" else tp.RowwiseParallel
                if isinstance(module.get_submodule(name), torch.nn.Embedding):
                    sides.setdefault("input", Replicate())  # indices: every rank has them all
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
            tp.parallelize_module(module.get_submodule(name), _submesh(mesh, over[name]), style)
    for name in frozen:  # some styles make new parameters that require gradients
        module.get_parameter(name).requires_grad_(False)
    for name, owners in tied.items():
        _replace(owners, module.get_parameter(name))
    return {name: over[name] for name in first}


# ---- parameters that no style keeps and reads as the plan does ------------------------------------------------------


def _reduce_once(p):
    """The gradient of a DTensor is brought to where the parameter is before an optimizer reads it several times."""
    if p.requires_grad:
        p.register_hook(lambda g: g.redistribute(placements=p.placements))


def _swap(owner, leaf, read):
    """While its owner computes, a parameter is read(parameter). State dicts see the parameter alone."""
    kept = owner._parameters[leaf]

    def before(mod, args):
        mod._parameters[leaf] = read(kept)

    def after(mod, args, out):
        mod._parameters[leaf] = kept

    owner.register_forward_pre_hook(before)
    owner.register_forward_hook(after, always_call=True)


def _brought(p, placements):
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


def _redistribute(module, mesh, plan, name, whole, dims):
    """Keeps a parameter as the plan does; its module reads a local tensor or, with a style over dims, a DTensor."""
    param = next(p for p in plan["params"] if p["name"] == name)
    owners = _owners(module, name)
    read, gradient = _placements(param["read"]), _placements(plan["torch"]["redistribute"][name])
    over = [i for i, d in enumerate(mesh.mesh_dim_names) if d in (dims or [])]
    for i in over:
        gradient[i] = read[i]
    parts = data_parallel(mesh, plan)[1]
    kept = torch.nn.Parameter(distribute_tensor(whole, mesh, _placements(param["kept"])), module.get_parameter(name).requires_grad)
    _replace(owners, kept)

    def as_read(p):
        local = _brought(p, read).to_local(grad_placements=gradient)
        if local.requires_grad and parts > 1:
            local.register_hook(lambda g: g / parts)
        local = _computed(local, plan)
        return DTensor.from_local(local, _submesh(mesh, dims), [read[over[0]]], run_check=False) if dims else local

    for owner, leaf in owners:
        _swap(owner, leaf, as_read)
    return kept


# ---- data dims: fully_shard, or averages of gradients ---------------------------------------------------------------


def _computed(p, plan):
    """A parameter that fully_shard ignores, in the type to which it casts the others and all inputs."""
    low = plan["precision"].split(",")[0]
    return p.to(TYPES[low]) if plan["torch"]["fully_shard"] and low in ("bf16", "f16") else p


def _fully_shard(module, mesh, plan, ignored):
    how = plan["torch"]["fully_shard"]
    copies = [d for d in plan["torch"]["data_dims"] if d not in how["mesh_dims"]]
    over = _submesh(mesh, how["mesh_dims"])
    if copies:
        over = type(mesh)._concatenate([_submesh(mesh, copies), over])
    parameters = _parameters(module)
    dims = {id(parameters[name]): Shard(dim) for name, dim in how["dims"].items()}
    low, reduce = (plan["precision"].split(",") + [""])[:2]
    policy = MixedPrecisionPolicy()
    if low in ("bf16", "f16"):
        policy = MixedPrecisionPolicy(TYPES[low], torch.float32 if reduce == "gradients=f32" else TYPES[low])
    units = [name for pattern in how["modules"] for name in _matches(module, pattern)]
    for unit in [module.get_submodule(name) for name in units] + [module]:
        fully_shard(unit, mesh=over, shard_placement_fn=lambda p: dims[id(p)], mp_policy=policy, ignored_params=ignored)


class _Average:
    """Averages gradients over a mesh in one all-reduce per type, at the end of every backward pass."""

    def __init__(self, parameters, mesh):
        self.group, self.size, self.ready = mesh.get_group(), mesh.size(), []
        for p in parameters:
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self._add)

    def _add(self, p):
        if not self.ready:
            torch.autograd.Variable._execution_engine.queue_callback(self._reduce)
        self.ready.append(p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad)

    @torch.no_grad()
    def _reduce(self):
        grads, self.ready = self.ready, []
        for dtype in {g.dtype for g in grads}:
            same = [g for g in grads if g.dtype == dtype]
            flat = torch.cat([g.reshape(-1) for g in same])
            dist.all_reduce(flat, group=self.group)
            for g, mean in zip(same, (flat / self.size).split([g.numel() for g in same])):
                g.copy_(mean.view_as(g))


# ---- plans that modules do not say: DTensors throughout -------------------------------------------------------------


def _place(module, mesh, plan):
    """Every parameter is a DTensor over the whole mesh, and so is every value inside the module."""
    data = plan["torch"]["data_dims"]
    ends = [Shard(0) if d in data else Replicate() for d in mesh.mesh_dim_names]
    parts = data_parallel(mesh, plan)[1]
    for p in plan["params"]:
        owners, old, read = _owners(module, p["name"]), module.get_parameter(p["name"]), _placements(p["read"])
        kept = torch.nn.Parameter(distribute_tensor(old.detach(), mesh, _placements(p["kept"])), old.requires_grad)
        _replace(owners, kept)
        _reduce_once(kept)
        for owner, leaf in owners:
            _swap(owner, leaf, lambda q, read=read: _brought(q, read))
    for value in plan["activations"]:
        if "module" in value and "P" not in value["read"]:
            module.get_submodule(value["module"]).register_forward_hook(
                lambda mod, args, out, to=_placements(value["read"]):
                    _sum_first(out, to) if isinstance(out, DTensor) else out)

    def before(mod, args, kwargs):
        return tree_map_only(torch.Tensor, lambda x: DTensor.from_local(x, mesh, ends, run_check=False), (args, kwargs))

    def to_local(out):
        local = out.redistribute(placements=ends).to_local()
        if local.requires_grad and parts > 1:
            local.register_hook(lambda g: g / parts)
        return local

    def after(mod, args, out):
        return tree_map_only(DTensor, to_local, out)

    module.register_forward_pre_hook(before, with_kwargs=True)
    module.register_forward_hook(after)
    return module


def _sum_first(x, to):
    """Redistributes x in two steps: the sum that a table split by rows leaves can be made only where its ids are."""
    split = [p for p in x.placements if p.is_shard()]
    first = [p if not p.is_partial() else Replicate() if t in split else t for p, t in zip(x.placements, to)]
    return x.redistribute(placements=first).redistribute(placements=to)


def _recompute(module, names):
    """These modules are computed again in the backward pass."""
    if names:
        from torch.distributed._composable import checkpoint
    for name in names:
        checkpoint(module.get_submodule(name))
