#!/usr/bin/env python3
"""dtrun run --load and --save-hf with folders as Hugging Face's transformers writes them.

A folder is made here from a checkpoint of dtrun's, element by element after the names file, and compared with it:
  load   under every layout, losses are those of the checkpoint, to the bit
  save   bytes, names, shapes and element types are those of the folder, and the index says what is where
  bad    one line that names the file, exit code 2, nothing written
  folders  what is left over or named otherwise in a folder is loaded as transformers does; what is no weights is said
Usage: weights_hf.py DTRUN DTPLAN gpt_bytes|mlp_digits|folders|refusals|mutations
"""
import itertools
import json
import math
import os
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile

CASES = {
    "gpt_bytes": (["batch=4", "length=8", "layers=2", "vocab=32", "heads=4", "d_head=4"],
                  [[], ["--mesh", "x:2", "--rules", "heads:x;d_ff:x;vocab:x"], ["--mesh", "x:2", "--rules", "d_model:x"],
                   ["--mesh", "x:2;y:2", "--rules", "batch:x;heads:y;d_ff:y"]]),
    "mlp_digits": (["batch=8", "classes=12"],
                   [[], ["--mesh", "x:2", "--rules", "hidden:x"], ["--mesh", "x:4", "--rules", "pixels:x"]]),
}
TYPES = {"F32": ("f", 4), "F16": ("e", 2), "F64": ("d", 8), "BF16": (None, 2)}
dtrun, dtplan = (os.path.abspath(path) for path in sys.argv[1:3])
failures = []


def fail(text):
    failures.append(text)
    print("FAIL: " + text)


def call(*words):
    p = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


# ---- safetensors ----

def unpack(dtype, data):
    """Values as floats."""
    if dtype == "BF16":
        halves = struct.unpack(f"<{len(data) // 2}H", data)
        return struct.unpack(f"<{len(halves)}f", b"".join(struct.pack("<I", h << 16) for h in halves))
    return struct.unpack(f"<{len(data) // TYPES[dtype][1]}{TYPES[dtype][0]}", data)


def to_bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def pack(dtype, values):
    if dtype == "BF16":
        return struct.pack(f"<{len(values)}H", *map(to_bf16, values))
    return struct.pack(f"<{len(values)}{TYPES[dtype][0]}", *values)


def read_safetensors(path):
    """Name -> (dtype, shape, bytes), and the metadata."""
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    meta = head.pop("__metadata__", None)
    begin = 8 + n
    return {name: (e["dtype"], e["shape"], data[begin + e["data_offsets"][0]:begin + e["data_offsets"][1]])
            for name, e in head.items()}, meta


def write_safetensors(path, tensors, meta):
    head, at = {} if meta is None else {"__metadata__": meta}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def write_folder(path, tensors, files=1):
    """As transformers writes it."""
    os.makedirs(path)
    if files == 1:
        write_safetensors(os.path.join(path, "model.safetensors"), tensors, {"format": "pt"})
        return path
    names, where = list(tensors), {}
    for i in range(files):
        file = f"model-{i + 1:05}-of-{files:05}.safetensors"
        part = {name: tensors[name] for name in names[i::files]}
        where.update({name: file for name in part})
        write_safetensors(os.path.join(path, file), part, {"format": "pt"})
    with open(os.path.join(path, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {"total_size": sum(len(t[2]) for t in tensors.values())}, "weight_map": where}, f)
    return path


def read_folder(path):
    """Name -> (dtype, shape, bytes), and the files. The index is true, and nothing else is there."""
    index = os.path.join(path, "model.safetensors.index.json")
    if not os.path.exists(index):
        tensors, meta = read_safetensors(os.path.join(path, "model.safetensors"))
        if meta != {"format": "pt"}:
            fail(f"{path}: metadata {meta}")
        found = {"model.safetensors"}
    else:
        tensors, map_ = {}, read_json(index)
        found = set(map_["weight_map"].values())
        for file in found:
            part, meta = read_safetensors(os.path.join(path, file))
            tensors.update(part)
            if meta != {"format": "pt"} or set(part) != {n for n, f in map_["weight_map"].items() if f == file}:
                fail(f"{path}: {file}: metadata {meta}, tensors {list(part)}")
        if map_["metadata"]["total_size"] != sum(len(t[2]) for t in tensors.values()):
            fail(f"{path}: total_size {map_['metadata']}")
        found.add("model.safetensors.index.json")
    if set(os.listdir(path)) != found:
        fail(f"{path}: has {sorted(os.listdir(path))}, not {sorted(found)}")
    return tensors, found


