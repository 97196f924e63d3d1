#!/usr/bin/env python3
"""The Python package, with Debian's python3 alone: options beside tools/options.def, the examples of the docstrings, docs/python.md
beside the docstrings, errors, warnings, Ctrl-C.

BIN_DIR is - where the package is installed with its programs.
--all: that some examples cannot run is a failure.
Usage: package.py BIN_DIR options|examples [--all]|docs [--write]|errors|interrupt
"""
import contextlib
import copy
import doctest
import inspect
import io
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import typing
import unittest.mock
import warnings
import zipfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
if sys.argv[1] != "-":
    os.environ["DTPLAN_BIN"] = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(ROOT, "interop", "python"))
import dtplan  # noqa: E402

failures = []


def expect(ok, what):
    if not ok:
        failures.append(what)
        print(what)


# ---- options ----

KINDS = {"FLAG": bool, "NO_WRITES": bool, "COUNT": int, "INT": int, "REAL": float}
SPECIAL = {"mesh": "Mapping[str, int] | str | None", "dim": "Union[Mapping[str, int], Sequence[str]]",
           "machine": "Machine | str | None", "memory": "str | int | None", "microbatches": "int | str | None"}  # more than the texts
NOT_OPTIONS = {"module_or_path", "example_inputs", "loss", "dynamic", "progress", "options"}


def rows():
    """Option -> kind of the rows of `dtplan plan`."""
    with open(os.path.join(ROOT, "tools", "options.def"), encoding="utf-8") as file:
        text = file.read()
    groups = dict(re.findall(r"^#define ([A-Z_]+) \(([A-Z_ |]+)\)$", text, re.M))
    found = {}
    for row in re.findall(r'^(?:OPTION|OWN)\((.*?)\)$', text, re.M | re.S):
        match = re.match(r'[\w ,]*?\b([A-Z_]+),\s*"--([a-z-]+)",\s*(?:"[^"]*"|NULL),[^"]*?(?:"[^"]*",)?\s*([A-Z_ |\n]+),\s*"', row)
        if match is None:
            sys.exit(f"tools/options.def: a row that is not understood: {row[:80]}")
        kind, name, commands = match.groups()
        words = set(re.findall(r"[A-Z_]+", commands))
        while words & set(groups):
            words = {w for word in words for w in re.findall(r"[A-Z_]+", groups.get(word, word))}
        if "PLAN" in words:
            found[name.replace("-", "_")] = kind
    return found


def check_options():
    table = rows()
    own = {name: p.annotation for name, p in inspect.signature(dtplan.plan).parameters.items() if name not in NOT_OPTIONS}
    more = {name: t for name, t in typing.get_type_hints(dtplan.Options).items()}
    expect(set(own) | set(more) == set(table), f"options that differ: {sorted((set(own) | set(more)) ^ set(table))}")
    expect(not set(own) & set(more), "an option stands twice")
    for name, kind in table.items():
        given = str(own[name]) if name in own else more.get(name)
        wanted = SPECIAL.get(name) or KINDS.get(kind) or (typing.get_type_hints(dtplan.Options)["pin"] if kind == "LIST" else str)
        if name in own:
            wanted = wanted if isinstance(wanted, str) else f"{wanted.__name__} | None"
            expect(given == wanted, f"plan({name}: {given}), wanted {wanted}")
        elif name not in SPECIAL:
            expect(given == wanted, f"Options.{name}: {given}, wanted {wanted}")
    text = subprocess.run([os.path.join(sys.argv[1], "dtplan"), "plan", "--help"], capture_output=True, text=True, check=True).stdout
    helped = {name.replace("-", "_") for name in re.findall(r"^  --([a-z-]+)", text, re.M)}
    expect(helped == set(table), f"help differs: {sorted(helped ^ set(table))}")
    print(f"{len(table)} options")


# ---- docstrings ----

def public():
    """(name, object) of what the package has, and of the public members of its classes."""
    for name in dtplan.__all__:
        thing = getattr(dtplan, name)
        if name == "Options":
            continue
        yield name, thing
        if inspect.isclass(thing) and not issubclass(thing, (Exception, Warning)):
            for member, value in vars(thing).items():
                if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                    yield f"{name}.{member}", value


NEEDS = {"Plan.parallelize": "torch", "Plan.data_parallel": "torch", "Plan.loss_parallel": "torch", "Plan.check": "torch",
         "Plan.shardings": "jax"}


def of_torch():
    """What the examples of PyTorch and JAX name; nothing where they are not installed."""
    known = {}
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    with contextlib.suppress(ImportError):
        import jax
        known["jax"] = jax
    with contextlib.suppress(ImportError):
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.testing._internal.distributed.fake_pg import FakeStore
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        module = torch.nn.Sequential()
        for name, part in (("fc1", torch.nn.Linear(64, 192)), ("act", torch.nn.ReLU()), ("fc2", torch.nn.Linear(192, 10))):
            module.add_module(name, part)
        known |= {"torch": torch, "module": module, "device_mesh": init_device_mesh("cpu", (2,), mesh_dim_names=("x",))}
    return known


