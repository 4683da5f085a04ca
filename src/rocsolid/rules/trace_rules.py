"""Check traces: each file, each device in it, and all ranks together."""

import importlib
import pkgutil
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DoubtKind, Ranks, TraceFile
from rocsolid.rules import check_crashed, traces
from rocsolid.rules.recoverable import most_time_first
from rocsolid.rules.traces import implausible_trace

# These rules also check the file as a whole, without a device.
_FILE_RULES = ("TRC008", "TRC010", "TRC013", "TRC016")
_TRUST_RULES = ("TRC008", "TRC013")  # about the trace itself
_BUSY_RULES = ("TRC004", "TRC009", "TRC011", "TRC014")  # built on the durations of single kernels


@cache
def _checks(name: str) -> tuple[tuple[Rule, Callable[..., Iterable[Finding]]], ...]:
    checks = []
    for info in pkgutil.iter_modules(traces.__path__, f"{traces.__name__}."):
        module = vars(importlib.import_module(info.name))
        if name in module:
            checks.append((module["RULE"], module[name]))
    return tuple(sorted(checks, key=lambda pair: pair[0].code))


def check_traces(files: Iterable[TraceFile], ranks: Ranks | None = None) -> list[Finding]:
    """All findings about these trace files, worst first, and those that can save the most time first."""
    findings: list[Finding] = []
    for file in files:
        first = len(findings)
        for rule, check in _checks("check_trace"):
            if rule.code in _FILE_RULES:
                findings += _run(rule, check, file, None)
            for device in file.devices:
                findings += _run(rule, check, file, device)
        findings[first:] = [_weakened(finding, file, findings[first:]) for finding in findings[first:]]
    for rule, check in _checks("check_ranks"):
        findings += _run(rule, check, ranks) if ranks else ()
    return most_time_first(findings)


def _weakened(finding: Finding, file: TraceFile, findings: Sequence[Finding]) -> Finding:
    """Return a finding as INFO, with the reason, when the trace that it is built on contradicts itself."""
    doubts = [f for f in findings if f.code == implausible_trace.RULE.code and _concerns(f, finding)]
    if finding.code in _TRUST_RULES or not doubts or finding.location != file.file:
        return finding
    strong = [doubt for doubt in doubts if doubt.severity > Severity.INFO]
    because = (strong or doubts)[0]
    why = f"{finding.why} Uncertain: {because.facts['problem']} ({because.code})."
    severity = min(finding.severity, Severity.INFO) if strong else finding.severity
    return replace(finding, severity=severity, why=why, cause=because.key)


def _concerns(doubt: Finding, finding: Finding) -> bool:
    """Return whether a doubt is about the device of a finding, and about what the finding is built on."""
    kind = doubt.facts["kind"]
    same_device = doubt.subject == "the trace" or f"{finding.subject},".startswith(f"{doubt.subject},")
    if kind == DoubtKind.NO_HOST_EVENTS.value or not same_device:
        return False
    return kind != DoubtKind.GAPS_IN_DURATIONS.value or finding.code in _BUSY_RULES


def _run(rule: Rule, check: Callable[..., Iterable[Finding]], *checked: Any) -> Iterator[Finding]:  # noqa: ANN401 - files, devices, ranks
    try:
        yield from list(check(*checked))
    except Exception as crash:  # noqa: BLE001 - an error in one check must not hide the others
        yield check_crashed.RULE.found(
            rule.code, name=rule.name, error=f"{type(crash).__name__}: {crash}", trace=traceback.format_exc()
        )
