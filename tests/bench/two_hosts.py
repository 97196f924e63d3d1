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
    columns = ["model", "plan", "depth", "predicted, s", "measured, s", "difference", "serial: predicted", "measured",
               "difference", "ratio", "predicted", "losses"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)


def steps(run):
    predicted, measured = run["predicted"], run["measured"]
    return ["%.4g" % predicted["step_time_s"], "%.4g" % measured["step_time_s"],
            "%+.1f %%" % (100 * (predicted["step_time_s"] / measured["step_time_s"] - 1))]


def row(model, name, plan, overlapped, without, losses):
    runs = [read(overlapped), read(without)]
    if not os.path.exists(losses):
        with open(losses, "w") as f:
            json.dump(runs[0]["loss"], f)
    same = all(run["loss"] == read(losses) for run in runs)
    ratios = ["%.2f" % (runs[0][kind]["step_time_s"] / runs[1][kind]["step_time_s"]) for kind in ("measured", "predicted")]
    depth = read(plan).get("overlap", {}).get("depth", 0)
    words = [model.replace("--dim ", ""), name, "%d" % depth] + steps(runs[0]) + steps(runs[1]) + ratios
    print("| " + " | ".join(words + ["same" if same else "DIFFER"]) + " |", flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit({"serial": serial, "head": head, "row": row}[sys.argv[1]](*sys.argv[2:]))
