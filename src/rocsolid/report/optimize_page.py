"""The HTML page of `rocsolid optimize`: all forms of a model with their times and errors."""

from html import escape

from rocsolid.model.optimize_report import FormOutcome, FormResult, OptimizeReport
from rocsolid.report.html_page import asset, page
from rocsolid.report.sortable_table import Cell, sizes, sortable, times

_HEADINGS = ("form", "outcome", "median", "from", "to", "times eager", "error", "set-up", "peak memory", "why")
_WIDTH, _ROW, _LEFT = 900, 34, 260


def optimize_html(report: OptimizeReport) -> str:
    """Return the page: the chosen form, a plot with confidence intervals, and a table."""
    body = [
        f"<style>{asset('trace.css')}</style>",
        f"<p><b>{escape(report.chosen.label)}</b> is chosen, because {escape(report.why)}.</p>",
        f"<p class='faint'>Profile {escape(report.profile)}; noise of this run {report.noise:.1%}.</p>",
        _plot(report),
        f"<h2>Forms</h2>{sortable('forms', _HEADINGS, [_row(c) for c in report.forms])}",
    ]
    return page(f"{report.name}: forms", report.machine, "\n".join(body))


def _row(result: FormResult) -> list[Cell]:
    timing, against = result.timing, result.against_eager
    nothing: Cell = ("", float("inf"))
    measured = times(timing.median_ms * 1e6, timing.low_ms * 1e6, timing.high_ms * 1e6) if timing else (nothing,) * 3
    return [
        result.form.label,
        result.outcome.value,
        *measured,
        (f"{against.speedup:.2f}", against.speedup) if against else nothing,
        (f"{result.error:.1e}", result.error) if result.error is not None else nothing,
        (f"{result.setup_s:.1f} s", result.setup_s),
        *(sizes(result.peak_bytes) if result.peak_bytes else (nothing,)),
        result.why,
    ]


def _plot(report: OptimizeReport) -> str:
    """Medians as bars, confidence intervals as lines; shorter is better."""
    shown = [result for result in report.forms if result.timing]
    if not shown:
        return ""
    longest = max(c.timing.high_ms for c in shown if c.timing)
    room = _WIDTH - _LEFT - 20
    lines = []
    for number, result in enumerate(shown):
        timing = result.timing
        if timing is None:
            continue
        top = number * _ROW + 8
        bar, low, high = (room * ms / longest for ms in (timing.median_ms, timing.low_ms, timing.high_ms))
        fill = "var(--accent, #2f6db5)" if result.outcome is FormOutcome.CHOSEN else "#9aa4b2"
        lines.append(
            f'<text x="{_LEFT - 10}" y="{top + 14}" text-anchor="end" font-size="13" fill="currentColor">'
            f"{escape(result.form.label)}</text>"
            f'<rect x="{_LEFT}" y="{top}" width="{bar:.1f}" height="18" rx="3" fill="{fill}"/>'
            f'<line x1="{_LEFT + low:.1f}" x2="{_LEFT + high:.1f}" y1="{top + 9}" y2="{top + 9}" '
            'stroke="currentColor" stroke-width="2"/>'
        )
    height = len(shown) * _ROW + 10
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="median time of each form" '
        f'style="max-width:{_WIDTH}px;width:100%">{"".join(lines)}</svg>'
    )
