#!/usr/bin/env python3
"""Runs that last: saves on the way, runs that are started again, their log.

lasting.py DTRUN MPI (1: there is one)
"""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from jsonschema import Draft202012Validator
from kill_saves import kill

DTRUN, MPI = os.path.abspath(sys.argv[1]), sys.argv[2] == "1"
INDEX = "dtp.checkpoint.json"
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0")
MODEL = ["models/mlp_digits.json", "--dim", "hidden=32", "--dim", "batch=32", "--threads", "1"]
FEEDS = ["--feed", "images=models/data/digits_images.npy", "--feed", "labels=models/data/digits_labels.npy"]
failed = 0


def check(good, what, *said):
    global failed
    if not good:
        failed += 1
        print("FAIL: %s%s" % (what, "".join("\n  %s" % s for s in said)), flush=True)


def command(ranks, comm, *args, rules="batch:x"):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [DTRUN, "run"] + MODEL + FEEDS + ["--mesh", "x:%d" % ranks, "--rules", rules, "--comm", comm] + root + list(args)


def close(got, want):
    return len(got) == len(want) and all(abs(a - b) <= 1e-6 * abs(b) for a, b in zip(got, want))


def run(ranks, comm, *args, code=0, rules="batch:x"):
    done = subprocess.run(command(ranks, comm, "--json", *args, rules=rules), capture_output=True, env=ENVIRONMENT, text=True)
    check(done.returncode == code, "exit %d instead of %d: %s" % (done.returncode, code, " ".join(args)), done.stderr)
    return json.loads(done.stdout) if done.returncode == 0 else None, done.stderr


def steps_in(place):
    """Steps of the sets in a directory, the newest last."""
    found = []
    for name in glob.glob(os.path.join(place, "dtp.checkpoint*.json")):
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


def goes_on(place, ranks, comm, single):
    """The same command line again and again: the losses are those of one run, and the words say from where."""
    what = "%s, %d ranks, %s" % (comm, ranks, "file" if single else "folder")
    saved = os.path.join(place, "goes.safetensors" if single else "goes")
    index = saved if single else os.path.join(saved, INDEX)
    again = ["--quiet", "--resume", "--save", saved]
    whole, _ = run(ranks, comm, "--steps", "11", "--seed", "7", "--quiet")
    want = whole["loss"]
    first, said = run(ranks, comm, "--steps", "4", "--seed", "7", *again)
    check(said == "dtrun: %s: holds no checkpoint: starts at the first step\n" % saved, what, said)
    second, said = run(ranks, comm, "--steps", "8", *again)
    check(said == "dtrun: %s: goes on after step 4 of 8\n" % index, what, said)
    check(first["loss"] + second["loss"] == want[:8], "%s: other losses" % what, want[:8], first["loss"] + second["loss"])
    before = os.stat(index).st_ino
    none, said = run(ranks, comm, "--steps", "8", *again)
    check(said == "dtrun: %s: goes on after step 8 of 8: nothing is left to do\n" % index, what, said)
    check(none["loss"] == [] and none["step_time_s"]["median"] is None and os.stat(index).st_ino == before, what, none)
    _, said = run(ranks, comm, "--steps", "11", "--seed", "8", *again, code=2)
    check(said == "dtrun: %s: the run has seed 7, and cannot go on with seed 8\n" % index, what, said)
    other, _ = run(3, "sim", "--uneven", "--steps", "11", "--seed", "7", *again)
    check(close(other["loss"], want[8:]), "%s: other losses on 3 ranks" % what, want[8:], other["loss"])


def states_go_on(place, precision):
    """Adam's states, schedule, clipping and the scale of the loss of f16, which changes on the way."""
    with open("models/mlp_digits.json") as f:
        model = json.load(f)
    model["train"].update({"clip_norm": 0.5, "schedule": {"cosine": {"warmup": 4, "steps": 30}}})
    path, saved = os.path.join(place, "model.json"), os.path.join(place, "states-" + precision)
    with open(path, "w") as f:
        json.dump(model, f)
    args = [DTRUN, "run", path] + FEEDS + ["--mesh", "x:2", "--rules", "batch:x", "--comm", "sim", "--threads", "1", "--quiet",
                                           "--json", "--precision", precision]
    whole = json.loads(subprocess.run(args + ["--steps", "20"], capture_output=True, env=ENVIRONMENT).stdout)
    parts = [json.loads(subprocess.run(args + ["--steps", str(n), "--save", saved, "--resume"], capture_output=True,
                                       env=ENVIRONMENT).stdout) for n in (3, 13, 20)]
    for key in ("loss", "rate", "grad_norm"):
        got = sum((part[key] for part in parts), [])
        check(got == whole[key], "%s: other %s" % (precision, key), whole[key], got)
    check(parts[-1].get("loss_scale") == whole.get("loss_scale"), "%s: other loss scale" % precision)


