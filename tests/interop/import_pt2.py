#!/usr/bin/env python3
"""Programs of tests/interop/pt2 (make_pt2.py): imported, run on one rank and planned on x:2;y:2, against what
PyTorch gave; and what was recognised in them.

usage: import_pt2.py DTPLAN DTRUN NAME FOLDER"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

# attention, causal, norms, rope, gelu, blocks, instances
RECOGNISED = {
    "gpt": (2, 2, 5, 0, 2, 1, 2),
    "llama": (2, 2, 5, 4, 0, 1, 2),
    "llama_loss": (2, 2, 5, 4, 0, 1, 2),
    "qwen3": (2, 2, 9, 4, 0, 1, 2),
    "bert": (2, 0, 5, 0, 2, 1, 2),
    "vit": (2, 0, 5, 0, 2, 1, 2),
    "t5": (6, 0, 12, 0, 0, 2, 4),
    "dlrm": (0, 0, 0, 0, 0, 0, 0),
    "nano": (2, 2, 5, 0, 0, 1, 2),
    "grouped": (2, 2, 3, 0, 0, 1, 2),
    "convs": (0, 0, 0, 0, 1, 0, 0),
    "pyramid": (0, 0, 0, 0, 0, 0, 0),
    "stem": (0, 0, 1, 0, 0, 0, 0),
    "experts": (0, 0, 0, 0, 0, 0, 0),
    "chunks": (2, 1, 0, 4, 0, 0, 0),
    "resized": (0, 0, 0, 0, 0, 0, 0),
    "pieces": (1, 0, 1, 0, 0, 0, 0),
    "shifts": (0, 0, 0, 0, 0, 0, 0),
    "encoding": (0, 0, 0, 0, 0, 0, 0),
    "labels": (0, 0, 0, 0, 0, 0, 0),
    "adapters": (0, 0, 1, 0, 3, 1, 3),
    "tables": (0, 0, 0, 0, 0, 1, 2),
    "writes": (0, 0, 0, 0, 0, 0, 0),
    "scores": (5, 1, 0, 0, 0, 0, 0),
    "losses": (0, 0, 0, 0, 0, 0, 0),
    "pairs": (0, 0, 0, 0, 0, 0, 0),
    "indices": (0, 0, 0, 0, 0, 0, 0),
    "hidden": (8, 0, 0, 0, 0, 0, 0),
    "sizes": (0, 0, 0, 0, 0, 0, 0),
    "routed": (0, 0, 1, 0, 1, 0, 0),
    "rows": (0, 0, 0, 0, 0, 0, 0),
    "bounds": (0, 0, 0, 0, 0, 0, 0),
}
# inputs whose integers are below the size of a table: ops between them only move elements
BELOW = {"labels": {"at", "shifted", "padded", "rolled", "joined", "stacked", "turned", "taken"}}
KEYS = ("parameters", "attention", "causal", "norms", "rope", "gelu", "blocks", "repeats")


def run(*args, code=0):
    p = subprocess.run(args, capture_output=True, text=True)
    if p.returncode != code:
        sys.exit(f"{' '.join(args)}: exit {p.returncode}, not {code}\n{p.stdout}{p.stderr}")
    return p.stdout


def machine_of_4(path):
    """A machine for meshes of four ranks, whatever this one is."""
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "models", "machines", "cpu_2.json"), encoding="utf-8") as f:
        machine = json.load(f)
    machine["levels"][0]["size"] = 4
    with open(path, "w", encoding="utf-8") as f:
        json.dump(machine, f)
    return path


def floats(path):
    """The numbers of an .npy file."""
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack_from("<H", data, 8)
    kind, size = {"<f4": ("f", 4), "<i8": ("q", 8), "|b1": ("?", 1)}[eval(data[10 : 10 + n])["descr"]]
    return struct.unpack(f"<{(len(data) - 10 - n) // size}{kind}", data[10 + n :])


def cut(path, out, sizes):
    """The first sizes[0] x sizes[1] numbers of an .npy file of integers."""
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack_from("<H", data, 8)
    head, body = eval(data[10 : 10 + n]), data[10 + n :]
    assert head["descr"] == "<i8" and len(head["shape"]) == 2, head
    rows = [body[8 * r * head["shape"][1] :][: 8 * sizes[1]] for r in range(sizes[0])]
    text = str({**head, "shape": sizes}).ljust(n - 1) + "\n"
    with open(out, "wb") as f:
        f.write(data[:10] + text.encode()[-n:] + b"".join(rows))


def compare(what, got, want):
    got, want = (floats(x) if isinstance(x, str) else x for x in (got, want))
    top = max(map(abs, want)) or 1
    worst = max(abs(a - b) for a, b in zip(got, want)) if len(got) == len(want) else float("inf")
    if not worst <= 1e-4 * top:
        sys.exit(f"{what}: {len(got)} numbers (expected {len(want)}), differ by {worst}, largest {top}")
    print(f"{what}: {len(got)} numbers differ by at most {worst / top:.1e} of the largest")


def main(dtplan, dtrun, name, folder):
    with tempfile.TemporaryDirectory() as tmp:
        path = lambda *parts: os.path.join(tmp, *parts)
        source, model, weights = os.path.join(folder, name + ".pt2"), path("m.json"), path("w.safetensors")
        report = json.loads(run(dtplan, "import", source, "-o", model, "--weights", weights, "--json"))
        got, want = tuple(report[k] for k in KEYS), RECOGNISED[name]
        with zipfile.ZipFile(source) as z:
            config = json.loads(z.read(f"{name}/data/weights/model_weights_config.json"))["config"]
            tests = [n for n in z.namelist() if n.startswith(f"{name}/test/")]
            z.extractall(tmp, tests)
        sizes = {}
        for c in config.values():  # tied weights are one
            if c["is_param"]:
                sizes[c["path_name"]] = 1
                for s in c["tensor_meta"]["sizes"]:
                    sizes[c["path_name"]] *= s["as_int"]
        want = (sum(sizes.values()),) + want
        if got != want:
            sys.exit(f"{name}: {dict(zip(KEYS, got))}, not {want}")
        with open(model) as f:
            m = json.load(f)
        below = {i for i, of in m["inputs"].items() if "below" in of}
        if below != BELOW.get(name, below):
            sys.exit(f"{name}: a bound on {sorted(below)}, not on {sorted(BELOW[name])}")
        outputs = ([m["train"]["loss"]] if "train" in m else []) + m["outputs"]
        feeds = [a for n in m["inputs"] for a in ("--feed", f"{n}={path(name, 'test', 'in.' + n + '.npy')}")]
        fetch = [a for i, o in enumerate(outputs) for a in ("--fetch", f"{o}={path(f'{i}.npy')}")]
        run(dtplan, "plan", model, "--mesh", "x:2;y:2", "--machine", machine_of_4(path("cpu_4.json")), "-o", path("plan"))
        for what, more in (("one rank", []), ("x:2;y:2", ["--plan", path("plan"), "--comm", "sim"])):
            forward = [] if more and "train" in m else ["--forward"]  # a plan is of the training graph
            run(dtrun, "run", model, *forward, "--load", weights, *feeds, *fetch, *more)
            for i, o in enumerate(outputs):
                compare(f"{what}: {o}", path(f"{i}.npy"), path(name, "test", f"out.{i}.npy"))
            gradients(dtrun, model, weights, feeds, more, path, [t for t in tests if "/test/grad." in t])
            run(dtrun, "verify", model, *(["--plan", path("plan")] if more else []), *(["--comm", "sim"] if more else []))
        exports(dtplan, model, path("plan"), {n for n, c in config.items() if c["is_param"]}, len(sizes))
        if RECOGNISED[name][-2] > 0 and "length" in m["dims"]:
            fully_sharded(dtplan, model, path("plan"), m)
        if name == "sizes":
            other_sizes(dtrun, model, weights, m, path)
        os.remove(path("m.names.json"))  # beside its names file the model was read above
        run(dtrun, "run", model, "--forward", "--load", weights, *feeds, *fetch)
        compare(f"without names: {outputs[-1]}", fetch[-1].split("=")[1], path(name, "test", f"out.{len(outputs) - 1}.npy"))
        if name == "llama_loss":
            as_folder(dtplan, model, path)
        if report["attention"] and report["attention"] == report["causal"]:
            shorter(dtrun, model, weights, m, path, os.path.join(name, "test"), outputs[-1], fetch[-2:])


def gradients(dtrun, model, weights, feeds, more, path, files):
    """Gradients of the loss are those of PyTorch."""
    names = [os.path.basename(f)[5:-4] for f in files]
    fetch = [a for n in names for a in ("--fetch", f"grad.{n}={path('grad.' + n + '.npy')}")]
    if names:
        run(dtrun, "run", model, "--load", weights, *feeds, *fetch, *more)
    for n, f in zip(names, files):
        compare(f"gradient of {n}", path("grad." + n + ".npy"), path(f))


def other_sizes(dtrun, model, weights, m, path):
    """x of 6 x 12 x 6 ones: numbers that are made of its sizes are those of 6 and 12."""
    n, l, d = 6, 12, 6
    head = str({"descr": "<f4", "fortran_order": False, "shape": (n, l, d)}).ljust(117) + "\n"
    with open(path("ones.npy"), "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack("<f", 1) * (n * l * d))
    dims = [a for name, size in zip(m["inputs"]["x"]["dims"], (n, l)) for a in ("--dim", f"{name}={size}")]
    fetch = [a for i, o in enumerate(m["outputs"]) for a in ("--fetch", f"{o}={path(f'{i}.npy')}")]
    run(dtrun, "run", model, "--forward", "--load", weights, "--fetch", f"w={path('w.npy')}", *dims, "--feed",
        f"x={path('ones.npy')}", *fetch)
    of = [lambda w: w * l**-0.5, lambda w: w / l, lambda w: w / l**0.5, lambda w: w / n, lambda w: w + l, lambda w: w / n,
          lambda w: w * (l // 2), lambda w: w * l, lambda w: w * (1 - l), lambda w: w > l - n, lambda w: w if w > 0 else n]
    for i, f in enumerate(of):
        compare(f"{n} x {l}: {m['outputs'][i]}", path(f"{i}.npy"), [f(w) for w in floats(path("w.npy"))] * (n * l if i != 5 else n))


def exports(dtplan, model, plan, names, n):
    """The plan leaves in every form under the names of the program's parameters, tied ones under one."""
    for form in ("placements", "torch", "jax", "hf", "rules"):
        params = json.loads(run(dtplan, "export", model, plan, "--as", form)).get("params", [])
        got = {p if form == "jax" else p["name"] for p in params}
        if form not in ("hf", "rules") and not (got <= names and len(got) == n):
            sys.exit(f"--as {form}: {len(got)} parameters, not {n}: {sorted(got ^ names)}")


