#!/usr/bin/env python3
"""Packed selection problems that unpack to a gigabyte are refused before they take the memory: exit 2, one line with
file, place and both figures, and a peak of the process close to the limit. Usage: memory_bound.py BIN_DIR [--small]

--small leaves out the run at the default limit of 2 GiB (sanitizers multiply time and memory).
"""
import gzip
import os
import re
import sys
import tempfile

MIB = 1 << 20
HEAD = '{"problem": {"name": "bomb", "nodes": {"%s": ['
# name, key, what comes first, what is repeated: 100 members of 10 MB each
BOMBS = (("numbers", "costs", "[0", ",0"), ("lists", "usages", "[]", ",[]"), ("pairs", "intervals", "[1,2]", ",[1,2]"))


def make(path, key, first, again):
    member = gzip.compress((again * (10 * 1000 * 1000 // len(again))).encode())
    with open(path, "wb") as f:
        f.write(gzip.compress((HEAD % key + first).encode()) + 100 * member)


def run(words, path):
    """Exit code, standard error, and the largest resident set of the process in bytes."""
    pid = os.fork()
    if pid == 0:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        os.dup2(os.open(path + ".err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.execv(words[0], words)
    _, status, usage = os.wait4(pid, 0)
    with open(path + ".err", encoding="utf-8") as f:
        return os.waitstatus_to_exitcode(status), f.read(), usage.ru_maxrss * 1024


def main():
    dtplan, small = os.path.join(sys.argv[1], "dtplan"), "--small" in sys.argv
    failed = 0
    with tempfile.TemporaryDirectory() as here:
        code, _, least = run([dtplan, "solve", "models/selection/example.json"], os.path.join(here, "none"))
        assert code == 0
        for name, key, first, again in BOMBS:
            path = os.path.join(here, name + ".json.gz")
            make(path, key, first, again)
            cases = [("solve", ["--max-problem", "64M"], 64 * MIB), ("solve", ["--write", "lp", "--max-problem", "64M"], 64 * MIB)]
            if name == "numbers" and not small:
                cases.append(("solve", [], 2048 * MIB))
            for command, options, limit in cases:
                code, err, peak = run([dtplan, command, path] + options, path)
                # beside the problem: what the process has anyway, and a tenth for the buffers of its allocator
                most = least + limit + limit // 10 + 8 * MIB
                said = re.fullmatch(r"(?:solving, \d+ s\n)*dtplan: (\S+):1:\d+: problem\.nodes\.\w+\S*: up to here the problem takes (\d+) "
                                    r"bytes of memory, the limit \(--max-problem\) is (\d+)\n", err)
                ok = code == 2 and said and said[1] == path and int(said[2]) > int(said[3]) == limit
                ok = ok and (small or peak <= most)
                print(f"{'ok' if ok else 'FAIL'}: {command} {' '.join(options)} {name}: {os.path.getsize(path)} bytes packed, "
                      f"exit {code}, peak {peak // MIB} MiB of {most // MIB}")
                if not ok:
                    print(err[:400])
                    failed += 1
    return 1 if failed else 0


sys.exit(main())
