#!/usr/bin/env python3
"""What a PyTorch user does after an exported plan is applied; what dtp_torch.check counts; plans under transformers.

Six modules on x:2;y:2 under plans of data and tensor parallelism and FSDP (run_next.py): every step gives what it gives without
a plan, or stands in KNOWN with the reason. dtp_torch.check of 4 layers of Llama 3 8B and of GPT-2 (run_check.py): counts
and bytes of collectives are those that PyTorch has, and the peak is within a quarter. Eleven families of transformers under each split of
`--as hf` (run_hf.py): logits, loss and gradients. Writes its part of docs/results/interop.md when nothing failed.
DTP_TORCH_PYTHON names an interpreter with torch, numpy, safetensors, transformers and accelerate. Called by ./dev interop.
Usage: interop_next.py BIN_DIR [next|check|hf]...
"""
import os
import subprocess
import sys

from interop import fail, failures, read

HERE, RESULTS = "build/interop", "docs/results/interop.md"
BEGIN = "\n## After a plan is applied in PyTorch\n"
FAMILIES = ("llama", "llama_bias", "mistral", "qwen2", "qwen3", "gemma", "phi3", "mixtral", "qwen3_moe", "gpt2", "gpt_neox")
SPLITS = {"heads": "{heads}:x", "d_ff": "d_ff:x", "vocab": "vocab:x", "d_model": "d_model:x", "all": "{heads}:x;d_ff:x;vocab:x"}
MODULES = {  # name -> model, what run_next.py calls it, its folder
    "mlp_digits": ("models/mlp_digits.json", "mlp_digits", None),
    "gpt": (None, "gpt", None),
    **{name: (None, "hf", f"tests/interop/hf/{name}") for name in ("llama", "qwen3", "gemma", "gpt2")},
}
PLANS = ("data_parallel", "data_megatron", "data_megatron_sp", "zero3", "zero3_megatron")
HF_PLANS = ("data_megatron", "zero3_megatron")  # modules of transformers count positions in their part of a split sequence
STEPS = {"clip": "clip_grad_norm_, foreach AdamW", "fused": "fused AdamW", "load": "load_state_dict", "compile": "torch.compile",
         "generate": "generate", "again": "second parallelize", "before": "earlier optimizer"}
KNOWN = {  # (form, step) -> words of the error, and the reason
    ("placements", "generate"): ("mixed torch.Tensor and DTensor", "transformers makes masks and positions outside of the module"),
}
MOST_NAMES = 3  # of modules in one cell


def call(words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=1500, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.decode()[-2000:]}")
    return done.stdout.decode()


def run_python(script, *words):
    return call([os.environ["DTP_TORCH_PYTHON"], os.path.join(os.path.dirname(__file__), script), *words],
                env={**os.environ, "OMP_NUM_THREADS": "1"})


