"""The result of `rs.optimize`: every form that was tried, its time and error, and why one was chosen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rocsolid.model.form import Form
from rocsolid.model.notebook import NotebookResult
from rocsolid.model.setting import Value
from rocsolid.model.timing import SpeedComparison, Timing
from rocsolid.model.verify_report import Accuracy

OPTIMIZE_SCHEMA = "rocsolid/optimize/1"


class FormOutcome(Enum):
    """Whether a form was chosen, and if not, why."""

    CHOSEN = "chosen"
    NOT_CHOSEN = (
        "not chosen"  # works, but is slower than the chosen form, or too little faster to replace a simpler one
    )
    WRONG = "wrong"  # its results are wrong, or less accurate than eager's
    FAILED = "failed"
    SKIPPED = "skipped"  # no time was left in the budget


RATIO_NOTE = "ratios compare with eager in the same rounds; the times of different lines come from different rounds"

_BUSY = 0.1  # noise above which the choice is doubtful
UNCHECKED = (
    "calls are not compared with eager: rs.every(n) compares replays of a graph, and this form has none; its results were compared with "
    "eager before it was chosen"
)
SLOW_REPLAYS = "on an H200, all graphs of a process replay 10 to 20 % slower after the second capture"


def form_label(form: Form, settings: Mapping[str, Value]) -> str:
    """Return a form and its settings as text, such as `compiled, cpp_wrapper=True`."""
    return ", ".join((form.label, *(f"{name.partition('.')[2]}={value}" for name, value in settings.items())))


@dataclass(frozen=True, kw_only=True)
class FormResult:
    """One form of the model, and its measurements."""

    form: Form
    outcome: FormOutcome
    settings: Mapping[str, Value] = field(default_factory=dict)  # values that were tried besides those of the plan
    why: str = ""
    timing: Timing | None = None
    against_eager: SpeedComparison | None = None
    setup_s: float = 0.0
    peak_bytes: int = 0  # highest device memory during set-up
    relative_error: float | None = None  # compared with the results of eager
    verdict: Accuracy | None = None  # is it as accurate as eager?
    reference_error: float | None = None  # compared with the model in higher precision; None if it was not needed
    eager_reference_error: float | None = None  # the same for eager

    @property
    def label(self) -> str:
        """The form and its settings, such as `compiled, cpp_wrapper=True`."""
        return form_label(self.form, self.settings)

    def __str__(self) -> str:
        marker = "*" if self.outcome is FormOutcome.CHOSEN else " "
        parts = [f"{self.timing}" if self.timing else self.outcome.value]
        if self.against_eager:
            parts.append(f"{self.against_eager.speedup:.2f} times as fast as eager")
        if self.relative_error is not None:
            parts.append(f"relative error {self.relative_error:.1e}")
        if self.reference_error is not None and self.eager_reference_error is not None:
            parts.append(f"{self.reference_error:.1e} against the reference (eager {self.eager_reference_error:.1e})")
        parts.append(f"set-up {self.setup_s:.1f} s")
        return f"{marker} {self.label}: {', '.join(parts)}" + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True, kw_only=True)
class OptimizeReport(NotebookResult):
    """Everything that `rs.optimize` measured."""

    name: str
    machine: str  # device and versions
    profile: str
    forms: tuple[FormResult, ...]
    chosen: Form
    settings: Mapping[str, Value] = field(default_factory=dict)  # of the chosen form, besides those of the plan
    why: str
    noise: float  # eager is measured twice in the same comparison; this is the relative difference
    example_count: int = 1
    raced_in: str = (
        ""  # where the forms were measured, if that was not simply this process: "a child process", or why not there
    )
    graphs_captured: int = 0  # graphs that rocsolid has captured in this process so far
    unused_because: str = ""  # why the model runs in eager now instead of the chosen form: it has changed
    in_progress: bool = False  # the model is still being compiled in the background
    longest_call_ms: float | None = None  # the slowest call of the model while it was compiled in the background
    late_compiles: int = 0  # compiles within calls, since the form is in use: these calls differed from the examples
    unchecked: bool = False  # `verify=rs.every(n)` was given, and the chosen form has no replays that it could compare
    refused_compiles: int = 0  # calls that ran in eager instead, since `seal(otherwise="eager")`

    @property
    def chosen_label(self) -> str:
        """The chosen form and its settings, such as `compiled, cpp_wrapper=True`."""
        return form_label(self.chosen, self.settings)

    def counters(self) -> dict[str, int]:
        """Return flat numbers for a server's metrics: which form was chosen, and whether the model runs in eager instead."""
        form = self.chosen_label.replace('"', "'")
        return {
            f'rocsolid_form{{form="{form}"}}': 1,
            "rocsolid_form_not_in_use": int(bool(self.unused_because)),
            "rocsolid_optimizing": int(self.in_progress),
            "rocsolid_late_compiles_total": self.late_compiles,
            "rocsolid_refused_compiles_total": self.refused_compiles,
        }

    def notes(self) -> list[str]:
        """Return sentences about where the forms were measured, and about the calls since the form is in use."""
        notes = [f"the forms were measured in {self.raced_in}"] if self.raced_in else []
        if self.example_count > 1 and any(form.timing for form in self.forms):
            notes.append(f"each time is for {self.example_count} calls, one with each example")
        if self.graphs_captured > 1:
            notes.append(f"{self.graphs_captured} graphs were captured in this process: {SLOW_REPLAYS}")
        elif self.graphs_captured:
            notes.append("1 graph was captured in this process")
        if self.unused_because:
            notes.append(f"not in use: {self.unused_because}; the model runs in eager")
        if self.noise > _BUSY:
            notes.append("the machine was busy, so another form may be faster: measure again when nothing else runs")
        if self.unchecked:
            notes.append(UNCHECKED)
        if self.late_compiles:
            compiles = "1 compile" if self.late_compiles == 1 else f"{self.late_compiles} compiles"
            notes.append(
                f"{compiles} within calls that differ from the examples; seal(otherwise='eager') runs such calls in eager"
            )
        if self.refused_compiles:
            calls = "1 call" if self.refused_compiles == 1 else f"{self.refused_compiles} calls"
            notes.append(f"{calls} ran in eager, because the form is sealed and was not compiled for them")
        if self.longest_call_ms is not None:
            slowest = f"{self.longest_call_ms:.1f} ms"
            notes.append(f"slowest call of the model while it was compiled in the background: {slowest}")
        return notes

    def json(self) -> str:
        """Return the JSON document that `rocsolid report` reads."""
        from rocsolid.model.codec import dumps

        return dumps(OPTIMIZE_SCHEMA, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.chosen_label!r} was chosen, because {self.why}",
            f"  {self.machine}, profile {self.profile}",
            *map(str, self.forms),
            *([f"  noise of this run: {self.noise:.1%}"] if any(form.timing for form in self.forms) else []),
        ]
        if any(form.settings for form in self.forms):
            lines.append(f"  {RATIO_NOTE}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes())])
