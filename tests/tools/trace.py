#!/usr/bin/env python3
"""Traces of steps, predicted and measured: events that Perfetto takes as they are, and slices whose sums are the totals
of plan and report.

Usage: trace.py BIN_DIR
"""
import collections
import json
import math
import os
import subprocess
import sys
import tempfile

MLP = "models/mlp_digits.json"
GPT = "models/gpt_bytes.json --dim layers=1 --dim length=8"
KEYS = {"M": {"args"}, "X": {"cat", "ts", "dur", "args"}, "s": {"cat", "id", "ts"}, "f": {"cat", "id", "ts", "bp"}}
HOST = {"products": 0.7, "memory": 0.4, "attention": 0.3, "attention_grad": 0.2, "host_s": 7.001e-6,
        "provenance": {"how": "measured"}}
WORK = ("kernel", "copy")
failures = []


def fail(text):
    failures.append(text)
    print("FAIL: " + text)


def near(name, got, wanted, slack):
    if not abs(got - wanted) <= slack:
        fail(f"{name}: {got!r}, wanted {wanted!r}")


def constant(text):
    raise ValueError(f"{text} is no JSON")


def cut(us):
    """Nanoseconds as Perfetto has them."""
    return math.floor(us * 1000.0)


def read(name, text):
    """The threads of a trace: slices in order of time, by (pid, tid)."""
    trace = json.loads(text, parse_constant=constant)
    names, threads, flows = {}, collections.defaultdict(list), collections.defaultdict(list)
    for event in trace["traceEvents"]:
        lacks = (KEYS[event["ph"]] | {"name", "pid", "tid"}) - set(event)
        if lacks:
            fail(f"{name}: {event} has no {lacks}")
        place = event["pid"], event["tid"]
        if event["ph"] == "M":
            names[(*place, event["name"])] = event["args"]["name"]
        elif event["ph"] == "X":
            threads[place].append(event)
            if event["ts"] < 0 or event["dur"] < 0:
                fail(f"{name}: {event} runs backwards")
        else:
            # as Perfetto binds it: to the slice of its thread that began last
            flows[event["id"]].append((event, threads[place][-1]))
    for (pid, tid), slices in threads.items():
        if (pid, tid, "thread_name") not in names or not any(n[0] == pid and n[2] == "process_name" for n in names):
            fail(f"{name}: thread {pid}, {tid} has no name")
        slices.sort(key=lambda e: e["ts"])
        for a, b in zip(slices, slices[1:]):
            if a["ts"] + a["dur"] > b["ts"] + 1e-9 * b["ts"] or cut(a["ts"]) + cut(a["dur"]) > cut(b["ts"]):
                fail(f"{name}: {a} overlaps {b}")
    check_flows(name, flows, names)
    return trace, {(pid, names[(pid, tid, "thread_name")]): slices for (pid, tid), slices in threads.items()}


def check_flows(name, flows, names):
    for key, ends in flows.items():
        if [event["ph"] for event, _ in ends] != ["s", "f"]:
            fail(f"{name}: flow {key} has the ends {ends}")
            continue
        (start, collective), (end, wait) = ends
        queues = [names[(e["pid"], e["tid"], "thread_name")] for e in (start, end)]
        if (collective["cat"], wait["cat"], queues) != ("collective", "wait", ["communication", "compute"]):
            fail(f"{name}: flow {key} leads from {collective} to {wait}")
        if start["pid"] != end["pid"] or start["ts"] > end["ts"]:
            fail(f"{name}: flow {key}: {start}, {end}")
        if wait["name"] != "wait " + collective["name"]:
            fail(f"{name}: flow {key} leads from '{collective['name']}' to '{wait['name']}'")
        for event, piece in ends:
            if not piece["ts"] <= event["ts"] <= piece["ts"] + piece["dur"] + 1e-9 * event["ts"]:
                fail(f"{name}: {event} is not in {piece}")


def total(slices, categories, key=None):
    """Seconds of slices, those of left out ones included."""
    left = {"dur": "work_us" if "wait" not in categories else "wait_us"}
    return 1e-6 * sum(e["dur"] if key is None else e["args"].get(key, 0) for e in slices if e["cat"] in categories) + \
        1e-6 * sum(e["args"].get(key or left["dur"], 0) for e in slices if e["cat"] == "left_out")


