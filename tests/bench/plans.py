"""Tables of `./dev bench plans`: plans of tensor mode next to baselines, and what memory limits are named.

Usage: plans.py DTPLAN sweep|quick|patterns|table|table-bf16 [MODEL ...]

sweep   every model of models/ on six meshes and more, without a limit, with 1.2 and 1.02 of the smallest that works, and with that itself
quick   the same on small models; and how near plans come to their bounds under tight limits
patterns  the styles that people know are found without pins where no plan is clearly faster, and cost no more than their baseline
table   models on machines, the best of some meshes: the table of docs/results/plans.md; table-bf16: in mixed precision

With DTP_QUARTER (tests/support/quarter.py) a quarter of the rows of sweep, quick and patterns.
"""
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import dtplan as tool
import plan_patterns

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import quarter

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
         ("gpt_bytes", "gpt_bytes", "a100_8", dims(layers=1, length=32), ["x:2"]),
         ("llama3_8b", "llama3_8b", "h100_64", dims(layers=2, batch=8, length=256), ["x:4", "x:2;y:2"]),
         ("mixtral_8x7b", "mixtral_8x7b", "h100_64", dims(layers=1, batch=8, length=64), ["x:4"]),
         ("bert_large", "bert_large", "l4_16", dims(layers=2, batch=4), ["x:4"]),
         ("vit_b16", "vit_b16", "l4_16", dims(layers=1, batch=8), ["x:4"])]

# Programs need more than the problem of tensor mode counts: by how much (a part) a plan at 1.02 of the smallest limit may
# lie above the bound. Copies for one node do not count there: gpt2_small on cuda packs and unpacks the gradient of wte, 147 MiB.
TIGHT = [("gpt_bytes", "a100_8", "x:8", [], 0.06), ("gpt_bytes_dropout", "a100_8", "x:4", [], 0.03),
         ("gpt2_small", "v100_16", "x:8", ["--target", "cpu"], 0.03), ("gpt2_small", "v100_16", "x:8", [], 0.18)]


# Seconds until a plan is given up: at the smallest limit on 3-D meshes the search takes minutes.
PATIENCE = 600
SLACK = 0.005  # of the step: a plan with less memory may be so much slower than the fastest one found


class Case:
    """All limits of one model on one mesh; `rows` are table rows, `wrong` violations."""

    def __init__(self, dtplan, row, mesh):
        self.dtplan = dtplan
        self.name, self.model, self.machine, self.options, _ = row
        self.mesh = mesh
        self.rows = []
        self.wrong = []
        self.loss = 0.0  # by how much a plan is slower than one with a tighter limit, a part of its time

    def fail(self, what):
        self.wrong.append("%s on %s: %s" % (self.name, self.mesh, what))

    def plan(self, limit):
        return tool.plan(self.dtplan, self.model, self.machine,
                         self.options + ["--mesh", self.mesh, "--memory", str(limit or "none"), "--threads", "1"],
                         PATIENCE)

    def check(self, label, limit):
        """Plans with a limit that works: the plan fits it and no baseline that fits is faster, but by less than the
        slack where it needs as much memory or more. Returns the step time."""
        got = self.plan(limit)
        if got.plan is None:
            self.fail("limit %s (%s): %s" % (limit, label, got.error or "infeasible, %d is named" % got.smallest))
            return None
        p = got.plan
        if limit is not None and tool.peak(p) > limit:
            self.fail("limit %d (%s): the peak is %d" % (limit, label, tool.peak(p)))
        others = sorted((b["step_time_s"], name) for name, b in tool.fitting(p, limit).items())
        for seconds, name in others:
            tied = tool.step(p) <= (1 + SLACK) * seconds and tool.peak(p) <= 1.01 * p["baselines"][name]["peak_bytes"]
            if seconds < tool.step(p) and not tied:
                self.fail("limit %s (%s): %.9g s, %s takes %.9g s" % (limit, label, tool.step(p), name, seconds))
        best = "%8.3f %s" % (others[0][0] / tool.step(p), others[0][1]) if others else "       - none fits"
        self.rows.append("%-18s %-12s %-6s %14s %14d %12.6f %8.3f%% %7.2f %s" %
                         (self.name, self.mesh, label, limit or "-", tool.peak(p), tool.step(p),
                          100 * tool.gap(p), got.seconds, best))
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
            self.fail("limit %d: %d is named, without one %d" % (limit, got.smallest, smallest))

    def run(self):
        times = [self.check("none", None)]
        named = tool.smallest(self.dtplan, self.model, self.machine,
                              self.options + ["--mesh", self.mesh, "--threads", "1"], PATIENCE)
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
        for i, slow in enumerate(known):
            self.loss = max(self.loss, 1.0 - min(known[i:]) / slow)
        return self


