"""Makes tests/interop/hf/NAME: a small random model of each family that `dtplan import` knows, as transformers saves it, with
tokens.npy and the logits that transformers computes of them (logits.npy, f32). Run by hand, with torch and transformers:

Usage: make_hf.py OUTPUT_DIR [NAME..]
"""
import copy
import os
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoConfig

SMALL = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=32, pad_token_id=None)
MODELS = {
    "llama": ("llama", SMALL),
    "llama_bias": ("llama", dict(SMALL, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "llama_linear": ("llama", dict(SMALL, num_hidden_layers=1, rope_parameters=dict(rope_type="linear", factor=4.0))),
    "llama_3_1": ("llama", dict(SMALL, num_hidden_layers=1, rope_parameters=dict(
        rope_type="llama3", rope_theta=20.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=24))),
    "llama_yarn": ("llama", dict(SMALL, num_hidden_layers=1, rope_parameters=dict(
        rope_type="yarn", rope_theta=50.0, factor=4.0, original_max_position_embeddings=64, beta_fast=8.0))),
    "qwen3_yarn": ("qwen3", dict(SMALL, num_hidden_layers=1, rope_parameters=dict(
        rope_type="yarn", rope_theta=50.0, factor=4.0, original_max_position_embeddings=64, beta_fast=9.0, truncate=False,
        attention_factor=1.3))),
    "mistral": ("mistral", dict(SMALL, sliding_window=16)),
    "qwen2": ("qwen2", {k: v for k, v in SMALL.items() if k != "head_dim"}),
    "qwen3": ("qwen3", SMALL),
    "gemma": ("gemma", dict(SMALL, num_key_value_heads=1, pad_token_id=0)),
    "phi3": ("phi3", dict({k: v for k, v in SMALL.items() if k != "head_dim"}, pad_token_id=0)),
    "mixtral": ("mixtral", dict(SMALL, num_local_experts=4, num_experts_per_tok=2)),
    "qwen3_moe": ("qwen3_moe", dict(SMALL, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)),
    "gpt_oss": ("gpt_oss", dict(SMALL, num_local_experts=4, num_experts_per_tok=2, sliding_window=4, swiglu_alpha=1.3, swiglu_limit=0.4,
                                rope_parameters=dict(rope_type="yarn", rope_theta=50.0, factor=4.0, truncate=False,
                                                     original_max_position_embeddings=16))),
    "deepseek_v3": ("deepseek_v3", dict(
        {k: v for k, v in SMALL.items() if k not in ("head_dim", "num_key_value_heads")}, num_key_value_heads=4, num_hidden_layers=3,
        first_k_dense_replace=1, n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3, moe_intermediate_size=12,
        n_shared_experts=2, kv_lora_rank=8, q_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=6,
        rope_parameters=dict(rope_type="yarn", rope_theta=50.0, factor=4.0, original_max_position_embeddings=16, mscale=0.8,
                             mscale_all_dim=1.2, beta_fast=8.0))),
    "deepseek_plain": ("deepseek_v3", dict(
        {k: v for k, v in SMALL.items() if k not in ("head_dim", "num_key_value_heads")}, num_key_value_heads=4, num_hidden_layers=1,
        first_k_dense_replace=0, n_routed_experts=4, n_group=1, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=12,
        kv_lora_rank=8, q_lora_rank=None, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8, norm_topk_prob=False,
        rope_interleave=False)),
    "gpt2": ("gpt2", dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=16, bos_token_id=0, eos_token_id=0)),
    "gpt_neox": ("gpt_neox", dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                  intermediate_size=48, max_position_embeddings=32)),
    "gpt_neox_fast": ("gpt_neox", dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                       intermediate_size=48, max_position_embeddings=32, hidden_act="gelu_fast",
                                       use_parallel_residual=False, rotary_pct=1.0)),
}
SHARDED = "mistral"  # in bf16, in several files with an index

for name in sys.argv[2:] or MODELS:
    family, options = MODELS[name]
    torch.manual_seed(1)
    eos = {} if family == "gpt2" else dict(bos_token_id=1, eos_token_id=2)
    config = AutoConfig.for_model(family, **eos, **options)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():  # also norms and biases, which would hide a mistake at their initial values
            parameter += 0.2 * torch.randn_like(parameter)
        for key, buffer in model.named_buffers():
            buffer += 0.2 * torch.randn_like(buffer) if key in model.state_dict() else 0
    folder = os.path.join(sys.argv[1], name)
    if name == SHARDED:
        copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder, max_shard_size="20KB")
        for parameter in model.parameters():
            parameter.data = parameter.data.to(torch.bfloat16).float()
    else:
        model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    tokens = torch.randint(0, 64, (2, 8))
    with torch.no_grad():
        logits = model(tokens).logits
    np.save(os.path.join(folder, "tokens.npy"), tokens.numpy().astype(np.int32))
    np.save(os.path.join(folder, "logits.npy"), logits.float().numpy())
    print(name, sum(p.numel() for p in model.parameters()))