# ---- the oracle ----

def fill(pattern, numbers):
    parts = pattern.split("*")
    return "".join(p + n for p, n in itertools.zip_longest(parts, numbers, fillvalue=""))


def entry_of(names, ours):
    for pattern, entry in names["params"].items():
        found = re.fullmatch(re.escape(pattern).replace(r"\*", r"(\d+)"), ours)
        if found:
            return {**entry, **entry.get("stored", {})}, found.groups()
    raise KeyError(ours)


def axis_size(axis, sizes):
    return math.prod(sizes[d] for d in axis.split("*") if not d.isdigit())


def theirs_of(names, params, dims_of):
    """The tensors of the framework from those of ours, name -> (shape, values)."""
    out = {}
    for ours, (shape, values) in params.items():
        entry, numbers = entry_of(names, ours)
        sizes = dict(zip(dims_of[ours], shape))
        name, axes = fill(entry["name"], numbers), entry["axes"]
        each = re.search(r"\{(\w+)\}", name)
        full = [axis_size(axis, sizes) for axis in axes]
        fused, before, part = entry.get("fused"), 0, 0
        if fused:
            mates = [fill(p, numbers) for p in fused["parts"]]
            part, a = mates.index(ours), fused["axis"]
            lengths = [axis_size(axes[a], dict(zip(dims_of[m], params[m][0]))) for m in mates]
            before, full[a] = sum(lengths[:part]), sum(lengths)
            turns = any(d.isdigit() for d in axes[a].split("*"))
        for place in itertools.product(*map(range, shape)):
            at, index = dict(zip(dims_of[ours], place)), 0
            for a, axis in enumerate(axes):
                i = 0
                for d in axis.split("*"):
                    i = i * int(d) + part if d.isdigit() else i * sizes[d] + at[d]
                i += before if fused and a == fused["axis"] and not turns else 0
                index = index * full[a] + i
            here = name.replace(each.group(), str(at[each.group(1)])) if each else name
            target = out.setdefault(here, (full, [None] * math.prod(full)))
            target[1][index] = values[sum(p * math.prod(shape[k + 1:]) for k, p in enumerate(place))]
    for name, (shape, values) in out.items():
        if None in values:
            fail(f"{name}: the parameters do not fill it")
    return out


def typed(tensors, dtype):
    return {name: (dtype, shape, pack(dtype, values)) for name, (shape, values) in tensors.items()}


# ---- models ----

def dims_of_params(model, layers):
    out = {name: p["dims"] for name, p in model["params"].items()}
    for node in model["nodes"]:
        if "repeat" in node:
            for i in range(layers):
                for name, p in model["blocks"][node["repeat"]]["params"].items():
                    out[f"{node['as']}.{i}.{name}"] = p["dims"]
    return out


def variants(model, names):
    """Names files of the same model."""
    yield "plain", names
    if model != "gpt_bytes":
        return
    for kind, axis in (("fused", "heads*d_head"), ("turns", "heads*2*d_head")):
        p = json.loads(json.dumps(names))
        for a, b, name, rest in (("attn.wk", "attn.wv", "kv.weight", ["d_model"]), ("attn.bq", "attn.bv", "qv.bias", [])):
            for ours in (a, b):
                p["params"]["layers.*." + ours] = {"name": "layers.*." + name, "axes": [axis] + rest,
                                                   "fused": {"axis": 0, "parts": ["layers.*." + a, "layers.*." + b]}}
        p["params"]["layers.*.mlp.w1"]["stored"] = {"name": "layers.*.mlp.up.{d_ff}.weight", "axes": ["d_model"]}
        p["params"]["wpe"]["stored"] = {"name": "places", "axes": ["d_model", "length"]}
        yield kind, p


