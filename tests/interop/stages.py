#!/usr/bin/env python3
"""Plans with pipeline stages under torch.distributed.pipelining, over gloo.

Plans of a small gpt_bytes with 2 and 4 stages, by the name of what is special in them: five losses of 2 and 4 processes equal
those of one, and the parameters of the stages are those of the plan. PyTorch's own analysis of liveness finds the slots
that every table says. Writes its section of docs/results/interop.md.
Usage: stages.py BIN_DIR   (the interpreter has torch)"""
import json
import os
import re
import subprocess
import sys
import tempfile
import types
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime, analyze_pipeline_activation_liveness

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path[:0] = [os.path.join(ROOT, "interop", "python"), os.path.join(ROOT, "examples")]
from dtplan import dtp_torch  # noqa: E402
import torch_gpt  # noqa: E402

RESULTS, BEGIN, NEXT = "docs/results/interop.md", "\n## Pipeline stages\n", "\n## The order of plans\n"
TEXT = BEGIN + """
`tests/interop/stages.py`: gpt_bytes (batch %d, length %d, %d layers) under `torch.distributed.pipelining`, built by
`dtp_torch.pipeline`, beside the module in one process, %d steps of AdamW over gloo. The last column is the largest relative
difference of a loss. PyTorch's `analyze_pipeline_activation_liveness` finds the slots of these plans, and of %d tables of
2 to 16 stages, some with two chunks each, 2 to 64 microbatches, 1F1B, 2 and 4 slots, and GPipe.

| stages | mesh of a stage | microbatches | schedule, slots | recomputed | loss | difference |
|---|---|---|---|---|---|---|
%s
"""
BATCH, LENGTH, LAYERS, STEPS = 16, 32, 4, 5
MODEL = "models/gpt_bytes.json"
DIMS = ["--dim", f"batch={BATCH}", "--dim", f"length={LENGTH}", "--dim", f"layers={LAYERS}"]
# Name: mesh of a stage, microbatches, options.
PLANS = {"two": ("x:1", 4, ["--stages", "2"]), "four": ("x:1", 8, ["--stages", "4"]),
         "gpipe": ("x:1", 4, ["--stages", "2", "--slots", "gpipe"]),
         "slots": ("x:1", 8, ["--stages", "4", "--slots", "2"]),
         "uneven": ("x:1", 4, ["--stages", "layer:0,3"]), "recomputed": ("x:1", 4, ["--stages", "2", "--remat", "layer"]),
         "data": ("x:2", 4, ["--stages", "2"]), "chunks": ("x:1", 4, ["--stages", "2x2"])}
NUMBER = re.compile(r"^([01]\.)?(module\.)?")


