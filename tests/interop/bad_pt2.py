#!/usr/bin/env python3
"""300 broken .pt2 files and more: each is imported, or refused in one line that names the file, with exit code 2 and
nothing written.

usage: bad_pt2.py DTPLAN FOLDER"""
import json
import os
import random
import subprocess
import sys
import tempfile
import zipfile

WRONG = [None, -1, 0, 1, 2**40, 1e300, "x", "", [], {}, True, [1, 2], {"as_int": -1}, {"name": "ids"}, 13, 28]
OPS = ("add cat view permute sum embedding slice softmax split select where nosuch einsum matmul baddbmm topk gather index "
       "one_hot repeat constant_pad_nd group_norm avg_pool2d glu clamp unbind max mse_loss lerp cumsum add_ fill_").split()
SOURCES = ("gpt llama_loss bert vit t5 dlrm nano grouped stem experts encoding tables writes losses pairs indices hidden sizes "
           "bounds routed rows").split()
EQUATIONS = ["", "->", "bld", "bld,dkgh->blkgz", "bbd,dkgh->bdkgh", "bld,dkgh->blkghblkgh", "bld,dkgh,->blkgh", "bld;dkgh->blkgh",
             "bld,dkgh->", "bld,dkgh-blkgh", "bl...d...,dkgh->blkgh", "...d,dkgh->kgh", "bld,dkgh->blkgh->", "abcdefghij,k->a"]


def all_paths(v, path=()):
    yield path
    for k in v if isinstance(v, dict) else range(len(v)) if isinstance(v, list) else ():
        yield from all_paths(v[k], path + (k,))


def break_bytes(data, rng):
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):  # anywhere, or in the directory at the end
        data[rng.choice([rng.randrange(len(data)), len(data) - 1 - rng.randrange(3000)])] = rng.randrange(256)
    return data[: rng.randrange(len(data))] if rng.random() < 0.3 else data


def break_place(graph, paths, rng):
    path, v = rng.choice(paths), graph["graph_module"]
    for k in path[:-1]:
        v = v[k]
    if rng.random() < 0.3:
        del v[path[-1]]
    elif isinstance(v[path[-1]], int) and rng.random() < 0.5:
        v[path[-1]] += rng.choice([-2, -1, 1, 2])
    else:
        v[path[-1]] = rng.choice(WRONG)


def break_node(graph, rng):
    inner = graph["graph_module"]["graph"]
    node, values = rng.choice(inner["nodes"]), list(inner["tensor_values"])
    arg = rng.choice(node["inputs"])
    how = rng.randrange(5)
    if how == 0:
        node["target"] = f"torch.ops.aten.{rng.choice(OPS)}.default"
    elif how == 1:
        node["inputs"].remove(arg)
    elif how == 2:
        arg["arg"] = rng.choice([{"as_int": 2**50}, {"as_float": 0.5}, {"as_ints": [-1, 0]}, {"as_tensors": []}])
    elif how == 3:
        arg["arg"] = {"as_tensor": {"name": rng.choice(values)}}
    else:
        sizes = inner["tensor_values"][rng.choice(values)]["sizes"]
        rng.choice([lambda: sizes.append({"as_int": 2}), sizes.clear, lambda: sizes.insert(0, {"as_int": 2**40})])()


def changed(source, out, change):
    """The program with change(graph)."""
    with zipfile.ZipFile(source) as z:
        entries = {n: z.read(n) for n in z.namelist() if "/test/" not in n}
    name = next(n for n in entries if "/models/" in n)
    graph = json.loads(entries[name])
    change(graph)
    entries[name] = json.dumps(graph)
    with zipfile.ZipFile(out, "w") as z:
        for n, data in entries.items():
            z.writestr(n, data)


def broken(source, i, out):
    rng = random.Random(i)
    if i % 6 == 0:
        with open(source, "rb") as f, open(out, "wb") as g:
            g.write(break_bytes(f.read(), rng))
    elif i % 2:
        changed(source, out, lambda graph: break_node(graph, rng))
    else:
        changed(source, out, lambda g: break_place(g, [p for p in all_paths(g["graph_module"]) if p], rng))


