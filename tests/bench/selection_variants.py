"""Selection problems derived from the published instances, and made up ones, for trying the solver on what it was not made with.

Usage: selection_variants.py make OUT_DIR [NAME ...]
       selection_variants.py run DTPLAN OUT_DIR LIMIT_S [NAME ...]
       selection_variants.py list

`make` writes OUT_DIR/NAME.json, the same bytes every time; `run` makes what is missing, solves it and prints a table.
Every line of VARIANTS is a name, the problems that it begins with (side by side in one) and what is done to them.
"""
import gzip
import json
import os
import random
import subprocess
import sys
import time

FORBIDDEN = 10 ** 18
MODELS = os.path.join(os.path.dirname(__file__), "..", "..", "models", "selection")


class Problem:
    """Mutable: intervals, costs and usages by node; pairs and matrices by edge."""

    def __init__(self, intervals, costs, usages, pairs, matrices, limit):
        self.intervals, self.costs, self.usages = intervals, costs, usages
        self.pairs, self.matrices, self.limit = pairs, matrices, limit

    def write(self, path, name):
        problem = {"name": name, "nodes": {"intervals": self.intervals, "costs": self.costs, "usages": self.usages},
                   "edges": {"nodes": self.pairs, "costs": self.matrices}, "usage_limit": self.limit}
        with open(path + ".part", "w", encoding="utf-8") as f:
            json.dump({"problem": problem}, f, separators=(",", ":"))
        os.replace(path + ".part", path)


def load(name):
    with gzip.open(os.path.join(MODELS, name + ".json.gz")) as f:
        p = json.load(f)["problem"]
    return Problem(p["nodes"]["intervals"], p["nodes"]["costs"], p["nodes"]["usages"], p["edges"]["nodes"],
                   p["edges"]["costs"], p["usage_limit"])


def least_peak(p, most=False):
    """The peak when every node uses as little (as much) as it can."""
    events = []
    for (begin, end), usage in zip(p.intervals, p.usages):
        if begin < end:
            use = max(usage) if most else min(usage)
            events += [(begin, 1, use), (end, 0, -use)]
    now = peak = 0
    for _, _, use in sorted(events):
        now += use
        peak = max(peak, now)
    return peak


# ---- what is done to a problem ---------------------------------------------------------------------------------------


def limit(share):
    """The limit times a share."""
    def do(p, _):
        p.limit = int(p.limit * share)
    return do


def unlimited(p, _):
    p.limit = least_peak(p, most=True)


def scaled(cost, usage):
    """Costs and usages times whole numbers: the same problem."""
    def times(x, factor):
        return [v if v >= FORBIDDEN else v * factor for v in x]

    def do(p, _):
        p.costs = [times(x, cost) for x in p.costs]
        p.matrices = [times(x, cost) for x in p.matrices]
        p.usages = [times(x, usage) for x in p.usages]
        p.limit *= usage
    return do


def factors(sigma):
    """The costs of every node and edge times one random factor each."""
    def vary(x, draw):
        f = draw.lognormvariate(0.0, sigma)
        return [v if v >= FORBIDDEN else int(v * f) for v in x]

    def do(p, draw):
        p.costs = [vary(x, draw) for x in p.costs]
        p.matrices = [vary(x, draw) for x in p.matrices]
    return do


def noise(share):
    """Every cost and usage differently, so that nothing is equal any more."""
    def vary(x, draw):
        return [v if v >= FORBIDDEN else int(v * (1.0 + share * draw.random())) for v in x]

    def do(p, draw):
        p.costs = [vary(x, draw) for x in p.costs]
        p.matrices = [vary(x, draw) for x in p.matrices]
    return do


def regrouped(p, draw):
    """The costs of a node change places among the strategies that use the same."""
    for cost, usage in zip(p.costs, p.usages):
        groups = {}
        for s, use in enumerate(usage):
            if cost[s] < FORBIDDEN:
                groups.setdefault(use, []).append(s)
        for group in groups.values():
            values = [cost[s] for s in group]
            draw.shuffle(values)
            for s, value in zip(group, values):
                cost[s] = value


def relabelled(p, draw):
    """The strategies of every node in another order: the same problem."""
    orders = []
    for cost in p.costs:
        order = list(range(len(cost)))
        draw.shuffle(order)
        orders.append(order)
    p.costs = [[x[s] for s in order] for x, order in zip(p.costs, orders)]
    p.usages = [[x[s] for s in order] for x, order in zip(p.usages, orders)]
    for e, (a, b) in enumerate(p.pairs):
        m, k = p.matrices[e], len(orders[b])
        p.matrices[e] = [m[i * k + j] for i in orders[a] for j in orders[b]]


