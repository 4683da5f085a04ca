"""How much time a fix can save: an interval, and the assumption behind its upper end."""

from collections.abc import Mapping
from typing import Any

from rocsolid.model.finding import Finding


def recoverable(low_ns: float, high_ns: float, assumption: str) -> Mapping[str, Any]:
    """Return the facts of a finding that state what can be saved."""
    low, high = max(0.0, low_ns) / 1e6, max(0.0, high_ns) / 1e6
    return {
        "recoverable_ms": (round(low, 6), round(high, 6)),
        "assumption": assumption,
        "gain": f"Recoverable: {low:.2f} to {high:.2f} ms; the most if {assumption}.",
    }


def most_time_first(findings: list[Finding]) -> list[Finding]:
    """Sort by severity, then by the time that can be saved. Findings that another one causes come last."""
    return sorted(findings, key=lambda f: (-f.severity, bool(f.cause), -_high(f), f.code, f.subject))


def _high(finding: Finding) -> float:
    interval = finding.facts.get("recoverable_ms")
    return float(interval[1]) if isinstance(interval, tuple) else 0.0
