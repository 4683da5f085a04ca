"""A whole project: read the files, follow the regions, and turn what was seen into findings."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rocsolid.lint import baseline, fact_cache
from rocsolid.lint.call_graph import Graph, Place, Way
from rocsolid.lint.facts import Facts, Seen, from_texts
from rocsolid.lint.files import Found, find_files
from rocsolid.lint.options import Options
from rocsolid.lint.worker_pool import check_files
from rocsolid.measure.gc_pause import gc_paused
from rocsolid.model.finding import Finding, Severity
from rocsolid.model.lint import LintRecord, PassedOver
from rocsolid.model.source import Confidence, Region, SourceMatch
from rocsolid.rules import check_crashed
from rocsolid.rules.engine import RuleFile, source_rules
from rocsolid.rules.source.allow import allow_without_reason, unused_allow


def lint(paths: Sequence[Path], options: Options, *, jobs: int, cache: Path | None) -> LintRecord:
    """Lint files and folders as one project."""
    found, passed = find_files(paths, options.exclude)
    facts = _facts(found, jobs, cache)
    judged = list(_findings(facts, options))
    kept = sorted((finding for finding in judged if finding is not None), key=_order)
    known: Counter[str] = baseline.read_baseline(Path(options.baseline)) if options.baseline else Counter()
    new, excused = baseline.split(kept, known)
    refused = {shown: f.refused for shown, f in facts.items() if f.refused}
    return LintRecord(
        findings=tuple(new),
        passed_over=tuple(PassedOver(file=file, why=why) for file, why in sorted({**passed, **refused}.items())),
        files=len(facts) - len(refused),
        lines=sum(f.lines for f in facts.values()),
        confidence=options.confidence,
        allowed=sum(_allowed(seen, f) for f in facts.values() for seen in f.seen if f.allows),
        in_baseline=excused,
        less_sure=len(judged) - len(kept),
    )


def _order(finding: Finding) -> tuple[str, int, str, int, str]:
    file, _, line = finding.location.rpartition(":")
    return file, int(line or 0), finding.code, int(str(finding.facts["column"])), finding.subject


def _facts(found: Sequence[Found], jobs: int, cache: Path | None) -> dict[str, Facts]:
    """The facts of every file, from the store where its content is known."""
    keys: dict[str, str] = {}
    for file in found:
        try:
            keys[file.shown] = fact_cache.key_of(file.path.read_bytes(), file.module) if cache else ""
        except OSError:
            keys[file.shown] = ""
    with gc_paused():  # many plain objects without cycles: there is nothing to collect
        known = fact_cache.load(cache, keys.values())
        facts = {file.shown: known[keys[file.shown]] for file in found if keys[file.shown] in known}
        fresh: dict[str, tuple[str, str]] = {}
        for checked in check_files([file for file in found if file.shown not in facts], jobs):
            facts[checked.shown] = from_texts(checked.head, checked.body)
            if keys[checked.shown]:
                fresh[keys[checked.shown]] = (checked.head, checked.body)
        fact_cache.save(cache, fresh)
    return {file.shown: facts[file.shown] for file in found}


def _findings(facts: Mapping[str, Facts], options: Options) -> Iterator[Finding | None]:
    """Every finding that was asked for; None for each that is less sure than that."""
    rules = {file.rule.code: file for file in source_rules()}
    graph = Graph(facts)
    graph.explore()
    read = {name for f in facts.values() for name in f.reads}
    for shown, file in facts.items():
        used: set[int] = set()
        for seen in file.seen:
            number = _allowing(seen, file)
            used |= {number} if number is not None else set()
            if number is not None or seen.match.facts.get("variable") in read:
                continue
            declared = rules.get(seen.code)
            if declared and not options.wants(seen.code, declared.rule.name, shown):
                continue
            confidence, way = _confidence(seen.match, shown, graph)
            yield _finding(seen, declared, shown, confidence, way) if confidence >= options.least else None
        yield from _about_comments(file, shown, used, options)


def _finding(seen: Seen, declared: RuleFile | None, shown: str, confidence: Confidence, way: Way | None) -> Finding:
    match = seen.match
    rule = declared.rule if declared else check_crashed.RULE
    severity = Severity[match.severity.upper()] if match.severity else rule.severity
    if confidence is Confidence.REACHABLE:
        severity = min(severity, Severity.WARNING)
    facts: dict[str, Any] = {
        **match.facts,
        "where": _where(match.region, confidence),
        "column": match.column,
        "end_column": match.end_column,
        "function": match.scope,
        "confidence": confidence.name.lower(),
        "chain": list(way.chain) if way else [],
        "text": seen.text.strip(),
        "line_text": seen.text,
        "edit": {"kind": match.edit.kind, "text": match.edit.text} if match.edit else {},
    }
    return rule.found(match.subject, severity=severity, location=f"{shown}:{match.line}", **facts)


def _where(region: Region, confidence: Confidence) -> str:
    """The kind of code for a message, as sure as the confidence allows."""
    if region is Region.NONE:
        return ""
    if confidence is Confidence.INSIDE:
        return f"{region.value} code"
    return f"a function that {region.value} code calls" if confidence else f"code that may be {region.value}"


def _confidence(match: SourceMatch, shown: str, graph: Graph) -> tuple[Confidence, Way | None]:
    """How sure it is that the place is in such a region, and the way that leads there."""
    if match.uncertain:
        return Confidence.ANYWHERE, None
    if match.region is Region.NONE or match.inside:
        return Confidence.INSIDE, None
    place = Place(shown, match.scope)
    way = graph.ways.get((match.region, place)) or graph.touched.get(place)
    if way is None:
        return Confidence.ANYWHERE, None
    return (Confidence.INSIDE if way.direct else Confidence.REACHABLE), way


def _allowing(seen: Seen, file: Facts) -> int | None:
    """The comment that allows it, by number."""
    names = {f.rule.code: f.rule.name for f in source_rules()} if file.allows else {}
    return next(
        (n for n, a in enumerate(file.allows) if a.covers(seen.match.line, seen.code, names.get(seen.code, ""))),
        None,
    )


def _allowed(seen: Seen, file: Facts) -> bool:
    return _allowing(seen, file) is not None


def _about_comments(file: Facts, shown: str, used: set[int], options: Options) -> Iterator[Finding]:
    for number, comment in enumerate(file.allows):
        names = ", ".join(comment.names)
        rule = allow_without_reason.RULE if not comment.reason else unused_allow.RULE
        if number in used or not options.wants(rule.code, rule.name, shown):
            continue
        where: dict[str, Any] = {
            "column": 1,
            "end_column": 1,
            "function": "",
            "confidence": "inside",
            "chain": [],
            "text": f"allow[{names}]",
            "line_text": "",
        }
        yield rule.found(names or "nothing", location=f"{shown}:{comment.line}", **where)
