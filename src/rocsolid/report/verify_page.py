"""The HTML page of `rocsolid verify`: the errors of every form, by result and by layer."""

import math
from collections.abc import Sequence

from rocsolid.model.verify_report import Accuracy, FormCheck, LayerError, OutputCheck, VerifyReport
from rocsolid.report.html import Html, Node, tag
from rocsolid.report.html_page import legend, page
from rocsolid.report.sortable_table import Cell, sortable

_HEADINGS = ("result", "dtype", "verdict", "vs eager", "error", "eager's error", "largest", "cosine", "inputs", "why")
_WIDTH, _ROW, _LABEL, _FLOOR = 900, 18, 320, 1e-17  # of the plot, in pixels; errors below the floor are drawn at it
_EAGER, _CANDIDATE = "#9aa4b2", "var(--accent, #2f6db5)"
_CLASSES = {Accuracy.WRONG: "critical", Accuracy.LESS_ACCURATE: "warning"}


def verify_html(report: VerifyReport) -> str:
    """Return the page: the verdict, and for each form a table, the culprit and a plot of the error by layer."""
    body: list[Node] = [
        tag("p", tag("b", report.verdict.value, class_=_CLASSES.get(report.verdict, "good"))),
        tag("p", f"Errors are relative L2 norms, compared with {report.reference}.", class_="faint"),
        *(tag("p", f"Note: {note}") for note in report.notes),
    ]
    for form in report.forms:
        body += _form(form)
    return page(f"{report.name}: accuracy", report.machine, *body, styles=("trace.css",))


def _form(form: FormCheck) -> list[Node]:
    parts: list[Node] = [tag("h2", form.form)]
    if form.failure:
        return [*parts, tag("p", f"Not compared: {form.failure}")]
    parts.append(tag("p", tag("b", form.verdict.value, class_=_CLASSES.get(form.verdict, "good"))))
    parts += [tag("p", f"Note: {note}") for note in form.notes]
    parts.append(sortable(f"results of {form.form}", _HEADINGS, [_row(output) for output in form.outputs]))
    if form.culprit:
        parts.append(tag("pre", str(form.culprit)))
    if form.layers:
        parts += [tag("h3", "Error by layer"), _plot(form.layers)]
    return parts


def _row(output: OutputCheck) -> list[Cell]:
    error = output.error or output.difference
    return [
        output.path,
        output.dtype,
        output.verdict.value,
        _number(output.difference.relative_l2),
        _number(output.error.relative_l2 if output.error else None),
        _number(output.eager_error.relative_l2 if output.eager_error else None),
        _number(error.largest),
        (f"{error.cosine:.6f}", error.cosine),
        (f"x {output.scale:g}", output.scale),
        output.why,
    ]


def _number(value: float | None) -> Cell:
    return ("", math.inf) if value is None else (f"{value:.1e}", value)


def _plot(layers: Sequence[LayerError]) -> Html:
    """Return one row per layer, with the error of eager and of the candidate on a logarithmic axis."""
    errors = [error for layer in layers for error in (layer.eager, layer.candidate) if error and math.isfinite(error)]
    low, high = math.log10(max(min(errors, default=1.0), _FLOOR)) - 0.5, math.log10(max(errors, default=1.0)) + 0.5
    width = _WIDTH - _LABEL - 20

    def to_x(error: float) -> str:
        place = (math.log10(max(error, _FLOOR)) - low) / (high - low) if math.isfinite(error) else 1.0
        return f"{_LABEL + width * min(max(place, 0.0), 1.0):.1f}"

    marks: list[Html] = []
    for power in range(math.ceil(low), math.floor(high) + 1):
        x = to_x(10.0**power)
        marks.append(tag("line", x1=x, x2=x, y1=16, y2=len(layers) * _ROW + 20, stroke="var(--line, #8884)"))
        marks.append(tag("text", f"1e{power}", x=x, y=12, text_anchor="middle", font_size=11, fill="currentColor"))
    for index, layer in enumerate(layers):
        y = index * _ROW + 30
        marks.append(
            tag("text", layer.layer, x=_LABEL - 10, y=y + 4, text_anchor="end", font_size=12, fill="currentColor")
        )
        marks.append(
            tag("circle", tag("title", f"eager {layer.eager:.1e}"), cx=to_x(layer.eager), cy=y, r=4, fill=_EAGER)
        )
        if layer.candidate is not None:
            title = tag("title", f"candidate {layer.candidate:.1e}")
            marks.append(tag("circle", title, cx=to_x(layer.candidate), cy=y, r=4, fill=_CANDIDATE))
    plot = tag(
        "svg",
        marks,
        class_="forms",
        viewBox=f"0 0 {_WIDTH} {len(layers) * _ROW + 30}",
        role="img",
        aria_label="error by layer",
    )
    return tag("figure", legend([("eager", _EAGER), ("candidate", _CANDIDATE)]), plot)
