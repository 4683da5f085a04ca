"""Saved results: how each is read, and how each is shown."""

from collections.abc import Mapping

from rocsolid.errors import InputError
from rocsolid.model.codec import decode, loads
from rocsolid.model.record import PROBE_SCHEMA, ProbeRecord
from rocsolid.model.trace import TRACE_SCHEMA, Timeline, TraceRecord


def read_probe(text: str, name: str) -> ProbeRecord:
    """A saved probe; raises InputError for anything else."""
    data = loads(text, name)
    if data["schema"] != PROBE_SCHEMA:
        msg = f"{name} holds {data['schema']}, and a probe is {PROBE_SCHEMA}"
        raise InputError(msg)
    return decode(ProbeRecord, data, name)


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
    from rocsolid.report.terminal import Terminal, terminal_of
    from rocsolid.report.text import probe_text

    return probe_text(record, Terminal() if to_file else terminal_of(), verbose=verbose)


def read_record(text: str, name: str) -> ProbeRecord | TraceRecord:
    """A saved result of any kind that can be rendered again."""
    data = loads(text, name)
    if data["schema"] == TRACE_SCHEMA:
        return decode(TraceRecord, data, name)
    return read_probe(text, name)


def render_trace(
    record: TraceRecord,
    form: str,
    *,
    verbose: bool = False,
    to_file: bool = False,
    timelines: Mapping[str, Timeline] | None = None,
) -> str:
    """Answers about traces in one of the forms; a page shows the timelines that are given."""
    if form == "html":
        from rocsolid.report.trace_page import trace_html

        return trace_html(record, timelines)
    if form == "json":
        from rocsolid.model.codec import dumps
        from rocsolid.version import __version__

        return dumps(
            TRACE_SCHEMA, rocsolid=__version__, files=record.files, findings=record.findings, ranks=record.ranks
        )
    from rocsolid.report.terminal import Terminal, terminal_of
    from rocsolid.report.trace_text import trace_text

    return trace_text(record, Terminal() if to_file else terminal_of(), verbose=verbose)
