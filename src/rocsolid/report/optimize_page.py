"""The HTML page of `rocsolid optimize`: all forms of a model with their times and errors."""

from typing import Final

from rocsolid.model.optimize_report import RATIO_NOTE, FormOutcome, FormResult, OptimizeReport
from rocsolid.report.html import Html, tag
from rocsolid.report.html_page import page
from rocsolid.report.sortable_table import Cell, sizes, sortable, times

_EMPTY: Final[Cell] = ("", float("inf"))
_WIDTH, _ROW_HEIGHT, _LABEL_WIDTH = 900, 34, 260  # of the plot, in pixels
_MAX_LABEL: Final = 34  # characters; the table below has the whole text


def optimize_html(report: OptimizeReport) -> str:
    """Return the page: the chosen form, a plot with confidence intervals, and a table."""
    return page(
        f"{report.name}: forms",
        report.machine,
        tag("p", tag("b", report.chosen_label), f" was chosen, because {report.why}."),
        tag("p", f"Profile {report.profile}; noise of this run {report.noise:.1%}.", class_="faint"),
        [tag("p", f"{note[0].upper()}{note[1:]}.") for note in report.notes()],
        _plot(report),
        tag("h2", "Forms"),
        _table(report),
        tag("p", f"{RATIO_NOTE[0].upper()}{RATIO_NOTE[1:]}.", class_="faint")
        if any(result.settings for result in report.forms)
        else None,
        styles=("trace.css",),
    )


def _table(report: OptimizeReport) -> Html:
    """Return all forms. Columns that are empty for every form are left out."""
    columns = [_cells(result) for result in report.forms]
    shown = [name for name in columns[0] if any(cells[name] not in ("", _EMPTY) for cells in columns)]
    return sortable("forms", shown, [[cells[name] for name in shown] for cells in columns])


def _cells(result: FormResult) -> dict[str, Cell]:
    """Return the cell of each column."""
    timing, comparison = result.timing, result.against_eager
    measured = times(timing.median_ms * 1e6, timing.low_ms * 1e6, timing.high_ms * 1e6) if timing else (_EMPTY,) * 3

    def error(value: float | None) -> Cell:
        return (f"{value:.1e}", value) if value is not None else _EMPTY

    return {
        "form": result.label,
        "outcome": result.outcome.value,
        **dict(zip(("median", "from", "to"), measured, strict=True)),
        "times as fast as eager": (f"{comparison.speedup:.2f}", comparison.speedup) if comparison else _EMPTY,
        "relative error": error(result.relative_error),
        "error against the reference": error(result.reference_error),
        "eager's own": error(result.eager_reference_error),
        "set-up": (f"{result.setup_s:.1f} s", result.setup_s),
        "peak memory": sizes(result.peak_bytes)[0] if result.peak_bytes else _EMPTY,
        "why": result.why,
    }


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
            tag(
                "text",
                _short(result.label),
                x=label_x,
                y=top + 14,
                text_anchor="end",
                font_size=13,
                fill="currentColor",
            ),
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


def _short(label: str) -> str:
    return label if len(label) <= _MAX_LABEL else f"{label[: _MAX_LABEL - 1]}…"
