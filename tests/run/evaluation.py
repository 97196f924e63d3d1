#!/usr/bin/env python3
"""dtrun eval: the loss and the metrics of files, each row once, against sums of one row after the other and against one large batch.

evaluation.py BIN SOURCE [--seed S]

- A perceptron with dropout and an accuracy: loss and metrics against Python's own forward pass over the rows, on one rank and on
  meshes, layouts and plans, for numbers of rows that the batch does not divide, is smaller than, and divides; and the same with
  ignored labels, whose loss is a mean over the others. A loss that the model divides by the sum of a mask.
- The byte GPT with dropout: windows of a file against one batch of all of them in a model without dropout; under rules, and under
  plans with microbatches, recomputation and bf16 products; twice in a row to the bit; on the way of a training run.
- What is refused.
"""
import argparse
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0")
TOLERANCE = 1e-6  # of a loss in f32, relative


class Failure(Exception):
    pass


def check(ok, *what):
    if not ok:
        raise Failure(" ".join(str(x) for x in what))


def command(*words):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, env=ENVIRONMENT)


def passes(*words):
    done = command(*words)
    check(done.returncode == 0, " ".join(str(w) for w in words), "ends with", done.returncode, done.stderr)
    return done.stdout


def near(a, b):
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b))


def write_npy(path, descr, dims, data):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }" % (descr, ", ".join(str(d) for d in dims))
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)


