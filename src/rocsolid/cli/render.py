"""Each kind of result in each of its forms; what a form needs is imported when it is asked for."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rocsolid.errors import UsageError

if TYPE_CHECKING:
    from rocsolid.model.capture_report import CaptureReport
    from rocsolid.model.compile_log import BreakReport, CompileLog
    from rocsolid.model.dryrun import DryRunRecord
    from rocsolid.model.finding import Finding
    from rocsolid.model.lint import LintRecord
    from rocsolid.model.optimize_report import OptimizeReport
    from rocsolid.model.saved_probe import ProbeRecord
    from rocsolid.model.study import ABResult, Study
    from rocsolid.model.trace import TraceReport
    from rocsolid.model.trace_view import Timeline
    from rocsolid.report.terminal import Terminal


def render(record: "ProbeRecord", form: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """A probe in one of the forms."""

    def page() -> str:
        from rocsolid.report.probe_page import probe_html

        return probe_html(record)

    def text() -> str:
        from rocsolid.report.probe_text import probe_text

        return probe_text(record, _terminal(to_file=to_file), verbose=verbose)

    def json() -> str:
        from rocsolid.report.machine_readable import probe_json

        return probe_json(record)

    return _in_form(form, "probes", text=text, json=json, html=page, **_for_machines(lambda: record.findings))


def render_compiles(log: "CompileLog", form: str, *, code: bool = False, to_file: bool = False) -> str:
    """A compile log in one of the forms."""

    def page() -> str:
        from rocsolid.report.compiles_page import compiles_html

        return compiles_html(log)

    def text() -> str:
        from rocsolid.report.compiles_text import compiles_text

        return compiles_text(log, _terminal(to_file=to_file), code=code)

    def json() -> str:
        from rocsolid.report.compiles_text import compiles_json

        return compiles_json(log, code=code)

    def found() -> "Sequence[Finding]":
        from rocsolid.observe.findings import break_findings, recompile_findings

        return [*break_findings(log.breaks, len(log.graphs)), *recompile_findings(log.graphs)]

    return _in_form(form, "compile logs", text=text, json=json, html=page, **_for_machines(found))


def render_breaks(report: "BreakReport", form: str, *, to_file: bool = False) -> str:
    """A report of graph breaks in one of the forms."""

    def page() -> str:
        from rocsolid.report.compiles_page import breaks_html

        return breaks_html(report)

    def text() -> str:
        from rocsolid.report.compiles_text import breaks_text

        return breaks_text(report, _terminal(to_file=to_file))

    def json() -> str:
        from rocsolid.report.compiles_text import breaks_json

        return breaks_json(report)

    def found() -> "Sequence[Finding]":
        from rocsolid.observe.findings import break_findings

        return break_findings(report.breaks, len(report.graphs))

    return _in_form(form, "graph breaks", text=text, json=json, html=page, **_for_machines(found))


def render_trace(
    record: "TraceReport",
    form: str,
    *,
    verbose: bool = False,
    to_file: bool = False,
    timelines: "Mapping[str, Timeline] | None" = None,
) -> str:
    """Answers about traces in one of the forms; a page shows the timelines that are given."""

    def page() -> str:
        from rocsolid.report.trace_page import trace_html

        return trace_html(record, timelines)

    def text() -> str:
        from rocsolid.report.trace_text import trace_text

        return trace_text(record, _terminal(to_file=to_file), verbose=verbose)

    def json() -> str:
        from rocsolid.model.codec import dumps
        from rocsolid.model.trace import TRACE_SCHEMA
        from rocsolid.version import __version__

        return dumps(
            TRACE_SCHEMA, rocsolid=__version__, files=record.files, findings=record.findings, ranks=record.ranks
        )

    return _in_form(form, "answers about traces", text=text, json=json, html=page)


def render_optimize(report: "OptimizeReport", form: str) -> str:
    """The forms of a model in one of the forms of output."""

    def page() -> str:
        from rocsolid.report.optimize_page import optimize_html

        return optimize_html(report)

    return _in_form(form, "optimizations", text=lambda: f"{report}\n", json=report.json, html=page)


def render_study(study: "Study", form: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """A study in one of the forms."""

    def page() -> str:
        from rocsolid.report.study_page import study_html

        return study_html(study)

    def text() -> str:
        from rocsolid.report.study_text import study_text

        return study_text(study, _terminal(to_file=to_file), verbose=verbose)

    return _in_form(form, "studies", text=text, json=study.json, html=page)


def render_ab(result: "ABResult", form: str, *, to_file: bool = False) -> str:
    """An A/B test in one of the forms."""

    def text() -> str:
        from rocsolid.report.study_text import ab_text

        return ab_text(result, _terminal(to_file=to_file))

    return _in_form(form, "A/B tests", text=text, json=result.json)


def render_dryrun(record: "DryRunRecord", form: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """A dry run in one of the forms."""

    def page() -> str:
        from rocsolid.report.dryrun_page import dryrun_html

        return dryrun_html(record)

    def text() -> str:
        from rocsolid.report.dryrun_text import dryrun_text

        return dryrun_text(record, _terminal(to_file=to_file), verbose=verbose)

    def json() -> str:
        from rocsolid.report.dryrun_text import dryrun_json

        return dryrun_json(record)

    return _in_form(form, "dry runs", text=text, json=json, html=page, **_for_machines(lambda: record.findings))


def render_lint(record: "LintRecord", form: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """A lint in one of the forms."""

    def page() -> str:
        from rocsolid.report.lint_page import lint_html

        return lint_html(record)

    def text() -> str:
        from rocsolid.report.lint_text import lint_text

        return lint_text(record, _terminal(to_file=to_file), verbose=verbose)

    def json() -> str:
        from rocsolid.report.machine_readable import lint_json

        return lint_json(record)

    return _in_form(form, "lints", text=text, json=json, html=page, **_for_machines(lambda: record.findings))


def render_capture(report: "CaptureReport", form: str) -> str:
    """A report about captures in one of the forms."""
    return _in_form(form, "reports about captures", text=lambda: f"{report}\n", json=report.json)


def _in_form(form: str, what: str, **forms: Callable[[], str]) -> str:
    if form not in forms:
        known = ", ".join(forms)
        msg = f"{what} have no form {form!r}; there are {known}"
        raise UsageError(msg)
    return forms[form]()


def _for_machines(found: "Callable[[], Sequence[Finding]]") -> dict[str, Callable[[], str]]:
    """Findings as tools read them."""

    def as_sarif() -> str:
        from rocsolid.report.machine_readable import sarif

        return sarif(found())

    def as_github() -> str:
        from rocsolid.report.machine_readable import github

        return github(found())

    return {"sarif": as_sarif, "github": as_github}


def _terminal(*, to_file: bool) -> "Terminal":
    from rocsolid.report.terminal import Terminal, terminal_of

    return Terminal() if to_file else terminal_of()
