#!/usr/bin/env python3
"""Random modules of one ATen op each: what `dtplan import` accepts has PyTorch's values and gradients.

The ops are those of the importer's tables, their arguments those of PyTorch's schemas, each at random. A module that
PyTorch itself refuses is drawn again. What is accepted is run by dtrun: outputs, and the gradients of operands that are
parameters (from AdamW's first moment). What is refused must be one error that names the op. Called by
./dev interop ops; needs torch.
Usage: random_ops.py BIN_DIR [COUNT] [SEED] [OP]
"""
import collections
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch

warnings.filterwarnings("ignore")
TABLES = {  # file -> rows
    "importers/program/lowering/aten_ops.c": r'OP\("(\w+)"', "importers/program/rewrites/aten_formulas.c": r'FORMULA\("(\w+)"',
    "importers/program/rewrites/aten_rewrites.c": r'REWRITE\("(\w+)"'}
PATTERNS = ["scaled_dot_product_attention", "conv1d", "conv2d", "conv3d"]
DTYPES = [torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.bool]
NUMBERS = [-2, -1, 0, 1, 2, 3, 0.5, 1.5, -0.25, 20, 5.0, 0.1, 1.0]
TEXTS = {"approximate": ["none", "tanh"], "rounding_mode": ["floor", "trunc"], "indexing": ["ij", "xy"],
         "mode": ["constant", "reflect", "replicate"], "padding": ["valid", "same"]}
HERE = "build/interop/ops"


def ops():
    names = set(PATTERNS)
    for path, row in TABLES.items():
        with open(path, encoding="utf-8") as file:
            names |= set(re.findall(row, file.read()))
    return sorted(n for n in names if hasattr(torch.ops.aten, n) and not n.startswith("dtp"))


def overloads(name):
    packet = getattr(torch.ops.aten, name)
    for o in packet.overloads():
        args = getattr(packet, o)._schema.arguments
        tensors = [a for a in args if "Tensor" in str(a.type)]
        plain = not any(a.is_out for a in args) and not any("Dimname" in str(a.type) for a in args)
        if tensors and plain and "out" not in o and "names" not in o and o not in ("Tensor_out", "a", "sublist"):
            yield getattr(packet, o)


