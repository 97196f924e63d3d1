#!/usr/bin/env python3
"""Trains a model in plain JAX under a plan that dtplan exported, on 4 host devices; prints what came of it as JSON.

The parameters come from a checkpoint of dtrun, through the names file beside the model. --reference: one
device, no plan.
Usage: run_jax.py MODEL.json EXPORT.json CHECKPOINT_DIR --feed INPUT=FILE.npy... [--steps 5] [--reference] [--out FILE]
Result: losses; local_param_bytes, per device; collectives, kind -> how many a step has, in the compiled program; their bytes, of whole
buffers: what is reduced, or what all devices gather.
"""
import argparse
import json
import os
import re
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "interop", "python"))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from dtplan import dtp_jax  # noqa: E402
from stored_params import read_params  # noqa: E402


# ---- the models: weights [out, in], names of tensors as in models/*.json ----

def layer_norm(p, name, x):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * p[name + ".weight"] + p[name + ".bias"]


def linear(p, name, x):
    y = x @ p[name + ".weight"].T
    return y + p[name + ".bias"] if name + ".bias" in p else y


def cross_entropy(logits, labels):
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -picked.mean()


def attention(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    n = q.shape[1]
    scores = jnp.where(jnp.tril(jnp.ones((n, n), bool)), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def gpt_bytes(p, feeds, at, sizes):
    n, heads = sizes["length"], sizes["heads"]
    tokens, targets = at(feeds["text"][:, :n], "tokens"), at(feeds["text"][:, 1:], "targets")
    x = at(at(p["wte.weight"][tokens], "embed") + p["wpe.weight"], "x0")
    for i in range(sizes["layers"]):
        name = f"layers.{i}."

        def here(x, point, name=name):
            return at(x, name + point)

        h = here(layer_norm(p, name + "ln_1", x), "ln_1")
        q, k, v = (here(linear(p, f"{name}attn.{c}", h).reshape(*h.shape[:2], heads, -1), "attn." + c) for c in "qkv")
        a = here(attention(q, k, v), "attn")
        x = here(x + here(linear(p, name + "attn.out", a.reshape(h.shape)), "attn.out"), "x1")
        h = here(layer_norm(p, name + "ln_2", x), "ln_2")
        h = here(jax.nn.gelu(here(linear(p, name + "mlp.up", h), "mlp.up")), "mlp.act")
        x = here(x + here(linear(p, name + "mlp.down", h), "mlp.out"), "x2")
    x = at(layer_norm(p, "ln_f", x), "ln_f")
    return cross_entropy(at(linear(p, "head", x), "logits"), targets)


def mlp_digits(p, feeds, at, sizes):
    h = at(jax.nn.relu(at(linear(p, "fc1", feeds["images"]), "h.sum")), "h")
    return cross_entropy(at(linear(p, "fc2", h), "logits"), feeds["labels"])


MODELS = {"gpt_bytes": gpt_bytes, "mlp_digits": mlp_digits}


# ---- training ----

def adamw(p, g, m, v, t, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    direction = m / (1 - beta1 ** t) / (jnp.sqrt(v / (1 - beta2 ** t)) + eps)
    return p - lr * (direction + weight_decay * p), m, v


def make_step(model, plan, sizes):
    def at(x, name):
        return plan.constrain(x, name) if plan else x

    def loss(params, feeds):
        return MODELS[model["name"]](plan.read(params) if plan else params, feeds, at, sizes)

    def step(params, m, v, t, feeds):
        value, grads = jax.value_and_grad(loss)(params, feeds)
        new = {name: adamw(params[name], grads[name], m[name], v[name], t, **model["train"]["optimizer"]["adamw"])
               for name in params}
        return tuple({name: new[name][k] for name in new} for k in range(3)) + (value,)

    return step


SIZES = {"f64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "pred": 1, "s8": 1, "u8": 1}


def collectives_of(text):
    """Counts by kind, and the bytes of all: of results, as XLA for CPUs has no reduce-scatter, whose result is a part."""
    found = re.findall(r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(", text)
    kinds, moved = [kind for _, kind in found], 0
    if "reduce-scatter" in kinds or "-start(" in text:
        sys.exit("bytes of results are not those of whole buffers in this program")
    for result, _ in found:
        for kind, shape in re.findall(r"([a-z]+[0-9]*)\[([0-9,]*)\]", result):
            moved += SIZES[kind] * int(np.prod([int(n) for n in shape.split(",") if n] or [1]))
    return {kind.replace("-", "_"): kinds.count(kind) for kind in sorted(set(kinds))}, moved


def main():
    parser = argparse.ArgumentParser()
    for name in ("model", "export", "checkpoint"):
        parser.add_argument(name)
    parser.add_argument("--feed", action="append", default=[])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()

    model, params, sizes = read_params(args.model, args.checkpoint)
    feeds = {name: np.load(path) for name, path in (feed.split("=", 1) for feed in args.feed)}
    sizes["length"] = feeds["text"].shape[1] - 1 if "text" in feeds else 0
    plan = None if args.reference else dtp_jax.load(args.export)
    step = make_step(model, plan, sizes)
    if plan:
        plan.mesh(jax.devices())
        where = plan.shardings(params)
        params, feeds = jax.device_put(params, where), jax.device_put(feeds, plan.in_shardings)
        step = jax.jit(step, in_shardings=(where, where, where, None, plan.in_shardings),
                       out_shardings=(where, where, where, None), donate_argnums=(0, 1, 2))
    else:
        params = jax.device_put(params, jax.devices()[0])
        step = jax.jit(step)
    m, v = (jax.tree_util.tree_map(jnp.zeros_like, params) for _ in range(2))
    step = step.lower(params, m, v, jnp.float32(1), feeds).compile()
    if plan and plan.unseen:
        sys.exit(f"{args.export}: the program has no points {plan.unseen}")
    losses = []
    for t in range(args.steps):
        params, m, v, loss = step(params, m, v, jnp.float32(t + 1), feeds)
        losses.append(float(loss))
    held = {}
    for x in params.values():
        for shard in x.addressable_shards:
            held[shard.device.id] = held.get(shard.device.id, 0) + shard.data.nbytes
    counts, moved = collectives_of(step.as_text())
    result = {"losses": losses, "local_param_bytes": [held[k] for k in sorted(held)], "collectives": counts, "bytes": moved}
    text = json.dumps(result, indent=2) + "\n"
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
