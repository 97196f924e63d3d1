"""Makes the files beside it: 20 steps of training with PyTorch, in f64, which torch_training.py compares dtrun with.

python3 make.py DIGITS_IMAGES.npy DIGITS_LABELS.npy   (needs torch and numpy; made with torch 1.13.1)

The model is models/mlp_digits.json with batch 48 and hidden 32; all steps see the same batch. Weights have a cosine
schedule with a warm-up, biases another rate and no decay; gradients are clipped to norm 0.6, which some steps are below.
"""

import json
import math
import os
import sys

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH, PIXELS, HIDDEN, CLASSES, STEPS = 48, 64, 32, 10, 20
CLIP, WARMUP, LAST = 0.6, 5, 0.1
OPTIMIZERS = {
    "sgd": (lambda groups: torch.optim.SGD(groups), {"lr": 0.3, "weight_decay": 0.01}, {"lr": 0.1, "weight_decay": 0.0}),
    "adamw": (lambda groups: torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-8),
              {"lr": 0.01, "weight_decay": 0.05}, {"lr": 0.003, "weight_decay": 0.0}),
}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for value in tensors.values():
            f.write(value.tobytes())


def scale(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    part = min((step - WARMUP) / (STEPS - WARMUP), 1.0)
    return LAST + (1 - LAST) * 0.5 * (1 + math.cos(math.pi * part))


def train(name, initial, images, labels):
    make, weights, biases = OPTIMIZERS[name]
    p = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in initial.items()}
    optimizer = make([dict(params=[p["w1"], p["w2"]], **weights), dict(params=[p["b1"], p["b2"]], **biases)])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, scale)
    seen = {"loss": [], "rate": [], "grad_norm": []}
    for _ in range(STEPS):
        optimizer.zero_grad()
        h = torch.relu(images @ p["w1"] + p["b1"])
        loss = torch.nn.functional.cross_entropy(h @ p["w2"] + p["b2"], labels)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(p.values()), CLIP)
        seen["loss"].append(loss.item())
        seen["rate"].append(optimizer.param_groups[0]["lr"])
        seen["grad_norm"].append(norm.item())
        optimizer.step()
        schedule.step()
    write_safetensors(os.path.join(HERE, name + ".safetensors"),
                      {k: v.detach().numpy().astype(np.float32) for k, v in p.items()})
    return seen


def main():
    images = np.load(sys.argv[1])[:BATCH].astype(np.float32)
    labels = np.load(sys.argv[2])[:BATCH].astype(np.int32)
    random = np.random.default_rng(7)
    initial = {"w1": random.normal(0, 0.15, (PIXELS, HIDDEN)), "b1": random.normal(0, 0.05, HIDDEN),
               "w2": random.normal(0, 0.3, (HIDDEN, CLASSES)), "b2": random.normal(0, 0.05, CLASSES)}
    initial = {k: v.astype(np.float32) for k, v in initial.items()}
    np.save(os.path.join(HERE, "images.npy"), images)
    np.save(os.path.join(HERE, "labels.npy"), labels)
    write_safetensors(os.path.join(HERE, "initial.safetensors"), initial)
    steps = {name: train(name, initial, torch.tensor(images, dtype=torch.float64), torch.tensor(labels).long())
             for name in OPTIMIZERS}
    with open(os.path.join(HERE, "steps.json"), "w") as f:
        json.dump(steps, f, indent=1)
        f.write("\n")


main()
