"""Two ranks with a folder of their own each, as hosts with a disk of their own, whose files or options differ in one thing: every
pair is refused before the first step, and the message names the file or the option, both ranks and what each of them has. Pairs
that differ in what ranks may differ in run.

python3 ranks_differ.py FOLDER_OF_THE_TOOLS MPIRUN...
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

TOOLS, MPIRUN = os.path.abspath(sys.argv[1]), sys.argv[2:]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0")
MODEL = {"format": "dtp.model/1", "name": "m", "dims": {"b": 4, "d": 6, "v": 256}, "inputs": {
    "x": {"dims": ["b", "d"]}, "t": {"dims": ["b", "d"], "dtype": "i32", "below": "v"}},
    "params": {"w": {"dims": ["d"], "init": "ones"}, "e": {"dims": ["v", "d2"], "init": {"normal": 0.1}}},
    "nodes": [{"id": "r", "op": "embedding", "in": ["e", "t"], "over": "v"},
              {"id": "s", "op": "reduce", "kind": "sum", "in": ["r"], "over": "d2"}, {"id": "p", "op": "add", "in": ["x", "s"]},
              {"id": "y", "op": "einsum", "in": ["p", "w"], "out": ["b"]}, {"id": "q", "op": "square", "in": ["y"]},
              {"id": "loss", "op": "reduce", "kind": "mean", "in": ["q"], "over": "b"}],
    "train": {"loss": "loss", "optimizer": {"sgd": {"lr": 0.001}}}}
MODEL["dims"]["d2"] = 2
failed = 0


def npy(rows, scale=1.0):
    values = [scale * (0.1 * (i % 7) - 0.2) for i in range(6 * rows)]
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 6), }" % rows
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack("<%df" % len(values), *values)


def model(**changes):
    return json.dumps(dict(MODEL, **changes)).encode()


def names(name):
    of = {"e": {"name": name, "axes": ["v", "d2"]}, "w": {"name": "out", "axes": ["d"]}}
    return json.dumps({"format": "dtp.names/1", "framework": "torch", "params": of}).encode()


TEXT = bytes(range(200)) * 3
LARGE = b"a" * ((1 << 24) + 4096)
FILES = {"m.json": model(), "x.npy": npy(8), "e.npy": npy(8), "t.bin": TEXT, "e.bin": TEXT[:48], "n.json": names("in"), "other.json": model()}
RUN = ["run", "m.json", "--mesh", "x:2", "--rules", "b:x", "--steps", "2", "--threads", "1", "--quiet"]
FED = ["--feed", "x=x.npy", "--feed", "t=t.bin"]
EVAL = ["--eval-every", "2", "--eval-feed", "x=e.npy", "--eval-feed", "t=e.bin"]
FIXED = dict(MODEL["params"], w={"dims": ["d"], "init": "zeros"})

# what differs: the command line, the files of rank 1 or its other options, words of the message
PAIRS = {
    "values of a feed": (RUN + FED, {"x.npy": npy(8, 2.0)}, ["'x.npy' of feed 'x'", "bytes, CRC-32"]),
    "rows of a feed": (RUN + FED, {"x.npy": npy(12)}, ["'x.npy' of feed 'x'", "320 bytes", "416 bytes"]),
    "the last token of a file": (RUN + FED, {"t.bin": TEXT[:-1] + b"!"}, ["'t.bin' of feed 't'", "600 bytes"]),
    "the end of a large file": (RUN + FED, {"t.bin": LARGE[:-1] + b"!"}, ["'t.bin' of feed 't'", "16781312 bytes"]),
    "a file of evaluation": (RUN + FED + EVAL, {"e.npy": npy(8, 0.5)}, ["'e.npy' of feed 'x'"]),
    "the model file": (RUN, {"m.json": model(params=FIXED)}, ["MODEL", "m.json (", "CRC-32"]),
    "the names file": (RUN + ["--names", "n.json", "--save-hf", "hf"], {"n.json": names("other")}, ["--names", "n.json ("]),
    "the plan": (["run", "m.json", "--plan", "a.plan"] + RUN[6:], {"a.plan": None}, ["--plan", "a.plan ("]),
    "the checkpoint": (RUN + ["--load", "w.safetensors"], {"w.safetensors": None}, ["w.safetensors"]),
    "steps": (RUN, ["--steps", "3"], ["--steps", "rank 0: 2;", "rank 1: 3"]),
    "the batch": (RUN, ["--dim", "b=8"], ["--dim", "not given", "b=8"]),
    "the seed": (RUN, ["--seed", "7"], ["--seed", "not given", "rank 1: 7"]),
    "microbatches": (RUN, ["--microbatches", "2"], ["--microbatches", "rank 1: 2"]),
    "the precision": (RUN, ["--precision", "bf16"], ["--precision", "rank 1: bf16"]),
    "the shift of a feed": (RUN + FED, ["--feed", "t=t.bin,shift=1"], ["--feed"]),
    "what is fetched": (RUN, ["--fetch", "w=w.npy"], ["--fetch", "rank 1: w=w.npy"]),
    "how often is saved": (RUN + ["--save", "c"], ["--save-every", "1"], ["--save-every", "rank 1: 1"]),
    "names beside the model": (RUN + ["--save-hf", "hf"], {"m.names.json": None}, ["the names file"]),
    "the mesh": (RUN, ["--mesh", "y:2", "--rules", "b:y"], ["--mesh"]),
}
SAME = {
    "nothing": (RUN + FED + EVAL, []), "threads, output": (RUN + FED, ["--threads", "2", "-o", "report.json"]),
    "the name of an equal model file": (RUN, ["MODEL", "other.json"]),
}


def both(first, second):
    one = ["-n", "1", "-wdir", "a", TOOLS + "/dtrun"] + first
    two = ["-n", "1", "-wdir", "b", TOOLS + "/dtrun"] + second
    done = subprocess.run(MPIRUN + one + [":"] + two, capture_output=True, env=ENVIRONMENT, text=True, timeout=100)
    return done.returncode, done.stderr, done.stdout


def tool(name, *args):
    subprocess.run([f"{TOOLS}/{name}"] + list(args), check=True, capture_output=True, env=ENVIRONMENT)


def given(options, more):
    """An option is given once; MODEL is no option. A list has one more."""
    options = list(options)
    for i in range(0, len(more), 2):
        if more[i] == "MODEL":
            options[1] = more[i + 1]
        elif more[i] in options and more[i] != "--feed":
            options[options.index(more[i]) + 1] = more[i + 1]
        else:
            options += more[i:i + 2] if more[i] != "--feed" else []
            options = [more[i + 1] if more[i] == "--feed" and o == "t=t.bin" else o for o in options]
    return options


def place(large):
    for host in "ab":
        shutil.rmtree(host, ignore_errors=True)
        os.mkdir(host)
        for name, data in FILES.items():
            with open(f"{host}/{name}", "wb") as f:
                f.write(LARGE if large and name == "t.bin" else data)


def check(what, good, said):
    global failed
    if not good:
        failed += 1
        print(f"FAIL {what}: {said}", flush=True)


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    place(False)
    for k, style in enumerate(("data", "zero1")):
        tool("dtplan", "plan", "a/m.json", "--mesh", "x:2", "--style", f"**: {style}", "-o", f"{k}.plan")
        with open(f"{k}.names.json", "wb") as f:
            f.write(names(f"in{k}"))
        tool("dtrun", "run", "a/m.json", "--seed", str(k), "--save", f"{k}.safetensors", "--quiet")
    for what, (options, other, words) in PAIRS.items():
        place("large" in what)
        second = options if isinstance(other, dict) else given(options, other)
        for name, data in other.items() if isinstance(other, dict) else ():
            if data is None:
                for k, host in enumerate("ab"):
                    shutil.copy(f"{k}{name[name.index('.'):]}", f"{host}/{name}")
            else:
                with open(f"b/{name}", "wb") as f:
                    f.write(data)
        code, said, reported = both(options, second)
        check(what, code != 0 and "do not agree on" in said and said.count("dtrun: ") == 1, f"exit {code}: {said}")
        check(what, all(w in said for w in words + ["rank 0: ", "rank 1: "]), said)
        check(what, reported == "" and not os.path.exists("a/hf"), f"ran: {reported}")
    for what, (options, other) in SAME.items():
        place(False)
        code, said, reported = both(options, given(options, other))
        check(what, code == 0 and reported != "", f"exit {code}: {said}")
sys.exit(1 if failed else 0)
