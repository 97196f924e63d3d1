"""A PyTorch module as a program that `dtplan import` reads. Nothing is computed, and weights are neither copied nor written."""
from __future__ import annotations

import contextlib
import gc
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from .errors import DtplanWarning, InputError


def is_module(x: Any) -> bool:
    """Whether x can be exported."""
    return isinstance(x, torch.nn.Module)


def export(module: torch.nn.Module, inputs: Any, loss: Callable[[Any, Any], torch.Tensor] | None, dynamic: Any, path: str) -> None:
    """Writes the forward pass and the loss to a .pt2 file."""
    device = next((x.device for x in [*module.parameters(), *module.buffers()]), torch.device("cpu"))
    inputs = tree_map_only(torch.Tensor, lambda x: x if x.device == device else torch.zeros(x.shape, dtype=x.dtype, device=device),
                           inputs)
    args, kwargs = _arguments(inputs)
    with _loss_alone(module, args, kwargs, loss), _no_cache(module), _no_collector(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic, strict=False)
        except Exception as error:
            raise InputError(f"torch.export cannot export the module: {error}") from error
    state = program.state_dict
    for name, p in state.items():
        if isinstance(p, torch.nn.Parameter):
            state[name] = torch.nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad)
    known = _buffers(module)
    for store in (state, program.constants):
        store.update({name: known[name] for name in known if name in store})
    with _no_collector():
        torch.export.save(program, path)


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """Programs are millions of objects, none of them garbage: looking through them takes a third of the time."""
    had = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if had:
            gc.enable()


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)), {}


@contextlib.contextmanager
def _loss_alone(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any],
                loss: Callable[[Any, Any], torch.Tensor] | None) -> Iterator[None]:
    """The module gives its loss and nothing else, as in a training step; what has no loss gives what it gave."""
    inner = module.forward
    named = [p.name for p in inspect.signature(inner).parameters.values()
             if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    n = len(args) - (1 if loss and not kwargs else 0)
    keys = list(kwargs) or [*(named + [f"input_{i}" for i in range(n)])[:n], *(["target"] if loss else [])]

    def forward(*given: Any, **by_name: Any) -> Any:
        if loss is None:
            out = inner(*given, **by_name)
            return _scalar(out, out)
        if by_name:
            *rest, (_, target) = by_name.items()
            return loss(inner(**dict(rest)), target)
        return loss(inner(*given[:-1]), given[-1])

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    forward.__signature__ = inspect.Signature([inspect.Parameter(key, kind) for key in keys])  # type: ignore[attr-defined]
    had = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if had is None:
            del module.forward
        else:
            module.forward = had


def _scalar(out: Any, otherwise: Any) -> Any:
    """The floating-point scalar in what a module gives, if there is one alone."""
    found = [x for x in tree_leaves(out) if isinstance(x, torch.Tensor) and x.ndim == 0 and x.is_floating_point()]
    return found[0] if len(found) == 1 else otherwise


@contextlib.contextmanager
def _no_cache(module: torch.nn.Module) -> Iterator[None]:
    """Modules of transformers keep keys and values for generation unless their config says that they do not."""
    config = getattr(module, "config", None)
    had = getattr(config, "use_cache", None)
    if had:
        config.use_cache = False  # type: ignore[union-attr]
    try:
        yield
    finally:
        if had:
            config.use_cache = had  # type: ignore[union-attr]


def _buffers(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Values of buffers. Where they are on the meta device, the class of their module makes them again of its config, as those of
    the rotary positions of transformers; what cannot be made is said."""
    values, unknown = {}, []
    for path, owner in module.named_modules():
        own = {(f"{path}." if path else "") + name: (name, b) for name, b in owner.named_buffers(recurse=False)}
        if any(b.is_meta for _, b in own.values()):
            made = _made_again(owner)
            unknown += [whole for whole, (name, b) in own.items() if b.is_meta and made.get(name, b).is_meta]
            own = {whole: (name, made.get(name, b)) for whole, (name, b) in own.items()}
        values.update({whole: b.detach().cpu() for whole, (_, b) in own.items() if not b.is_meta})
    if unknown:
        warnings.warn(f"buffers on the meta device have no values, and no config that they follow from: {', '.join(unknown[:4])}"
                      + ("" if len(unknown) <= 4 else f" and {len(unknown) - 4} more"), DtplanWarning, stacklevel=5)
    return values


def _made_again(owner: torch.nn.Module) -> dict[str, torch.Tensor]:
    config = getattr(owner, "config", None)
    if config is None or any(True for _ in owner.parameters()):
        return {}
    try:
        with torch.device("cpu"):
            return dict(type(owner)(config).named_buffers(recurse=False))
    except Exception:  # of another signature
        return {}
