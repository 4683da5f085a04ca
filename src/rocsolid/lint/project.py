"""Lints a whole project: check the files, follow compiled and captured regions, and turn matches into findings."""

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rocsolid.lint import baseline, fact_cache
from rocsolid.lint.call_graph import CallGraph, CallPath, FunctionRef
from rocsolid.lint.facts import FileFacts, RuleMatch, from_texts
from rocsolid.lint.files import SourceFile, find_files
from rocsolid.lint.options import Options
from rocsolid.lint.worker_pool import check_files
from rocsolid.model.code_line import CodeLine
from rocsolid.model.codec import encode
from rocsolid.model.finding import Finding, Severity
from rocsolid.model.lint import LintRecord, SkippedFile
from rocsolid.model.source import Confidence, Region, SourceMatch
from rocsolid.rules import check_crashed
from rocsolid.rules.engine import RuleFile, source_rules
from rocsolid.rules.source.allow import allow_without_reason, unused_allow


def lint(paths: Sequence[Path], options: Options, *, jobs: int, cache: Path | None) -> LintRecord:
    """Lint files and folders as one project."""
    found, skipped = find_files(paths, options.exclude)
    facts = _facts(found, jobs, cache)
    findings = list(_findings(facts, options))
    kept = sorted((finding for finding in findings if finding is not None), key=_order)
    known: Counter[str] = baseline.read_baseline(Path(options.baseline)) if options.baseline else Counter()
    new, in_baseline = baseline.split_known(kept, known)
    errors = {shown: f.error for shown, f in facts.items() if f.error}
    return LintRecord(
        findings=tuple(new),
        skipped=tuple(SkippedFile(file=file, reason=reason) for file, reason in sorted({**skipped, **errors}.items())),
        files=len(facts) - len(errors),
        lines=sum(f.lines for f in facts.values()),
        confidence=options.confidence,
        allowed=sum(_allowing(match, f) is not None for f in facts.values() for match in f.matches if f.allows),
        in_baseline=in_baseline,
        below_confidence=len(findings) - len(kept),
    )


def _order(finding: Finding) -> tuple[str, int, str, int, str]:
    file, _, line = finding.location.rpartition(":")
    return file, int(line or 0), finding.code, int(str(finding.facts["column"])), finding.subject


def _facts(found: Sequence[SourceFile], jobs: int, cache: Path | None) -> dict[str, FileFacts]:
    """The facts of every file, from the cache where its content is unchanged."""
    keys: dict[str, str] = {}
    for file in found:
        try:
            keys[file.shown] = fact_cache.cache_key(file.path.read_bytes(), file.module) if cache else ""
        except OSError:
            keys[file.shown] = ""
    collecting = gc.isenabled()
    gc.disable()  # very many plain objects without cycles; collecting them only takes time
    try:
        known = fact_cache.load(cache, keys.values())
        facts = {file.shown: known[keys[file.shown]] for file in found if keys[file.shown] in known}
        fresh: dict[str, tuple[str, str]] = {}
        for checked in check_files([file for file in found if file.shown not in facts], jobs):
            facts[checked.shown] = from_texts(checked.head, checked.body)
            if keys[checked.shown]:
                fresh[keys[checked.shown]] = (checked.head, checked.body)
        fact_cache.save(cache, fresh)
    finally:
        if collecting:
            gc.enable()
    return {file.shown: facts[file.shown] for file in found}


def _findings(facts: Mapping[str, FileFacts], options: Options) -> Iterator[Finding | None]:
    """Every finding that the options include; None for each below the minimum confidence."""
    rules = {file.rule.code: file for file in source_rules()}
    graph = CallGraph(facts)
    graph.follow_regions()
    read = {name for f in facts.values() for name in f.reads}
    for shown, file in facts.items():
        used: set[int] = set()
        for match in file.matches:
            number = _allowing(match, file)
            used |= {number} if number is not None else set()
            if number is not None or match.found.facts.get("variable") in read:
                continue
            declared = rules.get(match.code)
            if declared and not options.includes(match.code, declared.rule.name, shown):
                continue
            confidence, path = _confidence(match.found, shown, graph)
            yield _finding(match, declared, shown, confidence, path) if confidence >= options.min_confidence else None
        yield from _comment_findings(file, shown, used, options)


def _finding(
    match: RuleMatch, declared: RuleFile | None, shown: str, confidence: Confidence, path: CallPath | None
) -> Finding:
    found = match.found
    rule = declared.rule if declared else check_crashed.RULE
    severity = Severity[found.severity.upper()] if found.severity else rule.severity
    if confidence is Confidence.REACHABLE:
        severity = min(severity, Severity.WARNING)
    facts: dict[str, Any] = {
        **found.facts,
        "where": _where(found.region, confidence),
        "column": found.column,
        "function": found.scope,
        "confidence": confidence.name.lower(),
        "chain": list(path.chain) if path else [],
        "text": match.text,
        "code_line": encode(CodeLine(file=shown, line=found.line, text=match.line, start=match.start, end=match.end)),
        "edit": {"kind": found.edit.kind, "text": found.edit.text} if found.edit else {},
    }
    return rule.found(found.subject, severity=severity, location=f"{shown}:{found.line}", **facts)


def _where(region: Region, confidence: Confidence) -> str:
    """Where the finding is, in words that match the confidence."""
    if region is Region.NONE:
        return ""
    if confidence is Confidence.INSIDE:
        return f"{region.value} code"
    return f"a function that {region.value} code calls" if confidence else f"code that may or may not be {region.value}"


def _confidence(found: SourceMatch, shown: str, graph: CallGraph) -> tuple[Confidence, CallPath | None]:
    """How sure the linter is that a match is in such a region, and the calls that lead there."""
    if found.uncertain:
        return Confidence.ANYWHERE, None
    if found.region is Region.NONE or found.inside:
        return Confidence.INSIDE, None
    function = FunctionRef(shown, found.scope)
    path = graph.paths.get((found.region, function)) or graph.disabled_callees.get(function)
    if path is None:
        return Confidence.ANYWHERE, None
    return (Confidence.INSIDE if path.direct else Confidence.REACHABLE), path


def _allowing(match: RuleMatch, file: FileFacts) -> int | None:
    """The index of the comment that allows a match; None if there is none."""
    names = {f.rule.code: f.rule.name for f in source_rules()} if file.allows else {}
    return next(
        (n for n, a in enumerate(file.allows) if a.covers(match.found.line, match.code, names.get(match.code, ""))),
        None,
    )


def _comment_findings(file: FileFacts, shown: str, used: set[int], options: Options) -> Iterator[Finding]:
    """Findings about allow comments: without a reason, or without an effect."""
    for number, comment in enumerate(file.allows):
        names = ", ".join(comment.names)
        rule = allow_without_reason.RULE if not comment.reason else unused_allow.RULE
        if number in used or not options.includes(rule.code, rule.name, shown):
            continue
        where: dict[str, Any] = {
            "column": 1,
            "function": "",
            "confidence": "inside",
            "chain": [],
            "text": f"allow[{names}]",
        }
        yield rule.found(names or "nothing", location=f"{shown}:{comment.line}", **where)