class Model:
    def __init__(self, name, place):
        self.name, self.place = name, place
        dims, self.layouts = CASES[name]
        self.file = f"models/{name}.json"
        self.words = [self.file] + [w for d in dims for w in ("--dim", d)]
        self.dims_of = dims_of_params(read_json(self.file), 2)
        self.names = read_json(f"models/{name}.names.json")
        native = self.path("native.safetensors")
        self.must("--steps", "0", "--save", native)
        self.tensors, _ = read_safetensors(native)
        self.params = {n: (s, unpack(t, d)) for n, (t, s, d) in self.tensors.items() if n in self.dims_of}

    def path(self, name):
        return os.path.join(self.place, name)

    def run(self, *words):
        return call(dtrun, "run", *self.words, "--comm", "sim", "--threads", "1", "--quiet", "--json", *words)

    def must(self, *words):
        code, out, err = self.run(*words)
        if code != 0:
            fail(f"{self.name}: {' '.join(words)}: exit {code}: {err}")
            return None
        return json.loads(out) if out else None

    def losses(self, *words):
        report = self.must("--steps", "3", *words)
        return report["loss"] if report else None

    def folder(self, kind, names, dtype, files=1):
        return write_folder(self.path(kind), typed(theirs_of(names, self.params, self.dims_of), dtype), files)

    def names_file(self, kind, names):
        file = self.path(kind + ".names.json")
        with open(file, "w", encoding="utf-8") as f:
            json.dump(names, f)
        return ["--names", file]

    def native(self, dtype):
        """A checkpoint of the values in another type, under our names."""
        file = self.path(dtype + ".safetensors")
        write_safetensors(file, {n: ("F32", s, pack("F32", unpack(dtype, pack(dtype, v))))
                                 for n, (s, v) in self.params.items()}, None)
        return file


def check_load(model, what, folder, native, options, layouts):
    for layout in layouts:
        got, want = model.losses("--load", folder, *options, *layout), model.losses("--load", native, *layout)
        if got is None or got != want:
            fail(f"{model.name}: {what}: {layout}: losses {got}, of the checkpoint {want}")


def check_same(what, got, want):
    if got != want:
        other = [n for n in sorted(set(got) | set(want)) if got.get(n) != want.get(n)]
        fail(f"{what}: other names, shapes, types or bytes: {other[:5]}")


def check_model(name, place):
    model = Model(name, place)
    plan = model.path("tensor.plan")
    code, _, err = call(dtplan, "plan", *model.words, "--mesh", "x:2;y:2", "--machine", "models/machines/a100_8.json",
                        "--mode", "tensor", "--target", "cpu", "-o", plan)
    if code != 0:
        fail(f"{name}: plan: {err}")
    layouts = model.layouts + [["--plan", plan]]
    for kind, names in variants(name, model.names):
        for dtype, files in (("F32", 1), ("BF16", 3), ("F16", 2)):
            what = f"{kind} {dtype}"
            folder = model.folder(what, names, dtype, files)
            options = model.names_file(kind, names) if kind != "plain" else []
            check_load(model, what, folder, model.native(dtype), options, layouts if dtype == "F32" else layouts[-1:])
            out = model.path(what + ".out")
            for layout in ([], ["--plan", plan]):
                model.must("--steps", "0", "--load", folder, *options, *layout, "--save-hf", out)
                check_same(f"{name}: {what}: saved again", read_folder(out)[0], read_folder(folder)[0])
    check_trained(model, plan)


