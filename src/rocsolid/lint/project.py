"""Lints a whole project: checks the files, finds the functions that compiled or captured code calls, and turns matches into findings."""

import contextlib
import gc
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rocsolid.lint import baseline, fact_cache
from rocsolid.lint.call_graph import CallGraph, CallPath, FunctionRef
from rocsolid.lint.deferred_files import DeferredFiles
from rocsolid.lint.facts import FileFacts, RuleMatch, decode_facts
from rocsolid.lint.files import SourceFile, find_files
from rocsolid.lint.options import Options
from rocsolid.lint.variable_reads import variables_read
from rocsolid.lint.vendor_guards import VendorGuards
from rocsolid.lint.worker_pool import check_files
from rocsolid.model.code_line import CodeLine
from rocsolid.model.codec import encode
from rocsolid.model.finding import Finding, Severity
from rocsolid.model.lint import LintRecord, SkippedFile
from rocsolid.model.source import Confidence, Region, SourceMatch
from rocsolid.rules import check_crashed
from rocsolid.rules.engine import RuleFile, source_rules
from rocsolid.rules.source.allow import allow_without_reason, unused_allow
from rocsolid.rules.source.compile import harmful_value


def lint(paths: Sequence[Path], options: Options, *, jobs: int, cache: Path | None) -> LintRecord:
    """Lint files and folders as one project."""
    gc_was_enabled = gc.isenabled()
    gc.disable()  # the very many objects created here have no cycles, so collecting would only take time
    try:
        return _lint(paths, options, jobs, cache)
    finally:
        if gc_was_enabled:
            gc.enable()


def _lint(paths: Sequence[Path], options: Options, jobs: int, cache: Path | None) -> LintRecord:
    files, skipped = find_files(paths, options.exclude)
    facts, new_rows = _facts(files, jobs, cache)
    deferred = DeferredFiles({f.display_path: f for f in files if facts[f.display_path].deferred})
    saving = threading.Thread(target=fact_cache.save, args=(cache, new_rows))  # while the findings are made
    saving.start()
    try:
        return _record(paths, options, files, facts, deferred, skipped)
    finally:
        saving.join()
        fact_cache.save(cache, deferred.rows)


def _record(
    paths: Sequence[Path],
    options: Options,
    files: Sequence[SourceFile],
    facts: Mapping[str, FileFacts],
    deferred: DeferredFiles,
    skipped: Mapping[str, str],
) -> LintRecord:
    candidates = list(_findings(files, facts, deferred, options, paths))
    findings = [finding for finding, role in candidates if options.all_files or not role]
    kept = sorted((finding for finding in findings if finding is not None), key=_sort_key)
    known: Counter[str] = baseline.read_baseline(Path(options.baseline)) if options.baseline else Counter()
    new, in_baseline = baseline.split_known(kept, known)
    errors = {display_path: f.error for display_path, f in facts.items() if f.error}
    return LintRecord(
        findings=tuple(new),
        skipped=tuple(SkippedFile(file=file, reason=reason) for file, reason in sorted({**skipped, **errors}.items())),
        rocm_rules_skipped=()
        if options.min_confidence is Confidence.ANYWHERE
        else tuple(_for_one_vendor(files, facts, options)),
        files=len(facts) - len(errors),
        lines=sum(f.lines for f in facts.values()),
        confidence=options.confidence,
        target=options.target,
        allowed=sum(_allow_index(match, f) is not None for f in facts.values() for match in f.matches if f.allows),
        in_baseline=in_baseline,
        below_confidence=len(findings) - len(kept),
        in_other_files=sum(finding is not None for finding, _ in candidates) - len(kept),
    )


def _for_one_vendor(
    files: Sequence[SourceFile], facts: Mapping[str, FileFacts], options: Options
) -> Iterator[SkippedFile]:
    """Yield the files that import NVIDIA's packages and for that reason have no findings about ROCm."""
    rules = {file.rule.code: file.rule for file in source_rules()}
    for file in files if options.all_files else (file for file in files if not file.role):
        for match in facts[file.display_path].matches:
            reason = match.found.facts.get("one_vendor")
            if reason and options.includes(rules[match.code], file.display_path):
                yield SkippedFile(file=file.display_path, reason=reason)
                break


