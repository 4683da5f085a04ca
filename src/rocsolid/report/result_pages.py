"""The HTML page of any result, for `--output html` and for notebook cells."""

from importlib import import_module
from typing import Final

from rocsolid.model.environment import Environment
from rocsolid.model.redact import redact_all
from rocsolid.model.saved_probe import ProbeRecord
from rocsolid.model.study import ABResult
from rocsolid.report.html import frame, tag

# Module and function that render each result type. They are stored as names, so that only the needed module is imported.
_PAGES: Final = {
    "BreakReport": ("compiles_page", "breaks_html"),
    "CompileLog": ("compiles_page", "compiles_html"),
    "DryRunRecord": ("dryrun_page", "dryrun_html"),
    "LintRecord": ("lint_page", "lint_html"),
    "OptimizeReport": ("optimize_page", "optimize_html"),
    "ProbeRecord": ("probe_page", "probe_html"),
    "ProofRecord": ("proof_page", "proof_html"),
    "Study": ("study_page", "study_html"),
    "TraceComparison": ("compare_page", "comparison_html"),
    "TraceReport": ("trace_page", "trace_html"),
    "VerifyReport": ("verify_page", "verify_html"),
}
_CELL_HEIGHT_PX: Final = 480


def result_page(result: object) -> str:
    """Return the HTML page of a result; raises KeyError for a result that has none."""
    module, function = _PAGES[type(result).__name__]
    page: str = getattr(import_module(f"rocsolid.report.{module}"), function)(redact_all(result))
    return page


def notebook_html(result: object) -> str:
    """Return HTML for a notebook cell: the page of the result, or its text if it has no page.

    The page is in a sandboxed iframe, so that its styles and script do not affect the notebook.
    """
    if isinstance(result, Environment):
        result = ProbeRecord(environment=result, findings=(), profile="")
    if type(result).__name__ not in _PAGES:
        return str(tag("pre", _text(redact_all(result))))
    return frame(result_page(result), height_px=_CELL_HEIGHT_PX)


def _text(result: object) -> str:
    if not isinstance(result, ABResult):
        return str(result)
    from rocsolid.report.study_text import ab_text
    from rocsolid.report.terminal import Terminal

    return ab_text(result, Terminal())
