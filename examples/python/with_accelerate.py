"""The degrees of a plan as accelerate's FSDP2 and tensor-parallel configuration: python with_accelerate.py

Lost: which axis of a parameter is split (accelerate's FSDP2 splits axis 0), groups of several modules, gradient buckets, blocks that
are recomputed, and tensor parallelism other than that of transformers' own tp_plan. plan.parallelize applies all of them.
"""
import torch
from accelerate import FullyShardedDataParallelPlugin, ParallelismConfig
from transformers import LlamaConfig, LlamaForCausalLM

import dtplan


def configuration(plan, block):
    """The arguments of Accelerator. accelerate refuses copies beside tensor parallelism: their dims split parameters, too."""
    replicate, shard, tensor = (plan.degrees[name] for name in ("dp_replicate", "dp_shard", "tp"))
    if tensor > 1 and shard == 1:
        replicate, shard = 1, replicate
    fsdp = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap",
                                          transformer_cls_names_to_wrap=[block]) if shard > 1 else None
    return {"parallelism_config": ParallelismConfig(dp_replicate_size=replicate, dp_shard_size=shard, tp_size=tensor),
            "fsdp_plugin": fsdp}


with torch.device("meta"):
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32000, hidden_size=1024, intermediate_size=4096, num_hidden_layers=4,
                                         num_attention_heads=16, num_key_value_heads=16, attn_implementation="sdpa"))
tokens = torch.zeros(256, 1024, dtype=torch.long, device="meta")
plan = dtplan.plan(model, {"input_ids": tokens, "labels": tokens}, machine="h100_64", mesh={"dp": 4, "tp": 2}, precision="bf16")
arguments = configuration(plan, "LlamaDecoderLayer")  # Accelerator(**arguments)
parallelism = arguments["parallelism_config"]
assert parallelism.total_size == 8, parallelism
print(f"{plan.degrees} -> dp_replicate {parallelism.dp_replicate_size}, dp_shard {parallelism.dp_shard_size}, "
      f"tp {parallelism.tp_size}, {'FSDP2' if arguments['fsdp_plugin'] else 'no FSDP'}")