def _sort_key(finding: Finding) -> tuple[bool, str, int, str, int, str]:
    file, _, line = finding.location.rpartition(":")
    return (
        bool(finding.facts["role"]),
        file,
        int(line or 0),
        finding.code,
        int(str(finding.facts["column"])),
        finding.subject,
    )


def _facts(
    files: Sequence[SourceFile], jobs: int, cache: Path | None
) -> tuple[dict[str, FileFacts], dict[str, tuple[str, str]]]:
    """Return the facts of every file, from the cache if its content is unchanged, and what the cache does not have yet."""
    keys: dict[str, str] = {}
    for file in files if cache and cache.is_file() else ():
        with contextlib.suppress(OSError):
            keys[file.display_path] = fact_cache.cache_key(file.path.read_bytes(), file.module)
    cached = fact_cache.load(cache, keys.values())
    facts = {display_path: cached[key] for display_path, key in keys.items() if key in cached}
    new_rows: dict[str, tuple[str, str]] = {}
    # `summary` and `symbols` are the facts of one file, encoded for the cache
    for checked in check_files([file for file in files if file.display_path not in facts], jobs):
        facts[checked.display_path] = decode_facts(checked.summary, checked.symbols)
        if checked.key:
            new_rows[checked.key] = (checked.summary, checked.symbols)
    return {file.display_path: facts[file.display_path] for file in files}, new_rows


def _findings(
    files: Sequence[SourceFile],
    facts: Mapping[str, FileFacts],
    deferred: DeferredFiles,
    options: Options,
    roots: Sequence[Path],
) -> Iterator[tuple[Finding | None, str]]:
    """Yield every finding that the options include, or None if it is below the minimum confidence, with the role of its file."""
    rule_files = {file.rule.code: file for file in source_rules()}
    roles = {file.display_path: file.role for file in files}
    # A compile or a capture in a test says nothing about how the product runs.
    product = {path for path, role in roles.items() if not role}
    tests = {path for path, role in roles.items() if role == "test"}
    graph = CallGraph(facts, deferred, None if options.all_files else product, tests)
    graph.find_reachable_functions()
    guards = VendorGuards({f.display_path: (f.path, f.module, f.package) for f in files if not f.role})
    set_by_project = {
        m.found.facts["variable"] for f in facts.values() for m in f.matches if "variable" in m.found.facts
    }
    read_by_project = variables_read(set_by_project, roots)
    target = options.target_environment
    for display_path, file in facts.items():
        role = roles[display_path]
        used_allows: set[int] = set()
        duplicates = _duplicates(file, display_path, graph, options)
        for match in file.matches:
            allow_index = _allow_index(match, file)
            if allow_index is not None:
                used_allows.add(allow_index)
                continue
            if match.found.facts.get("variable") in read_by_project:
                continue
            rule_file = rule_files.get(match.code)
            if id(match) in duplicates:
                continue
            if rule_file and not options.includes(rule_file.rule, display_path):
                continue
            if match.found.on_rocm and guards.exclude(match.found, display_path):
                continue
            if target and match.code == harmful_value.RULE.code:
                match = match._replace(found=harmful_value.on_target(match.found, target))  # noqa: PLW2901 - the same match
            confidence, path = _confidence(match.found, display_path, graph)
            is_sure = confidence >= options.min_confidence
            yield _finding(match, rule_file, display_path, role, confidence, path) if is_sure else None, role
        for finding in _comment_findings(file, display_path, role, used_allows, options):
            yield finding, role