def check_predicted(name, trace, threads, totals, slower=False):
    """`totals`: of plan or report, made without the trace. slower: compute and collectives slow each other down."""
    process = [p for p in trace["otherData"]["processes"] if p["predicted"]]
    if len(process) != 1:
        fail(f"{name}: {len(process)} processes are predicted")
        return
    pid = process[0]["pid"]
    compute, comm = threads[(pid, "compute")], threads.get((pid, "communication"), [])
    slack = 2e-12 * (len(compute) + len(comm)) + 1e-9 * totals["step_time_s"]
    for key in ("step_time_s", "compute_s", "comm_s", "exposed_comm_s"):
        near(f"{name}: {key}", process[0][key], totals[key], 1e-12 * totals["step_time_s"])
    end = 1e-6 * max(e["ts"] + e["dur"] for e in compute + comm)
    near(f"{name}: end", end, totals["step_time_s"], slack)
    near(f"{name}: kernels and copies, prices", total(compute, WORK, "predicted_us"), totals["compute_s"], slack)
    near(f"{name}: collectives, prices", total(comm, ("collective",), "predicted_us"), totals["comm_s"], slack)
    near(f"{name}: exposed", total(comm, ("collective",), "exposed_us"), totals["exposed_comm_s"], slack)
    near(f"{name}: waits", total(compute, ("wait",)), totals["exposed_comm_s"], slack + totals.get("host_s", 0))
    if slower:
        if total(compute, WORK) <= totals["compute_s"] + slack:
            fail(f"{name}: kernels beside collectives are not slower")
    else:
        near(f"{name}: kernels and copies", total(compute, WORK), totals["compute_s"], slack)
        near(f"{name}: collectives", total(comm, ("collective",)), totals["comm_s"], slack)
    if (pid, "host") in threads:
        near(f"{name}: the last is issued", end, max(end, 1e-6 * threads[(pid, "host")][-1]["ts"]), slack)


def check_counts(name, trace, threads, plan):
    """As many collectives as the plan says."""
    left = trace["otherData"]["microbatches_left_out"]
    pid = trace["otherData"]["processes"][0]["pid"]
    n = sum(e["cat"] == "collective" for e in threads.get((pid, "communication"), []))
    wanted = sum(c["count"] for c in plan["predicted"]["collectives"].values())
    if left == 0 and n != wanted:
        fail(f"{name}: {n} collectives, the plan has {wanted}")


