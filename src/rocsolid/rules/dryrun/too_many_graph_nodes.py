"""A graph has so many operations that instantiating its capture overflows the stack.

## What it does
Counts the launches and library calls of each graph: a capture of it has at least as many nodes.

## Why it matters
ROCm 7.0 to 7.13 walks a graph by recursion. With a stack of 8 MB, 20,000 nodes pass and 25,000 end the process.

## Example
    for _ in range(10_000): x = step(x)   # unrolled into one graph

## Use instead
Capture a part and replay it several times, or raise the stack with `ulimit -s 65536` before the process starts.

## When to allow it
On ROCm 7.14 and later.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import issue
from rocsolid.model.finding import Finding, Rule, Severity

MOST_NODES = 20_000

RULE = Rule(
    code="DRY009",
    name="too-many-graph-nodes",
    severity=Severity.CRITICAL,
    message="{graph} on {target} has {nodes} operations",
    why="Instantiating a graph of more than 20,000 nodes overflows a stack of 8 MB on ROCm 7.0 to 7.13.",
    fix="capture a part and replay it several times, or ulimit -s 65536 before the process starts",
    check="rocsolid dryrun shows at most 20,000 operations in a graph",
    since="0.1",
    evidence=(issue("ROCm/rocm-systems#2876", "Removes the two recursions that overflow the stack."),),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """Graphs over the limit."""
    for graph in run.graphs:
        if run.target.startswith("gfx") and graph.nodes > MOST_NODES:
            where = f"{run.target} {graph.name}"
            yield RULE.found(where, graph=f"{graph.name} ({graph.kind})", nodes=graph.nodes, target=run.target)
