#!/usr/bin/env python3
"""What `dtplan plan --devices N --limit-s S` finds, beside usual layouts under all usual settings, each given by hand: a table
for docs/results/usual.md. Exit code 1: a usual layout that fits is faster than the plan by more than --slack.

Usage: usual.py DTPLAN [--limit-s S] [--models NAME...]
"""
import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time

LLAMA = ["layers.*.attn.{q,k,v}: colwise(tp)", "layers.*.attn.out: rowwise(tp, output=length)",
         "layers.*.mlp.{gate,up}: colwise(tp)", "layers.*.mlp.out: rowwise(tp, output=length)",
         "embed: rowwise(tp, output=length)", "logits: colwise(tp)", "{loss,micro.loss}: loss_parallel(tp)",
         "{layers.*.norm_*,norm_f}: sequence(tp)"]
GPT = ["layers.*.attn.{q,k,v}: colwise(tp)", "layers.*.attn.out: rowwise(tp, output=length)", "layers.*.mlp.up: colwise(tp)",
       "layers.*.mlp.out: rowwise(tp, output=length)", "{layers.*.ln_*,ln_f}: sequence(tp)"]
# model: machine, devices, what both commands share, styles of tensor parallelism
MODELS = {
    "gpt2_small": ("h100_64", 8, [], GPT),
    "llama3_8b": ("h100_64", 64, ["--dim", "batch=64"], LLAMA),
    "mixtral_8x7b": ("h100_64", 64, [], LLAMA[:2] + LLAMA[4:]),
    "llama3_70b": ("h100_64", 64, ["--dim", "batch=128", "--dim", "length=8192"], LLAMA),
    "gpt3_175b": ("h100_512", 512, ["--dim", "batch=512"], GPT),
}
SELECTIVE = "layer keep=**.{attn.q.mm,attn.k.mm,attn.v,attn,mlp.gate.mm,mlp.up.mm,mlp.out}$"
REMATS = {"none": "none", "selective": SELECTIVE, "all": "all"}
MICROBATCHES = (1, 2, 4, 8)


def layouts(devices, tensor):
    """(name, mesh, styles): FSDP over all devices, data parallelism, and both beside 2- to 8-way tensor parallelism."""
    yield "FSDP", f"dp:{devices}", ["**: data(dp)", "**: fsdp(dp)"]
    if devices > 8:
        yield "HSDP", f"dp:{devices // 8};fs:8", ["**: data(dp)", "**: data(fs)", "**: fsdp(fs)"]
    yield "ZeRO-1", f"dp:{devices}", ["**: data(dp)", "**: zero1(dp)"]
    for ways in (2, 4, 8):
        if ways < devices:
            mesh = f"dp:{devices // ways};tp:{ways}"
            yield "FSDP + TP", mesh, tensor + ["**: data(dp)", "**: fsdp(dp)"]
            yield "ZeRO-1 + TP", mesh, tensor + ["**: data(dp)", "**: zero1(dp)"]


def run(words, limit):
    began, out = time.time(), tempfile.mktemp()
    try:
        p = subprocess.run(words + ["-o", out, "--json"], capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return None, f"more than {limit} s", limit
    if p.returncode != 0:
        return None, (p.stderr.strip().splitlines() or ["no words"])[-1], time.time() - began
    plan = json.load(open(out, encoding="utf-8"))
    os.unlink(out)
    return plan, json.loads(p.stdout), time.time() - began


def cell(step, peak):
    return f"{step:.4g} s, {peak / 2**30:.1f} GiB"


def tried(dtplan, common, devices, tensor):
    """(step, peak, fits, what) of every usual layout under every usual setting."""
    for (name, mesh, styles), (remat, words), n in itertools.product(layouts(devices, tensor), REMATS.items(), MICROBATCHES):
        c = common + ["--mesh", mesh, "--remat", words, "--microbatches", str(n), "--memory", "none", "--alone"]
        for s in styles:
            c += ["--style", s]
        _, said, _ = run([dtplan, "plan"] + c, 120)
        what = f"{name} {mesh}, {n} microbatches, {remat} recomputed"
        if isinstance(said, str):
            yield None, None, said, what
        else:
            yield said["predicted"]["step_time_s"], said["predicted"]["peak_bytes"], "", what


def main():
    o = argparse.ArgumentParser()
    o.add_argument("dtplan")
    o.add_argument("--limit-s", default="45")
    o.add_argument("--slack", type=float, default=0.005)
    o.add_argument("--models", nargs="*", default=list(MODELS))
    o = o.parse_args()
    worse = 0
    print("| model, devices | `dtplan plan --devices N --limit-s %s` | usual, that fits | seconds | tried, fit |" % o.limit_s)
    print("|---|---|---|---|---|")
    for model in o.models:
        machine, devices, words, tensor = MODELS[model]
        common = [f"models/{model}.json", "--machine", machine, "--precision", "bf16", "--outputs", "none"] + words
        plan, said, seconds = run([o.dtplan, "plan"] + common + ["--devices", str(devices), "--limit-s", o.limit_s], 600)
        if plan is None:
            print(f"| {model}, {devices} | {said} | | {seconds:.0f} | |", flush=True)
            worse += 1
            continue
        ours, limit = said["predicted"], plan["memory_limit_bytes"]
        rows = list(tried(o.dtplan, common, devices, tensor))
        done = sorted(r for r in rows if r[0] is not None)
        fit = [r for r in done if r[1] <= limit]
        best = f"{cell(*fit[0][:2])}: {fit[0][3]}" if fit else "none"
        worse += bool(fit) and fit[0][0] * (1.0 + o.slack) < ours["step_time_s"] / (1.0 + o.slack)
        mesh = ";".join(f"{name}:{size}" for name, size in plan["mesh"])
        setting = ", ".join(f"{key} {plan[key]}" for key in ("microbatches", "remat") if key in plan)
        print(f"| {model}, {devices} | {cell(ours['step_time_s'], ours['peak_bytes'])}: {mesh} {setting} | {best} | {seconds:.0f} | {len(rows)}, {len(fit)} |", flush=True)
        for r in rows:
            print(f"  {model}: {cell(*r[:2]) if r[0] else r[2]}{'' if r[0] is None or r[1] <= limit else ', does not fit'}: {r[3]}",
                  file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
