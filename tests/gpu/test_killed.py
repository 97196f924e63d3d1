#!/usr/bin/env python3
"""A call of gpu.py that is killed in the middle of a step, for every step: the report has the steps before and the rows of that step
until then, few files are there, and no program goes on. Programs, tools and PyTorch are stand-ins that say what gpu.py reads and that
wait for ever at a given command of the step."""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import gpu  # noqa: E402

STAND_IN = r'''#!/bin/sh
set -C
n=1
until (: >"$COUNT.$n") 2>/dev/null; do n=$((n + 1)); done
if [ "$n" -ge "$WAITS_AT" ]; then
    : >"$COUNT.waits.$$"
    exec sleep 100
fi
set +C
while [ $# -gt 0 ]; do
    case $1 in
    -o | --output) cat >"$2" <<'JSON' ;;
{"step_time_s": {"median": 1.0}, "loss": [1.0], "measured": {"peak_bytes": 1}, "predicted": {"step_time_s": 1.0, "peak_bytes": 1},
 "instructions": [{"op": "einsum", "kind": "kernel", "node": "a.1.b", "measured_s": 1.0}],
 "device": {"flops": 1, "mem_bw_Bps": 1, "launch_s": 1, "launch_graph_s": 1}}
JSON
    esac
    shift
done
printf '%s\n' '7 of 9 cases' '[  PASSED  ] 1 test(s).' Duration '{"max_rel_err": 0.0}'
'''
TORCH = 'import os\nos.execv(os.environ["STAND_IN"], ["torch"])\n'
# Rows that a step has when its second command waits: all of them come from the first. Steps of one command have none.
ROWS = {"device": lambda r: r["card"], "train": lambda r: list(r) == ["as it is"], "verify": lambda r: len(r) == 1,
        "ops": lambda r: r["cases"] + r["tests"] > 0, "products": lambda r: list(r) == ["algorithm 0"], "torch": lambda r: list(r) == ["step"],
        "predict": lambda r: len(r["rows"]) == 1, "training": lambda r: list(r) == ["f32"], "sanitizers": lambda r: list(r) == ["memcheck"]}
ONE = {"first", "bench", "counters"}
WAITS_AT = {"predict": 3, **dict.fromkeys(ONE, 1)}  # else the second command


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, 0o755)


class Place:
    def __init__(self, folder):
        self.folder, self.out, self.count = folder, os.path.join(folder, "out"), os.path.join(folder, "count")
        for name in ("dtrun", "test_cuda_ops_device", *(f"test_cuda_{p}_device" for p in gpu.CARD["programs"]), "nvidia-smi", "ncu",
                     "compute-sanitizer"):
            write(os.path.join(folder, name), STAND_IN)
        os.makedirs(os.path.join(folder, "python", "torch"))
        write(os.path.join(folder, "python", "torch", "__init__.py"), TORCH)
        self.env = {**os.environ, "PATH": folder + ":" + os.environ["PATH"], "COUNT": self.count, "STAND_IN": os.path.join(folder, "dtrun"),
                    "PYTHONPATH": os.path.join(folder, "python"), "TMPDIR": folder}

    def start(self, steps, waits_at):
        for mark in glob.glob(self.count + ".*"):
            os.remove(mark)
        return subprocess.Popen([sys.executable, os.path.join(HERE, "gpu.py"), "--bin", self.folder, "--out", self.out, *steps],
                                env={**self.env, "WAITS_AT": str(waits_at)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def waiting(self):
        """Processes that wait, as soon as there is one."""
        for _ in range(400):
            if glob.glob(self.count + ".waits.*"):
                return [int(path.rsplit(".", 1)[1]) for path in glob.glob(self.count + ".waits.*")]
            time.sleep(0.02)
        return []

    def report(self):
        with open(os.path.join(self.out, "report.json"), encoding="utf-8") as f:
            return json.load(f)["steps"]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def kill_in(place, before, step, number):
    with place.start([step], WAITS_AT.get(step, 2)) as p:
        pids = place.waiting()
        assert pids, f"{step}: nothing waits"
        for _ in range(200 if step == "ops" else 0):  # its commands run side by side: one does not wait
            if place.report()[step]["result"]:
                break
            time.sleep(0.02)
        p.send_signal(number)
        p.wait(30)
    for _ in range(200):
        left = [pid for pid in pids if alive(pid)]
        if not left:
            break
        time.sleep(0.02)
    assert not left, f"{step}: {left} go on"
    steps, files = place.report(), os.listdir(place.out)
    assert list(steps) == before + [step], f"{step}: {list(steps)}"
    assert all(steps[name]["became"] == "done" and steps[name]["result"] for name in before), f"{step}: {steps}"
    assert steps[step]["became"] == "begun", f"{step}: {steps[step]}"
    assert step in ONE or ROWS[step](steps[step]["result"]), f"{step}: {steps[step]}"
    assert len(files) <= 8 and all(os.path.isfile(os.path.join(place.out, name)) for name in files), files
    assert step != "predict" or {"machine_1.json", "machine_2.json"} <= set(files), files


def goes_on(place, folder):
    """The second call, killed in its step predict, from what came back: with its machine file, and without it."""
    for kept in (True, False):
        done = os.path.join(folder, f"back {kept}")
        shutil.copytree(place.out, done)
        if not kept:
            os.remove(os.path.join(done, "machine_1.json"))
        shutil.rmtree(place.out)
        with place.start(["--done", os.path.join(done, "report.json"), "bench", "predict"], 1 << 30) as p:
            text, _ = p.communicate(timeout=60)
            assert p.returncode == 0 and place.report()["predict"]["became"] == "done", text
            assert ("bench: " in text) != kept, text
        shutil.rmtree(place.out)
        shutil.copytree(done, place.out)


def main():
    for steps in gpu.CALLS.values():
        with tempfile.TemporaryDirectory() as folder:
            place, before = Place(folder), []
            for step, _ in steps:
                assert (step in ROWS) != (step in ONE), step
                if step == "predict":
                    kill_in(place, before, step, signal.SIGTERM)
                    goes_on(place, folder)
                    place.start(["--fresh", *before], 1 << 30).communicate(timeout=60)
                kill_in(place, before, step, (signal.SIGKILL, signal.SIGTERM)[len(before) % 2])
                with place.start([step], 1 << 30) as p:
                    text, _ = p.communicate(timeout=60)
                    assert p.returncode == 0, text
                before.append(step)


if __name__ == "__main__":
    main()