def damaged(place, ranks, comm):
    """A set that is damaged is left out with a warning, and all of them are an error."""
    for sets in ((2,), (1, 2)):
        saved = os.path.join(place, "damaged%d" % len(sets))
        again = ["--quiet", "--resume", "--save", saved, "--keep", "2", "--save-every", "3"]
        want, _ = run(ranks, comm, "--steps", "8", "--quiet", rules="hidden:x")
        run(ranks, comm, "--steps", "6", *again, rules="hidden:x")
        for number in sets:
            with open(os.path.join(saved, "rank-%d-of-%d.%d.safetensors" % (ranks - 1, ranks, number)), "r+b") as f:
                f.seek(-5, os.SEEK_END)
                f.write(b"?")
        got, said = run(ranks, comm, "--steps", "8", *again, code=2 if len(sets) == 2 else 0, rules="hidden:x")
        if len(sets) == 1:
            check("warn checkpoint damaged" in said and " sets=1 newest: %s: " % os.path.join(saved, INDEX) in said, "warning", said)
            check("dtp.checkpoint.1.json: goes on after step 3 of 8" in said, "not the older set", said)
            check(got["loss"] == want["loss"][3:], "damaged: other losses", want["loss"], got["loss"])
        else:
            check(said.startswith("dtrun: %s: " % os.path.join(saved, INDEX)), "damaged: all of them", said)


def lines_of(path):
    with open(path) as f, open("docs/formats/log.schema.json") as schema:
        validator, lines = Draft202012Validator(json.load(schema)), [json.loads(line) for line in f]
    for line in lines:
        validator.validate(line)
    return lines


def logs(place, ranks, comm):
    what, saved, log = "%s, %d ranks" % (comm, ranks), os.path.join(place, "logged"), os.path.join(place, "log")
    # killed in the middle of a line, behind its last save
    job = begin(saved, ranks, comm, "--log-json", log, "--save-every", "20")
    while sum(1 for _ in open(log)) % 20 < 5:
        time.sleep(0.0005)
    kill(job)
    with open(log, "a") as f:
        f.write('{"step": 10000')
    with open(os.path.join(saved, INDEX)) as f:
        step = json.load(f)["metadata"]["step"]
    again = ["--quiet", "--resume", "--save", saved, "--log-json", log]
    got, _ = run(ranks, comm, "--steps", str(step + 5), *again)
    lines = lines_of(log)
    check([line["step"] for line in lines] == list(range(1, step + 6)), "%s: steps of the log" % what, lines[-8:])
    check([line["loss"] for line in lines[-5:]] == got["loss"], "%s: losses of the log" % what, lines[-5:], got["loss"])
    check(all(line["rate"] == 0.003 and "grad_norm" not in line for line in lines), "%s: rates" % what, lines[-1])
    check(sorted(line["time"] for line in lines) == [line["time"] for line in lines], "%s: times" % what)
    run(ranks, comm, "--steps", "2", "--quiet", "--log-json", log)
    check(len(lines_of(log)) == 2, "%s: a new run keeps lines" % what, lines_of(log))
    # what cannot be written
    _, said = run(ranks, comm, "--steps", "2", "--quiet", "--log-json", "/dev/full", code=1)
    check(said == "dtrun: /dev/full: cannot write: No space left on device\n", "%s: full" % what, said)
    other = os.path.join(place, "other")
    with open(other, "w") as f:
        f.write("my notes\n")
    _, said = run(ranks, comm, "--steps", "999", "--quiet", "--resume", "--save", saved, "--log-json", other, code=2)
    check("dtrun: %s: line 1 is not of a step: the file is not cut\n" % other in said, "%s: another file" % what, said)
    check(open(other).read() == "my notes\n", "%s: another file was changed" % what)


