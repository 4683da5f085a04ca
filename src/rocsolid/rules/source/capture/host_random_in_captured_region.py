"""Captured code reads random numbers, seeds or the clock of the host.

## What it does
Reports `random.*`, `numpy.random.*`, `time.*`, and reads and writes of torch's generator state in the body of a capture and in
functions it leads to.

## Why it matters
The host's value is read once and is part of the graph from then on: every replay uses the same one. Reading the state of
the device's generator in a capture is an error before torch 2.10.

## Example
    import random

    import torch

    with torch.cuda.graph(graph):
        out = model(x) * random.random()

## Use instead
    import torch

    with torch.cuda.graph(graph):
        out = model(x) * torch.rand((), device="cuda")

## When to allow it
When the value is meant to be the same in every replay.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import issue
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Region, Source, SourceMatch
from rocsolid.rules.source.syntax import match_in_region

RULE = Rule(
    code="SRC204",
    name="host-random-in-captured-region",
    severity=Severity.CRITICAL,
    message="{subject} is called in {where}",
    why="{why}",
    fix="Draw random numbers on the device, which a graph replays anew, or write the value into a static tensor before each replay.",
    check="rocsolid explain rng-state-read-in-capture",
    since="0.1",
    evidence=(issue("pytorch/pytorch#131782", "Reading the generator's seed in a capture is refused."),),
)
_STATE = frozenset(
    {
        "torch.cuda.get_rng_state",
        "torch.cuda.set_rng_state",
        "torch.cuda.initial_seed",
        "torch.cuda.manual_seed",
        "torch.cuda.manual_seed_all",
        "torch.cuda.seed",
        "torch.manual_seed",
        "torch.seed",
    }
)
_HOST = ("random.", "numpy.random.")
_CLOCK = frozenset({"time.time", "time.perf_counter", "time.monotonic", "time.time_ns", "time.perf_counter_ns"})


def check(source: Source) -> Iterator[SourceMatch]:
    """Every such call; whether the function is captured is for the project to say."""
    if not any(word in source.text for word in ("random", "rng", "seed", "time")):
        return
    for sites in source.calls.values():
        for site in sites:
            if site.name in _STATE:
                why = "Before torch 2.10 the state of the device's generator may not be touched in a capture; later it is frozen into it."
            elif site.name.startswith(_HOST):
                why = "The number is drawn once and repeated by every replay."
            elif site.name in _CLOCK and site.block is not None and site.block.captured:
                why = "The clock is read once, while the graph is captured, and never during a replay."
            else:
                continue
            yield from match_in_region(site, Region.CAPTURED, why=why)
