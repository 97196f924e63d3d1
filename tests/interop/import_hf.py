#!/usr/bin/env python3
"""dtplan import: folders of Hugging Face's transformers.

  counts     the published numbers of parameters, from the published sizes; model, names and report fit their schemas, every
             parameter has a name and axes of its dims, the model without --no-train trains, and where models/ has the
             same model, its plan has the same price
  logits     the small models of hf/ (make_hf.py): logits on one rank, and planned and split by hand on x:2, are those of transformers; what
             --save-hf writes has the bytes of the folder
  plans      the models of `counts` fit on 64 H100 in bf16
  refusals   one line that names the file, exit code 2, nothing written: for each kind of bad config.json
  mutations  the same, or a model, for 300 files with random mistakes
  docs       the tables of docs/bring-your-own-model.md are those of the templates; with --update they are written
Usage: import_hf.py DTPLAN DTRUN docs|counts|logits|plans|refusals|mutations
"""
import copy
import glob
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import textwrap

sys.path.insert(0, "tests/support")
import quarter  # noqa: E402

HERE = "tests/interop"
PUBLISHED = {
    "llama3_8b": ("llama", 8030261248), "llama3_70b": ("llama", 70553706496), "mistral_7b": ("mistral", 7241732096),
    "qwen2_7b": ("qwen2", 7615616512), "qwen3_8b": ("qwen3", 8190735360), "gemma_2b": ("gemma", 2506172416),
    "phi3_medium": ("phi3", 13960238080), "mixtral_8x7b": ("mixtral", 46702792704),
    "qwen3_30b_a3b": ("qwen3_moe", 30532122624), "gpt2": ("gpt2", 124439808), "gpt_neox_20b": ("gpt_neox", 20554567680),
    "qwen3_235b_a22b": ("qwen3_moe", 235093634560), "gpt_oss_120b": ("gpt_oss", 116829156672),
    "deepseek_v3": ("deepseek_v3", 671026419200),  # with the balancing biases, which are buffers
}
# ... of configs with nothing but a family: transformers 5.24 makes models of these sizes.
DEFAULTS = {
    "llama": 6738415616, "mistral": 7241732096, "qwen2": 12049846272, "qwen3": 12049461248, "gemma": 8537680896,
    "phi3": 3821079552, "mixtral": 46702792704, "qwen3_moe": 15350731776, "gpt2": 124439808, "gpt_neox": 20554567680,
    "gpt_oss": 116829156672, "deepseek_v3": 671026419200,
}
LONG_TO_PLAN = {"qwen3_30b_a3b", "qwen3_235b_a22b", "gpt_oss_120b", "deepseek_v3"}
dtplan, dtrun = (os.path.abspath(path) for path in sys.argv[1:3])
failures = []


# Families that parallelize_module does not say with rules over heads, d_ff and vocab: what stops it. One head of keys whose
# gradient is a sum, fused weights whose parts are split, and experts.
EXPERTS = ("mixtral", "qwen3_moe")
LATER = ("gpt_oss", "deepseek_v3", "deepseek_plain")  # experts, and attention that no style says
AGAINST = {"gemma": "layers.0.attn.q.mm", "gpt2": "transformer.h.0.attn.c_attn.weight",
           "phi3": "model.layers.0.self_attn.qkv_proj.weight", "mixtral": "model.layers.0.mlp.experts.gate_up_proj",
           "qwen3_moe": "model.layers.0.mlp.experts.gate_up_proj", "gpt_oss": "model.layers.0.mlp.experts.gate_up_proj",
           "deepseek_v3": "model.layers.1.mlp.experts.gate_up_proj",
           "deepseek_plain": "model.layers.0.mlp.experts.gate_up_proj"}
ATTENTION = {f"model.layers.*.self_attn.{name}_proj": "rowwise" if name == "o" else "colwise" for name in "qkvo"}


def fail(text):
    failures.append(text)
    print("FAIL: " + text)


