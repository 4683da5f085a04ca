"""Lint findings as text for a terminal."""

from collections.abc import Iterator, Mapping

from rocsolid.model.code_line import CodeLine
from rocsolid.model.codec import decode
from rocsolid.model.finding import Finding, Severity
from rocsolid.model.lint import LintRecord, SkippedFile
from rocsolid.report.probe_text import summary_line
from rocsolid.report.terminal import Terminal

_INDENT = " " * 7
_MAX_NAMED = 3  # files in one line
_OTHER_FILES = "In tests, benchmarks, examples and scripts:"


def lint_text(record: LintRecord, terminal: Terminal, *, verbose: bool = False) -> str:
    """Findings by file and line; why and fix are printed once per rule, with `verbose` for every finding."""
    explained: set[str] = set()
    blocks = []
    for finding in record.findings:
        role = str(finding.facts.get("role", ""))
        if role and _OTHER_FILES not in blocks:
            blocks.append(_OTHER_FILES)
        reason = f"{finding.code} {finding.why}"
        blocks.append(_finding(finding, terminal, full=verbose or reason not in explained))
        explained.add(reason)
    if record.skipped:
        blocks.append("\n".join(f"skipped {skipped.file}: {skipped.reason}" for skipped in record.skipped))
    if record.rocm_rules_skipped:
        blocks.append(terminal.wrap(_rocm_rules_skipped(record.rocm_rules_skipped)))
    blocks.append(_summary(record, terminal))
    return "\n\n".join(blocks) + "\n"


def _finding(finding: Finding, terminal: Terminal, *, full: bool) -> str:
    place = terminal.paint(f"{finding.location}:{finding.facts.get('column', 1)}", "bold")
    head = (
        f"{place} {terminal.severity(finding.severity).rstrip()} {finding.code} {terminal.paint(finding.name, 'dim')}"
    )
    return "\n".join([head, *_rows(finding, terminal, full=full)])


def _rows(finding: Finding, terminal: Terminal, *, full: bool) -> Iterator[str]:
    yield terminal.wrap(finding.message, indent="  ")
    for line in _scrolled(code_lines(finding), terminal.width - 4):
        yield terminal.paint(f"    {line}", "cyan")
    if chain := chain_of(finding):
        yield terminal.wrap(" → ".join(chain), indent=_INDENT, first="  via  ")
    if full:
        yield terminal.wrap(finding.why, indent=_INDENT, first="  why  ")
        yield terminal.wrap(finding.fix, indent=_INDENT, first="  fix  ")


def code_lines(finding: Finding) -> list[str]:
    """The source line of a finding, and carets under the expression where its columns are known."""
    facts = finding.facts.get("code_line")
    if isinstance(facts, Mapping) and facts.get("text"):
        code = decode(CodeLine, facts, "code")
        indent = len(code.text) - len(code.text.lstrip())
        lines = [code.text.lstrip()]
        if indent <= code.start < code.end <= len(code.text):
            lines.append(" " * (code.start - indent) + "^" * (code.end - code.start))
        return lines
    text = str(finding.facts.get("text", ""))
    return [text] if text else []


def _scrolled(lines: list[str], width: int) -> list[str]:
    """Cut the lines to a width; what comes before the marked expression is left out where it would not fit."""
    carets = lines[-1] if len(lines) > 1 else ""
    if len(carets) <= width:
        return [line[:width] for line in lines]
    skip = max(min(len(carets) - width, carets.index("^") - 1), 0)
    return [f"…{lines[0][skip + 1 :]}"[:width], carets[skip:][:width]]


def chain_of(finding: Finding) -> list[str]:
    """The calls from the compiled or captured function to the finding; empty where the finding is in that function itself."""
    chain = finding.facts.get("chain")
    return [str(step) for step in chain] if isinstance(chain, list) and len(chain) > 1 else []


def _rocm_rules_skipped(files: tuple[SkippedFile, ...]) -> str:
    named = ", ".join(f"{skipped.file} {skipped.reason}" for skipped in files[:_MAX_NAMED])
    more = f" and {len(files) - _MAX_NAMED:,} more" if len(files) > _MAX_NAMED else ""
    return f"ROCm rules skipped in {_count(len(files), 'file')} ({named}{more}); show with --confidence anywhere"


def _summary(record: LintRecord, terminal: Terminal) -> str:
    read = f"{_count(record.files, 'file')}, {_count(record.lines, 'line')}"
    left_out = [
        f"values of settings judged for {record.target}" if record.target else "",
        f"{_count(record.allowed, 'finding')} allowed by comments" if record.allowed else "",
        f"{_count(record.in_baseline, 'finding')} in the baseline" if record.in_baseline else "",
        f"{_count(record.below_confidence, 'less certain finding')} hidden: {'it depends' if record.below_confidence == 1 else 'they depend'} on where and how the code runs (show with --confidence anywhere)"
        if record.below_confidence
        else "",
        f"{_count(record.in_other_files, 'finding')} in tests, benchmarks, examples and scripts (show with --all-files)"
        if record.in_other_files
        else "",
        f"{_count(len(record.skipped), 'file')} skipped" if record.skipped else "",
    ]
    more = "; details: rocsolid explain CODE" if any(f.severity > Severity.INFO for f in record.findings) else ""
    text = f"{summary_line(record.findings, terminal)} in {read}{more}" + "".join(
        f"; {part}" for part in left_out if part
    )
    return terminal.wrap(text)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
