"""What the package says of modules, meshes and ops that do not fit; prints what was refused."""
import inspect
import warnings

import torch
import torch.distributed as dist
from modules import make
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtplan

count = 0


def refused(kind, call, *words):
    global count
    try:
        call()
    except kind as error:
        lacks = [word for word in words if word not in str(error)]
        assert not lacks, f"{lacks} not in: {error}"
        count += 1
    else:
        raise AssertionError(f"no {kind.__name__} with {words}")


class Sorted(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        h = self.up(x)
        return torch.linalg.svdvals(h).sum()  # the line that is named


LINE = inspect.getsourcelines(Sorted.forward)[1] + 2


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        h = self.up(x).sum()
        return h if h > 0 else -h  # by a value


few = {"mesh": {"x": 2}, "machine": "cpu_2"}
refused(dtplan.InputError, lambda: dtplan.plan(Sorted(), torch.zeros(4, 8), **few), "svdvals", f'words.py", line {LINE}')
refused(dtplan.InputError, lambda: dtplan.plan(Branches(), torch.zeros(4, 8), **few), "torch.export")
refused(dtplan.InputError, lambda: dtplan.plan(Sorted(), **few), "example_inputs")
for other in (Sorted, None, 3):
    refused(dtplan.InputError, lambda other=other: dtplan.plan(other, torch.zeros(4, 8), **few), "a PyTorch module", repr(other))

module, inputs, loss = make("nanogpt")
for options in ({"mode": "tensor"}, {"mode": "rules"}, {"machine": "h100_64"}, {"machine": "h100_64", "objective": "memory"}):
    form = dtplan.plan(module, inputs, loss=loss, **{**few, **options})._torch["torch"]["form"]
    assert form == "modules", f"{options}: {form}"
dtplan.plan(module, inputs, loss=loss, uneven=True, **few)  # not with expressible="torch"
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    dtplan.plan(module, inputs, loss=loss, rules="heads:x", **few)
assert any("by placements of DTensors alone" in str(w.message) and w.filename == __file__ for w in told), [str(w) for w in told]
plan = dtplan.plan(module, inputs, loss=loss, precision="f32", **few)
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("x",))
refused(dtplan.InputError, lambda: plan.parallelize(make("llama")[0], mesh), "the module has no parameter 'transformer.wpe.weight'")
refused(dtplan.InputError, lambda: plan.parallelize(make("nanogpt")[0], init_device_mesh("cpu", (4,), mesh_dim_names=("x",))),
        "the mesh is [('x', 4)], the plan's [('x', 2)]")
refused(dtplan.InputError, lambda: plan.parallelize(module, None), "device mesh")
plan.parallelize(module, mesh)
refused(dtplan.InputError, lambda: plan.parallelize(module, mesh), "parallelized already")

# The numbers of a rotary table follow from the config of its module, or a warning names the buffer.
with torch.device("meta"):
    bare = make("llama")[0]
bare.model.rotary_emb.config = None
try:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        dtplan.plan(bare, inputs, loss=make("llama")[2], **few)
finally:
    assert any("model.rotary_emb.inv_freq" in str(w.message) for w in told), [str(w.message) for w in told]
print(f"{count} refusals, 1 warning")
