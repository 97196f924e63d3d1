"""The three lines under torchrun over gloo, beside one process: losses of five steps, norms of gradients under clip_grad_norm_,
torch.compile, and the state dict, saved and loaded.

Usage: torchrun --nproc-per-node N three_lines.py MODULE MESH [OPTION=VALUE]...     MESH: such as dp:2,tp:2
"""
import contextlib
import copy
import sys
import warnings

import torch
import torch.distributed as dist
from modules import make
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
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
    if dist.is_initialized():
        dist.all_reduce(value)
        value /= dist.get_world_size()
    return float(value)


def same(what, got, wanted):
    worst = max(abs(a - b) / max(1.0, abs(b)) for x, y in zip(got, wanted) for a, b in zip(x, y))
    if dist.get_rank() == 0:
        print(f"{what}: {worst:.1e}", flush=True)
    if not worst <= TOLERANCE:
        sys.exit(f"{what}: {got} instead of {wanted}")


def main():
    name, text = sys.argv[1:3]
    sizes = {dim: int(size) for dim, size in (part.split(":") for part in text.split(","))}
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=dtplan.DtplanWarning)
    module, inputs, loss = make(name)
    wanted = train(copy.deepcopy(module), inputs, loss, contextlib.nullcontext)
    dist.init_process_group("gloo")
    device_mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))

    options = dict(option.split("=", 1) for option in sys.argv[3:])
    plan = dtplan.plan(module, inputs, mesh=sizes, loss=loss, precision="f32", **{"machine": "a100_8", **options})
    part, parts = plan.data_parallel(device_mesh)
    mine = tuple(x.chunk(parts)[part] for x in inputs)
    first = plan.parallelize(copy.deepcopy(module), device_mesh)
    same(f"{name} {text} losses, norms", train(first, mine, loss, plan.loss_parallel), wanted)

    whole = get_model_state_dict(first, options=StateDictOptions(full_state_dict=True))
    if set(whole) != set(module.state_dict()) and dist.get_rank() == 0:
        sys.exit(f"keys of the state dict: {set(whole) ^ set(module.state_dict())}")
    states = [whole]
    dist.broadcast_object_list(states)
    second = plan.parallelize(copy.deepcopy(module), device_mesh)
    second.load_state_dict(states[0])
    plain = copy.deepcopy(module)
    plain.load_state_dict(states[0])
    with plan.loss_parallel(), torch.no_grad():
        same("state dict", [(mean(step_loss(second, mine, loss)),)], [(mean(step_loss(plain, inputs, loss)),)])

    compiled = plan.parallelize(copy.deepcopy(module), device_mesh)
    compiled.compile(backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same("torch.compile", train(compiled, mine, loss, plan.loss_parallel), wanted)
    dist.destroy_process_group()


main()
