"""Captured code uses the CPU's random numbers or clock, or the state of torch's random generator.

## What it does
Reports `random.*`, `numpy.random.*`, `time.*`, and calls that read or set the state of torch's random generator, in a
capture and in functions called from it.

## Why it matters
The value from the CPU is computed once and becomes a constant of the graph: every replay uses the same value. Before
torch 2.10, reading the state of the GPU's generator in a capture is an error.

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
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.captures import match_in_capture

RULE = Rule(
    code="SRC204",
    name="host-random-in-captured-region",
    severity=Severity.CRITICAL,
    message="`{subject}` in {where} does not run during a replay",
    why="{why}",
    fix="{fix}",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(issue("pytorch/pytorch#131782", "Reading the generator's seed in a capture is rejected."),),
)
_GENERATOR_STATE = frozenset(
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
_CPU_RANDOM = ("random.", "numpy.random.")
_OWNERS = ("torch.", "time.", *_CPU_RANDOM)
_CLOCK = frozenset({"time.time", "time.perf_counter", "time.monotonic", "time.time_ns", "time.perf_counter_ns"})


def check(source: Source) -> Iterator[SourceMatch]:
    """Calls that use random numbers, generator state or a clock. The linter decides later whether the function is captured."""
    if not any(word in source.text for word in ("random", "rng", "seed", "graph", "capture_begin")):
        return
    for sites in source.calls.values():
        for site in sites:
            if not site.name.startswith(_OWNERS):
                continue
            if site.name in _GENERATOR_STATE:
                why = "Before torch 2.10, using the GPU generator's state in a capture is an error. From 2.10 on, the state becomes a constant of the graph."
                fix = "Read or set the state before the capture, and let kernels draw their random numbers on the GPU."
            elif site.name.startswith(_CPU_RANDOM):
                why = "The number is drawn once, and every replay uses the same number."
                fix = 'Draw random numbers on the GPU (torch.rand(..., device="cuda")), or copy the value into a static tensor before each replay.'
            elif site.name in _CLOCK and site.block is not None and site.block.captured:
                why = "The clock is read once, during the capture, and never during a replay."
                fix = "Read the clock outside the capture, or time the replay with CUDA events: torch.cuda.Event(enable_timing=True)"
            else:
                continue
            yield from match_in_capture(site, source, why=why, fix=fix)
