#!/usr/bin/env python3
"""Folders of transformers as people have them, good ones and odd ones: `dtrun run --load` and transformers give the same logits,
or both refuse; where one alone takes a folder, the reason stands in KNOWN. Run by hand with torch and transformers:

Usage: folders_hf.py BIN_DIR
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.abspath(sys.argv[1])
PT = {"format": "pt"}
KNOWN = {  # one alone takes it
    "pytorch_model.bin": "dtrun reads no pickles, and says to save it as safetensors",
    "no head": "transformers makes the missing head up (random), dtrun refuses",
}


def weights(folder):
    return load_file(folder + "/model.safetensors")


def single(folder, tensors):
    save_file(tensors, folder + "/model.safetensors", PT)


def index(folder, where, name="model.safetensors.index.json"):
    with open(f"{folder}/{name}", "w", encoding="utf-8") as f:
        json.dump({"metadata": {"total_size": 1}, "weight_map": where}, f)


def sharded(folder, n=2, change=None, stale=False):
    """In n parts; `change` edits the index; stale: other values, and the single file stays."""
    tensors, where = weights(folder), {}
    for i in range(n):
        name = f"model-{i + 1:05}-of-{n:05}.safetensors"
        part = {k: tensors[k] * (2 if stale else 1) for k in sorted(tensors)[i::n]}
        save_file({k: v.contiguous() for k, v in part.items()}, f"{folder}/{name}", PT)
        where.update({k: name for k in part})
    if change:
        change(where)
    index(folder, where)
    if not stale:
        os.remove(folder + "/model.safetensors")


def swap(where):
    a, b = "model.norm.weight", next(k for k in where if where[k] != where["model.norm.weight"])
    where[a], where[b] = where[b], where[a]


def replaced(name, content):
    def change(folder):
        os.remove(folder + "/model.safetensors")
        with open(f"{folder}/{name}", "wb") as f:
            f.write(content)
    return change


def renamed(name):
    return lambda folder: os.rename(folder + "/model.safetensors", f"{folder}/{name}")


def edited(change):
    def apply(folder):
        tensors = weights(folder)
        change(tensors)
        single(folder, {k: v.contiguous() for k, v in tensors.items()})
    return apply


def bf16(tensors):
    for k in tensors:
        tensors[k] = tensors[k].to(torch.bfloat16)


def pickled(folder):
    torch.save(weights(folder), folder + "/pytorch_model.bin")
    os.remove(folder + "/model.safetensors")


def without_prefix(tensors):
    for k in [k for k in tensors if k.startswith("model.")]:
        tensors[k[6:]] = tensors.pop(k)


def part_missing(folder):
    sharded(folder)
    os.remove(folder + "/model-00002-of-00002.safetensors")


def cut(folder):
    with open(folder + "/model.safetensors", "r+b") as f:
        f.truncate(os.path.getsize(folder + "/model.safetensors") - 100)


def linked(folder):
    shutil.move(folder + "/model.safetensors", folder + "/blob")
    os.symlink("blob", folder + "/model.safetensors")


# name, family, what is done to its folder
FOLDERS = [
    ("llama", "llama", None), ("gemma, tied", "gemma", None), ("llama_bias, tied", "llama_bias", None), ("qwen2", "qwen2", None),
    ("qwen3", "qwen3", None), ("gpt2", "gpt2", None), ("gpt_neox", "gpt_neox", None), ("phi3, fused", "phi3", None),
    ("mixtral, by expert", "mixtral", None), ("mistral, sharded bf16", "mistral", None), ("llama 3.1", "llama_3_1", None),
    ("sharded", "llama", sharded), ("three parts", "qwen3", lambda f: sharded(f, 3)), ("bf16", "llama", edited(bf16)),
    ("extra keys", "llama", edited(lambda t: t.update({"extra.weight": torch.ones(3)}))),
    ("rotary buffers", "llama", edited(lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}))),
    ("tied head stored", "gemma", edited(lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))),
    ("stale index", "llama", lambda f: sharded(f, stale=True)), ("index names other parts", "llama", lambda f: sharded(f, change=swap)),
    ("index entry nowhere", "llama", lambda f: sharded(f, change=lambda w: w.update({"ghost": w["model.norm.weight"]}))),
    ("link to a blob", "llama", linked), ("base model, tied", "llama_bias", edited(without_prefix)),
    ("pytorch_model.bin", "llama", pickled), ("consolidated.safetensors", "llama", renamed("consolidated.safetensors")),
    ("variant", "llama", renamed("model.fp16.safetensors")),
    ("git-lfs pointer", "llama", replaced("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")),
    ("web page", "llama", replaced("model.safetensors", b"<!DOCTYPE html><html><body>not found</body></html>")),
    ("nothing", "llama", lambda f: os.remove(f + "/model.safetensors")), ("part missing", "llama", part_missing), ("cut off", "llama", cut),
    ("no head", "llama", edited(lambda t: t.pop("lm_head.weight"))),
    ("another shape", "llama", edited(lambda t: t.update({"model.norm.weight": torch.ones(31)}))),
]


def theirs(folder, tokens):
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            return model(torch.from_numpy(tokens.astype(np.int64))).logits.numpy(), ""
    except Exception as e:  # whatever it says is a refusal
        return None, f"{type(e).__name__}: {e}".split("\n")[0][:90]


def ours(folder, tmp):
    model, out = tmp + "/m.json", tmp + "/logits.npy"
    done = subprocess.run([BIN + "/dtplan", "import", folder, "-o", model, "--no-train"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        dims = [w for d in ("batch=2", "length=8") for w in ("--dim", d)]
        done = subprocess.run([BIN + "/dtrun", "run", model, *dims, "--load", folder, "--feed", f"tokens={folder}/tokens.npy", "--comm", "self",
                               "--forward", "--fetch", f"logits={out}", "--quiet"], capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("warn ")]
    if done.returncode != 0:
        return None, (f"exit {done.returncode}: " if done.returncode != 2 or len(lines) != 1 else "") + lines[-1].replace(tmp, "")
    return np.load(out), ""


def main():
    wrong = 0
    print("| folder | transformers | dtrun | |\n|---|---|---|---|")
    for name, family, change in FOLDERS:
        with tempfile.TemporaryDirectory() as tmp:
            folder = tmp + "/folder"
            shutil.copytree(f"{HERE}/hf/{family}", folder)
            if change:
                change(folder)
            tokens = np.load(folder + "/tokens.npy")
            (a, said_a), (b, said_b) = theirs(folder, tokens), ours(folder, tmp)
            if a is not None and b is not None:
                differ = np.abs(a - b).max() / np.abs(a).max()
                word = f"{differ:.1e}" if differ < 1e-5 else f"WRONG {differ:.1e}"
            else:
                word = "both refuse" if a is None and b is None else KNOWN.get(name, "WRONG")
            wrong += "WRONG" in word or said_b.startswith("exit")
            print(f"| {name} | {said_a or 'logits'} | {said_b or 'logits'} | {word} |", flush=True)
    print(f"{len(FOLDERS)} folders, {wrong} wrong")
    sys.exit(1 if wrong else 0)


main()
