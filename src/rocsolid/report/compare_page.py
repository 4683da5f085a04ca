"""The comparison of two traces as one self-contained HTML page."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from rocsolid.model.trace import KernelChange, MetricChange, OperatorChange, TraceComparison
from rocsolid.report.html import Html, tag
from rocsolid.report.html_page import definitions, page
from rocsolid.report.sortable_table import Cell, counts, sizes, sortable, times
from rocsolid.report.trace_text import compared_operators, comparison_verdict, time_kind
from rocsolid.report.units import time

_FEW_ROWS = 12
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


_OPERATOR_HEADINGS = (
    "operator",
    "inputs",
    "matched by",
    "time before",
    "time after",
    "difference",
    "kernel before",
    "kernel after",
    "events before",
    "events after",
    "category",
)


def comparison_html(comparison: TraceComparison) -> str:
    """Return the page: metrics, categories, idle time and kernels before and after."""
    sides = (
        ("before", comparison.before, comparison.before_model),
        ("after", comparison.after, comparison.after_model),
    )
    kind = time_kind(cpu=comparison.cpu)
    kind = kind[0].upper() + kind[1:]
    by_operator, per_step = compared_operators(comparison)
    return page(
        "Trace comparison",
        " → ".join(model or "unknown device" for _, _, model in sides),
        definitions([(side, file) for side, file, _ in sides]),
        [tag("p", line) for line in comparison_verdict(comparison)],
        tag("h2", "Summary"),
        _metrics("metrics", comparison.metrics),
        None
        if comparison.cpu
        else tag(
            "div",
            tag("div", tag("h2", "Device time by category"), _metrics("categories", comparison.categories)),
            tag("div", tag("h2", "Idle time by cause"), _metrics("idle", comparison.idle)),
            class_="pair",
        ),
        tag("h2", f"{kind} by operator{per_step}"),
        sortable(
            "by-operator",
            ("operator", "before", "after", "difference"),
            [_total(row) for row in by_operator],
        ),
        (tag("h2", f"{kind} by module, without inner modules"), _metrics("modules", comparison.modules))
        if comparison.modules
        else None,
        (tag("h2", "Steps (host time)"), _metrics("steps", comparison.steps)) if comparison.steps else None,
        None
        if comparison.cpu
        else (
            tag("h2", "Device time by operator and shape"),
            sortable(
                "operators", _OPERATOR_HEADINGS, [_operator(row, comparison.labels) for row in comparison.operators]
            ),
            tag("h2", "Kernels"),
            sortable("kernels", _KERNEL_HEADINGS, [_kernel(row, comparison.labels) for row in comparison.kernels]),
        ),
        styles=("trace.css",),
    )


def _metrics(name: str, rows: Iterable[MetricChange]) -> Html:
    cells = [_metric(row) for row in rows]
    return sortable(name, _METRIC_HEADINGS, cells, has_filter=len(cells) > _FEW_ROWS)


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


def _difference(ns: int) -> Cell:
    return ("+" if ns > 0 else "") + time(ns), ns


def _total(row: MetricChange) -> Sequence[Cell]:
    return row.name, *times(row.before, row.after), _difference(row.after - row.before)


def _operator(row: OperatorChange, labels: Mapping[str, str]) -> Sequence[Cell]:
    return (
        row.operator or f"other {row.category.value}",
        row.shape,
        row.match.value,
        *times(row.before_ns, row.after_ns),
        _difference(row.delta_ns),
        labels.get(row.before_kernel, row.before_kernel),
        labels.get(row.after_kernel, row.after_kernel),
        *counts(row.before_count, row.after_count),
        row.category.value,
    )


def _kernel(row: KernelChange, labels: Mapping[str, str]) -> Sequence[Cell]:
    return (
        row.change.value,
        labels.get(row.before, row.before),
        labels.get(row.after, row.after),
        row.operator,
        row.category.value,
        *counts(row.before_count, row.after_count),
        *times(row.before_ns, row.after_ns),
        _difference(row.delta_ns),
    )
