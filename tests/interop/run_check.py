#!/usr/bin/env python3
"""dtp_torch.check of a causal language model of transformers, on the meta device, under exports; no weights are needed.

Usage: run_check.py CONFIG_FOLDER EXPORT.json... [--out FILE]
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

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "interop", "python"))
from dtplan import dtp_torch  # noqa: E402
from stored_params import read_json  # noqa: E402


def loss_of(module, inputs):
    text = inputs["text"].long()
    logits = module(input_ids=text[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("exports", nargs="+")
    parser.add_argument("--out")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRMSNorm
    LlamaRMSNorm.forward = lambda self, x: F.rms_norm(x, self.weight.shape, self.weight, self.variance_epsilon)  # one kernel
    results = {}
    for path in args.exports:
        plan = read_json(path)
        config = AutoConfig.from_pretrained(args.folder)
        config.num_hidden_layers = 1 + max(int(p["name"].split(".")[2]) for p in plan["params"] if ".layers." in p["name"])
        with torch.device("meta"):
            module = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)
        try:
            results[path] = dtp_torch.check(module, None, plan, loss=loss_of)
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