def _finding(
    match: RuleMatch,
    rule_file: RuleFile | None,
    display_path: str,
    role: str,
    confidence: Confidence,
    path: CallPath | None,
) -> Finding:
    found = match.found
    rule = rule_file.rule if rule_file else check_crashed.RULE
    severity = Severity[found.severity.upper()] if found.severity else rule.severity
    if found.region is not Region.NONE and confidence is not Confidence.INSIDE:
        severity = min(severity, Severity.WARNING if confidence else Severity.INFO)
    facts: dict[str, Any] = {
        **found.facts,
        "where": _where(found.region, confidence),
        "column": found.column,
        "function": found.scope,
        "confidence": confidence.name.lower(),
        "chain": list(path.chain) if path else [],
        "role": role,
        "text": match.text,
        "code_line": encode(
            CodeLine(file=display_path, line=found.line, text=match.line, start=match.start, end=match.end)
        ),
        "edit": {"kind": found.edit.kind, "text": found.edit.text} if found.edit else {},
    }
    return rule.found(found.subject, severity=severity, location=f"{display_path}:{found.line}", **facts)


def _where(region: Region, confidence: Confidence) -> str:
    """Return where the finding is, for its message: `compiled code`, `a function that compiled code calls`, ..."""
    if region is Region.NONE:
        return ""
    if confidence is Confidence.INSIDE:
        return f"{region.value} code"
    return f"a function that {region.value} code calls" if confidence else f"code that may or may not be {region.value}"


def _confidence(found: SourceMatch, display_path: str, graph: CallGraph) -> tuple[Confidence, CallPath | None]:
    """Return how sure the linter is that a match is in compiled or captured code, and the calls that lead there."""
    if found.uncertain:
        return Confidence.ANYWHERE, None
    if found.region is Region.NONE or found.inside:
        return Confidence.INSIDE, None
    function = FunctionRef(display_path, found.scope)
    # Functions with torch.compiler.disable are not traced, but the finding still shows which compiled code calls them.
    path = graph.paths.get((found.region, function)) or graph.disabled_callees.get(function)
    if path is None:
        return Confidence.ANYWHERE, None
    return (Confidence.INSIDE if path.direct else Confidence.REACHABLE), path


def _duplicates(file: FileFacts, display_path: str, graph: CallGraph, options: Options) -> set[int]:
    """Return the ids of the matches that repeat one of the same hazard and expression for the other kind of region.

    Kept is the one with the higher confidence; of two equal ones, that about captured code, which fails instead of being slow.
    If it is not known whether the code is compiled or captured, the one about compiled code is kept.
    """
    regional = [match for match in file.matches if match.found.region is not Region.NONE]
    if len(regional) <= 1:
        return set()
    rules = {rule_file.rule.code: rule_file.rule for rule_file in source_rules()}
    by_place: dict[tuple[object, ...], list[RuleMatch]] = {}
    for match in regional:
        region, rule = match.found.region, rules.get(match.code)
        if rule and options.includes(rule, display_path):
            hazard = rule.name.replace(region.value, "")
            by_place.setdefault((hazard, match.found.line, match.found.column), []).append(match)

    def rank(match: RuleMatch) -> tuple[Confidence, bool]:
        confidence, _ = _confidence(match.found, display_path, graph)
        return confidence, (match.found.region is Region.CAPTURED) == bool(confidence)

    repeated = [matches for matches in by_place.values() if len(matches) > 1]
    return {id(match) for matches in repeated for match in sorted(matches, key=rank)[:-1]}


def _allow_index(match: RuleMatch, file: FileFacts) -> int | None:
    """Return the index of the comment that allows a match, or None."""
    names = {rule_file.rule.code: rule_file.rule.name for rule_file in source_rules()} if file.allows else {}
    return next(
        (
            index
            for index, allow in enumerate(file.allows)
            if allow.covers(match.found.line, match.code, names.get(match.code, ""))
        ),
        None,
    )


def _comment_findings(
    file: FileFacts, display_path: str, role: str, used_allows: set[int], options: Options
) -> Iterator[Finding]:
    """Yield findings about allow comments that give no reason or have no effect."""
    for index, comment in enumerate(file.allows):
        names = ", ".join(comment.names)
        rule = allow_without_reason.RULE if not comment.reason else unused_allow.RULE
        if index in used_allows or not options.includes(rule, display_path):
            continue
        facts: dict[str, Any] = {
            "column": 1,
            "function": "",
            "confidence": "inside",
            "chain": [],
            "role": role,
            "text": f"allow[{names}]",
        }
        yield rule.found(names or "nothing", location=f"{display_path}:{comment.line}", **facts)
