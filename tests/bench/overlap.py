"""Tables of `./dev bench overlap`: what overlap hides, and what choosing plans under it saves.

Usage: overlap.py BIN_DIR [OTHER_DTPLAN]

Plans the rows of the table of docs/results/plans.md, of each the mesh with the faster plan. OTHER_DTPLAN, another
version, plans them as well; its plans are predicted by this version (bench_overlap), with the depth that is best for them.
"""
import json
import os
import subprocess
import sys
import tempfile

import dtplan as tool
import plans

PURPOSE = [("llama3_8b", [], "h100_64", ["x:8;y:8"]), ("mixtral_8x7b", [], "h100_64", ["x:16;y:4"]), ("gpt2_small", [], "a100_8", ["x:8"])]


def predict(binaries, model, options, machine, plan):
    """Step, communication, exposed communication (ms) and peak of a plan: by depth, and as chosen."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(plan, f)
        f.flush()
        out = subprocess.run([os.path.join(binaries, "bench_overlap"), tool.model_file(model), f.name,
                              "models/machines/%s.json" % machine] + options[1::2], capture_output=True, text=True, check=True)
    rows = {}
    for text in out.stdout.splitlines():
        kind, depth, *numbers = text.split()
        rows["chosen" if kind == "chosen" else int(depth)] = [int(depth)] + [float(n) for n in numbers]
    return rows


def best(dtplan, model, options, machine, meshes):
    got, _, _ = plans.best_mesh(dtplan, model, options, machine, meshes)
    if got.plan is None:
        got, _, _ = plans.best_mesh(dtplan, model, options + ["--memory", "none"], machine, meshes)
    return got.plan


def row(binaries, other, model, options, machine, meshes):
    plan = best(os.path.join(binaries, "dtplan"), model, options, machine, meshes)
    p = predict(binaries, model, options, machine, plan)
    serial, (depth, step, comm, exposed, peak) = p[0], p["chosen"]
    words = [model, machine, ";".join("%s:%d" % tuple(m) for m in plan["mesh"]), "%.5g" % serial[1], "%.5g" % step,
             "%d" % depth, "%.0f %%" % (100 * (1 - exposed / comm) if comm > 0 else 0), "%.3g" % (peak / 1e9)]
    if other:
        before = best(other, model, options, machine, meshes)
        was = predict(binaries, model, options, machine, before)
        words += ["%.5g" % (1e3 * tool.step(before)), "%.5g" % was["chosen"][1],
                  "%+.2f %%" % (100 * (step / was["chosen"][1] - 1))]
    print("| " + " | ".join(words) + " |", flush=True)


def main():
    binaries, other = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    head = ["model", "machine", "mesh", "serial, ms", "step, ms", "depth", "hidden", "peak, GB"]
    head += ["its step, ms", "overlapped", "choosing"] if other else []
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for case in PURPOSE:
        row(binaries, other, *case)
    for model, options in plans.TABLE:
        for machine, meshes in plans.MACHINES:
            row(binaries, other, model, options, machine, meshes)


if __name__ == "__main__":
    main()
