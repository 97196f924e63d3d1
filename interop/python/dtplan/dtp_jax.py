"""Applies a plan of dtplan to a JAX program: `dtplan export MODEL PLAN --as jax -o plan.json`, format dtp.jax/1.

    from dtplan import dtp_jax
    plan = dtp_jax.load("plan.json")
    plan.mesh(jax.devices())
    params = jax.device_put(params, plan.shardings(params))

    def loss(params: Any, batch: Any) -> Any:
        params = plan.read(params)              # gathers what the plan keeps split and reads whole
        x = plan.constrain(embed(params, batch["text"]), "embed")
        ...

    step = jax.jit(step, in_shardings=(plan.shardings(params), plan.in_shardings), out_shardings=...)

Parameters are a dict by name, or any pytree whose path is the name: {"wte": {"weight": w}} is "wte.weight".
"""
from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .errors import InputError

Json = dict[str, Any]
FORMAT = "dtp.jax/1"


PlanError = InputError  # the file is no plan for JAX, or does not fit what it is applied to


class Point:
    """A tensor of the plan: its shape, where it is kept, where the forward pass reads it; whether a parameter is frozen."""

    def __init__(self, name: str, entry: Json) -> None:
        self.name, self.shape = name, tuple(entry["shape"])
        self.kept = _spec(entry["kept"])
        self.read = _spec(entry.get("read", entry["kept"]))
        self.frozen = entry.get("frozen", False)


class Plan:
    """What load() returns. Attributes: `axes` (list of mesh dim, size), `params`, `activations`, `values`, `inputs`,
    `outputs` (name -> Point), `precision`, `microbatches`, `recomputed`, `lost`."""

    def __init__(self, data: Json) -> None:
        self.axes = [(str(name), int(size)) for name, size in data["mesh"]]
        self.params, self.activations, self.values, self.inputs, self.outputs = (
            {name: Point(name, entry) for name, entry in data[key].items()}
            for key in ("params", "activations", "values", "inputs", "outputs"))
        self.precision, self.microbatches = data["precision"], data["microbatches"]
        self.recomputed, self.lost = data["recomputed"], data["lost"]
        self._points = {**self.inputs, **self.outputs, **self.values, **self.activations}
        self._mesh: Mesh | None = None
        self._seen: set[str] = set()

    def mesh(self, devices: list[Any] | None = None) -> Mesh:
        """The mesh over these devices, in their order (default: jax.devices()); the other methods use it."""
        devices = jax.devices() if devices is None else list(devices)
        need = math.prod(size for _, size in self.axes)
        if len(devices) < need:
            raise PlanError(f"the plan is for {need} devices ({self.axes}), there are {len(devices)}")
        grid = numpy.array(devices[:need]).reshape([size for _, size in self.axes])
        self._mesh = Mesh(grid, tuple(name for name, _ in self.axes))
        return self._mesh

    def over(self, mesh: Mesh) -> dict[str, NamedSharding]:
        """Name of a parameter -> the NamedSharding over this mesh, which has the plan's mesh dims, where the plan keeps it."""
        if list(mesh.shape.items()) != self.axes:
            raise PlanError(f"the mesh is {list(mesh.shape.items())}, the plan's {self.axes}")
        return {name: NamedSharding(mesh, point.kept) for name, point in self.params.items()}

    def shardings(self, params: Any) -> Any:
        """A NamedSharding for every leaf of `params`, where the plan keeps it. Every parameter of the plan has to be
        there once, and no other one."""
        named, tree = _named(params)
        wrong = [f"'{name}' is missing" for name in self.params if name not in named]
        wrong += [f"the plan has no '{name}'" for name in named if name not in self.params]
        wrong += [f"'{name}' has shape {tuple(leaf.shape)}, in the plan {self.params[name].shape}"
                  for name, leaf in named.items()
                  if name in self.params and tuple(leaf.shape) != self.params[name].shape]
        if wrong:
            more = f"; and {len(wrong) - 8} more" if len(wrong) > 8 else ""
            raise PlanError("parameters are not those of the plan: " + "; ".join(wrong[:8]) + more)
        return jax.tree_util.tree_unflatten(tree, [self._sharding(self.params[name].kept) for name in named])

    def read(self, params: Any) -> Any:
        """`params` as the forward pass reads them: to be called in the function that is differentiated."""
        named, tree = _named(params)
        return jax.tree_util.tree_unflatten(tree, [self._bind(x, self._param(name)) for name, x in named.items()])

    def constrain(self, x: Any, name: str) -> Any:
        """x, an input, output, activation or value of the plan, in the layout of the plan; its gradient where x is
        kept. A name of which the plan says nothing leaves x as it is (see unseen)."""
        self._seen.add(name)
        return self._bind(x, self._points[name]) if name in self._points else x

    @property
    def in_shardings(self) -> dict[str, NamedSharding]:
        """Name of an input -> NamedSharding."""
        return {name: self._sharding(point.kept) for name, point in self.inputs.items()}

    @property
    def out_shardings(self) -> dict[str, NamedSharding]:
        """Name of an output -> NamedSharding."""
        return {name: self._sharding(point.kept) for name, point in self.outputs.items()}

    @property
    def unseen(self) -> list[str]:
        """Activations that the plan redistributes and no constrain() has named so far: empty after a trace."""
        return sorted(set(self.activations) - self._seen)

    def _param(self, name: str) -> Point:
        if name not in self.params:
            raise PlanError(f"the plan has no parameter '{name}'")
        return self.params[name]

    def _sharding(self, spec: PartitionSpec) -> NamedSharding:
        if self._mesh is None:
            self.mesh()
        return NamedSharding(self._mesh, spec)

    def _bind(self, x: Any, point: Point) -> Any:
        sizes = dict(self.axes)
        parts = [math.prod(sizes[m] for m in _mesh_dims(part)) for spec in (point.kept, point.read) for part in spec]
        if len(x.shape) != len(point.shape) or any(n % p for n, p in zip(x.shape * 2, parts)):
            raise PlanError(f"'{point.name}' has shape {tuple(x.shape)}, in the plan {point.shape}, kept {point.kept}, "
                            f"read {point.read}")
        kept, read = self._sharding(point.kept), self._sharding(point.read)
        return _redistributed(kept, read)(x)


