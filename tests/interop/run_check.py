#!/usr/bin/env python3
"""dtp_torch.check on the meta device under exports; no weights are needed: of a causal language model of transformers, or of the
module of examples/torch_gpt.py ("gpt2") with heads of 64.

Usage: run_check.py CONFIG_FOLDER|gpt2 EXPORT.json... [--out FILE]
Result: export -> what check returns, or the error.
"""
import argparse
import json
import logging
import os
import sys
import warnings

import torch
import torch.nn.functional as F

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path[:0] = [os.path.join(ROOT, "interop", "python"), os.path.join(ROOT, "examples")]
from dtplan import dtp_torch  # noqa: E402
from stored_params import read_json  # noqa: E402


def loss_of_llama(module, inputs):
    text = inputs["text"].long()
    positions = torch.arange(text.shape[1] - 1).unsqueeze(0)  # where the sequence is split the module counts those of its part
    logits = module(input_ids=text[:, :-1], position_ids=positions, use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def loss_of_gpt2(module, inputs):
    text = inputs["text"].long()
    return F.cross_entropy(module(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


def make_gpt2(plan):
    from torch_gpt import Gpt
    return Gpt({p["name"]: p["shape"] for p in plan["params"]}, d_head=64)


def make_llama(folder, plan):
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.models.llama import modeling_llama
    modeling_llama.create_causal_mask = lambda *args, **kwargs: None  # of a part of the sequence; without one attention is causal
    modeling_llama.LlamaRMSNorm.forward = lambda self, x: F.rms_norm(x, self.weight.shape, self.weight,
                                                                     self.variance_epsilon)  # one kernel
    config = AutoConfig.from_pretrained(folder)
    config.num_hidden_layers = 1 + max(int(p["name"].split(".")[2]) for p in plan["params"] if ".layers." in p["name"])
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("exports", nargs="+")
    parser.add_argument("--out")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    results = {}
    for path in args.exports:
        plan = read_json(path)
        with torch.device("meta"):
            module = make_gpt2(plan) if args.module == "gpt2" else make_llama(args.module, plan)
        try:
            results[path] = dtp_torch.check(module, None, plan, loss=loss_of_gpt2 if args.module == "gpt2" else loss_of_llama)
        except Exception as error:  # noqa: BLE001: whatever PyTorch says is the result
            if os.environ.get("DTP_TRACE"):
                raise
            results[path] = f"{type(error).__name__}: {str(error).strip()}"[:400]
    text = json.dumps(results, indent=1)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
