#!/usr/bin/env python3
"""Writes tests/interop/pt2/*.pt2: small modules, exported by torch.export.

Run by hand where torch is installed: python3 make_pt2.py FOLDER [NAME ..]. Each file also holds, as test/*.npy, the
inputs of one call and what the module gives for them. Places of source lines lose their folders."""
import copy
import io
import json
import math
import os
import re
import sys
import zipfile

import numpy as np
import torch
import torch.nn.functional as F
from pt2_modules import Chunks, Convs, Indices, Losses, Pairs, Pyramid, Resized, Rows, Running, Scores, Tables, Writes
from torch import nn


class Gpt(nn.Module):
    """Learned positions, one weight for q, k and v, tied embedding, gelu by tanh."""

    class Layer(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.heads = heads
            self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            b, l, d = x.shape
            q, k, v = (t.view(b, l, self.heads, -1).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(d, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).contiguous().view(b, l, d))
            return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))

    def __init__(self, vocab=61, d=32, heads=4, layers=2, positions=24):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(positions, d)
        self.h = nn.ModuleList(Gpt.Layer(d, heads) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.h:
            x = layer(x)
        return self.head(self.ln_f(x))


class RmsNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d) + 0.1 * torch.randn(d))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class Llama(nn.Module):
    """Grouped heads, rotary positions, a mask made by hand; norms of q and k as in Qwen3."""

    class Layer(nn.Module):
        def __init__(self, d, heads, kv, hidden, qk_norm):
            super().__init__()
            self.heads, self.kv, self.dh = heads, kv, d // heads
            self.norm_1, self.norm_2 = RmsNorm(d), RmsNorm(d)
            self.q, self.k = nn.Linear(d, d, bias=False), nn.Linear(d, kv * self.dh, bias=False)
            self.v, self.o = nn.Linear(d, kv * self.dh, bias=False), nn.Linear(d, d, bias=False)
            self.gate, self.up = nn.Linear(d, hidden, bias=False), nn.Linear(d, hidden, bias=False)
            self.down = nn.Linear(hidden, d, bias=False)
            self.q_norm = RmsNorm(self.dh) if qk_norm else nn.Identity()
            self.k_norm = RmsNorm(self.dh) if qk_norm else nn.Identity()

        def forward(self, x, cos, sin, mask):
            b, l, d = x.shape
            y = self.norm_1(x)
            q = rotate(self.q_norm(self.q(y).view(b, l, self.heads, self.dh)).transpose(1, 2), cos, sin)
            k = rotate(self.k_norm(self.k(y).view(b, l, self.kv, self.dh)).transpose(1, 2), cos, sin)
            v = self.v(y).view(b, l, self.kv, self.dh).transpose(1, 2)
            n = self.heads // self.kv
            k = k[:, :, None].expand(b, self.kv, n, l, self.dh).reshape(b, self.heads, l, self.dh)
            v = v[:, :, None].expand(b, self.kv, n, l, self.dh).reshape(b, self.heads, l, self.dh)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + self.o(y.transpose(1, 2).reshape(b, l, d))
            y = self.norm_2(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def __init__(self, vocab=53, d=32, heads=4, kv=2, hidden=40, layers=2, qk_norm=False, loss=False, base=50000.0):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(Llama.Layer(d, heads, kv, hidden, qk_norm) for _ in range(layers))
        self.norm, self.head, self.loss = RmsNorm(d), nn.Linear(d, vocab, bias=False), loss
        dh = d // heads
        self.register_buffer("inv", base ** (-torch.arange(0, dh, 2).float() / dh), persistent=False)

    def forward(self, ids):
        l = ids.shape[1]
        at = torch.arange(l, device=ids.device)
        angle = at[:, None].float() * self.inv[None, :]
        angle = torch.cat((angle, angle), dim=-1)
        mask = (at[None, :] <= at[:, None])[None, None]
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, angle.cos(), angle.sin(), mask)
        logits = self.head(self.norm(x))
        if not self.loss:
            return logits
        labels = F.pad(ids, (0, 1), value=-100)[:, 1:]
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)), logits


