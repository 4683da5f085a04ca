"""HTML tables that the reader can sort by the values of a column, and that show each number with its unit."""

from collections.abc import Iterable, Sequence
from html import escape

from rocsolid.report.units import percent, plain_name, size, time

Cell = str | tuple[str, float]  # text, or text and the number to sort by
_MAX_UNWRAPPED = 22  # a longer text is wrapped


def times(*values: float) -> tuple[Cell, ...]:
    """Cells for times in nanoseconds."""
    return tuple((time(value), value) for value in values)


def counts(*values: int) -> tuple[Cell, ...]:
    """Cells for counts."""
    return tuple((f"{value:,}", value) for value in values)


def sizes(*values: int) -> tuple[Cell, ...]:
    """Cells for numbers of bytes."""
    return tuple((size(value), value) for value in values)


def share(part: float, whole: float) -> Cell:
    """A cell for a share in percent."""
    return percent(part, whole), part


def sortable(name: str, headings: Sequence[str], rows: Iterable[Sequence[Cell]], attributes: Sequence[str] = ()) -> str:
    """Return a table that the reader can sort and filter; `attributes` are the HTML attributes of each row."""
    all_rows = list(rows)
    classes = [" class='number'" if isinstance(cell, tuple) else "" for cell in all_rows[0]] if all_rows else []
    head = "".join(
        f'<th scope="col"{css_class}><button type="button">{escape(h)}</button></th>'
        for h, css_class in zip(headings, classes or [""] * len(headings), strict=True)
    )
    lines = []
    for index, row in enumerate(all_rows):
        row_attributes = f" {attributes[index]}" if attributes else ""
        lines.append(f"<tr{row_attributes}>{''.join(_cell(cell) for cell in row)}</tr>")
    return f"""<div class="tools" data-for="{name}"><input type="search" placeholder="filter" aria-label="filter {name}">
<output class="faint"></output></div>
<div class="scroll" tabindex="0" role="region" aria-label="{name}">
<table id="{name}" data-sortable><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>"""


def _cell(cell: Cell) -> str:
    if isinstance(cell, tuple):
        return f'<td class="number" data-sort="{cell[1]}">{escape(cell[0])}</td>'
    if len(cell) <= _MAX_UNWRAPPED:
        return f'<td class="word">{escape(cell)}</td>'
    return f'<td class="name"><span title="{escape(cell)}">{escape(plain_name(cell))}</span></td>'
