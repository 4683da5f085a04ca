"""A study as an evidence record, which the catalogue can cite as `measured`."""

from pathlib import Path
from typing import Any

from rocsolid.measure.evidence import evidence
from rocsolid.model.study import Finalist, Study


def study_evidence(study: Study) -> dict[str, Any]:
    """Return the record: machine, date, command, and one fact for each finalist and each rejected variant."""
    tuning_record = study.best.tuned
    workload = study.workload.rpartition("/")[2]
    return evidence(
        what=f"variants of {workload} compared with the baseline (profile {study.profile}) in fresh processes; a speedup is how many "
        "times as fast as the baseline a variant is, with a 95 % interval; the more processes that run the same variant differ, the wider it is",
        command=f"rocsolid tune {workload} --profile {study.profile} --search {study.search}",
        date=tuning_record.date if tuning_record else "",
        **{name: study.machine.get(name, "") for name in ("device", "arch", "torch", "python")},
        noise=round(study.noise, 5),
        facts={
            **{f.name: _finalist_fact(f) for f in study.finalists if f.against_baseline},
            **{t.name: {"rejected": t.kind, "reason": t.reason, "phase": t.phase} for t in study.rejected},
        },
    )


def citations(study: Study, record: Path) -> list[str]:
    """Return the lines that a setting in the catalogue can list as its evidence."""
    machine = f"{study.machine.get('device', '?')}, torch {study.machine.get('torch', '?')}"
    workload = study.workload.rpartition("/")[2]
    lines = []
    for finalist in study.finalists:
        gain = finalist.against_baseline
        if gain:
            text = f"{gain.speedup:.2f} times as fast as the baseline [{gain.low:.2f}, {gain.high:.2f}], {workload}, {machine}."
            lines.append(f'measured("{record.stem}#{finalist.name}", "{text}")')
    return lines + [
        f'measured("{record.stem}#{trial.name}", "{trial.kind.capitalize()}, {workload}, {machine}.")'
        for trial in study.rejected
    ]


def _finalist_fact(finalist: Finalist) -> dict[str, Any]:
    gain, timing = finalist.against_baseline, finalist.timing
    if gain is None or timing is None:  # pragma: no cover - called for finalists with a comparison only
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
