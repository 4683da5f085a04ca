"""Plots as inline SVG with the colours of the page, so that they work in light mode, dark mode and print."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 960, 26, 400, 90, 26
_MAX_LABEL_CHARS: Final = 58
_MIN_BAND: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One row: an interval and its middle value."""

    label: str
    low: float
    middle: float
    high: float
    colour: str  # a name from the page's palette


def intervals(title: str, bars: Sequence[Bar], *, centre: float, band: float = 0.0) -> str:
    """Intervals of ratios on a logarithmic axis, with a line at the centre and a band for the noise around it."""
    ends = [centre * (1 + band), centre / (1 + band), centre, *(v for bar in bars for v in (bar.low, bar.high))]
    low, high = math.log(min(ends)), math.log(max(ends))
    span = max(high - low, 0.02) * 1.1
    middle = (low + high) / 2

    def at(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((math.log(value) - middle) / span + 0.5)

    height = _TOP + _ROW * len(bars) + 8
    rows = "".join(_row(bar, number, at) for number, bar in enumerate(bars))
    noise = ""
    if band > _MIN_BAND:
        left, right = at(centre / (1 + band)), at(centre * (1 + band))
        noise = f'<rect x="{left:.1f}" y="{_TOP - 6}" width="{right - left:.1f}" height="{height - _TOP}" fill="var(--line)" opacity=".6"/>'
    return (
        f'<figure style="margin:0"><figcaption class="faint">{escape(title)}</figcaption><div style="overflow-x:auto">'
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}" style="width:100%;min-width:40rem">'
        f'{noise}<line x1="{at(centre):.1f}" x2="{at(centre):.1f}" y1="{_TOP - 6}" y2="{height - 6}" stroke="var(--faint)"/>'
        f'<text x="{at(centre):.1f}" y="14" text-anchor="middle" font-size="12" fill="var(--faint)">{centre:g}</text>'
        f"{rows}</svg></div></figure>"
    )


def _row(bar: Bar, number: int, at: Callable[[float], float]) -> str:
    y = _TOP + _ROW * number + _ROW / 2
    colour = f"var(--{bar.colour})"
    label = bar.label if len(bar.label) <= _MAX_LABEL_CHARS else bar.label[: _MAX_LABEL_CHARS - 1] + "…"
    title = f"{bar.label}: {bar.middle:.3f} ({bar.low:.3f} to {bar.high:.3f})"
    return (
        f'<g><title>{escape(title)}</title><text x="{_LEFT - 10}" y="{y + 4:.1f}" text-anchor="end" font-size="12" '
        f'fill="var(--ink)">{escape(label)}</text><line x1="{at(bar.low):.1f}" x2="{at(bar.high):.1f}" y1="{y:.1f}" '
        f'y2="{y:.1f}" stroke="{colour}" stroke-width="3"/><circle cx="{at(bar.middle):.1f}" cy="{y:.1f}" r="5" '
        f'fill="{colour}"/><text x="{_WIDTH - _RIGHT + 12}" y="{y + 4:.1f}" font-size="12" fill="var(--ink)">'
        f"{bar.middle:.3f}</text></g>"
    )
