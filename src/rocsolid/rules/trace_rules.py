"""Check traces: each file, each device in it, and all ranks together."""

import importlib
import pkgutil
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from rocsolid.model.finding import Finding, Rule, worst_first
from rocsolid.model.trace import Ranks, TraceFile
from rocsolid.rules import check_crashed, traces

# These rules also check the file as a whole, without a device.
_FILE_RULES = ("TRC008", "TRC010")


@cache
def _checks(name: str) -> tuple[tuple[Rule, Callable[..., Iterable[Finding]]], ...]:
    checks = []
    for info in pkgutil.iter_modules(traces.__path__, f"{traces.__name__}."):
        module = vars(importlib.import_module(info.name))
        if name in module:
            checks.append((module["RULE"], module[name]))
    return tuple(sorted(checks, key=lambda pair: pair[0].code))


def check_traces(files: Iterable[TraceFile], ranks: Ranks | None = None) -> list[Finding]:
    """All findings about these trace files, worst first."""
    findings: list[Finding] = []
    for file in files:
        for rule, check in _checks("check_trace"):
            if rule.code in _FILE_RULES:
                findings += _run(rule, check, file, None)
            for device in file.devices:
                findings += _run(rule, check, file, device)
    for rule, check in _checks("check_ranks"):
        findings += _run(rule, check, ranks) if ranks else ()
    return worst_first(findings)


def _run(rule: Rule, check: Callable[..., Iterable[Finding]], *checked: Any) -> Iterator[Finding]:  # noqa: ANN401 - files, devices, ranks
    try:
        yield from list(check(*checked))
    except Exception as crash:  # noqa: BLE001 - an error in one check must not hide the others
        yield check_crashed.RULE.found(
            rule.code, name=rule.name, error=f"{type(crash).__name__}: {crash}", trace=traceback.format_exc()
        )
