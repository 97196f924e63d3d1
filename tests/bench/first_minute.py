#!/usr/bin/env python3
"""What plans without flags give, of two versions of dtplan: a table for docs/results/first_minute.md.

Usage: first_minute.py DTPLAN [--before DTPLAN] [--limit SECONDS]
"""
import argparse
import json
import os
import re
import subprocess
import tempfile

COMMANDS = [  # model, the rest of the command; folders and .pt2 files are imported first
    ("mlp_digits", "--machine h100_64 --mesh x:8"),
    ("gpt_bytes", "--machine cpu_2 --mesh x:2"),
    ("gpt_bytes", "--machine a100_8 --mesh x:8"),
    ("gpt2_small", "--machine h100_64 --mesh x:8"),
    ("gpt2_small", "--machine l40s_8 --mesh x:8"),
    ("gpt2_small", "--machine mi300x_64 --mesh x:8;y:8"),
    ("bert_large", "--machine h100_64 --mesh x:8;y:8"),
    ("bert_large", "--machine tpu_v5p_64 --mesh x:64"),
    ("vit_b16", "--machine a100_8 --mesh x:8"),
    ("mtf_lm", "--machine h100_64 --mesh x:8;y:8"),
    ("llama3_8b", "--machine h100_64 --mesh x:8"),
    ("llama3_8b", "--machine h100_64 --mesh x:8;y:8"),
    ("llama3_8b", "--machine a100_8 --mesh x:8"),
    ("llama3_8b", "--machine b200_64 --mesh x:8"),
    ("llama3_70b", "--machine h100_64 --mesh x:8;y:8"),
    ("llama3_70b", "--machine h100_64 --mesh x:8"),
    ("gpt3_175b", "--machine a100_8 --mesh x:8"),
    ("mixtral_8x7b_index", "--machine h100_64 --mesh x:8;y:8"),
    ("tests/interop/hf/qwen3", "--machine h100_64 --mesh x:2"),
    ("tests/interop/pt2/nano.pt2", "--machine h100_64 --mesh x:2;y:2 --expressible torch"),
]


def run(dtplan, model, words, limit):
    with tempfile.TemporaryDirectory() as here:
        if "/" in model:
            imported = os.path.join(here, "model.json")
            done = subprocess.run([dtplan, "import", model, "-o", imported], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  check=False)
            if done.returncode != 0:
                return "not imported: " + done.stderr.decode().splitlines()[0]
            model = imported
        elif os.path.exists(f"models/{model}.json"):
            model = f"models/{model}.json"
        plan = os.path.join(here, "p.json")
        try:
            done = subprocess.run([dtplan, "plan", model, *words.split(), "-o", plan], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return f"not within {limit} s"
        text, err = done.stdout.decode(), " ".join(done.stderr.decode().split())
        return planned(json.load(open(plan, encoding="utf-8")), text) if done.returncode == 0 else refused(done.returncode, err)


def seconds(s):
    return f"{1e3 * s:.3g} ms" if s < 1 else f"{s:.3g} s"


def planned(plan, text):
    p = plan["predicted"]
    what = [plan.get("target", "cpu"), plan["mode"], seconds(p["step_time_s"]), f"{p['peak_bytes'] / 2**30:.3g} GiB"]
    table = re.search(r"^ +(\w+) +(\w+)\nrates.*\nstep +(\S+ \w+) +(\S+ \w+)$", text, re.M)
    if table:
        what.append(f"{table[2]}: {table[4]}")
    for key in ("microbatches", "recomputed"):
        if re.search(rf"^{key}:", text, re.M):
            what.append("microbatches " + re.search(r"^microbatches: (\d+)", text, re.M)[1] if key == "microbatches" else "recomputation")
    if re.search(r"^form: ", text, re.M):
        what.append("by " + re.search(r"^form: (\w+)", text, re.M)[1])
    return ", ".join(what)


def refused(code, err):
    if code != 3:
        return f"exit {code}: {err[:100]}"
    fits = re.search(r"the same model fits on (\d+) such devices|it fits with ([^;]*);", err)
    return f"exit {code}: does not fit" + (f"; fits on {fits[1]} devices" if fits and fits[1] else f"; fits with {fits[2]}" if fits else "")


def main():
    args = argparse.ArgumentParser()
    args.add_argument("dtplan")
    args.add_argument("--before")
    args.add_argument("--limit", type=float, default=300)
    args = args.parse_args()
    print("| `dtplan plan` | " + ("before | " if args.before else "") + "old defaults at today's prices | now |")
    print("|---|---|---|" + ("---|" if args.before else ""))
    for model, words in COMMANDS:
        old = words + (" --remat none --microbatches 1" + ("" if "--expressible" in words else " --mode rules"))
        calls = [(args.before, words)] if args.before else []
        cells = [run(tool, model, w, args.limit) for tool, w in calls + [(args.dtplan, old), (args.dtplan, words)]]
        print(f"| `{os.path.basename(model)} {words}` | " + " | ".join(cells) + " |", flush=True)


main()
