"""A setting is assigned in one thread, and another thread compiles.

## What it does
Reports an assignment to a torch config module in one thread when `torch.compile` is called in another.

## Why it matters
Since torch 2.12, an assignment is visible only in its own thread. A worker thread compiles with the defaults and the
values from the environment, as if the assignment did not exist. Options that are passed to `torch.compile` apply in
every thread.

## Example
    import threading

    import torch
    import torch._inductor.config as inductor_config

    inductor_config.max_autotune = False

    def serve():
        fast = torch.compile(model)
        fast(example)

    threading.Thread(target=serve).start()

## Use instead
    import threading

    import torch

    def serve():
        fast = torch.compile(model, options={"max_autotune": False})
        fast(example)

    threading.Thread(target=serve).start()

## When to allow it
When the code runs only on torch 2.11 or older.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Scope, Source, SourceMatch, is_within
from rocsolid.rules.source.settings import compile_calls, setting_changes
from rocsolid.rules.source.syntax import argument, match_at

RULE = Rule(
    code="SRC105",
    name="setting-assigned-in-another-thread",
    severity=Severity.WARNING,
    message="`{change}` does not apply in the thread that calls torch.compile",
    why="It is assigned {assigned_where}, and torch.compile is called {compiled_where}. Since torch 2.12, an assignment is visible only in its own thread.",
    fix="Pass the value to torch.compile as options=, or use rs.compile, whose settings apply in every thread.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#config-thread-local",
            "A value assigned in the main thread was not visible in a threading.Thread.",
        ),
        source_evidence("torch 2.12 utils/_config_module.py", "user_override is a ContextVar."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Assignments in one thread when every call of torch.compile is in another."""
    if "Thread" not in source.text and "submit" not in source.text and "run_in_executor" not in source.text:
        return
    threads = list(_thread_functions(source))
    if not threads:
        return
    compiling_scopes = [site.scope for site in compile_calls(source)]
    for change in setting_changes(source):
        if change.how != "assigned" or not compiling_scopes:
            continue
        assigning_thread = _thread_of(change.site.scope, threads)
        if all(_thread_of(scope, threads) is not assigning_thread for scope in compiling_scopes):
            assigned_where = (
                f"in the thread function {assigning_thread.name}" if assigning_thread else "outside the thread"
            )
            compiling_thread = _thread_of(compiling_scopes[0], threads)
            compiled_where = (
                f"in the thread function {compiling_thread.name}" if compiling_thread else "outside that thread"
            )
            yield match_at(
                change.site, change.id, change=change.text, assigned_where=assigned_where, compiled_where=compiled_where
            )


def _thread_of(scope: Scope, threads: list[Scope]) -> Scope | None:
    return next((thread for thread in threads if is_within(scope, thread)), None)


def _thread_functions(source: Source) -> Iterator[Scope]:
    """Functions of this file that are started in a thread."""
    starts = [(s, argument(s.call, -1, "target")) for s in source.calls_to("threading.Thread")]
    starts += [(s, argument(s.call, 0)) for s in source.methods("submit")]
    starts += [(s, argument(s.call, 1)) for s in source.methods("run_in_executor")]
    for site, target in starts:
        name = source.resolve(target) if target is not None else "?"
        owner = site.scope.enclosing_class
        for full_name in (
            f"{site.scope.name}.{name}",
            name,
            f"{owner.name}.{name[5:]}" if owner and name.startswith("self.") else "",
        ):
            if full_name in source.scopes:
                yield source.scopes[full_name]
                break
