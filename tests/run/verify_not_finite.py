#!/usr/bin/env python3
"""dtrun verify where numbers are not finite: f16 gradients that overflow on one device alone under the loss scale, and labels or masks
that leave nothing to average, which both sides see. Made-up labels leave something.

verify_not_finite.py DTRUN SOURCE
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

from evaluation import ENVIRONMENT, write_npy

DTRUN, SOURCE = os.path.abspath(sys.argv[1]), sys.argv[2]
LAYOUTS = [["--comm", "self"], ["--comm", "sim", "--mesh", "x:2", "--rules", "batch:x"]]
failed = 0


def check(good, *what):
    global failed
    if not good:
        failed += 1
        print("FAIL:", *what, flush=True)


def verify(model, *words):
    done = subprocess.run([DTRUN, "verify", model, "--steps", "2", "--threads", "1", "--json", *words], capture_output=True, text=True,
                          env=ENVIRONMENT)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def write_sums(path, kind, factor):
    """A loss whose gradients are sums of many terms: those of the whole batch leave f16 before those of a part of it do."""
    with open(path, "w") as f:
        json.dump({"format": "dtp.model/1", "name": "sums", "dims": {"batch": 8, "d": 8, "h": 12, "c": 4},
                   "inputs": {"x": {"dims": ["batch", "h", "d"]}},
                   "params": {"w": {"dims": ["d", "c"], "init": {"normal": 0.4}}},
                   "nodes": [{"id": "y", "op": "einsum", "in": ["x", "w"], "out": ["batch", "h", "c"]}, {"id": "t", "op": "tanh", "in": ["y"]},
                             {"id": "q", "op": "square", "in": ["t"]}, {"id": "s", "op": "scale", "in": ["q"], "factor": factor},
                             {"id": "loss", "op": "reduce", "in": ["s"], "kind": kind, "over": ["batch", "h", "c"]}],
                   "train": {"loss": "loss", "optimizer": {"adamw": {"lr": 0.01}}}}, f)


def check_overflow(here):
    model, apart = os.path.join(here, "sums.json"), 0
    for kind, factor in (("sum", 1.0), ("sum", 20.0), ("mean", 300.0)):
        write_sums(model, kind, factor)
        for layout in LAYOUTS:
            skipped = []
            for parts in ("1", "2", "4") if "sim" in layout else ("1", "2", "4", "8"):
                code, got, error = verify(model, "--precision", "f16", "--microbatches", parts, *layout)
                check(code == 0 and got["pass"], kind, factor, *layout, parts, "microbatches:", got or error)
                skipped.append(got["skipped_steps"] if got else 0)
            apart += max(skipped) > 0
    check(apart > 0, "no gradient overflows f16")


def check_empty(here):
    labels, mask = os.path.join(here, "labels.npy"), os.path.join(here, "mask.npy")
    write_npy(labels, "<i4", [8, 4], struct.pack("<32i", *[-100] * 32))
    write_npy(mask, "|b1", [8, 4], bytes(32))
    for model, feed in (("labels.json", "labels=" + labels), ("masked.json", "mask=" + mask)):
        for layout in LAYOUTS:
            for parts in ("1", "2", "4"):
                words = ["--microbatches", parts, "--feed", feed, *layout]
                code, got, error = verify(os.path.join(SOURCE, "tests/run", model), *words)
                what = " ".join([model, *layout, parts])
                check(code == 0 and got["pass"] and got["outputs"]["loss"].get("nan_step") == 1, what, got or error)
                done = subprocess.run([DTRUN, "verify", os.path.join(SOURCE, "tests/run", model), "--steps", "1", *words],
                                      capture_output=True, text=True, env=ENVIRONMENT)
                check("NaN on both sides: outputs 'loss' step 1" in done.stdout, what, done.stdout)


def check_made_up():
    """A batch of one label."""
    for seed in range(16):
        words = ["--dim", "batch=1", "--dim", "length=1", "--seed", str(seed), "--steps", "3", "--json", "--quiet"]
        done = subprocess.run([DTRUN, "run", os.path.join(SOURCE, "tests/run/labels.json"), *words], capture_output=True, text=True,
                              env=ENVIRONMENT)
        check(done.returncode == 0, "seed", seed, done.stderr)


def main():
    with tempfile.TemporaryDirectory() as here:
        check_overflow(here)
        check_empty(here)
    check_made_up()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
