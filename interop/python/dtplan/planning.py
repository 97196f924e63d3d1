"""plan() and what it returns."""
from __future__ import annotations

import dataclasses
import difflib
import html
import io
import json
import os
import re
import shutil
import sys
import tempfile
import warnings
import weakref
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypedDict, Union

from .errors import DtplanError, DtplanWarning, InputError
from .known_machines import Machine, gpus
from .known_machines import machine as find_machine
from .program import find, progress_wanted, run

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from typing_extensions import Unpack

Options = TypedDict("Options", {
    "set": Sequence[str], "yes_units": bool, "target": str, "runtime": str, "mode": str, "objective": str, "rules": str,
    "uneven": bool, "expressible": str, "style": Sequence[str], "style_file": Sequence[str], "style_names": Sequence[str],
    "names": str, "pin": Sequence[str], "strict": bool, "alone": bool, "outputs": str, "regather": str,
    "stages": str, "slots": str,
    "dim": Union[Mapping[str, int], Sequence[str]], "freeze": Sequence[str], "forward": bool, "rules_file": str,
    "candidates": int, "prices": bool, "untie": bool, "solver": str, "seed": int, "gap": float, "slack": float,
    "limit_s": float, "threads": int, "compat": str, "comm_report": bool, "output": str, "report": str, "trace": str, "json": bool,
    "no_writes": bool, "timings": bool, "verbose": bool,
}, total=False)  # options of `dtplan plan` that plan() has no argument of its own for (docs/options.md)
# who says one of these says what plans may be
_SEARCHED = ("rules", "style", "style_file", "pin", "compat", "expressible", "stages", "uneven", "prices")


