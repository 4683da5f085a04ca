"""An environment variable looks like a setting of a known library, but no known library reads it.

## What it does
Lists names that begin like a setting of torch, Triton, HIP or HSA but do not occur in their sources.

## Why it matters
This is often harmless: a program of yours may read the variable. Sometimes an older release read it and newer ones do
not.

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
    why="It looks like a setting of {library}, and probably has no effect.",
    fix="unset {subject}   (unless a program of yours reads it)",
    check="env | grep {subject}",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every variable whose name begins like those of a library, although that library does not read it.

    Only for libraries all of whose names are known. Likely misspellings are left to ENV002.
    """
    for name in env.variables:
        library = family(name)
        if (
            library
            and library.complete
            and name not in WRONG_NAMES
            and not is_read(name)
            and not similar_variables(name)
        ):
            yield RULE.found(name, library=library.name)
