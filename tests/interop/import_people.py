"""Code as people write it, for imports.py: a function for each program, as in import_libraries.py."""
import math

import torch
import torch.nn.functional as F
from import_libraries import program
from torch import nn


class Block(nn.Module):
    def __init__(self, attention, d, mlp, norm=nn.LayerNorm):
        super().__init__()
        self.norm_1, self.norm_2, self.attention, self.mlp = norm(d), norm(d), attention, mlp

    def forward(self, x, *more):
        x = x + self.attention(self.norm_1(x), *more)
        return x + self.mlp(self.norm_2(x))


class Stack(nn.Module):
    """Tokens, blocks, logits, the loss."""

    def __init__(self, blocks, d=32, vocab=61, positions=16):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(positions, d) if positions else None
        self.blocks, self.norm = nn.ModuleList(blocks), nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, idx, targets):
        x = self.wte(idx)
        if self.wpe is not None:
            x = x + self.wpe(torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def tokens():
    return {"idx": torch.randint(0, 61, (2, 12)), "targets": torch.randint(0, 61, (2, 12))}


class MinGptAttention(nn.Module):
    def __init__(self, d=32, heads=4, block=16):
        super().__init__()
        self.c_attn, self.c_proj, self.n_head = nn.Linear(d, 3 * d), nn.Linear(d, d), heads
        self.attn_dropout, self.resid_dropout = nn.Dropout(0.1), nn.Dropout(0.1)
        self.register_buffer("bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k, q, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (k, q, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = self.attn_dropout(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


def mlp(d=32, act=nn.GELU):
    return nn.Sequential(nn.Linear(d, 4 * d), act(), nn.Linear(4 * d, d))


@program
def mingpt():
    """the style of minGPT: a mask in a buffer"""
    return Stack([Block(MinGptAttention(), 32, mlp()) for _ in range(2)]), tokens()


class NanoGptAttention(nn.Module):
    def __init__(self, d=32, heads=4):
        super().__init__()
        self.c_attn, self.c_proj, self.n_head, self.dropout = nn.Linear(d, 3 * d), nn.Linear(d, d), heads, 0.1

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k, q, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (k, q, v))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


@program
def nanogpt():
    """the style of nanoGPT"""
    return Stack([Block(NanoGptAttention(), 32, mlp()) for _ in range(2)]), tokens()


def rms(x, weight, eps=1e-5):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


class LlamaC(nn.Module):
    """Tables of cosines and sines in buffers, pairs side by side."""

    class Layer(nn.Module):
        def __init__(self, d, heads, kv):
            super().__init__()
            self.heads, self.kv, self.hd = heads, kv, d // heads
            self.wq, self.wo = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
            self.wk, self.wv = (nn.Linear(d, kv * self.hd, bias=False) for _ in range(2))
            self.w1, self.w3, self.w2 = nn.Linear(d, 64, bias=False), nn.Linear(d, 64, bias=False), nn.Linear(64, d, bias=False)
            self.n1, self.n2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))

        def rotate(self, x, cos, sin):
            r, i = x.float().reshape(x.shape[:-1] + (-1, 2)).unbind(-1)
            cos, sin = cos.view(1, x.shape[1], 1, -1), sin.view(1, x.shape[1], 1, -1)
            return torch.stack([r * cos - i * sin, r * sin + i * cos], dim=-1).flatten(3).type_as(x)

        def repeat(self, x):
            b, l, h, d = x.shape
            n = self.heads // self.kv
            return x[:, :, :, None, :].expand(b, l, h, n, d).reshape(b, l, h * n, d)

        def forward(self, x, cos, sin):
            b, l, _ = x.shape
            h = rms(x, self.n1)
            q, k, v = (w(h).view(b, l, n, self.hd) for w, n in ((self.wq, self.heads), (self.wk, self.kv), (self.wv, self.kv)))
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
            q, k, v = (t.transpose(1, 2) for t in (q, self.repeat(k), self.repeat(v)))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=True)
            x = x + self.wo(y.transpose(1, 2).contiguous().view(b, l, -1))
            h = rms(x, self.n2)
            return x + self.w2(F.silu(self.w1(h)) * self.w3(h))

    def __init__(self, d=32, vocab=61, heads=4, kv=2, positions=24):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(LlamaC.Layer(d, heads, kv) for _ in range(2))
        self.norm, self.output = nn.Parameter(torch.ones(d)), nn.Linear(d, vocab, bias=False)
        self.output.weight = self.tok.weight
        freqs = 1.0 / (10000.0 ** (torch.arange(0, d // heads, 2).float() / (d // heads)))
        freqs = torch.outer(torch.arange(positions).float(), freqs)
        self.register_buffer("freqs_cos", freqs.cos(), persistent=False)
        self.register_buffer("freqs_sin", freqs.sin(), persistent=False)

    def forward(self, idx, targets):
        l = idx.shape[1]
        x = self.tok(idx)
        for layer in self.layers:
            x = layer(x, self.freqs_cos[:l], self.freqs_sin[:l])
        logits = self.output(rms(x, self.norm))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


@program
def llama2_c():
    """the style of llama2.c"""
    return LlamaC(), tokens()


class LlamaComplex(LlamaC):
    class Layer(LlamaC.Layer):
        def rotate(self, x, cos, sin):
            x_ = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(x_ * cos.view(1, x.shape[1], 1, -1)).flatten(3).type_as(x)

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(LlamaComplex.Layer(32, 4, 2) for _ in range(2))
        freqs = 1.0 / (10000.0 ** (torch.arange(0, 8, 2)[:4].float() / 8))
        freqs = torch.outer(torch.arange(24), freqs)
        self.freqs_cis = torch.polar(torch.ones_like(freqs), freqs)
        del self.freqs_cos, self.freqs_sin

    def forward(self, idx, targets):
        x, cis = self.tok(idx), self.freqs_cis[: idx.shape[1]]
        for layer in self.layers:
            x = layer(x, cis, None)
        logits = self.output(rms(x, self.norm))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


@program
def llama_meta():
    """the style of Meta's Llama: rotary positions as complex numbers"""
    return LlamaComplex(), tokens()


class ModdedAttention(nn.Module):
    def __init__(self, d=32, heads=4, positions=24):
        super().__init__()
        self.heads, self.hd = heads, d // heads
        self.qkv, self.proj = nn.Parameter(torch.randn(3, d, d) / d**0.5), nn.Linear(d, d, bias=False)
        self.lamb = nn.Parameter(torch.tensor(0.5))
        half = self.hd // 4
        freq = torch.cat([(1 / 1024) ** torch.linspace(0, 1, steps=half), torch.zeros(half)])
        theta = torch.outer(torch.arange(positions, dtype=torch.float32), freq)
        self.register_buffer("cos", theta.cos(), persistent=False)
        self.register_buffer("sin", theta.sin(), persistent=False)

    def rotary(self, x):
        cos, sin = self.cos[None, : x.size(-3), None, :], self.sin[None, : x.size(-3), None, :]
        x1, x2 = x.float().chunk(2, dim=-1)
        return torch.cat((x1 * cos + x2 * sin, x1 * (-sin) + x2 * cos), 3).type_as(x)

    def forward(self, x, ve):
        B, T, D = x.shape
        q, k, v = F.linear(x, self.qkv.flatten(end_dim=1)).view(B, T, 3 * self.heads, self.hd).chunk(3, dim=-2)
        q, k = F.rms_norm(q, (q.size(-1),)), F.rms_norm(k, (k.size(-1),))
        v = (1 - self.lamb) * v + self.lamb * ve.view_as(v)
        q, k = self.rotary(q), self.rotary(k)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, D))


class Modded(nn.Module):
    class Relu2(nn.Module):
        def forward(self, x):
            return F.relu(x).square()

    def __init__(self, d=32, vocab=61):
        super().__init__()
        self.embed, self.value = nn.Embedding(vocab, d), nn.Embedding(vocab, d)
        norm = lambda d: nn.RMSNorm(d, elementwise_affine=False)
        self.blocks = nn.ModuleList(Block(ModdedAttention(), d, mlp(d, Modded.Relu2), norm) for _ in range(3))
        self.skip = nn.Parameter(torch.ones(1))
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, idx, targets):
        x = x0 = F.rms_norm(self.embed(idx), (32,))
        ve = self.value(idx)
        x = self.blocks[0](x, ve)
        skip = x
        x = self.blocks[1](x + 0.1 * x0, ve)
        x = self.blocks[2](x + self.skip * skip, ve)
        logits = self.head(F.rms_norm(x, (x.size(-1),))).float()
        logits = 30 * torch.tanh(logits / 30)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