@dataclasses.dataclass(frozen=True)
class Predicted:
    """What a plan predicts of a training step: seconds, tokens/s of all devices, MFU (0 to 1), bytes of a device at the peak, and
    the seconds by kind: products, attention, memory, launches, and communication, of which a part is not hidden (`exposed`).

    >>> plan.predicted.step_s > 0 and plan.predicted.peak_bytes > 0
    True
    """

    step_s: float
    tokens_per_s: float | None
    mfu: float | None
    peak_bytes: int
    by_kind: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a parameter lies: a placement for each mesh dim, `R` (replicated), `S(0)` (axis 0 is split) or `P` (terms of a sum);
    `kept` between steps, `read` by the forward pass.

    >>> len(plan.layouts["fc1.weight"].kept)
    1
    """

    shape: tuple[int, ...]
    kept: tuple[str, ...]
    read: tuple[str, ...]


class Plan:
    """A plan of dtplan. `print(plan)` gives its words; a notebook shows its page.

    >>> str(plan).splitlines()[0]
    "model mlp_digits on mesh 'x:2', machine cpu-2"
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._plan: dict[str, Any] = self._read("plan.json")
        self._torch: dict[str, Any] = self._read("torch.json")
        self._call: dict[str, Any] = self._read("call.json")

    def __reduce__(self) -> Any:
        return _unpack, (self._packed(), "a copy of a plan")

    def _read(self, name: str) -> dict[str, Any]:
        with open(os.path.join(self._folder, name), encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
            return found

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _ask(self, command: str, *words: str, priced: bool = True) -> str:
        name = self._call["machine"] or self._path("machine.json")
        known = bool(self._call["machine"]) or os.path.exists(name)  # none is kept of the computer at hand
        machine = ["--machine", name, *self._call["settings"]] if priced and known else []
        return run([command, self._path("model.json"), self._path("plan.json"), *words, *machine])

    def __str__(self) -> str:
        with open(self._path("words.txt"), encoding="utf-8") as file:
            return file.read().rstrip("\n")

    def __repr__(self) -> str:
        mesh = ";".join(f"{name}:{size}" for name, size in self.mesh.items())
        return f"<dtplan.Plan of {self._plan['model']} on {mesh}: step {self.predicted.step_s:.4g} s>"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.report())}" style="width:100%;height:900px;border:0"></iframe>'

    @property
    def mesh(self) -> dict[str, int]:
        """Mesh dim -> size, the outermost first.

        >>> plan.mesh
        {'x': 2}
        """
        return {name: size for name, size in self._plan["mesh"]}

    @property
    def predicted(self) -> Predicted:
        """What the plan predicts of a step.

        >>> sorted(plan.predicted.by_kind)[:2]
        ['attention', 'attention_grad']
        """
        p = self._plan["predicted"]
        kinds = {name.removesuffix("_s"): seconds for name, seconds in p["compute"].items()}
        return Predicted(p["step_time_s"], p.get("tokens_per_s"), p.get("mfu"), p["peak_bytes"],
                         {**kinds, "communication": p["comm_s"], "exposed": p["exposed_comm_s"]})

    @property
    def baselines(self) -> dict[str, Predicted]:
        """The same of the usual layouts (zero3 is FSDP) that the model has on this mesh.

        >>> "data_parallel" in plan.baselines
        True
        """
        return {name: Predicted(b["step_time_s"], None, None, b["peak_bytes"], {"communication": b["comm_s"]})
                for name, b in self._plan.get("baselines", {}).items() if b.get("legal")}

    @property
    def layouts(self) -> dict[str, Layout]:
        """The module's parameters, by their names in the module.

        >>> plan.layouts["fc1.weight"].shape
        (192, 64)
        """
        return {p["name"]: Layout(tuple(p["shape"]), tuple(p["kept"]), tuple(p["read"])) for p in self._torch["params"]}

    @property
    def collectives(self) -> dict[str, dict[str, int]]:
        """Kind -> how many a step has (`count`) and their `bytes`.

        >>> sorted(plan.collectives)[0]
        'all_gather'
        """
        found: dict[str, dict[str, int]] = self._plan["predicted"]["collectives"]
        return found

    @property
    def degrees(self) -> dict[str, int]:
        """Of data parallelism with copies (`dp_replicate`) and with split parameters (`dp_shard`), and of tensor parallelism (`tp`).

        >>> plan.degrees
        {'dp_replicate': 1, 'dp_shard': 1, 'tp': 2}
        """
        how, out = self._torch["torch"], {"dp_replicate": 1, "dp_shard": 1, "tp": 1}
        split = how["fully_shard"]["mesh_dims"] if how["fully_shard"] else []
        for name, size in self.mesh.items():
            kind = "dp_shard" if name in split else "dp_replicate" if name in how["data_dims"] else "tp"
            out[kind] *= size if kind != "tp" or name in how["tensor_dims"] else 1
        return out

    @property
    def lost(self) -> list[dict[str, Any]]:
        """What PyTorch cannot be told of the plan: `what`, `why`, `instead`, `names`.

        >>> isinstance(plan.lost, list)
        True
        """
        found: list[dict[str, Any]] = self._torch["lost"]
        return found

    def explain(self, name: str) -> str:
        """Why a parameter, by its name in the module, or another tensor of the model lies as it does, and the alternatives.

        >>> plan.explain("fc1.weight").startswith("tensor 'w1'")
        True
        """
        ours = next((p["of"] for p in self._torch["params"] if p["name"] == name), [name])
        return "\n".join(self._ask("explain", of).rstrip() for of in ours)

    def diff(self, other: Plan) -> str:
        """What another plan of the same model does differently, and what that costs.

        >>> "step" in plan.diff(plan)
        True
        """
        if other._plan["model"] != self._plan["model"] or other.layouts.keys() != self.layouts.keys():
            raise InputError(f"diff: the other plan is of another model, {other!r}")
        return self._ask("diff", other._path("plan.json"))

    def report(self) -> str:
        """The plan as an HTML page: timeline, memory, layouts, baselines.

        >>> plan.report().startswith("<!")
        True
        """
        path = self._path("report.html")
        self._ask("report", "-o", path)
        with open(path, encoding="utf-8") as file:
            page = file.read()
        os.remove(path)
        return page

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan, with its model and machine, to a file that load() reads.

        >>> plan.save("mlp.dtplan"); dtplan.load("mlp.dtplan").mesh
        {'x': 2}
        """
        with open(path, "wb") as file:
            file.write(self._packed())

    def _packed(self) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(os.listdir(self._folder)):
                archive.write(self._path(name), name)
        return out.getvalue()

    def parallelize(self, module: torch.nn.Module, device_mesh: DeviceMesh) -> torch.nn.Module:
        """Changes the module as the plan says, and returns it; optimizers are made afterwards. Names of parameters and keys of
        the state dict stay. Another module, or another mesh, is an InputError that names what differs. The module is then
        called with this rank's part of the batch (data_parallel) within loss_parallel.

        >>> plan.parallelize(module, device_mesh).fc1.weight.placements
        (Shard(dim=0),)
        """
        if device_mesh is None:
            raise InputError("parallelize: a device mesh is needed, with the mesh dims of the plan: init_device_mesh(...)")
        return _for_torch().parallelize(module, device_mesh, self._torch)

    def data_parallel(self, device_mesh: DeviceMesh) -> tuple[int, int]:
        """(part, parts): which of how many equal parts of the batch this rank computes: `x.chunk(parts)[part]`.

        >>> plan.data_parallel(device_mesh)
        (0, 1)
        """
        part, parts = _for_torch().data_parallel(device_mesh, self._torch)
        return part, parts

    def loss_parallel(self) -> AbstractContextManager[Any]:
        """The context for forward pass, loss and backward pass: logits may stay split over the classes there.

        >>> with plan.loss_parallel():
        ...     module(torch.ones(4, 64)).mean().backward()
        """
        context: AbstractContextManager[Any] = _for_torch().loss_parallel(self._torch)
        return context

    def check(self, module: torch.nn.Module, device_mesh: DeviceMesh | None = None,
              loss: Callable[[Any, dict[str, Any]], torch.Tensor] | None = None) -> dict[str, Any]:
        """One training step of one rank without data, GPUs and other ranks: collectives as counted beside the plan's, and the peak
        of memory. The module is left as it is. loss(module, inputs) gives the scalar where the module does not.

        >>> found = plan.check(module, device_mesh, lambda module, inputs: module(inputs["images"]).mean())
        >>> found["collectives"]["all_reduce"]["counted"]
        1
        """
        found: dict[str, Any] = _for_torch().check(module, device_mesh, self._torch, loss)
        return found

    def shardings(self, mesh: Any) -> dict[str, Any]:
        """Name of a parameter -> its NamedSharding over a mesh of JAX, which has the plan's mesh dims.

        >>> plan.shardings(jax.make_mesh((2,), ("x",)))["fc1.weight"].spec[0]
        'x'
        """
        path = self._path("jax.json")
        self._ask("export", "--as", "jax", "-o", path, priced=False)
        try:
            from . import dtp_jax
        except ImportError as error:
            raise DtplanError("shardings needs JAX: pip install jax") from error
        return dtp_jax.load(path).over(mesh)


def _for_torch() -> Any:
    try:
        from . import dtp_torch
    except ImportError as error:
        raise DtplanError(f"this needs PyTorch 2.6 or later, pip install 'dtplan[torch]': {error}") from error
    return dtp_torch


def load(path: str | os.PathLike[str]) -> Plan:
    """The plan in a file that Plan.save wrote.

    >>> plan.save("mlp.dtplan"); dtplan.load("mlp.dtplan").predicted == plan.predicted
    True
    """
    with open(path, "rb") as file:
        return _unpack(file.read(), os.fspath(path))


def _unpack(data: bytes, path: str) -> Plan:
    folder = tempfile.mkdtemp(prefix="dtplan.")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > 1 << 30:
                raise ValueError("it holds more than 1 GiB")
            for name in archive.namelist():
                if os.path.basename(name) != name or name in ("", ".", ".."):
                    raise ValueError(f"it holds {name!r}")
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(archive.read(name))
        return Plan(folder)
    except (zipfile.BadZipFile, OSError, ValueError, KeyError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise InputError(f"{path}: no plan that Plan.save wrote: {error}") from error


def plan(module_or_path: torch.nn.Module | str | os.PathLike[str], example_inputs: Any = None, *,
         mesh: Mapping[str, int] | str | None = None, devices: int | None = None, machine: Machine | str | None = None,
         memory: str | int | None = None, precision: str | None = None, remat: str | None = None,
         microbatches: int | str | None = None, loss: Callable[[Any, Any], torch.Tensor] | None = None, dynamic: Any = None,
         progress: bool | None = None, **options: Unpack[Options]) -> Plan:
    """Plans a training step of a module over the devices of a machine.

    `module_or_path`: a PyTorch module, on the meta device too; or a model file, a shipped model's name, a .pt2 or .onnx file, a
    folder of transformers. `example_inputs`: the inputs of a step, of the whole batch: a tensor, a tuple, or a dict of keyword
    arguments; values are not read. The module returns its loss, alone or among other things; else `loss(output, target)` makes it,
    and the last input is the target. `dynamic`: the dynamic_shapes of torch.export.

    `mesh`: mesh dim -> size, or `devices` for a search. `machine`: a name, a file or a Machine; without it the GPUs at hand, and
    without GPUs this computer, which is measured. The other arguments and options are those of `dtplan plan`, under the same
    names. For a module plans are searched that PyTorch can be told (`expressible="torch"`), at PyTorch's prices
    (`target="torch"`), unless options say otherwise. `progress`: whether it is shown (default: in a terminal or a notebook).

    Ctrl-C ends planning with the best plan so far. In a group of torch.distributed rank 0 plans, for all.

    >>> dtplan.plan("mlp_digits", mesh={"x": 2}, machine="cpu_2").mesh
    {'x': 2}
    """
    given: dict[str, Any] = {"mesh": mesh, "devices": devices, "memory": memory, "precision": precision, "remat": remat,
                             "microbatches": microbatches, **options}
    unknown = [name for name in options if name not in Options.__annotations__]
    if unknown:
        near = difflib.get_close_matches(unknown[0], [name for name in {*Options.__annotations__, *given} if name not in unknown], 1)
        raise TypeError(f"plan() has no option {unknown[0]!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    dist = _group()
    if dist is None:
        return _plan(module_or_path, example_inputs, given, machine, loss, dynamic, progress)
    result: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            result[0] = _plan(module_or_path, example_inputs, given, machine, loss, dynamic, progress)._packed()
        except Exception as error:  # the other ranks wait for it
            result[0] = error
    dist.broadcast_object_list(result)
    if isinstance(result[0], Exception):
        raise result[0]
    return _unpack(result[0], "the plan of rank 0")


def _group() -> Any:
    """torch.distributed, in a group of several ranks."""
    torch = sys.modules.get("torch")
    dist: Any = torch.distributed if torch is not None and torch.distributed.is_available() else None
    return dist if dist is not None and dist.is_initialized() and dist.get_world_size() > 1 else None


def _plan(source: Any, inputs: Any, given: dict[str, Any], machine: Machine | str | None, loss: Any, dynamic: Any,
          progress: bool | None) -> Plan:
    if machine is None and gpus():
        machine = find_machine()
    elif isinstance(machine, str):
        machine = find_machine(machine)
    is_module = not isinstance(source, (str, os.PathLike))
    if is_module and not any(given.get(name) for name in _SEARCHED):
        given["expressible"] = "torch"
    if is_module and not given.get("target") and not given.get("compat"):
        given["target"] = "torch"
    if not given["mesh"] and not given["devices"] and not given.get("compat"):
        given["devices"] = machine.devices if machine is not None else 1
    folder = tempfile.mkdtemp(prefix="dtplan.")
    try:
        model = _import(source, inputs, loss, dynamic, folder)
        words = _words(given)
        settings = machine.words() if machine is not None else []
        if machine is not None:
            words += ["--machine", machine.name, *settings]
        shown = progress_wanted() if progress is None else progress
        text = run(["plan", model, *words, "-o", os.path.join(folder, "plan.json")], shown)
        _keep(model, folder, machine, settings, text)
        made = Plan(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    output = given.get("output")
    if output:
        shutil.copyfile(os.path.join(folder, "plan.json"), output)
    return made


def _import(source: Any, inputs: Any, loss: Any, dynamic: Any, folder: str) -> str:
    """The model file of what is planned."""
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if not os.path.isdir(path) and not path.endswith((".pt2", ".onnx")):
            return path
    else:
        try:
            from .exporting import export, is_module
        except ImportError as error:
            raise DtplanError(f"a module needs PyTorch 2.6 or later, pip install 'dtplan[torch]': {error}") from error
        if not is_module(source):
            raise InputError(f"plan: takes a PyTorch module, a path or the name of a model, not {source!r}")
        if inputs is None:
            raise InputError("plan: a module needs example_inputs, the inputs of a step")
        path = os.path.join(folder, "module.pt2")
        export(source, inputs, loss, dynamic, path)
    model = os.path.join(folder, "model.json")
    try:
        found = json.loads(run(["import", path, "-o", model, "--json"]))
    except InputError as error:
        raise InputError(str(error).replace(os.path.join(folder, "module.pt2"), "the module")) from None
    if path.startswith(folder):
        os.remove(path)
    for line in str(found.get("notes", "")).splitlines():
        warnings.warn(line, DtplanWarning, stacklevel=4)
    return model


def _words(given: dict[str, Any]) -> list[str]:
    """Options as the program takes them."""
    words: list[str] = []
    for name, value in given.items():
        option = "--" + name.replace("_", "-")
        if name in ("output", "json") or value is None or value is False:
            continue
        if isinstance(value, Mapping):
            joined = [f"{key}:{size}" for key, size in value.items()] if name == "mesh" else None
            values = [";".join(joined)] if joined is not None else [f"{key}={size}" for key, size in value.items()]
        else:
            values = [str(value)] if isinstance(value, (str, int, float)) else [str(x) for x in value]
        for text in [""] if value is True else values:
            words += [option] + ([text] if value is not True else [])
    return words


def _keep(model: str, folder: str, machine: Machine | None, settings: list[str], text: str) -> None:
    """What the questions to a plan need, in its folder: the model, its names, the machine, the plan in PyTorch's words."""
    if not os.path.exists(model) and os.path.basename(model) == model:
        model = os.path.join(os.path.dirname(find("dtplan")), "..", "share", "dtp", model + ".json")
    own, names = os.path.join(folder, "model.json"), model.removesuffix(".json") + ".names.json"
    if model != own:
        shutil.copyfile(model, own)
        if os.path.exists(names):
            shutil.copyfile(names, os.path.join(folder, "model.names.json"))
    name = machine.name if machine is not None else None
    if name is not None and os.path.exists(name):
        shutil.copyfile(name, os.path.join(folder, "machine.json"))
        name = None
    with open(os.path.join(folder, "words.txt"), "w", encoding="utf-8") as file:
        file.write(text)
    with open(os.path.join(folder, "call.json"), "w", encoding="utf-8") as file:
        json.dump({"machine": name, "settings": settings}, file)
    plan_file = os.path.join(folder, "plan.json")
    said = run(["export", own, plan_file, "--as", "torch", "-o", os.path.join(folder, "torch.json")])
    for why in re.findall("this may fail in PyTorch: (.*)", said):
        warnings.warn(f"PyTorch is told this plan by placements of DTensors alone, which may fail: {why}; plans by modules follow "
                      "from expressible='torch'", DtplanWarning, stacklevel=4)
