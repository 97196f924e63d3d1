#!/usr/bin/env python3
"""Registers, shared memory and spills of every CUDA kernel on every architecture, as ptxas reports them; a kernel that
spills fails. Exit status 77 without nvcc.
Usage: resources.py [ARCHITECTURE...], default 80 90 and, where nvcc knows it, 100"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def demangle(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True).stdout
    plain = [re.sub(r"\(anonymous namespace\)::|^void ", "", line) for line in text.splitlines()]
    return [re.sub(r"\((?!\w+\)\d).*", "", line) for line in plain]


def kernels(source, arch, folder):
    """(name, registers, shared bytes, spilled bytes) of the kernels of a file."""
    out = os.path.join(folder, os.path.basename(source) + arch)
    run = subprocess.run([NVCC, "-std=c++17", f"-arch=sm_{arch}", "-cubin", "-Xptxas", "-v", "-I.", "-Iinclude",
                          "-o", out, source], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{source}: {run.stderr}")
    found, name, spilled = [], None, 0
    for line in run.stderr.splitlines():
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            name, spilled = m.group(1), 0
        elif m := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(m.group(1)) + int(m.group(2))
        elif (m := re.search(r"Used (\d+) registers", line)) and name:
            shared = re.search(r"(\d+) bytes smem", line)
            found.append((name, int(m.group(1)), int(shared.group(1)) if shared else 0, spilled))
            name = None
    return found


def main():
    if not os.path.exists(NVCC):
        print("no nvcc")
        sys.exit(77)
    known = subprocess.run([NVCC, "--list-gpu-arch"], capture_output=True, text=True).stdout.split()
    arches = sys.argv[1:] or [a for a in ("80", "90", "100") if f"compute_{a}" in known]
    sources = sorted(subprocess.check_output(["git", "ls-files", "executor/cuda/*.cu"], text=True).split())
    spilling = total = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {(s, a): pool.submit(kernels, s, a, folder) for s in sources for a in arches}
        for source in sources:
            of_arch = [{k[0]: k[1:] for k in jobs[source, a].result()} for a in arches]
            names = list(of_arch[0])
            print(f"{source}: registers/shared bytes on " + ", ".join(f"sm_{a}" for a in arches))
            for name, plain in zip(names, demangle(names)):
                cells = [f"{k[name][0]:4d}/{k[name][1]:<6d}" for k in of_arch]
                spills = [f"sm_{a} spills {k[name][2]} bytes" for a, k in zip(arches, of_arch) if k[name][2]]
                print("  " + " ".join(cells), plain, *spills)
                spilling += bool(spills)
                total += 1
    print(f"{total} kernels, {spilling} spill")
    sys.exit(1 if spilling or not total else 0)


main()
