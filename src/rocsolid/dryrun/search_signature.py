"""Finds a signature of a kernel that Triton accepts.

The inferred signatures are tried first. Then single arguments are changed, as long as Triton's error moves to a later line.
"""

import ast
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from rocsolid.dryrun.infer_signature import (
    ProjectSource,
    descriptor_arguments,
    independent_statement,
    infer,
    smaller,
    variants,
)
from rocsolid.dryrun.request import KernelSignature
from rocsolid.dryrun.resource_usage import widest_block

_MAX_INFERRED: Final = 12
_MAX_CHECKS: Final = 300
_SEARCH_S: Final = 30.0
_MAX_WORK: Final = 16384  # values that each thread computes; more take minutes to compile
_WARP, _WARPS = 32, 4


@dataclass(frozen=True, kw_only=True)
class _Refused:
    """A signature that Triton does not accept, and the lines of its error: in the kernel, and in each device function."""

    signature: KernelSignature
    reason: str
    lines: tuple[float, ...]


@dataclass(kw_only=True)
class _Checks:
    """Counts the checks; `run` returns the intermediate code or the error, or None when there were too many."""

    check: Callable[[KernelSignature], str]
    left: int = _MAX_CHECKS

    def __post_init__(self) -> None:
        self._ends = time.monotonic() + _SEARCH_S

    def run(self, signature: KernelSignature) -> "str | _Refused | None":
        if self.left <= 0 or time.monotonic() > self._ends:
            return None
        self.left -= 1
        try:
            return self.check(signature)
        except Exception as error:  # noqa: BLE001 - any error means that the signature is wrong
            return _Refused(signature=signature, reason=_last_line(error), lines=_lines(error))


def search_signature(
    node: ast.FunctionDef, project: ProjectSource, decorated: list[str], check: Callable[[KernelSignature], str]
) -> KernelSignature | str:
    """Return a signature that `check` accepts, or why there is none. `check` returns Triton's intermediate code or raises.

    `decorated` are the constants that autotuners and heuristics set.
    """
    checks = _Checks(check=check)
    furthest: _Refused | None = None
    for signature in islice(infer(node, project, decorated), _MAX_INFERRED):
        result = checks.run(signature)
        if isinstance(result, str):
            return _smaller(signature, result, checks)
        if result and (furthest is None or result.lines > furthest.lines):
            furthest = result
    descriptors = descriptor_arguments(node, project)
    if descriptors and furthest and "has no attribute" in furthest.reason:
        names = ", ".join(f"`{name}`" for name in descriptors)
        return (
            f"takes tensor descriptors ({names}) whose block shape is unknown: no launch and no pre_hook shows it."
            f" Give it: --kernel '{node.name}({descriptors[0]}=tensordesc<bf16[64, 64]>, …)'"
        )
    tried = furthest
    while tried:
        furthest, tried = tried, None
        too_large = "maximum tensor numel" in furthest.reason
        shorter = [candidate for _, candidate in smaller(furthest.signature)] if too_large else []
        for signature in chain(shorter, variants(furthest.signature, node, project, int(furthest.lines[0]))):
            result = checks.run(signature)
            if isinstance(result, str):
                return _smaller(signature, result, checks)
            if result is None or result.lines > furthest.lines:
                tried = result
                break
    return _why_none(node, furthest)


def _why_none(node: ast.FunctionDef, furthest: _Refused | None) -> str:
    if furthest is None:
        return "no signature found that Triton accepts: it has no arguments"
    if len(furthest.lines) == 1 and (statement := independent_statement(node, int(furthest.lines[0]))):
        return f"Triton does not accept `{statement}`, whatever the arguments are: {furthest.reason}"
    return f"no signature found that Triton accepts: {furthest.reason}"


def _smaller(signature: KernelSignature, code: str, checks: _Checks) -> KernelSignature:
    """Shorten assumed blocks and unrolled loops until the kernel compiles in reasonable time."""
    cost = _cost(signature, code)
    kept: set[str] = set()  # shortening these did not help
    while cost > 1:
        for name, candidate in smaller(signature):
            if name in kept:
                continue
            result = checks.run(candidate)
            if isinstance(result, str) and _cost(candidate, result) < cost:
                signature, cost = candidate, _cost(candidate, result)
                break
            kept.add(name)
        else:
            break
    return signature


def _cost(signature: KernelSignature, code: str) -> float:
    threads = signature.options.get("num_warps", _WARPS) * _WARP
    return sum(max(widest_block(line) / threads, 1) for line in code.splitlines()) / _MAX_WORK


def _lines(error: BaseException | None) -> tuple[float, ...]:
    """The lines of Triton's chain of errors. An error without a line comes after the last line, and code that MLIR rejects before the first."""
    if "error encountered during parsing" in str(error):
        return (0.0,)
    lines = []
    while error is not None:
        node = getattr(error, "node", None)
        # The types of a block are compared at its end, the bounds of a loop at its beginning.
        block = isinstance(node, (ast.For, ast.While, ast.If)) and "bounds" not in str(error)
        line = getattr(node, "end_lineno" if block else "lineno", None)
        if line is not None:
            lines.append(float(line))
        error = error.__cause__
    return tuple(lines) or (float(1 << 30),)


def _last_line(error: BaseException) -> str:
    """The last line of a chain of Triton's errors, which quote the kernel."""
    while isinstance(error.__cause__, BaseException):
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and set(line.strip()) != {"^"}]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]