@program
def modded_gpt():
    """the style of modded-nanogpt: truncated rotary tables, relu squared, softcap"""
    return Modded(), tokens()


class Annotated(nn.Module):
    """Encoder and decoder of The Annotated Transformer."""

    class Positions(nn.Module):
        def __init__(self, d, most=40):
            super().__init__()
            pe = torch.zeros(most, d)
            position = torch.arange(0, most).unsqueeze(1)
            div = torch.exp(torch.arange(0, d, 2) * -(math.log(10000.0) / d))
            pe[:, 0::2], pe[:, 1::2] = torch.sin(position * div), torch.cos(position * div)
            self.register_buffer("pe", pe.unsqueeze(0))
            self.dropout = nn.Dropout(0.1)

        def forward(self, x):
            return self.dropout(x + self.pe[:, : x.size(1)].requires_grad_(False))

    class Attention(nn.Module):
        def __init__(self, h, d):
            super().__init__()
            self.h, self.d_k = h, d // h
            self.linears = nn.ModuleList(nn.Linear(d, d) for _ in range(4))
            self.dropout = nn.Dropout(0.1)

        def forward(self, query, key, value, mask=None):
            n = query.size(0)
            query, key, value = [l(x).view(n, -1, self.h, self.d_k).transpose(1, 2)
                                 for l, x in zip(self.linears, (query, key, value))]
            scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.d_k)
            if mask is not None:
                scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9)
            x = torch.matmul(self.dropout(scores.softmax(dim=-1)), value)
            return self.linears[-1](x.transpose(1, 2).contiguous().view(n, -1, self.h * self.d_k))

    class Layer(nn.Module):
        def __init__(self, d, h, cross):
            super().__init__()
            self.attn, self.cross = Annotated.Attention(h, d), Annotated.Attention(h, d) if cross else None
            self.ff = mlp(d, nn.ReLU)
            self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(3))

        def forward(self, x, mask, memory=None, memory_mask=None):
            y = self.norms[0](x)
            x = x + self.attn(y, y, y, mask)
            if self.cross is not None:
                x = x + self.cross(self.norms[1](x), memory, memory, memory_mask)
            return x + self.ff(self.norms[2](x))

    def __init__(self, d=32, h=4, vocab=37):
        super().__init__()
        self.src, self.tgt, self.pos = nn.Embedding(vocab, d), nn.Embedding(vocab, d), Annotated.Positions(d)
        self.encoder = nn.ModuleList(Annotated.Layer(d, h, False) for _ in range(2))
        self.decoder = nn.ModuleList(Annotated.Layer(d, h, True) for _ in range(2))
        self.proj = nn.Linear(d, vocab)

    def forward(self, src, tgt):
        src_mask = (src != 0).unsqueeze(-2)
        later = torch.triu(torch.ones(1, tgt.size(-1), tgt.size(-1), device=tgt.device), diagonal=1).type(torch.uint8)
        tgt_mask = (tgt != 0).unsqueeze(-2) & (later == 0)
        x = self.pos(self.src(src) * math.sqrt(32))
        for layer in self.encoder:
            x = layer(x, src_mask)
        y = self.pos(self.tgt(tgt) * math.sqrt(32))
        for layer in self.decoder:
            y = layer(y, tgt_mask, x, src_mask)
        return self.proj(y).log_softmax(-1)


