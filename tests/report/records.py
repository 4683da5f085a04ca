"""A record of any type, made from its declaration: every string, in every field, is the given text."""

import random
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any

from rocsolid.model.compile_log import BreakReport, CompileLog
from rocsolid.model.dryrun import DryRunRecord
from rocsolid.model.lint import LintRecord
from rocsolid.model.optimize_report import OptimizeReport
from rocsolid.model.proof import ProofRecord
from rocsolid.model.saved_probe import ProbeRecord
from rocsolid.model.study import Study
from rocsolid.model.trace import TraceComparison, TraceReport
from rocsolid.model.verify_report import VerifyReport

PAGES: tuple[type, ...] = (
    BreakReport,
    CompileLog,
    DryRunRecord,
    LintRecord,
    OptimizeReport,
    ProbeRecord,
    Study,
    TraceComparison,
    TraceReport,
    VerifyReport,
    ProofRecord,
)


def make(cls: Any, text: Callable[[str], str], *, variant: int = 0, path: str = "", sparse: int = 0) -> Any:
    """An object of the type. `text` gets the path of a string field; `variant` selects the member of enums and the flags.

    With `sparse`, some fields keep their default: pages show something else where a field is empty. Each number leaves out others.
    """
    origin, args = typing.get_origin(cls), typing.get_args(cls)
    path = path or getattr(cls, "__name__", str(cls))
    if origin in (types.UnionType, typing.Union):
        members = [a for a in args if a is not type(None)]
        chosen = str if str in members else members[variant % len(members)]
        return make(chosen, text, variant=variant, path=path, sparse=sparse)
    if origin in (tuple, frozenset):
        # Two entries: some pages show one only when there are two.
        items = [make(args[0], text, variant=variant + n, path=f"{path}[]", sparse=sparse) for n in range(2)]
        return origin(items)
    if origin is not None and issubclass(origin, Mapping):
        return {text(f"{path}{{}}"): make(args[1], text, variant=variant, path=f"{path}{{}}", sparse=sparse)}
    if is_dataclass(cls):
        hints = typing.get_type_hints(cls)
        made: Any = cls
        return made(
            **{
                f.name: make(hints[f.name], text, variant=variant, path=f"{path}.{f.name}", sparse=sparse)
                for f in fields(cls)
                if f.init and not _left_out(f, path, sparse)
            }
        )
    if isinstance(cls, type) and issubclass(cls, Enum):
        members = list(cls)
        return members[variant % len(members)]
    if cls is bool:
        return variant % 2 == 0
    if cls in (int, float):
        return cls(variant + 1)
    if cls in (str, object, Any):
        return text(path)
    msg = f"{path}: no example for {cls}"
    raise TypeError(msg)


def _left_out(field: Any, path: str, sparse: int) -> bool:
    has_default = field.default is not MISSING or field.default_factory is not MISSING
    return bool(sparse and has_default and random.Random(f"{sparse}{path}.{field.name}").random() < 0.4)  # noqa: S311


def string_fields(cls: Any, path: str = "") -> Iterator[str]:
    """The paths of all strings in a record of this type."""
    seen: list[str] = []

    def note(place: str) -> str:
        seen.append(place)
        return "x"

    make(cls, note, path=path)
    return iter(dict.fromkeys(seen))
