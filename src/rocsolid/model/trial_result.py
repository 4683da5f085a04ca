"""How a trial in a child process ended: one type for each way, so that no failure is recorded as a time.

TrialResult
├── Returned            it returned a value, and all its processes have ended
├── WrongResult         its results differ from those of eager
├── TimedOut            a phase took longer than its deadline, or the heartbeat stopped
├── Crashed             a signal ended it, or it exited without a value
├── OutOfMemory         host or device memory ran out
├── DeviceLost          the GPU reported a fault; check it before the next trial
├── Raised              it raised an exception: the setting does not work here
├── TooManyProcesses    it started more processes than allowed
├── Cancelled           the tuner cancelled it, or the tuner process ended unexpectedly
└── Unkillable          some of its processes are stuck in the kernel and cannot be killed
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class TrialCost:
    """What a trial cost, and where its output is."""

    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds spent in each phase
    peak_bytes: int = 0  # peak host memory of all its processes together
    processes: int = 1  # the most that existed at the same time
    killed: int = 0  # number of processes that had to be killed at the end
    log: str = ""  # file with everything it printed
    log_tail: str = ""
    stacks: str = ""  # Python stacks of all threads, written before the kill
    dropped_bytes: int = 0  # output beyond the size limit of the log


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """The base class of all results."""

    kind: ClassVar[str] = ""
    phase: str = ""  # the phase in which the trial ended
    message: str = ""  # from the process, the kernel or the supervisor
    cost: TrialCost = field(default_factory=TrialCost)

    @property
    def reason(self) -> str:
        """Why it ended this way, in one line."""
        return self.message


@dataclass(frozen=True, kw_only=True)
class Returned(TrialResult):
    """It returned a value, which must be representable in JSON."""

    kind: ClassVar[str] = "returned"
    value: Any = None
    clean: bool = True  # False: it returned and then crashed; some drivers crash during teardown

    @property
    def reason(self) -> str:
        """Empty, unless it crashed afterwards."""
        return "" if self.clean else f"returned a value, then ended with {self.message}"


@dataclass(frozen=True, kw_only=True)
class WrongResult(TrialResult):
    """Its results differ from those of eager."""

    kind: ClassVar[str] = "wrong result"


@dataclass(frozen=True, kw_only=True)
class TimedOut(TrialResult):
    """A phase took longer than its deadline, or the heartbeat stopped."""

    kind: ClassVar[str] = "timed out"
    limit_s: float = 0.0
    silent: bool = False  # True: the heartbeat stopped, because the GIL was held or the process was stopped

    @property
    def reason(self) -> str:
        """The phase, the deadline, and whether the heartbeat stopped."""
        if self.silent:
            return (
                f"no heartbeat for {self.limit_s:g} s in phase {self.phase}: "
                "the process is stopped, or stuck while holding the GIL"
            )
        return f"phase {self.phase} took longer than {self.limit_s:g} s"


@dataclass(frozen=True, kw_only=True)
class Crashed(TrialResult):
    """A signal ended it, or it exited without a value."""

    kind: ClassVar[str] = "crashed"
    signal: str = ""

    @property
    def reason(self) -> str:
        """The signal or the exit code, and the phase."""
        return f"{self.signal or self.message} in phase {self.phase}"


class Memory(Enum):
    """Which memory ran out."""

    HOST = "host"
    DEVICE = "device"


@dataclass(frozen=True, kw_only=True)
class OutOfMemory(TrialResult):
    """Host or device memory ran out."""

    kind: ClassVar[str] = "out of memory"
    memory: Memory = Memory.HOST

    @property
    def reason(self) -> str:
        """Which memory, in which phase, and the message."""
        return f"out of {self.memory.value} memory in phase {self.phase}: {self.message}"


@dataclass(frozen=True, kw_only=True)
class DeviceLost(TrialResult):
    """The GPU reported a fault."""

    kind: ClassVar[str] = "device lost"

    @property
    def reason(self) -> str:
        """The phase and the fault."""
        return f"GPU fault in phase {self.phase}: {self.message}"


@dataclass(frozen=True, kw_only=True)
class Raised(TrialResult):
    """It raised an exception."""

    kind: ClassVar[str] = "raised"

    @property
    def reason(self) -> str:
        """The exception and the phase."""
        return f"{self.message} (in phase {self.phase})"


@dataclass(frozen=True, kw_only=True)
class TooManyProcesses(TrialResult):
    """It started more processes than allowed."""

    kind: ClassVar[str] = "too many processes"


@dataclass(frozen=True, kw_only=True)
class Cancelled(TrialResult):
    """The tuner cancelled it, or the tuner process ended unexpectedly."""

    kind: ClassVar[str] = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Unkillable(TrialResult):
    """Some of its processes are stuck in the kernel. Do not use the GPU until they are gone."""

    kind: ClassVar[str] = "unkillable"
