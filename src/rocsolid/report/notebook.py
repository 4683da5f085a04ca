"""Converts results to HTML for a notebook cell: the HTML page of the result in an iframe, or its text if it has no page."""

from html import escape
from importlib import import_module
from typing import Final

from rocsolid.model.environment import Environment
from rocsolid.model.saved_probe import ProbeRecord
from rocsolid.model.study import ABResult
from rocsolid.report.study_text import ab_text
from rocsolid.report.terminal import Terminal

# Module and function that render each result type. They are stored as names, so that only the needed module is imported.
_PAGES: Final = {
    "BreakReport": ("compiles_page", "breaks_html"),
    "CompileLog": ("compiles_page", "compiles_html"),
    "DryRunRecord": ("dryrun_page", "dryrun_html"),
    "LintRecord": ("lint_page", "lint_html"),
    "OptimizeReport": ("optimize_page", "optimize_html"),
    "ProbeRecord": ("probe_page", "probe_html"),
    "Study": ("study_page", "study_html"),
    "TraceComparison": ("compare_page", "comparison_html"),
    "TraceReport": ("trace_page", "trace_html"),
}
_HEIGHT_PX: Final = 480


def to_html(result: object) -> str:
    """Return HTML for a notebook cell. The page is in a sandboxed iframe, so that its styles and script do not affect the notebook."""
    if isinstance(result, Environment):
        result = ProbeRecord(environment=result, findings=(), profile="")
    renderer = _PAGES.get(type(result).__name__)
    if renderer is None:
        text = ab_text(result, Terminal()) if isinstance(result, ABResult) else str(result)
        return f"<pre>{escape(text)}</pre>"
    module, function = renderer
    page: str = getattr(import_module(f"rocsolid.report.{module}"), function)(result)
    style = f"width:100%;height:{_HEIGHT_PX}px;border:1px solid #8884;border-radius:6px"
    return f'<iframe srcdoc="{escape(page, quote=True)}" sandbox="allow-scripts" style="{style}"></iframe>'
