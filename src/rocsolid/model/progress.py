"""What a long call is doing now; passed to the function given as `progress=`."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a long call: what is tried, how far it is, and the best result so far."""

    what: str
    done: int = 0  # steps that have ended
    total: int = 0  # 0 if it is not known
    best: str = ""  # the best result so far
    alike: bool = True  # the steps take about as long as each other, so the remaining time can be estimated


OnStep = Callable[[Step], None]


def ignore_step(_: Step) -> None:
    """Show nothing: the default of a library."""
