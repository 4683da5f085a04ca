"""A comment allows a hazard that is not there.

## What it does
Reports `# rocsolid: allow[...]` comments that no finding answers to.

## Why it matters
The hazard has gone or its name is misspelled. Left behind, the comment would hide the next one.

## Example
    total = a + b  # rocsolid: allow[host-sync-in-captured-region] the sum is needed

## Use instead
    total = a + b

## When to allow it
When the code is also linted by another release of rocsolid that does find it.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="SRC902",
    name="unused-allow",
    severity=Severity.INFO,
    message="the comment allows {subject}, and there is no such finding in that line",
    why="The hazard has gone, or its name is misspelled.",
    fix="Remove the comment, or correct the name: `rocsolid explain rules` lists them.",
    check="rocsolid lint",
    since="0.1",
)