@program
def annotated():
    """The Annotated Transformer"""
    return Annotated(), {"src": torch.randint(0, 37, (2, 12)), "tgt": torch.randint(1, 37, (2, 8))}


@program
def nn_transformer():
    """torch.nn.Transformer"""
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = nn.Transformer(32, 4, 2, 2, 64, batch_first=True, dropout=0.1)

        def forward(self, src, tgt):
            mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(1))
            return self.t(src, tgt, tgt_mask=mask, tgt_is_causal=True)
    return Module(), {"src": torch.randn(2, 12, 32), "tgt": torch.randn(2, 8, 32)}


@program
def dlrm():
    """the style of DLRM: interactions below the diagonal by two index tensors"""
    class Module(nn.Module):
        def __init__(self, d=16, sizes=(20, 30, 40)):
            super().__init__()
            self.emb = nn.ModuleList(nn.Embedding(n, d) for n in sizes)
            self.bot = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, d), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(d + 6, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())

        def forward(self, dense, sparse, label):
            x = self.bot(dense)
            T = torch.stack([x] + [e(sparse[:, i]) for i, e in enumerate(self.emb)], dim=1)
            Z = torch.bmm(T, T.transpose(1, 2))
            _, ni, nj = Z.shape
            li = torch.tensor([i for i in range(ni) for j in range(i)])
            lj = torch.tensor([j for i in range(nj) for j in range(i)])
            R = torch.cat([x, Z[:, li, lj]], dim=1)
            return F.binary_cross_entropy(self.top(R).squeeze(1), label)
    return Module(), {"dense": torch.randn(4, 13), "sparse": torch.randint(0, 20, (4, 3)), "label": torch.rand(4).round()}


