#!/usr/bin/env python3
"""Norms and statistics of rows whose mean is up to 1e5 times their deviation: values and gradients on one device and over split
dims, against f64.

norm_offsets.py DTRUN BACKEND [--seed S] [--cases N]

layer_norm, rms_norm, var, std, norm and logsumexp over one dim and over two, of f32, bf16 and f16, on 1, 2, 4 and 2 x 2 ranks. The
bound of a row's error is that of the element type, and, where the mean of the row or its logsumexp is a tensor of f32 on the way,
eight times the rounding of that tensor: in units of the deviation, and as it is. The backend ref has f64 for f32.
"""
import argparse
import ast
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0")
MESHES = (("x:1", "b:x"), ("x:2", "d:x"), ("x:4", "d:x"), ("x:2;y:2", "b:x;d:y"), ("x:2;y:2", "c:x;d:y"))
ROUNDING = {"f64": 1e-12, "f32": 2e-5, "bf16": 2.0**-5, "f16": 2.0**-8}  # results, their gradients and what is between are rounded a few times
EPS = {"layer_norm": 1e-5, "rms_norm": 1e-6}


def rounded(value, dtype):
    if dtype == "f16":
        return struct.unpack("<e", struct.pack("<e", value))[0]
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if dtype == "bf16":
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def next_above(value, dtype):
    """The next number of the type away from 0."""
    by = {"f32": 2.0**-23, "bf16": 2.0**-7, "f16": 2.0**-10}[dtype]
    return rounded(value + math.copysign(by * 2.0**math.floor(math.log2(abs(value))), value), dtype)


# ---- files --------------------------------------------------------------------------------------------------------------------

def write_npy(path, dims, values):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }" % ", ".join(str(d) for d in dims)
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack("<%df" % len(values), *values))


def read_npy(path):
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack_from("<H", data, 8)
    head = ast.literal_eval(data[10:10 + n].decode())
    letter = {"<f4": "f", "<f8": "d"}[head["descr"]]
    return struct.unpack("<%d%s" % (math.prod(head["shape"]), letter), data[10 + n:])


