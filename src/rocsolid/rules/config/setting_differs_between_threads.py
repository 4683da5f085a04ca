"""A compiler setting has different values in different threads.

## What it does
In a running program, compares this thread's value with the value in a new thread, and with the values that other
threads and tasks have assigned. Needs torch 2.12 or later; before that, assignments applied to the whole process.

## Why it matters
Since torch 2.12, an assignment to a config module is visible only in the thread or task that made it. If a server
assigns settings at start-up in the main thread and calls the model in a worker thread, the worker compiles with the
defaults or with values from the environment. There is no warning.

## Example
    torch._inductor.config.max_autotune = False     # main thread
    ThreadPoolExecutor().submit(model, x)           # compiles with the default instead

## Use instead
    model = rs.compile(model, profile="safe")       # its settings apply in every thread

## When to allow it
When only this thread compiles.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment
from rocsolid.model.evidence import measured, source
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="CFG009",
    name="setting-differs-between-threads",
    severity=Severity.WARNING,
    message="`{subject}` is {value} in this thread and {other_value} in {other_threads}",
    why="Since torch 2.12, an assignment is visible only in the thread or task that made it. Code that is compiled in another thread ignores it.",
    fix="Use rs.compile, whose settings apply in every thread. Or set the value for the whole process, until it ends: rs.apply(plan).keep() or rs.guard().keep()",
    check="rs.check(rs.probe())   (in the thread that compiles)",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu", "A value assigned in the main thread was not visible in a worker thread."
        ),
        source(
            "torch 2.13 utils/_config_module.py user_override", "The assigned value is stored in a context variable."
        ),
    ),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every setting with different values in different threads of this process."""
    for name, observed in env.settings.items():
        if observed.other_threads and not observed.alias_of:
            yield RULE.found(
                name,
                value=repr(observed.value),
                other_value=repr(observed.other_thread_value),
                other_threads=observed.other_threads,
            )
