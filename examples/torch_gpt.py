"""models/gpt_bytes.json as a PyTorch module, with the names of models/gpt_bytes.names.json."""
import torch.nn.functional as F
from torch import nn


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Positions(nn.Embedding):
    """A table that is read whole: plans may split its rows as they split the sequence."""

    def forward(self):
        return self.weight + 0


class Layer(nn.Module):
    def __init__(self, d, d_ff, d_head):
        super().__init__()
        self.d_head = d_head
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.ModuleDict({name: nn.Linear(d, d, bias=name != "k") for name in ("q", "k", "v", "out")})
        self.mlp = nn.ModuleDict({"up": nn.Linear(d, d_ff), "down": nn.Linear(d_ff, d)})

    def forward(self, x):
        h = self.ln_1(x)  # -1 heads: as many as this rank has
        q, k, v = (self.attn[name](h).unflatten(-1, (-1, self.d_head)).transpose(1, 2) for name in "qkv")
        x = x + self.attn["out"](attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp["down"](F.gelu(self.mlp["up"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """shapes: of its parameters by name."""

    def __init__(self, shapes, d_head=16):
        super().__init__()
        (vocab, d), d_ff = shapes["wte.weight"], shapes["layers.0.mlp.up.bias"][0]
        self.wte, self.wpe = nn.Embedding(vocab, d), Positions(*shapes["wpe.weight"])
        self.layers = nn.ModuleList(Layer(d, d_ff, d_head) for _ in range(sum(".ln_1.weight" in name for name in shapes)))
        self.ln_f, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe()
        for layer in self.layers:
            x = layer(x)
        return self.head(self.ln_f(x))
