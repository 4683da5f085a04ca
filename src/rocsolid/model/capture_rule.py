"""Capture rules: what a HIP or CUDA runtime does with one API call that is made during a capture."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from rocsolid.model.capture_report import Reason


class Runtime(Enum):
    """A runtime whose rules are known. The values are those of `simulate=`."""

    HIP_6_4 = "hip-6.4"
    HIP_7_2 = "hip-7.2"
    CUDA = "cuda"

    @property
    def label(self) -> str:
        """The name with the release that was tested."""
        return {"hip-6.4": "HIP 6.4.3", "hip-7.2": "HIP 7.2.4", "cuda": "CUDA 13.0"}[self.value]

    @property
    def is_hip(self) -> bool:
        """Whether calls and errors have HIP's names."""
        return self is not Runtime.CUDA


class CaptureMode(Enum):
    """The mode that a capture is begun with. It decides which calls the runtime refuses during the capture."""

    GLOBAL = "global"  # the default of torch.cuda.graph
    THREAD_LOCAL = "thread_local"  # the mode of rs.capture
    RELAXED = "relaxed"


class Outcome(Enum):
    """What happens to the call and to the capture."""

    RECORDED = "becomes part of the graph"
    RUNS_NOW = "runs immediately and is not part of the graph"
    LEFT_OUT = "succeeds, but is silently missing from the graph"
    CAPTURE_FAILS = "fails, and the capture fails"
    CALL_FAILS = "fails, and the capture continues"
    FAILS_AT_END = "makes the end of the capture fail"
    UNKNOWN = "was not tested"


@dataclass(frozen=True, kw_only=True)
class Behavior:
    """What one runtime does with a call in one mode: one cell of the table."""

    outcome: Outcome
    error: int = 0  # the runtime's error number, where it reports one

    @property
    def fails(self) -> bool:
        """Whether there is no graph in the end."""
        return self.outcome in (Outcome.CAPTURE_FAILS, Outcome.FAILS_AT_END)


@dataclass(frozen=True, kw_only=True)
class CaptureRule:
    """One row of the table: a call in one situation, made while a non-blocking stream is being captured."""

    id: str  # such as "event-query-old"; known problems, tests and evidence records refer to it
    call: str  # HIP's name
    cuda_call: str
    situation: str  # continues the call's name: "of the capturing stream"; empty when there is only one situation
    behaviors: Mapping[Runtime, Mapping[CaptureMode, Behavior]]
    cause: Reason  # the reason in the report when the call makes a capture fail
    fix: str
    torch_callers: tuple[str, ...] = ()  # Python functions that make this call
    other_thread: bool = False  # the call comes from a thread that is not capturing

    def behavior(self, runtime: Runtime, mode: CaptureMode) -> Behavior:
        """What this runtime does in this mode."""
        return self.behaviors[runtime][mode]

    def name(self, runtime: Runtime) -> str:
        """The call's name in this runtime."""
        return self.call if runtime.is_hip else self.cuda_call
