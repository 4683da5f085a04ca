"""Autotuning compiles so many kernels that it takes minutes.

## What it does
Estimates the time: the number of kernels that autotuning would try, times the average compile time of the kernels that the dry run compiled.

## Why it matters
Each kernel is compiled and then measured, in every process without a warm cache. On ROCm, there are also reports of
autotuning that hangs.

## Example
    torch.compile(model, mode="max-autotune")

## Use instead
    torch.compile(model)                  # then measure whether autotuning gains anything: `rocsolid tune`

## When to allow it
When the compile cache is shipped with the program, and you have measured that autotuning makes it faster.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity

_MIN_REPORTED_S = 60.0
# Used when no kernel was compiled: the compile time of a matrix template, measured on gfx942 and rounded down.
_ASSUMED_COMPILE_S = 1.0

RULE = Rule(
    code="DRY010",
    name="autotune-takes-minutes",
    severity=Severity.WARNING,
    message="Autotuning for {target} would compile {kernels} kernels: about {seconds:.0f} s on one core",
    why="Each kernel is compiled and then measured, in every process without a warm cache. Autotuned operations: {operations}.",
    fix="Use the default mode, torch.compile(model), or ship the compile cache with the program.",
    check="rocsolid dryrun FILE.py:FUNCTION --target {target}   (without --mode max-autotune)",
    since="0.1",
    evidence=(source("torch 2.13 _inductor/select_algorithm.py", "Every choice is compiled before one is kept."),),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """One finding per run whose autotuning takes a minute or more."""
    compiled = sum(search.compiled for search in run.searches)
    choices = sum(search.choices for search in run.searches)
    compile_s = sum(search.seconds for search in run.searches) / compiled if compiled else _ASSUMED_COMPILE_S
    if choices * compile_s >= _MIN_REPORTED_S:
        yield RULE.found(
            run.target, target=run.target, kernels=choices, operations=len(run.searches), seconds=choices * compile_s
        )