def check_trained(model, plan):
    """After steps the folder is what the checkpoint is; files are no larger than asked for; what is there is replaced."""
    out, native = model.path("trained"), model.path("trained.safetensors")
    os.makedirs(out)
    for size in ("5e9", "3000", "2000", "5e9"):
        for left in ("model-00001-of-00009.safetensors", "model.2-00003-of-00004.safetensors", "config.json"):
            with open(os.path.join(out, left), "w", encoding="utf-8") as f:
                f.write("not weights")
        model.must("--steps", "2", "--plan", plan, "--save", native, "--save-hf", out, "--save-hf-size", size)
        params = {n: (s, unpack(t, d)) for n, (t, s, d) in read_safetensors(native)[0].items() if n in model.dims_of}
        os.remove(os.path.join(out, "config.json"))
        got, files = read_folder(out)
        check_same(f"{model.name}: trained, {size}", got, typed(theirs_of(model.names, params, model.dims_of), "F32"))
        for file in files - {"model.safetensors.index.json"}:
            tensors, _ = read_safetensors(os.path.join(out, file))
            if len(tensors) > 1 and sum(len(t[2]) for t in tensors.values()) > float(size):
                fail(f"{model.name}: {file} is larger than {size}: {list(tensors)}")
        if (len(files) == 1) != (size == "5e9"):
            fail(f"{model.name}: size {size}: files {sorted(files)}")
        check_full(model, out, got)


def limit():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3500, 3500))


def check_full(model, out, before):
    """A disk that is full after some of the files: what was there stays, and nothing else."""
    p = subprocess.run([dtrun, "run", *model.words, "--steps", "1", "--quiet", "--threads", "1", "--save-hf", out,
                        "--save-hf-size", "1000"], preexec_fn=limit, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                       check=False)
    if p.returncode != 1 or "cannot write" not in p.stderr.decode():
        fail(f"full disk: exit {p.returncode}: {p.stderr.decode()}")
    check_same("full disk", read_folder(out)[0], before)


def check_tied(place):
    """A name beside another one, or instead of it, is read once; other values under it are an error."""
    model = Model("mlp_digits", place)
    names = json.loads(json.dumps(model.names))
    names["params"]["w1"]["tied"] = ["other.weight", "third.weight"]
    options = model.names_file("tied", names)
    tensors = typed(theirs_of(names, model.params, model.dims_of), "F32")
    native, first = model.path("native.safetensors"), tensors["fc1.weight"]
    again = {**tensors, "third.weight": first}
    instead = {("third.weight" if n == "fc1.weight" else n): t for n, t in tensors.items()}
    for kind, folder in (("again", again), ("instead", instead)):
        check_load(model, kind, write_folder(model.path(kind), folder), native, options, model.layouts[:2])
        out = model.path(kind + ".out")
        model.must("--steps", "0", "--load", model.path(kind), *options, "--save-hf", out)
        check_same(kind, read_folder(out)[0], tensors)
    differs = {**again, "third.weight": (first[0], first[1], first[2][:-4] + b"\1\2\3\4")}
    write_folder(model.path("differs"), differs)
    refused(model, "differs", ["--load", model.path("differs"), *options],
            "'third.weight' holds other values, but the weights are tied")


def check_others(place):
    """A run that goes on saves in the types that it began with; eval and sample read folders as run does."""
    model = Model("gpt_bytes", place)
    folder, save, out = model.folder("begin", model.names, "BF16", 2), model.path("save"), model.path("went_on")
    for steps in ("1", "2"):
        model.must("--steps", steps, "--load", folder, "--save", save, "--resume", "--save-hf", out)
    if {t[0] for t in read_folder(out)[0].values()} != {"BF16"}:
        fail("a run that went on saved other types than it had loaded")
    native, tokens = model.native("BF16"), model.path("tokens.bin")
    with open(tokens, "wb") as f:
        f.write(bytes(i * i % 32 for i in range(200)))
    for command in (["eval", *model.words, "--feed", f"text={tokens},dtype=u1"],
                    ["sample", *model.words, "--prompt", "1 2", "--tokens", "5"]):
        got, want = (call(dtrun, *command, "--threads", "1", "--load", path) for path in (folder, native))
        if got[0] != 0 or [line.split(",")[0] for line in got[1:]] != [line.split(",")[0] for line in want[1:]]:
            fail(f"{command[0]}: {got}, from the checkpoint {want}")


# ---- folders as they are found ----

def edit_index(folder, change):
    path = os.path.join(folder, "model.safetensors.index.json")
    index = read_json(path)
    change(index["weight_map"])
    with open(path, "w", encoding="utf-8") as f:
        json.dump(index, f)
    return folder


def swap(where):
    where["fc2.bias"], where["fc2.weight"] = where["fc2.weight"], where["fc2.bias"]


