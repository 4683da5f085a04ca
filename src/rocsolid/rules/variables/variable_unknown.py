"""An environment variable looks like a setting of a known library, but no known library reads it.

## What it does
Lists names that begin like a setting of torch, Triton, HIP or HSA but do not occur in their sources.

## Why it matters
It is often harmless: a program of yours may read it. Sometimes the name was valid once and has been removed.

## Example
    HIP_CACHE_LEVEL=2

## Use instead
Look it up in the release notes of the library, or remove it.

## When to allow it
When a program of yours reads the name.
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
    message="Environment variable {subject} is set, but no known library reads that name",
    why="It looks like a setting of {family}, and probably has no effect.",
    fix="unset {subject}   (unless a program of yours reads it)",
    check="env | grep {subject}",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every unread name in a family whose names are all known, unless it is a recognisable misspelling."""
    for name in env.variables:
        own = family(name)
        if own and own.complete and name not in WRONG_NAMES and not is_read(name) and not similar_variables(name):
            yield RULE.found(name, family=own.name)
