"""The result of `rs.optimize`: every form that was tried, its time and error, and why one was chosen."""

from dataclasses import dataclass
from enum import Enum

from rocsolid.model.form import Form
from rocsolid.model.notebook import NotebookResult
from rocsolid.model.timing import SpeedComparison, Timing

OPTIMIZE_SCHEMA = "rocsolid/optimize/1"


class FormOutcome(Enum):
    """What happened to a form."""

    CHOSEN = "chosen"
    SLOWER = "slower"  # slower than the chosen form, or not faster by enough
    WRONG = "wrong"  # its results differ from eager
    FAILED = "failed"
    SKIPPED = "skipped"  # no time was left in the budget


@dataclass(frozen=True, kw_only=True)
class FormResult:
    """One form of the model, with what was measured."""

    form: Form
    outcome: FormOutcome
    why: str = ""
    timing: Timing | None = None
    against_eager: SpeedComparison | None = None
    setup_s: float = 0.0
    peak_bytes: int = 0  # highest device memory during set-up
    error: float | None = None  # relative error against eager

    def __str__(self) -> str:
        mark = "*" if self.outcome is FormOutcome.CHOSEN else " "
        parts = [f"{self.timing}" if self.timing else self.outcome.value]
        if self.against_eager:
            parts.append(f"{self.against_eager.speedup:.2f}x eager")
        if self.error is not None:
            parts.append(f"error {self.error:.1e}")
        parts.append(f"set-up {self.setup_s:.1f} s")
        return f"{mark} {self.form.label}: {', '.join(parts)}" + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True, kw_only=True)
class OptimizeReport(NotebookResult):
    """Everything that `rs.optimize` measured."""

    name: str
    machine: str  # device and versions
    profile: str
    forms: tuple[FormResult, ...]
    chosen: Form
    why: str
    noise: float  # difference between two measurements of eager in the same race
    examples: int = 1
    longest_call_ms: float | None = None  # the longest call while the model was being compiled

    def json(self) -> str:
        """Return the JSON document that `rocsolid report` reads."""
        from rocsolid.model.codec import dumps

        return dumps(OPTIMIZE_SCHEMA, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.chosen.label} is chosen, because {self.why}",
            f"  {self.machine}, profile {self.profile}",
            *map(str, self.forms),
            f"  noise of this run: {self.noise:.1%}",
        ]
        if self.longest_call_ms is not None:
            lines.append(f"  longest call while compiling: {self.longest_call_ms:.1f} ms")
        return "\n".join(lines)
