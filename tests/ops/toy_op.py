#!/usr/bin/env python3
"""An elementwise op is a row and its values: `cube` is added to a copy of the sources, a line in each of at most five files of the
product, and built into programs of the tests. Their tables then hold it, every sharding rule and the finite differences of its
gradient pass, the CPU and the emulated card agree with the reference, and it is a function on distributed tensors. It is fused: it
is a step of expressions on all three, and in a program for target cuda it runs in one kernel with what lies beside it.
Usage: toy_op.py BUILD_DIR"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

LINES = {
    "core/graph/ops/elementwise.h": 'OP(cube, "x x x", REAL, 2, PRODUCT("mul", "square", X, 3))',
    "executor/cpu/elementwise.c": "OP(cube, return x * x * x)",
    "executor/ref/elementwise.c": "OP(cube, return x * x * x)",
    "executor/cuda/kernels/elementwise/elementwise.h": "OP(cube, (x * x * x))",
}
GENERATED = "include/dtp/ops.h"  # by ./dev fmt
PROGRAMS = ["bin/verify_op", "bin/test_ops_gradients", "bin/test_ops_cpu_vs_ref", "emulated/dtp_cuda.so", "bin/test_cuda_ops", "bin/dtplan"]
MODEL = {
    "format": "dtp.model/1", "name": "toy", "dims": {"a": 8, "b": 16},
    "inputs": {"x": {"dims": ["a", "b"], "dtype": "f32"}}, "params": {"w": {"dims": ["b"], "init": "ones"}},
    "nodes": [{"id": "s", "op": "add", "in": ["x", "w"]}, {"id": "c", "op": "cube", "in": ["s"]},
              {"id": "y", "op": "mul", "in": ["c", "w"]}],
    "outputs": ["y"]}
MOST_FILES = 5

root = os.getcwd()
build = os.path.realpath(sys.argv[1])
ninja = shutil.which("ninja")


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"FAIL: {' '.join(command)[:200]}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def put(path, text):
    with open(path, "w") as f:
        f.write(text)


def read(path):
    with open(path) as f:
        return f.read()


def add_op(copy):
    """The lines, each in front of that of `square`."""
    for path, line in LINES.items():
        text = read(f"{copy}/{path}")
        changed, n = re.subn(r"^( +)(OP\(square,)", lambda m: f"{m[1]}{line} \\\n{m[1]}{m[2]}", text, count=1, flags=re.M)
        if n != 1:
            sys.exit(f"FAIL: {path}: no row of square")
        put(f"{copy}/{path}", changed)


def add_functions(copy, texts):
    """What ./dev fmt writes (tests/lint/op_texts.sh)."""
    path = f"{copy}/{GENERATED}"
    first, last = "---- from the op table", "---- end"
    lines = read(path).splitlines()
    begin = next(i for i, line in enumerate(lines) if first in line)
    end = next(i for i, line in enumerate(lines) if last in line)
    put(path, "\n".join(lines[:begin + 1] + texts.splitlines() + lines[end:]) + "\n")


def includes(copy, path, seen):
    """Headers of the project that a file of it includes, and those that they include."""
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', read(f"{copy}/{path}"), re.M):
        name = name if os.path.exists(f"{copy}/{name}") else f"include/{name}"
        if os.path.exists(f"{copy}/{name}") and name not in seen:
            seen.add(name)
            includes(copy, name, seen)
    return seen


def compile_for(copy, programs, new):
    """Compiles what sees a changed file, by the commands of the build. `new`: object of the build -> the new one."""
    wanted = {w for p in programs for w in run([ninja, "-C", build, "-t", "inputs", p]).split()} - set(new)
    for entry in json.loads(read(f"{build}/compile_commands.json")):
        words = shlex.split(entry["command"])
        path, out = os.path.relpath(entry["file"], root), words[words.index("-o") + 1]
        if out not in wanted or not os.path.exists(f"{copy}/{path}") or not (
                path in LINES or includes(copy, path, set()) & set(LINES)):
            continue
        to = f"{copy}/objects/{len(new)}-{os.path.basename(out)}"
        words = [to if w == out else w for w in words]
        words = [w if build in w else re.sub(rf"{re.escape(root)}(?=/|$)", copy, w) for w in words]
        run(words, cwd=entry["directory"])
        new[out] = to


def link(copy, program, new):
    """Links it by the command of the build: new objects in place of old ones, and in front of the libraries that hold old ones."""
    line = run([ninja, "-C", build, "-t", "commands", program]).splitlines()[-1]
    words = [w.replace("\\$", "$") for w in shlex.split(line) if w not in (":", "&&")]
    first = next(i for i, w in enumerate(words) if w.endswith(".a"))
    of_libraries = [to for out, to in new.items() if re.sub(r"/CMakeFiles/(\w+)[.]dir/.*", r"/lib\1.a", out) in words]
    words[first:first] = of_libraries
    words = [new.get(w, f"{copy}/{program}" if w == program else w) for w in words]
    run([w.replace(f"{build}/emulated", f"{copy}/emulated") for w in words], cwd=build)


def check_fused(copy):
    """Cases of an expression with cube are among those that run, and the lowering makes such expressions."""
    for program, *args in (("verify_op", "fused_elementwise"), ("test_cuda_ops", "20240517", "fused_elementwise")):
        with_cube, without = (int(re.search(r"\d+(?= programs| cases)", run([f"{where}/bin/{program}", *args]))[0])
                              for where in (copy, build))
        print(f"{program} fused_elementwise: {with_cube}, without cube {without}")
        if with_cube <= without:
            sys.exit(f"FAIL: {program} runs no expression with cube")
    put(f"{copy}/toy.json", json.dumps(MODEL))
    program = run([f"{copy}/bin/dtplan", "show", f"{copy}/toy.json", "--stage", "program", "--target", "cuda"])
    if not re.search(r"fused_elementwise\(add cube mul\)", program) or re.search(r"kernel +cube", program):
        sys.exit(f"FAIL: cube is not fused:\n{program}")


def main():
    with tempfile.TemporaryDirectory(prefix="toy_op.") as copy:
        for folder in ("core", "spmd", "executor", "cost_models", "interop", "planner", "dtensor", "include", "tools", "tests"):
            shutil.copytree(f"{root}/{folder}", f"{copy}/{folder}",
                            ignore=lambda d, names: [n for n in names if os.path.isfile(f"{d}/{n}")
                                                     and not n.endswith((".c", ".h", ".cu", ".cuh", ".hpp", ".cpp"))])
        for folder in ("objects", "bin", "emulated"):
            os.makedirs(f"{copy}/{folder}")
        os.symlink(f"{build}/emulated/libcuda_emu.so", f"{copy}/emulated/libcuda_emu.so")
        add_op(copy)
        new = {}
        for programs in (["bin/op_texts"], PROGRAMS):
            compile_for(copy, programs, new)
            for program in programs:
                link(copy, program, new)
            add_functions(copy, run([f"{copy}/bin/op_texts", "functions"]))
        changed = [p for p in [*LINES, GENERATED] if read(p) != read(f"{copy}/{p}")]
        if len(changed) > MOST_FILES or GENERATED not in changed or "dtp_tensor_cube" not in read(f"{copy}/{GENERATED}"):
            sys.exit(f"FAIL: files that are touched: {changed}")
        for command in (["verify_op", "cube"], ["test_ops_gradients"], ["test_ops_cpu_vs_ref"], ["test_cuda_ops", "20240517", "cube"]):
            out = run([f"{copy}/bin/{command[0]}", *command[1:]])
            print("\n".join(line for line in out.splitlines() if re.search(r"programs|cases", line)))
            if command[0] == "test_cuda_ops" and re.search(r"^0 cases", out, re.M):
                sys.exit("FAIL: no case of cube ran on the card")
        check_fused(copy)
        print(f"{len(changed)} files of the product touched, {len(new)} compiled")


main()
