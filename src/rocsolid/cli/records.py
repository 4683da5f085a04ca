"""Saved results: how each is read, and how each is shown."""

from typing import TYPE_CHECKING

from rocsolid.errors import InputError, UsageError
from rocsolid.model.codec import decode, loads
from rocsolid.model.compile_log import BREAKS_SCHEMA, COMPILES_SCHEMA, BreakReport, CompileLog
from rocsolid.model.record import PROBE_SCHEMA, ProbeRecord

if TYPE_CHECKING:
    from rocsolid.report.terminal import Terminal

KINDS = {PROBE_SCHEMA: ProbeRecord, COMPILES_SCHEMA: CompileLog, BREAKS_SCHEMA: BreakReport}
Record = ProbeRecord | CompileLog | BreakReport


def read_record(text: str, name: str) -> Record:
    """Any saved result; raises InputError for anything else."""
    data = loads(text, name)
    kind = KINDS.get(data["schema"])
    if kind is None:
        msg = (
            f"{name} holds {data['schema']}, and a probe is {PROBE_SCHEMA}; there are also {', '.join(list(KINDS)[1:])}"
        )
        raise InputError(msg)
    return decode(kind, data, name)


def read_probe(text: str, name: str) -> ProbeRecord:
    """A saved probe; raises InputError for anything else."""
    data = loads(text, name)
    if data["schema"] != PROBE_SCHEMA:
        msg = f"{name} holds {data['schema']}, and a probe is {PROBE_SCHEMA}"
        raise InputError(msg)
    return decode(ProbeRecord, data, name)


def render_any(record: Record, form: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """Any saved result in one of the forms."""
    if isinstance(record, CompileLog):
        return render_compiles(record, form, code=verbose, to_file=to_file)
    if isinstance(record, BreakReport):
        return render_breaks(record, form, to_file=to_file)
    return render(record, form, verbose=verbose, to_file=to_file)


def render(record: ProbeRecord, form: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """A probe in one of the forms."""
    if form == "json":
        from rocsolid.report.machine import probe_json

        return probe_json(record)
    if form == "sarif":
        from rocsolid.report.machine import sarif

        return sarif(record.findings)
    if form == "github":
        from rocsolid.report.machine import github

        return github(record.findings)
    if form == "html":
        from rocsolid.report.probe_page import probe_html

        return probe_html(record)
    from rocsolid.report.text import probe_text

    return probe_text(record, _terminal(to_file=to_file), verbose=verbose)


def render_compiles(log: CompileLog, form: str, *, code: bool = False, to_file: bool = False) -> str:
    """A compile log in one of the forms."""
    if form == "json":
        from rocsolid.report.compiles import compiles_json

        return compiles_json(log, code=code)
    if form == "html":
        from rocsolid.report.compiles_page import compiles_html

        return compiles_html(log)
    if form == "text":
        from rocsolid.report.compiles import compiles_text

        return compiles_text(log, _terminal(to_file=to_file), code=code)
    from rocsolid.observe.findings import break_findings, recompile_findings
    from rocsolid.report.machine import github, sarif

    found = [*break_findings(log.breaks, len(log.graphs)), *recompile_findings(log.graphs)]
    return github(found) if form == "github" else sarif(found)


def render_breaks(report: BreakReport, form: str, *, to_file: bool = False) -> str:
    """A report of graph breaks in one of the forms."""
    if form == "json":
        from rocsolid.report.compiles import breaks_json

        return breaks_json(report)
    if form == "html":
        from rocsolid.report.compiles_page import breaks_html

        return breaks_html(report)
    if form == "text":
        from rocsolid.report.compiles import breaks_text

        return breaks_text(report, _terminal(to_file=to_file))
    from rocsolid.observe.findings import break_findings
    from rocsolid.report.machine import github, sarif

    found = break_findings(report.breaks, len(report.graphs))
    if form not in ("github", "sarif"):
        msg = f"graph breaks are not written as {form}"
        raise UsageError(msg)
    return github(found) if form == "github" else sarif(found)


def _terminal(*, to_file: bool) -> "Terminal":
    from rocsolid.report.terminal import Terminal, terminal_of

    return Terminal() if to_file else terminal_of()
