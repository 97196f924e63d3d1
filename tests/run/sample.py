#!/usr/bin/env python3
"""dtrun sample against the logits that `dtrun run --forward --fetch` writes: the likeliest tokens on one and several ranks, also
when text is longer than the window; choices by temperature and top-k as often as their logits say; what is refused.

sample.py DTRUN MPI (1: there is one)
"""
import array
import json
import math
import os
import subprocess
import sys
import tempfile

DTRUN, MPI = os.path.abspath(sys.argv[1]), sys.argv[2] == "1"
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0")
LENGTH = 16
DIMS = ["--dim", "layers=2", "--dim", "length=%d" % LENGTH, "--dim", "heads=4", "--dim", "d_head=8", "--threads", "1"]
failed = 0


def check(good, what, *said):
    global failed
    if not good:
        failed += 1
        print("FAIL: %s%s" % (what, "".join("\n  %r" % (s,) for s in said)), flush=True)


def call(*args, code=0):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    done = subprocess.run([DTRUN, args[0]] + list(args[1:]) + DIMS + root, capture_output=True, env=ENVIRONMENT)
    check(done.returncode == code, "exit %d: %s" % (done.returncode, " ".join(args)), done.stderr)
    return done.stdout.decode() if code == 0 else done.stderr.decode()


def write_row(path, values):
    """One row of i32, as .npy."""
    head = "{'descr': '<i4', 'fortran_order': False, 'shape': (1, %d), }" % len(values)
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
        array.array("i", values).tofile(f)


def read_floats(path):
    with open(path, "rb") as f:
        data = f.read()
    values = array.array("f")
    values.frombytes(data[10 + int.from_bytes(data[8:10], "little"):])
    return list(values)


def likeliest_of(logits):
    return max(range(len(logits)), key=lambda i: (logits[i], -i))


class Model:
    def __init__(self, place, path="models/gpt_bytes.json", extra=()):
        self.place, self.path, self.extra = place, path, list(extra)
        self.saved = os.path.join(place, os.path.basename(path) + "".join(self.extra).replace("/", "_"))
        feed = [] if extra else ["--feed", "text=models/data/text.txt"]
        call("run", path, "--dim", "batch=8", "--steps", "60", "--quiet", "--save", self.saved, *feed, *self.extra)

    def logits(self, tokens):
        """Of the token after these."""
        seen = tokens[-LENGTH:]
        text, out = os.path.join(self.place, "text.npy"), os.path.join(self.place, "logits.npy")
        write_row(text, seen + [7] * (LENGTH + 1 - len(seen)))
        call("run", self.path, "--forward", "--dim", "batch=1", "--load", self.saved, "--feed", "text=" + text, "--fetch",
             "logits=" + out, "--quiet", *self.extra)
        values = read_floats(out)
        vocab = len(values) // LENGTH
        return values[(len(seen) - 1) * vocab:len(seen) * vocab]

    def sample(self, prompt, *args, code=0):
        return call("sample", self.path, "--load", self.saved, "--prompt=" + prompt, *self.extra, *args, code=code)