def fully_sharded(dtplan, model, plan, m):
    """Batch and parameters of models with layers split over all ranks are modules of PyTorch, also where a token is
    repeated for each row or the loss pads its labels; no module is a group twice. Before a loss there are so many rows
    that logits are not gathered."""
    length = min(m["dims"].get("positions", 2048), 2048)
    sizes = ["--dim", f"batch={131072 // length}", "--dim", f"length={length}"] if "train" in m else []
    run(dtplan, "plan", model, "--mesh", "x:2", "--style", "**: data", "--style", "**: fsdp", *sizes, "-o", plan)
    torch = json.loads(run(dtplan, "export", model, plan, "--as", "torch"))["torch"]
    groups = torch["fully_shard"]["modules"] if torch["fully_shard"] else [0, 0]
    groups = [name for group in groups for name in (group if isinstance(group, list) else [group])]
    if torch["form"] != "modules" or torch["data_dims"] != ["x"] or len(groups) != len(set(groups)):
        sys.exit(f"fsdp: {torch}")


def shorter(dtrun, model, weights, m, path, tests, output, fetch):
    """No view pins batch and length: the first rows and positions of a causal model are what they were."""
    cut(path(tests, "in.ids.npy"), path("cut.npy"), (2, 8))
    run(dtrun, "run", model, "--forward", "--load", weights, "--feed", f"ids={path('cut.npy')}", *fetch,
        "--dim", "batch=2", "--dim", "length=8")
    vocab, last = m["dims"]["vocab"], len(m["outputs"]) - (0 if "train" in m else 1)
    whole = floats(path(tests, f"out.{last}.npy"))
    rows = [x for b in range(2) for x in whole[b * 12 * vocab :][: 8 * vocab]]
    compare(f"2 x 8: {output}", fetch[1].split("=")[1], rows)


