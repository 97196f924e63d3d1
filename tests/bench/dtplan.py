"""Runs `dtplan plan` and reads what it says."""
import json
import os
import re
import subprocess
import time


class Outcome:
    """A plan, or the smallest memory limit that works (`smallest`), and a limit below which nothing does (`bound`)."""

    def __init__(self):
        self.plan = None
        self.smallest = None
        self.bound = None
        self.error = None
        self.seconds = 0.0


def smallest(dtplan, model, machine, options, limit_s=300):
    """What is said of a limit that does not work. Far below, only what any plan needs is said: with that it is looked for."""
    out = plan(dtplan, model, machine, options + ["--memory", "1"], limit_s)
    if out.plan is None and out.smallest is None and out.bound is not None:
        out = plan(dtplan, model, machine, options + ["--memory", str(out.bound)], limit_s)
    if out.plan is not None:
        out.smallest = out.bound = peak(out.plan)
    return out


def plan(dtplan, model, machine, options, limit_s=300):
    """Plans models/MODEL.json in tensor mode; options are those of the command line but model and machine."""
    out = Outcome()
    command = [dtplan, "plan", model_file(model), "--machine", "models/machines/%s.json" % machine, "--mode", "tensor",
               "--json"] + options
    for option, alone in (("--remat", "none"), ("--microbatches", "1")):  # no search for what makes a plan fit
        command += [] if option in options else [option, alone]
    start = time.monotonic()
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        out.error = "no plan after %d s" % limit_s
        return out
    out.seconds = time.monotonic() - start
    if run.returncode == 0:
        out.plan = json.loads(run.stdout)
        return out
    said = " ".join(run.stderr.split())
    named = re.search(r"smallest memory limit that works is [^(]*\(--memory (\d+)(?:; none below (\d+) does)?\)", said)
    needs = re.search(r"any needs at least [^(]*\((\d+)\)", said)
    if run.returncode == 3 and needs:
        out.bound = int(needs.group(1))
    elif run.returncode == 3 and named:
        out.smallest = int(named.group(1))
        out.bound = int(named.group(2) or named.group(1))
    else:
        out.error = "exit %d: %s" % (run.returncode, run.stderr.strip().splitlines()[:2])
    return out


def model_file(model):
    return model if os.path.exists(model) else "models/%s.json" % model


def step(p):
    return p["predicted"]["step_time_s"]


def peak(p):
    return p["predicted"]["peak_bytes"]


def gap(p):
    """Between the least additive cost that was found and its bound, as a share; the plan may cost more and take less time."""
    c = p["certificate"]
    least = c.get("least_cost", c["cost"])
    return (least - c["bound"]) / least if least > 0 else 0.0


def fitting(p, limit=None):
    """Baselines of a plan that are legal and fit the limit: name -> what is predicted."""
    return {name: b for name, b in p["baselines"].items()
            if b["legal"] and (limit is None or b["peak_bytes"] <= limit)}
