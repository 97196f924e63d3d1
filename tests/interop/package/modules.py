"""Small modules with random weights, as people have them: module(*inputs) or module(**inputs) and a loss where it needs one."""
import torch
import torch.nn.functional as F
from torch import nn

BATCH, LENGTH, VOCAB = 8, 16, 64


class CausalSelfAttention(nn.Module):
    """As in nanoGPT: one weight for q, k and v."""

    def __init__(self, n_embd, n_head):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.n_head, self.n_embd = n_head, n_embd

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention(n_embd, n_head)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(n_embd, 4 * n_embd), "c_proj": nn.Linear(4 * n_embd, n_embd)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class NanoGpt(nn.Module):
    """nanoGPT: logits and loss from (tokens, targets), the table tied to the head."""

    def __init__(self, n_layer=2, n_head=4, n_embd=32):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(VOCAB, n_embd), "wpe": nn.Embedding(LENGTH, n_embd),
            "h": nn.ModuleList([Block(n_embd, n_head) for _ in range(n_layer)]), "ln_f": nn.LayerNorm(n_embd)})
        self.lm_head = nn.Linear(n_embd, VOCAB, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def causal_lm(family):
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
    config, kind = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}[family]
    more = {"head_dim": 8} if family == "qwen3" else {}
    return kind(config(vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                       num_key_value_heads=4, max_position_embeddings=64, attn_implementation="sdpa", **more))


def make(name):
    """(module, inputs, loss): loss is None where the module has one."""
    torch.manual_seed(11)
    tokens = torch.randint(0, VOCAB, (BATCH, LENGTH + 1))
    if name == "nanogpt":
        return NanoGpt(), (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()), None
    if name in ("llama", "qwen3"):
        def loss(out, labels):
            return F.cross_entropy(out.logits.flatten(0, 1), labels.flatten())
        return causal_lm(name), (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()), loss
    import timm
    vit = timm.models.VisionTransformer(img_size=16, patch_size=4, embed_dim=32, depth=2, num_heads=4, num_classes=10)
    return vit, (torch.rand(BATCH, 3, 16, 16), torch.randint(0, 10, (BATCH,))), F.cross_entropy
