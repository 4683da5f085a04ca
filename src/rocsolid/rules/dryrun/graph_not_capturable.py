"""An operation prevents the graph from being captured.

## What it does
Runs torch's own check on each compiled graph. It finds operations on the CPU, operations whose result size depends on
values, and operations that wait for the GPU.

## Why it matters
`reduce-overhead` silently falls back to normal launches, and a capture of the whole call fails.

## Example
    positions = mask.nonzero()            # the size of the result is known only on the GPU

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
    name="graph-not-capturable",
    severity=Severity.WARNING,
    message="{graph} on {target} cannot be captured: {reason}",
    why="`reduce-overhead` silently falls back to normal launches, and a capture of the whole call fails.",
    fix="{fix}",
    check="rocsolid dryrun FILE.py:FUNCTION --target {target}   (reports that the graph can be captured)",
    since="0.1",
    evidence=(
        source(
            "torch 2.13 _inductor/utils.py get_first_incompatible_cudagraph_node",
            "The operations that prevent a capture, as torch lists them.",
        ),
    ),
)


_CPU_FIX = "Move the tensor to the GPU before the compiled part."
_OTHER_FIX = "Keep the operation outside the compiled part, or rewrite it so that sizes do not depend on values."


def check_run(run: DryRun) -> Iterator[Finding]:
    """Every operation that prevents a capture."""
    for graph in run.graphs:
        for index, blocker in enumerate(graph.capture_blockers):
            yield RULE.found(
                f"{run.target} {graph.name}" + (f" {index + 1}" if index else ""),
                location=blocker.location,
                graph=f"{graph.name} ({graph.kind})",
                reason=blocker.reason,
                fix=_CPU_FIX if "CPU" in blocker.reason else _OTHER_FIX,
                target=run.target,
            )
