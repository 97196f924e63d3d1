"""A Llama of 70 billion parameters on the meta device, planned for 64 H100: seconds and memory of all of it, against limits.

Usage: meta_70b.py [LIMIT_S [LIMIT_GB]]    prints a line; exit code 1: beyond a limit, or the rotary table is not of the config
"""
import json
import resource
import sys
import time
import warnings

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import dtplan

limit_s, limit_gb = (float(x) for x in [*sys.argv[1:], "45", "2"][:2])
config = LlamaConfig(vocab_size=128256, hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64,
                     num_key_value_heads=8, max_position_embeddings=8192, rms_norm_eps=1e-5,
                     rope_parameters={"rope_type": "default", "rope_theta": 5e5})
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    tokens = torch.zeros(64, 4096, dtype=torch.long)
began = time.monotonic()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    plan = dtplan.plan(model, {"input_ids": tokens, "labels": tokens}, machine="h100_64", mesh={"dp": 8, "tp": 8},
                       precision="bf16", remat="all")
seconds = time.monotonic() - began
use = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
cpu_s, gb = sum(u.ru_utime + u.ru_stime for u in use), max(u.ru_maxrss for u in use) * 1024 / 1e9
with open(plan._path("model.json"), encoding="utf-8") as file:
    bases = set()

    def walk(x):
        if isinstance(x, dict):
            bases.update([x["base"]] if isinstance(x.get("base"), (int, float)) else [])
        for y in (x.values() if isinstance(x, dict) else x if isinstance(x, list) else []):
            walk(y)

    walk(json.load(file))
print(f"70B: {seconds:.1f} s ({cpu_s:.1f} s of processors), {gb:.2f} GB; {plan!r}; rotary base {bases}")
words = [str(w.message) for w in told if w.category is dtplan.DtplanWarning]
if len(bases) != 1 or abs(bases.pop() / 5e5 - 1) > 1e-4 or any("base" in w for w in words) or seconds > limit_s or gb > limit_gb:
    sys.exit(f"limits: {limit_s} s, {limit_gb} GB, base 500000; warnings {words}")
