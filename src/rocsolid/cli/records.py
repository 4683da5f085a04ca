"""Saved results: how each is read, and how each is shown."""

from rocsolid.errors import InputError
from rocsolid.model.codec import decode, loads
from rocsolid.model.lint import LINT_SCHEMA, LintRecord
from rocsolid.model.record import PROBE_SCHEMA, ProbeRecord


def read_record(text: str, name: str) -> ProbeRecord | LintRecord:
    """Any saved result that can be shown again."""
    if f'"{LINT_SCHEMA}"' in text[:200]:
        return decode(LintRecord, loads(text, name), name)
    return read_probe(text, name)


def read_probe(text: str, name: str) -> ProbeRecord:
    """A saved probe; raises InputError for anything else."""
    data = loads(text, name)
    if data["schema"] != PROBE_SCHEMA:
        msg = f"{name} holds {data['schema']}, and a probe is {PROBE_SCHEMA}"
        raise InputError(msg)
    return decode(ProbeRecord, data, name)


def render_lint(record: LintRecord, form: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """A lint in one of the forms."""
    if form in ("json", "sarif", "github"):
        from rocsolid.report import machine

        return machine.lint_json(record) if form == "json" else getattr(machine, form)(record.findings)
    if form == "html":
        from rocsolid.report.lint_page import lint_html

        return lint_html(record)
    from rocsolid.report.lint_text import lint_text
    from rocsolid.report.terminal import Terminal, terminal_of

    return lint_text(record, Terminal() if to_file else terminal_of(), verbose=verbose)


def render(record: ProbeRecord | LintRecord, form: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """A result in one of the forms."""
    if isinstance(record, LintRecord):
        return render_lint(record, form, verbose=verbose, to_file=to_file)
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
    from rocsolid.report.terminal import Terminal, terminal_of
    from rocsolid.report.text import probe_text

    return probe_text(record, Terminal() if to_file else terminal_of(), verbose=verbose)