def unsupported(folder, dtplan, path, out):
    """All ops that are not supported at once, with how many there are and where the first is."""
    ops = {"gelu.default": "lstm.input", "layer_norm.default": "batch_norm.default", "linear.default": "sort.default"}
    counts = {}

    def change(graph):
        for node in graph["graph_module"]["graph"]["nodes"]:
            op = ops.get(node["target"].removeprefix("torch.ops.aten."))
            if op:
                node["target"] = "torch.ops.aten." + op
                counts[op] = counts.get(op, 0) + 1

    changed(os.path.join(folder, "gpt.pt2"), path, change)
    bad, text = attempt(dtplan, path, out)
    lines = text.splitlines()
    for op, count in counts.items():
        if not any(line.startswith(f"aten.{op}: {count}, first in 'h.0") for line in lines):
            sys.exit(f"no line for {count} {op}: {text}")
    if not bad or len(counts) != 3 or len(lines) != 4 or "3 ops are not supported" not in lines[3]:
        sys.exit(f"{counts}: {text}")


def renamed(folder, dtplan, path, out):
    """Ops that no rewrite knows: of complex numbers, and in place on what may be a view."""
    for name, op, other, expect in (("pairs", "aten._conj.default", "aten.exp.default", "1 op is not supported, the first is complex aten.exp"),
                                    ("writes", "aten.view.default", "aten.reshape.default", "aten.mul_"),
                                    ("writes", "aten.new_zeros.default", "aten.expand.default", "aten.copy_")):
        with zipfile.ZipFile(os.path.join(folder, name + ".pt2")) as z:
            text = z.read(f"{name}/models/model.json").decode()
        if op not in text:
            sys.exit(f"{name} has no {op}")

        def change(graph, op=op, other=other):
            for node in graph["graph_module"]["graph"]["nodes"]:
                node["target"] = node["target"].replace(op, other)

        changed(os.path.join(folder, name + ".pt2"), path, change)
        bad, text = attempt(dtplan, path, out)
        if not bad or expect not in text:
            sys.exit(f"{name} with {other}: {text}")


ARGUMENTS = (  # program, op, an argument that its row does not take
    ("gpt", "gelu.default", "approximate", {"as_string": "other"}, "is 'other', and only none|tanh is supported"),
    ("gpt", "embedding.default", "scale_grad_by_freq", {"as_bool": True}, "is the truth 1, and only 0 is supported"),
    ("gpt", "layer_norm.default", "eps", {"as_tensors": []}, "no such kind is supported"),
    ("gpt", "linear.default", "new_in_torch_3", {"as_int": 0}, "is 0, and is not supported"),
    ("gpt", "add.Tensor", "alpha", {"as_string": "x"}, "argument 'alpha' is 'x'"),
    ("gpt", "add.Tensor", "other", {"as_sym_float": {"as_name": "f"}}, "no number 'f'"),
    ("stem", "conv2d.default", "groups", {"as_string": "x"}, "argument 'groups' is 'x'"),
    ("llama", "scaled_dot_product_attention.default", "dropout_p", {"as_string": "x"}, "argument 'dropout_p' is 'x'"),
)


def arguments(folder, dtplan, path, out):
    """What no row reads is refused, with op, argument, value and place."""
    def change(graph, op, name, value):
        for node in graph["graph_module"]["graph"]["nodes"]:
            if node["target"] == "torch.ops.aten." + op:
                node["inputs"] = [i for i in node["inputs"] if i["name"] != name] + [{"name": name, "arg": value}]

    for program, op, name, value, expect in ARGUMENTS:
        changed(os.path.join(folder, program + ".pt2"), path, lambda g, c=(op, name, value): change(g, *c))
        bad, text = attempt(dtplan, path, out)
        place = "as_sym_float" in value or (f"aten.{op}" in text and f"argument '{name}'" in text and 'File "' in text)
        if not bad or expect not in text or not place:
            sys.exit(f"{op} {name}: expected '{expect}', got: {text}")


def user_line(folder, dtplan, path, out):
    """The place of a node is the last line of its trace that is the user's."""
    trace = "".join(f'File "{p}", line {i}, in forward\n    x\n' for i, p in enumerate(
        ("/home/u/train.py", "/home/u/model.py", "/opt/lib/site-packages/torch/nn/functional.py", "/src/torch/nn/modules/linear.py")))

    def change(graph):
        node = next(n for n in graph["graph_module"]["graph"]["nodes"] if "gelu" in n["target"])
        node["target"] = "torch.ops.aten.nosuch.default"
        node["metadata"]["stack_trace"] = trace

    changed(os.path.join(folder, "gpt.pt2"), path, change)
    bad, text = attempt(dtplan, path, out)
    if not bad or 'File "/home/u/model.py", line 1' not in text or "torch/nn" in text:
        sys.exit(f"the user's line: {text}")


