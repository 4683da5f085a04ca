"""One rank is slower than the others, and they wait for it.

## What it does
Compares ranks that were traced together: which one computes longest, and which one waits longest in collectives.

## Why it matters
A collective ends when the last rank arrives, so all devices are as slow as the slowest.

## Example
    rank 3 computes for 92 ms; the others compute for 81 ms and then wait

## Use instead
Look at that rank alone: the clocks of its GPU (rocm-smi, nvidia-smi), its data, its share of the experts.

## When to allow it
When ranks have different work by design, such as pipeline stages.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import Ranks

_MIN_RATIO = 1.05  # to the median

RULE = Rule(
    code="TRC012",
    name="rank-straggler",
    severity=Severity.WARNING,
    message="{subject} computes for {slowest_ms:.2f} ms; the median of {count} ranks is {median_ms:.2f} ms",
    why="The other ranks wait for it in collectives, up to {waiting_ms:.2f} ms.",
    fix="Look at that rank alone: clocks and temperature of its device, its data, its share of the work.",
    check="rocsolid trace DIR --ranks   (after the fix, all ranks compute for about the same time)",
    since="0.1",
)


def check_ranks(ranks: Ranks) -> Iterator[Finding]:
    """Report a rank that is at least 5 % slower than the median of three or more ranks."""
    times = sorted(row.compute_ns for row in ranks.rows)
    if len(times) < 3:  # noqa: PLR2004 - a median needs three ranks
        return
    slowest = max(ranks.rows, key=lambda row: row.compute_ns)
    median = times[len(times) // 2]
    if slowest.compute_ns >= _MIN_RATIO * median and median:
        yield RULE.found(
            f"rank {slowest.rank}",
            location=slowest.file,
            slowest_ms=slowest.compute_ns / 1e6,
            median_ms=median / 1e6,
            count=len(times),
            waiting_ms=max(row.exposed_ns for row in ranks.rows) / 1e6,
        )
