#!/usr/bin/env python3
"""--resume goes on with the run that the checkpoint is of: whatever gives its steps another meaning is refused and both are named,
what may change is said, and nothing is written by a run that is refused. Folders and single files.

resume_same.py DTRUN
"""
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile

from evaluation import ENVIRONMENT, write_npy

DTRUN = os.path.abspath(sys.argv[1])
failed = 0
OPTIMIZERS = {"adamw": {"adamw": {"lr": 0.01}}, "adam": {"adam": {"lr": 0.01}}, "momentum": {"momentum": {"lr": 0.01}},
              "sgd": {"sgd": {"lr": 0.01}}}


def check(good, *what):
    global failed
    if not good:
        failed += 1
        print("FAIL:", *what, flush=True)


def write_model(path, optimizer, op="square", lr=None, **train):
    optimizer = json.loads(json.dumps(optimizer))
    for hyper in optimizer.values():
        hyper["lr"] = lr or hyper["lr"]
    with open(path, "w") as f:
        json.dump({"format": "dtp.model/1", "name": "again", "dims": {"b": 4, "d": 3},
                   "inputs": {"x": {"dims": ["b", "d"]}, "t": {"dims": ["b"]}}, "params": {"w": {"dims": ["d"], "init": "ones"}},
                   "nodes": [{"id": "y", "op": "einsum", "in": ["x", "w"], "out": ["b"]}, {"id": "e", "op": "sub", "in": ["y", "t"]},
                             {"id": "q", "op": op, "in": ["e"]}, {"id": "loss", "op": "reduce", "kind": "mean", "in": ["q"], "over": "b"}],
                   "train": {"loss": "loss", "optimizer": optimizer, **train}}, f)


def run(here, save, steps, *words, model="m.json", feeds=("x=x.npy", "t=t.npy")):
    feed = [word for f in feeds for word in ("--feed", f)]
    done = subprocess.run([DTRUN, "run", model, *feed, "--steps", str(steps), "--save", save, "--json", "--quiet", *words], cwd=here,
                          capture_output=True, text=True, env=ENVIRONMENT)
    return done.returncode, len(json.loads(done.stdout)["loss"]) if done.returncode == 0 else None, done.stderr


def digest(path):
    files = [path] if os.path.isfile(path) else sorted(os.path.join(path, name) for name in os.listdir(path))
    return [hashlib.md5(open(f, "rb").read()).hexdigest() for f in files if not f.endswith(".lock")]


def check_optimizers(here):
    for was in OPTIMIZERS:
        for now in OPTIMIZERS:
            save = "o.%s.%s" % (was, now)
            write_model(os.path.join(here, "m.json"), OPTIMIZERS[was])
            run(here, save, 3, "--resume")
            write_model(os.path.join(here, "m.json"), OPTIMIZERS[now])
            code, n, error = run(here, save, 6, "--resume")
            if was == now:
                check(code == 0 and n == 3, was, "goes on:", code, n, error)
            else:
                check(code == 2 and "'%s'" % was in error and "'%s'" % now in error and "--load" in error, was, "to", now, code, error)
            code, n, error = run(here, save + ".new", 2, "--load", save)
            check(code == 0 and n == 2, was, "to", now, "by --load", code, error)


def check_older(here, index):
    """Checkpoints of older versions have no texts: the optimizer is known by its states."""
    for was, now in (("adamw", "momentum"), ("sgd", "adamw"), ("adam", "sgd"), ("adamw", "adamw")):
        save = "old.%s.%s" % (was, now)
        write_model(os.path.join(here, "m.json"), OPTIMIZERS[was])
        run(here, save, 3)
        path = os.path.join(here, save, index)
        with open(path) as f:
            text = json.load(f)
        text["metadata"] = {k: text["metadata"][k] for k in ("format", "step", "seed")}
        with open(path, "w") as f:
            json.dump(text, f)
        write_model(os.path.join(here, "m.json"), OPTIMIZERS[now])
        code, n, error = run(here, save, 6, "--resume")
        if was == now:
            check(code == 0 and n == 3, "older", was, "goes on:", code, n, error)
        else:
            check(code == 2 and "another optimizer" in error and "--load" in error, "older", was, "to", now, code, error)


