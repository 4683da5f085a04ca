"""A compiled graph has so many operations that instantiating the HIP graph captured from it overflows the stack.

## What it does
Counts the kernel launches and library calls of each compiled graph. A HIP graph captured from it has at least that many
nodes.

## Why it matters
ROCm 7.0 to 7.13 traverses a graph recursively. With a stack of 8 MB, 20,000 nodes work and 25,000 crash the process.

## Example
    for _ in range(10_000): x = step(x)   # unrolled into one graph

## Use instead
Capture a part and replay it several times, or raise the stack limit with `ulimit -s 65536` before the process starts.

## When to allow it
On ROCm 7.14 and later.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import issue
from rocsolid.model.finding import Finding, Rule, Severity

MAX_NODES = 20_000

RULE = Rule(
    code="DRY009",
    name="too-many-graph-nodes",
    severity=Severity.CRITICAL,
    message="{graph} on {target} has {nodes} operations, too many for one captured graph",
    why="On ROCm 7.0 to 7.13, instantiating a graph with more than 20,000 nodes overflows a stack of 8 MB.",
    fix="Capture a part and replay it several times, or run ulimit -s 65536 before the process starts.",
    check="rocsolid dryrun FILE.py:FUNCTION --target {target}   (after the fix, no graph has more than 20,000 operations)",
    since="0.1",
    evidence=(issue("ROCm/rocm-systems#2876", "Removes the two recursions that overflow the stack."),),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """Graphs with more than 20,000 nodes on an AMD target."""
    for graph in run.graphs:
        if run.target.startswith("gfx") and graph.nodes > MAX_NODES:
            subject = f"{run.target} {graph.name}"
            yield RULE.found(subject, graph=f"{graph.name} ({graph.kind})", nodes=graph.nodes, target=run.target)
