#!/usr/bin/env python3
"""Tokens per second of GPT-2 small (124 M, batch 32 x 1024, bf16) in PyTorch: torch.compile, scaled dot product
attention, fused AdamW. The last line is JSON."""
import json
import time

import torch
from torch import nn
from torch.nn import functional as F

BATCH, LENGTH, WIDTH, HEADS, LAYERS, VOCAB, STEPS = 32, 1024, 768, 12, 12, 50257, 20


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(WIDTH, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, text, targets):
        x = self.tokens(text) + self.places.weight[None]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy((self.norm(x) @ self.tokens.weight.T).view(-1, VOCAB), targets.view(-1))


def main():
    torch.set_float32_matmul_precision("high")
    model = torch.compile(GPT().cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    text = torch.randint(VOCAB, (BATCH, LENGTH), device="cuda")
    times = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(text, text)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    step = sorted(times[5:])[len(times[5:]) // 2]
    print(json.dumps({"torch": torch.__version__, "step_s": step, "tokens_per_s": BATCH * LENGTH / step,
                      "peak_bytes": torch.cuda.max_memory_allocated()}))


main()
