"""Plots as inline SVG. They use the colours of the page, so that they are readable in light mode, dark mode and print."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rocsolid.report.html import Html, tag

_WIDTH, _ROW_HEIGHT, _LEFT, _RIGHT, _TOP = 960, 26, 400, 90, 26  # margins: left, right and top
_MAX_LABEL_CHARS: Final = 58
_MIN_BAND: Final = 1e-9  # a narrower band is not drawn
_MIN_LOG_SPAN: Final = 0.02  # of the axis


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One row: an interval and its middle value."""

    label: str
    low: float
    middle: float
    high: float
    colour: str  # a name from the page's palette


def intervals(title: str, bars: Sequence[Bar], *, centre: float, band: float = 0.0) -> Html:
    """Return a plot of intervals of ratios on a logarithmic axis, with a line at the centre and a band for the noise around it."""
    # A speed that is not positive cannot be drawn; only a damaged record has one.
    bars = [bar for bar in bars if min(bar.low, bar.middle, bar.high) > 0 and max(bar.middle, bar.high) < math.inf]
    band = band if 0 < band < math.inf else 0.0
    ends = [centre * (1 + band), centre / (1 + band), centre, *(v for bar in bars for v in (bar.low, bar.high))]
    low, high = math.log(min(ends)), math.log(max(ends))
    span = max(high - low, _MIN_LOG_SPAN) * 1.1
    middle = (low + high) / 2

    def to_x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((math.log(value) - middle) / span + 0.5)

    height = _TOP + _ROW_HEIGHT * len(bars) + 8
    noise = None
    if band > _MIN_BAND:
        left, right = to_x(centre / (1 + band)), to_x(centre * (1 + band))
        noise = tag(
            "rect",
            x=f"{left:.1f}",
            y=_TOP - 6,
            width=f"{right - left:.1f}",
            height=height - _TOP,
            fill="var(--line)",
            opacity=".6",
        )
    at_centre = f"{to_x(centre):.1f}"
    drawing = tag(
        "svg",
        noise,
        tag("line", x1=at_centre, x2=at_centre, y1=_TOP - 6, y2=height - 6, stroke="var(--faint)"),
        tag("text", f"{centre:g}", x=at_centre, y=14, text_anchor="middle", font_size=12, fill="var(--faint)"),
        [_row(bar, index, to_x) for index, bar in enumerate(bars)],
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        aria_label=title,
    )
    return tag("figure", tag("figcaption", title, class_="faint"), tag("div", drawing), class_="plot")


def _row(bar: Bar, index: int, to_x: Callable[[float], float]) -> Html:
    y = _TOP + _ROW_HEIGHT * index + _ROW_HEIGHT / 2
    colour = f"var(--{bar.colour})"
    label = bar.label if len(bar.label) <= _MAX_LABEL_CHARS else bar.label[: _MAX_LABEL_CHARS - 1] + "…"
    title = f"{bar.label}: {bar.middle:.3f} ({bar.low:.3f} to {bar.high:.3f})"
    text_y, line_y = f"{y + 4:.1f}", f"{y:.1f}"
    low, middle, high = (f"{to_x(value):.1f}" for value in (bar.low, bar.middle, bar.high))
    return tag(
        "g",
        tag("title", title),
        tag("text", label, x=_LEFT - 10, y=text_y, text_anchor="end", font_size=12, fill="var(--ink)"),
        tag("line", x1=low, x2=high, y1=line_y, y2=line_y, stroke=colour, stroke_width=3),
        tag("circle", cx=middle, cy=line_y, r=5, fill=colour),
        tag("text", f"{bar.middle:.3f}", x=_WIDTH - _RIGHT + 12, y=text_y, font_size=12, fill="var(--ink)"),
    )
