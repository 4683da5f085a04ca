"""Moves a workload to the simulated GPU: all its tensors become fake tensors with the same shape, strides and dtype."""

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from rocsolid.errors import InputError
from rocsolid.measure.load_workload import load_workload
from rocsolid.model.workload import Workload

_MAX_DEPTH = 3  # of objects inside objects


def fake_workload(name: str, fake_mode: Any) -> tuple[Workload, str]:
    """Load a workload with fake tensors. If its file needs real values, load it with real tensors and replace them.

    Returns the workload, and a note if real values were needed.
    """
    note = ""
    try:
        with fake_mode:
            workload = load_workload(name)
    except InputError as error:
        workload = load_workload(name)
        note = (
            "the workload was loaded with real tensors, which takes their memory and time, because its file reads their values "
            f"({error.__cause__ or error}); after loading, they were replaced by fake tensors"
        )
    mover = _Mover(fake_mode)
    with fake_mode:
        for module in _modules(workload.callable):
            mover.move_module(module)
        args, kwargs = mover.move((workload.args, dict(workload.kwargs)))
    return Workload(name=workload.name, callable=workload.callable, args=tuple(args), kwargs=kwargs), note


class _Mover:
    """Replaces tensors, and remembers them so that shared tensors stay shared."""

    def __init__(self, fake_mode: Any) -> None:
        self._fake_mode = fake_mode
        self._fakes: dict[int, Any] = {}
        self._originals: list[Any] = []  # keeps the tensors alive, so that their ids stay valid

    def move(self, value: Any) -> Any:
        """Return the same structure with every tensor on the simulated GPU."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.nn.Module):
            self.move_module(value)
            return value
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device("cuda", 0)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.move(item) for item in value))
        if isinstance(value, (list, tuple)):
            return type(value)(self.move(item) for item in value)
        if isinstance(value, dict):
            return {key: self.move(item) for key, item in value.items()}
        return value

    def move_module(self, module: torch.nn.Module) -> None:
        """Move a module in place: parameters, buffers, and tensors in plain attributes."""
        for part in module.modules():
            listings = (part.named_parameters, part.named_buffers)
            for name, value in [
                pair for listing in listings for pair in listing(recurse=False, remove_duplicate=False)
            ]:
                setattr(part, name, self._tensor(value))
            for name, value in list(vars(part).items()):
                if isinstance(value, torch.Tensor):
                    setattr(part, name, self._tensor(value))

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        if id(value) not in self._fakes:
            self._originals.append(value)
            self._fakes[id(value)] = self._new_fake(value)
        fake: torch.Tensor = self._fakes[id(value)]
        return fake

    def _new_fake(self, value: torch.Tensor) -> torch.Tensor:
        if value.layout is not torch.strided:
            msg = f"a tensor with layout {value.layout} cannot be traced without a GPU"
            raise InputError(msg)
        fake = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(fake, requires_grad=value.requires_grad)
        return fake.requires_grad_(value.requires_grad)


def _modules(function: Callable[..., Any]) -> Iterator[torch.nn.Module]:
    """Yield all modules that a callable uses: itself, its `self`, those in its closure and in the globals it names."""
    seen: set[int] = set()
    stack: list[tuple[Any, int]] = [(function, 0)]
    while stack:
        value, depth = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.nn.Module):
            yield value
        elif depth < _MAX_DEPTH:
            stack += [(inner, depth + 1) for inner in _objects_in(value)]


def _objects_in(value: Any) -> Iterator[Any]:
    if isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, types.MethodType):
        yield value.__self__
    elif isinstance(value, types.FunctionType):
        yield from (cell.cell_contents for cell in value.__closure__ or () if _has_value(cell))
        yield from (value.__globals__.get(name) for name in value.__code__.co_names)
        yield from value.__defaults__ or ()
        if hasattr(value, "__wrapped__"):
            yield value.__wrapped__
    elif isinstance(value, (list, tuple)):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()
    elif not isinstance(value, (type, types.ModuleType)) and hasattr(value, "__dict__"):
        yield from vars(value).values()


def _has_value(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