def equations(folder, dtplan, path, out):
    """Products that are none, of operands of 3 and 4 axes."""
    def change(graph, equation):
        node = next(n for n in graph["graph_module"]["graph"]["nodes"] if "einsum" in n["target"])
        next(i for i in node["inputs"] if i["name"] == "equation")["arg"] = {"as_string": equation}

    for equation in EQUATIONS:
        changed(os.path.join(folder, "grouped.pt2"), path, lambda graph, e=equation: change(graph, e))
        bad, text = attempt(dtplan, path, out)
        if not bad or f"the product '{equation}'" not in text or len(text.splitlines()) != 1:
            sys.exit(f"equation '{equation}': {text}")


def sizes(folder, dtplan, path, out):
    """Every eleventh tensor with an axis that is said to be three times as long (constants and weights end before), or
    to have no elements."""
    for name in ("llama", "t5"):
        source = os.path.join(folder, name + ".pt2")
        with zipfile.ZipFile(source) as z:
            values = json.loads(z.read(f"{name}/models/model.json"))["graph_module"]["graph"]["tensor_values"]
        for i, value in enumerate(values):
            rank = len(values[value]["sizes"])
            for factor in (3, 0) if i % 11 == 0 and rank > 0 else ():
                changed(source, path, lambda g, v=value, a=i % rank: g["graph_module"]["graph"]["tensor_values"][v]
                        ["sizes"][a].update({"as_int": factor * values[v]["sizes"][a]["as_int"]}))
                attempt(dtplan, path, out)


def made_wrong(folder, tmp):
    """Files that one change makes wrong, and what the error says."""
    with zipfile.ZipFile(os.path.join(folder, "dlrm.pt2")) as z:
        entries = {n: z.read(n) for n in z.namelist() if "/test/" not in n}
    model, config = "dlrm/models/model.json", "dlrm/data/weights/model_weights_config.json"
    text = entries[model].decode()
    clash = json.loads(text)
    types = json.loads(text)
    for spec in types["graph_module"]["signature"]["input_specs"]:
        if "user_input" in spec:
            value = spec["user_input"]["arg"]["as_tensor"]["name"]
            types["graph_module"]["graph"]["tensor_values"][value]["dtype"] = 3
    effect = json.loads(text)  # an op that changes rows of an input, and whose result nobody reads
    inner = effect["graph_module"]["graph"]
    inner["tensor_values"]["changed"] = inner["tensor_values"]["select"]
    inner["nodes"].append({"target": "torch.ops.aten.mul_.Tensor", "outputs": [{"as_tensor": {"name": "changed"}}], "inputs": [
        {"name": "self", "arg": {"as_tensor": {"name": "select"}}}, {"name": "other", "arg": {"as_int": 2}}]})
    odd = {}  # places where a reader may expect another kind of value
    for name, change in (
        ("list", lambda g, s: s["input_specs"].__setitem__(0, [{"arg": {"name": "x"}}])),
        ("nameless", lambda g, s: s["input_specs"].__setitem__(0, {"user_input": {"arg": {"as_tensor": {}}}})),
        ("numbered", lambda g, s: s["input_specs"].__setitem__(0, {"user_input": {"arg": {"as_tensor": {"name": 3}}}})),
        ("sizes_of", lambda g, s: g.__setitem__("sym_int_values", [1, 2])),
        ("reals_of", lambda g, s: g.__setitem__("sym_float_values", "x")),
        ("trace", lambda g, s: [n["metadata"].__setitem__("stack_trace", "") for n in g["nodes"]]),
        ("lines", lambda g, s: [n["metadata"].__setitem__("stack_trace", "File \"") for n in g["nodes"]]),
    ):
        odd[name] = json.loads(text)
        change(odd[name]["graph_module"]["graph"], odd[name]["graph_module"]["signature"])
    params = [s["parameter"] for s in clash["graph_module"]["signature"]["input_specs"] if "parameter" in s]
    params[1]["parameter_name"] = params[0]["parameter_name"]
    unmade = json.loads(text)
    unmade["graph_module"]["graph"]["nodes"].pop()
    cases = {
        "unmade": ({model: json.dumps(unmade)}, "no node makes the output"),
        "storage": ({config: entries[config].decode().replace('"storage_offset": {"as_int": 0}', '"storage_offset": {"as_int": 999}')},
                    "from element 999 on"),
        "clash": ({model: json.dumps(clash)}, "two inputs or parameters are called"),
        "compressed": (None, "not stored as it is"),
        "schema": ({model: text.replace('"major":8', '"major":9')}, "schema version 9, not 8"),
        "pickle": ({config: entries[config].decode().replace('"use_pickle": false', '"use_pickle": true')}, "use_pickle"),
        "two": ({"dlrm/models/other.json": text}, "two graphs"),
        "ours": ({model: text.replace("torch.ops.aten.relu.default", "torch.ops.dtp.attention")}, "is no op of torch"),
        "plain": ({model: text.replace("torch.ops.aten.relu.default", "torch.ops.relu")}, "relu"),
        "effect": ({model: json.dumps(effect)}, "aten.mul_.Tensor"),
        "type": ({model: json.dumps(types)}, "has element type 3"),
        "list": ({model: json.dumps(odd["list"])}, "an input of unknown kind"),
        "nameless": ({model: json.dumps(odd["nameless"])}, "name"),
        "numbered": ({model: json.dumps(odd["numbered"])}, "name"),
        "sizes_of": ({model: json.dumps(odd["sizes_of"])}, None),
        "reals_of": ({model: json.dumps(odd["reals_of"])}, None),
        "trace": ({model: json.dumps(odd["trace"])}, None),
        "lines": ({model: json.dumps(odd["lines"])}, None),
        "configs": ({config: '{"config": ["a", "b"]}'}, None),
        "twice": ({model: text.replace('"nodes":[', '"nodes":[],"nodes":[')}, "nodes"),
    }
    for name, (change, expect) in cases.items():
        path = os.path.join(tmp, name + ".pt2")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED if change else zipfile.ZIP_DEFLATED) as z:
            for n, data in {**entries, **(change or {})}.items():
                z.writestr(n, data)
        yield path, expect


