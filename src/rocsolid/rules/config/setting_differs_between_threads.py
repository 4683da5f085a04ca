"""A compiler setting has different values in different threads.

## What it does
In a running program, compares this thread's value with the value in a new thread, and with the values that other
threads and tasks have assigned. Needs torch 2.12 or later; before that, assignments applied to the whole process.

## Why it matters
Since torch 2.12, an assignment to a config module is visible only in the context that made it. A server that sets its
config at start-up and compiles in a worker thread compiles with the defaults, or with values from the environment, and
gets no warning.

## Example
    torch._inductor.config.max_autotune = False     # main thread
    ThreadPoolExecutor().submit(model, x)           # compiles without it

## Use instead
    model = rs.compile(model, profile="safe")       # the values belong to the function, in every thread

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
    message="`{subject}` is {value} in this thread and {elsewhere} in {where}",
    why="Since torch 2.12, an assignment is visible only in the thread or task that made it. Code compiled elsewhere ignores it.",
    fix="Attach it to the function with rs.compile, or set it for all threads: rs.apply(plan).keep() or rs.guard().keep()",
    check="rs.check(rs.probe())   (in the thread that compiles)",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu", "A value assigned in the main thread was not seen by a worker thread."
        ),
        source("torch 2.13 utils/_config_module.py user_override", "A context variable."),
    ),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every setting with different values in different threads of this process."""
    for name, observed in env.settings.items():
        if observed.other_threads and not observed.alias_of:
            yield RULE.found(
                name,
                value=repr(observed.value),
                elsewhere=repr(observed.other_thread_value),
                where=observed.other_threads,
            )