def write_safetensors(path, tensors):
    header, blob = {}, b""
    for name, (dims, values) in tensors.items():
        data = struct.pack("<%df" % len(values), *values)
        header[name] = {"dtype": "F32", "shape": dims, "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + blob)


# ---- f64 ----------------------------------------------------------------------------------------------------------------------

def row_of(op, x, t, gamma, beta):
    """Of one row: the result, its gradient, and what the row adds to the gradients of gamma and beta. t: the gradient of the
    result, per element or for the row."""
    n = len(x)
    mean = math.fsum(x) / n
    if op == "norm":
        size = math.sqrt(math.fsum(v * v for v in x))
        return [size], [v / size * t[0] for v in x], None, None
    if op == "logsumexp":
        most = max(x)
        e = [math.exp(v - most) for v in x]
        return [most + math.log(math.fsum(e))], [v / math.fsum(e) * t[0] for v in e], None, None
    if op in ("var", "std"):
        var = math.fsum((v - mean)**2 for v in x) / (n - 1)
        slope = 2.0 if op == "var" else 1.0 / math.sqrt(var)
        return [var if op == "var" else math.sqrt(var)], [slope * t[0] * (v - mean) / (n - 1) for v in x], None, None
    mean = mean if op == "layer_norm" else 0.0
    rstd = 1.0 / math.sqrt(math.fsum((v - mean)**2 for v in x) / n + EPS[op])
    xhat = [(v - mean) * rstd for v in x]
    g = [a * b for a, b in zip(t, gamma)]
    s0 = math.fsum(g) / n if op == "layer_norm" else 0.0
    s1 = math.fsum(a * b for a, b in zip(g, xhat)) / n
    y = [a * b + c for a, b, c in zip(xhat, gamma, beta)]
    return y, [rstd * (a - s0 - b * s1) for a, b in zip(g, xhat)], [a * b for a, b in zip(t, xhat)], t


def deviations(x):
    """How many deviations the mean of a row lies from 0."""
    mean = math.fsum(x) / len(x)
    return abs(mean) / math.sqrt(math.fsum((v - mean)**2 for v in x) / len(x))


# ---- cases --------------------------------------------------------------------------------------------------------------------

def random_row(rng, n, dtype):
    """A row whose mean is 1 to 1e5 deviations, as far as the type has numbers between."""
    mean = rng.choice((-1.0, 1.0)) * 10.0**rng.uniform(-1.0, 2.9 if dtype == "f16" else 4.0)
    deviation = abs(mean) * 10.0**-rng.uniform(0.0, 5.0)
    x = [rounded(rng.gauss(mean, deviation), dtype) for _ in range(n)]
    i = rng.randrange(n)
    if min(x) == max(x):
        x[i] = next_above(x[i], dtype)  # rows of one value have no gradient of std
    return x


class Case:
    """The model of an op over dims of w[b, c, d], and what is to come out."""

    def __init__(self, rng, op, over, sizes, dtype):
        self.op, self.dtype, self.sizes = op, dtype, sizes
        self.name = op + " over " + ",".join(over)
        self.least = 2.0**-24 if dtype == "f16" else 0.0  # between its smallest numbers
        b, c, d = (sizes[k] for k in "bcd")
        rows, n = (b, c * d) if over == "cd" else (b * c, d)
        self.is_norm = op in EPS
        random_number = lambda: rounded(rng.gauss(0.0, 1.0), dtype)
        self.x = [random_row(rng, n, dtype) for _ in range(rows)]
        self.t = [[random_number() for _ in range(n if self.is_norm else 1)] for _ in range(rows)]
        self.gamma = [rounded(rng.uniform(0.5, 2.0), dtype) for _ in range(n)]
        self.beta = [random_number() if op == "layer_norm" else 0.0 for _ in range(n)]
        of = [row_of(op, x, t, self.gamma, self.beta) for x, t in zip(self.x, self.t)]
        self.want = {"y": [r[0] for r in of], "grad.w": [r[1] for r in of]}
        self.far = [deviations(x) for x in self.x]
        if self.is_norm:
            self.want["grad.gamma"] = [[math.fsum(v) for v in zip(*(r[2] for r in of))]]
        if op == "layer_norm":
            self.want["grad.beta"] = [[math.fsum(v) for v in zip(*(r[3] for r in of))]]
        self.over = list(over)
        self.outside = [k for k in "bcd" if k not in over]

    def write(self, place):
        of_y = list("bcd") if self.is_norm else self.outside
        affine = ["gamma", "beta"][:1 + (self.op == "layer_norm")] if self.is_norm else []
        params = {"w": {"dims": list("bcd"), "init": "ones"}}
        params.update((k, {"dims": self.over, "init": "ones"}) for k in affine)
        nodes, names = [], ["w"] + affine
        if self.dtype != "f32":
            nodes = [{"id": k + "_16", "op": "cast", "in": [k], "dtype": self.dtype} for k in names]
            names = [k + "_16" for k in names]
        nodes.append({"id": "y_16" if self.dtype != "f32" else "y", "op": self.op, "in": names, "over": self.over})
        if self.dtype != "f32":
            nodes.append({"id": "y", "op": "cast", "in": ["y_16"], "dtype": "f32"})
        nodes.append({"id": "loss", "op": "einsum", "in": ["y", "t"], "out": []})
        with open(os.path.join(place, "model.json"), "w") as f:
            json.dump({"format": "dtp.model/1", "name": "rows", "dims": self.sizes, "inputs": {"t": {"dims": of_y}},
                       "params": params, "nodes": nodes, "train": {"loss": "loss", "optimizer": {"sgd": {"lr": 0.1}}}}, f)
        flat = lambda rows: [v for row in rows for v in row]
        write_npy(os.path.join(place, "t.npy"), [self.sizes[k] for k in of_y], flat(self.t))
        tensors = {"w": ([self.sizes[k] for k in "bcd"], flat(self.x))}
        tensors.update((k, ([self.sizes[d] for d in self.over], getattr(self, k))) for k in affine)
        write_safetensors(os.path.join(place, "init.safetensors"), tensors)

    def bound(self, what, row, wide):
        """Relative to the largest magnitude of the row."""
        coarse = 0.0
        if self.op == "logsumexp":
            coarse = abs(self.want["y"][row][0]) if what == "grad.w" and self.dtype == "f32" else 0.0
        elif self.op == "layer_norm" or what == "grad.w":
            coarse = max(self.far) if what == "grad.gamma" else self.far[row]
        return ROUNDING["f64" if wide and self.dtype == "f32" else self.dtype] + 8.0 * (2.0**-53 if wide else 2.0**-24) * coarse

    def worst(self, what, got, wide):
        """The largest error of a row, as a share of its bound."""
        worst, at = 0.0, 0
        for i, want in enumerate(self.want[what]):
            row, at = got[at:at + len(want)], at + len(want)
            error = max(abs(a - b) for a, b in zip(row, want))
            share = error / (self.bound(what, i, wide) * max(map(abs, want)) + self.least)
            worst = share if not share <= worst else worst  # a NaN stays
        return worst


def check(args, case, place):
    """Lines about what is off."""
    case.write(place)
    found = []
    for mesh, rules in MESHES:
        out = {what: os.path.join(place, what + ".npy") for what in case.want}
        words = [args.dtrun, "run", os.path.join(place, "model.json"), "--backend", args.backend, "--comm", "sim", "--mesh", mesh,
                 "--rules", rules, "--uneven", "--quiet", "--load", os.path.join(place, "init.safetensors"),
                 "--feed", "t=" + os.path.join(place, "t.npy")]
        words += [word for what, path in out.items() for word in ("--fetch", what + "=" + path)]
        done = subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT)
        where = "%s of %s, %s, %s" % (case.name, case.dtype, mesh, rules)
        if done.returncode != 0:
            found.append("%s: %s" % (where, done.stderr.strip()))
            continue
        for what, path in out.items():
            share = case.worst(what, read_npy(path), args.backend == "ref")
            if not share <= 1.0:
                found.append("%s: %s is off by %.3g times the bound" % (where, what, share))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dtrun")
    parser.add_argument("backend")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=1, help="of each op, dims and element type")
    args = parser.parse_args()
    print("seed", args.seed)
    rng, found, n = random.Random(args.seed), [], 0
    ops = [("layer_norm", "d"), ("layer_norm", "cd"), ("rms_norm", "cd"), ("var", "cd"), ("std", "d"), ("norm", "cd"),
           ("logsumexp", "d")]
    with tempfile.TemporaryDirectory() as place:
        for _ in range(args.cases):
            for op, over in ops:
                for dtype in ("f32", "bf16", "f16"):
                    sizes = {"b": rng.randint(2, 5), "c": rng.randint(2, 5), "d": rng.choice((8, 13, 32, 300))}
                    found += check(args, Case(rng, op, over, sizes, dtype), place)
                    n += 1
    print("\n".join(found + ["%d cases, %d results are off" % (n, len(found))]))
    return 1 if found or n == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