def check_folders(place):
    model = Model("mlp_digits", place)
    tensors, layouts = typed(theirs_of(model.names, model.params, model.dims_of), "F32"), model.layouts[:2]
    zeros = {n: (t, s, bytes(len(d))) for n, (t, s, d) in tensors.items()}
    native = model.path("native.safetensors")

    def loads(what, folder, options=()):
        check_load(model, what, folder, native, list(options), layouts)

    loads("an index that names other files", edit_index(write_folder(model.path("elsewhere"), tensors, 2), swap))
    loads("an entry that no file has", edit_index(
        write_folder(model.path("ghost"), tensors, 2), lambda w: w.update({"ghost": w["fc1.bias"]})))
    left = write_folder(model.path("left"), zeros, 2)
    write_safetensors(left + "/model.safetensors", tensors, {"format": "pt"})
    loads("a single file beside an index", left)
    names = json.loads(json.dumps(model.names))
    for entry in names["params"].values():
        entry["name"] = "net." + entry["name"]
    loads("names of a part of the model", write_folder(model.path("part"), tensors), model.names_file("net", names))
    loads("names of a model of which this is a part",
          write_folder(model.path("whole"), {"net." + n: t for n, t in tensors.items()}))
    check_written_again(model, loads)
    check_links(model, tensors)
    check_no_weights(model, tensors)


def check_written_again(model, loads):
    """Our checkpoint as other writers of safetensors write it again: other spaces, another order of metadata and data."""
    saved, meta = read_safetensors(model.path("native.safetensors"))
    for what, order, kept in (("same", list(saved), meta), ("turned", list(saved)[::-1], dict(list(meta.items())[::-1]))):
        path = model.path(what + ".safetensors")
        write_safetensors(path, {n: saved[n] for n in order}, kept)
        loads("written again, " + what, path)


def check_links(model, tensors):
    """Files of a download cache, to which names of several folders are links, stay what they are."""
    shared = model.path("shared")
    write_safetensors(shared, tensors, {"format": "pt"})
    with open(shared, "rb") as f:
        before = f.read()
    folder = model.path("linked")
    os.makedirs(folder)
    os.symlink("../shared", folder + "/model.safetensors")
    model.must("--load", folder, "--steps", "1", "--save-hf", folder)
    with open(shared, "rb") as f:
        if f.read() != before or os.path.islink(folder + "/model.safetensors"):
            fail("--save-hf wrote through a link")


def check_no_weights(model, tensors):
    """What stands where weights should is said in one line."""
    for i, (file, content, *needles) in enumerate((
            ("pytorch_model.bin", b"PK", "pytorch_model.bin", "safetensors"),
            ("consolidated.safetensors", None, "consolidated.safetensors"),
            ("model.fp16.safetensors", None, "model.fp16.safetensors", "name the file"),
            ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 100\n", "git lfs pull"),
            ("model.safetensors", b"<!DOCTYPE html><html></html>", "web page"),
            ("model.safetensors", b"PK\3\4" + bytes(100), "zip archive"))):
        folder = model.path(f"no_weights_{i}")
        os.makedirs(folder)
        if content is None:
            write_safetensors(f"{folder}/{file}", tensors, {"format": "pt"})
        else:
            with open(f"{folder}/{file}", "wb") as f:
                f.write(content)
        refused(model, file, ["--load", folder], folder, *needles)


# ---- bad input ----

def refused(model, what, words, *needles):
    out = model.path("never")
    code, stdout, err = model.run("--steps", "0", *words, "--save-hf", out)
    if code != 2 or stdout or err.count("\n") != 1 or not all(n in err for n in needles):
        fail(f"{what}: exit {code}, wanted 2 and {needles}: {err}")
    if os.path.exists(out):
        fail(f"{what}: something was written")


