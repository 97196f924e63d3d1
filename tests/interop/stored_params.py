"""Parameters of a checkpoint of dtrun under the names of a framework, for the runners of PyTorch and JAX."""
import glob
import json
import math
import os
import re

from safetensors.numpy import load_file


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def entry_of(entries, name):
    """The entry for a parameter or pattern in a table with '*' for numbers, and the numbers."""
    for pattern, entry in entries.items():
        found = re.fullmatch(re.escape(pattern).replace(r"\*", r"(\d+)"), name)
        if found:
            return entry, found.groups()
    return None, ()


def read_params(model_file, directory):
    """The model, its parameters as arrays of their own, and the sizes of the model's dims in them."""
    model, names = read_json(model_file), read_json(model_file.replace(".json", ".names.json"))["params"]
    dims = {name: p["dims"] for name, p in model["params"].items()}
    for node in model["nodes"]:
        if "repeat" in node:
            dims.update({f"{node['as']}.*.{name}": p["dims"]
                         for name, p in model["blocks"][node["repeat"]]["params"].items()})
    stored = load_file(*glob.glob(os.path.join(directory, "*.safetensors")))
    params, sizes = {}, {"layers": 0}
    for ours, value in stored.items():
        own, numbers = entry_of(dims, ours)
        if own is None:
            continue  # a state of an optimizer
        entry, numbers = entry_of(names, ours)
        sizes.update(zip(own, value.shape))
        sizes["layers"] = max([sizes["layers"]] + [int(n) + 1 for n in numbers])
        axes = [axis.split("*") for axis in entry["axes"]]
        value = value.transpose([own.index(d) for axis in axes for d in axis])
        theirs = re.sub(r"\*", lambda _, n=iter(numbers): next(n), entry["name"])
        params[theirs] = value.reshape([math.prod(sizes[d] for d in axis) for axis in axes]).copy()
    return model, params, sizes
