#!/usr/bin/env python3
"""What a PyTorch user does with a module after dtp_torch.parallelize, beside the same without a plan; prints JSON.

One group of processes over gloo runs all exports of a module. The reference is the module in this process, whole batch.
Usage: run_next.py MODULE EXPORT.json... [--folder HF_FOLDER] [--out FILE]    MODULE: gpt, mlp_digits, or hf with a folder
Result: export -> what was done -> "ok" or why not.
"""
import argparse
import copy
import datetime
import json
import logging
import math
import os
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

import run_torch
from run_torch import dtp_torch
from stored_params import read_json

TOLERANCE = 2e-5
NEW_TOKENS = 4


# ---- modules: (module, feeds) from a seed; loss(module, feeds) ----

def make(args, plan):
    torch.manual_seed(7)
    if args.module == "hf":
        from transformers import AutoModelForCausalLM
        kernels = "sdpa" if plan["torch"]["form"] == "modules" else "eager"  # DTensor has no rule for the CPU's attention
        module = AutoModelForCausalLM.from_pretrained(args.folder, attn_implementation=kernels, dtype=torch.float32).eval()
        module.config.use_cache = True
    else:
        module = run_torch.MODELS[args.module]({p["name"]: p["shape"] for p in plan["params"]})
    feeds = {}
    for i in plan["inputs"]:
        if i["name"] == "images":
            feeds["images"] = torch.rand(i["shape"])
        else:
            most = 10 if i["name"] == "labels" else 64
            feeds[i["name"]] = torch.randint(0, most, i["shape"])
    return module, feeds


def loss_of(module, feeds):
    if hasattr(module, "loss"):
        return module.loss(feeds)
    text = feeds["text"]
    logits = module(input_ids=text[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def train(module, feeds, context, optimizer, clip):
    """Losses and norms of two steps."""
    out = []
    for _ in range(2):
        optimizer.zero_grad()
        with context():
            loss = loss_of(module, feeds)
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), clip) if clip else torch.zeros(())
        optimizer.step()
        out.append((mean(loss), whole(norm)))
    return out


def whole(x):
    return float(x.full_tensor() if isinstance(x, DTensor) else x)


def mean(loss):
    """Over ranks."""
    value = (loss.full_tensor() if isinstance(loss, DTensor) else loss).detach().clone()
    if dist.is_initialized():
        dist.all_reduce(value)
        value /= dist.get_world_size()
    return float(value)


def adamw(module, **options):
    return torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.1, **options)


# ---- what is done; each gets a fresh module and says what it found ----

class Case:
    def __init__(self, args, plan, mesh, reference):
        self.args, self.plan, self.mesh, self.reference = args, plan, mesh, reference

    def context(self):
        return dtp_torch.loss_parallel(self.plan)

    def fresh(self):
        module, feeds = make(self.args, self.plan)
        part, parts = dtp_torch.data_parallel(self.mesh, self.plan)
        return module, {name: x.chunk(parts)[part] for name, x in feeds.items()}

    def parallel(self):
        module, feeds = self.fresh()
        return dtp_torch.parallelize(module, self.mesh, self.plan), feeds

    def clip(self):
        module, feeds = self.parallel()
        same(train(module, feeds, self.context, adamw(module, foreach=True), 0.05), self.reference["clip"])

    def fused(self):
        module, feeds = self.parallel()
        same(train(module, feeds, self.context, adamw(module, fused=True), None), self.reference["plain"])

    def load(self):
        module, feeds = self.parallel()
        state = {name: x + 0.01 for name, x in self.fresh()[0].state_dict().items()}
        module.load_state_dict(state)
        with self.context(), torch.no_grad():
            same([(mean(loss_of(module, feeds)), 0.0)], [(self.reference["loaded"], 0.0)])

    def compile(self):
        module, feeds = self.parallel()
        torch._dynamo.reset()
        module.compile(backend="aot_eager")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            same(train(module, feeds, self.context, adamw(module, foreach=True), None), self.reference["plain"])
        eagerly = any("torch.compile leaves this module" in str(w.message) for w in told)
        if eagerly != (self.plan["torch"]["form"] == "placements"):
            raise AssertionError(f"torch.compile: eagerly {eagerly}")
        return "runs eagerly" if eagerly else None

    def generate(self):
        module, feeds = self.parallel()
        tokens = feeds["text"][:, :4]
        out = module.generate(tokens, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0,
                              attention_mask=torch.ones_like(tokens))
        part, parts = dtp_torch.data_parallel(self.mesh, self.plan)
        if out.tolist() != self.reference["generated"].chunk(parts)[part].tolist():
            raise AssertionError("other tokens than without a plan")

    def again(self):
        module, _ = self.parallel()
        refused(ValueError, "parallelized already", lambda: dtp_torch.parallelize(module, self.mesh, self.plan))

    def before(self):
        module, feeds = self.fresh()
        optimizer = adamw(module)
        dtp_torch.parallelize(module, self.mesh, self.plan)
        if {id(p) for g in optimizer.param_groups for p in g["params"]} == {id(p) for p in module.parameters()}:
            same(train(module, feeds, self.context, optimizer, None), self.reference["plain"])
            return "trains"
        refused(RuntimeError, "make the optimizer afterwards", lambda: train(module, feeds, self.context, optimizer, None))
        return "refused"