def read(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def call(*words):
    p = subprocess.run(list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def must(*words):
    code, out, err = call(*words)
    if code != 0:
        fail(f"{' '.join(words)}: exit {code}: {err}")
    return out if code == 0 else None


def config_of(name):
    return read(f"{HERE}/configs/{name}/config.json")


# ---- counts ----

def check_schemas(pairs):
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        return
    for kind, value in pairs:
        for e in Draft202012Validator(read(f"docs/formats/{kind}.schema.json")).iter_errors(value):
            fail(f"{kind}: {e.json_path}: {e.message[:200]}")


def check_names(name, model, names):
    params = dict(model["params"])
    for repeat in model["nodes"]:
        if "repeat" in repeat:
            block = model["blocks"][repeat["repeat"]]
            params.update({f"{repeat['as']}.*.{p}": v for p, v in block["params"].items()})
    if set(params) != set(names["params"]):
        fail(f"{name}: names and parameters differ: {sorted(set(params) ^ set(names['params']))}")
    for p, value in params.items():
        entry = names["params"].get(p, {})
        for weight in [entry] + [entry[k] for k in ("stored",) if k in entry]:
            dims = [d for axis in weight.get("axes", []) for d in axis.split("*") if not d.isdigit()] + re.findall(r"\{(\w+)\}", weight.get("name", ""))
            if sorted(dims) != sorted(value["dims"]):
                fail(f"{name}: {p}: dims {value['dims']}, named {dims}")


def counts(here):
    for name, (family, parameters) in PUBLISHED.items():
        path = os.path.join(here, name + ".json")
        out = must(dtplan, "import", f"{HERE}/configs/{name}", "-o", path, "--json")
        if out is None:
            continue
        report, model, names = json.loads(out), read(path), read(path[:-5] + ".names.json")
        if (report["family"], report["parameters"], report["unsupported"]) != (family, parameters, []):
            fail(f"{name}: {report}, expected {family}, {parameters}")
        check_schemas((("import", report), ("model", model), ("names", names)))
        check_names(name, model, names)
        must(dtplan, "show", path, "--dim", f"layers={model['dims'].get('dense_layers', 0) + 2}", "--stage", "graph")
        out = must(dtplan, "import", f"{HERE}/configs/{name}/config.json", "-o", path, "--json", "--no-train")
        if out is not None and (json.loads(out)["parameters"] != parameters or "train" in read(path)):
            fail(f"{name}: --no-train: {out}")
    defaults(here)
    by_hand(here)


def defaults(here):
    path = os.path.join(here, "config.json")
    for family, parameters in DEFAULTS.items():
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"model_type": family}, f)
        out = must(dtplan, "import", path, "-o", os.path.join(here, "m.json"), "--json")
        if out is not None and json.loads(out)["parameters"] != parameters:
            fail(f"{family}: {out}, expected {parameters}")


def by_hand(here):
    """The imported model has the plan of the one that was written by hand: predicted time and memory are equal."""
    for config, ours in (("gpt2", "gpt2_small"), ("llama3_8b", "llama3_8b"), ("llama3_70b", "llama3_70b")):
        found = []
        must(dtplan, "import", f"{HERE}/configs/{config}", "-o", os.path.join(here, "m.json"))
        for model in (os.path.join(here, "m.json"), f"models/{ours}.json"):
            must(dtplan, "plan", model, "--dim", "batch=8", "--dim", "length=512", "--dim", "layers=2", "--mesh", "x:2;y:2", "--machine",
                 "a100_8", "--mode", "rules", "--target", "cuda", "-o", os.path.join(here, "m.plan"))
            found.append({k: read(os.path.join(here, "m.plan"))["predicted"][k] for k in ("step_time_s", "peak_bytes")})
        if found[0] != found[1]:
            fail(f"{config}: {found[0]}, models/{ours}.json: {found[1]}")


# ---- the tables of the documents ----

PAGE, BEGIN, END = "docs/bring-your-own-model.md", "<!-- from models/templates -->", "<!-- end -->"


