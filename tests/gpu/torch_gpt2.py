#!/usr/bin/env python3
"""PyTorch's side of GPT-2 small (124 M, batch 32 x 1024, bf16). The last line is JSON.

step   tokens per second: torch.compile, scaled dot product attention, fused AdamW
parts  forward and backward of attention, layer norm and the product of the head alone
peak   a copy of device memory, counting bytes read and written, and a product of 8192 x 8192 x 8192
Usage: torch_gpt2.py step|parts|peak"""
import json
import statistics
import sys
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


def seconds(run, repeats=20):
    """Median time of one run on the device."""
    times = []
    for i in range(repeats + 3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times += [start.elapsed_time(end) / 1e3] if i >= 3 else []
    return statistics.median(times)


def peak():
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    x = torch.empty(1 << 31, device="cuda", dtype=torch.uint8)
    y = torch.empty_like(x)
    return {"copy_Bps": 2 * x.numel() / seconds(lambda: y.copy_(x)), "bf16_flops": 2 * 8192**3 / seconds(lambda: a @ b)}


def both_ways(function, *operands):
    operands = [x.requires_grad_() for x in operands]
    out = function(*operands)
    grad = torch.randn_like(out)
    return {"forward_s": seconds(lambda: function(*operands)),
            "backward_s": seconds(lambda: torch.autograd.grad(out, operands, grad, retain_graph=True))}


def parts():
    def make(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    q, k, v = (make(BATCH, HEADS, LENGTH, WIDTH // HEADS) for _ in range(3))
    x, weight, bias = make(BATCH * LENGTH, WIDTH), make(WIDTH), make(WIDTH)
    return {"attention": both_ways(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v),
            "layer_norm": both_ways(lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b), x, weight, bias),
            **{f"head {n}": both_ways(lambda x, w: x @ w.T, make(BATCH * LENGTH, WIDTH), make(n, WIDTH)) for n in (VOCAB, 50304)}}


def step():
    torch.set_float32_matmul_precision("high")
    model = torch.compile(GPT().cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    text = torch.randint(VOCAB, (BATCH, LENGTH), device="cuda")

    def run():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(text, text)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    compiled = time.perf_counter() - start
    took = seconds(run, 12)
    return {"step_s": took, "tokens_per_s": BATCH * LENGTH / took, "compile_s": compiled,
            "peak_bytes": torch.cuda.max_memory_allocated()}


def main():
    parts_of = {"step": step, "parts": parts, "peak": peak}
    print(json.dumps({"torch": torch.__version__, **parts_of[sys.argv[1]]()}))


main()
