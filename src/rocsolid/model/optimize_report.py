"""What `optimize` tried, what each candidate cost and answered, and why one was chosen."""

from dataclasses import dataclass
from enum import Enum

from rocsolid.model.timing import SpeedComparison, Timing

OPTIMIZE_SCHEMA = "rocsolid/optimize/1"


class Outcome(Enum):
    """What became of a candidate."""

    CHOSEN = "chosen"
    SLOWER = "slower"  # than the one that was chosen, or not faster by enough
    WRONG = "wrong"
    FAILED = "failed"
    SKIPPED = "skipped"  # there was no time left for it


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One form of the model."""

    name: str
    outcome: Outcome
    why: str = ""
    timing: Timing | None = None
    against_eager: SpeedComparison | None = None
    setup_s: float = 0.0
    peak_bytes: int = 0  # device memory at its highest during set-up
    error: float | None = None  # against eager, relative to the size of its answer


@dataclass(frozen=True, kw_only=True)
class OptimizeReport:
    """Everything `optimize` found out."""

    name: str
    where: str  # device and versions
    profile: str
    candidates: tuple[Candidate, ...]
    chosen: str
    why: str
    noise: float  # how far eager was from itself in the same race
    examples: int = 1
    worst_ms: float | None = None  # the longest that a call took while the model was being compiled

    def json(self) -> str:
        """As a document that `rocsolid report` reads."""
        from rocsolid.model.codec import dumps

        return dumps(OPTIMIZE_SCHEMA, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    def __str__(self) -> str:
        lines = [f"{self.name} on {self.where}, profile {self.profile}: {self.chosen}, because {self.why}"]
        for candidate in self.candidates:
            mark = "*" if candidate.outcome is Outcome.CHOSEN else " "
            time = f"{candidate.timing}" if candidate.timing else candidate.outcome.value
            speed = f", {candidate.against_eager.speedup:.2f} times eager" if candidate.against_eager else ""
            error = f", error {candidate.error:.1e}" if candidate.error is not None else ""
            why = f" ({candidate.why})" if candidate.why else ""
            lines.append(f"{mark} {candidate.name}: {time}{speed}{error}, set up in {candidate.setup_s:.1f} s{why}")
        lines.append(f"  noise of this run: {self.noise:.1%}")
        if self.worst_ms is not None:
            lines.append(f"  the longest call meanwhile took {self.worst_ms:.1f} ms")
        return "\n".join(lines)
