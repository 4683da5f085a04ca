"""Captured code uses random numbers, seeds or the clock of the CPU.

## What it does
Reports `random.*`, `numpy.random.*`, `time.*`, and reads and writes of torch's generator state in a capture and in
functions called from it.

## Why it matters
The value from the CPU is read once and becomes part of the graph: every replay uses the same value. Before torch 2.10,
reading the state of the GPU's generator in a capture is an error.

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
When every replay should use the same value.
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
    message="`{subject}` in {where} is not repeated by replays",
    why="{why}",
    fix='Draw random numbers on the GPU (torch.rand(..., device="cuda")), or copy the value into a static tensor before each replay.',
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(issue("pytorch/pytorch#131782", "Reading the generator's seed in a capture is rejected."),),
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
    """Every such call. The project decides whether the function is captured."""
    if not any(word in source.text for word in ("random", "rng", "seed", "time")):
        return
    for sites in source.calls.values():
        for site in sites:
            if site.name in _STATE:
                why = "Before torch 2.10, using the GPU generator's state in a capture is an error; later it becomes a constant of the graph."
            elif site.name.startswith(_HOST):
                why = "The number is drawn once, and every replay uses the same number."
            elif site.name in _CLOCK and site.block is not None and site.block.captured:
                why = "The clock is read once, during the capture, and never during a replay."
            else:
                continue
            yield from match_in_region(site, Region.CAPTURED, why=why)
