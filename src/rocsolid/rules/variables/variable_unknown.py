"""An environment variable of a known family that no library we know reads.

## What it does
Lists names that begin like a setting of torch, Triton, HIP or HSA and that occur in none of their sources.

## Why it matters
Often nothing: a program of yours may read it. Sometimes the name was right once and has gone.

## Example
    HIP_CACHE_LEVEL=2

## Use instead
Look it up in the release notes of the library it was meant for, or remove it.

## When to allow it
When a program of your own reads the name.
"""

from collections.abc import Iterator

from rocsolid.catalog.variables import WRONG_NAMES, family, is_read, similar_variables
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="ENV003",
    name="variable-unknown",
    severity=Severity.INFO,
    message="{subject} is set; no library we know reads that name",
    why="It looks like a setting of {family} and has probably no effect.",
    fix="unset {subject}, unless a program of yours reads it",
    check="env | grep {subject}",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every name in a family we hold in full that is neither read nor a recognisable mistake."""
    for name in env.variables:
        own = family(name)
        if own and own.complete and name not in WRONG_NAMES and not is_read(name) and not similar_variables(name):
            yield RULE.found(name, family=own.name)
