"""Saved results: how each is read, and how each is shown."""

from rocsolid.errors import InputError
from rocsolid.model.codec import decode, loads
from rocsolid.model.record import PROBE_SCHEMA, ProbeRecord
from rocsolid.model.study import DUEL_SCHEMA, STUDY_SCHEMA, Duel, Study


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


def render_any(text: str, name: str, form: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """Any saved result in one of the forms."""
    data = loads(text, name)
    if data["schema"] == STUDY_SCHEMA:
        return render_study(decode(Study, data, name), form, verbose=verbose, to_file=to_file)
    if data["schema"] == DUEL_SCHEMA:
        return render_duel(decode(Duel, data, name), form, to_file=to_file)
    return render(read_probe(text, name), form, verbose=verbose, to_file=to_file)


def render_study(study: Study, form: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """A study in one of the forms."""
    if form == "json":
        return study.json()
    if form == "html":
        from rocsolid.report.study_page import study_html

        return study_html(study)
    _refuse_others(form, "a study", ("text", "json", "html"))
    from rocsolid.report.study_text import study_text
    from rocsolid.report.terminal import Terminal, terminal_of

    return study_text(study, Terminal() if to_file else terminal_of(), verbose=verbose)


def render_duel(duel: Duel, form: str, *, to_file: bool = False) -> str:
    """A comparison of two in one of the forms."""
    if form == "json":
        return duel.json()
    _refuse_others(form, "a comparison of two", ("text", "json"))
    from rocsolid.report.study_text import duel_text
    from rocsolid.report.terminal import Terminal, terminal_of

    return duel_text(duel, Terminal() if to_file else terminal_of())


def _refuse_others(form: str, what: str, known: tuple[str, ...]) -> None:
    if form not in known:
        msg = f"{what} cannot be shown as {form}; there are {', '.join(known)}"
        raise InputError(msg)
