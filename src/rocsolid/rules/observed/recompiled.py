"""A function was compiled again for a call that an earlier compile did not fit.

## What it does
Tells each compile that was not the first of its function, with the guard that failed and what made it fail.

## Why it matters
A compile takes seconds to minutes, and happens inside the call that triggers it. After eight of them Dynamo gives up and the
function runs eagerly from then on.

## Example
    for step in range(100):
        compiled(x, 0.1 * step)                  # a new Python float each time

## Use instead
    for step in range(100):
        compiled(x, torch.tensor(0.1 * step))    # one graph for all

## When to allow it
When there are few variants and all are compiled before the program counts: train and eval, two batch sizes.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="BRK002",
    name="recompiled",
    severity=Severity.INFO,
    message="{function} was compiled again, for {seconds} s: {reason} ({guard})",
    why="The call that triggers a compile waits for it, and after eight compiles of a function Dynamo gives up.",
    fix="{fix}",
    check="run rocsolid compiles again with the same calls",
    since="0.1",
)