def check_examples():
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder) if hasattr(contextlib, "chdir") else _chdir(folder):
        plan = dtplan.plan("mlp_digits", mesh={"x": 2}, machine="cpu_2")
        known = {"dtplan": dtplan, "plan": plan, "InputError": dtplan.InputError, "DtplanError": dtplan.DtplanError,
                 "InfeasibleError": dtplan.InfeasibleError, "DtplanWarning": dtplan.DtplanWarning}
        known.update(of_torch())
        runner, count, ran = doctest.DocTestRunner(), 0, 0
        for name, thing in public():
            text = inspect.getdoc(thing) or ""
            test = doctest.DocTestParser().get_doctest(text, dict(known), name, name, 0)
            expect(test.examples, f"{name}: the docstring has no example")
            count, out = count + len(test.examples), io.StringIO()
            lacks = NEEDS.get(name)
            if lacks in sys.modules or lacks is None:
                ran += len(test.examples)
                test.globs.update(of_torch() if lacks == "torch" else {})
                runner.run(test, out=out.write)
            expect(not out.getvalue(), out.getvalue())
    expect(ran == count or "--all" not in sys.argv, "PyTorch or JAX is not installed")
    print(f"{ran} of {count} examples run" + ("" if ran == count else "; the others need torch or jax"))


@contextlib.contextmanager
def _chdir(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


# ---- docs/python.md ----

BEGIN, END = "<!-- from the docstrings -->\n", "<!-- end -->\n"


def api():
    out = []
    for name, thing in public():
        text = inspect.getdoc(thing) or ""
        prose, _, example = text.partition(">>> ")
        head = name
        if inspect.isfunction(thing):
            parameters = [p for p in inspect.signature(thing).parameters if p != "self"]
            head += f"({', '.join(parameters)})"
        out.append(f"### `{head}`\n\n{prose.strip()}\n" + (f"\n```python\n>>> {example.strip()}\n```\n" if example else ""))
    return "\n".join(out)


def check_docs():
    path = os.path.join(ROOT, "docs", "python.md")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    head, _, rest = text.partition(BEGIN)
    wanted = head + BEGIN + api() + END + rest.partition(END)[2]
    if "--write" in sys.argv:
        with open(path, "w", encoding="utf-8") as file:
            file.write(wanted)
    expect(text == wanted or "--write" in sys.argv, "docs/python.md is not as the docstrings: package.py BIN_DIR docs --write")


# ---- errors, warnings, Ctrl-C ----

def refused(kind, words, call):
    try:
        call()
    except kind as error:
        expect(words in str(error), f"'{words}' is not in: {error}")
    else:
        expect(False, f"no error with '{words}'")


def check_errors():
    few = {"mesh": {"x": 2}, "machine": "cpu_2"}
    refused(dtplan.InputError, "did you mean 'mlp_digits'", lambda: dtplan.plan("mlp_digit", **few))
    refused(dtplan.InputError, "did you mean 'cpu_2'", lambda: dtplan.plan("mlp_digits", mesh={"x": 2}, machine="cpu_9"))
    refused(dtplan.InfeasibleError, "infeasible", lambda: dtplan.plan("mlp_digits", memory="1K", **few))
    refused(dtplan.InputError, "--mode", lambda: dtplan.plan("mlp_digits", mode="rows", **few))
    refused(TypeError, "did you mean 'mode'", lambda: dtplan.plan("mlp_digits", moed="rules", **few))
    refused(dtplan.InputError, "there is no GPU", dtplan.machine)
    refused(dtplan.InputError, "several kinds", lambda: dtplan.fit([("NVIDIA H200", 1 << 30), ("NVIDIA L4", 1 << 30)]))
    refused(dtplan.InputError, "GeForce", lambda: dtplan.fit([("NVIDIA GeForce RTX 4090", 24 << 30)]))
    refused(dtplan.InputError, "ibx", lambda: dtplan.machine("h100_64").set(ibx="0.5x"))
    refused(dtplan.InputError, "GH200", lambda: dtplan.fit([("NVIDIA GH200 480GB", 96 << 30)]))
    for gpu, count, name, devices in (("NVIDIA H100 80GB HBM3", 8, "h100_64", 8), ("NVIDIA H200", 4, "h200_64", 4),
                                      ("NVIDIA A100-SXM4-80GB", 8, "a100_8", 8), ("NVIDIA L4", 2, "l4_16", 2),
                                      ("NVIDIA L40S", 8, "l40s_8", 8), ("NVIDIA GB200", 4, "gb200_72", 4),
                                      ("Tesla V100-SXM2-32GB", 16, "v100_16", 16)):
        found = dtplan.fit([(gpu, 1 << 30)] * count)
        expect((found.name, found.devices) == (name, devices), f"{count} x {gpu}: {found}")
        expect(found.settings == ("memory=1024MiB",), f"{gpu}: {found.settings}")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "broken.dtplan")
        for data in (b"", b"PK\3\4 no archive"):
            with open(path, "wb") as file:
                file.write(data)
            refused(dtplan.InputError, path, lambda: dtplan.load(path))
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("../outside.json", "{}")
        refused(dtplan.InputError, "'../outside.json'", lambda: dtplan.load(path))
        expect(os.listdir(folder) == ["broken.dtplan"], "a file outside of the plan's folder was written")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        plan = dtplan.plan("mlp_digits", target="torch", **few)
    expect(any("no rates of runtime 'torch'" in str(w.message) and w.category is dtplan.DtplanWarning and
               os.path.samefile(w.filename, __file__) for w in told), f"the warning of rates: {[str(w) for w in told]}")
    with unittest.mock.patch("pty.openpty", side_effect=OSError("out of pty devices")):  # a container without terminals
        expect(dtplan.plan("mlp_digits", progress=True, **few).mesh == {"x": 2}, "without a terminal")
    warned = []
    with unittest.mock.patch("warnings.warn", lambda text, *_, **__: warned.append(text)):
        refused(dtplan.InputError, "mesh: dim 'x': size '0'",
                lambda: dtplan.plan("mlp_digits", target="torch", mesh={"x": 0}, machine="cpu_2"))
    expect(len(warned) == 1 and "no rates" in warned[0], f"warnings before an error: {warned}")
    for copied in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        expect(copied._folder != plan._folder and str(copied) == str(plan), "a copy shares the folder of its plan")
    refused(dtplan.InputError, "another model", lambda: plan.diff(dtplan.plan("gpt_bytes", mode="rules", **few)))
    refused(dtplan.DtplanError, "PyTorch 2.6 or later, pip install 'dtplan[torch]'", lambda: without("torch", plan.loss_parallel))
    refused(dtplan.DtplanError, "a module needs PyTorch 2.6", lambda: without("torch", lambda: dtplan.plan(object(), **few)))
    refused(dtplan.DtplanError, "pip install jax", lambda: without("jax", lambda: plan.shardings(None)))


