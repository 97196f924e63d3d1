#!/usr/bin/env python3
"""dtplan export: what leaves says what the plan says, and what comes back gives the plan's layouts.

For a model on x:2;y:2 and plans of mode rules and tensor (every legal baseline, the optimum):
  placements  fits its schema; every parameter is in it once; shapes are those of the model; bytes per rank, computed
              from it, are those of the plan's layouts, parameter by parameter
  hf          read back with --style-file, every parameter lies as in the plan, or its name is lost
  torch       fits its schema; parallelize_module and fully_shard, told so, keep every parameter where the plan does
  jax         fits its schema; specs, in their order, and bytes per rank follow from the plan
  rules       followed, every parameter lies as in the plan, or its name is lost
Usage: export.py DTPLAN gpt_bytes|mlp_digits|refusals
"""
import json
import math
import os
import re
import subprocess
import sys
import tempfile

import export_torch

MESH = {"x": 2, "y": 2}
CASES = {
    "gpt_bytes": (["--dim", "batch=4", "--dim", "length=16", "--dim", "layers=2"], "batch:x;heads:y;d_ff:y;vocab:y"),
    "mlp_digits": (["--dim", "batch=8", "--dim", "classes=12"], "batch:x;hidden:y"),
}
dtplan = os.path.abspath(sys.argv[1])
failures = []


def fail(text):
    failures.append(text)
    print("FAIL: " + text)


