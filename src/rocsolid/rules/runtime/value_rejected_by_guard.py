"""The guard rejected a compiler setting that is unsafe on this platform.

## What it does
Lists every value that `rs.guard`, `rs.compile` or `rocsolid run` rejected: the line that set it, the requested value,
and the value used instead.

## Why it matters
The program continues with a value that is safe here. The finding shows which value was replaced, so that the change is
not silent.

## Example
    torch.compile(model, mode="reduce-overhead")       # on ROCm: the guard rejects Inductor's own graph capture

## Use instead
    model = torch.compile(model)                       # then capture the whole call with rs.capture(model)

## When to allow it
When you have checked the value on your machine: run without the guard, or set the value for a test with
`ROCSOLID_<SETTING>`.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="GRD001",
    name="value-rejected-by-guard",
    severity=Severity.WARNING,
    message="`{subject} = {requested}` was rejected; {used} is used (set by {how} at {location})",
    why="{reason}",
    fix="{fix}",
    check="rocsolid run your_script.py   (lists rejected values; in a program: guard.interventions)",
    since="0.1",
)