def without(package, call):
    """The call where a package is not installed."""
    had, sys.modules[package] = sys.modules.get(package), None
    try:
        return call()
    finally:
        del sys.modules[package]
        if had:
            sys.modules[package] = had


INTERRUPTED = """
import sys, warnings, dtplan
warnings.simplefilter("always")
print("begins", flush=True)
plan = dtplan.plan("llama3_8b", machine="h100_64", mesh={"x": 4, "y": 4, "z": 4}, mode="tensor", untie=True, memory="none",
                   progress=True)
print(plan.predicted.step_s > 0, "ended" in str(plan))
"""


def check_interrupt():
    with tempfile.TemporaryDirectory() as folder:
        with_progress(folder)
        expect(os.listdir(folder) == [], f"left behind: {os.listdir(folder)}")
    with tempfile.TemporaryDirectory() as folder:
        before_a_plan(folder)


def before_a_plan(folder):
    """A program that has nothing yet ends with an error, which is the user's Ctrl-C."""
    program = os.path.join(folder, "dtplan")
    with open(program, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\ntrap 'echo nothing yet >&2; exit 1' INT\nwhile :; do sleep 0.1; done\n")
    os.chmod(program, 0o755)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    with unittest.mock.patch.dict(os.environ, {"DTPLAN_BIN": folder}), unittest.mock.patch("tempfile.tempdir", folder):
        timer.start()
        refused(KeyboardInterrupt, "nothing yet",
                lambda: dtplan.plan("mlp_digits", mesh={"x": 2}, machine=dtplan.Machine("cpu_2", 2)))
    expect(os.listdir(folder) == ["dtplan"], f"left behind: {os.listdir(folder)}")


def with_progress(folder):
    """Ctrl-C after the first line of progress."""
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "interop", "python"), "TMPDIR": folder}) as child:
        child.stdout.readline()
        first = child.stderr.readline()
        while first and "planning" not in first:
            first = child.stderr.readline()
        child.send_signal(signal.SIGINT)
        out, told = child.communicate(timeout=100)
    expect("planning" in first, f"progress: {first!r}")
    expect(out == "True True\n", f"interrupted: {out!r} {told}")
    expect("planning was interrupted: this is the best plan so far" in told, told)


{"options": check_options, "examples": check_examples, "docs": check_docs, "errors": check_errors,
 "interrupt": check_interrupt}[sys.argv[2]]()
sys.exit(1 if failures else 0)