def _redistributed(kept: NamedSharding, read: NamedSharding) -> Callable[[Any], Any]:
    """Forward: to kept, then to read; the gradient of the result goes to kept at once."""
    put = jax.lax.with_sharding_constraint

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def bind(x: Any) -> Any:
        x = put(x, kept)
        return x if kept == read else put(x, read)

    bind.defvjp(lambda x: (bind(x), None), lambda _, gradient: (put(gradient, kept),))
    bound: Callable[[Any], Any] = bind
    return bound


def _mesh_dims(part: Any) -> list[str]:
    return [] if part is None else [part] if isinstance(part, str) else list(part)


def _spec(parts: Any) -> PartitionSpec:
    return PartitionSpec(*(tuple(part) if isinstance(part, list) else part for part in parts))


def _named(tree: Any) -> tuple[dict[str, Any], Any]:
    """Name -> leaf in the order of the leaves, and the structure."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    named = {}
    for path, leaf in leaves:
        name = ".".join(str(next(getattr(k, a) for a in ("key", "name", "idx") if hasattr(k, a))) for k in path)
        if name in named:
            raise PlanError(f"two leaves have the name '{name}'")
        named[name] = leaf
    return named, structure


def load(path: str) -> Plan:
    """The plan in a file that `dtplan export --as jax` wrote."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        found = data.get("format") if isinstance(data, dict) else None
        if found != FORMAT:
            raise PlanError(f"the format is {found!r}, wanted {FORMAT!r} (dtplan export --as jax)")
        return Plan(data)
    except KeyError as error:
        raise PlanError(f"{path}: there is no member {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise PlanError(f"{path}: {error}") from error
