#!/usr/bin/env python3
"""Plans with pipeline stages on ranks of MPI: verified against one device, with the losses of virtual ranks; and checkpoints, which
stages write and plans without stages go on from, and back, with the losses of a run in one go. Usage: stages_mpi.py BIN_DIR MPI"""
import json
import os
import subprocess
import sys
import tempfile

BIN, MPI = sys.argv[1], sys.argv[2] in ("1", "TRUE", "ON")
MODEL = "models/gpt2_small.json"
DIMS = ["--dim", "length=8", "--dim", "layers=4", "--dim", "heads=2", "--dim", "d_head=4", "--dim", "vocab=32", "--dim", "batch=16"]
ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []
os.environ.update(OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0")
PLANS = {"four": ["--mesh", "x:1", "--stages", "4", "--style", "**: data"],
         "two": ["--mesh", "x:2", "--stages", "layer:0,1", "--slots", "2", "--style", "**: fsdp"],
         "chunks": ["--mesh", "x:2", "--stages", "2x2", "--rules", "batch:x"],
         "one": ["--mesh", "x:1", "--style", "**: data"],
         "split": ["--mesh", "x:2", "--rules", "batch:x"]}
failed = 0


def fail(text):
    global failed
    failed += 1
    print("FAIL:", text)


def call(*args):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{' '.join(args)}: exit {done.returncode}: {done.stderr}")
    return done.stdout if done.returncode == 0 else None


def sections(path):
    """By rank what its stage ran, in order, with what it sent behind it."""
    trace = json.load(open(path))
    processes = {p["pid"]: (p["rank"], p["stage"]) for p in trace["otherData"]["processes"]}
    out = {}
    for e in sorted((e for e in trace["traceEvents"] if e.get("cat") in ("section", "send")), key=lambda e: e["ts"]):
        out.setdefault(processes[e["pid"]], []).append((e["name"], e["args"].get("bytes", 0)))
    return out


def main(folder):
    def at(name):
        return os.path.join(folder, name)

    def losses(plan, steps, *more, comm="sim"):
        ranks = ["--comm", "mpi", *ROOT] if comm == "mpi" else ["--comm", "self" if plan == "one" else comm]
        out = call(f"{BIN}/dtrun", "run", MODEL, "--plan", at(plan), *ranks, "--threads", "1", "--steps", str(steps), "--quiet", "--json", *more)
        return json.loads(out)["loss"] if out is not None else None

    def same(what, got, want, tolerance=0.0):
        good = got is not None and want is not None and len(got) == len(want) and all(
            abs(x - y) <= tolerance * abs(y) for x, y in zip(got, want))
        if not good:
            fail(f"{what}: losses {got}, expected {want}")

    for name, options in PLANS.items():
        call(f"{BIN}/dtplan", "plan", MODEL, *DIMS, "--microbatches", "4", "--target", "cpu", *options, "-o", at(name))
    whole = losses("four", 4)
    for name in ("four", "two", "chunks") if MPI else ():
        text = call(f"{BIN}/dtrun", "verify", MODEL, "--plan", at(name), "--comm", "mpi", *ROOT, "--threads", "1", "--json")
        v = json.loads(text or '{"pass": false}')
        if not v["pass"] or v["predicted"]["peak_bytes_per_rank"] != v["measured"]["peak_bytes_per_rank"]:
            fail(f"{name}: {text}")
        traces = [at(f"{name}.trace.{comm}") for comm in ("mpi", "sim")]
        same(f"{name} on MPI", losses(name, 4, "--trace", traces[0], comm="mpi"), losses(name, 4, "--trace", traces[1]))
        if sections(traces[0]) != sections(traces[1]) or len(sections(traces[0])) != 4:
            fail(f"{name}: sections on MPI {sections(traces[0])}, on virtual ranks {sections(traces[1])}")

    # Halves of a run: in f32 on one rank per stage the bits are those of the plan without stages.
    comm = "mpi" if MPI else "sim"
    same("the first half", losses("four", 2, "--save", at("a"), comm=comm), whole[:2])
    same("without stages", losses("one", 2, "--load", at("a"), "--save", at("b.safetensors")), whole[2:])
    same("without stages, 2 ranks", losses("split", 2, "--load", at("a")), whole[2:], 1e-5)
    same("other stages", losses("two", 2, "--load", at("a"), comm=comm), whole[2:], 1e-5)
    same("without stages, the first half", losses("split", 2, "--save", at("c")), whole[:2], 1e-5)
    same("with stages", losses("four", 2, "--load", at("c"), comm=comm), whole[2:], 1e-5)
    same("chunks", losses("chunks", 2, "--load", at("a"), "--save", at("f"), comm=comm), whole[2:], 1e-5)
    same("of chunks", losses("one", 2, "--load", at("c")), losses("chunks", 2, "--load", at("c")), 1e-5)
    call(f"{BIN}/dtrun", "run", MODEL, "--plan", at("split"), "--comm", "sim", "--threads", "1", "--steps", "1", "--load", at("f"), "--quiet")
    same("one file", losses("two", 2, "--save", at("d.safetensors")), whole[:2], 1e-5)
    same("of one file", losses("four", 2, "--load", at("d.safetensors")), whole[2:], 1e-5)
    same("the first three", losses("four", 3, "--save", at("e"), "--resume"), whole[:3])
    same("resumed", losses("four", 4, "--save", at("e"), "--resume", comm=comm), whole[3:])
    index = json.load(open(os.path.join(at("a"), "dtp.checkpoint.json")))
    if len(index["files"]) != 4 or len({s["file"] for t in index["tensors"].values() for s in t["slices"]}) != 4:
        fail("not every stage has written a file")


with tempfile.TemporaryDirectory() as folder:
    main(folder)
sys.exit(1 if failed else 0)