def read(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def call(*words):
    """Exit code and standard error."""
    p = subprocess.run([dtplan] + list(words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    return p.returncode, p.stderr.decode()


def must(*words):
    code, err = call(*words)
    if code != 0:
        fail(f"{' '.join(words)}: exit {code}: {err}")
    return code == 0


def validator(kind):
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        return None
    return Draft202012Validator(read(f"docs/formats/{kind}.schema.json"))


SCHEMAS = {form: validator(kind) for form, kind in
           (("placements", "placements"), ("torch", "torch"), ("jax", "jax"), ("hf", "tp_plan"), ("rules", "axis_rules"))}


# ---- the model and the plan, read without the tools ----

def sizes_of(model, options):
    given = dict(text.split("=") for text in options if "=" in text)
    sizes, texts = {}, {**model["dims"], **given}
    while len(sizes) < len(texts):
        for name, text in texts.items():
            words = set(re.findall(r"[A-Za-z_]\w*", str(text)))
            if name not in sizes and words <= set(sizes):
                sizes[name] = eval(str(text).replace("/", "//"), {}, dict(sizes))  # of files of this project
    return sizes


def params_of(model, sizes):
    """Parameter -> its dims."""
    out = {name: p["dims"] for name, p in model["params"].items()}
    for node in model["nodes"]:
        if "repeat" in node:
            for i in range(sizes[node["count"]]):
                for name, p in model["blocks"][node["repeat"]]["params"].items():
                    out[f"{node['as']}.{i}.{name}"] = p["dims"]
    return out


def splits_of(plan, params):
    """Parameter -> dim -> mesh dims, the outermost first."""
    if plan["mode"] == "rules":
        return {name: {d: plan["rules"][d] for d in dims if d in plan["rules"]} for name, dims in params.items()}
    out = {}
    for name in params:
        pairs = [part.split("@") for part in plan["tensors"][name].split(", ") if "@" in part]
        out[name] = {d: m.split("+") for d, m in pairs}
    return out


def local(size, parts):
    for k in parts:
        size = -(-size // k)
    return size


# ---- checks ----

def check_schema(what, form, exported):
    if SCHEMAS[form] is not None:
        for error in SCHEMAS[form].iter_errors(exported):
            fail(f"{what}: {form}: {list(error.absolute_path)}: {error.message[:200]}")


def lost_names(exported, *kinds):
    return {n for item in exported["lost"] if not kinds or item["what"] in kinds for n in item["names"]}


def entry_of(names, name):
    for ours, entry in names["params"].items():
        found = re.fullmatch(re.escape(ours).replace(r"\*", r"(\d+)"), name)
        if found:
            theirs = entry["name"]
            for number in found.groups():
                theirs = theirs.replace("*", number, 1)
            return theirs, [axis.split("*") for axis in entry["axes"]]
    return None, []


def check_axes(what, exported, names, sizes, splits):
    """Names, shapes, and the axis that each mesh dim splits, from the names file."""
    for p in exported["params"]:
        for name in p["of"][:1] if p["name"] in lost_names(exported, "parts") else p["of"]:
            theirs, axes = entry_of(names, name)
            shape = [math.prod(sizes[d] for d in axis) for axis in axes]
            kept = ["R"] * len(MESH)
            for d, ms in splits[name].items():
                for m in ms:
                    kept[list(MESH).index(m)] = f"S({[d in axis for axis in axes].index(True)})"
            if theirs != p["name"] or (len(p["of"]) == 1 and shape != p["shape"]) or kept != p["kept"]:
                fail(f"{what}: {name}: wanted {theirs} {shape} {kept}, got {p}")


def check_placements(what, exported, params, sizes, splits):
    of = [name for p in exported["params"] for name in p["of"]]
    if sorted(of) != sorted(params):
        fail(f"{what}: parameters are not those of the model: {set(of) ^ set(params)}")
        return
    total = wanted = 0
    for p in exported["params"]:
        shape = list(p["shape"])
        if math.prod(shape) != sum(math.prod(sizes[d] for d in params[name]) for name in p["of"]):
            fail(f"{what}: {p['name']}: shape {shape}")
        for m, place in zip(MESH, p["kept"]):
            if place.startswith("S"):
                axis = int(place[2:-1])
                shape[axis] = local(shape[axis], [MESH[m]])
        want = 0
        for name in p["of"]:
            want += 4 * math.prod(local(sizes[d], [MESH[m] for m in splits[name].get(d, [])]) for d in params[name])
        if 4 * math.prod(shape) != want and p["name"] not in lost_names(exported, "uneven", "parts"):
            fail(f"{what}: {p['name']}: {4 * math.prod(shape)} bytes per rank, the plan has {want}")
        total, wanted = total + 4 * math.prod(shape), wanted + want
    if total != wanted and not lost_names(exported, "uneven", "parts"):
        fail(f"{what}: {total} bytes per rank, the plan has {wanted}")


def parts_of(spec):
    return [[] if part is None else [part] if isinstance(part, str) else part for part in spec]


def check_spec(what, exported, name, spec, shape, axes):
    """axes: the mesh dims that the plan splits each axis over, the outermost first. A spec has those that divide it."""
    for size, mesh_dims, part in zip(shape, axes, parts_of(spec)):
        left = size
        even = []
        for m in mesh_dims:
            if left % MESH[m]:
                break
            even.append(m)
            left //= MESH[m]
        if part != even or (even != mesh_dims and name not in lost_names(exported, "uneven")):
            fail(f"{what}: jax: {name}: {part} of {spec}, wanted {mesh_dims}")


def check_jax(what, file, placements, names, splits, plan):
    """Every parameter once, its spec in the order of the plan's splits; values as in the placements."""
    def once(pairs):
        if len(dict(pairs)) != len(pairs):
            fail(f"{what}: jax: a name is there twice among {[name for name, _ in pairs]}")
        return dict(pairs)

    with open(file, encoding="utf-8") as f:
        exported = json.load(f, object_pairs_hook=once)
    bytes_here = bytes_there = 0
    of = {p["name"]: p["of"][0] for p in placements["params"]}
    if sorted(exported["params"]) != sorted(of):
        fail(f"{what}: jax: parameters {sorted(exported['params'])}, wanted {sorted(of)}")
    for p in placements["params"]:
        entry, (_, axes) = exported["params"][p["name"]], entry_of(names, of[p["name"]])
        check_spec(what, exported, p["name"], entry["kept"], p["shape"],
                   [[m for d in axis for m in splits[of[p["name"]]].get(d, [])] for axis in axes])
        bytes_here += 4 * math.prod(size // math.prod(MESH[m] for m in part)
                                    for size, part in zip(entry["shape"], parts_of(entry["kept"])))
        bytes_there += 4 * math.prod(local(size, [MESH[m] for m, place in zip(MESH, p["kept"]) if place == f"S({a})"])
                                     for a, size in enumerate(p["shape"]))
    if bytes_here != bytes_there and not lost_names(exported, "uneven"):
        fail(f"{what}: jax: {bytes_here} bytes per rank, the plan has {bytes_there}")
    for kind in ("params", "activations", "inputs", "outputs"):
        for p in placements[kind]:
            if p["name"] in lost_names(exported, "partial", "uneven"):
                continue
            entry = exported[kind][p["name"]]
            for key in ("kept", "read"):
                if len(entry["shape"]) != len(entry.get(key, entry["kept"])) or entry["shape"] != p["shape"]:
                    fail(f"{what}: jax: {p['name']}: {entry}")
                places = {m: f"S({a})" for a, part in enumerate(parts_of(entry.get(key, entry["kept"]))) for m in part}
                if [places.get(m, "R") for m in MESH] != p[key]:
                    fail(f"{what}: jax: {p['name']}: {key} {entry}, in the placements {p[key]}")
    for kind in ("activations", "values", "outputs"):
        for name, entry in exported[kind].items():
            text = plan.get("tensors", {}).get(name)
            if text is not None and name not in lost_names(exported, "partial", "uneven"):
                said = [part.split("@")[1].split("+") for part in text.split(", ") if "@" in part]
                if sorted(said) != sorted(filter(None, parts_of(entry["kept"]))):
                    fail(f"{what}: jax: {name}: {entry}, in the plan '{text}'")
    if lost_names(exported, "inside_module", "mesh_order"):
        fail(f"{what}: jax: lost {exported['lost']}")


def check_back(what, exported, splits, back, names):
    """Parameters that lie otherwise have to be lost by name."""
    differ = [p for p in splits if splits[p] != back[p]]
    silent = [p for p in differ if names[p] not in lost_names(exported)]
    if silent:
        fail(f"{what}: they come back in other layouts, and are not lost: "
             + "; ".join(f"{p}: {splits[p]}, back {back[p]}" for p in silent[:4]))
    return len(splits) - len(differ)


class Model:
    def __init__(self, name, here):
        self.file, self.here = f"models/{name}.json", here
        self.options, self.rules = CASES[name]
        model = read(self.file)
        self.sizes = sizes_of(model, self.options)
        self.params = params_of(model, self.sizes)
        self.plan_words = ["plan", self.file, "--mesh", "x:2;y:2", "--machine", "models/machines/a100_8.json",
                           "--precision", "f32"] + self.options
        self.same = {"hf": 0, "rules": 0}

    def path(self, name):
        return os.path.join(self.here, name)

    def plan(self, name, *options):
        file = self.path(name + ".plan")
        return file if must(*self.plan_words, *options, "-o", file) else None

    def export(self, what, plan, form, *options):
        file = self.path(f"{form}.json")
        if not must("export", self.file, plan, "--as", form, "-o", file, *options):
            return None
        exported = read(file)
        check_schema(what, form, exported)
        return exported

    def check_forms(self, what, plan, *options):
        return {form: self.export(what, plan, form, *options) for form in SCHEMAS}

    def check(self, what, plan, *options):
        """Returns the forms. Options: --names FILE."""
        splits = splits_of(read(plan), self.params)
        forms = self.check_forms(what, plan, *options)
        if None in forms.values():
            return forms
        check_placements(what, forms["placements"], self.params, self.sizes, splits)
        modules = not lost_names(forms["placements"], "fused", "parts")
        for text in export_torch.findings(forms["torch"], forms["placements"], forms["hf"], modules):
            fail(f"{what}: torch: {text}")
        predicted = read(plan)["predicted"]
        if forms["torch"]["predicted"] != {key: predicted[key] for key in ("peak_bytes", "collectives")}:
            fail(f"{what}: torch: predicted {forms['torch']['predicted']}, the plan has {predicted}")
        theirs = options[1] if options else self.file.replace(".json", ".names.json")
        check_axes(what, forms["placements"], read(theirs), self.sizes, splits)
        check_jax(what, self.path("jax.json"), forms["placements"], read(theirs), splits, read(plan))
        self.check_points(what, forms["jax"])
        names = {ours: p["name"] for p in forms["placements"]["params"] for ours in p["of"]}
        back = self.plan("back", "--style-file", self.path("hf.json"), *options)
        if back is not None:
            self.same["hf"] += check_back(what + ": hf", forms["hf"], splits, splits_of(read(back), self.params), names)
        rules = dict(forms["rules"]["rules"])
        text = ";".join(f"{d}:{m}" for d, ms in rules.items() for m in ms)
        must("show", self.file, "--mesh", "x:2;y:2", "--rules", text, "--precision", "f32", *self.options)
        back = {name: {d: rules[d] for d in dims if d in rules} for name, dims in self.params.items()}
        self.same["rules"] += check_back(what + ": rules", forms["rules"], splits, back, names)
        return forms

    def check_points(self, what, exported):
        """Every node of the model is a point that a program can constrain."""
        model = read(self.file)
        nodes = [node["id"] for node in model["nodes"] if "id" in node]
        for node in model["nodes"]:
            for i in range(self.sizes[node["count"]] if "repeat" in node else 0):
                nodes += [f"{node['as']}.{i}.{inner['id']}" for inner in model["blocks"][node["repeat"]]["nodes"]]
        points = [name for kind in ("activations", "values", "outputs") for name in exported[kind]]
        missing = set(nodes) - set(points) - lost_names(exported, "partial")
        if missing or set(points) - set(nodes) or len(points) != len(set(points)):
            fail(f"{what}: jax: missing {missing}, unknown {set(points) - set(nodes)}")

    def check_all(self):
        free = self.plan("free", "--mode", "tensor")
        self.check("optimum", free)
        forms = self.check("rules", self.plan("rules", "--rules", self.rules))
        logits = {"logits"} if "head" in forms["hf"]["tp_plan"] else set()  # transformers gives whole ones
        if forms["rules"]["lost"] or lost_names(forms["hf"]) - {"text", "images", "labels"} != logits:
            fail(f"rules mode: lost {forms['rules']['lost']} {forms['hf']['lost']}")
        if logits and (forms["hf"]["tp_plan"]["head"] != "colwise_gather_output" or not lost_names(forms["hf"], "output")):
            fail(f"rules mode: hf: {forms['hf']['tp_plan']}")
        n = 0
        for name, b in read(free)["baselines"].items():
            if b["legal"]:
                options = [w for s in b.get("styles", []) for w in ("--style", s)]
                options = options or ["--rules", b["rules"]]
                forms = self.check(name, self.plan("baseline", *options))
                self.check_reads(name, forms)
                self.check_buckets(name, forms["torch"])
                n += 1
        if n < 6 or 0 in self.same.values():
            fail(f"{n} baselines; {self.same} parameters came back")
        print(f"{n} baselines; parameters that came back as they were: {self.same} of {(n + 2) * len(self.params)} each")

    def check_reads(self, name, forms):
        """FSDP: the forward pass reads what is kept split as a whole; data parallel: parameters are whole."""
        exported = forms["placements"]
        kept, reads = ({place for p in exported["params"] for place in p[key]} for key in ("kept", "read"))
        if name == "zero3" and (reads != {"R"} or kept == {"R"}):
            fail(f"zero3: kept {kept}, read {reads}")
        if name == "data_parallel" and (kept | reads != {"R"} or exported["inputs"][0]["kept"] != ["S(0)", "S(0)"]):
            fail(f"data_parallel: kept {kept}, read {reads}, {exported['inputs']}")
        if (name in ("zero1", "zero2")) != bool(lost_names(exported, "states")) and "megatron" not in name:
            fail(f"{name}: states: {exported['lost']}")
        for form in ("rules", "hf"):
            if lost_names(forms[form], "states") != lost_names(exported, "states"):
                fail(f"{name}: {form}: states: {forms[form]['lost']}")

    def check_buckets(self, name, exported):
        """Data parallelism reduces every gradient in a bucket; small layers of FSDP are one group."""
        torch = exported["torch"]
        reduced = {n for bucket in torch["gradient_buckets"] for n in bucket}
        if name == "data_parallel" and reduced != {p["name"] for p in exported["params"]}:
            fail(f"{name}: buckets {torch['gradient_buckets']}")
        if name == "zero3" and self.file.endswith("gpt_bytes.json") and \
                (torch["fully_shard"]["modules"] != [["layers.0", "layers.1"]] or reduced):
            fail(f"{name}: {torch['fully_shard']}, {torch['gradient_buckets']}")

    def check_variants(self):
        """Precision, microbatches, recomputation, and a split that does not divide."""
        options = ["--style", "**: data(x)", "--precision", "bf16", "--microbatches", "2"]
        remat = ["--remat", "all"] if self.file.endswith("gpt_bytes.json") else []
        plan = self.plan("variant", *options, *remat)
        exported = self.export("variant", plan, "placements")
        check_placements("variant", exported, self.params, self.sizes, splits_of(read(plan), self.params))
        if (exported["precision"], exported["microbatches"], exported["microbatch_dim"]) != ("bf16", 2, "batch"):
            fail("variant: precision, microbatches")
        if bool(exported["recomputed"]) != bool(remat):
            fail(f"variant: recomputed {exported['recomputed']}")
        batch = exported["inputs"][0]["shape"][0]
        if batch != self.sizes["batch"]:
            fail(f"variant: the batch of an input is {batch}")

    def check_fused(self):
        """Queries, keys and values in one weight of theirs."""
        if not self.file.endswith("gpt_bytes.json"):
            return
        names = read("models/gpt_bytes.names.json")
        parts = [f"layers.*.attn.w{x}" for x in "qkv"]
        for part in parts:
            names["params"][part] = {"name": "layers.*.attn.qkv.weight", "axes": ["heads*d_head", "d_model"],
                                     "fused": {"axis": 0, "parts": parts}}
        file = self.path("fused.names.json")
        with open(file, "w", encoding="utf-8") as f:
            json.dump(names, f)
        plan = self.plan("fused", "--style", "layers.*.attn.{wq,wk,wv,bq,bv}: colwise(y)",
                         "--style", "layers.*.attn.{wo,bo}: rowwise(y)")
        forms = self.check("fused", plan, "--names", file)
        # packed_colwise of transformers cuts two parts
        hf = forms["hf"]["tp_plan"]
        if (hf.get("layers.*.attn.qkv"), hf.get("layers.*.attn.out")) != ("replicate", "rowwise_split_input") or \
                "layers.0.attn.qkv.weight" not in lost_names(forms["hf"], "style"):
            fail(f"fused: {hf} {forms['hf']['lost']}")
        plan = self.plan("apart", "--style", "layers.*.attn.{wq,wk,bq}: colwise(y)")
        if not lost_names(self.check("apart", plan, "--names", file)["placements"], "parts"):
            fail("apart: parts that lie differently are not lost")
        if lost_names(forms["placements"], "fused") != {f"layers.{i}.attn.qkv.weight" for i in range(2)}:
            fail(f"fused: lost {forms['placements']['lost']}")
        fused = {f"layers.{i}.attn.qkv.weight" for i in range(2)}
        for freeze, whole in (("layers.*.attn.wq", False), ("layers.*.attn.{wq,wk,wv}", True)):
            plan = self.plan("frozen", "--freeze", freeze, "--style", "layers.*.attn.{wo,bo}: rowwise(y)")
            for form in ("placements", "torch", "jax"):
                exported = self.export("frozen", plan, form, "--names", file)
                params = exported["params"].items() if form == "jax" else ((p["name"], p) for p in exported["params"])
                frozen, lost = {name for name, p in params if p.get("frozen")}, lost_names(exported, "frozen")
                if (frozen, lost) != ((fused, set()) if whole else (set(), fused)):
                    fail(f"--freeze {freeze}, {form}: frozen {frozen}, lost {lost}")


def pinned(model):
    """An inner factor, mesh dims against their order, a reader elsewhere: each in lost, by name."""
    if not model.file.endswith("gpt_bytes.json"):
        return
    for kind, pin in (("inner_factor", "layers.0.attn.wq: d_head@x"), ("mesh_order", "layers.0.attn.wq: heads@y+x"),
                      ("uneven", "layers.0.mlp.b2: d_model@x")):
        options = ["--dim", "d_head=1", "--dim", "heads=3"] if kind == "uneven" else []
        plan = model.plan("pinned", "--pin", pin, *options)
        exported = model.export(kind, plan, "placements")
        names = {"layers.0.attn.q.weight", "layers.0.mlp.down.bias"}
        if not lost_names(exported, kind) & names:
            fail(f"{kind}: not lost: {exported['lost']}")
    check_torch_pinned(model)


def check_torch_pinned(model):
    """What modules do not say is for DTensor's dispatch; recomputed blocks, and a parameter kept elsewhere than read."""
    for what, options, modules in (
            ("sequence inside", ["--pin", "layers.0.mlp.act: length@y"], False),
            ("context", ["--style", "layers.*.attn: context(y, gather)", "--pin", "x0: length@y"], False),
            ("bias apart", ["--style", "**: data(x)", "--pin", "ln_f.beta: d_model@y"], True),
            ("table apart", ["--style", "**: data(x+y)", "--pin", "wpe: length@x, d_model@y", "--pin", "wpe at x0: replicated"], True)):
        plan = model.plan("pinned", *options)
        forms = model.check_forms(what, plan)
        for text in export_torch.findings(forms["torch"], forms["placements"], forms["hf"], modules):
            fail(f"{what}: torch: {text}")
        moved = set(forms["torch"]["torch"]["redistribute"])
        if modules and moved != {"bias apart": {"ln_f.bias"}, "table apart": {"wpe.weight"}}[what]:
            fail(f"{what}: redistributed: {moved}")
    exported = model.export("remat", model.plan("pinned", "--style", "**: data(x)", "--remat", "layer:1-1"), "torch")
    if exported["torch"]["checkpoint"] != ["layers.1"]:
        fail(f"remat: {exported['torch']['checkpoint']}")
        model.export(kind, plan, "jax")
        check_jax(kind, model.path("jax.json"), exported, read("models/gpt_bytes.names.json"),
                  splits_of(read(plan), model.params), read(plan))


# ---- bad input ----

ENTRY = '{"name": "a.weight", "axes": ["pixels", "hidden"]}'
NAMES = '{"format": "dtp.names/1", "framework": "torch", "params": {%s}}'
OTHERS = ', "b1": {"name": "b.1", "axes": ["hidden"]}, "w2": {"name": "c", "axes": ["hidden", "classes"]}'
BAD_NAMES = [  # text of a names file, words of the error
    ("", "expected"), ("[]", "expected an object"), ("{}", "format"),
    (NAMES % ('"w1": ' + ENTRY), "there is no name for the parameter 'b1'"),
    (NAMES % '"w1": {"name": "a", "axes": ["pixels"]}', "every dim of 'w1' once"),
    (NAMES % '"w1": {"name": "a", "axes": ["pixels", "pixels*hidden"]}', "every dim of 'w1' once"),
    (NAMES % '"w1": {"name": "a", "axes": ["pixels", "nosuch"]}', "every dim of 'w1' once"),
    (NAMES % '"w1": {"name": "a", "axes": ["pixels*"]}', "expected 1 to 8 dims"),
    (NAMES % '"w1": {"name": "", "axes": []}', "expected a name"),
    (NAMES % '"w1": {"name": "a.*", "axes": []}', "has 1 numbers"),
    (NAMES % '"w1": {"name": "a"}', "axes"), (NAMES % '"w1": {"axes": []}', "name"), (NAMES % '"w1": 3', "expected"),
    (NAMES % '"w1": {"name": "a", "axes": "pixels"}', "expected"), (NAMES % '"w1": {"name": 3, "axes": []}', "expected"),
    (NAMES % '"w1": {"name": "a", "axes": ["a","a","a","a","a","a","a","a","a"]}', "9 axes, at most 8"),
    (NAMES % '"w1": {"name": "a", "axes": ["pixels", "hidden"], "fused": {"axis": 2, "parts": ["w1"]}}', "axis"),
    (NAMES % '"w1": {"name": "a", "axes": ["pixels", "hidden"], "fused": {"axis": 0, "parts": ["w2"]}}', "not among"),
    (NAMES % '"w1": {"name": "a", "axes": ["pixels", "hidden"], "more": 1}', "more"),
    (NAMES % ('"w1": {"name": "b.1", "axes": ["pixels", "hidden"]}' + OTHERS), "'b.1' is the name of 'w1' and of 'b1'"),
]


def refusals(here):
    model, out = "models/mlp_digits.json", os.path.join(here, "out.json")
    plan, names = os.path.join(here, "a.plan"), os.path.join(here, "n.json")
    must("plan", model, "--mesh", "x:2;y:2", "--machine", "models/machines/a100_8.json", "--rules", "batch:x", "-o", plan)
    cases = [(["export", model, plan, "-o", out], "--as FORM is missing"),
             (["export", model, plan, "--as", "torchh", "-o", out], "there is no form 'torchh'; there are placements"),
             (["export", model, "-o", out], "argument"),
             (["export", "models/gpt_bytes.json", plan, "--as", "hf", "-o", out], "a.plan"),
             (["export", model, model, "--as", "hf", "-o", out], "mlp_digits.json"),
             (["export", model, plan, "--as", "hf", "--names", "absent.json", "-o", out], "absent.json")]
    cases += [(["export", model, plan, "--as", "placements", "--names", names, "-o", out], (text, words))
              for text, words in BAD_NAMES]
    for command, words in cases:
        if isinstance(words, tuple):
            with open(names, "w", encoding="utf-8") as f:
                f.write(words[0])
            words = words[1]
        code, err = call(*command)
        if code != 2 or words not in err or err.count("\n") != 1:
            fail(f"{' '.join(command)}: exit {code}, '{err.strip()}' without '{words}'")
        if names in command and "n.json" not in err:
            fail(f"the error does not name the file: {err}")
        if os.path.exists(out):
            fail(f"{' '.join(command)}: something is written")
            os.remove(out)
    for text, words in (('{"tp_plan": 3}', "expected an object"), ('{"tp_plan": {}, "mesh_dim": 3}', "mesh_dim"),
                        ('{"tp_plan": {"fc1": "colwise"}, "mesh_dim": "z"}', "has no dim 'z'")):
        with open(names, "w", encoding="utf-8") as f:
            f.write(text)
        code, err = call("plan", model, "--mesh", "x:2;y:2", "--style-file", names, "-o", out)
        if code != 2 or words not in err or os.path.exists(out):
            fail(f"--style-file {text}: exit {code}, {err}")
    fused = read("models/mlp_digits.names.json")
    fused["params"]["w1"]["fused"] = {"axis": 0, "parts": ["w1"]}
    with open(names, "w", encoding="utf-8") as f:
        json.dump(fused, f)
    style = os.path.join(here, "style.json")
    for text, extra, words in (('{"fc1": "colwise"}', ["--names", names], "packed_colwise cuts each"),
                               ('{"fc1": "packed_colwise"}', [], "which a names file"),
                               ('{"fc1": "packed_colwise"}', ["--names", names], None)):
        with open(style, "w", encoding="utf-8") as f:
            f.write(text)
        code, err = call("plan", model, "--mesh", "tp:2", "--style-file", style, *extra)
        if (code != 0) != (words is not None) or (words or "") not in err:
            fail(f"--style-file {text} {extra}: exit {code}, {err}")
    print(f"{len(cases) + 5} refusals")


def main():
    with tempfile.TemporaryDirectory() as here:
        if sys.argv[2] == "refusals":
            refusals(here)
        else:
            model = Model(sys.argv[2], here)
            model.check_all()
            model.check_variants()
            model.check_fused()
            pinned(model)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