class Tool:
    def __init__(self, bin_dir):
        self.dtplan = os.path.join(bin_dir, "dtplan")

    def import_model(self, name, source):
        file = f"{HERE}/next.{name}.json"
        call([self.dtplan, "import", source, "-o", file])
        return file

    def plan(self, model, file, *options):
        """Whether there is one."""
        machine = [] if "--machine" in options else ["--machine", "a100_8"]
        done = subprocess.run([self.dtplan, "plan", model, *machine, *options, "-o", file],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        return done.returncode == 0

    def baselines(self, model, here, names, *options):
        """Name -> file of the plan, of those that are legal."""
        if not self.plan(model, f"{here}.free.plan", *options, "--mode", "tensor"):
            fail(f"{model}: no plan")
            return {}
        out = {}
        for name, b in read(f"{here}.free.plan")["baselines"].items():
            if name not in names or not b["legal"]:
                continue
            words = ["--rules", b["rules"]] if b.get("rules") else [w for s in b.get("styles", []) for w in ("--style", s)]
            out[name] = f"{here}.{name}.plan"
            if not self.plan(model, out[name], *options, *words):
                fail(f"{model}: no plan {name}")
        return out

    def export(self, model, plan, form):
        file = plan.replace(".plan", f".{form}.json")
        call([self.dtplan, "export", model, plan, "--as", form, "-o", file])
        return file


# ---- what comes after parallelize ----

def source_of(tool, name):
    model, kind, folder = MODULES[name]
    if name == "gpt":
        program = f"{HERE}/next.gpt.pt2"
        call([os.environ["DTP_TORCH_PYTHON"], "examples/torch_export.py", program])
        return tool.import_model(name, program), kind, folder
    return model or tool.import_model(name, folder), kind, folder


def cell(what, plan, step, text):
    if text is None:
        return ""
    if text.startswith("ok"):
        return text[4:] or "yes"
    words, number = next(((known[0], i + 1) for i, (key, known) in enumerate(KNOWN.items())
                          if key == (plan["torch"]["form"], step)), (None, 0))
    if words is None or words not in text:
        fail(f"{what}: {step}: {text}")
        return "failed"
    return f"({number})"


def next_rows(tool):
    for name in MODULES:
        model, kind, folder = source_of(tool, name)
        sizes = [] if name in ("mlp_digits", "gpt") else ["--dim", "batch=8", "--dim", "length=8"]
        names = PLANS if folder is None else HF_PLANS
        plans = tool.baselines(model, f"{HERE}/next.{name}", names, "--mesh", "x:2;y:2", "--target", "cpu", "--precision", "f32",
                               *sizes)
        exports = {plan: tool.export(model, file, "torch") for plan, file in plans.items()}
        out = f"{HERE}/next.{name}.result.json"
        run_python("run_next.py", kind, *exports.values(), *(["--folder", folder] if folder else []), "--out", out)
        for plan, file in exports.items():
            exported, found = read(file), read(out)[file]
            yield [name, plan, exported["torch"]["form"],
                   *(cell(f"{name}, {plan}", exported, step, found.get(step)) for step in STEPS)]


# ---- dtp_torch.check ----

LLAMA = ["embed: rowwise(y, dim=vocab{sp})", "layers.*.attn.{{q,k,v}}.mm: colwise(y, dim=kv_heads)",
         "layers.*.attn.out: rowwise(y, dim=kv_heads{sp})", "layers.*.mlp.{{gate,up}}.mm: colwise(y, dim=d_ff)",
         "layers.*.mlp.out: rowwise(y, dim=d_ff{sp})", "logits: colwise(y, dim=vocab)", "loss: loss_parallel(y)"]
GPT2 = ["embed: rowwise(y, dim=vocab{sp})", "layers.*.attn.{{q.mm,bq,k,v.mm,bv}}: colwise(y, dim=heads)",
        "layers.*.attn.mm: rowwise(y, dim=heads{sp})", "layers.*.mlp.{{up.mm,b1}}: colwise(y, dim=d_ff)",
        "layers.*.mlp.down.mm: rowwise(y, dim=d_ff{sp})", "logits: colwise(y, dim=vocab)", "loss: loss_parallel(y)"]
CHECKED = {  # name -> model, what run_check.py makes, styles of tensor parallelism, norms of the sequence, dims
    "Llama": (None, "tests/interop/configs/llama3_8b", LLAMA, "{layers.*.norm_*,norm_f}$: sequence(y)", ["length=2048"]),
    "GPT-2": ("models/gpt_bytes.json", "gpt2", GPT2, "{layers.*.ln_?,ln_f}$: sequence(y, dim=length)",
              ["length=1024", "vocab=50304", "heads=12", "d_head=64"])}
DATA, FSDP = ["**: data(x)"], ["**: data(x)", "**: fsdp(x)"]
SPLIT = {  # name -> mesh, tensor parallel, sequence parallel, others
    "data parallel": ("x:8", False, False, DATA), "FSDP": ("x:8", False, False, FSDP),
    "FSDP kept": ("x:8", False, False, FSDP), "Megatron": ("y:{n}", True, False, []),
    "data, Megatron": ("x:2;y:{n}", True, False, DATA), "FSDP, Megatron": ("x:2;y:{n}", True, False, FSDP),
    "Megatron, sequence": ("y:{n}", True, True, []), "FSDP, Megatron, sequence": ("x:2;y:{n}", True, True, FSDP)}


DIFFERS = {  # module, plan, kind -> how much more PyTorch has: count, bytes; the reason
    ("Llama", "data parallel", "all_reduce"): (0, 64, 1), ("Llama", "data, Megatron", "all_reduce"): (0, 100, 1),
    ("GPT-2", "data parallel", "all_reduce"): (0, 200, 1), ("GPT-2", "data, Megatron", "all_reduce"): (0, 252, 1),
    ("GPT-2", "FSDP", "all_gather"): (0, 122880, 2), ("GPT-2", "FSDP, Megatron", "all_gather"): (0, 67584, 2),
    ("GPT-2", "Megatron, sequence", "all_reduce"): (-8, -24576, 3),
    ("GPT-2", "FSDP, Megatron, sequence", "all_reduce"): (-8, -24576, 3),
    ("GPT-2", "FSDP, Megatron, sequence", "all_gather"): (1, 67584, 4),
    ("GPT-2", "FSDP, Megatron, sequence", "reduce_scatter"): (1, 0, 4)}
REASONS = ("dtp_torch sends a f32 for each parameter of a bucket of several, which says whether there is a gradient",
           "fully_shard gathers all parameters of a block again, the plan those that the backward pass reads: no biases",
           "a bias behind a split product is added to the terms of the sum in PyTorch, and its gradient is whole; in the plan it is "
           "added to the part of the sequence, and its gradient is a sum over ranks",
           "as (2); and the table of positions is split over both mesh dims, which fully_shard leaves to a redistribution of its own")


def check_exports(tool, name):
    """Plan -> its export."""
    model, _, tensor, norms, dims = CHECKED[name]
    model, exports = model or tool.import_model("llama3_8b", CHECKED[name][1]), {}
    for plan, (mesh, split, sequence, others) in SPLIT.items():
        file = f"{HERE}/next.check.{name}.{plan.replace(', ', '_').replace(' ', '_')}.plan"
        styles = [style.format(sp=", output=length" if sequence else "") for style in tensor if split] + others
        styles += [norms] if sequence else []
        words = [word for style in styles for word in ("--style", style)] + [w for d in dims for w in ("--dim", d)]
        words += ["--regather", "none"] if plan == "FSDP kept" else []
        if tool.plan(model, file, "--mesh", mesh.format(n=4), "--machine", "h100_64", "--target", "torch", "--precision", "f32",
                     "--memory", "none", "--dim", "layers=4", "--dim", "batch=8", *words):
            exports[plan] = tool.export(model, file, "torch")
        else:
            fail(f"check: no plan {name}, {plan}")
    return exports


def amounts(name, plan, kinds):
    texts = []
    for kind, n in kinds.items():
        reason = DIFFERS.get((name, plan, kind), (0, 0, 0))[2]
        if n["counted"] or n["predicted"]:
            texts.append(f"{n['counted']} {kind.replace('_', '-')}, {n['bytes']['counted'] / 1e6:,.3f} MB" +
                         (f" ({reason}; plan: {n['predicted']}, {n['bytes']['predicted'] / 1e6:,.3f})" if reason else ""))
    return "; ".join(texts) or "–"


def check_rows(tool):
    for name, (_, module, *_) in CHECKED.items():
        exports, out = check_exports(tool, name), f"{HERE}/next.check.result.json"
        run_python("run_check.py", module, *exports.values(), "--out", out)
        for plan, file in exports.items():
            found, what = read(out)[file], f"check of {name}, {plan}"
            if isinstance(found, str):
                fail(f"{what}: {found}")
                continue
            peak, kinds = found["peak_bytes"], found["collectives"]
            if name == "Llama" and "Megatron" not in plan and not 0.75 <= peak["ratio"] <= 1.25:
                fail(f"{what}: peak {peak}")
            for kind, n in kinds.items():
                more = (n["counted"] - n["predicted"], n["bytes"]["counted"] - n["bytes"]["predicted"])
                if more != DIFFERS.get((name, plan, kind), (0, 0))[:2]:
                    fail(f"{what}: {kind}: {n}")
            yield [name, plan, amounts(name, plan, kinds), f"{peak['predicted'] / 2**30:.2f}", f"{peak['tracked'] / 2**30:.2f}",
                   f"{peak['ratio']:.2f}"]


# ---- transformers ----

def hf_rows(tool):
    cases = {}
    for family in FAMILIES:
        model = tool.import_model("hf." + family, f"tests/interop/hf/{family}")
        dims = read(model)["dims"]
        heads = next(d for d in ("kv_heads", "heads") if dims.get(d, 1) > 1) if family != "gemma" else "group"
        for split, rules in SPLITS.items():
            file = f"{HERE}/next.hf.{family}.{split}.plan"
            if tool.plan(model, file, "--mesh", "x:2", "--target", "cpu", "--precision", "f32", "--rules", rules.format(heads=heads)):
                cases[family, split] = tool.export(model, file, "hf")
            else:
                fail(f"{family}: no plan {split}")
    out = f"{HERE}/next.hf.result.json"
    run_python("run_hf.py", *(f"tests/interop/hf/{family}={file}" for (family, _), file in cases.items()), "--out", out)
    found = dict(zip(cases, read(out)))
    for key, text in found.items():
        if text != "ok":
            fail(f"transformers: {', '.join(key)}: {text}")
    for family in FAMILIES:
        texts = []
        for split in SPLITS:
            exported = read(cases[family, split])
            whole = sorted({n.rsplit(".", 2)[-2] for item in exported["lost"] if item["what"] == "style" for n in item["names"]})
            more = [f"{len(whole) - MOST_NAMES} more"] if len(whole) > MOST_NAMES else []
            names = ", ".join(whole[:MOST_NAMES] + more)
            texts.append("failed" if found[family, split] != "ok" else "yes" if not whole else "yes; whole: " + names)
        yield [family, *texts]


# ---- the page ----

def table(head, rows):
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]) + "\n"


