"""A known problem of the field is to be expected on this machine.

## What it does
Holds the platform, the release of torch and of ROCm, the chips, the packages and the variables against the list of known
problems, each with its public reports.

## Why it matters
Most of them do not raise an error where they happen: a graph replays wrong numbers, a library ends the process, a search
never ends. Where a call during a capture is behind one, the finding says what this machine's runtime does with it.

## Example
    HIP graph replays corrupt their output in one process of five on ROCm 7.2.0 to 7.2.3 (ROCm/clr#279)

## Use instead
Each entry names its fix and how to see that it worked: `rocsolid explain hip-graph-replay-corruption`.

## When to allow it
When you have checked that the problem does not touch what you run.
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
    message="{title} ({where}; {status})",
    why="{symptom}",
    fix="{fix}",
    check="{verify}",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every problem that strikes here and that no other rule sees from the machine's own facts."""
    runtimes = runtimes_on(env.platform, env.rocm_version)
    for problem in all_problems():
        if not problem.covered_by and problem.strikes(env):
            yield RULE.found(
                problem.id,
                severity=problem.severity,
                evidence=problem.evidence,
                title=problem.title,
                where=str(problem.when),
                status=problem.status,
                symptom=" ".join(
                    [
                        problem.symptom,
                        *(
                            f"During a capture {describe_behavior(call, runtimes)}."
                            for call in problem.calls
                            if runtimes
                        ),
                    ]
                ),
                fix=problem.fix,
                verify=problem.verify,
            )
