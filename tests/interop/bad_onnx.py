#!/usr/bin/env python3
"""300 broken .onnx files and more: each is imported, or refused in one line that names the file, with exit code 2 and
nothing written.

usage: bad_onnx.py DTPLAN FOLDER"""
import os
import random
import struct
import sys
import tempfile

from bad_pt2 import attempt, break_bytes

NAMES = "gpt_17 gpt_18 llama_18 loss_18 bert_17 vit_18 t5_17 dlrm_17 llama_23".split()
OPS = b"Add MatMul Gather Reshape Slice Split Softmax Conv Attention Concat Expand Where Pad Nosuch Shape Transpose".split()
MESSAGES = {(): (7, 8), (7,): (1, 5, 11, 12), (7, 1): (5, 9), (7, 1, 5): (5,), (7, 11): (2,), (7, 11, 2): (1,),
            (7, 11, 2, 1): (2,), (7, 11, 2, 1, 2): (1,), (7, 5): (13,)}


def number(x):
    x &= 2**64 - 1
    out = b""
    while x > 127:
        out, x = out + bytes([x & 127 | 128]), x >> 7
    return out + bytes([x])


def field(n, v):
    """A member: an integer, a float, or bytes."""
    if isinstance(v, int):
        return number(n << 3) + number(v)
    return number(n << 3 | 5) + struct.pack("<f", v) if isinstance(v, float) else number(n << 3 | 2) + number(len(v)) + v


def parse(data, path=()):
    """[[number, value]], where a message's value is such a list."""
    out, at = [], 0

    def varint():
        nonlocal at
        x, shift = 0, 0
        while True:
            x, shift, at = x | (data[at] & 127) << shift, shift + 7, at + 1
            if data[at - 1] < 128:
                return x

    while at < len(data):
        key = varint()
        n, wire = key >> 3, key & 7
        if wire == 0:
            out.append([n, varint()])
        elif wire == 5:
            out.append([n, struct.unpack_from("<f", data, at)[0]])
            at += 4
        else:
            size = varint()
            value = data[at : at + size]
            at += size
            out.append([n, parse(value, path + (n,)) if n in MESSAGES.get(path, ()) else value])
    return out


def build(message):
    return b"".join(field(n, build(v) if isinstance(v, list) else v) for n, v in message)


def all_members(message):
    for m in message:
        yield message, m
        if isinstance(m[1], list):
            yield from all_members(m[1])


def break_member(message, rng):
    graph = next(v for n, v in message if n == 7)
    nodes = [v for n, v in graph if n == 1]
    where, member = rng.choice(list(all_members(rng.choice(nodes) if rng.random() < 0.7 else message)))
    names = [v for node in nodes for n, v in node if n in (1, 2) and isinstance(v, bytes)]
    how = rng.randrange(6)
    if how == 0:
        where.remove(member)
    elif how == 1:
        where.append(list(member))
    elif isinstance(member[1], int):
        member[1] = rng.choice([-1, 0, 1, 2, 2**31, 2**40, 2**62, 2**63, member[1] + 1, member[1] - 1])
    elif isinstance(member[1], float):
        member[1] = rng.choice([0.0, -1.0, float("nan"), float("inf")])
    elif isinstance(member[1], bytes):
        member[1] = rng.choice([b"", b"x", rng.choice(names), rng.choice(OPS), member[1][:-1], b"\xff" * 9, number(2**62),
                                struct.pack("<q", rng.choice([-1, 0, 2**40, -(2**63)]))])
    else:
        member[0] = rng.randrange(1, 16)


def tensor(name, dims=(2,), kind=1, data=bytes(8), more=b""):
    return b"".join(field(1, d) for d in dims) + field(2, kind) + field(8, name) + (field(9, data) if data else b"") + more


