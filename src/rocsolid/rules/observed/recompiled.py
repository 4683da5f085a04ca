"""A function was compiled again because a Dynamo guard failed.

## What it does
Lists the compiles after the first one of a function by cause, with the guard that failed first.

## Why it matters
A compile takes seconds to minutes, and the call that triggers it waits. After eight compiles, Dynamo stops compiling
the function and runs it in eager.

## Example
    for step in range(100):
        compiled(x, 0.1 * step)                  # a new Python float each time

## Use instead
    for step in range(100):
        compiled(x, torch.tensor(0.1 * step))    # one compiled graph for all steps

## When to allow it
When there are few variants, such as train and eval or two batch sizes, and all of them are compiled during warm-up.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="BRK002",
    name="recompiled",
    severity=Severity.INFO,
    message="{function} was recompiled {times}({seconds} s): {reason}; failed guard: {guard}",
    why="The call that triggers a compile waits for it. After eight compiles of a function, Dynamo stops compiling it and runs it in eager.",
    fix="{fix}",
    check="rocsolid compiles FILE.py:FUNCTION   (with the same calls)",
    since="0.1",
)