# Node of the program `routed` (its number among those of the op), argument, its new value: as rows of experts are not
# treated one by one, or not in the order of one sort, then. The last two are no other programs.
EXPERTS = (
    ("sort", 0, "descending", {"as_bool": True}), ("sort", 1, "self", {"as_tensor": {"name": "reshape_1"}}),
    ("histc", 0, "bins", {"as_int": 5}), ("histc", 1, "max", {"as_int": 4}), ("histc", 2, "min", {"as_int": 1}),
    ("floor_divide", 0, "other", {"as_int": 1}), ("div", -1, "other", {"as_int": 2}), ("cumsum", 0, "self", "sort"),
    ("grouped_mm_fallback", 0, "offs", "histc"), ("grouped_mm_fallback", 2, "offs", "cumsum"),
    ("index_put_", 0, "indices", "sort0"), ("index_put_", 0, "values", "floor_divide"), ("index_put_", 0, "accumulate", {"as_bool": True}),
    ("chunk", 0, "dim", {"as_int": 0}), ("layer_norm", 0, "normalized_shape", {"as_ints": [72, 8]}), ("slice", -1, "dim", {"as_int": 0}),
    ("cat", 0, "dim", {"as_int": 0}), ("index_add", 0, "alpha", {"as_int": 2}), ("index_add", 0, "index", "argsort"),
    ("unsqueeze", 0, "dim", {"as_int": 0}), ("sort", 0, "stable", {"as_bool": True}), ("div", -1, "rounding_mode", {"as_string": "trunc"}),
)


def experts(folder, dtplan, path, out):
    source = os.path.join(folder, "routed.pt2")

    def change(graph, op, number, name, value):
        nodes = graph["graph_module"]["graph"]["nodes"]
        of = lambda op: [n for n in nodes if n["target"].split(".")[3] == op]
        if isinstance(value, str):  # what the first node of that name makes
            made = [o["as_tensor"]["name"] for n in of(value.rstrip("0")) for o in n["outputs"] if "as_tensor" in o]
            value = {"as_tensors": [{"name": made[0]}]} if name == "indices" else {"as_tensor": {"name": made[0]}}
        node = of(op)[number]
        node["inputs"] = [i for i in node["inputs"] if i["name"] != name] + [{"name": name, "arg": value}]

    for i, case in enumerate(EXPERTS):
        changed(source, path, lambda g, c=case: change(g, *c))
        bad, text = attempt(dtplan, path, out)
        if bad != (i < len(EXPERTS) - 2) or (bad and "sort" not in text):
            sys.exit(f"routed with {case}: {'refused' if bad else 'accepted'}: {text}")
    rows = os.path.join(folder, "rows.pt2")  # an index that may name a row twice, and does
    changed(rows, path, lambda g: change(g, "index_put", 0, "accumulate", {"as_bool": False}))
    bad, text = attempt(dtplan, path, out)
    if not bad or "index_put" not in text:
        sys.exit(f"rows that an index replaces twice: {text}")
    for name, number, fine in (("routed", 0, True), ("routed", 1, True), ("writes", 0, True), ("writes", 1, False), ("experts", 0, False)):
        source = os.path.join(folder, name + ".pt2")
        changed(source, path, lambda g, k=number: change(g, "topk", k, "sorted", {"as_bool": False}))
        bad, text = attempt(dtplan, path, out)
        if bad == fine or (bad and "'sorted' is the truth 0" not in text):
            sys.exit(f"{name} with an open order of topk: {text}")