@program
def dlrm_tril():
    """DLRM of torchrec: tril_indices"""
    class Module(nn.Module):
        def __init__(self, d=16):
            super().__init__()
            self.emb, self.dense = nn.Embedding(50, d), nn.Linear(13, d)
            self.over = nn.Linear(d + 6, 1)

        def forward(self, dense, sparse):
            x = self.dense(dense)
            T = torch.cat((x.unsqueeze(1), self.emb(sparse)), dim=1)
            Z = torch.bmm(T, torch.transpose(T, 1, 2))
            i = torch.tril_indices(4, 4, offset=-1)
            return self.over(torch.cat((x, Z[:, i[0], i[1]]), dim=1))
    return Module(), {"dense": torch.randn(4, 13), "sparse": torch.randint(0, 50, (4, 3))}


@program
def deepfm():
    """the style of DeepFM: field offsets in a buffer"""
    class Module(nn.Module):
        def __init__(self, fields=(7, 11, 13), d=8):
            super().__init__()
            total = sum(fields)
            self.register_buffer("offsets", torch.tensor((0, 7, 18)), persistent=False)
            self.embedding, self.fc = nn.Embedding(total, d), nn.Embedding(total, 1)
            self.bias = nn.Parameter(torch.zeros(1))
            self.mlp = nn.Sequential(nn.Linear(3 * d, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))

        def forward(self, x):
            x = x + self.offsets.unsqueeze(0)
            e = self.embedding(x)
            fm = e.sum(1).pow(2) - e.pow(2).sum(1)
            y = self.fc(x).sum(1) + self.bias + 0.5 * fm.sum(1, keepdim=True) + self.mlp(e.view(-1, 24))
            return torch.sigmoid(y.squeeze(1))
    return Module(), {"x": torch.randint(0, 7, (4, 3))}


@program
def sasrec():
    """the style of SASRec: padded positions are cleared, pairs of logits"""
    class Module(nn.Module):
        def __init__(self, items=40, d=16, length=10):
            super().__init__()
            self.item, self.pos = nn.Embedding(items + 1, d, padding_idx=0), nn.Embedding(length, d)
            self.norm, self.attn = nn.LayerNorm(d), nn.MultiheadAttention(d, 2)
            self.ff = mlp(d, nn.ReLU)
            self.last = nn.LayerNorm(d)

        def forward(self, seq, pos, neg):
            x = self.item(seq) * 16**0.5
            x = x + self.pos(torch.arange(seq.shape[1]).unsqueeze(0).expand(seq.shape[0], -1))
            mask = seq == 0
            x = x * ~mask.unsqueeze(-1)
            causal = ~torch.tril(torch.ones((seq.shape[1], seq.shape[1]), dtype=torch.bool))
            x = x.transpose(0, 1)
            q = self.norm(x)
            y, _ = self.attn(q, x, x, attn_mask=causal)
            x = (q + y).transpose(0, 1)
            x = self.last(x + self.ff(x)) * ~mask.unsqueeze(-1)
            return (x * self.item(pos)).sum(-1), (x * self.item(neg)).sum(-1)
    return Module(), {k: torch.randint(0, 40, (3, 10)) for k in ("seq", "pos", "neg")}


