"""A check of rocsolid's raised an error.

## What it does
Reports that one of our own checks failed, with its traceback among the facts.

## Why it matters
What that check would have found is not known. The other checks have run.

## Example
A container mounts a file where a folder is expected, and a check did not foresee it.

## Use instead
Nothing on your side. Send the report: `rocsolid probe --output json` holds the traceback.

## When to allow it
Never; it is a mistake of ours.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="INT001",
    name="check-crashed",
    severity=Severity.WARNING,
    message="the check {subject} ({name}) raised {error}",
    why="What it would have found is not known; the other checks have run.",
    fix="Report it with the output of `rocsolid probe --output json`, which holds the traceback.",
    check="Run `rocsolid probe` again.",
    since="0.1",
)