def check_refusals(place):
    model = Model("mlp_digits", place)
    tensors = typed(theirs_of(model.names, model.params, model.dims_of), "F32")
    good = write_folder(model.path("good"), tensors)

    def case(what, changed, *needles, index=None):
        folder = write_folder(model.path(what), changed, 2 if index else 1)
        if index:
            path = os.path.join(folder, "model.safetensors.index.json")
            content = read_json(path)
            index(content)
            with open(path, "w", encoding="utf-8") as f:
                json.dump(content, f)
        refused(model, what, ["--load", folder], what + "/", *needles)

    dtype, shape, data = tensors["fc1.weight"]
    case("transposed", {**tensors, "fc1.weight": (dtype, shape[::-1], data)}, "model.safetensors: tensor 'fc1.weight' has shape")
    case("integers", {**tensors, "fc1.weight": ("I32", shape, data)}, "'fc1.weight' has elements of type I32, parameter 'w1'")
    case("eighths", {**tensors, "fc1.weight": ("F8_E4M3", shape, data[:len(data) // 4])}, "'fc1.weight'")
    case("unknown", {**tensors, "fc1.weight": ("C64", [shape[0], shape[1] // 2], data)}, "'fc1.weight'", "C64")
    case("missing", {n: t for n, t in tensors.items() if n != "fc2.bias"}, "there is no tensor 'fc2.bias', in which parameter 'b2'")
    case("absent", tensors, "weight_map", "gone.safetensors", index=lambda i: i["weight_map"].update({"fc2.bias": "gone.safetensors"}))
    for what, file in (("above", "../good/model.safetensors"), ("rooted", "/etc/passwd"), ("empty", ""), ("number", 3)):
        case(what, tensors, "model.safetensors.index.json:", index=lambda i, f=file: i["weight_map"].update({"fc2.bias": f}))
    case("no_map", tensors, "index.json", index=lambda i: i.pop("weight_map"))
    case("list", tensors, "index.json", index=lambda i: i.update({"weight_map": []}))
    with open(os.path.join(good, "model.safetensors"), "rb") as f:
        whole = f.read()
    n = struct.unpack("<Q", whole[:8])[0]
    head = json.loads(whole[8:8 + n])

    def broken(what, content, *needles):
        os.makedirs(model.path(what))
        with open(model.path(what) + "/model.safetensors", "wb") as f:
            f.write(content)
        refused(model, what, ["--load", model.path(what)], what + "/model.safetensors", *needles)

    def with_head(change):
        changed = json.loads(json.dumps(head))
        change(changed)
        text = json.dumps(changed).encode()
        return struct.pack("<Q", len(text)) + text + whole[8 + n:]

    for size in (0, 7, 8, 8 + n // 2, 8 + n, len(whole) - 1):
        broken(f"cut_{size}", whole[:size])
    broken("longer", whole + b"\0")
    broken("huge_header", struct.pack("<Q", 2**63) + whole[8:])
    broken("overlap", with_head(lambda h: h["fc1.bias"].update(data_offsets=h["fc2.bias"]["data_offsets"])))
    broken("outside", with_head(lambda h: h["fc1.bias"].update(data_offsets=[2**62, 2**62 + 4])))
    broken("overflow", with_head(lambda h: h["fc1.bias"].update(shape=[2**40, 2**40])))
    check_names(model, good)


def check_names(model, good):
    """Names files that do not fit, and the folder to write to."""
    def names(what, change, *needles):
        changed = json.loads(json.dumps(model.names))
        change(changed["params"])
        refused(model, what, ["--load", good, *model.names_file(what, changed)], what + ".names.json", *needles)

    parts = {"axis": 0, "parts": ["b1", "b2"]}
    names("no_entry", lambda p: p.pop("b1"), "there is no name for the parameter 'b1'")
    names("twice", lambda p: p["b1"].update(name="fc2.bias"), "'fc2.bias' is the name of 'b1' and of 'b2'")
    names("alone", lambda p: p["b1"].update(fused=parts), "are not stored as parts of one weight")
    names("no_part", lambda p: p["b1"].update(fused={"axis": 0, "parts": ["b1", "b7"]}), "the part 'b7' is no parameter")
    names("same_part", lambda p: p["b1"].update(fused={"axis": 0, "parts": ["b1", "b1"]}), "parts of one weight")
    names("turns", lambda p: p["b1"].update(axes=["3*hidden"]), "3 is no dim")
    names("zero", lambda p: p["b1"].update(axes=["0*hidden"]), "expected 1 to 8 dims")
    names("brace", lambda p: p["w1"].update(stored={"name": "w.{hidden", "axes": ["pixels"]}), "expected one '{dim}'")
    names("other_dim", lambda p: p["w1"].update(stored={"name": "w.{classes}", "axes": ["pixels"]}), "axes")
    names("many", lambda p: p["w1"].update(tied=["x"], stored={"name": "w.{hidden}", "axes": ["pixels"]}), "is tied")
    nowhere = model.path("m.json")
    with open(model.file, encoding="utf-8") as f, open(nowhere, "w", encoding="utf-8") as g:
        g.write(f.read())
    code, _, err = call(dtrun, "run", nowhere, "--steps", "0", "--save-hf", model.path("never"))
    if code != 2 or "there is no names file beside" not in err:
        fail(f"no names file: exit {code}: {err}")
    held = model.path("held")
    os.makedirs(held)
    with open(held + "/model.safetensors.index.json", "w", encoding="utf-8") as f:
        f.write('{"files": []}')
    code, _, err = model.run("--steps", "0", "--save-hf", held)
    if code != 2 or "has no weight_map" not in err or os.listdir(held) != ["model.safetensors.index.json"]:
        fail(f"an index of another kind: exit {code}: {err}: {os.listdir(held)}")


def mutate(data, rng):
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data))
        kind = rng.randrange(6)
        digits = [i for i, c in enumerate(data) if chr(c).isdigit()]
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at:at + rng.randint(1, 40)] = b""
        elif kind == 2:
            data[at:at] = data[rng.randrange(len(data)):][:rng.randint(1, 40)]
        elif kind < 5 and digits: # another number
            data[rng.choice(digits)] = rng.choice(b"0123456789")
        else:
            data[at:at + 1] = rng.choice([b"0", b"9", b"-", b"{", b"]", b'"', b"\\", b"\xff", b"1e9"])
        data = data or bytearray(b"x")
    return bytes(data)


def check_mutations(place):
    """300 broken files: headers, indexes, names files. Loaded all the same, or one line that names a file of ours."""
    model, rng = Model("mlp_digits", place), random.Random(36)
    tensors = typed(theirs_of(model.names, model.params, model.dims_of), "F32")
    folder = write_folder(model.path("folder"), tensors, 2)
    model.names_file("mutated", model.names)
    index, part, names = (os.path.join(folder, "model.safetensors.index.json"),
                          os.path.join(folder, "model-00001-of-00002.safetensors"), model.path("mutated.names.json"))
    refusals = 0
    model.must("--steps", "0", "--load", folder, "--names", names, "--save-hf", model.path("whole"))
    for i in range(300):
        file = (index, part, names)[i % 3]
        with open(file, "rb") as f:
            whole = f.read()
        n = 8 + struct.unpack("<Q", whole[:8])[0] if file == part else len(whole)
        with open(file, "wb") as f:
            f.write(mutate(whole[:n], rng) + whole[n:])
        out = model.path("out")
        code, stdout, err = model.run("--steps", "0", "--load", folder, "--names", names, "--save-hf", out)
        with open(file, "wb") as f:
            f.write(whole)
        lines = [line for line in err.splitlines() if not line.startswith("warn ")]
        if code == 2:
            refusals += 1
            if len(lines) != 1 or not lines[0].startswith(f"dtrun: {place}") or os.path.exists(out):
                fail(f"mutation {i} of {file}: {err}, written: {os.path.exists(out)}")
        elif code != 0 or lines:
            fail(f"mutation {i} of {file}: exit {code}: {err}")
        if os.path.exists(out):
            for name in os.listdir(out):
                os.remove(os.path.join(out, name))
            os.rmdir(out)
    print(f"{refusals} of 300 refused")
    if refusals < 200:
        fail("too few mutations were refused")


def main():
    with tempfile.TemporaryDirectory() as place:
        what = sys.argv[3]
        if what == "refusals":
            check_tied(place)
            check_others(place)
            check_refusals(place)
        elif what == "mutations":
            check_mutations(place)
        elif what == "folders":
            check_folders(place)
        else:
            check_model(what, place)
    sys.exit(1 if failures else 0)


main()
