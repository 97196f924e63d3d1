"""The degrees of a plan as accelerate's FSDP2 and tensor-parallel configuration: python with_accelerate.py

Lost: which axis of a parameter is split (accelerate's FSDP2 splits axis 0), groups of several modules, gradient buckets, blocks that
are recomputed, and tensor parallelism other than that of transformers' own tp_plan. plan.lost and plan.parallelize know them.
"""
import torch
from accelerate import FullyShardedDataParallelPlugin, ParallelismConfig
from transformers import LlamaConfig, LlamaForCausalLM

import dtplan

with torch.device("meta"):
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32000, hidden_size=1024, intermediate_size=4096, num_hidden_layers=4,
                                         num_attention_heads=16, num_key_value_heads=16, attn_implementation="sdpa"))
tokens = torch.zeros(256, 1024, dtype=torch.long, device="meta")
plan = dtplan.plan(model, {"input_ids": tokens, "labels": tokens}, machine="h100_64", mesh={"dp": 4, "tp": 2}, precision="bf16")
degrees = plan.degrees
parallelism = ParallelismConfig(dp_replicate_size=degrees["dp_replicate"], dp_shard_size=degrees["dp_shard"], tp_size=degrees["tp"])
fsdp = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap",
                                      transformer_cls_names_to_wrap=["LlamaDecoderLayer"]) if degrees["dp_shard"] > 1 else None
print(degrees)
print(f"Accelerator(parallelism_config={parallelism}, fsdp_plugin={'...' if fsdp else None})")
