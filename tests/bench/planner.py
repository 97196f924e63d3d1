"""Tables of `./dev bench planner`: cost, certified gap, time and memory of dtplan on selection problems and on models.

Usage: planner.py DTPLAN OUT_DIR [instances|models|explain|pinned|parse|large ...]
"""
import itertools
import json
import os
import random
import re
import subprocess
import sys
import time

# instance, contest's limit in seconds, best of the contest, best known (models/selection/README.md)
INSTANCES = [("G", 120, 217039, 217039), ("A", 60, 6548641531, 6548553650),
             ("M", 180, 49928460991, 49928157537), ("S", 240, 1534613444, 1511377982)]

# model, mesh, machine, options
MODELS = [("llama3_8b", "x:8;y:8", "h100_64", []), ("llama3_8b", "x:4;y:4;z:4", "h100_64", []),
          ("gpt3_175b", "x:8;y:16", "h100_128", []), ("mixtral_8x7b", "x:8;y:8", "h100_64", []),
          ("mixtral_8x7b", "x:4;y:16", "h100_64", []),
          ("mixtral_8x7b", "x:16;y:4", "h100_64", []), ("mixtral_8x7b", "x:2;y:32", "h100_64", []),
          ("mixtral_8x7b", "x:4;y:4;z:4", "h100_64", []), ("gpt3_175b", "x:4;y:4;z:8", "h100_128", []),
          ("gpt2_small", "x:8", "a100_8", [])]


