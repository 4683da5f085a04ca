"""What a check is: a program that runs in a child process and yields a verdict for each of its claims."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from rocsolid.catalog.claims import by_check, rocm_claims
from rocsolid.model.environment import Environment
from rocsolid.model.proof import Claim, ClaimResult, ClaimVerdict, Prediction

# A checkout or an unpacked bundle. An installed wheel has no guides, experiments and tests; their checks cannot run there.
KIT: Final = Path(os.environ.get("ROCSOLID_KIT") or Path(__file__).parents[3])
GUIDES: Final = KIT / "docs/data/guides.json"


class CannotDecide(Exception):  # noqa: N818 - not an error: the verdict is `could not run`, with this text
    """The program cannot decide the claims here."""


class NotApplicable(Exception):  # noqa: N818 - the verdict is `not applicable`, with this text
    """The claims are about something that is not here."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The claims that a check must decide, on this machine."""

    claims: tuple[Claim, ...]
    argument: str  # the part of the check's name after the colon
    env: Environment


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a program saw: whether the statement holds, and the values."""

    holds: bool
    detail: str
    values: Mapping[str, object] = field(default_factory=dict)
    predictions: tuple[Prediction, ...] = ()


Program = Callable[[Task], "Iterable[ClaimResult] | Seen"]
P = TypeVar("P", bound=Program)


@dataclass(frozen=True, kw_only=True)
class Check:
    """A program, and how the runner treats it."""

    name: str  # before the colon
    decides: str  # what its verdict means
    program: Program
    rank: int  # checks with a lower rank run first
    estimate_s: float
    deadline_s: float
    gpu: bool = False  # needs a GPU; such checks run one at a time


CHECKS: dict[str, Check] = {}


def check(
    name: str, decides: str, *, rank: int, estimate_s: float = 10.0, deadline_s: float = 120.0, gpu: bool = False
) -> Callable[[P], P]:
    """Declare the function below as the program of a check."""

    def declare(program: P) -> P:
        CHECKS[name] = Check(
            name=name,
            decides=decides,
            program=program,
            rank=rank,
            estimate_s=estimate_s,
            deadline_s=deadline_s,
            gpu=gpu,
        )
        return program

    return declare


@cache
def all_claims() -> tuple[Claim, ...]:
    """Every claim that this installation knows."""
    guides = json.loads(GUIDES.read_text(encoding="utf-8")) if GUIDES.exists() else ()
    return rocm_claims(guides)


def load_checks() -> dict[str, Check]:
    """Return every check, by the part of its name before the colon."""
    from rocsolid.prove import costs, facts, gpu, problems, runtime, settings  # noqa: F401 - they declare the checks

    return CHECKS


def find_check(name: str) -> Check:
    """Return the check with this name; a known problem has a check of its own."""
    checks = load_checks()
    return checks.get(name) or checks[name.partition(":")[0]]


def run_check(name: str, env: Environment) -> Iterator[ClaimResult]:
    """Run the program of a check in this process, and yield a verdict for every claim."""
    declared = find_check(name)
    claims = tuple(by_check(all_claims())[name])
    try:
        if declared.gpu:
            _require_gpu()
        seen = declared.program(Task(claims=claims, argument=name.partition(":")[2], env=env))
        if isinstance(seen, Seen):
            verdict = ClaimVerdict.CONFIRMED if seen.holds else ClaimVerdict.REFUTED
            yield from _all(claims, verdict, seen.detail, seen.values, seen.predictions)
        else:
            yield from seen
    except NotApplicable as reason:
        yield from _all(claims, ClaimVerdict.NOT_APPLICABLE, str(reason))
    except CannotDecide as reason:
        yield from _all(claims, ClaimVerdict.COULD_NOT_RUN, str(reason))


def _require_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        msg = "no GPU"
        raise CannotDecide(msg)


def result(
    claim: Claim,
    verdict: ClaimVerdict | bool,  # noqa: FBT001 - a verdict, in short
    detail: str = "",
    predictions: tuple[Prediction, ...] = (),
    **seen: object,
) -> ClaimResult:
    """Return the verdict on a claim; True is confirmed, False refuted."""
    if isinstance(verdict, bool):
        verdict = ClaimVerdict.CONFIRMED if verdict else ClaimVerdict.REFUTED
    return ClaimResult(claim=claim.id, verdict=verdict, detail=detail, seen=seen, predictions=predictions)


def _all(
    claims: Iterable[Claim],
    verdict: ClaimVerdict,
    detail: str,
    seen: Mapping[str, object] | None = None,
    predictions: tuple[Prediction, ...] = (),
) -> Iterator[ClaimResult]:
    for claim in claims:
        yield ClaimResult(claim=claim.id, verdict=verdict, detail=detail, seen=seen or {}, predictions=predictions)


def in_kit(path: str) -> Path:
    """Return a file of the checkout or bundle; raises CannotDecide in an installed wheel."""
    file = KIT / path
    if not file.exists():
        msg = f"{path} is not installed: run the check in a checkout or with the bundle (rocsolid prove --bundle)"
        raise CannotDecide(msg)
    return file


def plain(value: Any) -> object:
    """Return a value that JSON holds without loss."""
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    return float(f"{value:.6g}") if isinstance(value, float) else str(value)
