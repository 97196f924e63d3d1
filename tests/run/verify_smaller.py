#!/usr/bin/env python3
"""dtrun verify of plans for other machines: as programs of the target of the backend, on fewer ranks.
Usage: verify_smaller.py BIN_DIR. Random plans print their seed."""
import json
import math
import os
import random
import subprocess
import sys
import tempfile

BIN = sys.argv[1]
DIGITS, GPT, LLAMA, MIXTRAL = (f"models/{m}.json" for m in ("mlp_digits", "gpt_bytes", "llama3_8b", "mixtral_8x7b"))
GPT_SIZES = {"length": 8, "layers": 1, "heads": 8, "d_head": 4, "batch": 32, "vocab": 64}
LLAMA_SIZES = {"length": 8, "layers": 1, "kv_heads": 8, "group": 2, "d_head": 4, "batch": 32, "vocab": 64, "d_ff": 32}
SEED = 7
counts = {"verified": 0, "refused": 0}
os.environ.update(OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0")


def run(program, *args):
    return subprocess.run([f"{BIN}/{program}", *args], capture_output=True, text=True, check=False)


def dims(sizes):
    return [a for name, size in sizes.items() for a in ("--dim", f"{name}={size}")]


def plan(folder, model, sizes, mesh, *options):
    path = f"{folder}/{len(os.listdir(folder))}.plan"
    done = run("dtplan", "plan", model, *dims(sizes), "--mesh", mesh, "--machine", "h100_64", "-o", path, *options)
    assert done.returncode == 0, done.stderr
    return path


def verify(model, path, ranks, *options, steps=1):
    """The report, which must pass; the mesh has at most so many ranks, and sizes are split evenly where they were."""
    done = run("dtrun", "verify", model, "--plan", path, "--ranks-at-most", str(ranks), "--steps", str(steps), "--json",
               *options)
    assert done.returncode == 0, (path, done.returncode, done.stderr, done.stdout[-2000:])
    report = json.loads(done.stdout)
    assert report["pass"] and report["ranks"] == math.prod(size for _, size in report["mesh"]) <= ranks, report
    assert all(p == report["predicted"]["peak_bytes"] for p in report["measured"]["peak_bytes_per_rank"])
    assert report["gradients"] and report["outputs"] and report["updates"], report
    counts["verified"] += 1
    return report


def refused(model, path, options, *words):
    done = run("dtrun", "verify", model, "--plan", path, *options)
    assert done.returncode == 2 and done.stdout == "", (options, done.returncode, done.stdout)
    assert len(done.stderr.strip().splitlines()) == 1 and all(w in done.stderr for w in words), done.stderr
    counts["refused"] += 1


def planned_cases(folder):
    """(model, report's expected target, path): rules and tensor mode, memory saving, precisions, targets."""
    wide = "batch:x;heads:y;d_ff:y;vocab:y"
    yield GPT, "cuda", plan(folder, GPT, GPT_SIZES, "x:8;y:8", "--rules", wide)
    yield GPT, "cuda", plan(folder, GPT, GPT_SIZES, "x:8;y:8", "--rules", wide, "--microbatches", "2", "--remat", "layer",
                            "--precision", "bf16,gradients=f32")
    yield GPT, "cuda", plan(folder, GPT, GPT_SIZES, "x:8;y:8", "--rules", wide, "--precision", "tf32")
    yield GPT, "torch", plan(folder, GPT, GPT_SIZES, "x:8;y:8", "--rules", wide, "--target", "torch")
    yield GPT, "torch", plan(folder, GPT, GPT_SIZES, "x:4;y:4", "--style", "**: fsdp(x)", "--target", "torch", "--compat", "torch")
    yield LLAMA, "cuda", plan(folder, LLAMA, LLAMA_SIZES, "x:4;y:4;z:4", "--rules", "batch:x;kv_heads:y;d_ff:y;vocab:y;length:z",
                              "--precision", "f32")
    sizes = dict(LLAMA_SIZES, experts=8, capacity=4)
    yield MIXTRAL, "cuda", plan(folder, MIXTRAL, sizes, "x:8;y:8", "--rules", "batch:x;experts:y", "--precision", "f32")
    yield DIGITS, "cuda", plan(folder, DIGITS, {}, "x:8;y:8", "--mode", "tensor", "--objective", "memory", "--precision", "f32")


def check_planned(folder):
    first = None
    for model, target, path in planned_cases(folder):
        report = verify(model, path, 8)
        with open(path, encoding="utf-8") as f:
            file = json.load(f)
        tf32 = file.get("precision", {}).get("products") == "tf32"
        assert report["planned"] == {"target": target, **({"tf32": True} if tf32 else {}), "mesh": file["mesh"],
                                     "dims": file["dims"]}, report["planned"]
        assert report["target"] == "cpu" and any(report["dims"][d] < n for d, n in file["dims"].items()), report["dims"]
        first = first or path
    # Sizes of the command line stay, and a plan with few ranks is verified as it is.
    report = verify(GPT, first, 8, "--dim", "batch=32", "--dim", "vocab=64")
    assert (report["dims"]["batch"], report["dims"]["vocab"], report["dims"]["heads"]) == (32, 64, 4), report["dims"]
    report = verify(GPT, first, 64)
    assert report["mesh"] == [["x", 8], ["y", 8]] and report["planned"] == {"target": "cuda"}, report["planned"]
    text = run("dtrun", "verify", GPT, "--plan", first, "--ranks-at-most", "8", "--steps", "1").stdout
    line = " ".join(text.split())
    assert "layouts of a plan for target cuda, in a program of target cpu; verified on x:2;y:4 for x:8;y:8, with batch=8 " \
           "for 32, vocab=32 for 64, heads=4 for 8" in line, text
    return first


def check_refusals(folder, path):
    refused(GPT, path, ["--ranks-at-most", "3"], "--ranks-at-most 3", "x:8;y:8", "needs 4 ranks")
    refused(GPT, path, ["--ranks-at-most", "0"], "--ranks-at-most", "0")
    uneven = plan(folder, DIGITS, {"batch": 32}, "x:3", "--rules", "batch:x", "--uneven", "--precision", "f32")
    refused(DIGITS, uneven, ["--ranks-at-most", "2", "--dim", "batch=32"], "--ranks-at-most 2: no mesh smaller than x:3",
            "the uneven split of 'batch', 32 in 3 parts, became 'batch', 32 in 2 parts")
    assert verify(DIGITS, uneven, 2)["dims"]["batch"] % 2 == 1
    done = run("dtrun", "verify", DIGITS, "--mesh", "x:2", "--ranks-at-most", "4")
    assert done.returncode == 2 and "--ranks-at-most is for a plan" in done.stderr, done.stderr
    # Others than verify run no plan for another target.
    done = run("dtrun", "run", GPT, "--plan", path, "--comm", "sim")
    assert done.returncode == 2 and "is for target 'cuda'" in done.stderr, done.stderr
    with open(path, encoding="utf-8") as f:
        file = json.load(f)
    file["target"] = "abacus"
    bad = f"{folder}/bad.plan"
    with open(bad, "w", encoding="utf-8") as f:
        json.dump(file, f)
    refused(GPT, bad, ["--ranks-at-most", "8"], bad, "abacus")


def check_random(folder):
    """Plans that split sizes evenly and unevenly over one to three mesh dims, written here."""
    rng = random.Random(SEED)
    with open(plan(folder, DIGITS, {}, "x:2", "--rules", "batch:x", "--precision", "f32", "--uneven"), encoding="utf-8") as f:
        file = json.load(f)
    even = uneven = 0
    while counts["verified"] < 28:
        names = "xyz"[:rng.randint(1, 3)]
        mesh = {m: rng.choice([2, 3, 4, 5, 6, 8, 9]) for m in names}
        ranks = rng.choice([8, 9, 12])
        if 2 ** len(names) > ranks or math.prod(mesh.values()) <= ranks:
            continue
        sizes = {d: rng.randint(60, 200) for d in ("batch", "pixels", "hidden", "classes")}
        rules = {}
        for m in names:
            d = rng.choice(list(sizes))
            rules.setdefault(d, []).append(m)
            if rng.random() < 0.6:
                step = math.prod(mesh[i] for i in rules[d])
                sizes[d] = -(-sizes[d] // step) * step
        if any(len(r) > 1 and sizes[d] % math.prod(mesh[m] for m in r) for d, r in rules.items()):
            continue  # nested uneven splits have empty parts
        written = dict(file, mesh=[list(m) for m in mesh.items()], rules=rules, dims=sizes, target="torch")
        written.pop("tensors", None)
        written.pop("redistributions", None)
        path = f"{folder}/random.plan"
        with open(path, "w", encoding="utf-8") as f:
            json.dump(written, f)
        done = run("dtrun", "verify", DIGITS, "--plan", path, "--ranks-at-most", str(ranks), "--steps", "1", "--json")
        assert done.returncode == 0, (SEED, mesh, sizes, rules, done.stderr)
        report = json.loads(done.stdout)
        small = dict(report["mesh"])
        assert report["pass"] and math.prod(small.values()) <= ranks, report
        assert all(min(2, mesh[m]) <= small[m] <= mesh[m] for m in mesh), (mesh, small)
        for d, split in rules.items():
            was, now = math.prod(mesh[m] for m in split), math.prod(small[m] for m in split)
            assert (sizes[d] % was == 0) == (report["dims"][d] % now == 0), (SEED, d, sizes, mesh, report["dims"], small)
            assert now <= report["dims"][d] <= sizes[d], (d, report["dims"])
            even, uneven = even + (sizes[d] % was == 0), uneven + (sizes[d] % was != 0)
        assert all(report["dims"][d] == sizes[d] for d in sizes if d not in rules), report["dims"]
        counts["verified"] += 1
    assert even > 5 and uneven > 5, (even, uneven)
    print(f"{even} even and {uneven} uneven splits kept, seed {SEED}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = check_planned(folder)
        check_refusals(folder, path)
        check_random(folder)
    print(f"{counts['verified']} verified, {counts['refused']} refused")


if __name__ == "__main__":
    main()