def info(name, dims=(2,), kind=1):
    shape = b"".join(field(1, field(1, d) if isinstance(d, int) else field(2, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


def node(op, ins, outs, more=b""):
    return b"".join(field(1, i) for i in ins) + b"".join(field(2, o) for o in outs) + field(4, op) + more


def model(nodes, weights=(), inputs=None, output=b"y", opset=18, more=b""):
    inputs = [info(b"x")] if inputs is None else inputs
    graph = [field(1, n) for n in nodes] + [field(5, t) for t in weights] + [field(11, i) for i in inputs]
    return field(1, 8) + field(7, b"".join(graph) + field(12, info(output)) + more) + field(8, field(2, opset))


def made_wrong():
    """Files that are wrong in one thing, and what the error says."""
    relu = node(b"Relu", [b"x"], [b"y"])
    add = [node(b"Add", [b"x", b"w"], [b"y"])]
    beside = lambda path, **more: field(14, 1) + b"".join(field(13, field(1, k.encode()) + field(2, v)) for k, v in
                                                          {"location": path, **more}.items())
    reshape = lambda sizes: model([node(b"Reshape", [b"x", b"s"], [b"y"])],
                                  [tensor(b"s", (len(sizes),), 7, struct.pack(f"<{len(sizes)}q", *sizes))])
    yield "opset", model([relu], opset=12), "opset 12, not 13 to 23"
    yield "later", model([relu], opset=24), "opset 24, not 13 to 23"
    yield "none", field(1, 8) + field(7, b""), "opset 0, not 13 to 23"
    yield "two", model([relu]) + field(7, field(1, relu)), "2 graphs"
    yield "twice", model([relu, relu]), "'y' is made twice"
    yield "cycle", model([node(b"Add", [b"x", b"y"], [b"y"])]), "'y' is read before it is made"
    yield "output", model([relu], output=b"z"), "no node makes the output 'z'"
    yield "sparse", model([relu], more=field(15, b"")), "sparse"
    yield "type", model([relu], inputs=[info(b"x", kind=8)]), "'x' has type 8"
    yield "sizes", model([relu], inputs=[info(b"x", (2**40, 2**40))]), "too many elements"
    yield "axes", model([relu], inputs=[info(b"x", (2,) * 9)]), "more than 8 axes"
    yield "negative", model([relu], inputs=[info(b"x", (-5,))]), "a size of -5"
    yield "short", model(add, [tensor(b"w", (3,))]), "'w' has 8 bytes, not 12"
    yield "huge", model(add, [tensor(b"w", (2**60, 2**60))]), "too many elements"
    yield "meet", model(add, [tensor(b"w", (3,), data=bytes(12))]), "sizes 2 and 3 meet"
    yield "clash", model(add, [tensor(b"w"), tensor(b"w")]), "'w' is made twice"
    yield "name", model([node(b"Add", [b"x", b"w w"], [b"y"])], [tensor(b"w w")]), "the name 'w w' is not"
    yield "view", reshape([3]), "a view of another number of elements"
    yield "left", reshape([2**62, 2**62]), "sizes beyond"
    yield "up", model(add, [tensor(b"w", data=b"", more=beside(b"../w.bin"))]), "no path below the folder"
    yield "root", model(add, [tensor(b"w", data=b"", more=beside(b"/etc/passwd"))]), "no path below the folder"
    yield "hidden", model(add, [tensor(b"w", data=b"", more=beside(b"a/../../w"))]), "no path below the folder"
    yield "missing", model(add, [tensor(b"w", data=b"", more=beside(b"nosuch.bin"))]), "nosuch.bin"
    yield "behind", model(add, [tensor(b"w", data=b"", more=beside(b"w.bin", offset=b"12"))]), "'w' ends behind 'w.bin'"
    yield "length", model(add, [tensor(b"w", data=b"", more=beside(b"w.bin", length=b"4"))]), "'w' has 4 bytes, not 8"
    yield "offset", model(add, [tensor(b"w", data=b"", more=beside(b"w.bin", offset=b"-1"))]), "offset '-1'"
    yield "varint", model([relu]) + field(1, 0)[:-1] + b"\x80" * 10 + b"\x01", "of more than 64 bits"
    yield "cut", model([relu]) + number(7 << 3 | 2) + number(2**40), "of which 0 are there"
    yield "wire", model([relu]) + number(14 << 3 | 3), "wire type 3"
    yield "graph", field(1, 8) + field(7, 1), "wire type 0"
    yield "zero", model([node(b"Re\0lu", [b"x"], [b"y"])]), "a zero byte"
    relu_of = lambda name, value: model([node(b"Relu", [b"x"], [b"y"], field(5, field(1, name) + value))])
    yield "attribute", relu_of(b"slope", field(3, 4)), "attribute 'slope' is 4: not supported"
    yield "operands", model([node(b"Max", [b"x", b"x", b"x"], [b"y"])]), "3 operands, not 2 to 2"
    yield "exclusive", model([node(b"CumSum", [b"x", b"a"], [b"y"], field(5, field(1, b"exclusive") + field(3, 1)))],
                             [tensor(b"a", (), 7, bytes(8))]), "attribute 'exclusive' is 1"
    yield "many", model([node(b"LSTM", [b"x"], [b"a"]), node(b"LSTM", [b"a"], [b"b"]), node(b"If", [b"b"], [b"y"])]), \
        "onnx.LSTM: 2, first in"


def long_program(n):
    """A chain of n nodes, each with a weight: no search may begin again at every node."""
    name = lambda i: b"x" if i == 0 else b"y" if i == n else b"v%d" % i
    return model([node(b"Add", [name(i), b"l.%d.w" % i], [name(i + 1)]) for i in range(n)],
                 [tensor(b"l.%d.w" % i) for i in range(n)])


def main(dtplan, folder):
    refused = 0
    with tempfile.TemporaryDirectory() as tmp:
        path, out = os.path.join(tmp, "m.onnx"), os.path.join(tmp, "m.json")

        def judge(data, expect):
            with open(path, "wb") as f:
                f.write(data)
            bad, text = attempt(dtplan, path, out)
            if expect is not None and (bad != (expect != "") or expect not in text):
                sys.exit(f"expected '{expect}', got: {text}")
            return bad

        with open(os.path.join(tmp, "w.bin"), "wb") as f:
            f.write(bytes(16))
        beside = field(14, 1) + field(13, field(1, b"location") + field(2, b"w.bin")) + field(13, field(1, b"offset") + field(2, b"8"))
        judge(model([node(b"Add", [b"x", b"w"], [b"y"])], [tensor(b"w", data=b"", more=beside)]), "")
        os.mkdir(os.path.join(tmp, "in"))  # a link that stays in the folder, and links that leave it
        for link, to in ((b"in/stays.bin", "../w.bin"), (b"leaves.bin", "../w.bin"), (b"root.bin", "/etc/passwd"), (b"up", "..")):
            os.symlink(to, os.path.join(tmp, link.decode()))
            at = link + (b"/w.bin" if link == b"up" else b"")
            one = field(14, 1) + field(13, field(1, b"location") + field(2, at)) + field(13, field(1, b"length") + field(2, b"8"))
            judge(model([node(b"Add", [b"x", b"w"], [b"y"])], [tensor(b"w", data=b"", more=one)]),
                  "" if link == b"in/stays.bin" else "a link that leaves the folder")
        for name, data, expect in made_wrong():
            judge(data, expect)
        judge(long_program(10000), "")
        for i in range(300):
            rng = random.Random(i)
            with open(os.path.join(folder, NAMES[i % len(NAMES)] + ".onnx"), "rb") as f:
                data = f.read()
            if i % 4 == 0:
                data = break_bytes(data, rng)
            else:
                message = parse(data)
                break_member(message, rng)
                data = build(message)
            refused += judge(data, None)
    print(f"300 broken files: {refused} refused, the others are programs still")
    if refused < 100:
        sys.exit("too few are refused")


if __name__ == "__main__":
    main(*sys.argv[1:])
