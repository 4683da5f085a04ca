"""How a trial in a process of its own ended: a type for each way, so that nothing ends as a number that means something else.

Ending
├── Answered            it returned a value, and every process of it is gone
├── WrongResult         what it computed is not what eager computes
├── TimedOut            a phase took longer than its deadline, or the process stopped giving signs of life
├── Crashed             a signal or an exit in the middle of it
├── OutOfMemory         of the host or of the device
├── DeviceLost          the device reported a fault: check it before the next trial
├── Refused             it raised: the setting does not work here
├── TooManyProcesses    it started more of them than it may
├── Cancelled           we called it off, or the tuner died
└── Unkillable          processes of it are stuck in the kernel and still there
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class Account:
    """What a trial cost, and where it can be read up."""

    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds in each
    peak_bytes: int = 0  # host memory of all its processes together, at its highest
    processes: int = 1  # at once, at most
    killed: int = 0  # processes that were still there at the end
    log: str = ""  # file with everything it printed
    log_tail: str = ""
    stacks: str = ""  # of every thread, taken before the kill
    dropped_bytes: int = 0  # of output beyond what is kept


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Any of them; `reason` is one line for a person."""

    kind: ClassVar[str] = ""
    phase: str = ""  # in which it ended
    says: str = ""  # what the process or the kernel said
    account: Account = field(default_factory=Account)

    @property
    def reason(self) -> str:
        """One line for a person."""
        return self.says


@dataclass(frozen=True, kw_only=True)
class Answered(Ending):
    """It returned a value, which is what JSON can hold."""

    kind: ClassVar[str] = "answered"
    value: Any = None
    clean: bool = True  # False: it crashed after it had answered, as drivers do when they are torn down

    @property
    def reason(self) -> str:
        """Nothing to say, unless it crashed afterwards."""
        return "" if self.clean else f"answered, then ended with {self.says}"


@dataclass(frozen=True, kw_only=True)
class WrongResult(Ending):
    """What it computed is not what eager computes."""

    kind: ClassVar[str] = "wrong result"


@dataclass(frozen=True, kw_only=True)
class TimedOut(Ending):
    """A phase took longer than its deadline, or there was no sign of life for too long."""

    kind: ClassVar[str] = "timed out"
    limit_s: float = 0.0
    silent: bool = False  # True: not even the heartbeat came, so the interpreter lock was held or the process stopped

    @property
    def reason(self) -> str:
        """The phase, the deadline, and whether the process was alive."""
        if self.silent:
            return f"no sign of life for {self.limit_s:g} s in phase {self.phase}: stopped, or stuck with the interpreter lock held"
        return f"phase {self.phase} took longer than {self.limit_s:g} s"


@dataclass(frozen=True, kw_only=True)
class Crashed(Ending):
    """A signal, or an exit in the middle of it."""

    kind: ClassVar[str] = "crashed"
    signal: str = ""

    @property
    def reason(self) -> str:
        """The signal or the exit code, and the phase."""
        return f"{self.signal or self.says} in phase {self.phase}"


class Memory(Enum):
    """Which memory ran out."""

    HOST = "host"
    DEVICE = "device"


@dataclass(frozen=True, kw_only=True)
class OutOfMemory(Ending):
    """Of the host or of the device."""

    kind: ClassVar[str] = "out of memory"
    memory: Memory = Memory.HOST

    @property
    def reason(self) -> str:
        """Which memory, and what was said."""
        return f"out of {self.memory.value} memory in phase {self.phase}: {self.says}"


@dataclass(frozen=True, kw_only=True)
class DeviceLost(Ending):
    """The device reported a fault."""

    kind: ClassVar[str] = "device lost"


@dataclass(frozen=True, kw_only=True)
class Refused(Ending):
    """It raised, or left without an answer."""

    kind: ClassVar[str] = "refused"

    @property
    def reason(self) -> str:
        """The phase and the error."""
        return f"phase {self.phase}: {self.says}"


@dataclass(frozen=True, kw_only=True)
class TooManyProcesses(Ending):
    """It started more processes than it may."""

    kind: ClassVar[str] = "too many processes"


@dataclass(frozen=True, kw_only=True)
class Cancelled(Ending):
    """We called it off, or the tuner died."""

    kind: ClassVar[str] = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Unkillable(Ending):
    """Processes of it are stuck in the kernel; the device is not to be used until they are gone."""

    kind: ClassVar[str] = "unkillable"
