"""The three lines under torchrun over gloo, beside one process: losses of five steps, norms of gradients under clip_grad_norm_,
torch.compile, a module made on the meta device, and the state dict, saved and loaded, whole and by torch.distributed.checkpoint.

Usage: torchrun --nproc-per-node N three_lines.py "MODULE MESH [OPTION=VALUE]..."...     MESH: such as dp:2,tp:2
"""
import contextlib
import copy
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from modules import make
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

import dtplan

STEPS, TOLERANCE = 5, 1e-6


def step_loss(module, inputs, loss):
    if loss is None:
        return module(*inputs)[1]
    return loss(module(*inputs[:-1]), inputs[-1])


def train(module, inputs, loss, context, steps=STEPS):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    out = []
    for _ in range(steps):
        with context():
            value = step_loss(module, inputs, loss)
            value.backward()
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        out.append((mean(value), float(norm.full_tensor() if isinstance(norm, DTensor) else norm)))
    return out


def mean(value):
    value = (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()
    dist.all_reduce(value)
    return float(value / dist.get_world_size())


def same(what, got, wanted):
    worst = max(abs(a - b) / max(1.0, abs(b)) for x, y in zip(got, wanted) for a, b in zip(x, y))
    if not worst <= TOLERANCE:
        sys.exit(f"{what}: {got} instead of {wanted}")
    return worst


def check(name, text, *options):
    sizes = {dim: int(size) for dim, size in (part.split(":") for part in text.split(","))}
    module, inputs, loss = make(name)
    wanted = train(copy.deepcopy(module), inputs, loss, contextlib.nullcontext)

    device_mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    plan = dtplan.plan(module, inputs, mesh=sizes, loss=loss,
                       **{"machine": "a100_8", "precision": "f32", **dict(option.split("=", 1) for option in options)})
    part, parts = plan.data_parallel(device_mesh)
    mine = tuple(x.chunk(parts)[part] for x in inputs)
    first = plan.parallelize(copy.deepcopy(module), device_mesh)
    found = [same("losses, norms", train(first, mine, loss, plan.loss_parallel), wanted)]

    whole = get_model_state_dict(first, options=StateDictOptions(full_state_dict=True))
    if set(whole) != set(module.state_dict()) and dist.get_rank() == 0:
        sys.exit(f"keys of the state dict: {set(whole) ^ set(module.state_dict())}")
    states = [whole]
    dist.broadcast_object_list(states)
    plain = copy.deepcopy(module)
    plain.load_state_dict(states[0])
    wanted_value = [(mean(step_loss(plain, inputs, loss)),)]
    for load in (lambda second: second.load_state_dict(states[0]), lambda second: through_checkpoint(first, second)):
        second = plan.parallelize(copy.deepcopy(module), device_mesh)
        load(second)
        with plan.loss_parallel(), torch.no_grad():
            found.append(same("state dict", [(mean(step_loss(second, mine, loss)),)], wanted_value))

    found.append(max(same("made on the meta device", train(from_meta(name, module, plan, device_mesh, assign), mine, loss,
                                                           plan.loss_parallel), wanted) for assign in (False, True)))

    compiled = plan.parallelize(copy.deepcopy(module), device_mesh)
    compiled.compile(backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.append(same("torch.compile", train(compiled, mine, loss, plan.loss_parallel), wanted))
    torch.compiler.reset()
    if dist.get_rank() == 0:
        form = plan._torch["torch"]["form"]
        print(f"{dist.get_world_size()} processes, {name} {text} {' '.join(options)}: by {form}, {parts} parts; losses and norms "
              f"{found[0]:.1e}, state dict {max(found[1:3]):.1e}, from the meta device {found[3]:.1e}, compiled {found[4]:.1e}", flush=True)


def from_meta(name, module, plan, device_mesh, assign):
    """Parallelized without memory; then with the weights of a module, by to_empty or by assign=True."""
    with torch.device("meta"):
        bare, *_ = make(name)
    plan.parallelize(bare, device_mesh)
    if assign:
        bare.load_state_dict(copy.deepcopy(module.state_dict()), assign=True)
    else:
        bare.to_empty(device="cpu")
    if hasattr(bare, "transformer"):  # both untie what PyTorch does not swap
        bare.transformer.wte.weight = bare.lm_head.weight
    for path, value in module.named_buffers():
        owner, _, leaf = path.rpartition(".")
        setattr(bare.get_submodule(owner), leaf, value.clone())
    if not assign:
        set_model_state_dict(bare, copy.deepcopy(module.state_dict()), options=StateDictOptions(full_state_dict=True))
    return bare


def through_checkpoint(first, second):
    """The state dict of one, written by torch.distributed.checkpoint, in the other."""
    with tempfile.TemporaryDirectory() as own:
        folder = [own]
        dist.broadcast_object_list(folder)
        checkpoint.save(get_model_state_dict(first), checkpoint_id=folder[0])
        state = get_model_state_dict(second)
        checkpoint.load(state, checkpoint_id=folder[0])
        set_model_state_dict(second, state)
        dist.barrier()


def main():
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=dtplan.DtplanWarning)
    dist.init_process_group("gloo")
    for case in sys.argv[1:]:
        check(*case.split())
    dist.destroy_process_group()


main()
