"""Saved results: how each is read, and how each is shown."""

from typing import Final

from rocsolid.errors import InputError
from rocsolid.model.codec import decode, loads
from rocsolid.model.dryrun import DRYRUN_SCHEMA, DryRunRecord
from rocsolid.model.record import PROBE_SCHEMA, ProbeRecord

Record = ProbeRecord | DryRunRecord
_KINDS: Final[dict[str, type[Record]]] = {PROBE_SCHEMA: ProbeRecord, DRYRUN_SCHEMA: DryRunRecord}


def read_record(text: str, name: str) -> Record:
    """Any saved result that can be shown; raises InputError for anything else."""
    data = loads(text, name)
    kind = _KINDS.get(data["schema"])
    if kind is None:
        msg = f"{name} holds {data['schema']}, and a probe is {PROBE_SCHEMA}, a dry run {DRYRUN_SCHEMA}"
        raise InputError(msg)
    return decode(kind, data, name)


def read_probe(text: str, name: str) -> ProbeRecord:
    """A saved probe; raises InputError for anything else."""
    data = loads(text, name)
    if data["schema"] != PROBE_SCHEMA:
        msg = f"{name} holds {data['schema']}, and a probe is {PROBE_SCHEMA}"
        raise InputError(msg)
    return decode(ProbeRecord, data, name)


def render(record: Record, form: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """A saved result in one of the forms."""
    if form == "sarif":
        from rocsolid.report.machine import sarif

        return sarif(record.findings)
    if form == "github":
        from rocsolid.report.machine import github

        return github(record.findings)
    if isinstance(record, DryRunRecord):
        return _render_dryrun(record, form, verbose=verbose, to_file=to_file)
    if form == "json":
        from rocsolid.report.machine import probe_json

        return probe_json(record)
    if form == "html":
        from rocsolid.report.probe_page import probe_html

        return probe_html(record)
    from rocsolid.report.terminal import Terminal, terminal_of
    from rocsolid.report.text import probe_text

    return probe_text(record, Terminal() if to_file else terminal_of(), verbose=verbose)


def _render_dryrun(record: DryRunRecord, form: str, *, verbose: bool, to_file: bool) -> str:
    if form == "html":
        from rocsolid.report.dryrun_page import dryrun_html

        return dryrun_html(record)
    from rocsolid.report.dryrun_text import dryrun_json, dryrun_text
    from rocsolid.report.terminal import Terminal, terminal_of

    if form == "json":
        return dryrun_json(record)
    return dryrun_text(record, Terminal() if to_file else terminal_of(), verbose=verbose)
