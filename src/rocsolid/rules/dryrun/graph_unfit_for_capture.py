"""An operation keeps a graph from being captured.

## What it does
Asks torch of each lowered graph whether it holds an operation that a device graph cannot: one on the CPU, one whose result's size
depends on values, one that waits for the device.

## Why it matters
`reduce-overhead` falls back to plain launches without an error, and a capture of the whole call fails.

## Example
    positions = mask.nonzero()            # how many there are is known on the device only

## Use instead
    torch.where(mask, a, b)               # the size does not depend on values

## When to allow it
When the model is never captured.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity

RULE = Rule(
    code="DRY011",
    name="graph-unfit-for-capture",
    severity=Severity.WARNING,
    message="{graph} on {target} cannot be captured: {reason}",
    why="`reduce-overhead` falls back to plain launches without an error, and a capture of the whole call fails.",
    fix="keep the operation out of the compiled part, or write it with sizes that do not depend on values",
    check="rocsolid dryrun says that the graph is fit for capture",
    since="0.1",
    evidence=(
        source(
            "torch 2.13 _inductor/utils.py get_first_incompatible_cudagraph_node",
            "torch's own list of such operations.",
        ),
    ),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """Every operation that keeps a graph from being captured."""
    for graph in run.graphs:
        for number, blocker in enumerate(graph.capture_blockers):
            yield RULE.found(
                f"{run.target} {graph.name}" + (f" {number + 1}" if number else ""),
                place=blocker.location,
                graph=f"{graph.name} ({graph.kind})",
                reason=blocker.reason,
                target=run.target,
            )
