"""A module planned and trained under torchrun: torchrun --nproc-per-node 2 with_torchrun.py"""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import dtplan


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 256), torch.nn.Linear(256, 10)

    def forward(self, images, labels):
        return torch.nn.functional.cross_entropy(self.down(self.up(images).relu()), labels)


dist.init_process_group("cuda:nccl,cpu:gloo" if torch.cuda.is_available() else "gloo")
device = "cuda" if torch.cuda.is_available() else "cpu"
device_mesh = init_device_mesh(device, (dist.get_world_size(),), mesh_dim_names=("dp",))
torch.manual_seed(0)
model = Classifier().to(device)
images, labels = torch.rand(32, 64, device=device), torch.randint(0, 10, (32,), device=device)

# cpu_2 stands for two ranks of a laptop; on GPUs leave `machine` out.
plan = dtplan.plan(model, (images, labels), mesh={"dp": dist.get_world_size()}, machine=None if device == "cuda" else "cpu_2")
model = plan.parallelize(model, device_mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
part, parts = plan.data_parallel(device_mesh)
for step in range(5):
    with plan.loss_parallel():
        loss = model(images.chunk(parts)[part], labels.chunk(parts)[part])
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"rank {dist.get_rank()} step {step} loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
