"""Whether the host was quiet while something was measured. Linux only: elsewhere nothing is known, and nothing is refused."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/stat")
_CORES: Final = Path("/sys/devices/system/cpu")
_LOOK_S: Final = 0.5
_SPIN_S: Final = 0.05
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


class HostWatch:
    """Watches the host until `state` is called. What this process and its children do is not counted."""

    def __init__(self) -> None:
        self._before, self._own, self._started = _ticks(), _own_ticks(), time.monotonic()

    def state(self) -> HostState:
        """What the host did since the watch began."""
        after, own, seconds = _ticks(), _own_ticks() - self._own, time.monotonic() - self._started
        if self._before is None or after is None:
            return HostState()
        user, nice, system, idle, iowait, irq, softirq, steal = (
            b - a for a, b in zip(self._before, after, strict=True)
        )
        total = user + nice + system + idle + iowait + irq + softirq + steal
        ticks_per_core = seconds * 100  # USER_HZ is 100 on every platform that torch supports
        return HostState(
            busy_cores=max(0.0, round((user + nice + system + irq + softirq - own) / ticks_per_core, 2)),
            steal=round(steal / max(1, total), 3),
            frequency=_frequency(),
        )


def host_state(look_s: float = _LOOK_S) -> HostState:
    """Watch the host for a moment, while nothing is measured."""
    watch = HostWatch()
    time.sleep(look_s)
    return watch.state()


def _ticks() -> tuple[int, ...] | None:
    """User, nice, system, idle, iowait, irq, softirq and steal time of all cores."""
    try:
        first = _STAT.read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return None
    numbers = tuple(int(x) for x in first.split()[1:9])
    return numbers if len(numbers) == 8 else None  # noqa: PLR2004 - the eight kinds above


def _own_ticks() -> int:
    """User and system time of this process and all its children, also of those that have ended."""
    parents, times = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(file.parent.name)
        parents[pid], times[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    total, group = 0, [os.getpid()]
    while group:
        total += sum(times.get(pid, 0) for pid in group)
        group = [pid for pid, parent in parents.items() if parent in group]
    return total


def _frequency() -> float:
    """The lowest limit of a core, or the frequency of the fastest core if that is less, compared with the highest; 1 if unknown."""
    until = time.perf_counter() + _SPIN_S
    while time.perf_counter() < until:  # an idle core is slow
        pass
    limits, current = [1.0], []
    for folder in _CORES.glob("cpu[0-9]*/cpufreq"):
        highest, limit, now = (
            _number(folder / name) for name in ("cpuinfo_max_freq", "scaling_max_freq", "scaling_cur_freq")
        )
        if highest and limit:
            limits.append(limit / highest)
        if highest and now:
            current.append(now / highest)
    return round(min(*limits, max(current, default=1.0)), 2)


def _number(file: Path) -> int:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