def likeliest(model, place):
    for prompt, n in (("The ", 20), ("It was the best of times, it", 3), ("a", 1)):
        tokens = list(prompt.encode())
        for _ in range(n):
            tokens.append(likeliest_of(model.logits(tokens)))
        want = bytes(tokens).decode() + "\n"
        args = ["--tokens", str(n), "--temperature", "0"]
        layouts = [("x:1", "", "self", 1), ("x:2", "batch:x", "sim", 2), ("x:4", "heads:x;d_ff:x;vocab:x", "sim", 1),
                   ("x:2", "length:x", "sim", 1)] + [("x:2", "heads:x;d_ff:x;vocab:x", "mpi", 1)] * MPI
        for mesh, rules, comm, batch in layouts:
            got = model.sample(prompt, *args, "--dim", "batch=%d" % batch, "--mesh", mesh, "--rules", rules, "--comm", comm)
            check(got == want, "likeliest tokens on %s %s %s" % (comm, mesh, rules), want, got)
    check(model.sample("The ", "--tokens", "20", "--top-k", "1", "--dim", "batch=1") == model.sample(
        "The ", "--tokens", "20", "--temperature", "0", "--dim", "batch=1"), "--top-k 1 is not the likeliest")
    # plans: those that the model was trained with, and of the model without training
    for name, extra in (("trained", []), ("parts", ["--microbatches", "2"]), ("forward", ["--forward"])):
        plan = os.path.join(place, name)
        made = subprocess.run([os.path.join(os.path.dirname(DTRUN), "dtplan"), "plan", model.path, *DIMS, "--dim", "batch=4", "--mesh",
                               "x:2", "--machine", "models/machines/cpu_2.json", "-o", plan, *extra], capture_output=True, env=ENVIRONMENT)
        check(made.returncode == 0, "plan", name, made.stderr)
        want = model.sample("The ", "--tokens", "20", "--temperature", "0", "--dim", "batch=1")
        got = model.sample("The ", "--tokens", "20", "--temperature", "0", "--plan", plan, "--dim", "batch=%d" % (2 if "parts" in name else 1),
                           "--comm", "sim")
        check(got == want, "likeliest tokens under the plan", name, want, got)
    file = os.path.join(place, "prompt")
    with open(file, "w") as f:
        f.write("It was\n")
    got = call("sample", model.path, "--load", model.saved, "--prompt-file", file, "--tokens", "1", "--dim", "batch=1")
    check(got.startswith("It was\n") and len(got) >= 9, "--prompt-file", got)


def by_chance(model):
    """Frequencies of the next token within 5 standard deviations of what the logits say."""
    logits = model.logits(list(b"The "))
    for temperature, k in ((1.0, 256), (0.5, 256), (2.0, 5)):
        kept = sorted(range(256), key=lambda i: -logits[i])[:k]
        weights = [math.exp((logits[i] - max(logits)) / temperature) if i in kept else 0.0 for i in range(256)]
        wanted, counts, draws = [w / sum(weights) for w in weights], [0] * 256, 0
        for seed in range(4):
            got = model.sample("The ", "--tokens", "1", "--temperature", str(temperature), "--top-k", str(k), "--seed", str(seed),
                               "--dim", "batch=256")
            for part in got.split("--- sample ")[1:]:
                token = part.split("\n", 1)[1][4:-1]
                token = token[:-1] if token.endswith("\n") and len(token) > 1 else token
                counts[int(token[2:], 16) if token.startswith("\\x") else ord(token)] += 1
                draws += 1
        bad = [(i, counts[i], draws * p) for i, p in enumerate(wanted)
               if abs(counts[i] - draws * p) > 5 * math.sqrt(draws * p * (1 - p)) + (3 if p > 0 else 0)]
        check(draws == 1024 and not bad, "temperature %g, top %d: %d draws" % (temperature, k, draws), bad)
    args = ["--tokens", "30", "--dim", "batch=1", "--seed"]
    check(model.sample("The ", *args, "1") == model.sample("The ", *args, "1"), "one seed, two texts")
    check(model.sample("The ", *args, "1") != model.sample("The ", *args, "2"), "two seeds, one text")


def numbers(place):
    """A model of other tokens than bytes takes and prints their numbers."""
    model = Model(place, extra=["--dim", "vocab=300"])
    tokens = [4, 299, 0]
    for _ in range(4):
        tokens.append(likeliest_of(model.logits(tokens)))
    got = model.sample("4 299,0", "--tokens", "4", "--temperature", "0", "--dim", "batch=1")
    check(got == " ".join(map(str, tokens)) + "\n", "numbers of tokens", tokens, got)
    for bad in ("300", "-1", "x", "4x", "1.5"):
        said = model.sample("7 " + bad, code=2)
        check(said == "dtrun: the prompt: '%s' is not a token, a number below 300 (only models of bytes take text)\n" % bad, "prompt " + bad, said)


