"""A study as an evidence record: what the catalogue can cite as `measured`."""

from pathlib import Path
from typing import Any

from rocsolid.measure.evidence import evidence
from rocsolid.model.study import Finalist, Study


def evidence_of(study: Study) -> dict[str, Any]:
    """The record: where, when, with what, and a fact for each finalist and each value that was rejected."""
    tuned = study.best.tuned
    workload = study.workload.rpartition("/")[2]
    return evidence(
        what=f"variants of {workload} beside the profile {study.profile}, raced in fresh processes; ratios are times as fast "
        "as the start, with 95 % intervals widened by the noise between equal processes",
        command=f"rocsolid tune {workload} --profile {study.profile} --search {study.search}",
        date=tuned.date if tuned else "",
        **{name: study.where.get(name, "") for name in ("device", "arch", "torch", "python")},
        noise=round(study.noise, 5),
        facts={
            **{f.name: _raced(f) for f in study.finalists if f.against_start},
            **{t.name: {"rejected": t.kind, "reason": t.reason, "phase": t.phase} for t in study.rejected},
        },
    )


def citations(study: Study, record: Path) -> list[str]:
    """The lines that a setting in the catalogue can have among its evidence."""
    where = f"{study.where.get('device', '?')}, torch {study.where.get('torch', '?')}"
    workload = study.workload.rpartition("/")[2]
    lines = []
    for finalist in study.finalists:
        gain = finalist.against_start
        if gain:
            said = (
                f"{gain.speedup:.2f} times as fast as the start [{gain.low:.2f}, {gain.high:.2f}], {workload}, {where}."
            )
            lines.append(f'measured("{record.stem}#{finalist.name}", "{said}")')
    return lines + [
        f'measured("{record.stem}#{trial.name}", "{trial.kind.capitalize()}, {workload}, {where}.")'
        for trial in study.rejected
    ]


def _raced(finalist: Finalist) -> dict[str, Any]:
    gain, timing = finalist.against_start, finalist.timing
    if gain is None or timing is None:  # pragma: no cover - asked for raced ones only
        raise AssertionError
    return {
        "speedup": round(gain.speedup, 4),
        "low": round(gain.low, 4),
        "high": round(gain.high, 4),
        "verdict": gain.verdict.value,
        "median_ms": timing.median_ms,
        "rounds": finalist.rounds,
        "processes": finalist.processes,
        "break_even_calls": finalist.break_even_calls,
    }
