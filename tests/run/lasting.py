#!/usr/bin/env python3
"""Runs that last: saves on the way.

lasting.py DTRUN MPI (1: there is one)
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

DTRUN, MPI = os.path.abspath(sys.argv[1]), sys.argv[2] == "1"
INDEX = "model.safetensors.index.json"
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0")
MODEL = ["models/mlp_digits.json", "--dim", "hidden=32", "--dim", "batch=32", "--rules", "batch:x", "--threads", "1"]
FEEDS = ["--feed", "images=models/data/digits_images.npy", "--feed", "labels=models/data/digits_labels.npy"]
failed = 0


def check(good, what, *said):
    global failed
    if not good:
        failed += 1
        print("FAIL: %s%s" % (what, "".join("\n  %s" % s for s in said)), flush=True)


def command(ranks, comm, *args):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [DTRUN, "run"] + MODEL + FEEDS + ["--mesh", "x:%d" % ranks, "--comm", comm] + root + list(args)


def run(ranks, comm, *args, code=0):
    done = subprocess.run(command(ranks, comm, "--json", *args), capture_output=True, env=ENVIRONMENT, text=True)
    check(done.returncode == code, "exit %d instead of %d: %s" % (done.returncode, code, " ".join(args)), done.stderr)
    return json.loads(done.stdout) if done.returncode == 0 else None, done.stderr


def steps_in(place):
    """Steps of the sets in a directory, the newest last."""
    found = []
    for name in glob.glob(os.path.join(place, "model.safetensors.index*.json")):
        with open(name) as f:
            found.append(json.load(f)["metadata"]["step"])
    return sorted(found)


def begin(saved, *args):
    """A job without end, once it has saved."""
    job = subprocess.Popen(command(*args, "--steps", "1000000000", "--quiet", "--save", saved), stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, env=ENVIRONMENT, text=True)
    deadline = time.monotonic() + 60
    while not os.path.exists(os.path.join(saved, INDEX)) and job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return job


def saves_on_the_way(place, ranks, comm):
    what = "%s, %d ranks" % (comm, ranks)
    saved = os.path.join(place, "way")
    want, _ = run(ranks, comm, "--steps", "12", "--quiet")
    got, _ = run(ranks, comm, "--steps", "12", "--quiet", "--save", saved, "--save-every", "5", "--keep", "9")
    check(got["loss"] == want["loss"], "%s: saves change losses" % what, want["loss"], got["loss"])
    check(steps_in(saved) == [5, 10, 12], "%s: sets of steps %s" % (what, steps_in(saved)))
    # a step that is a multiple and the last one is saved once; steps count from the start of training
    run(ranks, comm, "--steps", "8", "--quiet", "--load", saved, "--save", saved, "--save-every", "5", "--keep", "9")
    check(steps_in(saved) == [5, 10, 12, 15, 20], "%s: sets of steps %s" % (what, steps_in(saved)))
    # by time; all ranks save together
    timed = os.path.join(place, "timed")
    job = begin(timed, ranks, comm, "--save-every", "1s")
    job.terminate()
    said = job.communicate()[1]
    check(job.returncode == 143 and len(steps_in(timed)) == 1, "%s: saves by time: exit %d" % (what, job.returncode), said)


def refusals(place):
    for every in ("0", "-3", "1.5", "10d", "0s", ""):
        _, said = run(1, "self", "--save", os.path.join(place, "no"), "--save-every=" + every, code=2)
        check(said.startswith("dtrun: --save-every: '%s' is neither a number of steps" % every), "--save-every %s" % every, said)
    _, said = run(1, "self", "--save-every", "5", code=2)
    check(said == "dtrun: --save-every needs --save\n", "--save-every alone", said)


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    for ranks, comm in [(1, "self"), (2, "sim")] + [(2, "mpi")] * MPI:
        with tempfile.TemporaryDirectory(prefix="dtp-lasting-") as place:
            saves_on_the_way(place, ranks, comm)
    with tempfile.TemporaryDirectory(prefix="dtp-lasting-") as place:
        refusals(place)
    print("%d failed" % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