def page(tables):
    reasons = "".join(f"\n({i + 1}) {step} of the form `{form}`: {why}." for i, ((form, step), (_, why)) in enumerate(KNOWN.items()))
    checks = "".join(f"\n({i + 1}) {text}." for i, text in enumerate(REASONS))
    return BEGIN + f"""
`./dev interop next`: four processes (gloo), two steps of AdamW beside the module in one process: losses and norms
of gradients within 2e-05. `torch.compile` with the backend `aot_eager`; `load_state_dict` of whole tensors; `generate` of 4
tokens without sampling; a second `parallelize` has to be an error. An optimizer made before trains, or its step is refused.

{tables["next"]}{reasons}

`runs eagerly`: `dtp_torch` keeps plans of the form `placements` out of traces, and warns. In PyTorch 2.15 sharding propagation of
batched products over several mesh dims, and the mask of a table split by rows, read values of fake tensors.

## `dtp_torch.check`

Llama 3 8B of transformers and the module of [torch_gpt.py](../../examples/torch_gpt.py) in the sizes of GPT-2 small, 4 layers
each, batch 8, length 2048 and 1024, f32, plans for `--target torch` on 4 or 8 ranks of `h100_64`; PyTorch with tensors without
data, in one process. Collectives of a step as CommDebugMode counts them, with the bytes of their larger side: the plan has the
same counts and bytes of every kind, or those in parentheses; anything else fails. `FSDP kept`: `--regather none`,
`reshard_after_forward=False`. GiB at the peak of a step; peaks of Llama that differ by more than a quarter fail, but for those of
tensor parallelism, whose difference is not explained.

{tables["check"]}{checks}

## Plans under transformers

`--as hf` on x:2, one dim or all split by layout rules; two processes (gloo). `yes`: logits without gradients, the loss and all
gradients equal those of one process within 1e-04. `whole`: modules whose split `tp_plan` does not say; they are under `lost`.

{tables["hf"]}"""


