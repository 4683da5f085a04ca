"""Whether the host was quiet while something was measured. Linux only: elsewhere nothing is known, and nothing is refused."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/stat")
_CORES: Final = Path("/sys/devices/system/cpu")
_LOOK_S: Final = 0.5
_MAX_BUSY_CORES: Final = 0.25  # of everything else on the machine
_MAX_STEAL: Final = 0.01  # the share of time that the hypervisor gave to others
_MIN_FREQUENCY: Final = 0.8  # of the highest frequency


@dataclass(frozen=True)
class HostState:
    """What the host did besides the measurement: busy cores, share of stolen time, frequency compared with the highest."""

    busy_cores: float = 0.0
    steal: float = 0.0
    frequency: float = 1.0

    @property
    def noisy(self) -> str:
        """Why a measurement in this state is not to be published; "" if it is."""
        if self.busy_cores > _MAX_BUSY_CORES:
            return f"other processes use {self.busy_cores:.1f} cores"
        if self.steal > _MAX_STEAL:
            return f"the hypervisor gives {self.steal:.0%} of the time to others"
        if self.frequency < _MIN_FREQUENCY:
            return f"the cores run at {self.frequency:.0%} of their highest frequency"
        return ""

    def worse(self, other: "HostState") -> "HostState":
        """Return the worse of each value."""
        return HostState(
            max(self.busy_cores, other.busy_cores), max(self.steal, other.steal), min(self.frequency, other.frequency)
        )


def host_state(look_s: float = _LOOK_S) -> HostState:
    """Watch the host for a moment, while nothing is measured."""
    before, started = _ticks(), time.monotonic()
    time.sleep(look_s)
    after, seconds = _ticks(), time.monotonic() - started
    if before is None or after is None:
        return HostState()
    user, nice, system, idle, iowait, irq, softirq, steal = (b - a for a, b in zip(before, after, strict=True))
    total = user + nice + system + idle + iowait + irq + softirq + steal
    ticks_per_core = seconds * 100  # USER_HZ is 100 on every platform that torch supports
    return HostState(
        busy_cores=round((user + nice + system + irq + softirq) / ticks_per_core, 2),
        steal=round(steal / max(1, total), 3),
        frequency=_frequency(),
    )


def _ticks() -> tuple[int, ...] | None:
    """User, nice, system, idle, iowait, irq, softirq and steal time of all cores."""
    try:
        first = _STAT.read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return None
    numbers = tuple(int(x) for x in first.split()[1:9])
    return numbers if len(numbers) == 8 else None  # noqa: PLR2004 - the eight kinds above


def _frequency() -> float:
    """The lowest frequency limit of a core, compared with its highest frequency; 1 where the kernel does not tell."""
    shares = [1.0]
    for folder in _CORES.glob("cpu[0-9]*/cpufreq"):
        try:
            limit, highest = (int((folder / f).read_text()) for f in ("scaling_max_freq", "cpuinfo_max_freq"))
        except (OSError, ValueError):
            continue
        shares.append(limit / highest)
    return round(min(shares), 2)
