"""One rank is slower than the others, and they wait for it.

## What it does
Compares the ranks that were traced together: who computes longest, and who waits longest in collectives.

## Why it matters
A collective ends when the last rank arrives. All devices are then as slow as the slowest.

## Example
    rank 3 computes 92 ms, the others 81 ms and wait

## Use instead
    look at that rank alone: its clocks (rocm-smi, nvidia-smi), its data, its share of the experts

## When to allow it
When ranks have different work by design, such as the stages of a pipeline.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import Ranks

_RATIO = 1.05

RULE = Rule(
    code="TRC012",
    name="rank-straggler",
    severity=Severity.WARNING,
    message="{subject} computes {slowest_ms:.2f} ms, the median of {count} ranks {median_ms:.2f} ms",
    why="The other ranks wait for it in collectives: {waiting_ms:.2f} ms of exposed communication in the one that waits most.",
    fix="Look at that rank alone: clocks and temperature of its device, its data, its share of the work.",
    check="rocsolid trace DIR --ranks again: the ranks compute equally long",
    since="0.1",
)


def check_ranks(ranks: Ranks) -> Iterator[Finding]:
    """One twentieth slower than the median, among three ranks or more."""
    times = sorted(row.compute_ns for row in ranks.rows)
    if len(times) < 3:  # noqa: PLR2004 - of two, nobody is the exception
        return
    slowest = max(ranks.rows, key=lambda row: row.compute_ns)
    median = times[len(times) // 2]
    if slowest.compute_ns >= _RATIO * median and median:
        yield RULE.found(
            f"rank {slowest.rank}",
            location=slowest.file,
            slowest_ms=slowest.compute_ns / 1e6,
            median_ms=median / 1e6,
            count=len(times),
            waiting_ms=max(row.exposed_ns for row in ranks.rows) / 1e6,
        )