def tables():
    templates = {os.path.basename(path): read(path) for path in sorted(glob.glob("models/templates/*.json"))}
    lines = ["| family | template | what it has | split by heads and d_ff, `--as torch` |", "|---|---|---|---|"]
    for file, t in templates.items():
        for name, family in t["families"].items():
            form = f"placements: `{AGAINST[name]}`" if name in AGAINST else "modules"
            lines.append(f"| `{name}` | `{file}` | {family['about']} | {form} |")
    lines += ["", "| template | key | supported values |", "|---|---|---|"]
    for file, t in templates.items():
        for key, spec in t["keys"].items():
            values = [v["then"] if isinstance(v, dict) else v for v in spec.get("only", [])]
            if "only" in spec:
                text = ", ".join(json.dumps(v) for v in values) or "none"
                lines += [f"| `{file}` | `{key}` | {row} |" for row in textwrap.wrap(text, 80)]
            elif "left_out" in spec:
                lines.append(f"| `{file}` | `{key}` | any; it is left out |")
    return "\n".join(lines)


def docs(_):
    with open(PAGE, encoding="utf-8") as f:
        page = f.read()
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    if sys.argv[4:] == ["--update"]:
        with open(PAGE, "w", encoding="utf-8") as f:
            f.write(page[:start] + "\n" + tables() + "\n" + page[end:])
    elif page[start:end].strip() != tables():
        fail(f"the tables of {PAGE} are not those of the templates: import_hf.py DTPLAN DTRUN docs --update")


# ---- logits ----

