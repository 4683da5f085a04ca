"""An `allow` comment gives no reason.

## What it does
Reports `# rocsolid: allow[...]` comments without text after the bracket. Such a comment has no effect.

## Why it matters
Without a reason, a later reader cannot know whether the hazard was understood or only silenced.

## Example
    loss = out.item()  # rocsolid: allow[host-sync-in-captured-region]

## Use instead
    loss = out.item()  # rocsolid: allow[host-sync-in-captured-region] runs once, before the capture

## When to allow it
Never. Write the reason.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="SRC901",
    name="allow-without-reason",
    severity=Severity.WARNING,
    message="`allow[{subject}]` has no effect, because it gives no reason",
    why="Without a reason, a later reader cannot know whether the hazard was understood or only silenced.",
    fix="Write the reason after the bracket (`# rocsolid: allow[{subject}] reason`), or remove the comment.",
    check="rocsolid lint {file}",
    since="0.1",
)
