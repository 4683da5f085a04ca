"""An `allow` comment matches no finding.

## What it does
Reports `# rocsolid: allow[...]` comments in lines without a finding of that rule.

## Why it matters
The hazard was fixed, or the rule's name in the comment is misspelled. If the comment stays, it would hide a new finding
in that line.

## Example
    total = a + b  # rocsolid: allow[host-sync-in-captured-region] the sum is needed

## Use instead
    total = a + b

## When to allow it
When you also check the code with another release of rocsolid that does report the hazard.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="SRC902",
    name="unused-allow",
    severity=Severity.INFO,
    message="`allow[{subject}]` has no effect: there is no such finding in this line",
    why="The hazard was fixed, or the rule's name in the comment is misspelled.",
    fix="Remove the comment, or correct the name (`rocsolid explain rules` lists all names).",
    check="rocsolid lint {file}",
    since="0.1",
)