def read_npy(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<H", data[8:10])[0]
    values = data[10 + n:]
    return struct.unpack(f"<{len(values) // 4}f", values)


def tensors_of(folder):
    """Name -> dtype, shape, bytes of all files of a folder."""
    out = {}
    for path in glob.glob(f"{folder}/*.safetensors"):
        with open(path, "rb") as f:
            data = f.read()
        n = struct.unpack("<Q", data[:8])[0]
        for key, e in json.loads(data[8:8 + n]).items():
            if key != "__metadata__":
                begin, end = e["data_offsets"]
                out[key] = (e["dtype"], e["shape"], data[8 + n + begin:8 + n + end])
    return out


def compare_logits(here, folder, words):
    name, fetched, saved = os.path.basename(folder), os.path.join(here, "logits.npy"), os.path.join(here, "saved")
    out = must(dtrun, "run", os.path.join(here, "m.json"), "--dim", "batch=2", "--dim", "length=8", "--steps", "1", "--load", folder,
               "--feed", f"tokens={folder}/tokens.npy", "--fetch", f"logits={fetched}", "--save-hf", saved, *words)
    if out is None:
        return
    got, expected = read_npy(fetched), read_npy(f"{folder}/logits.npy")
    largest = max(abs(x) for x in expected)
    error = max(abs(a - b) for a, b in zip(got, expected)) / largest
    print(f"{name} {' '.join(words)}: logits differ by {error:.1e}")
    if len(got) != len(expected) or not error <= 1e-4:
        fail(f"{name}: logits differ by {error}")
    theirs, ours = tensors_of(folder), tensors_of(saved)
    if theirs != ours:
        fail(f"{name}: --save-hf: {[k for k in set(theirs) | set(ours) if theirs.get(k) != ours.get(k)][:5]} differ")


def logits(here):
    for folder in sorted(glob.glob(f"{HERE}/hf/*")):
        model, plan = os.path.join(here, "m.json"), os.path.join(here, "x.plan")
        sizes = ["--dim", "batch=2", "--dim", "length=8"]
        if must(dtplan, "import", folder, "-o", model, "--no-train") is None:
            continue
        must(dtplan, "plan", model, *sizes, "--mesh", "x:2", "--machine", "a100_8", "--mode", "tensor",
             "--target", "cpu", "-o", plan)
        compare_logits(here, folder, [])
        compare_logits(here, folder, ["--plan", plan, "--comm", "sim"])
        m = read(model)
        known = {d for p in [m["params"], *(b["params"] for b in m["blocks"].values())] for v in p.values() for d in v["dims"]}
        rules = ";".join(f"{d}:x" for d in ("d_ff", "d_expert", "vocab") if d in known)
        compare_logits(here, folder, ["--mesh", "x:2", "--rules", rules, "--comm", "sim"])


# ---- exports ----

def exports(here):
    """Every form of every family; tensor parallelism in PyTorch's own words, or what is against it."""
    for folder in sorted(glob.glob(f"{HERE}/hf/*")):
        family, model, plan = os.path.basename(folder), os.path.join(here, "m.json"), os.path.join(here, "m.plan")
        must(dtplan, "import", folder, "-o", model)
        dims = read(model)["dims"]
        rules = ";".join(f"{d}:x" for d in ("kv_heads", "heads", "d_ff", "vocab") if d in dims and dims[d] % 2 == 0)
        words = must(dtplan, "plan", model, "--machine", "cpu_2", "--mesh", "x:2", "--rules", rules, "-o", plan)
        if words and "sequence parallel" in words:  # norms of heads are split as their heads are
            fail(f"{family}: {words}")
        forms = {f: must(dtplan, "export", model, plan, "--as", f) for f in ("placements", "torch", "jax", "hf", "rules")}
        if None in forms.values():
            continue
        wanted = {p["name"] for p in json.loads(forms["placements"])["params"]}
        for form in ("torch", "jax"):
            params = json.loads(forms[form])["params"]
            if wanted != set(params if form == "jax" else (p["name"] for p in params)):
                fail(f"{family}: {form}: other parameters than placements")
        kinds = {"hf": "tp_plan", "rules": "axis_rules"}
        check_schemas((kinds.get(form, form), json.loads(text)) for form, text in forms.items())
        torch = json.loads(forms["torch"])["torch"]
        by_module = torch["parallelize_module"]
        styles = list(by_module.values())
        good = torch["form"] == "placements" if family in AGAINST else styles.count("colwise") >= 3 and styles.count("rowwise") >= 3
        if not good or torch.get("against_modules") != AGAINST.get(family):
            fail(f"{family}: {torch}")
        if family not in AGAINST and by_module.get("lm_head") != "colwise":
            fail(f"{family}: the output's module is {by_module.get('lm_head')}")
        check_tp_plan(family, json.loads(forms["hf"]))
        data_parallel(family, model, plan)
    experts(here)
    base_names(here)
    degrees(here)


def check_tp_plan(family, exported):
    """Values go from module to module as transformers hands them on; what that leaves out is lost. run_hf.py runs it."""
    styles = {name.rsplit(".", 1)[-1]: style for name, style in exported["tp_plan"].items()}
    lost = {item["what"]: {re.sub(r"\.\d+\.", ".*.", name) for name in item["names"]} for item in exported["lost"]}
    if family in ("gpt2",):  # Conv1D is no layer that transformers splits; its table is
        good = {s for n, s in styles.items() if n not in ("wte", "lm_head")} == {"replicate"} and \
            (styles["wte"], styles["lm_head"]) == ("embedding_rowwise", "colwise_gather_output") and "style" in lost
    elif family == "phi3":  # three parts in one weight
        good = styles["qkv_proj"] == "replicate" and styles["o_proj"] == "rowwise_split_input" and \
            styles["gate_up_proj"] == "packed_colwise" and lost["style"] == {"model.layers.*.self_attn.qkv_proj.weight"}
    elif family == "gemma":  # one head of keys, whose gradient is a sum beside heads of queries that are split
        good = (styles["q_proj"], styles["k_proj"], styles["o_proj"]) == ("colwise_gather_output", "replicate", "rowwise_split_input") \
            and lost == {"output": {"layers.*.attn.q.mm", "logits"}}
    elif family in LATER:
        good = styles["gate_up_proj"] == "replicate" and "style" in lost
    elif family in EXPERTS:
        good = styles["gate"] == styles["gate_up_proj"] == styles["down_proj"] == "replicate" and "style" in lost
    else:
        good = lost == {"output": {"logits"}} and list(styles.values()).count("colwise") >= 2
    if not good or styles["lm_head"] != "colwise_gather_output":
        fail(f"{family}: hf: {exported['tp_plan']}, lost {lost}")


def data_parallel(family, model, plan):
    """Parameters and batch split over all ranks are modules of any family, experts too; their rules lose no loss."""
    must(dtplan, "plan", model, "--machine", "cpu_2", "--mesh", "x:2", "--style", "**: data", "--style", "**: fsdp", "-o", plan)
    torch = json.loads(must(dtplan, "export", model, plan, "--as", "torch"))["torch"]
    if torch["form"] != "modules" or torch["data_dims"] != ["x"] or torch["tensor_dims"]:
        fail(f"{family}: fsdp: {torch}")
    must(dtplan, "plan", model, "--machine", "cpu_2", "--mesh", "x:2", "--style", "**: data", "-o", plan)
    rules = json.loads(must(dtplan, "export", model, plan, "--as", "rules"))
    if rules["lost"]:
        fail(f"{family}: data parallel: rules {rules['rules']}, lost {rules['lost']}")


def base_names(here):
    """transformers' own plan of qwen3, under the names of the base model and of the whole: norms of heads stay local."""
    model, plan, styles = (os.path.join(here, name) for name in ("m.json", "m.plan", "styles.json"))
    must(dtplan, "import", f"{HERE}/hf/qwen3", "-o", model)
    layouts = []
    for prefix in ("model.", ""):
        names = {**{f"self_attn.{name}_norm": "replicated_with_grad_allreduce" for name in "qk"}, "mlp.gate_proj": "colwise",
                 "mlp.up_proj": "colwise", "mlp.down_proj": "rowwise"}
        with open(styles, "w", encoding="utf-8") as f:
            json.dump({**{key.replace("model.", prefix): style for key, style in ATTENTION.items()},
                       **{f"{prefix}layers.*.{name}": style for name, style in names.items()}}, f)
        must(dtplan, "plan", model, "--machine", "cpu_2", "--mesh", "x:2", "--style-file", styles, "-o", plan)
        layouts.append(read(plan)["tensors"])
        report = must(dtplan, "show", model, "--plan", plan, "--comm-report")
        if report and "all_gather" in report:
            fail(f"qwen3 under its own plan gathers: {report}")
    if layouts[0] != layouts[1]:
        fail("names of the base model mean other layouts")


def degrees(here):
    """What torchtitan calls dp_shard, dp_replicate, tp and cp, of plans of that kind and of others."""
    model, plan, out = (os.path.join(here, name) for name in ("m.json", "m.plan", "m.torch.json"))
    must(dtplan, "import", f"{HERE}/hf/llama", "-o", model)
    tensor = "kv_heads:y;d_ff:y;vocab:y"
    for mesh, words, expected in (
            ("x:2;y:2", ["--rules", "batch:x;" + tensor], (1, 2, 2, 1)),
            ("x:2;z:2", ["--style", "**: data(x+z)", "--style", "**: fsdp(z)"], (2, 2, 1, 1)),
            ("x:2;z:2", ["--style", "**: data(x+z)", "--style", "**: fsdp(x+z)"], (4, 1, 1, 1)),
            ("z:2;y:2", ["--rules", "length:z;" + tensor], (1, 1, 2, 2)),
            ("x:4;z:2", ["--rules", "batch:x;length:z"], (1, 4, 1, 2)),
            ("x:2;z:2", ["--style", "**: data(x)"], None),
            ("x:4", ["--style", "**: fsdp(x)"], None)):
        must(dtplan, "plan", model, "--machine", "a100_8", "--target", "cuda", "--mesh", mesh, *words, "-o", plan)
        lost = []
        said = must(dtplan, "export", model, plan, "--as", "torch", "-o", out).splitlines(keepends=True)
        got = "".join(line for line in said if line.startswith((f"{out}: dp_shard", f"{out}: lost")))
        for item in read(out)["lost"]:
            more = f" and {len(item['names']) - 1} more" if item["names"][1:] else ""
            lost.append(f"{item['what']}{', of ' + item['names'][0] if item['names'] else ''}{more}: {item['why']}")
        wanted = ["dp_shard=%d dp_replicate=%d tp=%d cp=%d" % expected] if expected else []
        wanted = "".join(f"{out}: {line}\n" for line in wanted + ["lost: " + line for line in lost])
        if got != wanted:
            fail(f"{mesh} {words}: {got}, expected {wanted}")


def experts(here):
    """Of experts that are whole the attention is split in PyTorch's own words."""
    model, plan, styles = (os.path.join(here, name) for name in ("m.json", "m.plan", "styles.json"))
    with open(styles, "w", encoding="utf-8") as f:
        json.dump(ATTENTION, f)
    for family in EXPERTS:
        must(dtplan, "import", f"{HERE}/hf/{family}", "-o", model)
        must(dtplan, "plan", model, "--machine", "cpu_2", "--mesh", "x:2", "--style-file", styles, "-o", plan)
        torch = json.loads(must(dtplan, "export", model, plan, "--as", "torch"))["torch"]
        if {k: v for k, v in torch["parallelize_module"].items() if k in ATTENTION} != ATTENTION:
            fail(f"{family}: {torch}")


# ---- plans ----

def plans(here):
    for name in quarter.of(n for n in PUBLISHED if n not in LONG_TO_PLAN):
        model, plan = os.path.join(here, name + ".json"), os.path.join(here, name + ".plan")
        must(dtplan, "import", f"{HERE}/configs/{name}", "-o", model)
        if must(dtplan, "plan", model, "--machine", "h100_64", "--mesh", "x:8;y:8", "--mode", "tensor", "--precision", "bf16",
                "--dim", "batch=64", "-o", plan) is not None:
            got = read(plan)
            print(f"{name}: {got['predicted']['peak_bytes']} of {got['memory_limit_bytes']} bytes")
            if got["predicted"]["peak_bytes"] > got["memory_limit_bytes"]:
                fail(f"{name}: more than the memory")


# ---- refusals ----

class Refusals:
    def __init__(self, here):
        self.config = os.path.join(here, "config.json")
        self.out = os.path.join(here, "out")
        os.mkdir(self.out)

    def run(self, text, *words):
        with open(self.config, "wb") as f:
            f.write(text if isinstance(text, bytes) else json.dumps(text).encode())
        code, _, err = call(dtplan, "import", self.config, "-o", os.path.join(self.out, "m.json"), *words)
        written = os.listdir(self.out)
        for name in written:
            os.remove(os.path.join(self.out, name))
        return code, err, written

    def refused(self, what, text, *expected):
        code, err, written = self.run(text)
        if code != 2 or written or err.count("\n") != 1 or not err.startswith(f"dtplan: {self.config}: "):
            fail(f"{what}: exit {code}, wrote {written}: {err}")
        for e in expected:
            if e not in err:
                fail(f"{what}: '{e}' is not in: {err}")


def with_values(name, **values):
    return {**config_of(name), **values}


def refusals(here):
    r = Refusals(here)
    llama, neox, moe = "llama3_8b", "gpt_neox_20b", "qwen3_30b_a3b"
    good = json.dumps(config_of(llama))
    for what, key, value, *expected in (
            ("another family", "model_type", "bert", "'bert'", "llama"),
            ("a family that is a number", "model_type", 3, "expected a string"),
            ("a number as a string", "hidden_size", "4096", "expected a number, found a string"),
            ("a fraction", "hidden_size", 4096.5, "4096.5"),
            ("a negative size", "vocab_size", -1, "-1"),
            ("no heads", "num_attention_heads", 0, "0 is not in"),
            ("a size beyond integers", "hidden_size", 1e300, "1.0"),
            ("a size of null", "vocab_size", None),
            ("a truth value that is a number", "tie_word_embeddings", 1, "expected true or false"),
            ("heads that do not divide", "num_attention_heads", 33, "num_attention_heads", "33"),
            ("key heads that do not divide", "num_key_value_heads", 5, "num_key_value_heads", "5"),
            ("a million layers", "num_hidden_layers", 10**6, "1000000"),
            ("more layers than that", "num_hidden_layers", 10**12, "1000000000000"),
            ("a vocabulary beyond tokens", "vocab_size", 10**14, "100000000000000"),
            ("an activation", "hidden_act", "relu", '"relu"', "--allow-approximate"),
            ("quantized weights", "quantization_config", {"bits": 4}, "--allow-approximate"),
            ("windows of some layers", "layer_types", ["full_attention", "sliding_attention"], "layer_types[1]",
             '"sliding_attention"'),
            ("layer types of another kind", "layer_types", [{"a": 1}], "layer_types[0]"),
            ("soft caps", "attn_logit_softcapping", 50.0, "50"),
            ("a key that nobody knows", "clip_qkv", 8, "clip_qkv", "8"),
            ("an object that nobody knows", "clip", {"a": {"b": 1}}, "clip"),
            ("control characters", "a\n\x1b[31m", 1, "a\\n\\x1b[31m"),
            ("no rotary base", "rope_theta", 0, "base"),
            ("a head for classes", "architectures", ["LlamaForSequenceClassification"], "architectures[0]",
             '"LlamaForSequenceClassification"'),
            ("rotary positions by layer type", "rope_parameters", {"full_attention": {"rope_type": "yarn"}},
             "rope_parameters.full_attention", "an object"),
            ("a rotary scaling that nobody knows", "rope_scaling", {"rope_type": "default", "mrope_section": [1, 2]},
             "rope_scaling.mrope_section"),
            ("a padding token outside", "pad_token_id", 128256, "128256")):
        r.refused(what, with_values(llama, **{key: value}), *expected)
    for scaling in ("rope_scaling", "rope_parameters"):
        for kind in ("rope_type", "type"):
            r.refused(scaling, with_values(llama, **{scaling: {kind: "dynamic", "factor": 4.0}}), f"{scaling}.{kind}", '"dynamic"')
            r.refused(scaling, with_values(llama, **{scaling: {kind: "llama3", "factor": 4.0}}), "low_freq_factor")
            r.refused(scaling, with_values(llama, **{scaling: {kind: "linear"}}), "rope_factor")
    r.refused("two rotary bases", with_values(llama, rope_parameters={"rope_theta": 1e4}), "rope_parameters.rope_theta: 10000",
              "rope_theta is 500000")
    r.refused("two rotary bases under other keys", {"model_type": "gpt_neox", "rope_parameters": {"rope_theta": 1e4},
              "rope_theta": 1e3}, "rope_theta: 1000, but rope_parameters.rope_theta is 10000")
    r.refused("dense layers among experts", with_values(moe, mlp_only_layers=[0]), "mlp_only_layers[0]")
    r.refused("biases of a family without", with_values("mistral_7b", attention_bias=True), "attention_bias: true")
    r.refused("more choices than experts", with_values(moe, num_experts_per_tok=129), "129")
    turns = ["full_attention", "sliding_attention"] * 18
    r.refused("windows in the other layers", with_values("gpt_oss_120b", layer_types=turns), "layer_types[0]", "'sliding_attention' here")
    r.refused("windows out of turn", with_values("gpt_oss_120b", layer_types=turns[1:] + turns[-1:]), "layer_types[35]",
              "'full_attention' here")
    r.refused("layer types that are no list", with_values("gpt_oss_120b", layer_types="full_attention"), "layer_types", "a list")
    for name, method in (("gpt_oss_120b", "fp8"), ("deepseek_v3", "mxfp4")):
        r.refused("weights in other blocks", with_values(name, quantization_config={"quant_method": method}), f'"{method}"')
    for key, value in (("scoring_func", "softmax"), ("topk_method", "greedy"), ("n_group", 7), ("num_key_value_heads", 8),
                       ("first_k_dense_replace", 61), ("qk_head_dim", 128), ("attention_bias", True)):
        r.refused(f"{key} {value}", with_values("deepseek_v3", **{key: value}))
    for part in (0.001, 2, -1, 1e300):
        r.refused(f"{part} of the features", with_values(neox, rotary_pct=part))
    r.refused("no family", {k: v for k, v in config_of(llama).items() if k != "model_type"}, "model_type")
    r.refused("a key twice", (good[:-1] + ', "vocab_size": 3}').encode(), "vocab_size", "twice")
    r.refused("an infinity", good.replace("4096", "1e999").encode(), "hidden_size")
    for what, text in (("nothing", b""), ("a list", b"[]"), ("a number", b"7"), ("truncated", good[:200].encode()),
                       ("nested lists", b"[" * 100000), ("nested objects", b'{"a":' * 1000), ("NUL", b'{"a": "\\u0000"}'),
                       ("bytes that are no text", b'{"model_type": "\xff"}'), ("text behind", good.encode() + b"x")):
        r.refused(what, text)
    approximate(r)
    windows(here)


def approximate(r):
    """--allow-approximate goes on, and says so in the report and in the model."""
    for values, line in (({"hidden_act": "relu"}, 'hidden_act = "relu" taken as silu'),
                         ({"rope_scaling": {"rope_type": "dynamic", "factor": 8.0}}, 'rope_type = "dynamic" taken as default'),
                         ({"clip_qkv": 8}, "clip_qkv = 8")):
        with open(r.config, "w", encoding="utf-8") as f:
            json.dump(with_values("llama3_8b", **values), f)
        out = must(dtplan, "import", r.config, "-o", os.path.join(r.out, "m.json"), "--json", "--allow-approximate")
        if out is not None and (json.loads(out)["unsupported"] != [line] or line not in read(os.path.join(r.out, "m.json"))["about"]):
            fail(f"--allow-approximate: {out}")


def windows(here):
    """A model is not planned at a length beyond its sliding window, unless the import was allowed to leave it out."""
    model = os.path.join(here, "window.json")
    config = os.path.join(here, "window.config.json")
    with open(config, "w", encoding="utf-8") as f:
        json.dump(with_values("qwen2_7b", use_sliding_window=True, sliding_window=4096, layer_types=["sliding_attention"] * 28), f)
    for folder, words, length, expected in [(f, *case) for f in (f"{HERE}/configs/mistral_7b", config) for case in (
            ([], 4096, 0), ([], 4097, 2), (["--allow-approximate"], 4097, 0))]:
        must(dtplan, "import", folder, "-o", model, *words)
        code, _, err = call(dtplan, "show", model, "--dim", "layers=1", "--dim", f"length={length}", "--stage", "graph")
        if code != expected or (code == 2 and "sliding_window" not in err):
            fail(f"sliding window, {words}, length {length}: exit {code}: {err}")


# ---- mutations ----

VALUES = [0, -1, 1, 3, 2**31, 2**53, 2**63, 1e308, 0.5, "", "4096", "silu", True, False, None, [], {}, [1, "a"], {"a": 1}]


def mutate(rng, config):
    """Bytes of the file with one to three mistakes."""
    out = copy.deepcopy(config)
    for _ in range(rng.randint(1, 3)):
        key = rng.choice(list(out) or ["vocab_size"])
        kind = rng.randrange(4)
        if kind == 0:
            out.pop(key, None)
        elif kind == 1:
            out[rng.choice(list(config)) + rng.choice(["", "_x", "."])] = rng.choice(VALUES)
        else:
            out[key] = rng.choice(VALUES)
    text = bytearray(json.dumps(out).encode())
    for _ in range(rng.choice([0, 0, 1, 3])):
        at = rng.randrange(len(text))
        if rng.randrange(3) == 0:
            del text[at:at + rng.randrange(1, 40)]
        else:
            text[at] = rng.randrange(256)
    return bytes(text)


def mutations(here):
    r, rng, models = Refusals(here), random.Random(1), 0
    configs = [read(f"{folder}/config.json") for folder in sorted(glob.glob(f"{HERE}/hf/*"))]
    for i in range(300):
        text = mutate(rng, rng.choice(configs))
        code, err, written = r.run(text, *(["--allow-approximate"] if i % 3 == 0 else []))
        models += code == 0
        if code == 0 and sorted(written) != ["m.json", "m.names.json"]:
            fail(f"mutation {i}: wrote {written}")
        elif code != 0 and (code != 2 or written or err.count("\n") != 1 or r.config not in err):
            fail(f"mutation {i}: exit {code}, wrote {written}: {err}: {text}")
    print(f"300 files with mistakes, {models} of them models")


with tempfile.TemporaryDirectory() as folder:
    {"docs": docs, "counts": counts, "logits": logits, "exports": exports, "plans": plans, "refusals": refusals, "mutations": mutations}[sys.argv[3]](folder)
sys.exit(1 if failures else 0)
