"""A parallelize_fn for a ModelSpec of torchtitan (0.3): ModelSpec(..., parallelize_fn=parallelize_with_plan).

The plan is made before the job, of the same module with its loss, over those of torchtitan's mesh dims dp_replicate, fsdp and tp that
are larger than 1. Here the function is called as torchtitan calls it, on the meta device, with the one method of its ParallelDims that
is used: torchrun --nproc-per-node 2 with_torchtitan.py

Lost: torchtitan's own settings of recomputation and of mixed precision; the plan says both. Its loss functions compute over whole
logits: plan with `rules` that split no classes, or call them within plan.loss_parallel().
"""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import dtplan

PLAN = "model.dtplan"  # what Plan.save wrote


def parallelize_with_plan(model, *, parallel_dims, training=None, parallelism=None, compile_config=None, ac_config=None,
                          dump_folder=None):
    plan = dtplan.load(PLAN)
    model = plan.parallelize(model, parallel_dims.get_mesh(list(plan.mesh)))
    if compile_config is not None and compile_config.enable:
        model.compile()
    return model


class ParallelDims:
    """What parallelize_with_plan uses of torchtitan's: meshes of some of the dims of one over all ranks."""

    def __init__(self, **sizes):
        self.mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))

    def get_mesh(self, names):
        return self.mesh[tuple(names)]


def make():
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    weights, images, labels = make().state_dict(), torch.rand(32, 64), torch.randint(0, 10, (32,))
    loss_fn = torch.nn.functional.cross_entropy
    with torch.device("meta"):
        model = make()
    plan = dtplan.plan(model, (images, labels), loss=loss_fn, mesh={"fsdp": dist.get_world_size()}, machine="cpu_2", precision="f32")
    if dist.get_rank() == 0:
        plan.save(PLAN)
    dist.barrier()

    parallel_dims = ParallelDims(pp=1, fsdp=dist.get_world_size(), tp=1)
    model = parallelize_with_plan(model, parallel_dims=parallel_dims)
    model.to_empty(device="cpu")
    model.load_state_dict(weights)  # torchtitan: init_weights
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    part, parts = plan.data_parallel(parallel_dims.get_mesh(["fsdp"]))
    for _ in range(5):
        with plan.loss_parallel():
            loss = loss_fn(model(images.chunk(parts)[part]), labels.chunk(parts)[part])
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {dist.get_rank()} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
