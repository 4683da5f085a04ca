"""A workload: the code that a user wants to run fast, named `file.py:function` on every command line.

The function takes no arguments and returns `(callable, args, kwargs)`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocsolid.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class WorkloadName:
    """The two parts of `file.py:function`."""

    file: Path
    function: str

    @classmethod
    def parse(cls, text: str) -> "WorkloadName":
        """Split the text; raises UsageError when it is not `file.py:function`."""
        if not isinstance(text, str):
            msg = (
                f"a workload is a name such as 'work.py:build', not an object of type {type(text).__name__}.\n"
                "fix: write a function `build` into a file that returns (model, args, kwargs), and pass 'file.py:build'; "
                "rs.optimize(model, inputs) takes the model itself"
            )
            raise UsageError(msg)
        file, colon, function = text.rpartition(":")
        if not colon or not file or not function.isidentifier():
            hint = f"; did you mean {text}:build?" if text.endswith(".py") else ""
            msg = f"write a workload as file.py:function, not {text!r}{hint}"
            raise UsageError(msg)
        return cls(file=Path(file), function=function)

    def __str__(self) -> str:
        return f"{self.file}:{self.function}"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What to call, and with which arguments."""

    name: str
    callable: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:  # noqa: ANN401 - whatever the user's callable returns
        """Call it once, with its arguments."""
        return self.callable(*self.args, **self.kwargs)