class Encoder(nn.Module):
    """A layer with norms behind the sums (BERT) or before them (ViT)."""

    def __init__(self, d, heads, before):
        super().__init__()
        self.heads, self.before = heads, before
        self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.dense, self.norm_1, self.norm_2 = nn.Linear(d, d), nn.LayerNorm(d, 1e-12), nn.LayerNorm(d, 1e-12)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def attend(self, x, mask):
        b, l, d = x.shape
        q, k, v = (t(x).view(b, l, self.heads, -1).transpose(1, 2) for t in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.dense(y.transpose(1, 2).reshape(b, l, d))

    def forward(self, x, mask=None):
        if self.before:
            x = x + self.attend(self.norm_1(x), mask)
            return x + self.down(F.gelu(self.up(self.norm_2(x))))
        x = self.norm_1(x + self.attend(x, mask))
        return self.norm_2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    """Two tables with fixed ids, a mask that is an input, a pooler."""

    def __init__(self, vocab=47, d=32, heads=4, layers=2, positions=20):
        super().__init__()
        self.words, self.places, self.kinds = nn.Embedding(vocab, d), nn.Embedding(positions, d), nn.Embedding(2, d)
        self.norm = nn.LayerNorm(d, 1e-12)
        self.layer = nn.ModuleList(Encoder(d, heads, False) for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(d, d), nn.Linear(d, 3)
        self.register_buffer("position_ids", torch.arange(positions)[None], persistent=False)

    def forward(self, ids, mask):
        kinds = torch.zeros_like(ids)
        x = self.words(ids) + self.kinds(kinds) + self.places(self.position_ids[:, : ids.shape[1]])
        x, mask = self.norm(x), mask[:, None, None, :] > 0
        for layer in self.layer:
            x = layer(x, mask)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


class Vit(nn.Module):
    """Patches by a convolution whose stride is its kernel, a class token, learned positions."""

    def __init__(self, d=32, heads=4, layers=2, patch=4, image=16):
        super().__init__()
        self.patches = nn.Conv2d(3, d, patch, stride=patch)
        self.token = nn.Parameter(torch.randn(1, 1, d))
        self.places = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, d))
        self.layer = nn.ModuleList(Encoder(d, heads, True) for _ in range(layers))
        self.norm, self.classifier = nn.LayerNorm(d), nn.Linear(d, 7)

    def forward(self, pixels):
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.places
        for layer in self.layer:
            x = layer(x)
        return self.classifier(self.norm(x)[:, 0])


class T5(nn.Module):
    """Encoder and decoder, attention without a scale and with a learned bias by distance."""

    class Attention(nn.Module):
        def __init__(self, d, heads, bias):
            super().__init__()
            self.heads = heads
            self.q, self.k = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
            self.v, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
            self.bias = nn.Embedding(8, heads) if bias else None

        def table(self, l):
            """Distance in buckets: exact below 4, then by its logarithm."""
            at = torch.arange(l)
            far = (at[:, None] - at[None, :]).abs()
            large = 4 + (torch.log(far.float() / 4 + 1e-9) / math.log(4) * 4).long()
            bucket = torch.where(far < 4, far, torch.minimum(large, torch.full_like(large, 7)))
            return self.bias(bucket).permute(2, 0, 1).unsqueeze(0)

        def forward(self, x, other, mask):
            b, l, d = x.shape
            q = self.q(x).view(b, l, self.heads, -1).transpose(1, 2)
            k, v = (t(other).view(b, other.shape[1], self.heads, -1).transpose(1, 2) for t in (self.k, self.v))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
            return self.o(y.transpose(1, 2).reshape(b, l, d))

    class Block(nn.Module):
        def __init__(self, d, heads, cross, bias):
            super().__init__()
            self.norm_1, self.own = RmsNorm(d), T5.Attention(d, heads, bias)
            self.norm_2, self.cross = (RmsNorm(d), T5.Attention(d, heads, False)) if cross else (None, None)
            self.norm_3, self.wi, self.wo = RmsNorm(d), nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

        def forward(self, x, mask, other):
            y = self.norm_1(x)
            x = x + self.own(y, y, mask)
            if self.cross is not None:
                x = x + self.cross(self.norm_2(x), other, None)
            return x + self.wo(F.relu(self.wi(self.norm_3(x))))

    def __init__(self, vocab=41, d=16, heads=4, layers=2):
        super().__init__()
        self.shared = nn.Embedding(vocab, d)
        self.encoder = nn.ModuleList(T5.Block(d, heads, False, i == 0) for i in range(layers))
        self.decoder = nn.ModuleList(T5.Block(d, heads, True, i == 0) for i in range(layers))
        self.norm, self.norm_d = RmsNorm(d), RmsNorm(d)

    def forward(self, ids, decoder_ids):
        x, y = self.shared(ids), self.shared(decoder_ids)
        mask = self.encoder[0].own.table(ids.shape[1])
        for block in self.encoder:
            x = block(x, mask, None)
        x = self.norm(x)
        l = decoder_ids.shape[1]
        mask = self.decoder[0].own.table(l).masked_fill(torch.triu(torch.ones(l, l, dtype=torch.bool), 1), -1e9)
        for block in self.decoder:
            y = block(y, mask, x)
        return F.linear(self.norm_d(y), self.shared.weight)


