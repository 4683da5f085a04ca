"""A lint as text for a terminal."""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Severity
from rocsolid.model.lint import LintRecord
from rocsolid.report.probe_text import summary_line
from rocsolid.report.terminal import Terminal


def lint_text(record: LintRecord, terminal: Terminal, *, verbose: bool = False) -> str:
    """Findings by file and line; each reason and its fix are said once, unless every time is asked for."""
    said: set[str] = set()
    blocks = []
    for finding in record.findings:
        reason = f"{finding.code} {finding.why}"
        blocks.append(_finding(finding, terminal, full=verbose or reason not in said))
        said.add(reason)
    if record.passed_over:
        blocks.append("\n".join(f"passed over {p.file}: {p.why}" for p in record.passed_over))
    blocks.append(_summary(record, terminal))
    return "\n\n".join(blocks) + "\n"


def _finding(finding: Finding, terminal: Terminal, *, full: bool) -> str:
    place = terminal.paint(f"{finding.place}:{finding.facts.get('column', 1)}", "bold")
    head = (
        f"{place} {terminal.severity(finding.severity).rstrip()} {finding.code} {terminal.paint(finding.name, 'dim')}"
    )
    return "\n".join([head, *_rows(finding, terminal, full=full)])


def _rows(finding: Finding, terminal: Terminal, *, full: bool) -> Iterator[str]:
    yield terminal.wrap(finding.message, indent=" " * 9, first="         ")
    text = str(finding.facts.get("text", ""))
    if text:
        yield terminal.paint(f"       | {text}"[: terminal.width], "cyan")
    if chain := chain_of(finding):
        yield terminal.wrap(" → ".join(chain), indent=" " * 9, first="  by     ")
    if full:
        yield terminal.wrap(finding.why, indent=" " * 9, first="  why    ")
        yield terminal.wrap(finding.fix, indent=" " * 9, first="  fix    ")


def chain_of(finding: Finding) -> list[str]:
    """The calls that lead from a region to the finding; a single one is the region itself and says nothing new."""
    chain = finding.facts.get("chain")
    return [str(step) for step in chain] if isinstance(chain, list) and len(chain) > 1 else []


def _summary(record: LintRecord, terminal: Terminal) -> str:
    read = f"{record.files:,} file{'' if record.files == 1 else 's'}, {record.lines:,} lines"
    beside = [
        f"{record.allowed} allowed by comments" if record.allowed else "",
        f"{record.in_baseline} in the baseline" if record.in_baseline else "",
        f"{record.less_sure} less sure (--confidence anywhere)" if record.less_sure else "",
        f"{len(record.passed_over)} passed over" if record.passed_over else "",
    ]
    more = "; `rocsolid explain CODE` tells more" if any(f.severity > Severity.INFO for f in record.findings) else ""
    said = f"{summary_line(record.findings, terminal)} in {read}{more}" + "".join(
        f"; {text}" for text in beside if text
    )
    return terminal.wrap(said)
