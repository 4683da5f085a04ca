"""A graph's output is kept, and the next replay overwrites it.

## What it does
Reports `graph.replay()` in a loop, or in a function that returns the captured output itself, without `clone()`.

## Why it matters
A graph writes its result to the same memory every time. A tensor kept from the previous step then contains the numbers
of this step. The error is not visible as long as only one result is used.

## Example
    import torch

    with torch.cuda.graph(graph):
        static_output = model(static_input)

    results = []
    for batch in data:
        static_input.copy_(batch)
        graph.replay()
        results.append(static_output)

## Use instead
    import torch

    with torch.cuda.graph(graph):
        static_output = model(static_input)

    results = []
    for batch in data:
        static_input.copy_(batch)
        graph.replay()
        results.append(static_output.clone())

## When to allow it
When each result is used before the next replay.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Assignment, Site, Source, SourceMatch
from rocsolid.rules.source.captures import captures, replays
from rocsolid.rules.source.syntax import enclosing_blocks, match_at

RULE = Rule(
    code="SRC208",
    name="graph-output-kept-across-replays",
    severity=Severity.WARNING,
    message="`{subject}` is {how} after the replay in line {replay_line}; the next replay overwrites it",
    why="Every replay writes to the same memory, so all kept results show the numbers of the latest replay.",
    fix="Return {subject}.clone(), or use it before the next replay. rs.capture copies outputs by default.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    on_by_default=False,
    evidence=(source_evidence("torch 2.13 cuda/graphs.py", "A graph replays on the addresses it was captured with."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Captured outputs that are returned, appended to a list or assigned after a replay."""
    if "replay" not in source.text:
        return
    outputs = {ast.unparse(t) for capture in captures(source) for t in _assigned_targets(capture.node)}
    if not outputs:
        return
    for replay in replays(source):
        yield from _kept_outputs(replay, outputs, source)


def _assigned_targets(capture: ast.With | ast.AsyncWith) -> Iterator[ast.expr]:
    for statement in capture.body:
        if isinstance(statement, ast.Assign):
            yield from (t for t in statement.targets if isinstance(t, (ast.Name, ast.Attribute)))


def _kept_outputs(replay: Site, outputs: set[str], source: Source) -> Iterator[SourceMatch]:
    loop = next((b.node for b in enclosing_blocks(replay) if b.kind in ("for", "while")), None)
    for site in source.returns:
        text = ast.unparse(site.node) if _follows(site, replay) else ""
        is_other_variable = text in outputs and any(
            assignment.scope is site.scope and not _is_captured(assignment)
            for assignment in source.assignments_by_name.get(text, ())
        )
        if text in outputs and not is_other_variable:
            yield match_at(site, text, how="returned", replay_line=replay.line)
            return
    for site in source.methods("append") if loop is not None else ():
        text = ast.unparse(site.call.args[0]) if site.call.args and _follows(site, replay) else ""
        if text in outputs:
            yield match_at(site, text, how="appended to a list", replay_line=replay.line)
            return
    for assignment in source.assignments if loop is not None else ():
        text = ast.unparse(assignment.value) if assignment.value is not None and _follows(assignment, replay) else ""
        if text in outputs and any(b.node is loop for b in enclosing_blocks(assignment)):
            yield match_at(assignment, text, how="assigned to another name", replay_line=replay.line)
            return


def _follows(site: Site | Assignment, replay: Site) -> bool:
    return site.scope is replay.scope and site.line > replay.line


def _is_captured(assignment: Assignment) -> bool:
    return assignment.block is not None and assignment.block.captured
