"""What tests/bench/two_hosts.sh writes of its files.

serial PLAN OUT                                  the plan without its overlap
head MACHINE                                     the slow-downs that were measured, and the head of the table
row MODEL PLAN_NAME PLAN WITH WITHOUT LOSSES     a row of the table; LOSSES holds those of the model's first row
"""
import json
import os
import sys


def read(name):
    with open(name) as f:
        return json.load(f)


def serial(plan, out):
    p = read(plan)
    p.pop("overlap", None)
    with open(out, "w") as f:
        json.dump(p, f)


def head(machine):
    device = read(machine)["device"]
    print("Slow-downs under overlap: %s" % json.dumps({k: v for k, v in device.items() if k.startswith("overlap")}))
    step = ["predicted, s", "median", "difference", "fastest", "difference"]
    columns = ["model", "plan", "depth"] + step + ["serial: " + step[0]] + step[1:] + ["ratio", "predicted", "losses"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)


def predicted(run):
    return run["predicted"]["step_time_s"]


def median(run):
    return run["step_time_s"]["median"]


def step(run):
    """The fastest step beside the median tells neighbours of the machine, which prices do not know, from a wrong price."""
    words = ["%.4g" % predicted(run)]
    for time in (median(run), run["step_time_s"]["min"]):
        words += ["%.4g" % time, "%+.1f %%" % (100 * (predicted(run) / time - 1))]
    return words


def row(model, name, plan, overlapped, without, losses):
    runs = [read(overlapped), read(without)]
    if not os.path.exists(losses):
        with open(losses, "w") as f:
            json.dump(runs[0]["loss"], f)
    same = all(run["loss"] == read(losses) for run in runs)
    ratios = ["%.2f" % (time(runs[0]) / time(runs[1])) for time in (median, predicted)]
    depth = read(plan).get("overlap", {}).get("depth", 0)
    words = [model.replace("--dim ", ""), name, "%d" % depth] + step(runs[0]) + step(runs[1]) + ratios
    print("| " + " | ".join(words + ["same" if same else "DIFFER"]) + " |", flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit({"serial": serial, "head": head, "row": row}[sys.argv[1]](*sys.argv[2:]))