def as_folder(dtplan, model, path):
    """The plan of a program is as good as that of the folder of such a model: time and peak within 1 %."""
    with open(model) as f:
        d = json.load(f)["dims"]
    os.mkdir(path("folder"))
    with open(path("folder", "config.json"), "w") as f:
        json.dump({"model_type": "llama", "vocab_size": d["vocab"], "hidden_size": d["d_model"],
                   "intermediate_size": d["d_ff"], "num_hidden_layers": 2, "num_key_value_heads": d["kv_heads"],
                   "num_attention_heads": d["kv_heads"] * d["group"], "max_position_embeddings": 4096,
                   "rms_norm_eps": 1e-6, "rope_theta": 5e4}, f)
    run(dtplan, "import", path("folder"), "-o", path("folder.json"))
    one, other = (json.loads(run(dtplan, "plan", m, "--mesh", "x:2", "--machine", "cpu_2", "--dim", "batch=64", "--dim",
                                 "length=2048", "--outputs", "none", "-o", path("plan"), "--json"))["predicted"]
                  for m in (model, path("folder.json")))
    for key in ("step_time_s", "peak_bytes"):
        if not abs(one[key] - other[key]) <= 0.01 * other[key]:
            sys.exit(f"{key}: {one[key]} of the program, {other[key]} of the folder")
        print(f"{key}: {one[key]} of the program, {other[key]} of the folder")


if __name__ == "__main__":
    main(*sys.argv[1:])
