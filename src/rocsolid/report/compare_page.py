"""The comparison of two traces as one self-contained HTML page."""

from collections.abc import Callable, Iterable, Sequence

from rocsolid.model.trace import KernelChange, MetricChange, TraceComparison
from rocsolid.report.html import Html, tag
from rocsolid.report.html_page import definitions, page
from rocsolid.report.sortable_table import Cell, counts, sizes, sortable, times
from rocsolid.report.units import time

_METRIC_HEADINGS = ("", "before", "after", "change")
_KERNEL_HEADINGS = (
    "change",
    "kernel before",
    "kernel after",
    "operator",
    "category",
    "count before",
    "count after",
    "time before",
    "time after",
    "difference",
)


def comparison_html(comparison: TraceComparison) -> str:
    """Return the page: metrics, categories, idle time and kernels before and after."""
    sides = (
        ("before", comparison.before, comparison.before_model),
        ("after", comparison.after, comparison.after_model),
    )
    return page(
        "Trace comparison",
        f"{comparison.before} → {comparison.after}",
        definitions([(side, f"{file} {model}") for side, file, model in sides]),
        tag("h2", "Summary"),
        _metrics("metrics", comparison.metrics),
        tag(
            "div",
            tag("div", tag("h2", "Device time by category"), _metrics("categories", comparison.categories)),
            tag("div", tag("h2", "Idle time by cause"), _metrics("idle", comparison.idle)),
            class_="pair",
        ),
        tag("h2", "Kernels"),
        sortable("kernels", _KERNEL_HEADINGS, [_kernel(row) for row in comparison.kernels]),
        styles=("trace.css",),
    )


def _metrics(name: str, rows: Iterable[MetricChange]) -> Html:
    return sortable(name, _METRIC_HEADINGS, [_metric(row) for row in rows])


def _metric(row: MetricChange) -> Sequence[Cell]:
    """Return the cells of a row. The end of the name decides the unit; categories and causes are times."""
    cells: Callable[[int, int], tuple[Cell, ...]] = times
    if row.name.endswith("bytes"):
        cells = sizes
    elif row.name.endswith(("count", "launches")):
        cells = counts
    ratio = (row.after - row.before) / row.before if row.before else 0.0
    change: Cell = (f"{100 * ratio:+.1f} %" if row.before else "new" if row.after else "", ratio)
    return row.name.removesuffix("_ns").replace("_", " "), *cells(row.before, row.after), change


def _kernel(row: KernelChange) -> Sequence[Cell]:
    delta = ("+" if row.delta_ns > 0 else "") + time(row.delta_ns)
    return (
        row.change.value,
        row.before,
        row.after,
        row.operator,
        row.category.value,
        *counts(row.before_count, row.after_count),
        *times(row.before_ns, row.after_ns),
        (delta, row.delta_ns),
    )
