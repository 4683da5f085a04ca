"""A library call is not safe in a CUDA graph or HIP graph on this platform.

## What it does
Lists the library calls in the generated code, and compares each library with the known problems of graph captures.

## Why it matters
At the first call with a shape, MIOpen searches for a kernel and allocates memory. A search that was not finished can
make a capture fail at a later launch. Creating a BLAS handle inside a capture ends the process.

## Example
    with torch.cuda.graph(g):
        y = conv(x)                       # the first call with this shape

## Use instead
    conv(x); torch.cuda.synchronize()     # before the capture, on the stream that is captured

## When to allow it
When the model is never captured, or every shape is called once before the capture.
"""

from collections.abc import Iterator

from rocsolid.catalog.problems import all_problems
from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import issue
from rocsolid.model.finding import Finding, Rule, Severity

RULE = Rule(
    code="DRY008",
    name="extern-call-unsafe-in-capture",
    severity=Severity.INFO,
    message="{graph} on {target} calls {library}: {calls}",
    why="{capture_problem}.",
    fix="{fix}",
    check="{check}",
    since="0.1",
    evidence=(issue("pytorch/pytorch#188338", "MIOpen is not graph safe."),),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """One finding for each library and graph, with the texts and evidence of the known problem."""
    problems = {problem.id: problem for problem in all_problems()}
    for graph in run.graphs:
        libraries = {extern.library for extern in graph.externs if extern.capture}
        for library in sorted(libraries):
            calls = [extern for extern in graph.externs if extern.library == library]
            problem = problems[calls[0].evidence]
            yield RULE.found(
                f"{run.target} {graph.name} {library}",
                severity=Severity.WARNING if library == "MIOpen" else Severity.INFO,
                evidence=problem.evidence,
                location=next(iter(calls[0].locations), ""),
                graph=f"{graph.name} ({graph.kind})",
                library=library,
                target=run.target,
                calls=", ".join(f"{extern.count} × {extern.name}" for extern in calls),
                capture_problem=calls[0].capture,
                fix=problem.fix,
                check=problem.verify,
            )
