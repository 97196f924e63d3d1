#!/usr/bin/env python3
"""Kills jobs (SIGKILL) at random moments of their saves: there is always a complete checkpoint.

kill_saves.py DTRUN [--kills N] [--seed S] [--case folder-sim,single-mpi,...]

A case is a target (folder, single) and a communicator (sim, mpi), two ranks each; the kills are shared among the cases. Every
round starts a job that loads the checkpoint, trains one step and saves it to the same place, and kills it: at a random moment of
the save (measured in whole runs: from the first new name in the directory to the last change), in one of ten rounds at any
moment. Under MPI the launcher, one rank or all processes are killed. Then
  - the step on disk is the one before or the one after that job,
  - a whole job loads it, and its loss is that of an uninterrupted run at that step,
  - after that job the directory holds the checkpoint and nothing else.
Exit status: 0, 1 when a check failed, 77 when there is no mpirun and only MPI cases were asked for.
"""
import argparse
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

MODEL = ["models/mlp_digits.json", "--dim", "hidden=8192", "--mesh", "x:2", "--rules", "hidden:x", "--threads", "1",
         "--quiet", "--json"]
INDEX = "dtp.checkpoint.json"
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0")


class Failure(Exception):
    pass


def children(pid):
    """All descendants of a process."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/%s/stat" % entry) as f:
                    fields = f.read().rsplit(")", 1)[1].split()
                if fields[0] != "Z":
                    parents[int(entry)] = int(fields[1])
            except OSError:
                pass
    found, grown = {pid}, True
    while grown:
        more = {p for p, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found - {pid}


def name_of(pid):
    try:
        with open("/proc/%d/comm" % pid) as f:
            return f.read().strip()
    except OSError:
        return ""


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def kill(job):
    """Kills a job with all its processes, and waits for their end."""
    victims = children(job.pid) | {job.pid}
    while any(alive(p) for p in victims):
        for pid in victims | children(job.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        job.poll()
        time.sleep(0.005)
    job.communicate()


class Case:
    def __init__(self, dtrun, target, comm, place):
        self.dtrun, self.target, self.comm = dtrun, target, comm
        self.dir = os.path.join(place, "%s-%s" % (target, comm))
        self.path = self.dir if target == "folder" else os.path.join(self.dir, "one.safetensors")
        self.windows, self.window = [], 0.05  # seconds of the last saves, and their median
        self.whole = 1.0  # seconds of a run
        self.losses = []
        os.mkdir(self.dir)

    def command(self, load, steps=1, save=True):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 and self.comm == "mpi" else []
        return ([self.dtrun, "run"] + MODEL + ["--comm", self.comm, "--steps", str(steps)] + root +
                (["--load", self.path] if load else []) + (["--save", self.path] if save else []))

    def names(self):
        """Name and inode of what is in the directory; the lock is there during the whole job."""
        return {(e.name, e.inode()) for e in os.scandir(self.dir) if "lock" not in e.name}

    def locked(self):
        """Whether the job has begun."""
        return any("lock" in e.name for e in os.scandir(self.dir))

    def step(self):
        """The step on disk, None when there is no checkpoint."""
        try:
            if self.target == "folder":
                with open(os.path.join(self.dir, INDEX)) as f:
                    return json.load(f)["metadata"]["step"]
            with open(self.path, "rb") as f:
                size = struct.unpack("<Q", f.read(8))[0]
                return int(json.loads(f.read(size))["__metadata__"]["step"])
        except FileNotFoundError:
            return None

    def expected(self):
        """The names that a checkpoint consists of."""
        if self.target == "single":
            return {"one.safetensors"}
        with open(os.path.join(self.dir, INDEX)) as f:
            return {INDEX} | {row["name"] for row in json.load(f)["files"]}

    def start(self, load):
        return subprocess.Popen(self.command(load), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT,
                                start_new_session=True)

    def uninterrupted(self, steps):
        run = subprocess.run(self.command(False, steps, False), capture_output=True, env=ENVIRONMENT)
        if run.returncode != 0:
            raise Failure("the uninterrupted run: exit %d: %s" % (run.returncode, run.stderr.decode()))
        self.losses = json.loads(run.stdout)["loss"]

    def whole_job(self):
        """A job that is left alone: loads what is there, and leaves a checkpoint and nothing else."""
        before = self.step()
        job, start, first, last = self.start(before is not None), time.monotonic(), None, None
        names = self.names()
        while job.poll() is None:
            now = self.names()
            if now != names:
                last = time.monotonic()
                first = first or last
                names = now
            time.sleep(0.0003)
        out, errors = job.communicate()
        if job.returncode != 0:
            raise Failure("a job from step %s: exit %d: %s" % (before, job.returncode, errors.decode()[-1000:]))
        loss, want = json.loads(out)["loss"][0], self.losses[before or 0]
        if abs(loss - want) > 1e-5 * abs(want):
            raise Failure("loss %.9g at step %s, %.9g without kills" % (loss, before, want))
        if self.step() != (before or 0) + 1:
            raise Failure("step %s on disk after a job from step %s" % (self.step(), before))
        left = set(os.listdir(self.dir)) ^ self.expected()
        if left:
            raise Failure("left over or absent after a job: %s" % sorted(left))
        self.windows = (self.windows + [last - first])[-5:]
        self.window, self.whole = sorted(self.windows)[len(self.windows) // 2], time.monotonic() - start

    def killed_job(self, rng):
        """True when the kill came before the end of the job and after its save had changed the directory."""
        before = self.step()
        job, start, names = self.start(before is not None), time.monotonic(), self.names()
        anywhere = rng.random() < 0.1
        delay = rng.uniform(0, self.whole) if anywhere else rng.uniform(0, self.window)
        while job.poll() is None and not anywhere and self.names() == names and not self.locked():
            time.sleep(0.0003)
        all_of_it = children(job.pid) | {job.pid}  # takes a while: before the save
        while job.poll() is None and not anywhere and self.names() == names:
            time.sleep(0.0003)
        time.sleep(delay)
        if anywhere:
            all_of_it = children(job.pid) | {job.pid}
        ranks = [p for p in all_of_it if name_of(p) == "dtrun"]
        what = rng.choice(["all", "launcher", "rank"]) if self.comm == "mpi" else "all"
        victims = {"all": list(all_of_it), "launcher": [job.pid], "rank": ranks[:1] or [job.pid]}[what]
        if what == "rank" and len(ranks) > 1:
            victims = [rng.choice(ranks)]
        rng.shuffle(victims)
        finished = job.poll() is not None
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        job.communicate()
        deadline = time.monotonic() + 20
        while any(alive(p) for p in all_of_it):
            if time.monotonic() > deadline:
                for pid in all_of_it:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            time.sleep(0.005)
        after = self.step()
        if after != before and after != (before or 0) + 1:
            raise Failure("step %s on disk after a killed job (%s, %.0f ms) from step %s; the directory holds %s" %
                          (after, what, 1e3 * delay, before, sorted(os.listdir(self.dir))))
        return not finished and names != self.names()


def run_case(case, kills, rng):
    hits = failed = after = 0
    case.uninterrupted(2 * kills + 3)
    for k in range(kills):
        try:
            before = case.step()  # None for the first: its directory is empty
            hits += case.killed_job(rng)
            after += case.step() != before
            case.whole_job()
        except Failure as e:
            failed += 1
            print("FAIL: %s %s, kill %d: %s" % (case.target, case.comm, k, e), flush=True)
            shutil.rmtree(case.dir)
            os.mkdir(case.dir)
            case.whole_job()
    print("%s %s: %d kills, %d of them changed the directory, %d after the new checkpoint was complete, "
          "%d failed; a save takes %.0f ms" % (case.target, case.comm, kills, hits, after, failed, 1e3 * case.window),
          flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dtrun")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--case", default="folder-sim,single-sim,folder-mpi,single-mpi")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
    cases = [c.split("-") for c in args.case.split(",")]
    if shutil.which("mpirun") is None:
        cases = [c for c in cases if c[1] != "mpi"]
        if not cases:
            return 77
    print("seed %d" % seed, flush=True)
    place, failed = tempfile.mkdtemp(prefix="dtp-kill-"), 0
    try:
        for i, (target, comm) in enumerate(cases):
            kills = args.kills // len(cases) + (i < args.kills % len(cases))
            failed += run_case(Case(os.path.abspath(args.dtrun), target, comm, place), kills, random.Random(seed + i))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print("%d kills, %d failed" % (args.kills, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