def crowded(place):
    """Experts that take a limited number of tokens: which ones a token gets depends on later tokens, as their first choices
    come before its second one. With room for all it does not."""
    model = Model(place, "models/gpt_bytes_experts.json", ["--dim", "capacity=3"])
    said = model.sample("ab", "--tokens", "1", "--dim", "batch=8", code=2)
    check("the model is not causal" in said, "experts without room", said)
    model.extra = ["--dim", "capacity=%d" % LENGTH]
    check(model.sample("ab", "--tokens", "1", "--dim", "batch=8").count("---") == 8, "experts with room")


def ends(model):
    """--stop ends a row behind the text, --top-p keeps the likeliest tokens alone, a prompt that was cut is said."""
    whole = model.sample("The ", "--tokens", "20", "--temperature", "0", "--dim", "batch=1")[:-1]
    stop = whole[9:11]
    got = model.sample("The ", "--tokens", "20", "--temperature", "0", "--dim", "batch=1", "--stop", "never", "--stop", stop)
    check(got == whole[:whole.index(stop, 4) + 2] + "\n", "--stop", stop, whole, got)
    logits = model.logits(list(b"The "))
    order = sorted(range(256), key=lambda i: (-logits[i], i))
    shares = [math.exp(logits[i] - logits[order[0]]) for i in order]
    kept, most = 0, 0.5 * sum(shares)
    while sum(shares[:kept]) < most:
        kept += 1
    got = model.sample("The ", "--tokens", "1", "--top-p", "0.5", "--dim", "batch=256")
    seen = {part.split("\n", 1)[1][4] for part in got.split("--- sample ")[1:]}
    check(seen <= {chr(i) for i in order[:kept]} and len(seen) > 1, "--top-p", seen, order[:kept])
    done = subprocess.run([DTRUN, "sample", model.path, "--load", model.saved, "--prompt", "x" * 40, "--tokens", "1", *DIMS, "--dim",
                           "batch=1"], capture_output=True, env=ENVIRONMENT)
    check(b"cut prompt=40 places=16" in done.stderr, "a prompt that was cut", done.stderr)


def refusals(model, place):
    check(model.sample("", code=2) == "dtrun: the prompt is empty\n", "an empty prompt")
    said = call("sample", model.path, "--prompt", "a", code=2)
    check(said == "dtrun: --load is needed: the weights\n", "--load", said)
    said = call("sample", model.path, "--load", model.saved, code=2)
    check(said == "dtrun: one of --prompt and --prompt-file is needed\n", "no prompt", said)
    with open(model.path) as f:
        changed = json.load(f)
    for node in changed["blocks"]["layer"]["nodes"]:
        if node["op"] == "attention":
            node["causal"] = False
    path = os.path.join(place, "all.json")
    with open(path, "w") as f:
        json.dump(changed, f)
    said = call("sample", path, "--load", model.saved, "--prompt", "a", "--dim", "batch=1", code=2)
    check(said.startswith("dtrun: 'logits' at token ") and said.endswith(" depends on tokens behind it: the model is not causal\n"),
          "not causal", said)
    said = call("sample", path, "--load", model.saved, "--prompt", "a" * LENGTH, "--dim", "batch=1", code=2)
    check("the model is not causal" in said, "not causal, and a prompt that fills all places", said)
    crowded(place)
    said = model.sample("a", "--logits", "other", code=2)
    check("no integer input [batch, length] with 'below' has an output" in said, "another name", said)
    changed["inputs"]["more"] = dict(changed["inputs"]["text"])
    with open(path, "w") as f:
        json.dump(changed, f)
    said = call("sample", path, "--load", model.saved, "--prompt", "a", code=2)
    check("tokens of 'text' or of 'more', logits 'logits' or 'logits': choose by --input" in said, "two inputs", said)


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    with tempfile.TemporaryDirectory(prefix="dtp-sample-") as place:
        model = Model(place)
        likeliest(model, place)
        by_chance(model)
        ends(model)
        numbers(place)
        refusals(model, place)
    print("%d failed" % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
