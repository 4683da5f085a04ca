"""HTML tables that the reader can sort by the values of a column, and that show each number with its unit."""

from collections.abc import Iterable, Mapping, Sequence

from rocsolid.report.html import Attribute, Html, tag
from rocsolid.report.html_page import heading, table_frame
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


def sortable(
    name: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    attributes: Sequence[Mapping[str, Attribute]] = (),
    *,
    has_filter: bool = True,
) -> Html:
    """Return a table that the reader can sort and filter; `attributes` are the attributes of each row, as `tag` takes them."""
    all_rows = list(rows)
    classes = [("number" if isinstance(cell, tuple) else None) for cell in all_rows[0]] if all_rows else []
    head = [heading(h, css) for h, css in zip(headings, classes or [None] * len(headings), strict=True)]
    body = [
        tag("tr", [_cell(cell) for cell in row], **(attributes[index] if attributes else {}))
        for index, row in enumerate(all_rows)
    ]
    return table_frame(name, head, body, has_filter=has_filter)


def _cell(cell: Cell) -> Html:
    if isinstance(cell, tuple):
        return tag("td", cell[0], class_="number", data_sort=cell[1])
    if len(cell) <= _MAX_UNWRAPPED:
        return tag("td", cell, class_="word")
    return tag("td", tag("span", plain_name(cell), title=cell), class_="name")
