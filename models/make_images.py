#!/usr/bin/env python3
"""Writes models/resnet50.json and models/unet3d.json: batch norm is many nodes, which no one should write by hand.

    python3 models/make_images.py models
"""
import json
import os
import sys

MOMENTUM = 0.1


class List:
    """Parameters and nodes of a block or of the model. Dims of an image: batch, a dim of channels, and SPACE."""

    def __init__(self, space):
        self.params, self.nodes, self.space = {}, [], space

    def node(self, name, op, *operands, **attrs):
        self.nodes.append({"id": name, "op": op, "in": list(operands), **attrs})
        return name

    def param(self, name, dims, init, **more):
        self.params[name] = {"dims": dims, "init": init, **more}
        return name

    def conv(self, name, x, cin, cout, k, space, stride=1, image=None):
        """A convolution of k taps per axis whose windows reach k / 2 beyond the image; image: the dims of the result."""
        n = len(space)
        taps = [f"k{k}_{d}" for d in self.space]
        w = self.param(name + ".w", [cout, cin] + (taps if k > 1 or stride > 1 else []), {"normal": round((2 / k**n) ** 0.5 / 8, 6)})
        if k == 1 and stride == 1:
            return self.node(name, "einsum", x, w, out=["batch", cout, *space])
        attrs = {"spatial": space, "kernel": taps, "before": [k // 2] * n, "after": [k // 2] * n}
        if stride > 1:
            attrs.update(stride=[stride] * n, after=[k // 2 - (1 if k > 1 else stride - 1)] * n)
        y = self.node(name, "conv", x, w, **attrs)
        return self.node(name + ".image", "relabel", y, out=["batch", cout, *image]) if image else y

    def norm(self, name, x, c, space, gamma="ones"):
        """Batch norm with running statistics."""
        over = ["batch", *space]
        gamma, beta = self.param(name + ".gamma", [c], gamma), self.param(name + ".beta", [c], "zeros")
        parts = {}
        for what, init in (("mean", "zeros"), ("var", "ones")):
            kept = self.param(f"{name}.running_{what}", [c], init, update=f"{name}.{what}.next")
            of = x if what == "mean" else self.node(name + ".squares", "square", self.node(name + ".centred", "sub", x, parts["mean"]))
            of = self.node(f"{name}.{what}.batch", "reduce", of, over=over, kind="mean")
            parts[what] = self.node(f"{name}.{what}", "in_training", of, kept)
            old = self.node(f"{name}.{what}.old", "scale", kept, factor=1 - MOMENTUM)
            new = self.node(f"{name}.{what}.new", "scale", parts[what], factor=MOMENTUM)
            self.node(f"{name}.{what}.next", "add", old, new)
        eps = self.node(name + ".eps", "constant", out=[c], value=1e-5)
        rate = self.node(name + ".rate", "rsqrt", self.node(name + ".sum", "add", parts["var"], eps))
        y = self.node(name + ".scaled", "mul", name + ".centred", self.node(name + ".by", "mul", rate, gamma))
        return self.node(name, "add", y, beta)

    def conv_norm_relu(self, name, x, cin, cout, k, space, stride=1, image=None):
        y = self.conv(name, x, cin, cout, k, space, stride, image)
        return self.node(name + ".relu", "relu", self.norm(name + ".norm", y, cout, image or space))


def resnet50():
    """He et al. 2015, with the stride in the 3 x 3 convolution (torchvision's); 1000 classes."""
    dims = {"batch": 256, "image": 224, "rgb": 3, "classes": 1000, "wide": 64, "taps": 7, "window": 3}
    space = lambda i: [f"h{i}", f"w{i}"]
    dims.update({d: f"image/{2 ** i}" for i in range(6) for d in space(i)})
    dims.update({f"k{k}_{d}": k for k in (1, 3, 7) for d in "hw"})
    model, blocks = List("hw"), {}
    x = model.conv_norm_relu("stem", "pixels", "rgb", "wide", 7, space(0), 2, space(1))
    x = model.node("stem.pool", "pool", x, kind="max", spatial=space(1), window=[3, 3], stride=[2, 2], before=[1, 1], after=[0, 0])
    x = model.node("stem.pool.image", "relabel", x, out=["batch", "wide", *space(2)])
    at, cin = 2, "wide"
    for s, count in enumerate((3, 4, 6, 3)):
        mid, seen, out = f"mid{s}", f"seen{s}", f"out{s}"
        dims.update({mid: f"wide*{2 ** s}", seen: mid, out: f"wide*{4 * 2 ** s}"})
        for first in (True, False):
            step = first and s > 0
            now, then, c = (at, at + 1 if step else at, cin if first else out)
            b = List("hw")
            y = b.conv_norm_relu("a", "x", c, mid, 1, space(now))
            y = b.conv_norm_relu("b", y, mid, seen, 3, space(now), 2 if step else 1, space(then) if step else None)
            y = b.norm("c.norm", b.conv("c", y, seen, out, 1, space(then)), out, space(then), "zeros")
            short = "x"
            if first:
                short = b.conv("short", "x", c, out, 1, space(now), 2 if step else 1, space(then) if step else None)
                short = b.norm("short.norm", short, out, space(then))
            b.node("y", "relu", b.node("sum", "add", y, short))
            name = f"stage{s}.{'first' if first else 'other'}"
            if first:  # it changes the dims, so it is no repeat
                model.params.update({f"{name}.{k}": {**v, **({"update": f"{name}.{v['update']}"} if "update" in v else {})} for k, v in b.params.items()})
                own = {n["id"] for n in b.nodes} | set(b.params)
                for n in b.nodes:
                    model.nodes.append({**n, "id": f"{name}.{n['id']}", "in": [f"{name}.{i}" if i in own else x for i in n["in"]]})
                x = f"{name}.y"
            else:
                blocks[name] = {"params": b.params, "nodes": b.nodes, "out": {"x": "y"}}
                model.nodes.append({"repeat": name, "count": count - 1, "as": name, "carry": {"x": x}})
                x = f"{name}.x"
            at = then
        cin = out
    x = model.node("pooled", "reduce", x, kind="mean", over=space(at))
    head = model.param("head.w", [cin, "classes"], {"normal": 0.01})
    bias = model.param("head.b", ["classes"], "zeros")
    x = model.node("logits", "add", model.node("head", "einsum", x, head, out=["batch", "classes"]), bias)
    model.node("loss", "cross_entropy", x, "labels", over="classes")
    for name in ("taps", "window"):
        dims.pop(name)
    inputs = {"pixels": {"dims": ["batch", "rgb", *space(0)]}, "labels": {"dims": ["batch"], "dtype": "i32", "below": "classes"}}
    return "resnet50", "ResNet-50 on images of 224 x 224", dims, inputs, model, blocks, {"momentum": {"lr": 0.1, "momentum": 0.9}}


def unet3d():
    """3D U-Net (Cicek et al. 2016) with batch norm; padded, so that every size is halved and doubled."""
    dims = {"batch": 2, "image": 128, "scans": 3, "classes": 3, "wide": 32}
    space = lambda i: [f"d{i}", f"h{i}", f"w{i}"]
    dims.update({d: f"image/{2 ** i}" for i in range(4) for d in space(i)})
    dims.update({f"k{k}_{d}": k for k in (2, 3) for d in "dhw"})
    dims.update({f"c{i}": f"wide*{2 ** i}" for i in range(5)})
    model = List("dhw")
    x, cin, skips = "scan", "scans", []
    for i in range(4):
        dims[f"a{i}"] = f"c{i}"
        x = model.conv_norm_relu(f"down{i}.a", x, cin, f"a{i}", 3, space(i))
        x = model.conv_norm_relu(f"down{i}.b", x, f"a{i}", f"c{i + 1}", 3, space(i))
        cin = f"c{i + 1}"
        if i < 3:
            skips.append((x, cin))
            x = model.node(f"down{i}.pool", "pool", x, kind="max", spatial=space(i), window=[2] * 3, stride=[2] * 3)
            x = model.node(f"down{i}.half", "relabel", x, out=["batch", cin, *space(i + 1)])
    for i in reversed(range(3)):
        w = model.param(f"up{i}.w", [cin, f"more{i}", "k2_d", "k2_h", "k2_w"], {"normal": 0.02})
        dims[f"more{i}"] = dims[cin]
        x = model.node(f"up{i}.twice", "conv_transpose", x, w, spatial=space(i + 1), kernel=["k2_d", "k2_h", "k2_w"], stride=[2] * 3)
        x = model.node(f"up{i}.image", "relabel", x, out=["batch", f"more{i}", *space(i)])
        skip, channels = skips[i]
        dims[f"both{i}"] = f"more{i}+{channels}"
        parts = [model.node(f"up{i}.part{k}", "relabel", part, out=["batch", f"part={c}", *space(i)])
                 for k, (part, c) in enumerate(((skip, channels), (x, f"more{i}")))]
        x = model.node(f"up{i}.parts", "concat", *parts, dim="part")
        x = model.node(f"up{i}.both", "relabel", x, out=["batch", f"both{i}", *space(i)])
        x = model.conv_norm_relu(f"up{i}.a", x, f"both{i}", channels, 3, space(i))
        dims[f"u{i}"] = channels
        x = model.conv_norm_relu(f"up{i}.b", x, channels, f"u{i}", 3, space(i))
        cin = f"u{i}"
    head, bias = model.param("head.w", [cin, "classes"], {"normal": 0.1}), model.param("head.b", ["classes"], "zeros")
    x = model.node("logits", "add", model.node("head", "einsum", x, head, out=["batch", "classes", *space(0)]), bias)
    model.node("loss", "cross_entropy", x, "labels", over="classes")
    inputs = {"scan": {"dims": ["batch", "scans", *space(0)]},
              "labels": {"dims": ["batch", *space(0)], "dtype": "i32", "below": "classes"}}
    return "unet3d", "3D U-Net on scans of 128 x 128 x 128", dims, inputs, model, {}, {"adam": {"lr": 0.001}}


def text(name, about, dims, inputs, model, blocks, optimizer):
    """A line for each parameter and node."""
    of = lambda members, n: (",\n" + " " * n).join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in members.items())
    lines = lambda nodes, n: (",\n" + " " * n).join(map(json.dumps, nodes))
    put = ",\n    ".join(
        f'"{k}": {{\n      "params": {{\n        {of(b["params"], 8)}\n      }},\n      "nodes": [\n        {lines(b["nodes"], 8)}\n      ],\n'
        f'      "out": {json.dumps(b["out"])}\n    }}' for k, b in blocks.items())
    return (f'{{\n  "format": "dtp.model/1",\n  "name": "{name}",\n  "about": "{about}; written by make_images.py.",\n'
            f'  "dims": {{\n    {of(dims, 4)}\n  }},\n  "inputs": {{\n    {of(inputs, 4)}\n  }},\n  "params": {{\n    {of(model.params, 4)}\n  }},\n'
            + (f'  "blocks": {{\n    {put}\n  }},\n' if put else "")
            + f'  "nodes": [\n    {lines(model.nodes, 4)}\n  ],\n  "outputs": ["logits"],\n'
            f'  "train": {{"loss": "loss", "optimizer": {json.dumps(optimizer)}}}\n}}\n')


for made in (resnet50(), unet3d()):
    with open(os.path.join(sys.argv[1], made[0] + ".json"), "w", encoding="utf-8") as f:
        f.write(text(*made))
