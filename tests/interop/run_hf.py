#!/usr/bin/env python3
"""Runs transformers under a tp_plan that `dtplan export --as hf` wrote, two processes over gloo, beside the model in one process.

Usage: run_hf.py FOLDER=TP_PLAN.json... [--out FILE]    FOLDER: of transformers, with tokens.npy
Result: for each argument "ok", or what differs: logits, the loss, a gradient; or the error of transformers.
"""
import argparse
import datetime
import json
import logging
import os
import tempfile
import warnings

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import DTensor

from stored_params import read_json

TOLERANCE = 1e-4


def load(folder, **options):
    from transformers import AutoModelForCausalLM
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32, **options).eval()


def results_of(model, folder):
    """Logits without gradients, the loss, and gradients by name, of whole tensors."""
    tokens = torch.from_numpy(np.load(os.path.join(folder, "tokens.npy"))).long()
    with torch.no_grad():
        out = {"logits": whole(model(input_ids=tokens, use_cache=False).logits)}
    logits = model(input_ids=tokens, use_cache=False).logits
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    out["loss"] = whole(loss.detach())
    out.update({f"gradient of {name}": whole(p.grad) for name, p in model.named_parameters() if p.grad is not None})
    return out


def whole(x):
    return (x.full_tensor() if isinstance(x, DTensor) else x).detach().clone()


def compare(got, wanted):
    for name, value in wanted.items():
        if name not in got:
            return f"there is no {name}"
        if got[name].shape != value.shape:
            return f"{name}: {list(got[name].shape)}, without a plan {list(value.shape)}"
        off = float((got[name] - value).abs().max())
        if not off <= TOLERANCE * max(1.0, float(value.abs().max())):
            return f"{name}: off by {off:.1e} of {float(value.abs().max()):.1e}"
    return "ok"


def work(rank, pairs, wanted, here, out):
    quiet()
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    dist.init_process_group("gloo", init_method=f"file://{here}/ranks", rank=rank, world_size=2,
                            timeout=datetime.timedelta(seconds=40))
    from transformers.distributed import DistributedConfig
    found = []
    for (folder, plan), reference in zip(pairs, wanted):
        try:
            tp_plan = read_json(plan)["tp_plan"]
            model = load(folder, distributed_config=DistributedConfig(tp_size=2, tp_plan=tp_plan)) if tp_plan else load(folder)
            text = compare(results_of(model, folder), reference)
        except Exception as error:  # noqa: BLE001: whatever transformers says is the result
            if os.environ.get("DTP_TRACE") and rank == 0:
                import traceback
                traceback.print_exc()
            text = f"{type(error).__name__}: {str(error).strip()}"[:300]
        dist.barrier()
        everyones = [None, None]
        dist.all_gather_object(everyones, text)
        found.append(next((t for t in everyones if t != "ok"), "ok"))
    if rank == 0:
        with open(out, "w", encoding="utf-8") as file:
            json.dump(found, file)
    dist.destroy_process_group()


def quiet():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    from transformers.utils import logging as theirs
    theirs.disable_progress_bar()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pairs", nargs="+")
    parser.add_argument("--out")
    args = parser.parse_args()
    quiet()
    pairs = [pair.split("=", 1) for pair in args.pairs]
    known = {folder: results_of(load(folder), folder) for folder in dict.fromkeys(folder for folder, _ in pairs)}
    with tempfile.TemporaryDirectory() as here:
        out = args.out or os.path.join(here, "out.json")
        torch.multiprocessing.spawn(work, (pairs, [known[folder] for folder, _ in pairs], here, out), nprocs=2)
        for pair, text in zip(args.pairs, read_json(out)):
            print(f"{pair}: {text}")


if __name__ == "__main__":
    main()
