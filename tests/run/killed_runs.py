#!/usr/bin/env python3
"""A run of 200 steps that is killed (SIGKILL of all its processes) at random moments and started again with --resume, on the
same ranks or on others each time, ends with the loss of an uninterrupted one: to the bit on the same ranks, within 1e-6 of it
on others. Its log has every step once.

killed_runs.py DTRUN MPI [--kills N] [--seed S]

MPI is 1 where there is one. A byte GPT of 2 layers with AdamW, a schedule, clipping and dropout; it saves every 7 steps and
keeps 2 sets. A moment is a step and a random time after it, so kills fall into steps and saves.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

from kill_saves import kill

STEPS = 200
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0")
LAYOUTS = [(1, "self", "batch:x"), (2, "sim", "batch:x"), (4, "sim", "batch:x"), (2, "sim", "heads:x;d_ff:x;vocab:x"),
           (2, "mpi", "batch:x"), (2, "mpi", "heads:x;d_ff:x;vocab:x")]


def make_model(path):
    with open("models/gpt_bytes_dropout.json") as f:
        model = json.load(f)
    model["dims"].update({"layers": 2, "length": 32, "heads": 4, "d_head": 8, "batch": 8})
    model["train"].update({"clip_norm": 1.0, "schedule": {"cosine": {"warmup": 20, "steps": STEPS, "last": 0.1}}})
    with open(path, "w") as f:
        json.dump(model, f)


def command(dtrun, model, layout, *args):
    ranks, comm, rules = layout
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [dtrun, "run", model, "--feed", "text=models/data/text.txt", "--mesh", "x:%d" % ranks, "--rules", rules, "--comm",
            comm, "--threads", "1", "--quiet", "--steps", str(STEPS)] + root + list(args)


def finished(args):
    done = subprocess.run(args + ["--json"], capture_output=True, env=ENVIRONMENT, text=True)
    if done.returncode != 0:
        sys.exit("FAIL: exit %d: %s\n%s" % (done.returncode, " ".join(args), done.stderr))
    return json.loads(done.stdout)["loss"]


def last_step(log):
    """Of the lines that are whole."""
    try:
        with open(log, "rb") as f:
            lines = f.read().rsplit(b"\n", 1)[0].splitlines()
        return json.loads(lines[-1])["step"] if lines else 0
    except FileNotFoundError:
        return 0


def killed_run(dtrun, model, place, layouts, rng, kills):
    """The losses of the log, and where the kills came."""
    saved, log, moments = os.path.join(place, "saved"), os.path.join(place, "log"), []
    args = ["--save", saved, "--save-every", "7", "--keep", "2", "--resume", "--seed", "5", "--log-json", log]
    for moment in sorted(rng.randrange(1, STEPS) for _ in range(kills)):
        layout, delay = next(layouts), rng.uniform(0, 0.02)
        job = subprocess.Popen(command(dtrun, model, layout, *args), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env=ENVIRONMENT, start_new_session=True)
        time.sleep(0.02)
        while last_step(log) < moment and job.poll() is None:
            time.sleep(0.001)
        time.sleep(delay)
        kill(job)
        moments.append("step %d (%s, %d ranks)" % (last_step(log), layout[1], layout[0]))
    finished(command(dtrun, model, next(layouts), *args))
    with open(log) as f:
        lines = [json.loads(line) for line in f]
    if [line["step"] for line in lines] != list(range(1, STEPS + 1)):
        sys.exit("FAIL: the log has steps %s" % [line["step"] for line in lines])
    return [line["loss"] for line in lines], moments


def same_layout(layout):
    while True:
        yield layout


def other_layouts(layouts, rng):
    last = None
    while True:
        last = rng.choice([layout for layout in layouts if layout != last])
        yield last


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dtrun")
    parser.add_argument("mpi")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    dtrun = os.path.abspath(args.dtrun)
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
    rng, failed = random.Random(seed), 0
    print("seed %d" % seed, flush=True)
    layouts = [layout for layout in LAYOUTS if args.mpi == "1" or layout[1] != "mpi"]
    with tempfile.TemporaryDirectory(prefix="dtp-killed-") as place:
        model = os.path.join(place, "model.json")
        make_model(model)
        cases = [(layout, same_layout(layout)) for layout in layouts if layout[2] != "batch:x" or layout[0] == 1]
        cases.append((layouts[0], other_layouts(layouts, rng)))
        for i, (layout, each) in enumerate(cases):
            want = finished(command(dtrun, model, layout, "--seed", "5"))
            folder = os.path.join(place, str(i))
            os.mkdir(folder)
            got, moments = killed_run(dtrun, model, folder, each, rng, args.kills)
            others = i == len(cases) - 1
            off = max(abs(a - b) / abs(b) for a, b in zip(got, want))
            bad = abs(got[-1] - want[-1]) > 1e-6 * abs(want[-1]) if others else got != want
            failed += bad
            what = "other ranks each time" if others else "%s, %d ranks, %s" % (layout[1], layout[0], layout[2])
            print("%s%s: killed at %s; final loss %.9g, uninterrupted %.9g, all steps within %.1e" %
                  ("FAIL: " if bad else "", what, ", ".join(moments), got[-1], want[-1], off), flush=True)
    print("%d failed" % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