@program
def two_towers():
    """two towers, in-batch softmax against soft labels"""
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.user = nn.Sequential(nn.Embedding(40, 16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8))
            self.item = nn.Sequential(nn.Embedding(60, 16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8))
            self.temperature = nn.Parameter(torch.tensor(1.0))

        def forward(self, user, item):
            u, i = F.normalize(self.user(user), dim=-1), F.normalize(self.item(item), dim=-1)
            logits = u @ i.t() * self.temperature.exp()
            target = torch.eye(logits.size(0)) * 0.9 + 0.1 / logits.size(0)
            return F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)
    return Module(), {"user": torch.randint(0, 40, (6,)), "item": torch.randint(0, 60, (6,))}


@program
def classifier():
    """a classifier with class weights and smoothed labels"""
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 5))
            self.register_buffer("weight", torch.tensor([0.5, 1.0, 2.0, 1.5, 0.25]))

        def forward(self, x, y):
            return F.cross_entropy(self.net(x), y, weight=self.weight, label_smoothing=0.1)
    return Module(), {"x": torch.randn(6, 20), "y": torch.randint(0, 5, (6,))}


@program
def pinn():
    """a physics-informed network: normalised inputs, tanh"""
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("low", torch.tensor([-1.0, 0.0]))
            self.register_buffer("high", torch.tensor([1.0, 2.5]))
            self.layers = nn.ModuleList([nn.Linear(2, 20), nn.Linear(20, 20), nn.Linear(20, 1)])
            self.nu = nn.Parameter(torch.tensor(0.01))

        def forward(self, x, t, target):
            h = 2.0 * (torch.stack((x, t), -1) - self.low) / (self.high - self.low) - 1.0
            for layer in self.layers[:-1]:
                h = torch.tanh(layer(h))
            u = self.layers[-1](h).squeeze(-1)
            return F.mse_loss(u * torch.exp(-self.nu * t), target)
    return Module(), {"x": torch.randn(16), "t": torch.rand(16), "target": torch.randn(16)}


@program
def siren():
    """sine layers"""
    class Sine(nn.Module):
        def __init__(self, i, o, w=30.0):
            super().__init__()
            self.linear, self.w = nn.Linear(i, o), w

        def forward(self, x):
            return torch.sin(self.w * self.linear(x))
    return nn.Sequential(Sine(2, 16), Sine(16, 16), nn.Linear(16, 3)), {"input": torch.rand(10, 2)}


@program
def nerf():
    """the style of NeRF: frequencies of positions in a buffer, a skip"""
    class Module(nn.Module):
        def __init__(self, levels=4):
            super().__init__()
            self.register_buffer("bands", 2.0 ** torch.linspace(0.0, levels - 1, steps=levels))
            self.a, self.b, self.c = nn.Linear(27, 32), nn.Linear(59, 32), nn.Linear(32, 4)

        def forward(self, x):
            e = x[..., None, :] * self.bands[:, None]
            e = torch.cat((x, torch.sin(e).flatten(-2), torch.cos(e).flatten(-2)), -1)
            h = F.relu(self.b(torch.cat((e, F.relu(self.a(e))), -1)))
            out = self.c(h)
            return torch.sigmoid(out[..., :3]), F.relu(out[..., 3])
    return Module(), {"x": torch.randn(4, 6, 3)}