def sweep(dtplan, table, names):
    """Plans everything with two programs at a time; the violations."""
    print("%-18s %-12s %-6s %14s %14s %12s %9s %7s %s" %
          ("model", "mesh", "limit", "bytes", "peak", "step s", "gap", "time s", "best baseline that fits, vs plan"))
    cases = quarter.of(Case(dtplan, row, mesh) for row in table if not names or row[0] in names for mesh in row[4])
    wrong, losses = [], []
    with ThreadPoolExecutor(2) as pool:
        for case in pool.map(Case.run, cases):
            print("\n".join(case.rows), flush=True)
            for text in case.wrong:
                print("WRONG: " + text, flush=True)
            wrong += case.wrong
            losses.append((case.loss, "%s on %s" % (case.name, case.mesh)))
    print("%d models on meshes, %d violations; slower than with a tighter limit: %d, at most %.2f %% (%s)" %
          (len(cases), len(wrong), sum(x > 0 for x, _ in losses), 100 * max(losses)[0], max(losses)[1]))
    return wrong


def tight(dtplan):
    """Plans near the smallest limit that works; those too far above their bound."""
    wrong = []
    for model, machine, mesh, target, most in quarter.of(TIGHT):
        options = ["--mesh", mesh, "--threads", "1"] + target
        named = tool.smallest(dtplan, model, machine, options)
        if named.smallest is None:
            wrong.append("%s on %s: %s" % (model, mesh, named.error))
            continue
        got = tool.plan(dtplan, model, machine, options + ["--memory", str(int(1.02 * named.smallest))])
        gap = tool.gap(got.plan) if got.plan else 1.0
        print("%s on %s at 1.02 of %d: gap %.4f" % (model, mesh, named.smallest, gap), flush=True)
        if gap > most:
            wrong.append("%s on %s: %.4f above the bound at 1.02 of the smallest limit" % (model, mesh, gap))
    for text in wrong:
        print("WRONG: " + text)
    return wrong


# ---- patterns ----

def reduced_bytes(b):
    """What collectives add up over ranks. Bytes, because small gradients may be reduced together or apart."""
    return sum(b["collectives"][kind]["bytes"] for kind in ("all_reduce", "reduce_scatter"))


def column_row(found, p):
    """Matrices in pairs, and no more is reduced than Megatron reduces."""
    pairs = found.column_row("x")
    return (len(pairs) >= 2 and any("heads" in d for d in pairs) and "d_ff" in pairs and
            reduced_bytes(p["predicted"]) <= reduced_bytes(p["baselines"]["megatron_sp"]))


def fully_sharded(found, p):
    by_batch = all(found.split(n, "x") == "batch" for n, _, _ in found.products())
    return by_batch and found.kept_split("x") > 0.8 and p["predicted"]["collectives"]["all_gather"]["count"] > 0


def sequence_parallel(found, _):
    norms = found.norm_dims("x")
    return norms["length"] == sum(norms.values()) > 0


def vocabulary_parallel(found, _):
    return {found.ops[n]["op"] for n in found.vocabulary("x")} == {"embedding", "einsum", "cross_entropy"}


def expert_parallel(found, _):
    experts = [n for n, dims, _ in found.products() if "experts" in dims and len(dims) > 2]
    return bool(experts) and all(found.split(n, "x") == "experts" for n in experts)


# what, how it is seen, baseline of that name, model, machine, options
BLOCK = dims(layers=2, batch=1) + ["--memory", "none"]
PATTERNS = [("column and row matrices", column_row, "megatron", "gpt3_175b", "a100_8", BLOCK),
            ("column and row matrices", column_row, "megatron", "gpt3_175b", "h100_64", BLOCK),
            ("column and row matrices", column_row, "megatron", "llama3_8b", "a100_8", BLOCK + dims(length=2048)),
            ("column and row matrices", column_row, "megatron", "mtf_lm", "a100_8", dims(batch=2) + ["--memory", "none"]),
            ("sequence of the norms", sequence_parallel, "megatron_sp", "gpt3_175b", "a100_8", BLOCK),
            ("sequence of the norms", sequence_parallel, "megatron_sp", "llama3_8b", "a100_8", BLOCK + dims(length=2048)),
            ("vocabulary", vocabulary_parallel, "megatron", "gpt3_175b", "a100_8", BLOCK),
            ("fully sharded data", fully_sharded, "zero3", "llama3_8b", "a100_8",
             dims(layers=4, batch=64, length=2048) + ["--memory", "44700000000"]),
            ("experts", expert_parallel, "expert_parallel", "mixtral_8x7b", "a100_8",
             dims(layers=2, batch=16) + ["--memory", "none"]),
            ("experts", expert_parallel, "expert_parallel", "mixtral_8x7b", "h100_64",
             dims(layers=1, batch=16) + ["--memory", "none"]),
            ("experts", expert_parallel, "expert_parallel", "mixtral_8x7b_index", "a100_8",
             dims(layers=2, batch=16) + ["--memory", "none"]),
            ("experts", expert_parallel, "expert_parallel", "mixtral_8x7b_index", "h100_64",
             dims(layers=1, batch=16) + ["--memory", "none"])]


# A plan that is faster than every usual layout by so much need not look like one of them.
CLEARLY = 1.02


