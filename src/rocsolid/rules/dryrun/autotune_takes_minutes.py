"""The search for the fastest kernel compiles so many that it takes minutes.

## What it does
Counts what autotuning would try for each operation, and takes the compile time of those that the dry run compiled.

## Why it matters
Each choice is compiled and then measured, in every process that finds no cache. On ROCm the search has also hung.

## Example
    torch.compile(model, mode="max-autotune")

## Use instead
    torch.compile(model)                  # then measure whether the search gains anything: `rocsolid tune`

## When to allow it
When the cache travels with the program and the gain was measured.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity

_MINUTE = 60.0
_A_CHOICE_S = (
    1.0  # where none was compiled: what a matrix template took on gfx942 when the facts were gathered, rounded down
)

RULE = Rule(
    code="DRY010",
    name="autotune-takes-minutes",
    severity=Severity.WARNING,
    message="autotuning for {target} would try {choices} kernels for {searches} operations: about {seconds:.0f} s of compiling on one core",
    why="Each is compiled and then measured, in every process that finds no cache.",
    fix="leave the mode at default, or keep the cache with the program",
    check="rocsolid dryrun without --mode max-autotune",
    since="0.1",
    evidence=(source("torch 2.13 _inductor/select_algorithm.py", "Every choice is compiled before one is kept."),),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """One finding for all searches of a run, when they cost a minute or more."""
    compiled = sum(search.compiled for search in run.searches)
    choices = sum(search.choices for search in run.searches)
    each = sum(search.seconds for search in run.searches) / compiled if compiled else _A_CHOICE_S
    if choices * each >= _MINUTE:
        yield RULE.found(
            run.target, target=run.target, choices=choices, searches=len(run.searches), seconds=choices * each
        )
