"""The compile log: one record per compiled graph, graph break and frame that was not compiled."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from rocsolid.model.code_line import CodeLine
from rocsolid.model.notebook import NotebookResult

COMPILES_SCHEMA = "rocsolid/compiles/1"
BREAKS_SCHEMA = "rocsolid/breaks/1"


class GraphKind(Enum):
    """Which part of the model a compiled graph computes."""

    INFERENCE = "inference"
    FORWARD = "forward"
    BACKWARD = "backward"


class CacheResult(Enum):
    """Whether a graph's code came from Inductor's cache."""

    HIT = "hit"
    MISS = "miss"
    BYPASS = "bypass"  # the cache does not support this graph
    OFF = "off"


@dataclass(frozen=True, kw_only=True)
class CompileSpan:
    """One timed phase of a compile, for the timeline; seconds since the log began."""

    name: str  # torch's name
    phase: str  # the group shown to users, such as "autotuning"
    start_s: float
    seconds: float
    depth: int


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """One kernel in the code that Inductor generated for a graph."""

    name: str
    kind: str  # triton, template, cpp, extern
    launches: int  # per call of the graph
    operators: tuple[str, ...] = ()  # the ATen operators fused into it
    locations: tuple[str, ...] = ()  # the user's file:line of those operators
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class Recompile:
    """Why a function was compiled again: the Dynamo guard that failed, what changed, and the fix."""

    previous_compile_id: str  # torch's id of the compile whose guard failed
    guard: str  # as torch writes it
    argument: str = ""  # what the guard checks, as in the user's code: `x.size(0)`, `self.step`
    old_value: str = ""
    new_value: str = ""
    # The line that uses the value; for a guard on a tensor, the line of the call.
    code: CodeLine = field(default_factory=lambda: CodeLine(file="", line=0))
    cause: str
    fix: str
    example_before: str = ""  # the fix on sample code
    example_after: str = ""

    @property
    def location(self) -> str:
        """`file:line`, or an empty string."""
        return _location(self.code)

    @property
    def change(self) -> str:
        """What changed: `x.size(0) changed from 2 to 5`; the cause where the guard does not name an argument."""
        if not self.argument:
            return self.cause
        if self.old_value and not self.new_value:
            return f"{self.argument} is no longer {self.old_value}"
        old = f" from {self.old_value}" if self.old_value else ""
        return f"{self.argument} changed{old}" + (f" to {self.new_value}" if self.new_value else "")

    def lines(self) -> list[str]:
        """Return the message as lines: what changed, code line, guard, cause, fix."""
        return [f"recompile: {self.change}", *self.details()]

    def details(self) -> list[str]:
        """Return the lines after the first."""
        guard = f" (compile {self.previous_compile_id})" if self.previous_compile_id else ""
        return [
            *code_lines(self.code),
            f"failed guard: {self.guard}{guard}",
            *([f"cause: {self.cause}"] if self.change != self.cause else []),
            f"fix: {self.fix}",
            *example_lines(self.example_before, self.example_after),
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True, kw_only=True)
class CompiledGraph:
    """One graph that was compiled."""

    number: int
    compile_id: str
    kind: GraphKind
    function: str
    location: str  # file:line of the function
    called_from: str = ""  # file:line of the user's call
    thread: str = ""
    start_s: float = 0.0  # since the log began
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds; they add up to `seconds`
    spans: tuple[CompileSpan, ...] = ()
    nodes: int = 0
    inputs: int = 0
    operators: Mapping[str, int] = field(default_factory=dict)
    kernels: tuple[CompiledKernel, ...] = ()
    nodes_before_fusion: int = 0
    cache: CacheResult = CacheResult.OFF
    cache_reason: str = ""  # why the cache was bypassed
    recompile: Recompile | None = None
    cuda_graph: str = ""  # "not requested", "requested", "captured", or "skipped: " and the reason
    autotuning_s: float = 0.0
    finished: bool = True

    @property
    def launches(self) -> int:
        """How many kernels one call of the graph launches."""
        return sum(k.launches for k in self.kernels)

    def __str__(self) -> str:
        recompile = f"\n    recompile: {self.recompile.change}" if self.recompile else ""
        launches = f", {self.launches} kernel launches per call" if self.kernels else ""
        return (
            f"graph {self.number} ({self.kind.value}) of {self.function}: {self.seconds:.2f} s, {self.nodes} nodes{launches}, "
            f"cache {self.cache.value}{recompile}"
        )


_MAX_VALUES = 5
_SIZE_COMPILED_EACH_TIME = (
    "torch makes a size dynamic after its second value; this one was compiled for each value, because of `dynamic=False` or "
    "because an operation needs a fixed size"
)
_PAD_SIZES = (
    "remove `dynamic=False`; if an operation fixes the size, pad to a few sizes (`buckets=` of `rs.capture` and `rs.optimize`). "
    "`torch._dynamo.mark_dynamic` names the operation in its error"
)


@dataclass(frozen=True, kw_only=True)
class RecompileGroup:
    """All recompiles of a function that have one cause: the same argument changed in the same way."""

    function: str
    graphs: tuple[int, ...]  # numbers of the graphs, in the order of their compiles
    seconds: float  # of all these compiles, with their backward graphs
    values: tuple[str, ...]  # each value that the argument had, once, in order
    first: Recompile

    @property
    def change(self) -> str:
        """What changed: `scale took 4 values: 0.5, 1.5, 2.5, 3.5`; for one recompile, from which value to which."""
        distinct = len(self.values)
        if len(self.graphs) == 1 or not self.first.argument or distinct < 3:  # noqa: PLR2004 - two values are a change
            return self.first.change
        more = ", …" if distinct > _MAX_VALUES else ""
        return f"{self.first.argument} took {distinct} values: {', '.join(self.values[:_MAX_VALUES])}{more}"

    def lines(self) -> list[str]:
        """Return the message as lines: count, time and what changed, then code line, guard, cause and fix, once."""
        count = _count(len(self.graphs), "recompile")
        graphs = f"graph{'' if len(self.graphs) == 1 else 's'} {', '.join(map(str, self.graphs))}"
        head = f"{count} of {self.function} ({self.seconds:.2f} s, {graphs}): {self.change}"
        return [head, *self.first.details()]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def group_recompiles(graphs: Iterable[CompiledGraph]) -> tuple[RecompileGroup, ...]:
    """Group recompiles by function, by what changed and by cause; those that took the most time come first.

    The parts of a function that a graph break splits are one function.
    """
    found: dict[tuple[str, str, str, str], list[CompiledGraph]] = {}
    seconds: dict[str, float] = defaultdict(float)  # with the backward graph, which has the same id
    for graph in graphs:
        seconds[graph.compile_id or str(graph.number)] += graph.seconds
        if graph.recompile:
            function, file = graph.function.partition(" (resumed")[0], graph.location.rpartition(":")[0]
            key = function, file, graph.recompile.argument, graph.recompile.cause
            found.setdefault(key, []).append(graph)
    groups = []
    for (function, *_), members in found.items():
        recompiles = [graph.recompile for graph in members if graph.recompile]
        values = [value for recompile in recompiles for value in (recompile.old_value, recompile.new_value) if value]
        first = recompiles[0]
        if ".size(" in first.argument and len(set(values)) > 2:  # noqa: PLR2004 - after two values torch makes it dynamic
            first = replace(first, cause=_SIZE_COMPILED_EACH_TIME, fix=_PAD_SIZES, example_before="", example_after="")
        groups.append(
            RecompileGroup(
                function=function,
                graphs=tuple(graph.number for graph in members),
                seconds=sum(seconds[graph.compile_id or str(graph.number)] for graph in members),
                values=tuple(dict.fromkeys(values)),
                first=first,
            )
        )
    return tuple(sorted(groups, key=lambda group: -group.seconds))


CHECKED_FIX = "your line (checked: this break is gone, the result is the same):"


@dataclass(frozen=True, kw_only=True)
class LineFix:
    """The user's own lines, and how they read without the break. It was applied: the break is gone, the result is the same."""

    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class GraphBreak:
    """A line at which Dynamo stopped tracing, why, and the fix."""

    id: str  # torch's, such as GB0170
    kind: str  # torch's name for it
    code: CodeLine  # the user's line, with the expression that breaks the graph
    function: str
    cause: str
    fix: str
    line_fix: LineFix | None = None
    example_before: str = ""  # the fix on sample code
    example_after: str = ""
    torch_message: str = ""
    stack: tuple[str, ...] = ()
    in_loop: bool = False  # torch cannot resume inside a loop
    frame_skipped: bool = False  # nothing of `skipped_function` was compiled
    skipped_function: str = ""
    fatal: bool = False  # the call fails instead of running in eager
    count: int = 1

    @property
    def location(self) -> str:
        """`file:line`, or an empty string."""
        return _location(self.code)

    @property
    def effect(self) -> str:
        """What happens besides the split of the graph; usually empty."""
        if self.fatal:
            return "the compile fails, so the call fails"
        if not self.frame_skipped:
            return ""
        reason = "torch cannot resume inside a loop, so " if self.in_loop else ""
        name = self.skipped_function or self.function
        return (
            f"{reason}nothing of {name} is compiled, and breaks after this line are not known yet: fix it and run again"
        )

    def lines(self) -> list[str]:
        """Return the message as lines: cause, code line, effect, fix."""
        times = f" ({self.count} times)" if self.count > 1 else ""
        return [
            f"graph break{times}: {self.cause}",
            *code_lines(self.code),
            *([f"effect: {self.effect}"] if self.effect else []),
            f"fix: {self.fix}",
            *self.diff_lines(),
        ]

    def diff_lines(self) -> list[str]:
        """Return the checked fix of the user's lines as a diff; without one, that of the example."""
        if self.line_fix is None:
            return example_lines(self.example_before, self.example_after)
        return [CHECKED_FIX, *_diff(self.line_fix.before, self.line_fix.after)]

    def __str__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True, kw_only=True)