def read_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack_from("<Q", data)
    found = {}
    for name, entry in json.loads(data[8:8 + n]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            found[name] = struct.unpack_from("<%df" % ((end - begin) // 4), data, 8 + n + begin)
    return found


# ---- a perceptron -------------------------------------------------------------------------------------------------------------

PIXELS, HIDDEN, CLASSES, BATCH = 12, 16, 6, 8


IGNORED = -100


def perceptron(path, source, ignores):
    with open(os.path.join(source, "models/mlp_digits.json")) as f:
        model = json.load(f)
    model["dims"] = {"batch": BATCH, "pixels": PIXELS, "hidden": HIDDEN, "classes": CLASSES}
    nodes = {node["id"]: node for node in model["nodes"]}
    nodes["logits.mm"]["in"][0] = "h.drop"
    if ignores:
        nodes["loss"]["ignore"] = IGNORED
    order = list(nodes.values())
    order.insert(3, {"id": "h.drop", "op": "dropout", "in": ["h"], "rate": 0.5})
    order += [{"id": "best", "op": "argmax", "in": ["logits"], "over": "classes"},
              {"id": "hit", "op": "compare", "cmp": "eq", "in": ["best", "labels"]},
              {"id": "hit.f", "op": "cast", "in": ["hit"], "dtype": "f32"},
              {"id": "accuracy", "op": "reduce", "in": ["hit.f"], "over": ["batch"], "kind": "mean"},
              {"id": "share", "op": "softmax", "in": ["logits"], "over": "classes"},
              {"id": "shares", "op": "reduce", "in": ["share"], "over": ["batch"], "kind": "mean"},
              {"id": "hit.i", "op": "cast", "in": ["hit"], "dtype": "i32"},
              {"id": "hits", "op": "reduce", "in": ["hit.i"], "over": ["batch"], "kind": "sum"}]
    model["nodes"] = order
    model["outputs"] = ["logits", "accuracy", "shares", "hits"]
    with open(path, "w") as f:
        json.dump(model, f)


def forward(weights, x, label):
    """Loss, hit and shares of one row."""
    h = [max(0.0, weights["b1"][j] + sum(x[i] * weights["w1"][i * HIDDEN + j] for i in range(PIXELS))) for j in range(HIDDEN)]
    z = [weights["b2"][c] + sum(h[j] * weights["w2"][j * CLASSES + c] for j in range(HIDDEN)) for c in range(CLASSES)]
    top = max(z)
    norm = top + math.log(sum(math.exp(v - top) for v in z))
    return [norm - z[label] if label >= 0 else 0.0, float(z.index(top) == label)] + [math.exp(v - norm) for v in z]


def check_perceptron(bin_dir, source, here, rng, ignores):
    model, weights = os.path.join(here, "mlp.json"), os.path.join(here, "mlp.safetensors")
    perceptron(model, source, ignores)
    passes(bin_dir + "/dtrun", "run", model, "--steps", 4, "--save", weights, "--quiet")
    values = read_safetensors(weights)
    layouts = [(1, ["--comm", "self"])]
    for parts in (1, 4):
        plan = os.path.join(here, "mlp%d.plan" % parts)
        passes(bin_dir + "/dtplan", "plan", model, "--mesh", "x:2", "--machine",
               os.path.join(source, "models/machines/cpu_2.json"), "--microbatches", parts, "-o", plan)
        layouts.append((parts, ["--plan", plan]))
    layouts += [(1, ["--mesh", mesh, "--rules", rules]) for mesh, rules in
                [("x:4", "batch:x"), ("x:3", "hidden:x"), ("x:2;y:2", "batch:x;hidden:y"), ("x:2", "classes:x")]]
    for rows in (4 * BATCH + 3, BATCH - 2, 2 * BATCH, 1):
        x = [[rng.gauss(0, 1) for _ in range(PIXELS)] for _ in range(rows)]
        labels = [IGNORED if ignores and rng.random() < 0.4 else rng.randrange(CLASSES) for _ in range(rows)]
        if ignores:
            labels[-8:-1] = [IGNORED] * len(labels[-8:-1])  # whole batches of the smallest size
            labels[-1] = 1
        images, label_file = os.path.join(here, "images.npy"), os.path.join(here, "labels.npy")
        write_npy(images, "<f8", [rows, PIXELS], b"".join(struct.pack("<%dd" % PIXELS, *row) for row in x))
        write_npy(label_file, "<i8", [rows], struct.pack("<%dq" % rows, *labels))
        sums = [sum(column) / rows for column in zip(*(forward(values, a, b) for a, b in zip(x, labels)))]
        sums[0] *= rows / sum(label >= 0 for label in labels)
        for parts, layout in layouts:
            comm = [] if "--comm" in layout else ["--comm", "sim"]
            words = [bin_dir + "/dtrun", "eval", model, "--load", weights, "--feed", "images=" + images, "--feed",
                     "labels=" + label_file, "--json", "--uneven"] + layout + comm
            got = json.loads(passes(*words))
            what = "%d rows%s, %s:" % (rows, ", ignored labels" if ignores else "", " ".join(layout))
            check(got["rows"] == rows and got["batches"] == -(-rows * parts // BATCH) and got["step"] == 4, what, got)
            check(near(got["loss"], sums[0]), what, "loss", got["loss"], "want", sums[0])
            check(list(got["metrics"]) == ["accuracy", "shares", "hits"], what, "metrics", list(got["metrics"]))
            check(near(got["metrics"]["accuracy"][0], sums[1]), what, "accuracy", got["metrics"]["accuracy"], "want", sums[1])
            check(got["metrics"]["hits"] == [round(sums[1] * rows)], what, "hits", got["metrics"]["hits"])
            for a, b in zip(got["metrics"]["shares"], sums[2:]):
                check(abs(a - b) < TOLERANCE, what, "shares", a, "want", b)
    return model, weights, images, label_file


def check_masked(bin_dir, source, here, rng):
    """A loss that the model divides by the sum of a mask: the mean over all positions of the files."""
    model, rows, length, width = os.path.join(source, "tests/run/masked.json"), 19, 4, 8
    feeds = []
    for name, descr, dims, form, draw in (("x", "<f4", [width], "f", lambda: rng.gauss(0, 1)),
                                          ("labels", "<i4", [], "i", lambda: rng.randrange(12)),
                                          ("mask", "|b1", [], "?", lambda: rng.random() < 0.4)):
        n = rows * length * math.prod(dims)
        path = os.path.join(here, "masked_%s.npy" % name)
        write_npy(path, descr, [rows, length] + dims, struct.pack("<%d%s" % (n, form), *(draw() for _ in range(n))))
        feeds += ["--feed", "%s=%s" % (name, path)]
    whole = json.loads(passes(bin_dir + "/dtrun", "run", model, *feeds, "--dim", "batch=%d" % rows, "--json", "--quiet"))
    plan = os.path.join(here, "masked.plan")
    passes(bin_dir + "/dtplan", "plan", model, "--mesh", "x:2", "--machine", os.path.join(source, "models/machines/cpu_2.json"),
           "--microbatches", 2, "-o", plan)
    for layout in ([], ["--mesh", "x:4", "--rules", "batch:x"], ["--plan", plan]):
        got = json.loads(passes(bin_dir + "/dtrun", "eval", model, *feeds, *layout, "--json", *(["--comm", "sim"] if layout else [])))
        check(near(got["loss"], whole["loss"][0]) and not got["metrics"], "masked", *layout, got, "want", whole["loss"])


# ---- the byte GPT -------------------------------------------------------------------------------------------------------------

GPT = ["--dim", "layers=2", "--dim", "length=16", "--dim", "heads=4", "--dim", "d_head=8", "--dim", "vocab=256"]


def check_gpt(bin_dir, source, here, rng):
    model = os.path.join(source, "models/gpt_bytes_dropout.json")
    rows, window = 29, 17
    text = bytes(rng.randrange(97, 123) for _ in range(rows * window + rng.randrange(window)))
    book, weights, batch = (os.path.join(here, name) for name in ("book.txt", "gpt.safetensors", "rows.npy"))
    with open(book, "wb") as f:
        f.write(text)
    write_npy(batch, "|u1", [rows, window], text[:rows * window])
    passes(bin_dir + "/dtrun", "run", model, *GPT, "--dim", "batch=8", "--steps", 3, "--save", weights, "--quiet")
    with open(model) as f:
        whole = json.load(f)
    for node in whole["nodes"] + whole["blocks"]["layer"]["nodes"]:
        if node.get("op") == "dropout":
            node["rate"] = 0.0
    plain = os.path.join(here, "plain.json")
    with open(plain, "w") as f:
        json.dump(whole, f)
    run = json.loads(passes(bin_dir + "/dtrun", "run", plain, *GPT, "--dim", "batch=%d" % rows, "--load", weights, "--feed",
                            "text=" + batch, "--steps", 1, "--json", "--quiet"))
    want = run["loss"][0]
    sizes = GPT + ["--dim", "batch=8"]
    machine = os.path.join(source, "models/machines/v100_16.json")
    cases = [([], 1, TOLERANCE), (["--mesh", "x:4", "--rules", "batch:x"], 1, TOLERANCE),
             (["--mesh", "x:2;y:2", "--rules", "batch:x;heads:y;d_ff:y;vocab:y"], 1, TOLERANCE)]
    for extra, parts, tolerance in ((["--microbatches", "4", "--remat", "layer"], 4, TOLERANCE),
                                    (["--mode", "rules", "--microbatches", "2"], 2, TOLERANCE),
                                    (["--precision", "bf16"], 1, 0.02)):
        plan = os.path.join(here, "gpt%d.plan" % len(cases))
        precision = [] if "--precision" in extra else ["--precision", "f32"]
        passes(bin_dir + "/dtplan", "plan", model, *sizes, "--mesh", "x:4", "--target", "cpu", "--machine", machine, "-o", plan,
               *extra, *precision)
        cases.append((["--plan", plan], parts, tolerance))
    for layout, parts, tolerance in cases:
        dims = [] if "--plan" in layout else sizes
        words = [bin_dir + "/dtrun", "eval", model, *dims, "--load", weights, "--feed", "text=" + book, "--json", *layout,
                 *(["--comm", "sim"] if layout else [])]
        got, again = (json.loads(passes(*words)) for _ in range(2))
        what = " ".join(layout)
        check(got["rows"] == rows and got["batches"] == -(-rows * parts // 8), what, got)
        check(abs(got["loss"] - want) <= tolerance * want, what, "loss", got["loss"], "want", want)
        check(got["loss"] == again["loss"], what, "loss", got["loss"], "then", again["loss"])
    for layout in (cases[2][0] + sizes, cases[3][0]):
        check_on_the_way(bin_dir, here, model, layout, "text=" + book)
    forward_only = [passes(bin_dir + "/dtplan", "show", m, *GPT, "--forward", "--stage", "graph") for m in (model, plain)]
    check(forward_only[0].splitlines()[1:] == forward_only[1].splitlines()[1:], "--forward keeps dropout")


def check_on_the_way(bin_dir, here, model, layout, feed):
    """--eval-every: what dtrun eval says of a checkpoint after the same step, in a run that is otherwise the same."""
    save, log = os.path.join(here, "way.safetensors"), os.path.join(here, "way.jsonl")
    train = [bin_dir + "/dtrun", "run", model, *layout, "--steps", 5, "--json", "--quiet", "--comm", "sim"]
    plain = json.loads(passes(*train))
    got = json.loads(passes(*train, "--eval-every", 2, "--eval-feed", feed, "--save", save, "--log-json", log))
    check(got["loss"] == plain["loss"], "losses with evaluations", got["loss"], "without", plain["loss"])
    check(got["measured"]["peak_bytes"] == plain["measured"]["peak_bytes"], "peaks", got["measured"], plain["measured"])
    check([e["step"] for e in got["eval"]] == [2, 4, 5], got["eval"])
    want = json.loads(passes(bin_dir + "/dtrun", "eval", model, *layout, "--load", save, "--feed", feed, "--json", "--comm", "sim"))
    check(got["eval"][-1]["loss"] == want["loss"], got["eval"], "want", want["loss"])
    with open(log) as f:
        lines = [json.loads(line) for line in f]
    check([line.get("eval_loss") for line in lines] ==
          [{e["step"]: e["loss"] for e in got["eval"]}.get(n) for n in range(1, 6)], lines)


# ---- what is refused ----------------------------------------------------------------------------------------------------------

def check_refused(bin_dir, source, here, model, weights, images, labels):
    fewer = os.path.join(here, "fewer.npy")
    write_npy(fewer, "<i8", [5], struct.pack("<5q", 0, 1, 2, 3, 4))
    first, second = ["--feed", "images=" + images], ["--feed", "labels=" + labels]
    with open(model) as f:
        text = json.load(f)
    del text["train"]
    lossless = os.path.join(here, "lossless.json")
    with open(lossless, "w") as f:
        json.dump(text, f)
    for words, message in (([model, "--load", weights] + first, "input 'labels' has no --feed"),
                           ([model, "--load", weights] + first + ["--feed", "labels=" + fewer], "has 1 rows"),
                           ([lossless] + first + second, "no loss to evaluate"),
                           ([model, "--forward"] + first + second, "no loss to evaluate"),
                           ([model, "--load", os.path.join(here, "none.safetensors")] + first + second, "none.safetensors")):
        done = command(bin_dir + "/dtrun", "eval", *words)
        check(done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1 and not done.stdout,
              " ".join(words), "ends with", done.returncode, done.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("source")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    options = parser.parse_args()
    print("seed", options.seed)
    rng = random.Random(options.seed)
    try:
        with tempfile.TemporaryDirectory() as here:
            check_perceptron(options.bin, options.source, here, rng, True)
            check_refused(options.bin, options.source, here, *check_perceptron(options.bin, options.source, here, rng, False))
            check_masked(options.bin, options.source, here, rng)
            check_gpt(options.bin, options.source, here, rng)
    except Failure as failure:
        print("FAIL:", failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