def shuffled(p, draw):
    """Nodes and edges in another order: the same problem."""
    order = list(range(len(p.costs)))
    draw.shuffle(order)
    to = [0] * len(order)
    for new, old in enumerate(order):
        to[old] = new
    p.intervals = [p.intervals[i] for i in order]
    p.costs = [p.costs[i] for i in order]
    p.usages = [p.usages[i] for i in order]
    edges = list(range(len(p.pairs)))
    draw.shuffle(edges)
    p.pairs = [[to[i] for i in p.pairs[e]] for e in edges]
    p.matrices = [p.matrices[e] for e in edges]


def flipped(p, draw):
    """Every other edge the other way round: the same problem."""
    for e, (a, b) in enumerate(p.pairs):
        if draw.random() < 0.5:
            rows, cols, m = len(p.costs[a]), len(p.costs[b]), p.matrices[e]
            p.pairs[e] = [b, a]
            p.matrices[e] = [m[i * cols + j] for j in range(cols) for i in range(rows)]


def stretched(p, _):
    """Other times in the same order: the same problem."""
    p.intervals = [[1000 + 37 * begin, 1000 + 37 * end] for begin, end in p.intervals]


def split(share):
    """Some edges become two parallel ones that add up to it, one of them turned round: the same problem."""
    def do(p, draw):
        for e in range(len(p.pairs)):
            if draw.random() < share:
                a, b = p.pairs[e]
                rows, cols, m = len(p.costs[a]), len(p.costs[b]), p.matrices[e]
                part = [v if v >= FORBIDDEN else draw.randint(0, v) for v in m]
                p.matrices[e] = [v if v >= FORBIDDEN else v - w for v, w in zip(m, part)]
                p.pairs.append([b, a])
                p.matrices.append([part[i * cols + j] for j in range(cols) for i in range(rows)])
    return do