class Dlrm(nn.Module):
    """Dense features, tables, products of all pairs."""

    def __init__(self, dense=13, sizes=(40, 30, 20), d=16):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(dense, 32), nn.ReLU(), nn.Linear(32, d), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(n, d) for n in sizes)
        n = len(sizes) + 1
        self.top = nn.Sequential(nn.Linear(n * n + d, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        rows = [x] + [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        t = torch.stack(rows, dim=1)
        pairs = torch.bmm(t, t.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.top(torch.cat((x, pairs), dim=1)))


class Nano(nn.Module):
    """Attention as products and a softmax with a mask from a buffer, one embedding for both ends, a loss."""

    class Layer(nn.Module):
        def __init__(self, d, heads, positions):
            super().__init__()
            self.heads, self.drop = heads, nn.Dropout(0.1)
            self.norm, self.qkv, self.proj = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.mlp = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.LeakyReLU(0.1), nn.Linear(2 * d, d))
            self.register_buffer("seen", torch.tril(torch.ones(positions, positions))[None, None])

        def forward(self, x):
            b, l, d = x.shape
            q, k, v = self.qkv(self.norm(x)).view(b, l, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.shape[-1]))
            scores = scores.masked_fill(self.seen[:, :, :l, :l] == 0, float("-inf"))
            y = self.drop(torch.nan_to_num(F.softmax(scores, dim=-1))) @ v
            x = x + self.proj(y.transpose(1, 2).reshape(b, l, d))
            return x + self.mlp(x)

    def __init__(self, vocab=37, d=16, heads=4, layers=2, positions=16):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(positions, d)
        self.h, self.norm = nn.ModuleList(Nano.Layer(d, heads, positions) for _ in range(layers)), nn.LayerNorm(d)

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.h:
            x = layer(x)
        logits = F.linear(self.norm(x), self.wte.weight)
        return F.nll_loss(F.log_softmax(logits, dim=-1).flatten(0, 1), labels.flatten()), logits


class Grouped(nn.Module):
    """Attention of grouped heads as einsums, pairs of neighbours for rotary positions, norms of the same name within
    and behind the layers."""

    class Layer(nn.Module):
        def __init__(self, d, kv, group, dh):
            super().__init__()
            weight = lambda *sizes: nn.Parameter(torch.randn(sizes) / d**0.5)
            self.wq, self.wk, self.wv = weight(d, kv, group, dh), weight(d, kv, dh), weight(d, kv, dh)
            self.wo, self.norm = weight(kv, group, dh, d), nn.RMSNorm(d)
            self.gate, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(2 * d, d, bias=False)

        def forward(self, x, cos, sin):
            y, l = self.norm(x), x.shape[1]
            q = self.turn(torch.einsum("bld,dkgh->blkgh", y, self.wq), cos[:, None, None], sin[:, None, None])
            k = self.turn(torch.einsum("bld,dkh->blkh", y, self.wk), cos[:, None], sin[:, None])
            v = torch.einsum("bld,dkh->blkh", y, self.wv)
            scores = torch.einsum("bqkgh,bskh->bkgqs", q, k) / q.shape[-1] ** 0.5
            seen = torch.ones(l, l, dtype=torch.bool).tril()
            scores = torch.where(seen, scores, torch.finfo(scores.dtype).min)
            y = torch.einsum("bkgqs,bskh->bqkgh", scores.softmax(-1), v)
            x = x + torch.einsum("...kgh,kghd->...d", y, self.wo)
            return x + self.down(F.glu(self.gate(x), dim=-1))

        def turn(self, x, cos, sin):
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    def __init__(self, vocab=31, d=16, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.layers, self.norm = nn.ModuleList(Grouped.Layer(d, 2, 2, 4) for _ in range(layers)), nn.RMSNorm(d)

    def forward(self, ids):
        x, at = self.embed(ids), torch.arange(ids.shape[1])[:, None]
        angle = at * (10000.0 ** (-torch.arange(0, 4, 2) / 4))[None]
        cos, sin = angle.cos(), angle.sin()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return torch.einsum("bld,vd->blv", self.norm(x), self.embed.weight)


class Stem(nn.Module):
    """An image in patches, groups of channels, convolutions of one pixel, pools."""

    def __init__(self, d=16):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, d, 4, 4), nn.GroupNorm(4, d)
        self.up, self.down, self.head = nn.Conv2d(d, 2 * d, 1), nn.Conv2d(2 * d, d, 1), nn.Linear(d, 10)

    def forward(self, pixels):
        x = self.stem(pixels)
        x = F.relu6(x + self.down(F.hardswish(self.up(self.norm(x)))))
        x = F.max_pool2d(x, 2) + F.avg_pool2d(F.elu(x), 2)
        return F.log_softmax(self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)), dim=-1)


