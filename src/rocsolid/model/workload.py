"""A workload: what a user wants fast, named `file.py:function` on every command line.

The function takes nothing and returns `(callable, args, kwargs)`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocsolid.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class WorkloadName:
    """`file.py:function`, taken apart."""

    file: Path
    function: str

    @classmethod
    def parse(cls, text: str) -> "WorkloadName":
        """Raises UsageError for anything that is not `file.py:function`."""
        file, colon, function = text.rpartition(":")
        if not colon or not file or not function.isidentifier():
            hint = f"; did you mean {text}:build?" if text.endswith(".py") else ""
            msg = f"a workload is file.py:function, and {text!r} is not{hint}"
            raise UsageError(msg)
        return cls(file=Path(file), function=function)

    def __str__(self) -> str:
        return f"{self.file}:{self.function}"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is to be called, and with what."""

    name: str
    callable: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:  # noqa: ANN401 - whatever the user's callable returns
        """One call, as the user would make it."""
        return self.callable(*self.args, **self.kwargs)