def run(command):
    """Runs a command; its JSON, seconds, peak resident MiB and processor seconds."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        print("%s: exit %d" % (" ".join(command), code), file=sys.stderr)
        text = "null"
    return json.loads(text), time.monotonic() - start, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime


def percent(a, b):
    return "%+.3f %%" % (100.0 * (a - b) / b)


def instances(dtplan, _):
    print("%-4s %8s %16s %16s %8s %14s %14s %8s %6s" %
          ("", "limit s", "cost", "bound", "gap", "vs contest", "vs best known", "time s", "MiB"))
    for name, limit, contest, known in INSTANCES:
        for part in (1.0, 0.5):
            r, seconds, mib, _ = run([dtplan, "solve", "models/selection/%s.json.gz" % name, "--json",
                                   "--limit-s", str(limit * part)])
            if r is None:
                continue
            print("%-4s %8g %16d %16d %7.3f%% %14s %14s %8.1f %6.0f" %
                  (name, limit * part, r["cost"], r["bound"], 100 * r["gap"], percent(r["cost"], contest),
                   percent(r["cost"], known), seconds, mib))


def models(dtplan, out):
    """Models planned in tensor mode, from the command to the plan file."""
    print("%-14s %-12s %-10s %9s %12s %12s %8s %9s %8s %8s %6s" %
          ("model", "mesh", "machine", "status", "step s", "cost s", "gap", "untied", "time s", "cpu s", "MiB"))
    for model, mesh, machine, options in MODELS:
        plan = os.path.join(out, "plan.json")
        _, seconds, mib, cpu = run([dtplan, "plan", "models/%s.json" % model, "--mesh", mesh, "--mode", "tensor", "--json",
                               "--machine", "models/machines/%s.json" % machine, "-o", plan] + options)
        if not os.path.exists(plan):
            continue
        with open(plan, encoding="utf-8") as f:
            p = json.load(f)
        os.remove(plan)
        c = p["certificate"]
        untied = "%8.4f%%" % (100 * c["untied_gap"]) if "untied_gap" in c else "-"
        print("%-14s %-12s %-10s %9s %12.6f %12.6f %7.3f%% %9s %8.2f %8.2f %6.0f" %
              (model, mesh, machine, c["status"], p["predicted"]["step_time_s"], c["cost"] / 1e12, 100 * c["gap"],
               untied, seconds, cpu, mib))


def explain_all(dtplan, model, machine, plan, names):
    """Explains every name; seconds and processor seconds of each, alternatives, and how many of them have an exact difference."""
    taken, used, total, exact = [], [], 0, 0
    for name in names:
        start = time.monotonic()
        child = subprocess.Popen([dtplan, "explain", "models/%s.json" % model, plan, name, "--machine",
                                  "models/machines/%s.json" % machine, "--json"], stdout=subprocess.PIPE)
        text = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        taken.append(time.monotonic() - start)
        used.append(usage.ru_utime + usage.ru_stime)
        if status != 0:
            print("%s: '%s' is not explained" % (model, name), file=sys.stderr)
            continue
        open_ones = [a for a in json.loads(text)["alternatives"] if "at_least_ps" in a]
        total += len(open_ones)
        exact += sum(a["at_least_is_best"] for a in open_ones)
    return taken, used, total, exact


def near_an_end(names):
    """Names without those of most layers: layers are alike but for the two at each end and where a plan has two runs of them."""
    layer = {name: int(m.group(1)) for name in names for m in [re.search(r"layers\.(\d+)", name)] if m}
    n = max(layer.values(), default=0) + 1
    kept = {0, 1, n // 2 - 1, n // 2, n - 2, n - 1}
    return [name for name in names if layer.get(name, 0) in kept]


def explain(dtplan, out):
    """What `dtplan explain` takes per tensor, and how many of its differences are exact, on all tensors of six layers and outside."""
    print("%-14s %-12s %7s %9s %9s %9s %9s %16s" %
          ("model", "mesh", "tensors", "median s", "99 % s", "most s", "most cpu", "exact"))
    for model, mesh, machine, options in MODELS:
        plan = os.path.join(out, "plan.json")
        run([dtplan, "plan", "models/%s.json" % model, "--mesh", mesh, "--mode", "tensor", "--json", "--machine",
             "models/machines/%s.json" % machine, "-o", plan] + options)
        with open(plan, encoding="utf-8") as f:
            names = near_an_end(list(json.load(f)["tensors"]))
        taken, used, total, exact = explain_all(dtplan, model, machine, plan, names)
        os.remove(plan)
        taken.sort()
        print("%-14s %-12s %7d %9.3f %9.3f %9.3f %9.3f %7d of %6d" %
              (model, mesh, len(names), taken[len(taken) // 2], taken[len(taken) * 99 // 100], taken[-1], max(used),
               exact, total), flush=True)


def pin_and_solve(dtplan, out, case, names, choice):
    """The least additive cost found, and no less than which there is, with tensors pinned to a layout; None: no plan."""
    model, mesh, machine, options = case
    path = os.path.join(out, "pinned.json")
    pins = [x for name in names for x in ("--pin", "%s: %s" % (name, choice))]
    done = subprocess.run([dtplan, "plan", "models/%s.json" % model, "--mesh", mesh, "--mode", "tensor", "--machine",
                           "models/machines/%s.json" % machine, "-o", path] + options + pins, capture_output=True)
    if done.returncode != 0:
        return None
    with open(path, encoding="utf-8") as f:
        c = json.load(f)["certificate"]
    os.remove(path)
    return c.get("least_cost", c["cost"]), c["bound"]


def draw_alternatives(dtplan, plan, case, seed):
    """Of tensors that decide for themselves: those that decide with it, the plan's cost, one of the alternatives near its layout."""
    model, _, machine, _ = case
    random.seed(seed)
    with open(plan, encoding="utf-8") as f:
        names = list(json.load(f)["tensors"])
    for name in random.sample(names, len(names)):
        text = subprocess.run([dtplan, "explain", "models/%s.json" % model, plan, name, "--machine",
                               "models/machines/%s.json" % machine, "--json"], capture_output=True, check=True).stdout
        x = json.loads(text)
        near = [a for a in x["alternatives"] if "at_least_ps" in a and not a["chosen"]][:8]
        if x["decides"] == "tensor" and "via" not in x and near:
            alike = [n for n in names if re.sub(r"layers\.\d+", "", n) == re.sub(r"layers\.\d+", "", name)]
            if len(alike) == x["instances"]:
                yield alike, x["cost_ps"], random.choice(near)