HEADS = {"next": ["module", "plan", "form", *STEPS.values()],
         "check": ["module", "plan", "collectives", "peak: plan", "PyTorch", "ratio"],
         "hf": ["family", *SPLITS]}
ROWS = {"next": next_rows, "check": check_rows, "hf": hf_rows}


def main():
    tool, parts = Tool(sys.argv[1]), sys.argv[2:] or list(ROWS)
    os.makedirs(HERE, exist_ok=True)
    tables = {}  # parts may run one by one: what each found is kept
    for part in parts:
        rows = []
        for row in ROWS[part](tool):
            rows.append(row)
            print(" | ".join(row), flush=True)
        if not failures:
            with open(f"{HERE}/next.{part}.table", "w", encoding="utf-8") as file:
                file.write(table(HEADS[part], rows))
    if failures:
        print(f"{len(failures)} failures")
        return 1
    files = {part: f"{HERE}/next.{part}.table" for part in ROWS}
    if all(map(os.path.exists, files.values())):
        for part, name in files.items():
            with open(name, encoding="utf-8") as file:
                tables[part] = file.read()
        with open(RESULTS, encoding="utf-8") as file:
            text = file.read().split(BEGIN)[0].rstrip("\n") + "\n"
        with open(RESULTS, "w", encoding="utf-8") as file:
            file.write(text + page(tables))
        print(f"written: {RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
