#!/usr/bin/env python3
"""Plans with pipeline stages on emulated CUDA devices, over every transport: verified against one device, and every rank allocates what
is predicted of its stage to the byte. A plan that does not fit the job is refused in one line. DTP_QUARTER=k/4 runs a part. Usage: stages.py DTRUN BIN_DIR [mpi]"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import quarter  # noqa: E402

DTRUN, BIN, MPI = sys.argv[1], sys.argv[2], "mpi" in sys.argv[3:]
os.environ.update(OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0")
SMALL = ["--dim", "batch=8", "--dim", "length=8", "--dim", "vocab=32"]
MODELS = {"gpt": ["models/gpt_bytes.json", *SMALL, "--dim", "heads=2", "--dim", "d_head=4"],
          "gpt2": ["models/gpt2_small.json", *SMALL, "--dim", "layers=4", "--dim", "heads=2", "--dim", "d_head=4"],
          "mixtral": ["models/mixtral_8x7b.json", *SMALL, "--dim", "layers=4", "--dim", "kv_heads=2", "--dim", "d_head=4", "--dim", "d_ff=16",
                      "--dim", "experts=4"]}
BATCH, SPLIT, FSDP = ["--rules", "batch:x"], ["--rules", "d_ff:x"], ["--style", "**: fsdp"]
ALL = ["--remat", "all"]
# Model, stages, slots, mesh, layouts, microbatches, more, transport: 2 and 4 ranks, slots M and S - s, two chunks on a stage, a gradient
# norm, a frozen stage, 16-bit types.
CASES = [("gpt", "2", "1f1b", "x:1", BATCH, 4, [], "device"), ("gpt", "2", "gpipe", "x:1", BATCH, 4, ALL, "staged"),
         ("gpt", "4", "1f1b", "x:1", BATCH, 8, ALL, "nccl"), ("gpt", "4", "gpipe", "x:1", BATCH, 4, [], "device"),
         ("gpt", "2", "1f1b", "x:2", SPLIT, 4, [], "nccl"), ("gpt", "2x2", "1f1b", "x:1", BATCH, 8, [], "nccl"),
         ("gpt", "2x2", "1f1b", "x:2", BATCH, 4, ALL, "device"), ("gpt", "2x2", "2", "x:1", BATCH, 4, [], "staged"),
         ("gpt2", "layer:0,1", "1f1b", "x:2", FSDP, 4, ["--precision", "bf16"], "staged"), ("gpt2", "4", "1f1b", "x:1", BATCH, 4, [], "staged"),
         ("gpt2", "2", "gpipe", "x:2", FSDP, 4, ALL, "nccl"), ("gpt2", "2x2", "1f1b", "x:1", BATCH, 4, ALL, "nccl"),
         ("mixtral", "2", "1f1b", "x:2", BATCH, 4, ALL, "device"), ("mixtral", "4", "1f1b", "x:1", BATCH, 4, [], "nccl"),
         ("mixtral", "2x2", "gpipe", "x:1", BATCH, 4, [], "device"), ("clipped", "2x2", "1f1b", "x:1", BATCH, 4, [], "nccl"),
         ("clipped", "2", "2", "x:2", BATCH, 4, [], "device"),
         ("gpt", "4", "1f1b", "x:1", BATCH, 4, ["--freeze", "layers.0.**", "--freeze", "wte", "--freeze", "wpe"], "device"),
         ("gpt", "4", "2", "x:1", BATCH, 4, ["--freeze", "layers.0.**", "--freeze", "wte", "--freeze", "wpe"], "nccl"),
         ("gpt2", "2", "1f1b", "x:1", BATCH, 4, ["--freeze", "wte"], "staged")]
failed = 0


def fail(text):
    global failed
    failed += 1
    print("FAIL:", text)


def call(*args, code=0):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode != code:
        fail(f"{' '.join(args)}: exit {done.returncode}: {done.stderr}")
        return None
    return done.stdout if code == 0 else done.stderr


def plan_of(folder, case):
    name, stages, slots, mesh, layouts, microbatches, more, _ = case
    path = os.path.join(folder, "plan.json")
    good = call(f"{BIN}/dtplan", "plan", *MODELS[name], "--mesh", mesh, "--microbatches", str(microbatches), "--target", "cuda",
                "--stages", stages, "--slots", slots, *layouts, *more, "-o", path)
    return path if good is not None else None


def check(folder, seed, case, comm):
    name, _, _, mesh, _, _, more, transport = case
    plan = plan_of(folder, case)
    os.environ.update(CUDA_EMU_SEED=str(seed), CUDA_EMU_DEVICES="4" if transport == "nccl" or seed % 2 else "1")
    on = [MODELS[name][0], "--plan", plan, "--backend", "cuda", "--transport", transport, "--threads", "1", "--json", *comm]
    tolerance = "2e-2" if "bf16" in more else "2e-5"
    text = call(DTRUN, "verify", *on, "--reference", "cpu", "--steps", "3", "--tolerance", tolerance) if plan else None
    if text is None:
        return
    v = json.loads(text)
    predicted, measured = v["predicted"]["peak_bytes_per_rank"], v["measured"]["peak_bytes_per_rank"]
    if not v["pass"] or predicted != measured or not v["gradients"] or not v["updates"]:
        fail(f"{case}: pass {v['pass']}, predicted {predicted}, allocated {measured}")


def refused(folder):
    """What does not fit: one line, exit 2."""
    os.environ["CUDA_EMU_DEVICES"] = "1"
    plan = plan_of(folder, CASES[0])
    model = MODELS["gpt"][0]
    with open(plan) as f:
        text = f.read()
    other = os.path.join(folder, "other.json")
    for words, change, options in (("the mesh has 2", None, ["--comm", "self"]),
                                   ("a card for every rank", None, ["--comm", "sim", "--transport", "nccl"]),
                                   ("has no instance 'layer:7'", ('"layer:2"', '"layer:7"'), ["--comm", "sim"])):
        if change and text.count(change[0]) != 1:
            fail(f"the plan has not {change[0]} once")
        with open(other, "w") as f:
            f.write(text.replace(*change) if change else text)
        said = call(DTRUN, "verify", model, "--plan", other, "--backend", "cuda", *options, code=2)
        if said is not None and (len(said.splitlines()) != 1 or words not in said):
            fail(f"{change or options}: {said}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(MODELS["gpt"][0]) as f:
            clipped = f.read().replace('"train": {', '"train": {"clip_norm": 0.05, ', 1)
        with open(os.path.join(folder, "clipped.json"), "w") as f:
            f.write(clipped)
        MODELS["clipped"] = [f.name, *MODELS["gpt"][1:]]
        if MPI:  # processes that share a card
            root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
            check(folder, 2, ("gpt2", "2", "1f1b", "x:1", BATCH, 4, [], "staged"), ["--comm", "mpi", *root])
        else:
            for seed, case in quarter.of(list(enumerate(CASES, 1))):
                check(folder, seed, case, ["--comm", "sim"])
            refused(folder)
    sys.exit(1 if failed else 0)


main()
