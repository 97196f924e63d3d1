"""What a plan does, from its strategies and layouts: split matrices, split norms, split parameters, ...

Names and ops of nodes are those of the model file; what a plan does not list is whole on every rank.
"""
import json
import re
from collections import Counter

import dtplan as tool

NORMS = ("layer_norm", "rms_norm")


class Layouts:
    """The forward pass of a plan beside its model."""

    def __init__(self, model, p):
        with open(tool.model_file(model), encoding="utf-8") as f:
            self.model = json.load(f)
        self.p = p
        self.axes = [name for name, size in p["mesh"] if size > 1]
        self.ops, self.weights = {}, {}
        self._collect("", self.model)

    def _collect(self, prefix, part):
        for node in part["nodes"]:
            if "repeat" in node:
                self._collect(prefix + node.get("as", node["repeat"]) + ".0.", self.model["blocks"][node["repeat"]])
            else:
                self.ops[prefix + node["id"]] = node
        for name, param in part.get("params", {}).items():
            self.weights[prefix + name] = param["dims"]

    def split(self, node, axis):
        """The dim by which a node is split over an axis, or None."""
        return self.p["strategies"].get(node, {}).get(axis)

    def nodes(self, *ops):
        return [name for name, node in self.ops.items() if node["op"] in ops]

    def products(self):
        """Einsums with a parameter: (node, dims of the parameter)."""
        found = []
        for name, node in self.ops.items():
            prefix = name[:len(name) - len(node["id"])]
            used = [prefix + i for i in node.get("in", []) if prefix + i in self.weights]
            if node["op"] == "einsum" and used:
                found.append((name, self.weights[used[0]], node.get("out", [])))
        return found

    def column_row(self, axis):
        """Dims made by columns of one matrix and contracted by rows of another, split over the axis in both."""
        made, used = set(), set()
        for name, dims, out in self.products():
            by = self.split(name, axis)
            if by in dims:
                (made if by in out else used).add(by)
        return made & used

    def norm_dims(self, axis):
        return Counter(self.split(n, axis) for n in self.nodes(*NORMS))

    def kept_split(self, axis):
        """The part of the matrices that is kept split over the axis."""
        matrices = [n for n, dims in self.weights.items() if len(dims) > 1]
        return sum(("@" + axis) in self.p["tensors"].get(n, "").replace("+", "@") for n in matrices) / len(matrices)

    def vocabulary(self, axis):
        """Of the last product, the loss and the embedding those that are split by the vocabulary."""
        return [n for n in list(self.ops) if self.split(n, axis) in ("vocab", "classes") and
                self.ops[n]["op"] in ("einsum", "cross_entropy", "embedding")]

    def style(self, axis):
        """What people call it, by its largest part."""
        by = Counter(self.split(name, axis) for name, _, _ in self.products())
        experts = any(self.split(name, axis) == "experts" for name, dims, _ in self.products() if len(dims) > 2)
        names = []
        if set(by) == {None} and not self.norm_dims(axis).keys() - {None}:
            return "replicated" if self.kept_split(axis) == 0 else "replicated compute, split parameters"
        if self.column_row(axis):
            names.append("Megatron on " + " and ".join(sorted(self.column_row(axis))))
        if experts:
            names.append("expert parallel")
        if by["batch"] > sum(by.values()) / 2 or (by["batch"] and not names):
            kept = self.kept_split(axis)
            names.append("data parallel" if kept < 0.05 else "FSDP" if kept > 0.8 else "data parallel with some ZeRO-3")
        if by["length"]:
            names.append("sequence-split matrices")
        if self.norm_dims(axis)["length"]:
            names.append("sequence-parallel norms")
        if self.vocabulary(axis):
            names.append("vocabulary-parallel " + ", ".join(sorted({self.ops[n]["op"].replace("einsum", "logits")
                                                                    for n in self.vocabulary(axis)})))
        return ", ".join(names) or "mixed"

    def words(self):
        """One short text for a table."""
        return "; ".join(self._axis_words(axis) for axis in self.axes)

    def _axis_words(self, axis):
        dims = Counter(self.split(name, axis) or "none" for name, _, _ in self.products())
        return "%s: %s (matrices by %s; %.0f %% of parameters kept split)" % (
            axis, self.style(axis), ", ".join(d for d, _ in dims.most_common()), 100 * self.kept_split(axis))
