"""What each cause of idle time in a trace means, and what removes it."""

from dataclasses import dataclass
from typing import Final

from rocsolid.model.trace import IdleCause


@dataclass(frozen=True, kw_only=True)
class IdleCauseInfo:
    """One cause of idle time."""

    cause: IdleCause
    meaning: str
    fix: str
    rule: str = ""  # the rule that reports it


IDLE_CAUSES: Final = (
    IdleCauseInfo(
        cause=IdleCause.LATE_LAUNCH,
        meaning="the launch call began after the device had become idle: Python prepares work more slowly than the device does it",
        fix="launch less: `rs.capture` or `rs.optimize` put the whole call in one graph; `torch.compile` fuses small kernels. "
        "`rocsolid profile --stacks` shows which lines launch",
        rule="TRC001",
    ),
    IdleCauseInfo(
        cause=IdleCause.SYNC,
        meaning="a late launch, and the launching thread was in a synchronisation when the gap began",
        fix="remove `.item()`, `.cpu()`, `print(tensor)` and `torch.cuda.synchronize()` from the step, or move them after it",
        rule="TRC002",
    ),
    IdleCauseInfo(
        cause=IdleCause.BLOCKING_COPY,
        meaning="a late launch, and the launching thread was in a blocking copy when the gap began",
        fix="pin the memory of the host and copy with `non_blocking=True`; make constants on the device",
        rule="TRC002",
    ),
    IdleCauseInfo(
        cause=IdleCause.DATA_LOADER,
        meaning="a late launch, and the host spent at least half of the gap in a data loader",
        fix="more workers or a larger `prefetch_factor`, `pin_memory=True`, less work per sample",
        rule="TRC005",
    ),
    IdleCauseInfo(
        cause=IdleCause.LAUNCH_IN_PROGRESS,
        meaning="the launch call was running when the device became idle: kernels are shorter than their launches",
        fix="put the call in one graph with `rs.capture`, or fuse small kernels with `torch.compile`",
        rule="TRC001",
    ),
    IdleCauseInfo(
        cause=IdleCause.BETWEEN_GRAPH_NODES,
        meaning="the work before and after belongs to the same graph replay; the profiler itself can cause these gaps",
        fix="measure without the profiler first; fewer nodes help: compile what the graph captures",
        rule="TRC009",
    ),
    IdleCauseInfo(
        cause=IdleCause.STREAM_DEPENDENCY,
        meaning="the work was already queued, after work of another stream",
        fix="check which event the stream waits for, and whether the other stream needs to run first",
    ),
    IdleCauseInfo(
        cause=IdleCause.QUEUED,
        meaning="the work was already queued in the same stream: the device needs this time between two kernels",
        fix="fewer, larger kernels",
    ),
    IdleCauseInfo(
        cause=IdleCause.UNKNOWN,
        meaning="the launch call is not in the trace",
        fix="record CPU activity too: `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`",
    ),
)