class Experts(nn.Module):
    """All experts for every token, weighted by the two best; a table of scales by the best one."""

    def __init__(self, d=16, experts=4, hidden=24):
        super().__init__()
        self.gate, self.scales = nn.Linear(d, experts, bias=False), nn.Parameter(torch.rand(experts, 3))
        self.w1 = nn.Parameter(torch.randn(experts, d, hidden) / d**0.5)
        self.w2 = nn.Parameter(torch.randn(experts, hidden, d) / hidden**0.5)

    def forward(self, x):
        w = self.gate(x).softmax(-1)
        best, at = w.topk(2, dim=-1)
        w = torch.where(w >= best[..., -1:], w, 0.0)
        w = w / w.sum(-1, keepdim=True).clamp(min=1e-6)
        y = torch.einsum("blef,efd,ble->bld", F.silu(torch.einsum("bld,edf->blef", x, self.w1)), self.w2, w)
        kinds = F.one_hot(w.argmax(-1), w.shape[-1]).float().mean(1)
        picked = torch.gather(w, 2, at).cumsum(-1)
        best = at[:, 0, 0]
        rows = x[torch.arange(x.shape[0], device=x.device), best]
        return y, kinds @ self.scales, picked, self.scales.index_select(0, best), rows, x[:, at[0, :, 0]]


class Encoding(nn.Module):
    """An encoder of means and variances with several losses, two towers, rows that are normalised by hand."""

    def __init__(self, n=24, d=8):
        super().__init__()
        self.encode, self.decode = nn.Sequential(nn.Linear(n, 16), nn.Mish(), nn.Linear(16, 2 * d)), nn.Linear(d, n)
        self.other, self.scale = nn.Linear(n, d), nn.Parameter(torch.tensor(1.2))

    def forward(self, x, noise, target):
        mean, log_var = self.encode(x).chunk(2, dim=-1)
        z = mean + noise * torch.exp(0.5 * log_var.clamp(-6, 6))
        y = self.decode((z - z.mean(-1, keepdim=True)) / (z.std(-1, keepdim=True) + 1e-3))
        a, b = F.normalize(z, dim=-1), F.normalize(self.other(target), dim=-1)
        logits = self.scale.exp() * a @ b.t()
        right = torch.arange(x.shape[0], device=x.device)
        loss = F.binary_cross_entropy_with_logits(y, target) + F.mse_loss(y.sigmoid(), target)
        loss = loss + F.huber_loss(y, x, delta=0.5) + F.kl_div(F.log_softmax(y, -1), F.softmax(target, -1), reduction="sum")
        loss = loss + (F.cross_entropy(logits, right) + F.cross_entropy(logits.t(), right)) / 2
        loss = loss - 0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(1).mean()
        return loss, torch.cat((y[:, 1::3].repeat_interleave(2, 1), y.remainder(0.5), torch.var_mean(y, 1)[0][:, None]), 1)


class Shifts(nn.Module):
    """Elements that move along a dim: shifts in the ways that people write them, paddings, rolls, slices."""

    def __init__(self, n=12):
        super().__init__()
        self.mix, self.later = nn.Parameter(torch.rand(n)), nn.ZeroPad2d((0, 0, 1, -1))
        self.w = nn.Parameter(torch.randn(n, n) / n**0.5)

    def forward(self, x):
        y = x @ self.w
        mixed = y * self.mix + self.later(y) * (1 - self.mix)
        back = F.pad(y, (0, 0, -2, 2)) * F.pad(y[:, 2:], (0, 0, 0, 2))
        rolled = y.roll(3, 1) * y.roll((-2, 1), (1, 2))
        kept = (F.pad(y[:, :-3], (0, 0, 0, 1)), F.pad(y[:, 1:-1], (0, 0, 1, 1)), F.pad(y[..., :-1], (2, 0)),
                F.pad(y, (1, -3, -1, 4)), F.pad(y[:, :-2], (0, 0, 2, 0), value=0.5), F.pad(y[:, -3:], (0, 0, 5, 0)))
        loss = (mixed * back).mean() + (rolled * F.pad(y, (0, 0, 1, 0))[:, :-1]).mean() + sum((k * k).mean() for k in kept)
        return (loss, mixed, back, rolled, *kept)