@program
def vae():
    """a variational autoencoder, its noise fed"""
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.mu, self.var = nn.Linear(24, 16), nn.Linear(16, 8), nn.Linear(16, 8)
            self.fc3, self.fc4 = nn.Linear(8, 16), nn.Linear(16, 24)

        def forward(self, x, eps):
            h = F.relu(self.fc1(x.view(-1, 24)))
            mu, logvar = self.mu(h), self.var(h)
            z = mu + eps * torch.exp(0.5 * logvar)
            recon = torch.sigmoid(self.fc4(F.relu(self.fc3(z))))
            bce = F.binary_cross_entropy(recon, x.view(-1, 24), reduction="sum")
            return bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return Module(), {"x": torch.rand(4, 4, 6), "eps": torch.randn(4, 8)}


@program
def mixer():
    """an MLP-Mixer"""
    class Layer(nn.Module):
        def __init__(self, n, d):
            super().__init__()
            self.n1, self.n2, self.tokens, self.channels = nn.LayerNorm(d), nn.LayerNorm(d), mlp(n), mlp(d)

        def forward(self, x):
            x = x + self.tokens(self.n1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.n2(x))
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Linear(48, 32)
            self.layers, self.head = nn.ModuleList(Layer(16, 32) for _ in range(2)), nn.Linear(32, 10)

        def forward(self, x):
            b, c, h, w = x.shape
            x = x.reshape(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(b, -1, 48)
            x = self.stem(x)
            for layer in self.layers:
                x = layer(x)
            return self.head(x.mean(1))
    return Module(), {"x": torch.randn(2, 3, 16, 16)}


@program
def masked_autoencoder():
    """the style of MAE: sinusoids of two axes, kept tokens by gather"""
    class Module(nn.Module):
        def __init__(self, d=16, n=16):
            super().__init__()
            grid = torch.arange(n, dtype=torch.float32)
            omega = 1.0 / 10000 ** (torch.arange(d // 4) / (d / 4))
            halves = [torch.outer(p, omega) for p in (grid // 4, grid % 4)]
            self.register_buffer("pos", torch.cat([f(h) for h in halves for f in (torch.sin, torch.cos)], 1)[None])
            self.embed, self.mask_token = nn.Linear(12, d), nn.Parameter(torch.randn(1, 1, d))
            self.encode = nn.TransformerEncoderLayer(d, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
            self.pred = nn.Linear(d, 12)

        def forward(self, patches, keep, restore, mask):
            x = self.embed(patches) + self.pos
            x = torch.gather(x, 1, keep.unsqueeze(-1).repeat(1, 1, x.shape[-1]))
            x = self.encode(x)
            x = torch.cat([x, self.mask_token.repeat(x.shape[0], restore.shape[1] - x.shape[1], 1)], 1)
            x = torch.gather(x, 1, restore.unsqueeze(-1).repeat(1, 1, x.shape[-1])) + self.pos
            loss = ((self.pred(x) - patches) ** 2).mean(-1)
            return (loss * mask).sum() / mask.sum()
    order = torch.stack([torch.randperm(16) for _ in range(2)])
    restore = order.argsort(1)
    return Module(), {"patches": torch.randn(2, 16, 12), "keep": order[:, :4], "restore": restore,
                              "mask": (restore >= 4).float()}


@program
def tab_transformer():
    """columns as tokens, numbers beside them"""
    class Module(nn.Module):
        def __init__(self, sizes=(5, 7, 9), d=16):
            super().__init__()
            self.emb = nn.Embedding(sum(sizes), d)
            self.register_buffer("offset", F.pad(torch.tensor(sizes), (1, 0), value=0).cumsum(-1)[:-1])
            layer = nn.TransformerEncoderLayer(d, 4, 32, 0.1, "gelu", batch_first=True, norm_first=True)
            self.t = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.norm, self.head = nn.LayerNorm(4), nn.Sequential(nn.Linear(52, 32), nn.SELU(), nn.Linear(32, 2))

        def forward(self, cat, cont, y):
            x = self.t(self.emb(cat + self.offset)).flatten(1)
            return F.cross_entropy(self.head(torch.cat((x, self.norm(cont)), -1)), y)
    return Module(), {
        "cat": torch.randint(0, 5, (4, 3)), "cont": torch.randn(4, 4), "y": torch.randint(0, 2, (4,))}


@program
def graph_attention():
    """attention over an adjacency matrix"""
    class Module(nn.Module):
        def __init__(self, i=8, o=4, heads=2):
            super().__init__()
            self.W, self.a1, self.a2 = nn.Linear(i, o * heads, bias=False), nn.Parameter(torch.randn(heads, o)), nn.Parameter(torch.randn(heads, o))
            self.heads, self.out = heads, nn.Linear(o * heads, 3)

        def forward(self, x, adj, y):
            h = self.W(x).view(x.size(0), self.heads, -1)
            e = (h * self.a1).sum(-1).unsqueeze(1) + (h * self.a2).sum(-1).unsqueeze(0)
            e = F.leaky_relu(e, 0.2).masked_fill((adj == 0).unsqueeze(-1), -9e15)
            h = torch.einsum("ijh,jhf->ihf", torch.softmax(e, dim=1), h).reshape(x.size(0), -1)
            return F.nll_loss(F.log_softmax(self.out(F.elu(h)), dim=1), y)
    adj = ((torch.rand(10, 10) > 0.6).float() + torch.eye(10)).clamp(max=1)
    return Module(), {"x": torch.randn(10, 8), "adj": adj, "y": torch.randint(0, 3, (10,))}


@program
def lora():
    """a frozen linear layer with adapters"""
    class Module(nn.Module):
        def __init__(self, d=16, r=4):
            super().__init__()
            self.base = nn.Linear(d, d).requires_grad_(False)
            self.a, self.b = nn.Parameter(torch.randn(r, d)), nn.Parameter(torch.randn(d, r) * 0.1)
            self.head = nn.Linear(d, 5)

        def forward(self, x, y):
            return F.cross_entropy(self.head(F.relu(self.base(x) + 0.5 * (x @ self.a.T) @ self.b.T)), y)
    return Module(), {"x": torch.randn(6, 16), "y": torch.randint(0, 5, (6,))}


class UNet(nn.Module):
    """Halves and doubles the image; each size meets itself again."""

    @staticmethod
    def two(n, out):
        return nn.Sequential(nn.Conv2d(n, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
                             nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU())

    def __init__(self, sizes=(4, 8, 16), classes=3):
        super().__init__()
        self.down = nn.ModuleList(UNet.two(n, out) for n, out in zip((3, *sizes), sizes))
        turned = sizes[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(n, out, 2, stride=2) for n, out in zip(turned, turned[1:]))
        self.join = nn.ModuleList(UNet.two(n, out) for n, out in zip(turned, turned[1:]))
        self.last = nn.Conv2d(sizes[0], classes, 1)

    def forward(self, image, labels):
        kept, x = [], image
        for i, down in enumerate(self.down):
            x = down(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for up, join, other in zip(self.up, self.join, kept[-2::-1]):
            x = join(torch.cat((other, up(x)), 1))
        return F.cross_entropy(self.last(x), labels)


@program
def u_net():
    """a U-Net: batch norms, pools, transposed convolutions"""
    return UNet(), {"image": torch.randn(4, 3, 16, 16), "labels": torch.randint(0, 3, (4, 16, 16))}


class Dcgan(nn.Module):
    """Generator and discriminator in one step."""

    def __init__(self, noise=12, n=8):
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(noise, 2 * n, 4, 1, 0, bias=False), nn.BatchNorm2d(2 * n), nn.ReLU(True),
            nn.ConvTranspose2d(2 * n, n, 4, 2, 1, bias=False), nn.BatchNorm2d(n), nn.ReLU(True),
            nn.ConvTranspose2d(n, 3, 4, 2, 1, bias=False), nn.Tanh())
        self.discriminator = nn.Sequential(
            nn.Conv2d(3, n, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(n, 2 * n, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * n), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(2 * n, 1, 4, 1, 0, bias=False), nn.Sigmoid())

    def forward(self, noise, label):
        return F.binary_cross_entropy(self.discriminator(self.generator(noise)).view(-1), label)


@program
def dcgan():
    """DCGAN: transposed convolutions, batch norms, leaky relu"""
    return Dcgan(), {"noise": torch.randn(4, 12, 1, 1), "label": torch.rand(4).round()}
