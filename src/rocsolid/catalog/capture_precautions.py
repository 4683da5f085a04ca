"""What `rs.capture` does differently on some platforms, because of known problems there."""

from dataclasses import dataclass
from typing import Final

from rocsolid.catalog.problems import problem
from rocsolid.model.environment import Environment
from rocsolid.model.evidence import Evidence, measured
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Condition, on


@dataclass(frozen=True, kw_only=True)
class Precaution:
    """One precaution: where it applies, why, and the evidence for it."""

    when: Condition
    why: str
    evidence: tuple[Evidence, ...]


POOL_PER_GRAPH: Final = Precaution(
    when=on(Platform.ROCM),
    why="Graphs that share a memory pool were reported to corrupt each other.",
    evidence=problem("shared-graph-pool-corruption").evidence,
)
WARM_UP_ON_CAPTURE_STREAM: Final = Precaution(
    when=on(Platform.ROCM),
    why="hipBLASLt and AITER create handles and state per stream on first use, which must not happen during a capture.",
    evidence=(
        *problem("hipblaslt-handle-in-capture").evidence,
        measured(
            "two-states-on-h200",
            "On CUDA the warm-up runs on the caller's stream: launches on a side stream slow down every graph of the process.",
        ),
    ),
)
_WRONG_REPLAYS_PROBLEM: Final = "hip-graph-replay-corruption"
_CRASH_PROBLEMS: Final = ("hipblaslt-handle-in-capture", "mi350-repeated-graph-crash")
_WATCHDOG_PROBLEM: Final = "rccl-watchdog-breaks-capture"


@dataclass(frozen=True, kw_only=True)
class Precautions:
    """The precautions for one machine."""

    pool_per_graph: bool = False  # for pool="auto"
    warm_up_on_capture_stream: bool = False
    min_verify_rounds: int = 0  # replays to compare with eager, even with verify="off"
    try_in_child: bool = False  # a capture may end the process: capture in a child process first
    collectives_warning: str = ""  # logged when the process uses NCCL or RCCL


def precautions_for(env: Environment) -> Precautions:
    """Return the precautions for this machine."""
    watchdog = problem(_WATCHDOG_PROBLEM)
    return Precautions(
        pool_per_graph=POOL_PER_GRAPH.when.holds(env),
        warm_up_on_capture_stream=WARM_UP_ON_CAPTURE_STREAM.when.holds(env),
        min_verify_rounds=2 if problem(_WRONG_REPLAYS_PROBLEM).applies(env) else 0,
        try_in_child=any(problem(name).applies(env) for name in _CRASH_PROBLEMS),
        collectives_warning=f"{watchdog.title}\nfix: {watchdog.fix}" if watchdog.applies(env) else "",
    )