def export(dtplan, here, mesh, microbatches, options, dims=DIMS):
    plan, out = os.path.join(here, "plan.json"), os.path.join(here, "torch.json")
    subprocess.run([dtplan, "plan", MODEL, *dims, "--mesh", mesh, "--rules", "batch:x", "--microbatches", str(microbatches),
                    *options, "-o", plan], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([dtplan, "export", MODEL, plan, "--as", "torch", "-o", out], check=True, stdout=subprocess.DEVNULL)
    with open(out, encoding="utf-8") as f:
        return json.load(f)


def make(plan):
    torch.manual_seed(0)
    return torch_gpt.Gpt({p["name"]: tuple(p["shape"]) for p in plan["params"]})


def batch():
    text = torch.randint(0, 256, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(1))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def loss_of(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def alone(plan):
    module, (tokens, target) = make(plan), batch()
    optimizer, losses = torch.optim.AdamW(module.parameters(), lr=1e-2), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(module(tokens), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train(rank, plan, size, here):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{here}/ranks", rank=rank, world_size=size)
    stages, parts = plan["torch"]["stages"], plan["mesh"][0][1]
    n = len(stages["table"])
    mesh = init_device_mesh("cpu", (n, parts), mesh_dim_names=("stage", "x"))
    stage, part = rank // parts, rank % parts
    tokens, target = (x.chunk(parts)[part] for x in batch())
    schedule, module = dtp_torch.pipeline(make(plan), mesh, plan, (tokens[:stages["microbatch_size"]],), loss_of)
    optimizer, losses = torch.optim.AdamW(module.parameters(), lr=1e-2), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        each = []
        schedule.step(*([tokens] if stage == 0 else []), **({"target": target, "losses": each} if stage == n - 1 else {}))
        optimizer.step()
        mean = torch.stack(each).mean().detach() if each else torch.zeros(())
        dist.all_reduce(mean)
        losses.append(mean.item() / parts)
    every = [None] * size
    dist.all_gather_object(every, sorted(NUMBER.sub("", name) for name, _ in module.named_parameters()))
    if rank == 0:
        with open(os.path.join(here, "result.json"), "w", encoding="utf-8") as f:
            json.dump({"losses": losses, "params": every[::parts]}, f)
    dist.destroy_process_group()


def trained(plan, name):
    """A row, when the losses of all ranks are those of one; else None."""
    stages = plan["torch"]["stages"]
    with tempfile.TemporaryDirectory() as here:
        n = len(stages["table"])
        size = n * plan["mesh"][0][1]
        torch.multiprocessing.spawn(train, (plan, size, here), nprocs=size)
        with open(os.path.join(here, "result.json"), encoding="utf-8") as f:
            result = json.load(f)
    want = alone(plan)
    off = max(abs(a / b - 1) for a, b in zip(result["losses"], want))
    listed = [sorted(p["name"] for p in plan["params"] if any(p["name"].startswith(m + ".") for m in modules))
              for modules in stages["modules"]]
    listed = [sorted(sum(listed[s::n], [])) for s in range(n)]
    good = off < 2e-6 and want[-1] < want[0] and listed == result["params"]
    print(f"{name:12} {size} ranks, loss {want[0]:.4f} to {want[-1]:.4f}, off by {off:.1e}" + ("" if good else "  FAILED"))
    mesh, schedule = "%s:%d" % tuple(plan["mesh"][0]), stages["schedule"].replace("table", "by slots")
    return good and (f'| {", ".join(str(sum(m.startswith("layers.") for m in modules)) for modules in stages["modules"])} layers '
                     f'| {mesh} | {stages["microbatches"]} | {schedule}, {", ".join(map(str, stages["slots"]))} '
                     f'| {", ".join(plan["recomputed"])} | {want[0]:.3f} to {want[-1]:.3f} | {off:.1e} |')


def slots_agree(plan, name):
    stages = plan["torch"]["stages"]
    order = {}
    schedule = types.SimpleNamespace(_n_microbatches=stages["microbatches"], pipeline_order=order)
    for rank, row in enumerate(stages["table"]):
        order[rank] = [torch.distributed.pipelining.schedules._Action.from_str(cell) for cell in row.split(",")]
    found = [analyze_pipeline_activation_liveness(schedule, pp_rank=s, stage_indices=list(range(s, len(stages["modules"]), len(order))),
                                                granularity="stage_microbatch").num_slots
             for s in range(len(order))]
    if found != stages["slots"]:
        print(f"{name}: the plan has {stages['slots']} slots, PyTorch finds {found}")
    return found == stages["slots"]


def main():
    dtplan = os.path.join(sys.argv[1], "dtplan")
    good, rows, tables = True, [], 0
    with tempfile.TemporaryDirectory() as here:
        for name, (mesh, microbatches, options) in PLANS.items():
            plan = export(dtplan, here, mesh, microbatches, options)
            rows.append(trained(plan, name))
            good = bool(rows[-1]) and slots_agree(plan, name) and good
        for n in (2, 4, 8, 16):
            for microbatches in (2, n, 2 * n, 4 * n):
                for slots in ("1f1b", "2", "4", "gpipe"):
                    dims = ["--dim", "layers=16", "--dim", f"batch={microbatches}", "--dim", "length=8"]
                    plan = export(dtplan, here, "x:1", microbatches, ["--stages", str(n), "--slots", slots], dims)
                    good = slots_agree(plan, f"{n} stages, {microbatches} microbatches, {slots}") and good
                    tables += 1
                    if n < 16 and slots != "4":
                        plan = export(dtplan, here, "x:1", microbatches, ["--stages", f"{n}x2", "--slots", slots], dims)
                        good = slots_agree(plan, f"{n}x2 stages, {microbatches} microbatches, {slots}") and good
                        tables += 1
    if not good:
        print("FAILED")
        return 1
    with open(RESULTS, encoding="utf-8") as file:
        first, mark, rest = file.read().partition(NEXT)
    with open(RESULTS, "w", encoding="utf-8") as file:
        file.write(first.split(BEGIN)[0].rstrip("\n") + "\n" + TEXT % (BATCH, LENGTH, LAYERS, STEPS, tables, "\n".join(rows)) + mark + rest)
    print(f"{tables} tables: slots as PyTorch finds them\nwritten: {RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
