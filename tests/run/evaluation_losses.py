#!/usr/bin/env python3
"""dtrun eval of losses and metrics of every form: the value over all rows, whatever the batches and layouts are, or a refusal that
names the node. Values are computed here in Python, over all rows at once.

evaluation_losses.py BIN SOURCE
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

from evaluation import ENVIRONMENT, write_npy

ROWS, CLASSES, LENGTH, W = 10, 3, 2, 1.25
X = [[0.5, 0.25], [1.5, -1.0], [-2.0, 0.0], [3.0, 1.0], [0.25, 0.75], [1.0, 0.5], [-1.0, 2.0], [2.0, -0.5], [4.0, 1.25], [0.0, -2.0]]
LABELS = [0, 2, -100, 1, -100, -100, 2, 0, -100, 1]
MASK = [1, 0, 0, 1, 1, 0, 0, 0, 1, 1]
V = [0.5, -1.0, 0.25]

Y = [[W * x for x in row] for row in X]  # the node y
R = [row[0] + row[1] for row in Y]  # the node r: one number for each row
N = ROWS * LENGTH
FLAT = [y for row in Y for y in row]


def mean(values):
    return sum(values) / len(values)


def entropy(row, label):
    z = [R[row] * v for v in V]
    return math.log(sum(map(math.exp, z))) - z[label]


def entropies(rows):
    return [entropy(i, LABELS[i]) for i in rows if LABELS[i] >= 0]


CE = mean(entropies(range(ROWS)))
CE_ALL = mean([entropy(i, max(LABELS[i], 0)) for i in range(ROWS)])
REG = W * W + sum(v * v for v in V)


def node(name, op, *operands, **attributes):
    return dict({"id": name, "op": op, "in": list(operands)}, **attributes)


def total(name, of, kind, over=("b",)):
    return node(name, "reduce", of, kind=kind, over=list(over))


# nodes before the last one, the last one, its value over all rows or None: refused in more than one batch, naming a node
MEAN_SQUARE = [node("q", "square", "r"), total("m", "q", "mean")]
LOSSES = {
    "sum": ([], total("loss", "r", "sum"), sum(R)),
    "mean": ([], total("loss", "r", "mean"), mean(R)),
    "mean of two dims": ([], total("loss", "y", "mean", ("b", "l")), mean(FLAT)),
    "sum over l of the mean": ([total("m", "y", "mean")], total("loss", "m", "sum", ("l",)), sum(R) / ROWS),
    "mean over l of the sum": ([total("m", "y", "sum")], total("loss", "m", "mean", ("l",)), sum(R) / LENGTH),
    "max": ([], total("loss", "r", "max"), max(R)),
    "min": ([], total("loss", "r", "min"), min(R)),
    "twice the max": ([total("m", "r", "max")], node("loss", "scale", "m", factor=2.0), 2 * max(R)),
    "scaled sum": ([total("s", "r", "sum")], node("loss", "scale", "s", factor=0.125), sum(R) / 8),
    "root of the mean square": (MEAN_SQUARE, node("loss", "sqrt", "m"), math.sqrt(mean([r * r for r in R]))),
    "variance by two means": (MEAN_SQUARE + [total("a", "r", "mean"), node("a2", "square", "a")], node("loss", "sub", "m", "a2"),
                              mean([r * r for r in R]) - mean(R) ** 2),
    "product of means": (MEAN_SQUARE + [total("a", "r", "mean")], node("loss", "mul", "m", "a"), mean([r * r for r in R]) * mean(R)),
    "mean and sum": ([total("s", "r", "sum"), total("a", "r", "mean")], node("loss", "add", "a", "s"), sum(R) + mean(R)),
    "exponential of the mean": ([total("a", "r", "mean")], node("loss", "exp", "a"), math.exp(mean(R))),
    "mean and regulariser": (MEAN_SQUARE, node("loss", "add", "m", "reg"), mean([r * r for r in R]) + REG),
    "sum and regulariser": ([total("s", "r", "sum")], node("loss", "add", "s", "reg"), sum(R) + REG),
    "mean times regulariser": (MEAN_SQUARE, node("loss", "mul", "m", "reg"), mean([r * r for r in R]) * REG),
    "regulariser alone": ([], node("loss", "scale", "reg", factor=1.0), REG),
    "masked mean": ([node("p", "mul", "r", "k"), total("s", "p", "sum"), total("c", "k", "sum")], node("loss", "div", "s", "c"),
                    sum(r for r, k in zip(R, MASK) if k) / sum(MASK)),
    "mean over mean of the mask": ([node("p", "mul", "r", "k"), total("s", "p", "mean"), total("c", "k", "mean")],
                                   node("loss", "div", "s", "c"), sum(r for r, k in zip(R, MASK) if k) / sum(MASK)),
    "sum over rows counted": ([{"id": "ones", "op": "constant", "value": 1, "out": ["b"]}, total("c", "ones", "sum"), total("s", "r", "sum")],
                              node("loss", "div", "s", "c"), mean(R)),
    "sum over a constant": ([{"id": "ones", "op": "constant", "value": 1, "out": ["l"]}, total("c", "ones", "sum", ("l",)),
                             total("s", "r", "sum")], node("loss", "div", "s", "c"), sum(R) / LENGTH),
    "entropy": ([], node("loss", "cross_entropy", "z", "known", over="c"), CE_ALL),
    "entropy summed": ([], node("loss", "cross_entropy", "z", "labels", over="c", ignore=-100, reduce="sum"), sum(entropies(range(ROWS)))),
    "entropy of labels": ([], node("loss", "cross_entropy", "z", "labels", over="c", ignore=-100), CE),
    "entropy of labels and a mean": ([node("e", "cross_entropy", "z", "labels", over="c", ignore=-100), total("a", "r", "mean")],
                                     node("loss", "add", "e", "a"), CE + mean(R)),
    "entropy of labels and regulariser": ([node("e", "cross_entropy", "z", "labels", over="c", ignore=-100)],
                                          node("loss", "add", "e", "reg"), CE + REG),
    "two entropies": ([node("e", "cross_entropy", "z", "labels", over="c", ignore=-100),
                       node("f", "cross_entropy", "z", "labels", over="c", ignore=-100, reduce="sum")],
                      node("loss", "add", "e", "f"), CE + sum(entropies(range(ROWS)))),
    "rows under another name": ([node("t", "relabel", "y", out=["tokens=b*l"])], total("loss", "t", "mean", ("tokens",)), mean(FLAT)),
    "squares under another name": ([node("t", "relabel", "y", out=["tokens=b*l"]), node("q", "square", "t"),
                                    total("m", "q", "sum", ("tokens",))], node("loss", "sqrt", "m"),
                                   math.sqrt(sum(y * y for y in FLAT))),
    "number of the batch": ([total("s", "r", "sum")], node("loss", "scale", "s", factor="1/b"), None),
    "size of the batch": ([{"id": "ones", "op": "constant", "value": 1, "out": ["n=b"]}, total("c", "ones", "sum", ("n",)),
                           total("s", "r", "sum")], node("loss", "div", "s", "c"), None),
    "number of another dim": ([total("s", "r", "sum")], node("loss", "scale", "s", factor="1/l"), sum(R) / LENGTH),
    "logsumexp": ([], node("loss", "logsumexp", "r", over="b"), None),
    "product": ([], total("loss", "r", "prod"), None),
    "softmax over rows": ([node("p", "softmax", "r", over="b"), node("q", "mul", "p", "r")], total("loss", "q", "sum"), None),
    "running sum": ([node("p", "cumsum", "r", dim="b")], total("loss", "p", "mean"), None),
    "centred rows": ([total("a", "r", "mean"), node("d", "sub", "r", "a"), node("q", "square", "d")], total("loss", "q", "mean"), None),
    "variance": ([], node("loss", "var", "r", over="b"), None),
    "weighed by place": ([{"id": "i", "op": "iota", "dim": "b", "out": ["b"]}, node("j", "cast", "i", dtype="f32"),
                          node("p", "mul", "r", "j")], total("loss", "p", "mean"), None),
}


INPUTS = {"x": {"dims": ["b", "l"]}, "labels": {"dims": ["b"], "dtype": "i32", "below": "c"},
          "known": {"dims": ["b"], "dtype": "i32", "below": "c"}, "mask": {"dims": ["b"], "dtype": "bool"}}


def write_model(path, nodes):
    common = [node("y", "einsum", "x", "w", out=["b", "l"]), total("r", "y", "sum", ("l",)),
              node("z", "einsum", "r", "v", out=["b", "c"]), node("k", "cast", "mask", dtype="f32"),
              node("w2", "einsum", "w", "w", out=[]), node("v2", "einsum", "v", "v", out=[]), node("reg", "add", "w2", "v2")]
    with open(path, "w") as f:
        json.dump({"format": "dtp.model/1", "name": "losses", "dims": {"b": 4, "l": LENGTH, "c": CLASSES, "one": 1},
                   "inputs": {k: v for k, v in INPUTS.items() if k in ("x", "mask") or any(k in n.get("in", []) for n in nodes)},
                   "params": {"w": {"dims": ["one"], "init": "ones"}, "v": {"dims": ["c"], "init": "ones"}},
                   "nodes": common + nodes, "train": {"loss": "loss", "optimizer": {"sgd": {"lr": 0.1}}},
                   "outputs": [n["id"] for n in nodes if n["id"] in ("m", "s", "e", "c")]}, f)


def write_weights(path):
    head = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                       "v": {"dtype": "F32", "shape": [CLASSES], "data_offsets": [4, 16]}}).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + struct.pack("<4f", W, *V))


def near(a, b):
    return a is not None and abs(a - b) <= 2e-6 * max(1.0, abs(b))


class Losses:
    def __init__(self, bin_dir, source, here):
        self.dtrun, self.dtplan, self.source, self.here = bin_dir + "/dtrun", bin_dir + "/dtplan", source, here
        self.model, self.weights = os.path.join(here, "m.json"), os.path.join(here, "w.safetensors")
        self.failed = 0
        write_weights(self.weights)
        self.files = {}
        for name, descr, dims, data in (("x", "<f4", [ROWS, LENGTH], struct.pack("<%df" % N, *(x for row in X for x in row))),
                                        ("labels", "<i4", [ROWS], struct.pack("<%di" % ROWS, *LABELS)),
                                        ("known", "<i4", [ROWS], struct.pack("<%di" % ROWS, *(max(k, 0) for k in LABELS))),
                                        ("mask", "|b1", [ROWS], bytes(MASK))):
            path = os.path.join(here, name + ".npy")
            write_npy(path, descr, dims, data)
            self.files[name] = path

    def evaluate(self, *words):
        with open(self.model) as f:
            feeds = [word for name in json.load(f)["inputs"] for word in ("--feed", name + "=" + self.files[name])]
        done = subprocess.run([self.dtrun, "eval", self.model, "--load", self.weights, *feeds, "--json", *words],
                              capture_output=True, text=True, env=ENVIRONMENT)
        return done.returncode, json.loads(done.stdout) if done.returncode == 0 else None, done.stderr

    def bad(self, *what):
        print("FAIL:", *what)
        self.failed += 1

    def plan(self, microbatches):
        path = os.path.join(self.here, "p.plan")
        done = subprocess.run([self.dtplan, "plan", self.model, "--mesh", "x:2", "--machine",
                               os.path.join(self.source, "models/machines/cpu_2.json"), "--microbatches", str(microbatches),
                               "--precision", "f32", "-o", path], capture_output=True, text=True, env=ENVIRONMENT)
        return path if done.returncode == 0 else None

    def layouts(self):
        """Command lines, and batches of what size."""
        yield from ((["--dim", "b=%d" % b], b) for b in (1, 3, 4, 10))
        yield ["--mesh", "x:2", "--rules", "b:x", "--comm", "sim", "--uneven"], 4
        plan = self.plan(2)  # where the loss can be trained in microbatches
        if plan is not None:
            yield ["--plan", plan, "--comm", "sim"], 2

    def check(self, name, before, last, want):
        nodes = before + [last]
        write_model(self.model, nodes)
        _, one, error = self.evaluate("--dim", "b=%d" % ROWS)
        if one is None or (want is not None and not near(one["loss"], want)):
            return self.bad(name, "in one batch:", error or one["loss"], "want", want)
        for words, size in self.layouts():
            code, got, error = self.evaluate(*words)
            what = "%s, %s:" % (name, " ".join(words))
            if size < ROWS and want is None:
                named = "--rules" in words or any("node '%s'" % n["id"] in error for n in nodes)
                if code != 2 or not named or error.count("dtrun: ") != 1:
                    self.bad(what, "not refused by a node:", code, error)
            elif got is None or not near(got["loss"], one["loss"]):
                self.bad(what, error or got["loss"], "want", one["loss"])
            elif got["rows"] != ROWS or got["metrics"].keys() != one["metrics"].keys():
                self.bad(what, got, "want", one)
            elif not all(near(a, b) for m in one["metrics"] for a, b in zip(got["metrics"][m], one["metrics"][m])):
                self.bad(what, "metrics", got["metrics"], "want", one["metrics"])
        return None


def main():
    with tempfile.TemporaryDirectory() as here:
        losses = Losses(sys.argv[1], sys.argv[2], here)
        for name, (before, last, want) in LOSSES.items():
            losses.check(name, before, last, want)
    return 1 if losses.failed else 0


if __name__ == "__main__":
    sys.exit(main())