class Draw:
    """One call: the values of its arguments, tensors among them as Operand."""

    def __init__(self, rng, op):
        self.rng, self.op = rng, op
        self.shape = [rng.choice([2, 3, 4, 5, 6]) for _ in range(rng.choice([1, 2, 2, 3, 3, 4]))]
        self.tensors = []
        self.recipe = RECIPES.get(op._schema.name.split("::")[1], {})
        if "shape" in self.recipe and self.recipe["shape"].__code__.co_varnames[0] == "rng":
            self.shape = self.recipe["shape"](rng)

    def tensor(self, shape, kind="real", high=None):
        """A tensor as operand: real ones may be parameters."""
        rng = self.rng
        shape = tuple(shape)
        if kind == "index":
            value, param = torch.randint(0, high, shape), False
        elif kind == "bool":
            value, param = torch.rand(shape) > 0.4, False
        elif kind == "int":
            value, param = torch.randint(-4, 6, shape), False
        elif kind == "unit":
            value, param = torch.rand(shape) * 0.98 + 0.01, False
        else:
            value, param = torch.randn(shape) * rng.choice([1, 1, 3]), rng.random() < 0.7
            if rng.random() < 0.1:
                value, param = value.to(torch.bfloat16), False
        self.tensors.append((value, param))
        return value

    def broadcast(self):
        shape = list(self.shape[self.rng.choice([0, 0, 0, len(self.shape) // 2]):])
        return [1 if self.rng.random() < 0.15 else s for s in shape]

    def argument(self, a, first):
        name, kind, rng = a.name, str(a.type).replace("Optional[", "").replace("]", ""), self.rng
        if name in self.recipe:
            return self.recipe[name](self)
        if "List[Tensor" in kind or "List[Optional[Tensor" in str(a.type):
            return [self.tensor(self.shape) for _ in range(rng.choice([1, 2, 3]))]
        if kind == "Tensor":
            how = self.recipe.get("kind", rng.choices(["real", "int", "bool"], [8, 1, 1])[0])
            return self.tensor(self.shape if first else self.broadcast(), how)
        rank = len(self.shape)
        if kind.startswith("List[int"):
            if "dim" in name:
                return rng.sample(range(rank), rng.randint(0, rank)) if rng.random() < 0.7 else [-1]
            return [rng.choice([1, 2, 3]) for _ in range(rng.choice([1, rank]))]
        if kind == "int":
            if name == "dtype":
                return rng.choice(DTYPES)
            return rng.randint(-rank, rank - 1) if "dim" in name or "axis" in name else rng.choice([-2, -1, 0, 1, 2, 3])
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "str":
            return rng.choice(TEXTS.get(name, ["none"]))
        if kind in ("number", "float"):
            return rng.choice(NUMBERS)
        return None

    def call(self):
        args, kwargs, first, done = [], {}, True, False
        for a in self.op._schema.arguments:
            optional = a.has_default_value()
            if a.name in ("device", "layout", "memory_format", "pin_memory", "non_blocking", "out") and optional:
                done = True
                continue
            if optional and (done or self.rng.random() < 0.4):
                done = True
                continue
            if optional and a.kwarg_only is False and done:
                continue
            value = self.argument(a, first)
            first = False
            if a.kwarg_only or done:
                kwargs[a.name] = value
            else:
                args.append(value)
        return args, kwargs


def with_shape(*least):
    return lambda rng: [max(rng.choice([2, 3, 4, 6]), n) for n in least]


def of(kind, *shape):
    """A tensor whose sizes are numbers, or places in the shape of the draw."""
    return lambda d: d.tensor([d.shape[s[0]] if isinstance(s, tuple) else s for s in shape], kind)


def choice(*values):
    return lambda d: d.rng.choice(values)


def size_of_view(d):
    n = math.prod(d.shape)
    a = d.rng.choice([k for k in range(1, n + 1) if n % k == 0])
    return d.rng.choice([[a, n // a], [-1], [a, -1], list(d.shape) + [1], [n]])


def labels(d):
    shape = d.shape[:1] + d.shape[2:] if len(d.shape) > 1 else []
    value = d.tensor(shape, "index", d.shape[1] if len(d.shape) > 1 else d.shape[0])
    if d.rng.random() < 0.3 and value.numel() > 1:
        value.view(-1)[0] = d.rng.choice([-100, 0])
    return value


def image(n, pooled=False):
    return lambda rng: [2, rng.choice([2, 4])] + [rng.choice([4, 6, 8]) for _ in range(n)]


def conv(n):
    k = lambda d: d.rng.choice([[2] * n, [1] * n, [2] * n, [3] * n])
    return {"shape": image(n), "input": of("real", *[(i,) for i in range(n + 2)]),
            "weight": lambda d: d.tensor([d.rng.choice([2, 4]), d.shape[1]] + d.rng.choice([[1] * n, [2] * n, [2] * n]), "real"),
            "bias": lambda d: None, "stride": k, "padding": lambda d: d.rng.choice([[0] * n, [0] * n, [1] * n]),
            "dilation": lambda d: d.rng.choice([[1] * n, [1] * n, [2] * n]), "groups": choice(1, 1, 2)}


def pool(n):
    k = lambda d: d.rng.choice([[2] * n, [1] * n, [2] * n, [3] * n])
    return {"shape": image(n), "kernel_size": k, "stride": lambda d: d.rng.choice([[], k(d)]),
            "padding": lambda d: d.rng.choice([[0] * n, [0] * n, [1] * n]), "dilation": lambda d: [d.rng.choice([1, 1, 2])] * n,
            "kind": "real", "output_size": lambda d: [d.rng.choice([1, 2, 3])] * n, "divisor_override": choice(None, 3),
            **{f"scales{k}": choice(None, 2.0, 1.0, 3.0) for k in ("", "_d", "_h", "_w")},
            "scale_factors": lambda d: None}


def scaled(n):
    """upsample_nearest: sizes that are multiples, and factors."""
    return {**pool(n), "output_size": lambda d: [s * d.rng.choice([1, 2, 3]) for s in d.shape[2:]],
            "scale_factors": lambda d: None}


LOSS = {"kind": "real", "reduction": choice(0, 1, 2), "target": of("real", *[]), "weight": lambda d: None}
RECIPES = {
    "linear": {"shape": with_shape(2, 2, 2), "weight": lambda d: d.tensor([5, d.shape[-1]]), "bias": lambda d: d.tensor([5])},
    "mm": {"shape": with_shape(2, 2), "mat2": lambda d: d.tensor([d.shape[1], 5])},
    "bmm": {"shape": with_shape(2, 2, 2), "mat2": lambda d: d.tensor([d.shape[0], d.shape[2], 5])},
    "mv": {"shape": with_shape(2, 2), "vec": lambda d: d.tensor([d.shape[1]])},
    "dot": {"shape": with_shape(3), "tensor": of("real", (0,))},
    "outer": {"shape": with_shape(3), "vec2": lambda d: d.tensor([4])},
    "inner": {"shape": with_shape(2, 3), "other": lambda d: d.tensor([5, d.shape[1]])},
    "matmul": {"shape": with_shape(2, 2, 2), "other": lambda d: d.tensor(d.rng.choice([[d.shape[-1], 5], [d.shape[-1]],
                                                                                   [d.shape[0], d.shape[-1], 3]]))},
    "addmm": {"shape": with_shape(2, 2), "self": lambda d: d.tensor(d.rng.choice([[5], [d.shape[0], 5]])),
              "mat1": of("real", (0,), (1,)), "mat2": lambda d: d.tensor([d.shape[1], 5])},
    "addmv": {"shape": with_shape(2, 2), "self": lambda d: d.tensor([d.shape[0]]), "mat": of("real", (0,), (1,)),
              "vec": lambda d: d.tensor([d.shape[1]])},
    "baddbmm": {"shape": with_shape(2, 2, 2), "self": lambda d: d.tensor([d.shape[0], d.shape[1], 5]),
                "batch1": of("real", (0,), (1,), (2,)), "batch2": lambda d: d.tensor([d.shape[0], d.shape[2], 5])},
    "einsum": {"equation": choice("ab,bc->ac", "ab,bc->abc", "ab,bc->", "ab,bc->ca"),
               "tensors": lambda d: [d.tensor([3, 4]), d.tensor([4, 5])], "path": lambda d: None},
    "layer_norm": {"kind": "real", "normalized_shape": lambda d: d.shape[-d.rng.choice([1, 1, 2]):], "weight": lambda d: None if d.rng.random() < 0.3
                   else d.tensor(d.shape[-1:]), "bias": lambda d: None if d.rng.random() < 0.3 else d.tensor(d.shape[-1:])},
    "group_norm": {"shape": image(2), "kind": "real", "num_groups": choice(1, 2), "weight": lambda d: d.tensor([d.shape[1]]),
                   "bias": lambda d: d.tensor([d.shape[1]])},
    "instance_norm": {"shape": image(2), "kind": "real", "weight": lambda d: d.tensor([d.shape[1]]), "bias": lambda d: None,
                      "running_mean": lambda d: None, "running_var": lambda d: None, "use_input_stats": choice(True), "eps": choice(1e-5, 0.1)},
    "embedding": {"weight": lambda d: d.tensor([7, 4]), "indices": lambda d: d.tensor(d.shape[:3], "index", 7),
                  "padding_idx": choice(-1, 0, 3)},
    "one_hot": {"self": lambda d: d.tensor(d.shape[:3], "index", 5), "num_classes": choice(5, 7)},
    "gather": {"kind": "real", "index": lambda d: d.tensor(d.shape, "index", min(d.shape))},
    "index_select": {"kind": "real", "index": lambda d: d.tensor([3], "index", min(d.shape))},
    "index": {"kind": "real", "indices": lambda d: [None] * d.rng.choice([0, 1]) + [d.tensor([3], "index", min(d.shape))]},
    "cross_entropy_loss": {"shape": lambda rng: rng.choice([[4, 5], [3, 4, 2], [5]]), "kind": "real", "target": labels, "ignore_index": choice(-100, 0, 2),
                           "reduction": choice(0, 1, 2), "label_smoothing": choice(0.0, 0.1, 0.5),
                           "weight": lambda d: None if d.rng.random() < 0.7 else d.tensor([d.shape[min(1, len(d.shape) - 1)]])},
    "nll_loss_nd": {"shape": with_shape(3, 4), "kind": "real", "target": labels, "weight": lambda d: None, "reduction": choice(0, 1, 2)},
    "scaled_dot_product_attention": {
        "shape": with_shape(2, 2, 3, 4), "query": of("real", (0,), (1,), (2,), (3,)), "key": of("real", (0,), (1,), 5, (3,)),
        "value": of("real", (0,), (1,), 5, (3,)), "dropout_p": choice(0.0), "scale": choice(None, 0.5, 0.0),
        "attn_mask": lambda d: None if d.rng.random() < 0.4 else d.tensor(d.shape[:3] + [5], d.rng.choice(["bool", "real"])),
        "enable_gqa": choice(False, True)},
    "conv1d": conv(1), "conv2d": conv(2), "conv3d": conv(3), "pad": {"pad": choice([1, 0], [0, 2], [-1, 1], [1, 1, 0, 2]), "value": choice(None, 0.0, 2.5)},
    "constant_pad_nd": {"pad": choice([1, 0], [0, 2], [-1, 1], [1, 1, 0, 2])},
    **{f"{k}_pool{n}d": pool(n) for k in ("avg", "max", "adaptive_avg") for n in (1, 2, 3)},
    **{f"upsample_nearest{n}d": scaled(n) for n in (1, 2, 3)},
    "softmax": {"kind": "real"}, "log_softmax": {"kind": "real"}, "_softmax": {"kind": "real"},
    "dropout": {"kind": "real", "p": choice(0.0, 0.5, 1.0), "train": choice(False)}, "topk": {"kind": "real", "k": choice(1, 2)},
    "roll": {"shifts": choice([1], [-2], [1, 1]), "dims": choice([0], [-1], [], [0, 1])},
    "view": {"size": size_of_view, "dtype": choice(torch.int32, torch.float32)}, "reshape": {"shape": size_of_view},
    "_unsafe_view": {"size": size_of_view}, "expand": {"size": lambda d: [d.rng.choice([2, 3])] + list(d.shape)},
    "unflatten": {"dim": choice(-1), "sizes": lambda d: [1, d.shape[-1]] if d.rng.random() < 0.5 else [-1, 1]},
    "view_as": {"other": lambda d: d.tensor([math.prod(d.shape)])}, "reshape_as": {"other": lambda d: d.tensor([math.prod(d.shape)])},
    "expand_as": {"other": lambda d: d.tensor([2] + list(d.shape))}, "permute": {"dims": lambda d: d.rng.sample(range(len(d.shape)), len(d.shape))},
    "repeat": {"repeats": lambda d: [d.rng.choice([1, 2, 3]) for _ in range(len(d.shape) + d.rng.choice([0, 0, 1]))]},
    "tile": {"dims": lambda d: [d.rng.choice([1, 2, 3]) for _ in range(d.rng.choice([1, len(d.shape)]))]},
    "split": {"split_size": choice(1, 2, 3)}, "split_with_sizes": {"dim": choice(-1), "split_sizes": lambda d: [1, d.shape[-1] - 1]},
    "slice": {"start": choice(None, 0, 1, -1, -2, -9, 2, 9), "end": choice(None, 1, 2, 9, -1, -9, 4), "step": choice(1, 1, 1, 2, 3)},
    "select": {"index": choice(0, 1, -1)}, "narrow": {"start": choice(0, 1), "length": choice(0, 1, 2)}, "tensor_split": {"indices": choice([1], [1, 2], [2, 1]), "sections": choice(1, 2, 3)},
    "chunk": {"chunks": choice(1, 2, 3, 4)}, "where": {"condition": lambda d: d.tensor(d.shape, "bool")}, "masked_fill": {"mask": lambda d: d.tensor(d.broadcast(), "bool")},
    "clamp": {"min": choice(None, -1, 0.5, 2), "max": choice(None, 1, 0.25, -1.5)}, "linalg_vector_norm": {"kind": "real", "ord": choice(2, 1, 3, 0, math.inf, -math.inf)},
    "var": {"kind": "real", "correction": choice(None, 0, 1, 2, 0.5)}, "std": {"kind": "real", "correction": choice(None, 0, 1, 2)},
    "var_mean": {"kind": "real", "correction": choice(None, 0, 1)}, "std_mean": {"kind": "real", "correction": choice(None, 0, 1)},
    "binary_cross_entropy": {"self": lambda d: d.tensor(d.shape, "unit"), "target": lambda d: d.tensor(d.shape, "unit"), "reduction": choice(0, 1, 2)},
    "binary_cross_entropy_with_logits": {"kind": "real", "target": lambda d: d.tensor(d.shape, "unit"), "reduction": choice(0, 1, 2),
                                         "pos_weight": lambda d: d.tensor(d.shape[-1:], "unit")},
    **{k: {"kind": "real", "reduction": choice(0, 1, 2), "target": lambda d: d.tensor(d.shape)} for k in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "kl_div")},
    "softplus": {"kind": "real", "beta": choice(1, 2, 0.5), "threshold": choice(20, 1, 5, 0)},
    "cosine_similarity": {"x1": lambda d: d.tensor(d.shape), "x2": lambda d: d.tensor(d.shape), "dim": choice(0, -1), "eps": choice(1e-8, 1e-6)},
    "meshgrid": {"tensors": lambda d: [d.tensor([3]), d.tensor([4])]}, "nan_to_num": {"posinf": choice(None, 1.0, -3.0), "neginf": choice(None, -1.0, 2.0), "nan": choice(None, 0.5)},
    "embedding_renorm": {}, "repeat_interleave": {"repeats": choice(2, 3), "output_size": lambda d: None}, "stack": {"tensors": lambda d: [d.tensor(d.shape) for _ in range(d.rng.choice([1, 2, 3]))]},
    "squeeze": {"shape": lambda rng: rng.choice([[1, 3], [2, 1, 3], [3, 2]])}, "glu": {"shape": with_shape(4, 4, 4), "kind": "real"},
    "bitwise_and": {"kind": "bool"}, "bitwise_or": {"kind": "bool"}, "bitwise_xor": {"kind": "bool"}, "bitwise_not": {"kind": "bool"},
    "to": {"dtype": lambda d: d.rng.choice(DTYPES), "device": lambda d: "cpu"}, "_to_copy": {"dtype": lambda d: d.rng.choice(DTYPES)},
}


class OneOp(torch.nn.Module):
    """The op of some operands; parameters p0, p1, ..; a loss where a gradient is possible."""

    def __init__(self, op, args, kwargs, tensors, weights):
        super().__init__()
        self.op, self.args, self.kwargs, self.weights = op, args, kwargs, weights
        self.at = {}  # id of a drawn tensor -> parameter, or number of the input
        n = 0
        for i, (value, param) in enumerate(tensors):
            if param:
                self.register_parameter(f"p{i}", torch.nn.Parameter(value.clone()))
                self.at[id(value)] = f"p{i}"
            else:
                self.at[id(value)] = n
                n += 1
        self.n = n

    def resolve(self, v, inputs):
        if isinstance(v, torch.Tensor):
            at = self.at[id(v)]
            return getattr(self, at) if isinstance(at, str) else inputs[at]
        return [self.resolve(x, inputs) for x in v] if isinstance(v, (list, tuple)) else v

    def forward(self, *inputs):
        y = self.op(*[self.resolve(a, inputs) for a in self.args], **{k: self.resolve(v, inputs) for k, v in self.kwargs.items()})
        ys = list(y) if isinstance(y, (list, tuple)) else [y]
        if not self.weights:
            return tuple(ys)
        loss = 0
        for y, w in zip([y for y in ys if y.is_floating_point()], inputs[self.n:]):
            loss = loss + (y.float() * w).sum()
        return (loss, *ys)


def draw(rng, op):
    """A module, its inputs, and what PyTorch gives for them; None: PyTorch refuses it."""
    d = Draw(rng, op)
    try:
        args, kwargs = d.call()
        params = [v for v, p in d.tensors if p]
        plain = [v for v, p in d.tensors if not p]
        module = OneOp(op, args, kwargs, d.tensors, False)
        with torch.no_grad():
            ys = module(*plain)
        if not all(isinstance(y, torch.Tensor) and y.numel() > 0 for y in ys) or any(y.is_complex() for y in ys):
            return None
        module(*plain)
        reals = [y for y in module(*plain) if y.is_floating_point()]
        weights = [torch.randn(y.shape) for y in reals] if params and any(y.requires_grad for y in reals) else []
        module = OneOp(op, args, kwargs, d.tensors, bool(weights))
        inputs = tuple(plain + weights)
        outs = module(*inputs)
        if weights:
            outs[0].backward()
        return module, inputs, outs, args, kwargs
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError, AssertionError):
        return None


def close(got, want, tolerance):
    """Element by element: an axis of a program may be several dims of a model, and one of size 1 is none."""
    got, want = np.asarray(got, dtype=np.float64).reshape(-1), np.asarray(want, dtype=np.float64).reshape(-1)
    if got.shape != want.shape:
        return f"{got.size} elements, not {want.size}"
    finite = np.isfinite(want)
    top = max(1.0, float(np.abs(want[finite]).max(initial=0)))
    bad = finite & ~(np.abs(np.where(finite, got - want, 0)) <= tolerance * top)
    odd = got[~finite]  # infinities may be the largest numbers
    bad[~finite] = ~(~np.isfinite(odd) | (np.abs(odd) > 3e38))
    return f"{got[bad][:6]}, not {want[bad][:6]}" if bad.any() else None


def numbers(t):
    return (t.to_dense() if t.is_sparse else t).detach().to(torch.float64).numpy()


def run(words):
    p = subprocess.run(words, capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return p.returncode, p.stdout, p.stderr


# PyTorch takes one element for all where they reduce over the dims []: its gradient is not that of its value.
OVER_NOTHING = ("std", "std_mean", "var", "var_mean")


def check(bins, tmp, program, module, inputs, outs, skipped=False):
    """'refused', 'accepted', or what is wrong. skipped: gradients are not compared."""
    path = lambda name: os.path.join(tmp, name)
    torch.export.save(program, path("m.pt2"))
    spec = program.graph_signature
    loss = ["--loss", spec.user_outputs[0]] if module.weights else []
    rc, _, err = run([f"{bins}/dtplan", "import", path("m.pt2"), "-o", path("m.json"), "--weights", path("w.safetensors"), *loss])
    if rc == 2 and len(err.splitlines()) >= 1 and "m.pt2" in err:
        return "refused", err.strip().splitlines()[-1].split("m.pt2: ")[-1]
    if rc != 0:
        return "wrong", f"import: exit {rc}: {err}"
    with open(path("m.json"), encoding="utf-8") as file:
        model = json.load(file)
    outputs = ([model["train"]["loss"]] if "train" in model else []) + model["outputs"]
    depends = any(p.grad is not None and bool(p.grad.any()) for p in module.parameters())
    if module.weights and depends and "train" not in model:
        return "wrong", "no loss"
    trains = bool(module.weights) and "train" in model
    if len(outputs) != len(outs):
        return "wrong", f"{len(outputs)} outputs, not {len(outs)}"
    half = any(t.dtype in (torch.bfloat16, torch.float16) for t in (*inputs, *outs))
    tolerance = 2e-2 if half else 2e-4
    words = []
    for name, value in zip(spec.user_inputs, inputs):
        if name in model["inputs"]:
            v = value.float() if value.dtype == torch.bfloat16 else value
            np.save(path(f"in.{name}.npy"), v.squeeze().numpy().reshape(v.squeeze().shape))
            words += ["--feed", f"{name}={path(f'in.{name}.npy')}"]
    for i, o in enumerate(outputs):
        words += ["--fetch", f"{o}={path(f'{i}.npy')}"]
    params = [n for n, _ in module.named_parameters() if n in model["params"]] if trains else []
    for n in params:
        words += ["--fetch", f"adamw.m.{n}={path(f'm.{n}.npy')}"]
    forward = [] if trains else ["--forward"]
    load = ["--load", path("w.safetensors")] if model["params"] else []
    words = [f"{bins}/dtrun", "run", path("m.json"), *forward, *load, *words, "--comm", "self", "--threads", "1", "--allow-nan"]
    rc, _, err = run(words)
    if rc == 2 and "has dtype f64, its kernels take" in err:
        rc, _, err = run([*words, "--backend", "ref"])
    if rc != 0:
        return "wrong", f"run: exit {rc}: {err}"
    for i, want in enumerate(outs):
        why = close(np.load(path(f"{i}.npy")), numbers(want), tolerance)
        if why:
            return "wrong", f"output {i}: {why}"
    for n, p in module.named_parameters():
        want = np.zeros(tuple(p.shape)) if p.grad is None else numbers(p.grad)
        if not trains or skipped or (n not in model["params"] and not want.any()):
            continue
        if n not in model["params"]:
            return "wrong", f"parameter {n} is gone"
        got = np.load(path(f"m.{n}.npy")) / 0.1
        defined = np.isfinite(want).all() and all(bool(torch.isfinite(y).all()) for y in outs)
        why = close(got, want, tolerance) if defined else None
        if why:
            return "wrong", f"gradient of {n}: {why}"
    return "accepted", ""


def shown(args, kwargs):
    text = lambda v: f"{str(v.dtype)[6:]}{list(v.shape)}" if isinstance(v, torch.Tensor) else "[" + ", ".join(map(text, v)) + "]" \
        if isinstance(v, list) else repr(v)
    return ", ".join([text(a) for a in args] + [f"{k}={text(v)}" for k, v in kwargs.items()])


def main(bins, count=2000, seed=1, only=None):
    rng = random.Random(seed)
    names = [only] if only else ops()
    counts, wrong, by_op = collections.Counter(), [], collections.defaultdict(collections.Counter)
    os.makedirs(HERE, exist_ok=True)
    reasons = collections.Counter()
    with tempfile.TemporaryDirectory() as tmp:
        for i in range(count):
            for _ in range(60):
                torch.manual_seed(rng.randrange(2**31))
                name = names[i % len(names)]
                op = rng.choice(list(overloads(name)))
                one = draw(rng, op)
                if one is not None:
                    break
            if one is None:
                counts["not drawn"] += 1
                by_op[name]["not drawn"] += 1
                continue
            module, inputs, outs, args, kwargs = one
            try:
                program = torch.export.export(module, inputs, strict=False)
            except Exception:  # pylint: disable=broad-except
                counts["not exported"] += 1
                continue
            result, why = check(bins, tmp, program, module, inputs, outs, name in OVER_NOTHING and [] in args)
            counts[result] += 1
            by_op[name][result] += 1
            if result == "refused":
                reasons[f"{name}: {why[:150]}"] += 1
            if result == "wrong":
                wrong.append(name)
                os.replace(os.path.join(tmp, "m.pt2"), f"{HERE}/{name}_{i}.pt2")
                print(f"WRONG {i} {op}({shown(args, kwargs)}): {why}", flush=True)
    with open(f"{HERE}/refused.txt", "w", encoding="utf-8") as file:
        file.writelines(f"{n} {why}\n" for why, n in sorted(reasons.items()))
    never = sorted(n for n, c in by_op.items() if not c["accepted"])
    print(f"{count} modules of {len(names)} ops: {dict(counts)}; never accepted: {' '.join(never)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    rest = sys.argv[2:]
    sys.exit(main(sys.argv[1], *map(int, rest[:2]), *rest[2:]))
