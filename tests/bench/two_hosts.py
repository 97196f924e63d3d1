"""What tests/bench/two_hosts.sh writes of its files.

serial PLAN OUT                         the plan without its overlap
head MACHINE                            the slow-downs that were measured, and the head of the table
row MODEL PLAN_NAME PLAN LOSSES RUN...  a row of the table, of the runs with overlap and as many without; LOSSES holds
                                        those of the model's first row
"""
import json
import os
import statistics
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


def predicted(runs):
    return runs[0]["predicted"]["step_time_s"]


def median(runs):
    return statistics.median(run["step_time_s"]["median"] for run in runs)


def step(runs):
    """The fastest step beside the median tells neighbours of the machine, which prices do not know, from a wrong price."""
    words = ["%.4g" % predicted(runs)]
    for time in (median(runs), min(run["step_time_s"]["min"] for run in runs)):
        words += ["%.4g" % time, "%+.1f %%" % (100 * (predicted(runs) / time - 1))]
    return words


def row(model, name, plan, losses, *files):
    runs = [read(f) for f in files]
    overlapped, without = runs[:len(runs) // 2], runs[len(runs) // 2:]
    if not os.path.exists(losses):
        with open(losses, "w") as f:
            json.dump(runs[0]["loss"], f)
    same = all(run["loss"] == read(losses) for run in runs)
    ratios = ["%.2f" % (time(overlapped) / time(without)) for time in (median, predicted)]
    depth = read(plan).get("overlap", {}).get("depth", 0)
    words = [model.replace("--dim ", ""), name, "%d" % depth] + step(overlapped) + step(without) + ratios
    print("| " + " | ".join(words + ["same" if same else "DIFFER"]) + " |", flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit({"serial": serial, "head": head, "row": row}[sys.argv[1]](*sys.argv[2:]))
