#!/usr/bin/env python3
"""Traces of steps, predicted and measured: events that Perfetto takes as they are, and slices whose sums are the totals
of plan and report.

Usage: trace.py BIN_DIR
"""
import collections
import json
import math
import os
import re
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


def stage_threads(threads, pid):
    """Slices of a stage or of a rank of it: sections and waits, compute, communication, what is sent."""
    sends = [e for (p, queue), s in threads.items() if p == pid and queue.startswith("sends") for e in s]
    first = threads[(pid, "sections")]
    return ([e for e in first if e["cat"] == "section"], [e for e in first if e["cat"] == "wait"], threads[(pid, "compute")],
            threads.get((pid, "communication"), []), sends)


def action(event):
    args = event["args"]
    return args["section"], args.get("chunk", 0), args.get("microbatch"), args.get("slot")


def table(shown):
    """The actions of every stage as `show --stage pipeline` prints them, and how often and what it sends behind each section."""
    rows = [[] for _ in re.findall(r"^stage \d+$", shown, flags=re.M)]
    for stage, part in enumerate(re.split(r"^stage \d+$", shown, flags=re.M)[1:]):
        for line in re.findall(r"^  (?:forward|backward|update).*$", part, flags=re.M):
            number = {k: int(v) for k, v in re.findall(r"(chunk|microbatch|slot) (\d+)", line)}
            rows[stage].append((line.split()[0].rstrip(","), number.get("chunk", 0), number.get("microbatch"), number.get("slot")))
    return rows


def inside(name, sections, slices, slack):
    """Every instruction lies in one section, of its phase and microbatch."""
    for event in slices:
        around = [s for s in sections if s["ts"] - slack <= event["ts"] and event["ts"] + event["dur"] <= s["ts"] + s["dur"] + slack
                  and s["args"]["section"].split(".")[0] == event["args"]["phase"]
                  and s["args"].get("microbatch", event["args"]["microbatch"]) == event["args"]["microbatch"]]
        if not around:
            fail(f"{name}: {event} lies in no section of its phase and microbatch")
            return


def check_stage_sums(name, process, threads, step_s):
    sections, _, compute, comm, sends = stage_threads(threads, process["pid"])
    slack = 2e-12 * (len(sections) + len(compute) + len(comm)) + 1e-9 * step_s
    near(f"{name}: step", process["step_time_s"], step_s, 1e-9 * step_s)
    near(f"{name}: work", total(sections, ("section",)), process["work_s"], slack)
    end, idle = 0.0, 0.0
    for event in sections:
        idle += 1e-6 * event["ts"] - end
        end = 1e-6 * (event["ts"] + event["dur"])
    near(f"{name}: work and bubble", process["work_s"] + idle + step_s - end, step_s, slack)
    near(f"{name}: kernels and copies", total(compute, WORK, "predicted_us"), process["compute_s"], slack)
    near(f"{name}: collectives", total(comm, ("collective",), "predicted_us"), process["comm_s"], slack)
    near(f"{name}: exposed", total(comm, ("collective",), "exposed_us"), process["exposed_comm_s"], slack)
    near(f"{name}: parts of work", process["compute_s"] + process["exposed_comm_s"] + process["host_s"], process["work_s"], slack)
    inside(name, sections, compute + comm, 2e-6)
    return max(end, *[1e-6 * (e["ts"] + e["dur"]) for e in sends], 0.0)


