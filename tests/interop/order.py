#!/usr/bin/env python3
"""Whether plans under PyTorch come in the order that was predicted: two processes (gloo) on this machine.

Steps of three models under plans of target torch, beside what they take on a machine file of dtrun's kernels and on one of PyTorch's
(dtrun bench, with --as torch). regret: how much longer the plan that is predicted to be the fastest takes than the fastest one.
Writes its part of docs/results/interop.md. DTP_TORCH_PYTHON names an interpreter that has torch. Called by ./dev interop order.
Usage: order.py BIN_DIR
"""
import json
import os
import subprocess
import sys

HERE, RESULTS = "build/interop", "docs/results/interop.md"
BEGIN, NEXT = "\n## The order of plans\n", "\n## After a plan is applied in PyTorch\n"
GPT, MLP = "models/gpt_bytes.json", "models/mlp_digits.json"
MODELS = {  # name -> model, its sizes
    "GPT, batch 8, length 64": (GPT, ["batch=8", "length=64", "layers=2"]),
    "GPT, batch 2, length 256": (GPT, ["batch=2", "length=256", "layers=4", "heads=24"]),
    "MLP, batch 96, hidden 4,096": (MLP, ["hidden=4096"]),
}
PLANS = {"replicated": "replicated", "data parallel": "data_parallel", "FSDP": "zero3", "Megatron": "megatron"}
MACHINES = {"dtrun": [], "PyTorch": ["--as", "torch"]}
STEPS = "60"


def call(words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=1500, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.decode()[-2000:]}")
    return done.stdout.decode()


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def measure_machines(dtrun):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    files = {}
    for name, words in MACHINES.items():
        files[name] = f"{HERE}/order.{name}.machine.json"
        call([dtrun, "bench", "--ranks", "2", "--quick", "--quiet", "-o", files[name], *words, *([] if words else root)])
    return files


def plan(dtplan, model, sizes, machine, style, out):
    """Seconds of a step, as predicted; the plan is written. None: there is no such plan."""
    words = [dtplan, "plan", model, "--mesh", "x:2", "--machine", machine, "--target", "torch", "--precision", "f32", "-o", out]
    words += [word for size in sizes for word in ("--dim", size)]
    if style is None:
        call([*words, "--mode", "tensor", "--limit-s", "20"])
        return read(out)
    call([*words, *style])
    return read(out)["predicted"]["step_time_s"]


def styles_of(baselines):
    out = {}
    for name, key in PLANS.items():
        b = baselines.get(key, {})
        if b.get("legal"):
            out[name] = ["--rules", b["rules"]] if b.get("rules") else [
                word for s in b.get("styles", ["**: replicate(x)"]) for word in ("--style", s)]
    return out


def rows(bin_dir):
    dtplan, dtrun = (os.path.join(bin_dir, tool) for tool in ("dtplan", "dtrun"))
    machines = measure_machines(dtrun)
    for label, (model, sizes) in MODELS.items():
        free = plan(dtplan, model, sizes, machines["PyTorch"], None, f"{HERE}/order.free.plan")
        predicted, measured = {name: {} for name in machines}, {}
        for name, style in styles_of(free["baselines"]).items():
            for machine, file in machines.items():
                out = f"{HERE}/order.plan"
                predicted[machine][name] = plan(dtplan, model, sizes, file, style, out)
            call([dtplan, "export", model, out, "--as", "torch", "-o", f"{HERE}/order.torch.json"])
            result = json.loads(call([os.environ["DTP_TORCH_PYTHON"], os.path.join(os.path.dirname(__file__), "run_order.py"), model,
                                      f"{HERE}/order.torch.json", STEPS], env={**os.environ, "OMP_NUM_THREADS": "1"}))
            measured[name] = result["step_s"]
        best = min(measured.values())
        for name in measured:
            yield [label, name, f"{measured[name] * 1e3:.1f}",
                   *(f"{predicted[m][name] * 1e3:.1f}" for m in machines)]
            label = ""
        yield ["", "regret", "",
               *(f"{100 * (measured[min(predicted[m], key=predicted[m].get)] / best - 1):.0f} %" for m in machines)]


TEXT = BEGIN + """
`./dev interop order`: two processes of one thread (gloo), steps of AdamW in f32; ms of a step: measured (lower decile of %s), and as
predicted for target torch on a machine file of `dtrun bench --quick` and on one of `dtrun bench --quick --as torch`. regret: how much
longer the plan that is predicted to be the fastest takes than the one that is.

%s
"""


def main():
    os.makedirs(HERE, exist_ok=True)
    lines = ["| model | plan | measured | dtrun's kernels | PyTorch's |", "| --- | --- | --- | --- | --- |"]
    for row in rows(sys.argv[1]):
        lines.append("| " + " | ".join(row) + " |")
        print(lines[-1], flush=True)
    with open(RESULTS, encoding="utf-8") as file:
        text = file.read()
    first, mark, rest = text.partition(NEXT)
    with open(RESULTS, "w", encoding="utf-8") as file:
        file.write(first.split(BEGIN)[0].rstrip("\n") + "\n" + TEXT % (STEPS, "\n".join(lines)) + mark + rest)
    print(f"written: {RESULTS}")


if __name__ == "__main__":
    main()