class Pieces(nn.Module):
    """Views, pieces, repeats, statistics and elementwise ops that are several others, an output for each."""

    def __init__(self, n=8):
        super().__init__()
        self.scale, self.w = nn.Parameter(torch.linspace(0.7, 1.3, n)), nn.Parameter(torch.randn(n, n) / n**0.5)

    def forward(self, x, y, z):
        x, flags = x * self.scale, y > 0
        positive = x.abs() + 0.5
        q = z.view(4, 6, 4, 2).transpose(1, 2)
        k = q[:, :2]
        return (  # heads are repeated in two ways
            F.scaled_dot_product_attention(q, torch.stack((k, k), 2).flatten(1, 2), k.repeat_interleave(2, 1)),
            x[:, 1::4], x[:, -5::2], x[..., 1:6:2].movedim((0, 1), (2, 0)), torch.stack(x.unbind(-1)[::-1], -1),
            F.pad(x, (1, 1, 2, -1), value=2.5), x.roll(-2, -1), x[:, 0].repeat(3, 1, 2), x.tile(3), x.narrow(-1, 2, 3).mT,
            F.interpolate(x[:, None], scale_factor=2), torch.cat(torch.broadcast_tensors(x[:, :1], y), 1),
            F.glu(x, 1), F.group_norm(x[..., None], 3), F.avg_pool2d(x[:, None], 2), F.max_pool1d(x, 4), x.max(-1)[0],
            torch.std_mean(x, (1, 2), keepdim=True)[0], x.logsumexp((1, 2)), x.norm(p=1, dim=-1), x.cumsum(1),
            F.cosine_similarity(x, y, -1), flags.cumsum(1).float(), flags.sum(-1).float(), (flags ^ (x > 0)).any(-1).float(),
            torch.einsum("...ij,...kj", x, y), torch.einsum("bij->b", x), torch.einsum("bij,bij,j->bi", x, y, self.scale),
            x @ self.scale, torch.outer(x[0, 0], self.scale), torch.addmm(x[0], y[0], self.w, beta=0.5, alpha=2),
            torch.lerp(x, y, 0.3), torch.addcdiv(x, y, positive, value=0.5), torch.add(x, y, alpha=2), torch.logaddexp(x, y),
            2**x, positive.log2(), x.ceil(), x % 2, torch.div(x, positive, rounding_mode="floor"), F.selu(x), F.celu(x, 0.5),
            F.softplus(x, beta=2), F.hardsigmoid(x), F.hardtanh(x), F.logsigmoid(x), x.erfc(), torch.hypot(x, y),
            F.l1_loss(x, y, reduction="none"), F.smooth_l1_loss(x, y, beta=0.5, reduction="none"),
            F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction="none").add_(1), torch.nan_to_num(x),
        )


class Adapters(nn.Module):
    """Low-rank adapters beside frozen layers; a frozen table and a frozen weight of a norm whose bias is trained."""

    class Layer(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.base, self.a, self.b = nn.Linear(d, d), nn.Linear(d, 2, bias=False), nn.Linear(2, d, bias=False)
            self.base.requires_grad_(False)

        def forward(self, x):
            return x + F.gelu(self.base(x) + 2.0 * self.b(self.a(x)))

    def __init__(self, vocab=11, d=8):
        super().__init__()
        self.table = nn.Embedding.from_pretrained(torch.randn(vocab, d))
        self.h = nn.ModuleList(Adapters.Layer(d) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.norm.weight.requires_grad_(False)
        self.head.requires_grad_(False)

    def forward(self, ids, labels):
        x = self.table(ids)
        for layer in self.h:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)), labels)