DONE = ("clip", "fused", "load", "compile", "generate", "again", "before")


def same(got, wanted):
    for a, b in zip([x for pair in got for x in pair], [x for pair in wanted for x in pair]):
        if not math.isfinite(a) or abs(a - b) > TOLERANCE * max(1e-3, abs(b)):
            raise AssertionError(f"{got}, without a plan {wanted}")


def refused(kind, words, call):
    try:
        call()
    except kind as error:
        if words in str(error):
            return
        raise
    raise AssertionError(f"no error with '{words}'")


def reference_of(args, plan):
    module, feeds = make(args, plan)
    out = {}
    for key, clip in (("plain", None), ("clip", 0.05)):
        other = copy.deepcopy(module)
        out[key] = train(other, feeds, torch.enable_grad, adamw(other), clip)
    other = copy.deepcopy(module)
    other.load_state_dict({name: x + 0.01 for name, x in other.state_dict().items()})
    with torch.no_grad():
        out["loaded"] = mean(loss_of(other, feeds))
    if args.module == "hf":
        tokens = feeds["text"][:, :4]
        out["generated"] = module.generate(tokens, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0,
                                           attention_mask=torch.ones_like(tokens))
    return out


def work(rank, args, references, here):
    torch.set_num_threads(1)
    quiet()
    dist.init_process_group("gloo", init_method=f"file://{here}/ranks", rank=rank, world_size=4,
                            timeout=datetime.timedelta(seconds=40))
    results = {}
    for path in args.exports:
        plan = read_json(path)
        mesh = init_device_mesh("cpu", [n for _, n in plan["mesh"]], mesh_dim_names=[d for d, _ in plan["mesh"]])
        case = Case(args, plan, mesh, references[path])
        results[path] = {what: attempt(getattr(case, what)) for what in args.what if args.module == "hf" or what != "generate"}
    everyones = [None] * 4
    dist.all_gather_object(everyones, results)
    if rank == 0:
        worst = {path: {what: next((r[path][what] for r in everyones if not r[path][what].startswith("ok")), text)
                        for what, text in done.items()} for path, done in results.items()}
        text = json.dumps(worst, indent=1)
        if args.out:
            with open(args.out, "w", encoding="utf-8") as file:
                file.write(text)
        else:
            print(text)
    dist.destroy_process_group()


def attempt(call):
    try:
        more = call()
        text = "ok" + (f": {more}" if more else "")
    except Exception as error:  # noqa: BLE001: whatever PyTorch says is the result
        if os.environ.get("DTP_TRACE"):
            import traceback
            traceback.print_exc() if dist.get_rank() == 0 else None
        text = f"{type(error).__name__}: {str(error).strip()}"[:400]
    dist.barrier()
    return text


def quiet():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("exports", nargs="+")
    parser.add_argument("--folder")
    parser.add_argument("--what", nargs="*", default=DONE)
    parser.add_argument("--out")
    args = parser.parse_args()
    quiet()
    references, known = {}, {}
    for path in args.exports:
        plan = read_json(path)
        key = json.dumps(plan["inputs"][0]["shape"])
        known[key] = known.get(key) or reference_of(args, plan)
        references[path] = known[key]
    with tempfile.TemporaryDirectory() as here:
        torch.multiprocessing.spawn(work, (args, references, here), nprocs=4)


if __name__ == "__main__":
    main()
