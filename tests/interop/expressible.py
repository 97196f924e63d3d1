#!/usr/bin/env python3
"""dtplan plan --expressible FORM: the plan leaves in that form with nothing lost.

For models, meshes and every form of dtplan export: the exported file has an empty "lost"; the plan file fits its
schema; what it says of the best of all plans is the plan without the option, or the plan itself where that is better;
the cost is not below the bound; and the plan is read again.
Usage: expressible.py DTPLAN models|terms|refusals
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import quarter  # noqa: E402

GPT = ["models/gpt_bytes.json", "--dim", "batch=4", "--dim", "length=16", "--dim", "layers=2"]
MLP = ["models/mlp_digits.json", "--dim", "batch=8", "--dim", "classes=12"]
GPT2 = ["models/gpt2_small.json", "--dim", "batch=8", "--dim", "layers=2"]
GPT2_ROW = ["models/gpt2_small.json", "--dim", "batch=1", "--dim", "layers=2"]
LLAMA = ["models/llama3_8b.json", "--dim", "layers=2"]
A100, H100, CPU = "a100_8", "h100_64", "cpu_2"
CASES = [
    (MLP, "x:2;y:2", A100, []),
    (MLP, "x:4", A100, ["--objective", "memory"]),
    (MLP, "x:2", CPU, []),
    (GPT, "x:2;y:2", A100, []),
    (GPT, "x:2", A100, ["--memory", "20M"]),
    (GPT, "x:4", A100, ["--rules", "batch:x"]),
    (GPT, "x:2;y:2", A100, ["--precision", "bf16", "--remat", "all", "--microbatches", "2"]),
    (GPT, "x:2;y:2", A100, ["--pin", "head: vocab@y"]),
    (GPT2, "x:2;y:4", A100, []),
    (GPT2_ROW, "x:2", A100, []),
    (LLAMA, "x:2;y:8", H100, []),
    (LLAMA, "x:4;y:2", H100, ["--memory", "40G"]),
]
AS_IT_IS = ["--remat", "none", "--microbatches", "1"]  # nothing is searched to make a plan fit
LARGE = ["torch", "jax"]  # forms for the larger models, but for one row
dtplan = os.path.abspath(sys.argv[1])
failures = []


def fail(text):
    failures.append(text)
    print("FAIL: " + text)


def target(machine):
    """The same for all forms, so that they are compared."""
    return [] if machine == CPU else ["--target", "cuda"]


def call(*words):
    """Exit code, standard output and error."""
    p = subprocess.run([dtplan] + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def read(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def forms():
    """Those that there are, as the error about another one lists them."""
    err = call("plan", *MLP, "--mesh", "x:2", "--machine", A100, "--expressible", "nothing")[2]
    return err.split("there are ")[1].strip().replace("\n", " ").replace(" ", "").split(",")


def schema():
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        return None
    return Draft202012Validator(read("docs/formats/plan.schema.json"))


def check_plan(what, plan, free, form):
    """The plan file beside that of all plans (None: none fits)."""
    e, memory = plan["expressible"], plan["objective"] == "memory"
    step, peak = plan["predicted"]["step_time_s"], plan["predicted"]["peak_bytes"]
    others = free["predicted"] if free is not None else plan["predicted"]
    key, own, other = ("peak_bytes", peak, others["peak_bytes"]) if memory else \
        ("step_time_s", step, others["step_time_s"])
    if e["form"] != form or e["all_" + key] != min(own, other):
        fail(f"{what}: {e}, the plan {own}, the best of all {other}")
    certificate = plan["certificate"]
    if certificate["bound"] > certificate.get("least_cost", certificate["cost"]):
        fail(f"{what}: {certificate}")


def check_form(what, plan, exported):
    """The plan is of the form that it says, by modules unless placements alone are better by more than 2 %; they are left out
    where PyTorch is known to fail with them."""
    e = plan["expressible"]
    key = "peak_bytes" if plan["objective"] == "memory" else "step_time_s"
    own, other = plan["predicted"][key], e["other_" + key]
    if e["by"] != exported:
        fail(f"{what}: by {e['by']}, exported by {exported}")
    if "failing" in e and (e["by"] != "modules" or other > 0):
        fail(f"{what}: {e} in spite of '{e['failing']}'")
    if other > 0 and (1.02 * own > other * (1 + 1e-9) if e["by"] == "placements" else own > 1.02 * other * (1 + 1e-9)):
        fail(f"{what}: by {e['by']} {own}, by the other {other}")


def check_hand_written(what, words, mesh, plan, here):
    """The plan is no slower than tensor parallelism over one mesh dim, with whole logits, which the form can say."""
    file, said = os.path.join(here, "hand.json"), 0
    for name in [part.split(":")[0] for part in mesh.split(";")]:
        rules = f"hidden:{name}" if words[1] == MLP[0] else f"heads:{name};d_ff:{name}"
        code, _, err = call(*words, "--rules", rules, "-o", file)
        if code == 3:
            continue  # it does not fit
        if code != 0:
            fail(f"{what}: {rules}: exit {code}: {err}")
            continue
        code, text, _ = call("export", words[1], file, "--as", "hf")
        if code != 0 or json.loads(text)["lost"]:
            continue
        said += 1
        hand, own = read(file)["predicted"]["step_time_s"], plan["predicted"]["step_time_s"]
        if own > hand:
            fail(f"{what}: {own}, {rules} takes {hand}")
    return said


def check_case(i, here, validator, seen, by_hand):
    model, mesh, machine, options = CASES[i]
    words = ["plan", *model, "--mesh", mesh, "--machine", machine, *target(machine), *options]
    words += AS_IT_IS if "--memory" in options else []
    file = os.path.join(here, "plan.json")
    mode = [] if "--rules" in options else ["--mode", "tensor"]
    free = read(file) if call(*words, *mode, "-o", file)[0] == 0 else None
    for form in forms() if model in (MLP, GPT) else ["hf"] if model is GPT2_ROW else LARGE:
        what = f"{' '.join(words[1:])} --expressible {form}"
        code, _, err = call(*words, "--expressible", form, "-o", file)
        seen.setdefault(form, []).append(code)
        if code == 3 and f"--expressible {form}" in " ".join(err.split()):
            continue
        if code != 0:
            fail(f"{what}: exit {code}: {err}")
            continue
        plan = read(file)
        check_plan(what, plan, free, form)
        if form == "hf" and not {"--rules", "--pin", "--objective"} & set(options):
            by_hand[i] = check_hand_written(what, words, mesh, plan, here)
        for error in validator.iter_errors(plan) if validator is not None else []:
            fail(f"{what}: {list(error.absolute_path)}: {error.message[:200]}")
        code, text, err = call("export", model[0], file, "--as", form)
        lost = json.loads(text)["lost"] if code == 0 else err
        if form == "torch" and code == 0:
            check_form(what, plan, json.loads(text)["torch"]["form"])
        if lost != []:
            fail(f"{what}: lost {lost}")
        if f"expressible as {form}" not in call("show", model[0], "--plan", file)[1]:
            fail(f"{what}: dtplan show does not say so")


def check_models():
    seen, by_hand = {}, {}
    with tempfile.TemporaryDirectory() as here:
        for i in quarter.of(range(len(CASES))):
            check_case(i, here, schema(), seen, by_hand)
    for form, codes in seen.items():
        if codes.count(0) < len(codes) / 2:
            fail(f"{form}: exit codes {codes}")
    if len(by_hand) >= 6 and sum(by_hand.values()) < 6:  # all cases
        fail(f"hand-written plans that hf can say, by case: {by_hand}")
    print(f"hand-written plans that hf can say: {sum(by_hand.values())}")
    print({form: f"{codes.count(0)} of {len(codes)} planned" for form, codes in seen.items()})


def check_terms():
    """JAX reduces the terms of a sum one by one: so does a plan for it. Beside it all other forms, and a plan for none."""
    qkv = ["--rules", "heads:x"], lambda d: 2 * d["layers"] * d["batch"] * d["length"] * d["heads"] * d["d_head"]
    tied = ["--rules", "batch:x"], lambda d: d["vocab"] * d["heads"] * d["d_head"]
    with tempfile.TemporaryDirectory() as here:
        file = os.path.join(here, "plan.json")
        for model, (options, more) in ((GPT, qkv), (GPT2, qkv), (GPT2, tied)):
            dims = {name: n for name, n in read(model[0])["dims"].items() if isinstance(n, int)}
            dims.update((k, int(n)) for k, n in (word.split("=") for word in model[2::2]))
            words, moved = ["plan", *model, "--mesh", "x:2", "--machine", A100, *target(A100), "--precision", "f32", *options], {}
            for form in (None, *forms()):
                what = f"{' '.join(words[1:])}, {form}"
                code, _, err = call(*words, *(["--expressible", form] if form else []), "-o", file)
                if code != 0:
                    moved[form] = None
                    continue
                moved[form] = read(file)["predicted"]["collectives"]["all_reduce"]["bytes"]
                if form == "jax" and json.loads(call("export", model[0], file, "--as", "jax")[1])["lost"]:
                    fail(f"{what}: something is lost")
            code, text, err = call(*words, "-o", file)
            lost = json.loads(call("export", model[0], file, "--as", "jax")[1])["lost"]
            if code != 0 or "terms" not in [item["what"] for item in lost]:
                fail(f"{what}: exit {code}, lost {lost}")
            if moved["jax"] is None or moved["jax"] - moved[None] != 4 * more(dims):
                fail(f"{what}: all-reduces of {moved}, for jax {4 * more(dims)} more bytes")
            if {n for form, n in moved.items() if form != "jax"} - {moved[None], None}:
                fail(f"{what}: all-reduces of {moved}")


def check_failing(here):
    """Placements alone are left out, with the reason, for attention on a CPU and for a module that returns its loss."""
    program = read(GPT[0])
    program["framework"] = "torch"
    theirs, file = os.path.join(here, "theirs.json"), os.path.join(here, "failing.plan")
    with open(theirs, "w", encoding="utf-8") as f:
        json.dump(program, f)
    for model, machine, why in ((GPT[0], CPU, "scaled_dot_product_attention"), (theirs, A100, "returns its loss"),
                                (GPT[0], A100, None), (MLP[0], CPU, None)):
        sizes = MLP[1:] if model == MLP[0] else GPT[1:]
        code, text, err = call("plan", model, *sizes, "--mesh", "x:2", "--machine", machine, "--expressible", "torch", "-o", file)
        e = read(file)["expressible"] if code == 0 else err
        if code != 0 or (why is None) != ("failing" not in e) or (why is not None and (why not in e["failing"] or
                                                                  "placements alone are left out" not in " ".join(text.split()))):
            fail(f"{model} on {machine}: {e}")


def check_default(here):
    """A model of PyTorch is planned as PyTorch can be told, unless an option says what to search or who runs it, or no names are
    beside it."""
    theirs, names, file = (os.path.join(here, name) for name in ("theirs.json", "theirs.names.json", "default.plan"))
    shutil.copy(GPT[0].replace(".json", ".names.json"), names)
    for machine, options, form in ((A100, [], "torch"), (A100, ["--microbatches", "2"], "torch"), (A100, ["--target", "cuda"], None),
                                   (A100, ["--mode", "tensor"], None), (A100, ["--rules", "batch:x"], None),
                                   (A100, ["--pin", "head: vocab@x"], None), (A100, ["--uneven"], None),
                                   (A100, ["--expressible", "jax"], "jax"), (CPU, [], None), (A100, ["no names"], None)):
        if options == ["no names"]:
            os.remove(names)
            options = []
        code, _, err = call("plan", theirs, *GPT[1:], "--mesh", "x:2", "--machine", machine, *options, "-o", file)
        found = read(file).get("expressible", {"form": None})["form"] if code == 0 else err
        if found != form:
            fail(f"{machine} {options}: form {found}, wanted {form}")


def check_refusals():
    with tempfile.TemporaryDirectory() as here:
        check_failing(here)
        check_default(here)
    words = ["plan", *GPT, "--mesh", "x:2", "--machine", A100, *target(A100), *AS_IT_IS, "--expressible"]
    for code, options, part in (
            (2, ["nothing"], "there is no form 'nothing'; there are placements"),
            (2, ["hf", "--uneven"], "no --uneven"),
            (2, ["hf", "--prices"], "no --prices"),
            (2, ["hf", "--mode", "rules", "--pin", "head: vocab@x"], "--pin is for --mode tensor and plans that follow"),
            (2, ["hf", "--mode", "tensor", "--rules", "batch:x"], "--rules is for --mode rules"),
            (2, ["hf", "--compat", "auto_mtf"], "takes no --expressible"),
            (3, ["hf", "--mesh", "x:2;y:2", "--pin", "text: batch@x", "--pin", "head: vocab@y"], "found no layouts of which --expressible hf loses nothing"),
            (3, ["placements", "--memory", "1M"], "--expressible placements")):
        got, _, err = call(*words, *options)
        if got != code or part not in " ".join(err.split()):
            fail(f"{options}: exit {got}, wanted {code} with '{part}': {err}")


{"models": check_models, "terms": check_terms, "refusals": check_refusals}[sys.argv[2]]()
sys.exit(1 if failures else 0)
