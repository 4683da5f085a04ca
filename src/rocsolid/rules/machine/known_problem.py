"""A known problem affects this machine.

## What it does
Compares platform, torch and ROCm versions, GPU models, packages and environment variables with the list of known
problems. Each problem links to its public reports.

## Why it matters
Most of these problems raise no error where they happen: a graph replay returns wrong numbers, a library ends the
process, autotuning never ends. If a call during a graph capture causes the problem, the finding lists what this
machine's runtime does with that call.

## Example
    HIP graph replays corrupt their output in one process of five on ROCm 7.2.0 to 7.2.3 (ROCm/clr#279)

## Use instead
Each known problem has its own page with a fix and a way to check it: `rocsolid explain hip-graph-replay-corruption`.

## When to allow it
When you have checked that the problem does not affect what you run.
"""

from collections.abc import Iterator

from rocsolid.catalog.capture_rules import describe_behavior, runtimes_on
from rocsolid.catalog.problems import all_problems
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="KNO001",
    name="known-problem",
    severity=Severity.WARNING,
    message="{title}",
    why="{symptom} Affected: {affected}. Status: {status}.",
    fix="{fix}",
    check="{verify}",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every known problem that affects this machine and that no other rule reports."""
    runtimes = runtimes_on(env.platform, env.rocm_version)
    for problem in all_problems():
        if not problem.covered_by and problem.applies(env):
            yield RULE.found(
                problem.id,
                severity=problem.severity,
                evidence=problem.evidence,
                title=problem.title,
                affected=str(problem.when),
                status=problem.status,
                symptom=" ".join(
                    [
                        problem.symptom,
                        *(
                            f"What the runtime does during a capture: {describe_behavior(call, runtimes)}."
                            for call in problem.calls
                            if runtimes
                        ),
                    ]
                ),
                fix=problem.fix,
                verify=problem.verify,
            )
