"""Every error that rocsolid raises on purpose.

RocsolidError                    anything below; `exit_code` is what the command line ends with
├── UsageError                   the caller asked for something that cannot be (2)
│   ├── UnknownNameError         no such profile, setting, rule, command; names the near matches
│   ├── PlanError                a plan that was made for another platform
│   └── InputError               a file that is broken, foreign, half-written or unreadable
├── MissingExtraError            an optional package is not installed; says which command installs it (3)
├── UnsupportedTorchError        the installed torch lacks what the feature needs (3)
├── CompileDeadlineError         a compile took too long and could not fall back to eager (3)
├── RecompileError               a function was compiled more often than it was allowed to (3)
├── VendorOpError                a function cannot become an operator, or is not what it claims to be (3)
├── CompileInCaptureError        something would have been compiled while a graph was being captured (3)
├── CaptureError                 a call could not be captured, or its graph answered wrongly (3)
├── StaleOutputError             a tensor was used that a later replay has overwritten (3)
├── TimedOutError                a child took longer than it was given (124)
└── CannotRunError               a tool, a device or a permission is missing (3)
"""

from collections.abc import Iterable
from typing import ClassVar

_FEW = 8


class RocsolidError(Exception):
    """The root of every error that rocsolid raises on purpose."""

    exit_code: ClassVar[int] = 3


class UsageError(RocsolidError):
    """The caller asked for something that cannot be."""

    exit_code: ClassVar[int] = 2


class UnknownNameError(UsageError):
    """A name that nothing answers to, with the names that come near it."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        known = list(known)
        self.near = near_matches(name, known)
        if self.near:
            hint = f"; did you mean {' or '.join(repr(n) for n in self.near)}?"
        else:
            hint = f"; there are {', '.join(known)}" if 0 < len(known) <= _FEW else ""
        super().__init__(f"unknown {kind} {name!r}{hint}")

    def __reduce__(self) -> tuple[type["UnknownNameError"], tuple[str, str, tuple[str, ...]]]:
        return type(self), (self.kind, self.name, self.near)


class InputError(UsageError):
    """A file that is broken, foreign, half-written or unreadable; it is left as it was."""


class PlanError(UsageError):
    """A plan that was made for another platform, or that names what no setting is called."""


class CompileDeadlineError(RocsolidError):
    """A compile took too long, and there was no way back to eager."""


class RecompileError(RocsolidError):
    """A function was compiled more often than it was allowed to."""


class VendorOpError(RocsolidError):
    """A function cannot become an operator, or is not what it claims to be."""


class CompileInCaptureError(RocsolidError):
    """Something would have been compiled while a graph was being captured."""


class CaptureError(RocsolidError):
    """A call could not be captured, or its graph answered wrongly."""


class StaleOutputError(RocsolidError):
    """A tensor was used that a later replay has overwritten."""


class MissingExtraError(RocsolidError):
    """An optional package is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        self.feature = feature
        self.extra = extra
        super().__init__(f"{feature} needs an optional package: pip install 'rocsolid[{extra}]'")

    def __reduce__(self) -> tuple[type["MissingExtraError"], tuple[str, str]]:
        return type(self), (self.feature, self.extra)


class UnsupportedTorchError(RocsolidError):
    """The installed torch lacks what the feature needs."""


class TimedOutError(RocsolidError):
    """A child took longer than it was given, and was ended."""

    exit_code: ClassVar[int] = 124


class CannotRunError(RocsolidError):
    """A tool, a device or a permission is missing."""


def first_line(error: BaseException) -> str:
    """What an error says, in one line; its kind when it says nothing."""
    said = str(error).strip().partition("\n")[0].strip()
    return said or type(error).__name__


def near_matches(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Up to three known names that resemble `name`, best first."""
    from difflib import get_close_matches  # slow to import, and only wanted on the way out

    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(candidate.lower(), candidate)
    close = get_close_matches(name.lower(), folded, n=3, cutoff=0.65)
    return tuple(folded[match] for match in close)
