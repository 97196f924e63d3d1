#!/usr/bin/env python3
"""Plans with pipeline stages on virtual ranks: every one is verified against one device, every rank allocates what is predicted of its
stage to the byte, and in f32 on one rank per stage losses are those of the plan without stages, bit for bit.
DTP_QUARTER=k/4 runs a part. Usage: stages.py BIN_DIR"""
import itertools
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import quarter  # noqa: E402

BIN = sys.argv[1]
os.environ.update(OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0")
GPT = ["models/gpt_bytes.json", "--dim", "length=8", "--dim", "heads=2", "--dim", "d_head=4", "--dim", "vocab=32"]
GPT2 = ["models/gpt2_small.json", "--dim", "length=8", "--dim", "layers=4", "--dim", "heads=2", "--dim", "d_head=4", "--dim", "vocab=32"]
MIXTRAL = ["models/mixtral_8x7b.json", "--dim", "length=8", "--dim", "layers=4", "--dim", "kv_heads=2", "--dim", "d_head=4",
           "--dim", "vocab=32", "--dim", "d_ff=16", "--dim", "experts=4"]
MODELS = {"gpt": GPT, "gpt2": GPT2, "mixtral": MIXTRAL}
failed = 0
# What else models may have: a norm of all gradients, which every stage needs; dropout; experts; stages without gradients.
BATCH_RULES, ON_ONE = ["--rules", "batch:x"], ["--style", "**: data"]
MORE = [("clipped", "layer:0,2,3", "1f1b", "x:2", BATCH_RULES, 4, []), ("clipped", "4", "gpipe", "x:1", ON_ONE, 8, []),
        ("dropout", "2", "2", "x:1", ON_ONE, 4, ["--remat", "all"]), ("experts", "2", "1f1b", "x:2", BATCH_RULES, 4, []),
        ("gpt", "4", "1f1b", "x:2", BATCH_RULES, 4, ["--freeze", "layers.0.**", "--freeze", "wte", "--freeze", "wpe"]),
        ("gpt2", "2", "1f1b", "x:1", ON_ONE, 4, ["--freeze", "wte"]),
        ("gpt2", "layer:0,2,3", "gpipe", "x:2", ["--style", "**: fsdp"], 4, ["--precision", "bf16"]),
        ("wide", "2", "1f1b", "x:2", BATCH_RULES, 4, ["--precision", "fp8"]),
        ("convs", "layer:0,1,3", "1f1b", "x:2", BATCH_RULES, 4, ["--remat", "all"])]
# Two chunks on each stage.
CHUNKS = [("gpt", "2x2", "1f1b", "x:1", ON_ONE, 8, []), ("gpt", "layer:0,1,2,3x2", "gpipe", "x:2", ["--rules", "d_ff:x"], 4, ["--remat", "all"]),
          ("gpt2", "2x2", "2", "x:1", ON_ONE, 4, ["--remat", "all"]), ("gpt2", "2x2", "1f1b", "x:2", ["--style", "**: fsdp"], 8, ["--precision", "bf16"]),
          ("mixtral", "2x2", "1f1b", "x:1", ON_ONE, 4, []), ("clipped", "2x2", "1f1b", "x:2", BATCH_RULES, 8, []),
          ("clipped", "2x2", "gpipe", "x:1", ON_ONE, 4, []), ("dropout", "2x2", "1f1b", "x:1", ON_ONE, 8, ["--remat", "all"]),
          ("experts", "2x2", "1f1b", "x:2", BATCH_RULES, 4, []), ("gpt2", "2x2", "1f1b", "x:1", ON_ONE, 2, ["--freeze", "wte"]),
          ("convs", "2x2", "1f1b", "x:2", BATCH_RULES, 4, ["--remat", "all"]), ("deep", "2x4", "1f1b", "x:1", ON_ONE, 8, []),
          ("deep", "4x2", "2", "x:2", BATCH_RULES, 8, []), ("deep", "3x2", "1f1b", "x:1", ON_ONE, 4, ["--remat", "all"])]
CONVS = {"format": "dtp.model/1", "name": "convs", "dims": {"batch": 16, "c": 4, "k": 4, "size": 8, "taps": 3, "classes": 3, "layers": 4},
         "inputs": {"x": {"dims": ["batch", "c", "h=size", "w=size"]}, "labels": {"dims": ["batch"], "dtype": "i32", "below": "classes"}},
         "params": {"head": {"dims": ["c", "classes"], "init": {"normal": 0.1}}},
         "blocks": {"layer": {
             "params": {"w1": {"dims": ["k", "c", "kh=taps", "kw=taps"], "init": {"normal": 0.2}},
                        "w2": {"dims": ["c", "k", "kh=taps", "kw=taps"], "init": {"normal": 0.2}}},
             "nodes": [{"id": "up", "op": "conv", "in": ["y", "w1"], "spatial": ["h", "w"], "kernel": ["kh", "kw"], "padding": "same"},
                       {"id": "act", "op": "relu", "in": ["up"]},
                       {"id": "down", "op": "conv", "in": ["act", "w2"], "spatial": ["h", "w"], "kernel": ["kh", "kw"], "padding": "same"},
                       {"id": "sum", "op": "add", "in": ["y", "down"]}], "out": {"y": "sum"}}},
         "nodes": [{"id": "y0", "op": "relu", "in": ["x"]},
                   {"repeat": "layer", "count": "layers", "as": "layers", "carry": {"y": "y0"}},
                   {"id": "logits", "op": "einsum", "in": ["layers.y", "head"], "out": ["batch", "classes"]},
                   {"id": "loss", "op": "cross_entropy", "in": ["logits", "labels"], "over": "classes", "reduce": "mean"}],
         "train": {"loss": "loss", "optimizer": {"adamw": {"lr": 0.001}}}}


def fail(text):
    global failed
    failed += 1
    print("FAIL:", text)


def call(*args):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{' '.join(args)}: exit {done.returncode}: {done.stderr}")
        return None
    return done.stdout


def check(folder, name, stages, slots, mesh, rules, microbatches, more):
    model, words = MODELS[name], (name, stages, slots, mesh, rules, microbatches, more)
    batch = ["--dim", "batch=16"]
    plan, plain = os.path.join(folder, "plan.json"), os.path.join(folder, "plain.json")
    base = [*model, *batch, "--mesh", mesh, "--microbatches", str(microbatches), "--target", "cpu", *more]
    if call(f"{BIN}/dtplan", "plan", *base, "--stages", stages, "--slots", slots, *rules, "-o", plan) is None:
        return
    ranks = ["--comm", "sim", "--threads", "1"]
    text = call(f"{BIN}/dtrun", "verify", model[0], "--plan", plan, *ranks, "--json")
    if text is None:
        return
    v = json.loads(text)
    predicted, measured = v["predicted"]["peak_bytes_per_rank"], v["measured"]["peak_bytes_per_rank"]
    if not v["pass"] or predicted != measured or len(set(predicted)) < 2:
        fail(f"{words}: pass {v['pass']}, predicted {predicted}, allocated {measured}")
    if not v["gradients"] or not v["updates"]:
        fail(f"{words}: nothing was compared")
    if mesh != "x:1" or "--precision" in more:
        return
    losses = []
    for p, comm in ((plan, "sim"), (plain, "self")):
        if p == plain and call(f"{BIN}/dtplan", "plan", *base, "--style", "**: data", "-o", plain) is None:
            return
        out = call(f"{BIN}/dtrun", "run", model[0], "--plan", p, "--comm", comm, "--threads", "1", "--steps", "3", "--quiet", "--json")
        if out is None:
            return
        losses.append(json.loads(out)["loss"])
    if losses[0] != losses[1]:
        fail(f"{words}: losses {losses[0]} with stages, {losses[1]} without")


def cases():
    split = {"x:1": [ON_ONE], "x:2": [["--rules", "batch:x"], ["--rules", "d_ff:x"], ["--style", "**: fsdp"]]}
    for i, (name, stages, slots, mesh, m, remat) in enumerate(itertools.product(
            MODELS, ["2", "4", "layer:0,1", "layer:0,2,3"], ["gpipe", "1f1b", "2"], ["x:1", "x:2"], [4, 8], [None, "all"])):
        rules = split[mesh][i // 7 % len(split[mesh])]
        more = (["--remat", remat] if remat else []) + (["--precision", "bf16,gradients=f32"] if i % 5 == 4 else [])
        yield name, stages, slots, mesh, rules, m, more


def main():
    all_cases = list(cases())
    chosen = [c for i, c in enumerate(all_cases) if i % 3 == i // 3 % 3]  # a third, every value with every other
    with tempfile.TemporaryDirectory() as folder:
        with open(GPT[0]) as f:
            clipped = f.read().replace('"train": {', '"train": {"clip_norm": 0.05, ', 1)
        with open(os.path.join(folder, "clipped.json"), "w") as f:
            f.write(clipped)
        convs = os.path.join(folder, "convs.json")
        with open(convs, "w") as c:
            json.dump(CONVS, c)
        MODELS.update(convs=[convs], wide=[*GPT[:-4], "--dim", "d_head=16", "--dim", "vocab=32"], clipped=[f.name, *GPT[1:]],
                      deep=[GPT2[0], *GPT2[1:3], "--dim", "layers=8", *GPT2[5:]], dropout=["models/gpt_bytes_dropout.json", *GPT[1:]],
                      experts=["models/gpt_bytes_experts.json", "--dim", "length=16", *GPT[3:]])
        for case in quarter.of(chosen + CHUNKS) + MORE:
            check(folder, *case)
    sys.exit(1 if failed else 0)


main()
