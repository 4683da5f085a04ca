"""Saved results: how each is read, and how each is shown."""

from rocsolid.errors import InputError
from rocsolid.model.codec import decode, loads
from rocsolid.model.record import PROBE_SCHEMA, ProbeRecord


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
