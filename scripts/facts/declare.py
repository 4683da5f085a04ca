"""How an experiment is declared, and what experiments share."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Seen = dict[str, Any]  # plain values, ready for JSON
Run = Callable[[], Seen]


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One experiment: the sentence it may add to the record, and what must be seen for that."""

    name: str
    says: str  # {names} are filled in from what was seen
    expect: Mapping[str, object]
    run: Run
    env: Mapping[str, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = ("cpu",)
    cpu_build: bool = False  # about torch without CUDA and HIP, not only without a GPU


def fact(
    says: str,
    *,
    expect: Mapping[str, object],
    env: Mapping[str, str] | None = None,
    kinds: tuple[str, ...] = ("cpu",),
    cpu_build: bool = False,
) -> Callable[[Run], Fact]:
    """Declare the function below as an experiment; its name, with dashes, names the fact."""

    def declare(run: Run) -> Fact:
        name = run.__name__.replace("_", "-")
        return Fact(name=name, says=says, expect=expect, run=run, env=env or {}, kinds=kinds, cpu_build=cpu_build)

    return declare


def declared(names: Mapping[str, object]) -> tuple[Fact, ...]:
    """The experiments among a module's names, in the order they were written."""
    return tuple(value for value in names.values() if isinstance(value, Fact))


def error_of(call: Callable[[], object], kind: type[Exception] = RuntimeError) -> BaseException | None:
    """The error of this kind that a call raises, or nothing."""
    try:
        call()
    except kind as error:
        return error
    return None


def kind_of(error: BaseException | None) -> str:
    """The name of an error's class, or an empty string."""
    return type(error).__name__ if error else ""


def chain_of(error: BaseException | None) -> list[BaseException]:
    """An error and what led to it, last first."""
    found: list[BaseException] = []
    while error and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def run_python(code: str, **env: str) -> tuple[str, str]:
    """A snippet in a fresh interpreter of its own: what it printed, and what it logged."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | env,
        cwd=Path.cwd(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


@dataclass(kw_only=True)
class Counting:
    """A backend that compiles nothing, and counts how often it was asked and how often its code ran."""

    compiles: int = 0
    runs: int = 0

    def __call__(self, module: Any, _inputs: list[Any]) -> Callable[..., Any]:
        """Take a graph from Dynamo and hand it back, counted."""
        self.compiles += 1

        def run(*args: Any) -> Any:
            self.runs += 1
            return module.forward(*args)

        return run


@contextmanager
def watched_compiles(name: str) -> Iterator[list[Any]]:
    """Collect the value an Inductor setting has each time Inductor's entry point is called."""
    from torch._inductor import compile_fx, config

    values: list[Any] = []
    entry = compile_fx.compile_fx

    def watched(*args: Any, **kwargs: Any) -> Any:
        values.append(getattr(config, name))
        return entry(*args, **kwargs)

    compile_fx.compile_fx = watched
    try:
        yield values
    finally:
        compile_fx.compile_fx = entry
