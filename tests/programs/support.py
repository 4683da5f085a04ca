"""Run a captured program next to an eager copy of it, and compare them after every call."""

import copy
import dataclasses
import json
import os
import random
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import rocsolid as rs
from rocsolid.model.form import Form
from rocsolid.model.optimize_report import OptimizeReport
from rocsolid.optimize.first_call import FirstCall
from rocsolid.optimize.optimized import Optimized, optimized_module

RTOL, ATOL = 1e-4, 1e-5
_MAX_DIFFERENCES = 6


def seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)


def captured_part(module: Any, *, backend: str = "record", **options: Any) -> Any:
    """What `rs.optimize` puts in the place of a part of a program; the form that wins is a graph of eager, without a race."""

    def optimize_for(_: Any) -> Optimized:
        report = OptimizeReport(
            name="part", machine="", profile="fast", forms=(), chosen=Form.EAGER_GRAPH, why="a test", noise=0.0
        )
        return Optimized(rs.capture(module, backend=backend, **options).rocsolid, module, report)

    return optimized_module(FirstCall(module, optimize_for))


def leaves(value: Any, path: str = "result", seen: frozenset[int] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Every tensor, number and string in a result with its path, also in caches and other plain objects."""
    if isinstance(value, torch.Tensor) or value is None or isinstance(value, (bool, int, float, str)):
        yield path, value
    elif id(value) in seen or isinstance(value, (torch.nn.Module, type)) or callable(value):
        return
    else:
        seen |= {id(value)}
        if isinstance(value, Mapping):
            children = [(f"[{key!r}]", child) for key, child in value.items()]
        elif isinstance(value, (list, tuple, deque)):
            children = [(f"[{index}]", child) for index, child in enumerate(value)]
        else:
            children = (
                [(f".{name}", child) for name, child in vars(value).items()] if hasattr(value, "__dict__") else []
            )
        yield f"type({path})", type(value).__name__
        for name, child in children:
            yield from leaves(child, path + name, seen)


def difference(got: Any, want: Any) -> str:
    """The first difference between two results; empty when they are equal."""
    ours, theirs = list(leaves(got)), list(leaves(want))
    if [path for path, _ in ours] != [path for path, _ in theirs]:
        return f"structure differs: {[path for path, _ in ours][:8]} and {[path for path, _ in theirs][:8]}"
    for (path, a), (_, b) in zip(ours, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            if a != b and not (a != a and b != b):  # NaN equals NaN  # noqa: PLR0124
                return f"{path} is {a!r} instead of {b!r}"
        elif not isinstance(a, torch.Tensor) or (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"{path} is {_kind(a)} instead of {_kind(b)}"
        elif not torch.allclose(a.float(), b.float(), RTOL, ATOL, equal_nan=True):
            return f"{path} differs by {(a.float() - b.float()).abs().max().item():.3g}"
    return ""


def _kind(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)


@dataclasses.dataclass
class Comparison:
    """A captured program and its eager copy; `finish` fails if any call, change or state differed."""

    name: str
    mode: Callable[[], Any]  # torch.no_grad or torch.inference_mode
    captured: Any = None  # what is called
    eager: Any = None
    calls: int = 0
    differences: list[str] = dataclasses.field(default_factory=list)
    last_change: str = "none"
    reports: Callable[[], Any] | None = None  # where the capture is not `captured` itself, but a part of it
    kept: list[tuple[Any, Any]] = dataclasses.field(default_factory=list)

    def module(self, model: Any, **options: Any) -> "Comparison":
        """Capture a module, with a deep copy of it as the reference."""
        self.model, self.reference = model, copy.deepcopy(model)
        self.captured, self.eager = rs.capture(model, backend="record", **options), self.reference
        return self

    def report(self) -> Any:
        return self.reports() if self.reports else self.captured.report()

    def change(self, name: str, change: Callable[[Any], Any]) -> None:
        """Make the same change to the captured model and to the reference."""
        self.last_change = name
        for model in (self.model, self.reference):
            seed(1000 + self.calls)
            change(model)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call both, and note how the results or the arguments afterwards differ. Returns the eager result."""
        theirs = copy.deepcopy((args, kwargs))
        return self.both(lambda fn: fn(*args, **kwargs), lambda fn: fn(*theirs[0], **theirs[1]), (args, kwargs), theirs)

    def each(self, ours: dict[str, Any], theirs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Call both with the same arguments, and each with objects of its own."""
        shared = copy.deepcopy((args, kwargs))
        return self.both(lambda fn: fn(*args, **kwargs, **ours), lambda fn: fn(*shared[0], **shared[1], **theirs))

    def both(
        self, captured: Callable[[Any], Any], eager: Callable[[Any], Any], ours: Any = None, theirs: Any = None
    ) -> Any:
        self.calls += 1
        before = self._replays()
        outcomes = []
        for run, fn in ((captured, self.captured), (eager, self.eager)):
            seed(self.calls)
            with self.mode():
                try:
                    outcomes.append(run(fn))
                except Exception as error:  # noqa: BLE001 - eager has to raise the same
                    outcomes.append(error)
        got, want = outcomes
        where = (
            f"call {self.calls} after change `{self.last_change}`{' (replayed)' if self._replays() > before else ''}"
        )
        if isinstance(got, Exception) or isinstance(want, Exception):
            if type(got) is not type(want):
                first = str(got if isinstance(got, Exception) else want).split("\n")[0][:160]
                self.differences.append(f"{where}: {type(got).__name__} instead of {type(want).__name__}: {first}")
            return want
        if found := difference(got, want):
            self.differences.append(f"{where}: {found}")
        if any(isinstance(leaf, torch.Tensor) and leaf.isnan().any() for _, leaf in leaves(want)):
            self.differences.append(f"{where}: eager returns NaN, so this program compares nothing")
        if found := difference(ours, theirs):
            self.differences.append(f"{where}: the arguments afterwards: {found}")
        self.kept.append((got, want))
        return want

    def state(self, ours: Any, theirs: Any) -> None:
        """Compare state that the calls leave behind."""
        if found := difference(ours, theirs):
            self.differences.append(f"after call {self.calls}: the state: {found}")

    def _replays(self) -> int:
        return int(self.report().replays) if self.captured is not None else 0

    def finish(self, *, refused: str = "", direct: bool = True) -> None:
        """Fail on any difference; then require replays, or the refusal that the test expects.

        Args:
            refused: `kind: text` as a regular expression, where it is right that no call can be captured.
            direct: each call of the program is one call of the capture.

        """
        if hasattr(self, "model"):
            self.state(dict(self.model.state_dict()), dict(self.reference.state_dict()))
        if any(difference(got, want) for got, want in self.kept) and not self.differences:
            self.differences.append("an earlier result was overwritten by a later call")
        assert not self.differences, "\n".join(self.differences[:_MAX_DIFFERENCES])
        report = self.report()
        counted = report.replays + sum(report.eager_calls.values())
        assert counted == self.calls if direct else counted > 0, (
            f"{counted} calls in the report of {self.calls}\n{report}"
        )
        if not report.replays and not (
            report.captures and not direct
        ):  # each call of `generate` may have another shape
            assert report.refusals, f"no replay and no refusal\n{report}"
            found = [f"{refusal.reason.value}: {refusal.message}" for refusal in report.refusals]
            assert refused, f"refused, where a replay was expected: {found[0]}"
            assert all(re.search(refused, text, re.DOTALL) for text in found), f"expected `{refused}`, got {found[0]}"

    def row(self, outcome: str) -> None:
        """Append a row of the table to the file of the environment variable CAPTURED_PROGRAMS_TABLE."""
        if path := os.environ.get("CAPTURED_PROGRAMS_TABLE"):
            try:
                report = self.report()
            except Exception as error:  # noqa: BLE001 - nothing was captured
                replays, texts, counted = None, [repr(error)[:120]], {}
            else:
                texts = sorted({f"{r.reason.value}: {r.message.splitlines()[0]}" for r in report.refusals})
                replays, counted = report.replays, dict(report.eager_calls)
            values = {
                "program": self.name,
                "outcome": outcome,
                "calls": self.calls,
                "replays": replays,
                "eager": counted,
                "refusals": texts,
                "differences": self.differences,
            }
            with Path(path).open("a") as file:
                file.write(json.dumps(values) + "\n")
