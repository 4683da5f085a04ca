"""Render each kind of result in each of its output formats. A renderer is imported only when its format is used."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rocsolid.errors import UsageError
from rocsolid.model.redact import redact_all

if TYPE_CHECKING:
    from rocsolid.model.capture_report import CaptureReport
    from rocsolid.model.compile_log import BreakReport, CompileLog
    from rocsolid.model.dryrun import DryRunRecord
    from rocsolid.model.finding import Finding
    from rocsolid.model.lint import LintRecord
    from rocsolid.model.optimize_report import OptimizeReport
    from rocsolid.model.proof import ProofRecord
    from rocsolid.model.saved_probe import ProbeRecord
    from rocsolid.model.study import ABResult, Study
    from rocsolid.model.trace import TraceReport
    from rocsolid.model.trace_view import Timeline
    from rocsolid.model.verify_report import VerifyReport
    from rocsolid.report.terminal import Terminal


def render(record: "ProbeRecord", output: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """Render a probe."""
    record = redact_all(record)

    def text() -> str:
        from rocsolid.report.probe_text import probe_text

        return probe_text(record, _terminal(to_file=to_file), verbose=verbose)

    def json() -> str:
        from rocsolid.report.machine_readable import probe_json

        return probe_json(record)

    return _render(
        output, "a probe", text=text, json=json, html=lambda: _page(record), **_finding_formats(lambda: record.findings)
    )


def render_compiles(log: "CompileLog", output: str, *, code: bool = False, to_file: bool = False) -> str:
    """Render a compile log."""
    log = redact_all(log)

    def text() -> str:
        from rocsolid.report.compiles_text import compiles_text

        return compiles_text(log, _terminal(to_file=to_file), code=code)

    def json() -> str:
        from rocsolid.report.compiles_text import compiles_json

        return compiles_json(log, code=code)

    def find() -> "Sequence[Finding]":
        from rocsolid.observe.findings import break_findings, recompile_findings

        return [*break_findings(log.breaks, len(log.graphs)), *recompile_findings(log.graphs)]

    return _render(output, "a compile log", text=text, json=json, html=lambda: _page(log), **_finding_formats(find))


def render_breaks(report: "BreakReport", output: str, *, to_file: bool = False) -> str:
    """Render a report of graph breaks."""
    report = redact_all(report)

    def text() -> str:
        from rocsolid.report.compiles_text import breaks_text

        return breaks_text(report, _terminal(to_file=to_file))

    def json() -> str:
        from rocsolid.report.compiles_text import breaks_json

        return breaks_json(report)

    def find() -> "Sequence[Finding]":
        from rocsolid.observe.findings import break_findings

        return break_findings(report.breaks, len(report.graphs))

    return _render(
        output, "a graph-break report", text=text, json=json, html=lambda: _page(report), **_finding_formats(find)
    )


def render_trace(
    record: "TraceReport",
    output: str,
    *,
    verbose: bool = False,
    to_file: bool = False,
    timelines: "Mapping[str, Timeline] | None" = None,
) -> str:
    """Render the analysis of traces; the HTML page includes the given timelines."""
    record = redact_all(record)

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

    return _render(output, "a trace analysis", text=text, json=json, html=page)


def render_report(report: "VerifyReport | CaptureReport | ProofRecord", output: str) -> str:
    """Render a result whose text is its `str`."""
    report = redact_all(report)
    kinds = {"VerifyReport": "a verify report", "CaptureReport": "a capture report", "ProofRecord": "a proof record"}
    kind = kinds[type(report).__name__]
    has_page = type(report).__name__ != "CaptureReport"
    pages = {"html": lambda: _page(report)} if has_page else {}
    return _render(output, kind, text=lambda: f"{report}\n", json=report.json, **pages)


def render_optimize(report: "OptimizeReport", output: str, *, workload: str = "", to_file: bool = False) -> str:
    """Render the report of `optimize`; with the workload, the text ends with the next step."""
    report = redact_all(report)

    def text() -> str:
        from rocsolid.report.optimize_text import optimize_text

        return optimize_text(report, _terminal(to_file=to_file), workload=workload)

    return _render(output, "an optimize report", text=text, json=report.json, html=lambda: _page(report))


def render_study(study: "Study", output: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """Render a study."""
    study = redact_all(study)

    def text() -> str:
        from rocsolid.report.study_text import study_text

        return study_text(study, _terminal(to_file=to_file), verbose=verbose)

    return _render(output, "a study", text=text, json=study.json, html=lambda: _page(study))


def render_ab(result: "ABResult", output: str, *, to_file: bool = False) -> str:
    """Render an A/B test."""
    result = redact_all(result)

    def text() -> str:
        from rocsolid.report.study_text import ab_text

        return ab_text(result, _terminal(to_file=to_file))

    return _render(output, "an A/B test", text=text, json=result.json)


def render_dryrun(record: "DryRunRecord", output: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """Render a dry run."""
    record = redact_all(record)

    def text() -> str:
        from rocsolid.report.dryrun_text import dryrun_text

        return dryrun_text(record, _terminal(to_file=to_file), verbose=verbose)

    def json() -> str:
        from rocsolid.report.dryrun_text import dryrun_json

        return dryrun_json(record)

    return _render(
        output,
        "a dry run",
        text=text,
        json=json,
        html=lambda: _page(record),
        **_finding_formats(lambda: record.findings),
    )


def render_lint(record: "LintRecord", output: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """Render the findings of `lint`."""
    record = redact_all(record)

    def text() -> str:
        from rocsolid.report.lint_text import lint_text

        return lint_text(record, _terminal(to_file=to_file), verbose=verbose)

    def json() -> str:
        from rocsolid.report.machine_readable import lint_json

        return lint_json(record)

    return _render(
        output,
        "a lint result",
        text=text,
        json=json,
        html=lambda: _page(record),
        **_finding_formats(lambda: record.findings),
    )


def _render(output: str, kind: str, **formats: Callable[[], str]) -> str:
    if output not in formats:
        known = ", ".join(formats)
        msg = f"{kind} has no output format {output!r}; choose one of {known}"
        raise UsageError(msg)
    return formats[output]()


def _finding_formats(find: "Callable[[], Sequence[Finding]]") -> dict[str, Callable[[], str]]:
    """The output formats for other tools: SARIF and GitHub annotations."""

    def as_sarif() -> str:
        from rocsolid.report.machine_readable import sarif

        return sarif(find())

    def as_github() -> str:
        from rocsolid.report.machine_readable import github

        return github(find())

    return {"sarif": as_sarif, "github": as_github}


def _page(result: object) -> str:
    from rocsolid.report.result_pages import result_page

    return result_page(result)


def _terminal(*, to_file: bool) -> "Terminal":
    from rocsolid.report.terminal import Terminal, terminal_of

    return Terminal() if to_file else terminal_of()
