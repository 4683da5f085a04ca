"""The exceptions of rocsolid. All of them derive from RocsolidError.

The number in brackets is the exit code of the command line.

RocsolidError                    the base class of all errors below (3)
├── UsageError                   wrong arguments, or arguments that cannot be combined (2)
│   ├── UnknownNameError         no profile, setting, rule, command ... has that name; suggests similar names (2)
│   ├── PlanError                a plan for another platform, or with a value or setting that does not exist (2)
│   └── InputError               a file that is unreadable, damaged or of another format (2)
├── MissingExtraError            an optional package is not installed; the message has the pip command (3)
├── UnsupportedTorchError        the installed torch lacks something that the feature needs (3)
├── CompileDeadlineError         a compile exceeded its deadline and there was no fallback to eager (3)
├── RecompileError               a function would be compiled more often than `max_recompiles=` allows, or after `fn.rocsolid.seal()` (3)
├── VendorOpError                a function cannot be registered as an operator, or behaves differently than declared (3)
├── CompileInCaptureError        torch.compile would have compiled during a graph capture (3)
├── CaptureError                 a call could not be captured, or its replay differs from eager (3)
├── StaleOutputError             a tensor was used after a later replay had overwritten it (3)
├── TimedOutError                a child process exceeded its deadline and was ended (124)
└── CannotRunError               a program, a GPU or a permission is missing (3)
"""

from collections.abc import Iterable
from typing import Any, ClassVar

_MAX_LISTED = 8


class RocsolidError(Exception):
    """The base class of every error that rocsolid raises on purpose."""

    exit_code: ClassVar[int] = 3


class UsageError(RocsolidError):
    """Wrong arguments, or arguments that cannot be combined."""

    exit_code: ClassVar[int] = 2


class UnknownNameError(UsageError):
    """A name or a value is not one of the known ones; the message suggests similar names.

    Args:
        kind: what the name should be, such as `profile`; for an argument, the name of the argument.
        name: the unknown name.
        known: the names that exist.
        listed_by: the command that lists all names.
        where: the file or the function that contains the name.
        is_argument: `name` is the value of the argument `kind`.

    """

    def __init__(
        self,
        kind: str,
        name: str,
        known: Iterable[str],
        listed_by: str = "",
        *,
        where: str = "",
        is_argument: bool = False,
    ) -> None:
        self.kind = kind
        self.name = name
        known = list(known)
        self.similar_names = near_matches(name, known)
        if self.similar_names:
            hint = f"; did you mean {' or '.join(repr(n) for n in self.similar_names)}?"
        elif 0 < len(known) <= _MAX_LISTED:
            hint = f"; choose one of {', '.join(known)}"
        else:
            hint = f"; see `{listed_by}`" if listed_by else ""
        problem = f"{kind}={name!r} is not a valid value" if is_argument else f"unknown {kind} {name!r}"
        super().__init__(f"{where}: {problem}{hint}" if where else f"{problem}{hint}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_unknown_name, (str(self), self.kind, self.name, self.similar_names)


class InputError(UsageError):
    """A file is unreadable, damaged or of another format; it was not changed."""


class PlanError(UsageError):
    """A plan was made for another platform, or has a value or a setting that does not exist."""


class CompileDeadlineError(RocsolidError):
    """A compile exceeded its deadline, and there was no fallback to eager."""


class RecompileError(RocsolidError):
    """A function would be compiled more often than `max_recompiles=` allows, or after `fn.rocsolid.seal()`."""


class VendorOpError(RocsolidError):
    """A function cannot be registered as an operator, or behaves differently than declared."""


class CompileInCaptureError(RocsolidError):
    """torch.compile would have compiled while a graph was being captured."""


class CaptureError(RocsolidError):
    """A call could not be captured, or the replay of its graph differs from eager."""


class StaleOutputError(RocsolidError):
    """A tensor was used after a later replay had overwritten it."""


class MissingExtraError(RocsolidError):
    """An optional package is not installed; the message has the command that installs it."""

    def __init__(self, feature: str, extra: str) -> None:
        self.feature = feature
        self.extra = extra
        super().__init__(f"{feature} needs an optional package: pip install 'rocsolid[{extra}]'")

    def __reduce__(self) -> tuple[type["MissingExtraError"], tuple[str, str]]:
        return type(self), (self.feature, self.extra)


class UnsupportedTorchError(RocsolidError):
    """The installed torch lacks something that the feature needs."""


class TimedOutError(RocsolidError):
    """A child process exceeded its deadline and was ended."""

    exit_code: ClassVar[int] = 124


class CannotRunError(RocsolidError):
    """A program, a GPU or a permission is missing."""


def _restore_unknown_name(message: str, kind: str, name: str, similar_names: tuple[str, ...]) -> UnknownNameError:
    """Unpickle an UnknownNameError with the message that it had."""
    error = UnknownNameError(kind, name, similar_names)
    error.args = (message,)
    return error


def require_type(where: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Raise UsageError unless the value has one of the types: `require_type("rs.lint: path", 3, str, "a path")`."""
    if not isinstance(value, kinds):
        msg = f"{where} must be {expected}; got {_described(value)}"
        raise UsageError(msg)


def require_number(where: str, value: object, *, least: float = 0.0, optional: bool = True) -> None:
    """Raise UsageError unless the value is a number of at least `least`, or None where that is allowed."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
        msg = f"{where} must be a number of at least {least:g}; got {_described(value)}"
        raise UsageError(msg)


def _described(value: object) -> str:
    return (
        repr(value) if isinstance(value, (str, int, float, type(None))) else f"an object of type {type(value).__name__}"
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its class when the message is empty."""
    line = str(error).strip().partition("\n")[0].strip()
    return line or type(error).__name__


def near_matches(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Up to three known names that are similar to `name`, best first."""
    from difflib import get_close_matches  # slow to import, and only needed for an error

    by_lower: dict[str, str] = {}
    for candidate in known:
        by_lower.setdefault(candidate.lower(), candidate)
    matches = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.65)
    return tuple(by_lower[match] for match in matches)
