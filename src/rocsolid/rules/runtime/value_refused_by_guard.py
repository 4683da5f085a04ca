"""A program asked for a compiler setting that the guard refuses on this platform.

## What it does
Tells, for every value that `rs.guard`, `rs.compile` or `rocsolid run` did not let through, which line asked for it, what it
asked for, and what it got.

## Why it matters
A protection that changes a program without a word is one more thing nobody can find. The program runs on, with the value that
is safe here.

## Example
    torch.compile(model, mode="reduce-overhead")       # on ROCm: Inductor's own capture is refused

## Use instead
    model = torch.compile(model)                       # then capture the whole call in one torch.cuda.graph

## When to allow it
When you have checked the value on your machine: leave the guard out, or override it for a test with `ROCSOLID_<SETTING>`.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="GRD001",
    name="value-refused-by-guard",
    severity=Severity.WARNING,
    message="{place} asked for {subject} = {asked} by {how}, and got {got}",
    why="{reason}",
    fix="{fix}",
    check="read guard.interventions, or the summary of rocsolid run",
    since="0.1",
)