class Hidden(nn.Module):
    """Rows whose scores are all hidden: 0, another number, or a mean, by what hides them and what stands for NaN."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(8, 8)

    def forward(self, x, kept):
        q, inf, low = self.q(x), float("-inf"), torch.finfo(torch.float32).min
        s = q @ x.transpose(1, 2) / 8**0.5
        p = [torch.softmax(s.masked_fill(~kept, inf), -1), torch.softmax(torch.where(kept, s, inf), -1),
             torch.softmax(s + torch.where(kept, 0.0, inf), -1), torch.softmax(s.masked_fill(~kept, inf), -1)]
        return (torch.nan_to_num(p[0], 0.0) @ x, torch.where(torch.isnan(p[1]), 0.0, p[1]) @ x,
                p[2].masked_fill(torch.isnan(p[2]), 0) @ x, torch.nan_to_num(p[3], 0.5),
                torch.nan_to_num(torch.softmax(torch.where(kept, s, low), -1)) @ x,
                torch.softmax(s + torch.where(kept, 0.0, low), -1) @ x,
                F.scaled_dot_product_attention(q[:, None], x[:, None], x[:, None], attn_mask=kept[:, None]),
                F.scaled_dot_product_attention(q[:, None], x[:, None], x[:, None], attn_mask=torch.where(kept[:, None], 0.0, inf)),
                F.scaled_dot_product_attention(q[:, None], x[:, None], x[:, None], attn_mask=torch.where(kept[:, None], 0.0, low)))


class Sizes(nn.Module):
    """Numbers that are made of sizes."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(6))

    def forward(self, x):
        n, l = x.shape[0], x.shape[1]
        y = x * self.w
        return (y * l**-0.5, y * (1.0 / l), y / (l**0.5), y / n, y + l, y.sum(1) / (n * l), y * (l // 2), y * max(l, 2), y * (1 - l),
                y > l - n, torch.where(y > 0, y, n))


class Bounds(nn.Module):
    """Bounds the wrong way round, integers, numbers for NaN, an output twice, nothing beside something, labels to ignore."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 5)
        self.deep = nn.ModuleDict({"a_name_of_a_module_" + "x" * 60: nn.ModuleDict({"and_one_within_it_" + "y" * 60: nn.Linear(6, 6)})})

    def forward(self, x, ids, labels):
        y = self.head(x)
        for d in self.deep.values():
            for m in d.values():
                y = y + self.head(torch.relu(m(x)))
        loss = F.cross_entropy(y, labels).to(torch.bfloat16)
        kept = torch.gather(y, 1, labels.clamp(min=0)[:, None])[:, 0]
        return (loss, y, y, kept, torch.clamp(x, 0.5, 0.25), torch.nan_to_num(x, 0.0, -3.0, 2.0), ids > 1.5, -ids, ids.abs(), ids.clamp(-1, 2),
                x[:, -9:2], torch.cat((x[:, :3], x[:, 6:]), 1), F.softplus(x, 1.0, 0.5), torch.logical_not(ids),
                torch.div(x, 0.3, rounding_mode="trunc"), x.to(torch.bfloat16).sum(1, dtype=torch.float32), x[:, 2].view(2, -1))


class Labels(nn.Module):
    """Losses of labels that were moved; every input holds the label that is ignored. Of the last one the program reads other
    values than it is fed with."""

    def __init__(self, d=8, vocab=11):
        super().__init__()
        self.out = nn.Linear(d, vocab)

    def forward(self, x, at, shifted, padded, rolled, joined, stacked, turned, taken, clamped):
        z = self.out(x)
        pairs = ((z[:, :-1], shifted[:, 1:]), (z, F.pad(padded, (0, 1), value=-100)[:, 1:]), (z, rolled.roll(-1, 1)),
                 (torch.cat([z, z]), torch.cat([joined, joined.int().long()])), (torch.stack([z, z]), torch.stack([stacked, stacked])),
                 (z.transpose(0, 1), turned.t()), (z[:, :2], taken.gather(1, at)), (z, clamped.clamp(min=0)))
        return sum(F.cross_entropy(a.reshape(-1, a.shape[-1]), y.reshape(-1)) for a, y in pairs)


class Routed(nn.Module):
    """Layers of experts of transformers, and one that adds its rows up by index_add."""

    def __init__(self, d=8):
        super().__init__()
        import transformers as t
        from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
        from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP
        from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
        sizes = {"hidden_size": d, "num_attention_heads": 2, "num_hidden_layers": 1, "num_experts_per_tok": 2}
        of = lambda make, config: make(self.said(config))
        self.softmax = of(MixtralSparseMoeBlock, t.MixtralConfig(**sizes, intermediate_size=12, num_local_experts=4))
        self.biased = of(GptOssMLP, t.GptOssConfig(**sizes, intermediate_size=12, num_local_experts=4))
        self.grouped = of(DeepseekV3MoE, t.DeepseekV3Config(
            **sizes, moe_intermediate_size=12, n_routed_experts=8, n_group=4, topk_group=2, n_shared_experts=1))
        self.up, self.down, self.shift = (nn.Parameter(0.3 * torch.randn(*s)) for s in ((4, d, 12), (4, 12, d), (4, 1, d)))
        self.router, self.scale = nn.Linear(d, 4), nn.Linear(d, d)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(0.4 * torch.randn_like(p))
            self.grouped.gate.e_score_correction_bias.copy_(0.3 * torch.randn(8))

    @staticmethod
    def said(config):
        config._experts_implementation = "grouped_mm"
        return config

    def added(self, x):
        """Rows of all tokens, [tokens, d]: biases of the experts, a layer on the rows, a norm over them."""
        grouped = torch.ops.transformers.grouped_mm_fallback
        best, ids = self.router(x).topk(3, dim=-1)
        order = ids.flatten().argsort()
        token = torch.div(order, 3, rounding_mode="floor")
        ends = torch.bincount(ids.flatten(), minlength=4).cumsum(0).int() if self.training else (
            torch.histc(ids.flatten()[order].float(), 4, 0, 3).cumsum(0).int())
        rows = grouped(F.gelu(grouped(self.scale(x)[token], self.up, ends)), self.down, ends)
        rows = F.layer_norm(rows + self.shift[ids.flatten()[order]].squeeze(1), (rows.shape[-1],))
        rows = torch.cat([rows[:, :3] * 2, rows[:, 3:].abs()], 1)
        return torch.ones_like(x).index_add(0, token, rows * best.sigmoid().flatten()[order].unsqueeze(1))

    def forward(self, x):
        y = [self.softmax(x), self.biased(x), self.grouped(x), self.added(x.reshape(-1, x.shape[-1]))]
        y = [a[0] if isinstance(a, tuple) else a for a in y]
        return sum((a.reshape(x.shape) * x).square().mean() for a in y), *y


def clean(archive, name, tests):
    """The archive with what an importer reads: stored, places without folders, inputs and outputs of a call."""
    source, out = zipfile.ZipFile(archive), io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        def put(path, data):
            z.writestr(zipfile.ZipInfo(f"{name}/{path}", (1980, 1, 1, 0, 0, 0)), data)

        for path in source.namelist():
            data, inner = source.read(path), path.split("/", 1)[1]
            if inner.startswith("models/"):
                graph = json.loads(data)
                for node in graph["graph_module"]["graph"]["nodes"]:
                    meta = node["metadata"]
                    place = re.sub(r"^[^\"]*/", "", meta.get("stack_trace", "").split('File "')[-1].split("\n")[0])
                    node["inputs"] = [{"name": i["name"], "arg": i["arg"]} for i in node["inputs"]
                                      if i["name"] not in ("device", "pin_memory")]
                    node.pop("is_hop_single_tensor_return", None)
                    node["metadata"] = {"nn_module_stack": meta.get("nn_module_stack", ""),
                                        "stack_trace": 'File "' + place}
                params = [s["parameter"]["arg"]["name"] for s in graph["graph_module"]["signature"]["input_specs"] if "parameter" in s]
                for value, meta in graph["graph_module"]["graph"]["tensor_values"].items():
                    if value not in params or meta["requires_grad"]:  # the default
                        meta.pop("requires_grad", None)
                    for key in ("device", "strides", "storage_offset", "layout"):
                        meta.pop(key, None)
                graph["graph_module"]["module_call_graph"] = []
                graph.pop("guards_code", None)
                data = json.dumps(graph, separators=(",", ":"))
            elif not inner.startswith("data/weights/") and not inner.startswith("data/constants/"):
                continue
            put(inner, data)
        for path, array in tests.items():
            file = io.BytesIO()
            np.save(file, array)
            put(f"test/{path}.npy", file.getvalue())
    return out.getvalue()


GRADIENTS = ("shifts", "chunks", "resized", "convs", "pyramid", "tables", "writes", "scores", "losses", "pairs", "indices", "routed", "rows")
DYNAMIC = {"sizes": {"x": {0: torch.export.Dim("rows", min=2), 1: torch.export.Dim("length", min=4, max=64)}}}


def trained(module, feeds):
    """Losses of ten steps of the optimizer that an imported model has, the buffers afterwards, and the loss in evaluation."""
    module = copy.deepcopy(module).double().train()
    feeds = {k: v.double() if v.is_floating_point() else v for k, v in feeds.items()}
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.0003, weight_decay=0.1)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = module(**feeds)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    out = {"losses": np.array(losses), **{f"buffer.{k}": v.numpy() for k, v in module.named_buffers() if v.is_floating_point()}}
    out = {k: v.copy() for k, v in out.items()}
    return {**out, "evaluated": module.eval()(**feeds).detach().numpy()}


def main(folder, *names):
    ids = lambda n, l, below: torch.randint(0, below, (n, l))
    for name, make, inputs in (
        ("gpt", Gpt, lambda: {"ids": ids(4, 12, 61)}),
        ("llama", Llama, lambda: {"ids": ids(4, 12, 53)}),
        ("llama_loss", lambda: Llama(loss=True), lambda: {"ids": ids(4, 12, 53)}),
        ("qwen3", lambda: Llama(qk_norm=True), lambda: {"ids": ids(4, 12, 53)}),
        ("bert", Bert, lambda: {"ids": ids(4, 12, 47), "mask": (torch.arange(12)[None] < torch.tensor([12, 9, 5, 12])[:, None]).long()}),
        ("vit", Vit, lambda: {"pixels": torch.randn(4, 3, 16, 16)}),
        ("t5", T5, lambda: {"ids": ids(4, 12, 41), "decoder_ids": ids(4, 8, 41)}),
        ("dlrm", Dlrm, lambda: {"dense": torch.randn(8, 13), "sparse": torch.randint(0, 20, (8, 3))}),
        ("nano", Nano, lambda: {"ids": ids(4, 12, 37), "labels": ids(4, 12, 37)}),
        ("grouped", Grouped, lambda: {"ids": ids(4, 12, 31)}),
        ("stem", Stem, lambda: {"pixels": torch.randn(4, 3, 16, 16)}),
        ("experts", Experts, lambda: {"x": torch.randn(4, 6, 16)}),
        ("pieces", Pieces, lambda: {n: torch.randn(4, 6, 8) for n in "xyz"}),
        ("shifts", Shifts, lambda: {"x": torch.randn(4, 8, 12)}),
        ("encoding", Encoding, lambda: {"x": torch.rand(8, 24), "noise": torch.randn(8, 8), "target": torch.rand(8, 24)}),
        ("labels", Labels, lambda: {"x": torch.randn(4, 6, 8), "at": torch.randint(0, 6, (4, 2)), **{
            n: torch.where(torch.rand(4, 6) < 0.4, -100, torch.randint(0, 11, (4, 6)))
            for n in ("shifted", "padded", "rolled", "joined", "stacked", "turned", "taken", "clamped")}}),
        ("adapters", Adapters, lambda: {n: torch.randint(0, 11, (8,)) for n in ("ids", "labels")}),
        ("tables", Tables, lambda: {"ids": torch.randint(0, 3, (4, 4)), "labels": torch.randint(0, 5, (4,))}),
        ("writes", Writes, lambda: {"x": torch.randn(4, 6, 8), "ids": ids(4, 6, 8), "mask": torch.rand(4, 6) > 0.6}),
        ("scores", Scores, lambda: {"x": torch.randn(4, 4, 16), "image": torch.randn(4, 16, 4, 4)}),
        ("losses", Losses, lambda: {"x": torch.randn(4, 6, 6), "labels": ids(4, 6, 5), "soft": torch.randn(4, 6, 5)}),
        ("chunks", Chunks, lambda: {"x": torch.randn(4, 12, 16), "y": torch.randn(4, 6, 16)}),
        ("resized", Resized, lambda: {"x": torch.randn(4, 3, 6, 4), "y": torch.randn(4, 3, 8), "z": torch.randn(4, 2, 3, 3, 5)}),
        ("pairs", Pairs, lambda: {"x": torch.randn(4, 6, 16)}),
        ("indices", Indices, lambda: {"x": torch.randn(4, 4, 8), "rows": ids(1, 6, 4)[0], "cols": ids(1, 6, 4)[0], "times": 2,
                                      "name": "mean", "flag": True, "bias": None, "scale": 0.25}),
        ("hidden", Hidden, lambda: {"x": torch.randn(2, 5, 8), "kept": (torch.rand(2, 5, 5) > 0.4) & (torch.arange(5) != 3)[:, None]}),
        ("routed", Routed, lambda: {"x": torch.randn(4, 6, 8)}),
        ("rows", Rows, lambda: {"x": torch.randn(6, 4, 8), "at": torch.tensor([1, 4, 1, -5 % 6, 0]), "cols": torch.tensor([3, 1])}),
        ("convs", Convs, lambda: {"x": torch.randn(2, 4, 11, 9), "sound": torch.randn(2, 6, 12), "noise": torch.randn(2, 10, 1, 1)}),
        ("pyramid", Pyramid, lambda: {"x": torch.randn(4, 3, 16, 16)}),
        ("running", Running, lambda: {"x": torch.randn(8, 3, 7, 6), "y": torch.randint(0, 4, (8,))}),
        ("sizes", Sizes, lambda: {"x": torch.randn(4, 8, 6)}),
        ("bounds", Bounds, lambda: {"x": torch.randn(4, 6), "ids": torch.randint(-3, 4, (4, 6)), "labels": torch.tensor([1, -100, 4, 0])}),
    ):
        if names and name not in names:
            continue
        torch.manual_seed(7)
        module, feeds = make().train(name == "running"), inputs()
        out = module(**feeds)
        after = trained(module, feeds) if name == "running" else {}
        out = out if isinstance(out, tuple) else (out,)
        file = io.BytesIO()
        torch.export.save(torch.export.export(module, (), feeds, dynamic_shapes=DYNAMIC.get(name)), file)
        tests = {f"in.{k}": v.numpy() for k, v in feeds.items() if isinstance(v, torch.Tensor)}
        tests.update({f"out.{i}": (v.float() if v.dtype == torch.bfloat16 else v).detach().numpy() for i, v in enumerate(out)})
        tests.update(after)
        if name in GRADIENTS:
            out[0].backward()
            tests.update({f"grad.{k}": v.grad.numpy() for k, v in module.named_parameters()})
        data = clean(file, name, tests)
        with open(os.path.join(folder, name + ".pt2"), "wb") as f:
            f.write(data)
        print(name, len(data))


if __name__ == "__main__":
    main(*sys.argv[1:])