def check_changes(here, save):
    model = os.path.join(here, "m.json")
    write_model(model, OPTIMIZERS["adamw"])
    write_model(os.path.join(here, "op.json"), OPTIMIZERS["adamw"], op="abs")
    write_model(os.path.join(here, "lr.json"), OPTIMIZERS["adamw"], lr=0.02)
    write_model(os.path.join(here, "clip.json"), OPTIMIZERS["adamw"], clip_norm=0.5)
    write_model(os.path.join(here, "warm.json"), OPTIMIZERS["adamw"], schedule={"cosine": {"steps": 100, "warmup": 2}})
    code, n, error = run(here, save, 3, "--resume", "--seed", "7")
    check(code == 0 and n == 3, "first", code, error)
    before = digest(os.path.join(here, save))
    for what, words, options, names in (
            ("batch", ["--dim", "b=8"], {}, ["x[4,3], t[4]", "x[8,3], t[8]"]),
            ("seed", ["--seed", "8"], {}, ["seed 7", "seed 8"]),
            ("model", [], {"model": "op.json"}, ["the model 'again ("]),
            ("other data", [], {"feeds": ("x=other.npy", "t=t.npy")}, ["x=x.npy", "x=other.npy"]),
            ("more rows", [], {"feeds": ("x=more.npy", "t=t.npy")}, ["10 rows", "12 rows"]),
            ("no feed", [], {"feeds": ("x=x.npy",)}, ["t: 10 rows", "t: synthetic"])):
        code, n, error = run(here, save, 6, "--resume", *words, **options)
        check(code == 2 and all(name in error for name in names) and error.count("\n") == 1, save, what, "is not refused:", code, error)
        check("--load" in error or what == "seed", save, what, "names no way out:", error)
        check(digest(os.path.join(here, save)) == before, save, what, "has written")
    steps = 3
    for what, words, options, says in (
            ("nothing", [], {}, None),
            ("rate", [], {"model": "lr.json"}, "lr=0.02"),
            ("clipping", [], {"model": "clip.json"}, "clip_norm=0.5"),
            ("schedule", [], {"model": "warm.json"}, "cosine"),
            ("path", [], {"feeds": ("x=copy.npy", "t=t.npy")}, "copy.npy"),
            ("ranks", ["--mesh", "x:2", "--rules", "b:x", "--comm", "sim"], {}, None),
            ("microbatches", ["--microbatches", "2"], {}, None),
            ("precision", ["--precision", "bf16"], {}, None)):
        run(here, save, steps, "--resume")  # the texts are those of m.json again
        code, n, error = run(here, save, steps + 1, "--resume", *words, **options)
        check(code == 0 and n == 1, save, what, "does not go on:", code, n, error)
        changed = [line for line in error.splitlines() if "changed" in line]
        check(not changed if says is None else any(says in line for line in changed), save, what, "says", error)
        steps += 2
        code, n, error = run(here, save, steps, "--resume")
        check(code == 0 and n == 1, save, what, "does not go back:", code, n, error)


def main():
    with tempfile.TemporaryDirectory() as here:
        rows = {"x": [0.1 * i for i in range(30)], "more": [0.1 * i for i in range(36)], "other": [0.2 * i for i in range(30)]}
        for name, values in rows.items():
            write_npy(os.path.join(here, name + ".npy"), "<f4", [len(values) // 3, 3], struct.pack("<%df" % len(values), *values))
        write_npy(os.path.join(here, "copy.npy"), "<f4", [10, 3], struct.pack("<30f", *rows["x"]))
        write_npy(os.path.join(here, "t.npy"), "<f4", [10], struct.pack("<10f", *range(10)))
        check_optimizers(here)
        check_older(here, "dtp.checkpoint.json")
        check_changes(here, "c")
        check_changes(here, "c.safetensors")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
