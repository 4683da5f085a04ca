"""A rocsolid check crashed.

## What it does
Reports an exception in one of rocsolid's own checks. The finding's facts contain the traceback.

## Why it matters
The crashed check reported nothing, so its hazard may be present. All other checks ran.

## Example
A container has a file in a place where the check expects a folder.

## Use instead
There is nothing to change in your program. Please open an issue with the output of `rocsolid probe --output json`,
which contains the traceback.

## When to allow it
Never. It is a bug in rocsolid.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="INT001",
    name="check-crashed",
    severity=Severity.WARNING,
    message="rocsolid's check {subject} ({name}) crashed: {error}",
    why="This check reported nothing, so its hazard may be present. All other checks ran.",
    fix="Open an issue with the output of `rocsolid probe --output json`, which contains the traceback.",
    check="rocsolid probe",
    since="0.1",
)
