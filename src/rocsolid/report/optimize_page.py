"""The forms of a model side by side, as one self-contained HTML page."""

from html import escape

from rocsolid.model.optimize_report import Candidate, OptimizeReport, Outcome
from rocsolid.report.html_page import asset, page
from rocsolid.report.sortable_table import Cell, sizes, sortable, times

_HEADINGS = ("form", "outcome", "median", "from", "to", "times eager", "error", "set-up", "peak memory", "why")
_WIDTH, _ROW, _LEFT = 900, 34, 260


def optimize_html(report: OptimizeReport) -> str:
    """The verdict, a plot with intervals, and the table."""
    body = [
        f"<style>{asset('trace.css')}</style>",
        f"<p><b>{escape(report.chosen)}</b>, because {escape(report.why)}.</p>",
        f"<p class='faint'>Profile {escape(report.profile)}; noise of this run {report.noise:.1%}.</p>",
        _plot(report),
        f"<h2>Forms</h2>{sortable('forms', _HEADINGS, [_row(c) for c in report.candidates])}",
    ]
    return page(f"{report.name}: every form of it", report.where, "\n".join(body))


def _row(candidate: Candidate) -> list[Cell]:
    timing, against = candidate.timing, candidate.against_eager
    nothing: Cell = ("", float("inf"))
    measured = times(timing.median_ms * 1e6, timing.low_ms * 1e6, timing.high_ms * 1e6) if timing else (nothing,) * 3
    return [
        candidate.name,
        candidate.outcome.value,
        *measured,
        (f"{against.speedup:.2f}", against.speedup) if against else nothing,
        (f"{candidate.error:.1e}", candidate.error) if candidate.error is not None else nothing,
        (f"{candidate.setup_s:.1f} s", candidate.setup_s),
        *(sizes(candidate.peak_bytes) if candidate.peak_bytes else (nothing,)),
        candidate.why,
    ]


def _plot(report: OptimizeReport) -> str:
    """Medians as bars, intervals as lines; the shorter the better."""
    shown = [candidate for candidate in report.candidates if candidate.timing]
    if not shown:
        return ""
    longest = max(c.timing.high_ms for c in shown if c.timing)
    room = _WIDTH - _LEFT - 20
    lines = []
    for number, candidate in enumerate(shown):
        timing = candidate.timing
        if timing is None:
            continue
        top = number * _ROW + 8
        bar, low, high = (room * ms / longest for ms in (timing.median_ms, timing.low_ms, timing.high_ms))
        fill = "var(--accent, #2f6db5)" if candidate.outcome is Outcome.CHOSEN else "#9aa4b2"
        lines.append(
            f'<text x="{_LEFT - 10}" y="{top + 14}" text-anchor="end" font-size="13" fill="currentColor">'
            f"{escape(candidate.name)}</text>"
            f'<rect x="{_LEFT}" y="{top}" width="{bar:.1f}" height="18" rx="3" fill="{fill}"/>'
            f'<line x1="{_LEFT + low:.1f}" x2="{_LEFT + high:.1f}" y1="{top + 9}" y2="{top + 9}" '
            'stroke="currentColor" stroke-width="2"/>'
        )
    height = len(shown) * _ROW + 10
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="median time of each form" '
        f'style="max-width:{_WIDTH}px;width:100%">{"".join(lines)}</svg>'
    )