def check_arrivals(name, processes, threads, microbatches):
    """A message leaves behind its section; what reads it begins when it has arrived."""
    by_action = {(p["stage"], action(e)[:3]): e for p in processes for e in stage_threads(threads, p["pid"])[0]}
    stages, read = len(processes), 0
    for process in processes:
        for e in stage_threads(threads, process["pid"])[4]:
            section, chunk, microbatch, _ = action(e)
            made = by_action[(process["stage"], (section, chunk, microbatch))]
            if e["ts"] < made["ts"] + made["dur"] - 2e-6:
                fail(f"{name}: {e} leaves before {made} ends")
            piece = process["stage"] + stages * chunk
            to = piece + (1 if section == "forward" else -1)
            reader = by_action.get((e["args"]["to"], (section, to // stages, microbatch))) if to % stages == e["args"]["to"] else None
            if reader is not None and section in ("forward", "backward"):
                read += 1
                if reader["ts"] < e["ts"] + e["dur"] - 2e-6:
                    fail(f"{name}: {reader} begins before {e} arrives")
    pieces = stages * len({key[1][1] for key in by_action})
    if read < 2 * (pieces - 1) * microbatches:
        fail(f"{name}: only {read} messages to the next stage")


def stages(here, name, options, batch=16, runs=True):
    """The trace of a plan with stages, predicted, and measured on virtual ranks: sections are those of the table, in its order."""
    plan_file, trace_file = here.path(name + ".plan"), here.path(name + ".json")
    dims = f"--dim batch={batch} --dim length=8"
    here.run(f"dtplan plan models/gpt_bytes.json {dims} --machine h100_64 --target cpu {options} -o {plan_file} --trace {trace_file}")
    planned = json.loads(here.read(name + ".plan"))
    step_s = planned["predicted"]["step_time_s"]
    trace, threads = read(name, here.read(name + ".json"))
    shown = here.run(f"dtplan show models/gpt_bytes.json --plan {plan_file} --machine h100_64 --stage schedule").stdout
    if shown != here.read(name + ".json"):
        fail(f"{name}: dtplan show has another trace")
    rows = table(here.run(f"dtplan show models/gpt_bytes.json --plan {plan_file} --machine h100_64 --stage pipeline").stdout)
    processes = trace["otherData"]["processes"]
    if [p["stage"] for p in processes] != list(range(len(rows))) or not all(p["predicted"] for p in processes):
        fail(f"{name}: processes {processes}")
        return trace, threads
    ends = []
    for process, row in zip(processes, rows):
        sections = stage_threads(threads, process["pid"])[0]
        if [action(e) for e in sections] != row or len(set(row)) != len(row):
            fail(f"{name}: stage {process['stage']} runs {[action(e) for e in sections]}, its table is {row}")
        if trace["otherData"]["microbatches_left_out"] == 0:
            ends.append(check_stage_sums(f"{name}, stage {process['stage']}", process, threads, step_s))
    if ends:
        near(f"{name}: end", max(ends), step_s, 1e-9 * step_s + 2e-12)
        check_arrivals(name, processes, threads, planned["microbatches"])
    if runs:
        check_stage_run(here, name, plan_file, rows, step_s)
    return trace, threads


def check_stage_run(here, name, plan_file, rows, predicted_s):
    trace_file = here.path(name + ".run")
    done = here.run(f"dtrun run models/gpt_bytes.json --plan {plan_file} --comm sim --threads 1 --steps 2 --quiet --json "
                    f"--machine h100_64 --trace {trace_file}")
    report = json.loads(done.stdout)
    trace, threads = read(name, here.read(name + ".run"))
    processes = trace["otherData"]["processes"]
    measured = [p for p in processes if not p["predicted"]]
    ranks = report["ranks"]
    if [p["rank"] for p in measured] != list(range(ranks)) or len(processes) != ranks + len(rows):
        fail(f"{name}: processes of a run {processes}")
        return
    for process in measured:
        where = f"{name}, rank {process['rank']}"
        sections, waits, compute, comm, sends = stage_threads(threads, process["pid"])
        if process["stage"] != process["rank"] * len(rows) // ranks or [action(e) for e in sections] != rows[process["stage"]]:
            fail(f"{where}: sections {[action(e) for e in sections]}, the table is {rows[process['stage']]}")
        inside(where, sections, compute + comm, 1e-3)
        slack = 2e-12 * (len(compute) + len(comm))
        near(f"{where}: exposed", total(comm, ("collective",)) + total(compute, ("wait",)), process["exposed_comm_s"], slack)
        near(f"{where}: parts", process["compute_s"] + process["exposed_comm_s"], process["work_s"], slack)
        spent = total(sections, ("section",)) + total(waits, ("wait",)) + total(sends, ("send",))
        if not process["work_s"] <= spent or not spent <= process["step_time_s"] + 1e-6 * len(sections):
            fail(f"{where}: sections, waits and sends take {spent} s of {process}")
        if (process["stage"] > 0 and not waits) or not sends:
            fail(f"{where}: {len(waits)} waits, {len(sends)} sends")
    check_stage_report(here, name, plan_file, report, processes, threads)
    for p, q in zip([p for p in processes if p["predicted"]], range(len(rows))):
        near(f"{name}: predicted beside measured", p["step_time_s"], predicted_s, 1e-9 * predicted_s)
        if p["stage"] != q:
            fail(f"{name}: {p}")


def sums(events, key):
    """By stage, section and receiver: how many are sent, bytes and seconds."""
    out = collections.defaultdict(lambda: [0, 0, 0.0])
    for event in events:
        for i, x in enumerate(key(event)[1]):
            out[key(event)[0]][i] += x
    return out


def check_stage_report(here, name, plan_file, report, processes, threads):
    """Stages and sends of the report are those of the trace and of the communication report."""
    predicted = [p for p in processes if p["predicted"]]
    per_stage = report["ranks"] // len(predicted)
    comm = json.loads(here.run(f"dtplan show models/gpt_bytes.json --plan {plan_file} --comm-report --json").stdout)
    if [{k: v for k, v in s.items() if k != "predicted_s"} for s in report["sends"]] != comm["sends"] or report["collectives"]:
        fail(f"{name}: the report sends {report['sends']}, the communication report says {comm['sends']}")
    for stage, process in zip(report["stages"], predicted):
        s, p, m = process["stage"], stage["predicted"], stage["measured"]
        near(f"{name}: compute", p["compute_s"], process["compute_s"], 1e-15)
        near(f"{name}: waiting", p["waiting_s"], process["step_time_s"] - process["work_s"], 1e-15)
        if not m["step_time_s"] > m["compute_s"] > 0 or stage["stage"] != s or stage["peak_bytes"] != stage["predicted_peak_bytes"]:
            fail(f"{name}: {stage}")
        if max(report["measured"]["peak_bytes_per_rank"][s * per_stage:(s + 1) * per_stage]) != stage["peak_bytes"]:
            fail(f"{name}: peak of {stage}")
        totals = collections.Counter()
        for part in comm["stages"]:
            for t in part["totals"] if part["stage"] == s else []:
                totals[t["kind"]] += t["count"] + t["bytes"]
        if {k: v["count"] + v["bytes"] for k, v in stage["collectives"].items() if v["count"]} != dict(totals):
            fail(f"{name}: collectives {stage['collectives']}, the communication report has {totals}")
        sent = sums(stage_threads(threads, process["pid"])[4],
                    lambda e: ((s, e["args"]["to"], e["args"]["section"]), (1, e["args"]["bytes"], 1e-6 * e["dur"])))
        said = sums([x for x in report["sends"] if x["from"] == s],
                    lambda x: ((x["from"], x["to"], x["section"]), (x["count"], x["bytes"], x["predicted_s"])))
        if set(sent) != set(said) or any(sent[k][:2] != said[k][:2] or abs(sent[k][2] - said[k][2]) > 1e-10 for k in sent):
            fail(f"{name}: the trace sends {dict(sent)}, the report {dict(said)}")
        for rank in [q for q in processes if not q["predicted"] and q["stage"] == s]:
            bytes_sent = sum(e["args"]["bytes"] for e in stage_threads(threads, rank["pid"])[4])
            if bytes_sent != sum(x["bytes"] for x in report["sends"] if x["from"] == s):
                fail(f"{name}: rank {rank['rank']} sends {bytes_sent} bytes")
    slowest = max(predicted, key=lambda q: q["work_s"])["stage"]
    near(f"{name}: measured beside predicted", report["measured"]["compute_s"], report["stages"][slowest]["measured"]["compute_s"], 0)


def check_stages(here):
    rules = "--rules batch:x"
    stages(here, "stages", f"--mesh x:2 --stages 2 --microbatches 4 {rules}")
    stages(here, "gpipe", "--mesh x:2 --stages layer:0,1,3 --slots gpipe --microbatches 4 --remat all --style **:fsdp")
    stages(here, "chunks", f"--mesh x:1 --stages 2x2 --microbatches 8 {rules}")
    host = here.machine("stage_host.machine", "h100_64", efficiency={"cuda": HOST})
    here.run(f"dtplan plan models/gpt_bytes.json --dim length=8 --dim batch=16 --machine {host} --mesh x:2 --stages 2 --microbatches 4 {rules} "
             f"--target cuda -o {here.path('host.plan')} --trace {here.path('stage_host.json')}")
    trace, threads = read("stage_host", here.read("stage_host.json"))
    for process in trace["otherData"]["processes"]:
        check_stage_sums("stage_host", process, threads, json.loads(here.read("host.plan"))["predicted"]["step_time_s"])
        if process["host_s"] <= 0 or not threads[(process["pid"], "host")]:
            fail("stage_host: the host issues nothing")
    trace, threads = stages(here, "many_stages", f"--mesh x:2 --stages 2 --microbatches 1024 {rules}", batch=2048, runs=False)
    left = trace["otherData"]["microbatches_left_out"]
    whole = {e["args"]["microbatch"] for (_, queue), s in threads.items() if queue == "compute" for e in s}
    if not 0 < left < 1024 or len(whole) != 1024 - left or 1023 not in whole or len(trace["traceEvents"]) > 400000:
        fail(f"many_stages: {left} left out, {len(whole)} written, {len(trace['traceEvents'])} events")


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
        check_stages(here)
        check_refused(here)
    return 1 if failures else 0


sys.exit(main())
