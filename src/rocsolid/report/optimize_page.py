"""The HTML page of `rocsolid optimize`: all forms of a model with their times and errors."""

from html import escape

from rocsolid.model.optimize_report import FormOutcome, FormResult, OptimizeReport
from rocsolid.report.html_page import asset, page
from rocsolid.report.sortable_table import Cell, sizes, sortable, times

_HEADINGS = (
    "form",
    "outcome",
    "median",
    "from",
    "to",
    "times as fast as eager",
    "relative error",
    "set-up",
    "peak memory",
    "why",
)
_WIDTH, _ROW_HEIGHT, _LABEL_WIDTH = 900, 34, 260  # of the plot, in pixels


def optimize_html(report: OptimizeReport) -> str:
    """Return the page: the chosen form, a plot with confidence intervals, and a table."""
    body = [
        f"<style>{asset('trace.css')}</style>",
        f"<p><b>{escape(report.chosen.label)}</b> was chosen, because {escape(report.why)}.</p>",
        f"<p class='faint'>Profile {escape(report.profile)}; noise of this run {report.noise:.1%}.</p>",
        _plot(report),
        f"<h2>Forms</h2>{sortable('forms', _HEADINGS, [_row(result) for result in report.forms])}",
    ]
    return page(f"{report.name}: forms", report.machine, "\n".join(body))


def _row(result: FormResult) -> list[Cell]:
    timing, comparison = result.timing, result.against_eager
    empty: Cell = ("", float("inf"))
    measured = times(timing.median_ms * 1e6, timing.low_ms * 1e6, timing.high_ms * 1e6) if timing else (empty,) * 3
    return [
        result.form.label,
        result.outcome.value,
        *measured,
        (f"{comparison.speedup:.2f}", comparison.speedup) if comparison else empty,
        (f"{result.relative_error:.1e}", result.relative_error) if result.relative_error is not None else empty,
        (f"{result.setup_s:.1f} s", result.setup_s),
        *(sizes(result.peak_bytes) if result.peak_bytes else (empty,)),
        result.why,
    ]


def _plot(report: OptimizeReport) -> str:
    """Return a plot: medians as bars, confidence intervals as lines. Shorter is better."""
    measured = [result for result in report.forms if result.timing]
    if not measured:
        return ""
    longest_ms = max(result.timing.high_ms for result in measured if result.timing)
    plot_width = _WIDTH - _LABEL_WIDTH - 20
    lines = []
    for index, result in enumerate(measured):
        timing = result.timing
        if timing is None:
            continue
        top = index * _ROW_HEIGHT + 8
        bar, low, high = (plot_width * ms / longest_ms for ms in (timing.median_ms, timing.low_ms, timing.high_ms))
        fill = "var(--accent, #2f6db5)" if result.outcome is FormOutcome.CHOSEN else "#9aa4b2"
        lines.append(
            f'<text x="{_LABEL_WIDTH - 10}" y="{top + 14}" text-anchor="end" font-size="13" fill="currentColor">'
            f"{escape(result.form.label)}</text>"
            f'<rect x="{_LABEL_WIDTH}" y="{top}" width="{bar:.1f}" height="18" rx="3" fill="{fill}"/>'
            f'<line x1="{_LABEL_WIDTH + low:.1f}" x2="{_LABEL_WIDTH + high:.1f}" y1="{top + 9}" y2="{top + 9}" '
            'stroke="currentColor" stroke-width="2"/>'
        )
    height = len(measured) * _ROW_HEIGHT + 10
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="median time of each form" '
        f'style="max-width:{_WIDTH}px;width:100%">{"".join(lines)}</svg>'
    )
