"""Cuts a capture at named modules: they run eagerly, and what lies between them is captured.

For a step that no graph can hold, such as work on the host or a branch on values. The module must return tensors of the same
shapes every time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from rocsolid.errors import UsageError
from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture.backend import Graph, Session
from rocsolid.runtime.capture.call import CannotCapture
from rocsolid.runtime.capture.surroundings import look_around
from rocsolid.torchapi.graphs.memory import storage_number
from rocsolid.torchapi.patch import AttributePatch
from rocsolid.torchapi.pytree import Flattened, flatten


class EagerStep:
    """A module's call between two graphs, repeated with what the graphs have computed."""

    nodes: int | None = None
    bytes = 0

    def __init__(self, name: str, forward: Callable[..., Any], args: Any, kwargs: Any, result: Any) -> None:
        self._name = name
        self._forward = forward
        self._args = args
        self._kwargs = kwargs
        self._result: Flattened = flatten(result, f"the result of {name}")

    def replay(self) -> None:
        """Call the module, and put its results where the next graph reads them."""
        now = flatten(self._forward(*self._args, **self._kwargs), f"the result of {self._name}")
        if now.structure != self._result.structure:
            msg = f"the result of {self._name} has another structure than it had when the call was captured"
            raise CannotCapture(Reason.PIECE, msg)
        for new, old in zip(now.leaves, self._result.leaves, strict=True):
            if not isinstance(old.value, torch.Tensor):
                if new.value != old.value:
                    msg = f"{new.path} was {old.value!r} when the call was captured and is {new.value!r}"
                    raise CannotCapture(Reason.PIECE, msg)
            elif new.value.shape != old.value.shape or new.value.dtype != old.value.dtype:
                was, is_ = (f"{t.dtype}{list(t.shape)}".removeprefix("torch.") for t in (old.value, new.value))
                raise CannotCapture(Reason.PIECE, f"{new.path} was {was} when the call was captured and is {is_}")
            elif storage_number(new.value) != storage_number(old.value):
                old.value.copy_(new.value)

    def close(self) -> None:
        """Let go of the tensors in between."""
        self._args, self._kwargs = (), {}

    def dump(self, path: str) -> None:
        """There is nothing in it to write down."""


class Chain:
    """Graphs with eager steps between them, replayed in order."""

    def __init__(self, parts: Sequence[Graph]) -> None:
        self._parts = list(parts)
        counts = [part.nodes for part in parts if not isinstance(part, EagerStep)]
        self.nodes: int | None = sum(n for n in counts if n is not None) if None not in counts else None
        self.bytes = sum(part.bytes for part in parts)

    def replay(self) -> None:
        """One after the other."""
        for part in self._parts:
            part.replay()

    def close(self) -> None:
        """Close every part."""
        for part in self._parts:
            part.close()
        self._parts = []

    def dump(self, path: str) -> None:
        """Each graph in a file of its own."""
        for number, part in enumerate(self._parts):
            part.dump(f"{path}.{number}")


def captured_in_pieces(
    session: Session, body: Callable[[], Any], function: Callable[..., Any], pieces: Sequence[Any]
) -> tuple[Graph, Any]:
    """Run the body while it is recorded; without pieces that is one graph."""
    parts: list[Graph] = []
    with ExitStack() as scope:
        for name, module in named_pieces(function, pieces).items():
            scope.enter_context(_cut_at(name, module, session, parts))
        session.begin()
        result = body()
        last = session.end()
    return (Chain([*parts, last]), result) if parts else (last, result)


@contextmanager
def _cut_at(name: str, module: Any, session: Session, parts: list[Graph]) -> Iterator[None]:
    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            parts.append(session.end())
            result = plain(*args, **kwargs)
            parts.append(EagerStep(name, plain, args, kwargs, result))
            session.begin()
            return result

        return forward

    swap = AttributePatch(module, "forward", make)
    try:
        yield
    finally:
        swap.undo()


def named_pieces(function: Callable[..., Any], pieces: Sequence[Any]) -> Mapping[str, Any]:
    """The modules that are meant, by name or as they are."""
    if not pieces:
        return {}
    modules = dict(look_around(function).training)
    found: dict[str, Any] = {}
    for piece in pieces:
        if isinstance(piece, torch.nn.Module):
            found[next((path for path, module in modules.items() if module is piece), type(piece).__name__)] = piece
        elif piece in modules:
            found[piece] = modules[piece]
        else:
            known = ", ".join(path for path in modules if path)
            msg = f"pieces names {piece!r}, which is no module of the function; there are {known}"
            raise UsageError(msg)
    return found
