"""A comment allows a hazard and does not say why.

## What it does
Reports `# rocsolid: allow[...]` comments that have no words after the bracket. Such a comment allows nothing.

## Why it matters
A year later nobody knows whether the hazard was understood or only silenced.

## Example
    loss = out.item()  # rocsolid: allow[host-sync-in-captured-region]

## Use instead
    loss = out.item()  # rocsolid: allow[host-sync-in-captured-region] runs once, before the capture

## When to allow it
Never; write the reason.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="SRC901",
    name="allow-without-reason",
    severity=Severity.WARNING,
    message="the comment allows {subject} and gives no reason, so it allows nothing",
    why="What was silenced without a reason cannot be judged later.",
    fix="Assignment the reason after the bracket, or remove the comment.",
    check="rocsolid lint",
    since="0.1",
)