def pinned(dtplan, out, cases=8, seed=1):
    """Whether solving again with an alternative pinned costs what explain says, or more; how often it does not."""
    wrong = 0
    print("%-14s %-12s %6s %7s %9s %9s %9s   seed %d" %
          ("model", "mesh", "cases", "exact", "as said", "more", "less", seed))
    for case in MODELS[:7]:
        model, mesh, machine, options = case
        plan = os.path.join(out, "plan.json")
        run([dtplan, "plan", "models/%s.json" % model, "--mesh", mesh, "--mode", "tensor", "--json", "--machine",
             "models/machines/%s.json" % machine, "-o", plan] + options)
        solved, exact, equal, more, less, none = 0, 0, 0, 0, 0, 0
        for names, cost, a in itertools.islice(draw_alternatives(dtplan, plan, case, seed), cases):
            found = pin_and_solve(dtplan, out, case, names, a["choice"])
            if found is None:
                none += 1
                continue
            least, bound = found
            solved += 1
            said = cost + a["at_least_ps"]
            exact += a["at_least_is_best"]
            equal += least == said
            more += least > said
            less += least < said or (a["at_least_is_best"] and bound > said)
        os.remove(plan)
        wrong += less
        print("%-14s %-12s %6d %7d %9d %9d %9d   without a plan %d" %
              (model, mesh, solved, exact, equal, more, less, none), flush=True)
    return wrong


def side_by_side(out, k):
    """Writes instance M k times side by side; the file and how many numbers it holds."""
    import gzip
    with gzip.open("models/selection/M.json.gz") as f:
        p = json.load(f)["problem"]
    n = len(p["nodes"]["costs"])
    numbers = sum(map(len, p["edges"]["costs"])) + 2 * sum(map(len, p["nodes"]["costs"]))
    p = {"name": "M x %d" % k, "usage_limit": k * p["usage_limit"],
         "nodes": {key: k * p["nodes"][key] for key in p["nodes"]},
         "edges": {"nodes": [[a + i * n, b + i * n] for i in range(k) for a, b in p["edges"]["nodes"]],
                   "costs": k * p["edges"]["costs"]}}
    path = os.path.join(out, "side_by_side.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"problem": p}, f)
    return path, k * numbers


def parse(dtplan, out):
    """Reading and writing a problem of about 250 MB."""
    big, numbers = side_by_side(out, 4)
    start = time.monotonic()
    child = subprocess.Popen([dtplan, "solve", big, "--write", "iopddl", "-o", os.devnull])
    _, _, usage = os.wait4(child.pid, 0)
    print("%.0f MB of JSON, %.0f MB of numbers: read and written in %.1f s, %.0f MB resident" %
          (os.path.getsize(big) / 1e6, 8 * numbers / 1e6, time.monotonic() - start, usage.ru_maxrss * 1.024e-3))
    os.remove(big)


def large(dtplan, out):
    """The same problem, and one half as large, solved under several time limits."""
    for k in (2, 4):
        big, _ = side_by_side(out, k)
        for limit in (5, 20, 120):
            r, seconds, mib, _ = run([dtplan, "solve", big, "--json", "--limit-s", str(limit)])
            if r is not None:
                print("M x %d: %d matrix entries, %d after presolve; limit %g s: %s, gap %s, %.1f s, %.0f MiB" %
                      (k, r["presolve"]["before"]["entries"], r["presolve"]["after"]["entries"], limit, r["status"],
                       "-" if r["gap"] is None else "%.3f %%" % (100 * r["gap"]), seconds, mib))
        os.remove(big)


def main():
    dtplan, out = sys.argv[1:3]
    parts = {"instances": instances, "models": models, "explain": explain, "pinned": pinned, "parse": parse, "large": large}
    os.makedirs(out, exist_ok=True)
    wrong = 0
    for name in sys.argv[3:] or parts:
        wrong += parts[name](dtplan, out) or 0
        print()
    sys.exit(1 if wrong > 0 else 0)


if __name__ == "__main__":
    main()
