"""Five steps of models/gpt_bytes.json in PyTorch under a plan, with a process per device of its mesh:
PYTHONPATH=interop/python torchrun --nproc-per-node 4 examples/torch_apply.py plan.torch.json models/data/text.txt"""
import json
import sys

import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch_gpt import Gpt

from dtplan import dtp_torch

with open(sys.argv[1], encoding="utf-8") as file:
    plan = json.load(file)
mesh = init_device_mesh("cpu", [size for _, size in plan["mesh"]], mesh_dim_names=[name for name, _ in plan["mesh"]])
torch.manual_seed(0)
model = dtp_torch.parallelize(Gpt({p["name"]: p["shape"] for p in plan["params"]}), mesh, plan)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
batch, window = plan["inputs"][0]["shape"]
with open(sys.argv[2], "rb") as file:
    rows = torch.tensor(list(file.read(5 * batch * window))).view(5, batch, window)
part, parts = dtp_torch.data_parallel(mesh, plan)
for step in range(5):
    text = rows[step].chunk(parts)[part]
    with dtp_torch.loss_parallel(plan):
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"rank {mesh.get_rank()} step {step} loss {loss.item():.4f}", flush=True)