def interrupted(place, ranks, comm):
    """One signal: the step is saved, and the run goes on as if nothing had been. Two: the last save is whole."""
    for sig, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        what, saved = "%s, %d ranks, %s" % (comm, ranks, sig.name), os.path.join(place, sig.name)
        log = saved + ".log"
        again = ["--quiet", "--resume", "--save", saved, "--log-json", log]
        job = begin(saved, ranks, comm, "--save-every", "50", "--resume", "--log-json", log)
        job.send_signal(sig)
        said = job.communicate()[1]
        step = steps_in(saved)[-1]
        check(job.returncode == code and said.endswith("dtrun: interrupted by %s after step %d\n" % (sig.name, step)), what, said)
        run(ranks, comm, "--steps", str(step + 3), *again)
        want, _ = run(ranks, comm, "--steps", str(step + 3), "--quiet")
        check([line["loss"] for line in lines_of(log)] == want["loss"], "%s: other losses" % what)
    saved = os.path.join(place, "twice")
    slow = [DTRUN, "run", "models/gpt_bytes.json", "--dim", "batch=1536", "--dim", "layers=1", "--mesh", "x:%d" % ranks, "--rules",
            "batch:x", "--comm", comm, "--threads", "1", "--allow-run-as-root", "--quiet", "--save", saved, "--save-every", "1",
            "--resume", "--steps"]
    for attempt in range(4):  # until both come within one step, which takes longer than that
        job = subprocess.Popen(slow + ["99"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT, text=True)
        while not os.path.exists(os.path.join(saved, INDEX)):
            time.sleep(0.02)
        time.sleep(0.2)
        for _ in range(2):
            job.send_signal(signal.SIGINT)
            time.sleep(0.2)
        said = job.communicate()[1]
        check(job.returncode in (130, -signal.SIGINT), "%s: two signals: %s" % (comm, job.returncode), said)
        if "after step" not in said or attempt == 3:
            break
        shutil.rmtree(saved)
    check("after step" not in said, "%s: two signals" % comm, said)
    step = steps_in(saved)[-1]
    done = subprocess.run(slow + [str(step + 1)], capture_output=True, env=ENVIRONMENT, text=True)
    check(done.returncode == 0 and "goes on after step %d of %d" % (step, step + 1) in done.stderr, "two signals", done.stderr)


def log_options(place):
    _, said = run(1, "self", "--log-json", os.path.join(place, "no", "log"), code=2)
    check(said.startswith("dtrun: --log-json: "), "--log-json", said)
    _, said = run(1, "self", "--log-json", os.path.join(place, "log"), "--no-writes", code=2)
    check(said.startswith("dtrun: --log-json writes files"), "--no-writes", said)
    done = subprocess.run([DTRUN, "run", "models/gpt_bytes.json", "--dim", "layers=1", "--dim", "batch=2", "--threads", "1",
                           "--steps", "3", "--log-every", "1", "--log-json", os.path.join(place, "log")],
                          capture_output=True, env=ENVIRONMENT, text=True)
    line = r"[0-9-]{10}T[0-9:]{8}Z step %d/3  loss [0-9.]+  [0-9]+ tokens/s  left 0:[0-9]{2}"
    got = done.stderr.splitlines()
    check(len(got) == 3 and all(re.fullmatch(line % (i + 1), said) for i, said in enumerate(got)), "lines of progress", *got)
    check(all(entry["tokens_per_s"] > 0 for entry in lines_of(os.path.join(place, "log"))), "no tokens/s")


def starts_from_load(place):
    """--load with --resume is what a new run starts from, and no more."""
    base, saved = os.path.join(place, "base"), os.path.join(place, "tuned")
    run(1, "self", "--steps", "2", "--quiet", "--save", base)
    again = ["--quiet", "--resume", "--save", saved, "--load", base]
    _, said = run(1, "self", "--steps", "5", *again)
    check(said == "dtrun: %s: holds no checkpoint: starts from %s\n" % (saved, base), "--load", said)
    got, said = run(1, "self", "--steps", "6", *again)
    check("goes on after step 5 of 6" in said and len(got["loss"]) == 1, "--load again", said)
    with open(os.path.join(saved, INDEX)) as index, open("docs/formats/checkpoint.schema.json") as schema:
        found = json.load(index)
        Draft202012Validator(json.load(schema)).validate(found)
    check(found["metadata"]["seed"] == "0", "no seed", found["metadata"])
    _, said = run(1, "self", "--steps", "6", "--fetch", "logits=" + os.path.join(place, "l.npy"), *again, code=2)
    check("--fetch: no step is left to run" in said, "--fetch without a step", said)


def refusals(place):
    _, said = run(1, "self", "--resume", code=2)
    check(said == "dtrun: --resume needs --save\n", "--resume alone", said)
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
            for single in (False, True):
                goes_on(place, ranks, comm, single)
            damaged(place, ranks, comm)
            logs(place, ranks, comm)
            if ranks > 1:
                interrupted(place, ranks, comm)
    with tempfile.TemporaryDirectory(prefix="dtp-lasting-") as place:
        for precision in ("f32", "f16"):
            states_go_on(place, precision)
        starts_from_load(place)
        log_options(place)
        refusals(place)
    print("%d failed" % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
