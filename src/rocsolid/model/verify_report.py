"""The result of `rs.verify` and `rocsolid verify`: for each form and each result, how large its error is and whether it is wrong."""

import math
from dataclasses import dataclass
from enum import Enum

from rocsolid.model.notebook import NotebookResult

VERIFY_SCHEMA = "rocsolid/verify/1"


class Accuracy(Enum):
    """The verdict on a result that was compared with eager and with the same model in higher precision."""

    SAME = "same"
    AS_ACCURATE = "different but as accurate"
    LESS_ACCURATE = "less accurate"
    WRONG = "wrong"

    @property
    def passes(self) -> bool:
        """Whether a form with this verdict may replace eager."""
        return self in (Accuracy.SAME, Accuracy.AS_ACCURATE)

    @classmethod
    def worst(cls, verdicts: "list[Accuracy]") -> "Accuracy":
        """Return the worst of these verdicts; `same` if there are none."""
        order = list(cls)
        return max(verdicts, key=order.index, default=cls.SAME)


@dataclass(frozen=True, kw_only=True)
class TensorError:
    """How much a tensor differs from another one."""

    relative_l2: float = 0.0  # norm of the difference / norm of the other tensor
    largest: float = 0.0  # largest difference, relative to the element or to the RMS, whichever is larger
    steps: float = 0.0  # largest difference in steps of the dtype: absolute difference / (eps * largest value)
    scale: float = 0.0  # how far the best constant factor between the two is from 1
    cosine: float = 1.0
    mismatched: int = 0  # elements beyond the tolerance
    special: int = 0  # elements whose NaN/Inf pattern differs
    elements: int = 0


@dataclass(frozen=True, kw_only=True)
class OutputCheck:
    """The verdict on one result, with the errors of its worst scale."""

    path: str  # as in `result[0]`; `argument 1` for a tensor that the call writes to
    dtype: str
    verdict: Accuracy
    why: str = ""
    difference: TensorError = TensorError()  # compared with eager
    error: TensorError | None = None  # compared with the reference; None without one
    eager_error: TensorError | None = None  # eager compared with the reference
    rounding_error: float | None = None  # relative L2 error of a run that rounds at random
    scale: float = 1.0  # factor of the inputs


@dataclass(frozen=True, kw_only=True)
class LayerError:
    """The relative L2 error of a module's result, compared with the reference."""

    layer: str
    eager: float
    candidate: float | None = None  # None if the candidate does not have this module


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """What makes a result wrong, from large to small. Parts that are not known are empty."""

    layer: str = ""  # path of the module
    graph: str = ""  # as in `2 of 3`, if the layer is compiled as several graphs
    stage: str = ""  # of the compiler: dynamo, aot autograd, decompositions, inductor
    op: str = ""  # as in `aten.softmax.int`; several names if only one side runs these operators
    kernel: str = ""  # the fused kernel that contains the operator
    setting: str = ""  # the setting with which the result is right
    location: str = ""  # `file:line` of the user's code; of the reference if the candidate lacks the operator
    detail: str = ""
    fix: str = ""  # as code
    trials: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        where = [
            f"module `{self.layer}`" if self.layer else "",
            f"graph {self.graph}" if self.graph else "",
            self.op,
            f"in kernel {self.kernel}" if self.kernel else "",
        ]
        head = ", ".join(filter(None, where)) or self.detail or "not found"
        lines = [f"first wrong: {head}"]
        lines += [f"  at {self.location}"] if self.location else []
        lines += [f"  stage: {self.stage}"] if self.stage else []
        lines += [f"  right with: {self.setting}"] if self.setting else []
        lines += [f"  {self.detail}"] if self.detail and self.detail != head else []
        lines += ["  fix:", *(f"    {line}" for line in self.fix.splitlines())] if self.fix else []
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class FormCheck:
    """One form of a model, and the verdict on each of its results."""

    form: str
    outputs: tuple[OutputCheck, ...] = ()
    notes: tuple[str, ...] = ()
    layers: tuple[LayerError, ...] = ()
    culprit: Culprit | None = None
    failure: str = ""  # why it could not be compared

    @property
    def verdict(self) -> Accuracy:
        """The worst verdict of its results."""
        return Accuracy.worst([output.verdict for output in self.outputs])


@dataclass(frozen=True, kw_only=True)
class VerifyReport(NotebookResult):
    """What `rs.verify` found."""

    name: str
    machine: str  # device and versions
    reference: str  # what the errors refer to, such as "float64"
    forms: tuple[FormCheck, ...]
    notes: tuple[str, ...] = ()  # about eager itself: differs from itself, draws random numbers

    @property
    def verdict(self) -> Accuracy:
        """The worst verdict of all forms."""
        return Accuracy.worst([form.verdict for form in self.forms])

    @property
    def wrong(self) -> bool:
        """Whether a form returns wrong results."""
        return self.verdict is Accuracy.WRONG

    @property
    def culprit(self) -> Culprit | None:
        """What makes the first wrong form wrong, if it is known."""
        return next((form.culprit for form in self.forms if form.culprit), None)

    def json(self) -> str:
        """Return the JSON document that `rocsolid report` reads."""
        from rocsolid.model.codec import dumps

        return dumps(VERIFY_SCHEMA, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.verdict.value}", f"  {self.machine}; reference: {self.reference}"]
        lines += [f"  note: {note}" for note in self.notes]
        for form in self.forms:
            lines += _form_lines(form)
        return "\n".join(lines)


_HEADINGS = ("result", "verdict", "vs eager", "error", "eager's", "largest", "inputs")


def _form_lines(form: FormCheck) -> list[str]:
    if form.failure:
        return [f"{form.form}: not compared ({form.failure})"]
    rows = [_HEADINGS, *(_row(output) for output in form.outputs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [f"{form.form}: {form.verdict.value}"]
    lines += [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    lines += [f"  {output.path}: {output.why}" for output in form.outputs if output.why]
    lines += [f"  note: {note}" for note in form.notes]
    if form.culprit:
        lines += [f"  {line}" for line in str(form.culprit).splitlines()]
    return lines


def _row(output: OutputCheck) -> tuple[str, ...]:
    error = output.error or output.difference
    return (
        f"{output.path} ({output.dtype})",
        output.verdict.value.removeprefix("different but "),
        _number(output.difference.relative_l2),
        _number(output.error.relative_l2) if output.error else "-",
        _number(output.eager_error.relative_l2) if output.eager_error else "-",
        _number(error.largest),
        f"x {output.scale:g}",
    )


def _number(value: float) -> str:
    return "0" if value == 0 else "inf" if math.isinf(value) else f"{value:.1e}"