def long_program(path, n):
    """A chain of n casts, then of n sums with a weight each: no search may begin again at every node."""
    tensor = lambda name: {"as_tensor": {"name": name}}
    specs, nodes, values = [{"user_input": {"arg": tensor("x")}}], [], {"x": [4, 8]}
    for i in range(2 * n):
        inputs = [{"name": "self", "arg": tensor(f"v{i - 1}" if i else "x")}]
        if i >= n:
            specs.append({"parameter": {"arg": {"name": f"p{i}"}, "parameter_name": f"l.{i % 2}.w{i}"}})
            inputs.append({"name": "other", "arg": tensor(f"p{i}")})
            values[f"p{i}"] = [8]
        target = "torch.ops.aten." + ("to.dtype" if i < n else "add.Tensor")
        nodes.append({"target": target, "inputs": inputs, "outputs": [tensor(f"v{i}")]})
        values[f"v{i}"] = [4, 8]
    values = {k: {"sizes": [{"as_int": s} for s in v], "dtype": 7} for k, v in values.items()}
    signature = {"input_specs": specs, "output_specs": [{"user_output": {"arg": tensor(f"v{2 * n - 1}")}}]}
    graph = {"nodes": nodes, "tensor_values": values, "sym_int_values": {}}
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("m/models/m.json", json.dumps({"graph_module": {"graph": graph, "signature": signature},
                                                  "schema_version": {"major": 8}}))


def attempt(dtplan, path, out):
    p = subprocess.run([dtplan, "import", path, "-o", out], capture_output=True, text=True)
    lines = p.stderr.splitlines()
    if p.returncode == 2 and os.path.exists(out):
        sys.exit(f"{path}: refused, but {out} was written")
    if p.returncode not in (0, 2) or (p.returncode == 2 and (not lines or os.path.basename(path) not in lines[-1])):
        sys.exit(f"{path}: exit {p.returncode}\n{p.stdout}{p.stderr}")
    if p.returncode == 0:
        os.remove(out)
    return p.returncode == 2, p.stderr


def main(dtplan, folder):
    refused = 0
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, "m.json")
        for path, expect in made_wrong(folder, tmp):
            bad, text = attempt(dtplan, path, out)
            if bad != (expect is not None) or (bad and expect not in text):
                sys.exit(f"{path}: expected '{expect}', got: {text}")
        experts(folder, dtplan, os.path.join(tmp, "experts.pt2"), out)
        arguments(folder, dtplan, os.path.join(tmp, "arguments.pt2"), out)
        user_line(folder, dtplan, os.path.join(tmp, "line.pt2"), out)
        long_program(os.path.join(tmp, "long.pt2"), 10000)
        bad, text = attempt(dtplan, os.path.join(tmp, "long.pt2"), out)
        if bad:
            sys.exit(f"a long program is refused: {text}")
        unsupported(folder, dtplan, os.path.join(tmp, "unsupported.pt2"), out)
        equations(folder, dtplan, os.path.join(tmp, "equations.pt2"), out)
        renamed(folder, dtplan, os.path.join(tmp, "renamed.pt2"), out)
        sizes(folder, dtplan, os.path.join(tmp, "sizes.pt2"), out)
        for i in range(300):
            path = os.path.join(tmp, f"{i}.pt2")
            broken(os.path.join(folder, SOURCES[i // 6 % len(SOURCES)] + ".pt2"), i, path)
            refused += attempt(dtplan, path, out)[0]
            os.remove(path)
    print(f"300 broken files: {refused} refused, the others are programs still")
    if refused < 200:
        sys.exit("too few are refused")


if __name__ == "__main__":
    main(*sys.argv[1:])
