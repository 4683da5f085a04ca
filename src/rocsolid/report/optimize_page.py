"""The HTML page of `rocsolid optimize`: all forms of a model with their times and errors."""

from rocsolid.model.optimize_report import FormOutcome, FormResult, OptimizeReport
from rocsolid.report.html import Html, tag
from rocsolid.report.html_page import page
from rocsolid.report.sortable_table import Cell, sizes, sortable, times

_HEADINGS = (
    "form",
    "outcome",
    "median",
    "from",
    "to",
    "times as fast as eager",
    "relative error",
    "error against the reference",
    "eager's own",
    "set-up",
    "peak memory",
    "why",
)
_WIDTH, _ROW_HEIGHT, _LABEL_WIDTH = 900, 34, 260  # of the plot, in pixels


def optimize_html(report: OptimizeReport) -> str:
    """Return the page: the chosen form, a plot with confidence intervals, and a table."""
    return page(
        f"{report.name}: forms",
        report.machine,
        tag("p", tag("b", report.chosen_label), f" was chosen, because {report.why}."),
        tag("p", f"Profile {report.profile}; noise of this run {report.noise:.1%}.", class_="faint"),
        _plot(report),
        tag("h2", "Forms"),
        sortable("forms", _HEADINGS, [_row(result) for result in report.forms]),
        styles=("trace.css",),
    )


def _row(result: FormResult) -> list[Cell]:
    timing, comparison = result.timing, result.against_eager
    empty: Cell = ("", float("inf"))
    measured = times(timing.median_ms * 1e6, timing.low_ms * 1e6, timing.high_ms * 1e6) if timing else (empty,) * 3
    return [
        result.label,
        result.outcome.value,
        *measured,
        (f"{comparison.speedup:.2f}", comparison.speedup) if comparison else empty,
        (f"{result.relative_error:.1e}", result.relative_error) if result.relative_error is not None else empty,
        *(
            (f"{error:.1e}", error) if error is not None else empty
            for error in (result.reference_error, result.eager_reference_error)
        ),
        (f"{result.setup_s:.1f} s", result.setup_s),
        *(sizes(result.peak_bytes) if result.peak_bytes else (empty,)),
        result.why,
    ]


def _plot(report: OptimizeReport) -> Html | None:
    """Return a plot: medians as bars, confidence intervals as lines. Shorter is better."""
    measured = [(result, result.timing) for result in report.forms if result.timing]
    if not measured:
        return None
    longest_ms = max(timing.high_ms for _, timing in measured)
    plot_width = _WIDTH - _LABEL_WIDTH - 20
    lines: list[Html] = []
    for index, (result, timing) in enumerate(measured):
        top = index * _ROW_HEIGHT + 8
        bar, low, high = (plot_width * ms / longest_ms for ms in (timing.median_ms, timing.low_ms, timing.high_ms))
        fill = "var(--accent, #2f6db5)" if result.outcome is FormOutcome.CHOSEN else "#9aa4b2"
        label_x, low_x, high_x = _LABEL_WIDTH - 10, f"{_LABEL_WIDTH + low:.1f}", f"{_LABEL_WIDTH + high:.1f}"
        lines += [
            tag("text", result.label, x=label_x, y=top + 14, text_anchor="end", font_size=13, fill="currentColor"),
            tag("rect", x=_LABEL_WIDTH, y=top, width=f"{bar:.1f}", height=18, rx=3, fill=fill),
            tag("line", x1=low_x, x2=high_x, y1=top + 9, y2=top + 9, stroke="currentColor", stroke_width=2),
        ]
    height = len(measured) * _ROW_HEIGHT + 10
    return tag(
        "svg",
        lines,
        class_="forms",
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        aria_label="median time of each form",
    )