def find_patterns(dtplan, names):
    """Plans on x:8 without pins; what is not found, or dearer than the baseline, which is planned on its own as well."""
    wrong, looked_for, found_once = [], set(), set()
    for what, seen, baseline, model, machine, options in quarter.of(p for p in PATTERNS if not names or p[3] in names):
        got = tool.plan(dtplan, model, machine, options + ["--mesh", "x:8", "--threads", "1"])
        case = "%s in %s on %s (%s)" % (what, model, machine, " ".join(options))
        if got.plan is None:
            wrong.append("%s: %s" % (case, got.error or "infeasible"))
            continue
        found = plan_patterns.Layouts(model, got.plan)
        other = got.plan["baselines"][baseline]
        ratio = other["step_time_s"] / tool.step(got.plan)
        usual = min(b["step_time_s"] for b in tool.fitting(got.plan, None).values())
        looked_for.add(what)
        if seen(found, got.plan):
            found_once.add(what)
        elif usual < CLEARLY * tool.step(got.plan):
            wrong.append("%s: not found; %s" % (case, found.words()))
        if ratio < 1.0:
            wrong.append("%s: %s is faster, %.4f of the plan" % (case, baseline, ratio))
        print("%-24s %-13s %-8s %10.6f s  %s takes %.4f; %s" %
              (what, model, machine, tool.step(got.plan), baseline, ratio, found.words()), flush=True)
    if not names and "DTP_QUARTER" not in os.environ:
        wrong += ["%s: in no model" % what for what in sorted(looked_for - found_once)]
    for text in wrong:
        print("WRONG: " + text)
    return wrong


# ---- table ----

# machine and meshes, of which the best is taken
MACHINES = [("a100_8", ["x:8", "x:2;y:4"]), ("v100_16", ["x:16", "x:2;y:8"]), ("l4_16", ["x:16", "x:4;y:4"]),
            ("h100_64", ["x:64", "x:8;y:8"])]
TABLE = [("mlp_digits", []), ("gpt_bytes", dims(batch=64)), ("gpt2_small", dims(batch=64)), ("mtf_lm", []), ("bert_large", []),
         ("vit_b16", []), ("llama3_8b", dims(batch=64, length=2048)), ("mixtral_8x7b", []), ("llama3_70b", []),
         ("gpt3_175b", [])]


def best_mesh(dtplan, model, options, machine, meshes):
    """The fastest plan, or the outcome that names the smallest limit; all seconds."""
    tried = [tool.plan(dtplan, model, machine, options + ["--mesh", mesh, "--threads", "1"], 100) for mesh in meshes]
    planned = [t for t in tried if t.plan is not None]
    best = min(planned, key=lambda t: tool.step(t.plan)) if planned else min(tried, key=lambda t: t.smallest or t.bound or 1 << 62)
    return best, sum(t.seconds for t in tried), [t.error for t in tried if t.error]


def table_row(dtplan, model, options, precision, machine, meshes):
    """One row in markdown; what does not fit the device is planned without a limit, the smallest stands in brackets."""
    wanted = options + ["--precision", precision]
    got, seconds, errors = best_mesh(dtplan, model, wanted, machine, meshes)
    least, note = got.smallest or got.bound, ""
    if got.plan is None:
        got, more, errors = best_mesh(dtplan, model, wanted + ["--memory", "none"], machine, meshes)
        seconds += more
        note = " (%s)" % ("%.1f" % (least / 1e9) if least else "?")
    name = " ".join([model] + options[1::2])
    head = "| %s | %s |" % (name, machine)
    if got.plan is None:
        return "%s | | | | %s | %.1f |" % (head, "; ".join(errors), seconds)
    for e in errors:
        print("%s on %s: %s" % (name, machine, e), file=sys.stderr)
    p = got.plan
    limit = p.get("memory_limit_bytes", 1 << 62)
    ratios = sorted((b["step_time_s"] / tool.step(p), name) for name, b in tool.fitting(p).items() if b["peak_bytes"] <= limit)
    return "%s %s | %.6g | %.3g%s | %.2f %% | %s | %.1f |" % (
        head, ";".join("%s:%d" % tuple(m) for m in p["mesh"]), 1e3 * tool.step(p), tool.peak(p) / 1e9, note,
        100 * tool.gap(p), "%s %.3f" % ratios[0][::-1] if ratios else "none fits", seconds)


def table(dtplan, names, precision="f32"):
    print("| model | machine | mesh | step, ms | peak, GB | gap | fastest baseline that fits | planned in, s |")
    print("|---|---|---|---|---|---|---|---|")
    rows = [(model, options, precision, machine, meshes) for model, options in TABLE if not names or model in names
            for machine, meshes in MACHINES]
    with ThreadPoolExecutor(2) as pool:
        for row in pool.map(lambda r: table_row(dtplan, *r), rows):
            print(row, flush=True)
    return []


def main():
    dtplan, mode = sys.argv[1:3]
    modes = {"sweep": lambda d, names: sweep(d, SWEEP, names), "quick": lambda d, names: sweep(d, QUICK, names) + tight(d),
             "patterns": find_patterns, "table": table, "table-bf16": lambda d, names: table(d, names, "bf16")}
    start = time.monotonic()
    wrong = modes[mode](dtplan, sys.argv[3:])
    print("%.0f s" % (time.monotonic() - start), file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