def copied(k, share):
    """The strategies of some nodes several times, up to about k, each copy with other costs and usages."""
    def vary(x, draw):
        return x if x >= FORBIDDEN else int(x * (0.9 + 0.2 * draw.random()))

    def do(p, draw):
        maps = [list(range(len(c))) * (max(1, k // len(c)) if draw.random() < share else 1) for c in p.costs]
        p.costs = [[vary(x[s], draw) if i >= len(x) else x[s] for i, s in enumerate(m)] for x, m in zip(p.costs, maps)]
        p.usages = [[vary(x[s], draw) if i >= len(x) else x[s] for i, s in enumerate(m)]
                    for x, m in zip(p.usages, maps)]
        for e, (a, b) in enumerate(p.pairs):
            x, cols = p.matrices[e], max(maps[b]) + 1
            if len(x) < len(maps[a]) * len(maps[b]):
                p.matrices[e] = [vary(x[i * cols + j], draw) for i in maps[a] for j in maps[b]]
    return do


def brief(share):
    """Some intervals last one time only; the limit is what is needed then, and a tenth."""
    def do(p, draw):
        p.intervals = [[b, b + 1] if b < e and draw.random() < share else [b, e] for b, e in p.intervals]
        p.limit = least_peak(p) * 11 // 10
    return do


def everlasting(share):
    """Some nodes use memory all the time."""
    def do(p, draw):
        end = max(e for _, e in p.intervals)
        p.intervals = [[0, end] if b < e and draw.random() < share else [b, e] for b, e in p.intervals]
        p.limit = least_peak(p) * 11 // 10
    return do


def coarse(unit):
    """Costs are multiples of a unit: many ties."""
    def do(p, _):
        p.costs = [[v if v >= FORBIDDEN else v // unit * unit for v in x] for x in p.costs]
        p.matrices = [[v if v >= FORBIDDEN else v // unit * unit for v in x] for x in p.matrices]
    return do


# ---- what it begins with -----------------------------------------------------------------------------------------------


def beside(parts, share):
    """Problems side by side, at the same time, under one limit: their sum times a share."""
    p = Problem([], [], [], [], [], 0)
    for q in parts:
        n = len(p.costs)
        p.intervals += q.intervals
        p.costs += q.costs
        p.usages += q.usages
        p.pairs += [[a + n, b + n] for a, b in q.pairs]
        p.matrices += q.matrices
        p.limit += int(q.limit * share)
    return p


def cost_of_resharding(draw, a, b, size):
    """Nothing between equal strategies of the two lists, else by how much they differ; sometimes forbidden."""
    return [0 if x == y else FORBIDDEN if draw.random() < 0.05 else int(size * (1 + abs(x - y)) * (1 + draw.random()))
            for x in a for y in b]


def layered(n, k, tightness):
    """A chain of operators with skips and weights: n nodes, each of 1 to k strategies, forward and backward, so that what the
    forward half makes lives until the backward half has come to it. The limit is a multiple of the least peak."""
    def do(draw):
        kinds = [sorted(draw.randrange(3 * k) for _ in range(draw.randint(max(1, k // 4), k))) for _ in range(n)]
        size = [int(2 ** draw.uniform(10, 30)) for _ in range(n)]
        costs = [[int(size[i] * draw.uniform(0.01, 0.3)) if s % 3 == 0 else 0 for s in kinds[i]] for i in range(n)]
        usages = [[size[i] // (1 + s % 8) for s in kinds[i]] for i in range(n)]
        last = [i + 1 for i in range(n)]
        pairs, matrices = [], []
        for i in range(1, n):
            sources = {i - 1, max(0, i - draw.choice([2, 3, 5, 8]))}
            if i > n // 2:
                sources.add(n - 1 - i)
            elif draw.random() < 0.02:
                sources.add(draw.randrange(i))
            for j in sorted(sources - {i}):
                pairs.append([j, i])
                last[j] = max(last[j], i + 1)
                matrices.append(cost_of_resharding(draw, kinds[j], kinds[i], min(size[i], size[j]) // 16))
        p = Problem([[i, last[i]] for i in range(n)], costs, usages, pairs, matrices, 0)
        p.limit = int(least_peak(p) * tightness)
        return p
    return do


def published(*names, share=1.0):
    def do(_):
        return beside([load(name) for name in names], share)
    return do


SAME = [shuffled, flipped, relabelled, stretched]

VARIANTS = [(base + "-" + name, published(base), steps) for base in "GAMS" for name, steps in [
    ("same", SAME),
    ("split", [split(0.3)]),
    ("limit93", [limit(0.93)]),
    ("limit97", [limit(0.97)]),
    ("limit150", [limit(1.5)]),
    ("unlimited", [unlimited]),
    ("factors", [factors(1.0)]),
    ("noise", [noise(0.3)]),
    ("regrouped", [regrouped]),
    ("brief", [brief(0.5)]),
    ("everlasting", [everlasting(0.02)]),
    ("coarse", [coarse(1 << 20)]),
    ("scaled", [scaled(1000, 40)]),
]] + [
    ("G-copied", published("G"), [copied(100, 0.5)]),
    ("A-copied", published("A"), [copied(40, 0.1)]),
    ("M-copied", published("M"), [copied(80, 0.1)]),
    ("AG", published("A", "G"), []),
    ("MS", published("M", "S", share=0.95), []),
    ("AMS", published("A", "M", "S"), [shuffled]),
    ("MM-tight", published("M", "M", share=0.96), [noise(0.2), flipped]),
    ("layered-small", layered(2000, 20, 1.3), []),
    ("layered-wide", layered(1500, 120, 1.2), []),
    ("layered-long", layered(60000, 10, 1.5), []),
    ("layered-10M", layered(30000, 24, 1.3), []),
    ("layered-250MB", layered(40000, 30, 1.3), []),
]


def make(out, name):
    path = os.path.join(out, name + ".json")
    if not os.path.exists(path):
        _, base, steps = next(v for v in VARIANTS if v[0] == name)
        draw = random.Random(name)
        p = base(draw)
        for step in steps:
            step(p, draw)
        p.write(path, name)
    return path


def run(dtplan, out, seconds, names):
    print("%-15s %8s %10s %15s %15s %8s %8s %8s %6s" %
          ("", "MB", "status", "cost", "bound", "gap", "time s", "cpu s", "MiB"))
    for name in names:
        path = make(out, name)
        start = time.monotonic()
        child = subprocess.Popen([dtplan, "solve", path, "--json", "--limit-s", str(seconds)], stdout=subprocess.PIPE)
        text = child.stdout.read()
        _, _, used = os.wait4(child.pid, 0)
        wall = time.monotonic() - start
        r = json.loads(text) if text else {"status": "error", "cost": None, "bound": None, "gap": None}
        print("%-15s %8.0f %10s %15s %15s %8s %8.1f %8.1f %6.0f" %
              (name, os.path.getsize(path) / 1e6, r["status"], r["cost"], r["bound"],
               "-" if r["gap"] is None else "%.3f%%" % (100 * r["gap"]), wall, used.ru_utime + used.ru_stime,
               used.ru_maxrss / 1024), flush=True)


def main():
    names = [v[0] for v in VARIANTS]
    command = sys.argv[1:2]
    if command == ["make"]:
        os.makedirs(sys.argv[2], exist_ok=True)
        for name in sys.argv[3:] or names:
            make(sys.argv[2], name)
    elif command == ["run"]:
        os.makedirs(sys.argv[3], exist_ok=True)
        run(sys.argv[2], sys.argv[3], float(sys.argv[4]), sys.argv[5:] or names)
    elif command == ["list"]:
        print("\n".join(names))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
