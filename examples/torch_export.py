"""The module of torch_gpt.py with its loss, without weights, as a program that `dtplan import` reads:
python3 examples/torch_export.py gpt.pt2"""
import sys

import torch
import torch.nn.functional as F
from torch_gpt import Gpt


class Loss(Gpt):
    def forward(self, text):
        return F.cross_entropy(super().forward(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


shapes = {"wte.weight": [256, 64], "wpe.weight": [64, 64], "layers.0.mlp.up.bias": [256]}
shapes |= {f"layers.{i}.ln_1.weight": [64] for i in range(2)}
with torch.device("meta"):
    program = torch.export.export(Loss(shapes), (torch.zeros(8, 65, dtype=torch.long),))
torch.export.save(program, sys.argv[1])
