"""Plots as inline SVG. They use the colours of the page, so that they are readable in light mode, dark mode and print."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

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


def intervals(title: str, bars: Sequence[Bar], *, centre: float, band: float = 0.0) -> str:
    """Return a plot of intervals of ratios on a logarithmic axis, with a line at the centre and a band for the noise around it."""
    ends = [centre * (1 + band), centre / (1 + band), centre, *(v for bar in bars for v in (bar.low, bar.high))]
    low, high = math.log(min(ends)), math.log(max(ends))
    span = max(high - low, _MIN_LOG_SPAN) * 1.1
    middle = (low + high) / 2

    def to_x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((math.log(value) - middle) / span + 0.5)

    height = _TOP + _ROW_HEIGHT * len(bars) + 8
    rows = "".join(_row(bar, index, to_x) for index, bar in enumerate(bars))
    noise = ""
    if band > _MIN_BAND:
        left, right = to_x(centre / (1 + band)), to_x(centre * (1 + band))
        noise = f'<rect x="{left:.1f}" y="{_TOP - 6}" width="{right - left:.1f}" height="{height - _TOP}" fill="var(--line)" opacity=".6"/>'
    return (
        f'<figure style="margin:0"><figcaption class="faint">{escape(title)}</figcaption><div style="overflow-x:auto">'
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}" style="width:100%;min-width:40rem">'
        f'{noise}<line x1="{to_x(centre):.1f}" x2="{to_x(centre):.1f}" y1="{_TOP - 6}" y2="{height - 6}" stroke="var(--faint)"/>'
        f'<text x="{to_x(centre):.1f}" y="14" text-anchor="middle" font-size="12" fill="var(--faint)">{centre:g}</text>'
        f"{rows}</svg></div></figure>"
    )


def _row(bar: Bar, index: int, to_x: Callable[[float], float]) -> str:
    y = _TOP + _ROW_HEIGHT * index + _ROW_HEIGHT / 2
    colour = f"var(--{bar.colour})"
    label = bar.label if len(bar.label) <= _MAX_LABEL_CHARS else bar.label[: _MAX_LABEL_CHARS - 1] + "…"
    title = f"{bar.label}: {bar.middle:.3f} ({bar.low:.3f} to {bar.high:.3f})"
    return (
        f'<g><title>{escape(title)}</title><text x="{_LEFT - 10}" y="{y + 4:.1f}" text-anchor="end" font-size="12" '
        f'fill="var(--ink)">{escape(label)}</text><line x1="{to_x(bar.low):.1f}" x2="{to_x(bar.high):.1f}" y1="{y:.1f}" '
        f'y2="{y:.1f}" stroke="{colour}" stroke-width="3"/><circle cx="{to_x(bar.middle):.1f}" cy="{y:.1f}" r="5" '
        f'fill="{colour}"/><text x="{_WIDTH - _RIGHT + 12}" y="{y + 4:.1f}" font-size="12" fill="var(--ink)">'
        f"{bar.middle:.3f}</text></g>"
    )