class UncompiledFrame:
    """A function that Dynamo tried to compile and that runs in eager instead."""

    function: str
    location: str
    seconds: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class CompileLog(NotebookResult):
    """Everything that was compiled while a recorder ran, or in the run that wrote the files of TORCH_TRACE or TORCH_COMPILE_DEBUG."""

    started_at: str
    seconds: float
    torch: str
    source: str = "live"  # live, trace (read from TORCH_TRACE) or debug (read from TORCH_COMPILE_DEBUG)
    graphs: tuple[CompiledGraph, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    uncompiled: tuple[UncompiledFrame, ...] = ()
    workload: str = ""

    @property
    def compile_s(self) -> float:
        """Seconds spent compiling, over all threads."""
        return sum(g.seconds for g in self.graphs) + sum(f.seconds for f in self.uncompiled)

    @property
    def recompiles(self) -> tuple[RecompileGroup, ...]:
        """The recompiles by cause, each with its fix; those that took the most time come first."""
        return group_recompiles(self.graphs)

    def __str__(self) -> str:
        summary = (
            f"{_count(len(self.graphs), 'compiled graph')}, {self.compile_s:.1f} s of compiling, "
            f"{count_breaks(self.breaks)}"
        )
        graphs = [f"  {graph}" for graph in self.graphs]
        return "\n\n".join(["\n".join([summary, *graphs]), *map(str, (*self.recompiles, *self.breaks))])


@dataclass(frozen=True, kw_only=True)
class BreakReport(NotebookResult):
    """The graph breaks of one call, and the graphs that it was split into."""

    function: str
    torch: str
    breaks: tuple[GraphBreak, ...]
    graphs: tuple[CompiledGraph, ...]
    uncompiled: tuple[UncompiledFrame, ...] = ()
    backend: str = "inductor"

    @property
    def summary(self) -> str:
        """`f: 1 graph break, 2 compiled graphs`."""
        return f"{self.function}: {self.counts}"

    @property
    def counts(self) -> str:
        """`1 graph break, 2 compiled graphs`."""
        breaks = count_breaks(self.breaks) if self.breaks else "no graph break"
        return f"{breaks}, {_count(len(self.graphs), 'compiled graph')}"

    def __str__(self) -> str:
        return "\n\n".join([*(str(found) for found in self.breaks), self.summary])


def code_lines(code: CodeLine) -> list[str]:
    """Return a code line for a message: indented, with a path relative to the current folder."""
    return [f"  {line}" for line in code.lines(short_location(_location(code)))] if code.file else []


def example_lines(before: str, after: str) -> list[str]:
    """Return the fix of sample code as a diff; the minus and plus signs show that it is not the user's code."""
    return ["example (not your code):", *_diff(before, after)] if before and after else []


def _diff(before: str, after: str) -> list[str]:
    return [*(f"  - {line}" for line in before.splitlines()), *(f"  + {line}" for line in after.splitlines())]


def short_location(location: str) -> str:
    """Return a `file:line` relative to the current folder, if the file is below it."""
    file, colon, line = location.rpartition(":")
    try:
        return f"{Path(file).relative_to(Path.cwd())}{colon}{line}"
    except ValueError:
        return location


def _location(code: CodeLine) -> str:
    return f"{code.file}:{code.line}" if code.file and code.line else code.file


def count_breaks(breaks: Sequence[GraphBreak]) -> str:
    """`2 graph breaks at 1 line`; the lines are left out if each broke the graph once."""
    total, lines = sum(found.count for found in breaks), len({found.location for found in breaks})
    return _count(total, "graph break") + (f" at {_count(lines, 'line')}" if total != lines else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