class Here:
    def __init__(self, bin_dir, folder):
        self.bin_dir, self.folder = bin_dir, folder

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, command, code=0):
        argv = command.split()
        done = subprocess.run([os.path.join(self.bin_dir, argv[0])] + argv[1:], capture_output=True, text=True,
                              check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode != code:
            fail(f"{command}: exit {done.returncode}: {done.stderr[-500:]}")
        return done

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def machine(self, name, base, device=None, **sets):
        with open(f"models/machines/{base}.json", encoding="utf-8") as file:
            machine = json.load(file)
        machine["device"].update(device or {})
        machine.update(sets)
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump(machine, file)
        return self.path(name)


def plan(here, name, command, slower=False):
    """The trace of a plan, and of the plan's file: the same bytes."""
    file, trace_file = here.path(name + ".plan"), here.path(name + ".json")
    machine = command.split("--machine ")[1].split()[0]
    done = here.run(f"dtplan plan {command} -o {file} --trace {trace_file}")
    planned = json.loads(here.read(name + ".plan"))
    text = here.read(name + ".json")
    trace, threads = read(name, text)
    check_predicted(name, trace, threads, planned["predicted"], slower)
    check_counts(name, trace, threads, planned)
    dims = " ".join(f"--dim {d}" for d in command.split("--dim ")[1:] for d in [d.split()[0]])
    shown = here.run(f"dtplan show {command.split()[0]} {dims} --plan {file} --machine {machine} --stage schedule")
    if shown.stdout != text:
        fail(f"{name}: dtplan show has another trace")
    return done, trace, threads


def check_plans(here):
    h100 = "--machine h100_64"
    plan(here, "overlap", f"{GPT} {h100} --mesh x:2;y:2 --rules batch:x;d_ff:y")
    plan(here, "tensor", f"{MLP} {h100} --mesh x:4 --mode tensor --memory 150K")
    plan(here, "microbatches", f"{GPT} {h100} --mesh x:2 --rules batch:x --microbatches 4 --remat all")
    plan(here, "one_rank", f"{MLP} {h100} --mesh x:1")
    plan(here, "sum", f"{GPT} --machine models/machines/cpu_2.json --mesh x:2 --rules batch:x --microbatches 2")
    slower = here.machine("slower.machine", "h100_64", {"overlap_slowdown": 1.5})
    plan(here, "slower", f"{GPT} --machine {slower} --mesh x:2;y:2 --rules batch:x;d_ff:y", slower=True)
    host = here.machine("host.machine", "h100_64", efficiency={"cuda": HOST})
    _, trace, threads = plan(here, "host", f"{GPT} --machine {host} --mesh x:2 --rules batch:x --target cuda")
    issues = [e for (_, queue), slices in threads.items() if queue == "host" for e in slices]
    if not issues or {e["cat"] for e in issues} != {"issue"} or trace["otherData"]["processes"][0]["host_s"] <= 0:
        fail("host: the host issues nothing")


def check_left_out(here):
    name = "many"
    done, trace, threads = plan(here, name, f"{GPT} --dim batch=4096 --machine h100_64 --mesh x:2 --rules batch:x "
                                            "--microbatches 2048")
    left = trace["otherData"]["microbatches_left_out"]
    events = len(trace["traceEvents"])
    if left < 1 or f"microbatches {2047 - left} to 2046 of 2048" not in done.stderr:
        fail(f"{name}: {left} left out, stderr: {done.stderr[:300]}")
    if events > 400000 or sum(e["cat"] == "left_out" for s in threads.values() for e in s) not in (1, 2):
        fail(f"{name}: {events} events")


def check_measured(name, process, threads):
    pid, totals = process["pid"], process
    compute, comm = threads[(pid, "compute")], threads.get((pid, "communication"), [])
    slack = 2e-12 * (len(compute) + len(comm))
    waits = total(comm, ("collective",)) + total(compute, ("wait",))
    near(f"{name}: exposed", waits, totals["exposed_comm_s"], slack)
    near(f"{name}: totals", totals["compute_s"] + totals["exposed_comm_s"], totals["step_time_s"], slack)
    if not 0 < total(compute, WORK) <= totals["compute_s"] + slack:
        fail(f"{name}: kernels and copies take {total(compute, WORK)} s of {totals['compute_s']} s")
    if 1e-6 * max(e["ts"] + e["dur"] for e in compute + comm) > totals["step_time_s"] + slack:
        fail(f"{name}: a slice ends after the step")


def run(here, name, options, ranks, machine="--machine models/machines/cpu_2.json"):
    trace_file = here.path(name + ".json")
    done = here.run(f"dtrun run {GPT} --comm sim --threads 1 --quiet --json {machine} {options} --trace {trace_file}")
    report = json.loads(done.stdout)
    trace, threads = read(name, here.read(name + ".json"))
    processes = trace["otherData"]["processes"]
    if [p["rank"] for p in processes if not p["predicted"]] != list(range(ranks)):
        fail(f"{name}: processes {processes}")
        return
    if machine:
        check_predicted(name, trace, threads, report["predicted"])
    elif any(p["predicted"] for p in processes) or not "--machine" in done.stderr:
        fail(f"{name}: predicted without a machine, or no word of it: {done.stderr}")
    shapes = []
    for process in processes:
        if not process["predicted"]:
            check_measured(f"{name}, rank {process['rank']}", process, threads)
        shapes.append(sorted((e["cat"], e["name"], e["args"].get("microbatch")) for (pid, queue), s in threads.items()
                             for e in s if pid == process["pid"] and queue != "host"))
    if any(shape != shapes[0] for shape in shapes):
        fail(f"{name}: the processes do not have the same slices")
    first = next(p for p in processes if not p["predicted"])
    for key in ("step_time_s", "compute_s", "exposed_comm_s"):
        near(f"{name}: {key}", first[key], report["measured"][key], 0)
    if "instructions" in report:
        fail(f"{name}: a profile that nobody asked for")


def check_runs(here):
    run(here, "run", "--mesh x:2;y:2 --rules batch:x;d_ff:y", 4, "--machine h100_64")
    run(here, "run_microbatches", "--mesh x:2 --rules batch:x --microbatches 2 --remat all", 2)
    run(here, "run_bare", "--mesh x:2 --rules batch:x", 2, "")
    here.run(f"dtplan plan {GPT} --machine h100_64 --target cpu --mesh x:2 --rules batch:x "
             f"-o {here.path('a.plan')}")
    run(here, "run_plan", f"--plan {here.path('a.plan')}", 2, "--machine h100_64")


def check_refused(here):
    out = here.path("refused.json")
    for command, words in (
            (f"dtplan plan {MLP} --mesh x:2 --pin w1:hidden@x --trace {out}", "needs --machine"),
            (f"dtplan plan {MLP} --mesh x:2 --compat auto_mtf --trace {out}", "no trace"),
            (f"dtplan show {MLP} --mesh x:2 --stage schedule", "--stage schedule needs --machine")):
        err = here.run(command, 2).stderr
        if words not in err:
            fail(f"{command}: does not say '{words}': {err}")
    here.run(f"dtplan plan {MLP} --mesh x:2 --machine h100_64 --memory 1K --trace {out}", 3)
    if os.path.exists(out):
        fail("a command that was refused left a trace")


def main():
    with tempfile.TemporaryDirectory() as folder:
        here = Here(sys.argv[1], folder)
        check_plans(here)
        check_left_out(here)
        check_runs(here)
        check_refused(here)
    return 1 if failures else 0


sys.exit(main())
