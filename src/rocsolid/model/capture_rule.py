"""What a runtime does with a call that is made while a stream is being captured."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from rocsolid.model.capture_report import Reason


class Runtime(Enum):
    """Whose rules: the names that `plays=` takes."""

    HIP_6_4 = "hip-6.4"
    HIP_7_2 = "hip-7.2"
    CUDA = "cuda"

    @property
    def label(self) -> str:
        """With the release that was asked."""
        return {"hip-6.4": "HIP 6.4.3", "hip-7.2": "HIP 7.2.4", "cuda": "CUDA 13.0"}[self.value]

    @property
    def is_hip(self) -> bool:
        """Whether calls and errors have HIP's names."""
        return self is not Runtime.CUDA


class CaptureMode(Enum):
    """How strictly a capture keeps other calls out, as it was begun."""

    GLOBAL = "global"  # torch.cuda.graph, unless told otherwise
    THREAD_LOCAL = "thread_local"  # rs.capture
    RELAXED = "relaxed"


class Outcome(Enum):
    """What becomes of the call, and of the capture."""

    RECORDED = "becomes part of the graph"
    DONE = "is done at once and takes no part in the graph"
    LEFT_OUT = "succeeds, and is silently left out of the graph"
    REFUSED = "is refused, and the capture is lost"
    REJECTED = "is refused, and the capture goes on"
    UNENDED = "makes the end of the capture fail"
    UNKNOWN = "has not been tried"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One cell of the table."""

    outcome: Outcome
    error: int = 0  # the runtime's number, where it reports one

    @property
    def fails(self) -> bool:
        """Whether there will be no graph."""
        return self.outcome in (Outcome.REFUSED, Outcome.UNENDED)


Answers = Mapping[Runtime, Mapping[CaptureMode, Answer]]


@dataclass(frozen=True, kw_only=True)
class CaptureRule:
    """One row: a call in a situation, made while a non-blocking stream is being captured."""

    case: str  # kebab-case; experiments and records know the row by it
    call: str  # as HIP names it
    cuda_call: str
    situation: str  # completes the sentence "the call, ..."; empty when there is only one
    answers: Answers
    cause: Reason  # as the counters name it where the call breaks a capture
    fix: str
    torch: tuple[str, ...] = ()  # what makes the call, seen from Python
    other_thread: bool = False  # the call comes from a thread that captures nothing

    def answer(self, runtime: Runtime, mode: CaptureMode) -> Answer:
        """What this runtime does in this mode."""
        return self.answers[runtime][mode]

    def name(self, runtime: Runtime) -> str:
        """The call, as this runtime names it."""
        return self.call if runtime.is_hip else self.cuda_call
