"""Tables of `./dev bench plans`: plans of tensor mode next to baselines, and what memory limits are named.

Usage: plans.py DTPLAN OUT_DIR sweep|quick [MODEL ...]

sweep   every model of models/ on six meshes and more, without a limit, with 1.2 and 1.02 of the smallest that works, and with that itself
quick   the same on small models
"""
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import dtplan as tool

MESHES = ["x:2", "x:4", "x:8", "x:2;y:2", "x:2;y:4", "x:2;y:2;z:2"]
LARGE = ["x:8", "x:32", "x:2;y:4", "x:4;y:8", "x:8;y:8", "x:2;y:4;z:4"]

# name of the row, model, machine, options, meshes
SWEEP = [("mlp_digits", "mlp_digits", "a100_8", [], MESHES + ["x:3", "x:2;y:3"]),
         ("gpt_bytes", "gpt_bytes", "a100_8", [], MESHES + ["x:3"]),
         ("gpt_bytes_dropout", "gpt_bytes_dropout", "a100_8", [], MESHES),
         ("gpt2_small", "gpt2_small", "v100_16", [], MESHES + ["x:4;y:4"]),
         ("mtf_lm", "mtf_lm", "v100_16", [], MESHES + ["x:4;y:4"]),
         ("bert_large", "bert_large", "l4_16", [], MESHES + ["x:4;y:4"]),
         ("vit_b16", "vit_b16", "l4_16", [], MESHES + ["x:4;y:4"]),
         ("llama3_8b", "llama3_8b", "h100_64", [], LARGE + ["x:4;y:4"]),
         ("mixtral_8x7b", "mixtral_8x7b", "h100_64", [], LARGE),
         ("llama3_70b", "llama3_70b", "h100_128", [], LARGE),
         ("gpt3_175b", "gpt3_175b", "h100_128", [], LARGE)]


def dims(**sizes):
    return [word for name, size in sizes.items() for word in ("--dim", "%s=%d" % (name, size))]


QUICK = [("mlp_digits", "mlp_digits", "a100_8", [], MESHES + ["x:3"]),
         ("gpt_bytes", "gpt_bytes", "a100_8", dims(layers=2, length=32), MESHES),
         ("llama3_8b", "llama3_8b", "h100_64", dims(layers=2, batch=8, length=256), ["x:4", "x:2;y:4"]),
         ("mixtral_8x7b", "mixtral_8x7b", "h100_64", dims(layers=1, batch=8, length=64), ["x:4", "x:2;y:2"]),
         ("bert_large", "bert_large", "l4_16", dims(layers=2, batch=4), ["x:4", "x:2;y:2"]),
         ("vit_b16", "vit_b16", "l4_16", dims(layers=2, batch=8), ["x:4", "x:2;y:2"])]


class Case:
    """All limits of one model on one mesh; `rows` are table rows, `wrong` violations."""

    def __init__(self, dtplan, row, mesh):
        self.dtplan = dtplan
        self.name, self.model, self.machine, self.options, _ = row
        self.mesh = mesh
        self.rows = []
        self.wrong = []

    def fail(self, what):
        self.wrong.append("%s on %s: %s" % (self.name, self.mesh, what))

    def plan(self, limit):
        return tool.plan(self.dtplan, self.model, self.machine,
                         self.options + ["--mesh", self.mesh, "--memory", str(limit or "none"), "--threads", "1"])

    def check(self, label, limit):
        """Plans with a limit that works: the plan fits it and no baseline that fits is faster. Returns the step time."""
        got = self.plan(limit)
        if got.plan is None:
            self.fail("limit %s (%s): %s" % (limit, label, got.error or "infeasible, %d is named" % got.smallest))
            return None
        p = got.plan
        if limit is not None and tool.peak(p) > limit:
            self.fail("limit %d (%s): the peak is %d" % (limit, label, tool.peak(p)))
        others = sorted((b["step_time_s"], name) for name, b in tool.fitting(p, limit).items())
        for seconds, name in others:
            if seconds < tool.step(p):
                self.fail("limit %s (%s): %.9g s, %s takes %.9g s" % (limit, label, tool.step(p), name, seconds))
        best = "%8.3f %s" % (others[0][0] / tool.step(p), others[0][1]) if others else "       - none fits"
        self.rows.append("%-18s %-12s %-6s %14s %14d %12.6f %8.3f%% %7.2f %s" %
                         (self.name, self.mesh, label, limit or "-", tool.peak(p), tool.step(p),
                          100 * p["certificate"]["gap"], got.seconds, best))
        return tool.step(p)

    def check_refused(self, limit, smallest):
        """A limit that does not work: the smallest that does is named, the same every time."""
        got = self.plan(limit)
        if got.plan is not None:
            self.fail("%d was named the smallest limit that works, with %d there is a plan of %d bytes" %
                      (smallest, limit, tool.peak(got.plan)))
        elif got.error:
            self.fail("limit %d: %s" % (limit, got.error))
        elif got.smallest != smallest:
            self.fail("limit %d: %d is named, with limit 1 %d" % (limit, got.smallest, smallest))

    def run(self):
        times = [self.check("none", None)]
        named = self.plan(1)
        if named.smallest is None:
            self.fail("limit 1: %s" % (named.error or "there is a plan"))
            return self
        exact = named.bound == named.smallest
        if not exact:
            self.rows.append("%-18s %-12s smallest limit between %d and %d (%.2f %%)" %
                             (self.name, self.mesh, named.bound, named.smallest,
                              100.0 * (named.smallest - named.bound) / named.smallest))
        for factor in (1.2, 1.02):
            times.append(self.check(str(factor), int(factor * named.smallest)))
        times.append(self.check("least", named.smallest))
        self.check_refused(named.smallest - 1, named.smallest)
        known = [t for t in times if t is not None]
        for a, b in zip(known, known[1:]):
            if b < a:
                self.fail("a tighter limit gives a faster plan: %.9g s, %.9g s" % (a, b))
        return self


def sweep(dtplan, table, names):
    """Plans everything with two programs at a time; the violations."""
    print("%-18s %-12s %-6s %14s %14s %12s %9s %7s %s" %
          ("model", "mesh", "limit", "bytes", "peak", "step s", "gap", "time s", "best baseline that fits, vs plan"))
    cases = [Case(dtplan, row, mesh) for row in table if not names or row[0] in names for mesh in row[4]]
    wrong = []
    with ThreadPoolExecutor(2) as pool:
        for case in pool.map(Case.run, cases):
            print("\n".join(case.rows), flush=True)
            for text in case.wrong:
                print("WRONG: " + text, flush=True)
            wrong += case.wrong
    return len(cases), wrong


def main():
    dtplan, _, mode = sys.argv[1:4]
    start = time.monotonic()
    n, wrong = sweep(dtplan, {"sweep": SWEEP, "quick": QUICK}[mode], sys.argv[4:])
    print("%d models on meshes, %d violations, %.0f s" % (n, len(wrong), time.monotonic() - start))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
