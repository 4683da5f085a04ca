"""Traces a workload on the pretended device, and compiles every kernel that comes of it. Runs in the child."""

import contextlib
import functools
import re
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocsolid.catalog.extern_kernels import library_of
from rocsolid.dryrun.compile_kernels import Compiled, Compiling
from rocsolid.dryrun.compile_workers import Task, compile_all
from rocsolid.dryrun.request import Request
from rocsolid.dryrun.resource_usage import foreign_code, fp8_formats
from rocsolid.errors import CannotRunError
from rocsolid.model.chip import Chip
from rocsolid.model.dryrun import (
    DryGraph,
    DryRun,
    ExternCall,
    Fp8Use,
    GraphBreak,
    Kernel,
    KernelConfig,
    Search,
    Unfit,
)
from rocsolid.model.workload import WorkloadName
from rocsolid.torchapi.inductor.lowering import (
    LoweredGraph,
    LoweredSearch,
    LoweringRecord,
    compile_config,
    constants_of,
    graph_breaks,
    grid_of,
    load_kernel,
    mode_options,
    record_lowering,
)
from rocsolid.torchapi.pretend.device import fake_mode, needs_values

_LONGEST: Final = 400
_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')


def trace(request: Request, shared: Compiling) -> DryRun:
    """Everything a workload becomes on one chip. Raises CannotRunError when it cannot be traced."""
    import torch
    import triton

    started = time.monotonic()
    watch = record_lowering()
    note = _call(request)
    empty = (
        ""
        if watch.graphs
        else "nothing was compiled: the workload ran no operation on a tensor that torch.compile sees"
    )
    searches = tuple(_search(s, request, shared) for s in watch.searches)
    kernels = _kernels(watch, shared)
    return DryRun(
        target=shared.chip.arch,
        product=shared.chip.product,
        torch=torch.__version__,
        triton=triton.__version__,
        graphs=tuple(_graph(g, shared.chip) for g in watch.graphs),
        kernels=kernels,
        breaks=tuple(GraphBreak(reason=reason, place=place) for reason, place in graph_breaks()),
        searches=searches,
        notes=tuple(filter(None, (note, empty))),
        seconds=round(time.monotonic() - started, 3),
    )


def _call(request: Request) -> str:
    """Compile and call the workload once, backward too when training; returns a note."""
    import torch

    from rocsolid.dryrun.fake_tensors import fake_workload

    mode = fake_mode()
    workload, note = fake_workload(request.workload, mode)
    options = {**mode_options(request.mode), **request.options}
    if isinstance(workload.callable, torch.nn.Module):
        workload.callable.train(request.train)
    function = torch.compile(workload.callable, options=options, dynamic=request.dynamic)
    try:
        with mode, torch.enable_grad() if request.train else torch.no_grad():
            out = function(*workload.args, **workload.kwargs)
            if request.train:
                _loss(out).backward()
    except CannotRunError:
        raise
    except Exception as refused:
        if needs_values(refused):
            place = _own_line(refused, workload.name)
            ending = f"the trace ends{place}, where {_first_line(refused)} needs values; what comes after was not seen"
            return "; ".join(filter(None, (note, ending)))
        msg = f"{request.workload} cannot be traced{_own_line(refused, workload.name)}: {_first_line(refused)}"
        raise CannotRunError(msg) from refused
    return note


def _own_line(error: BaseException, workload: str) -> str:
    """Where in the workload's file it happened, for a sentence."""
    file = Path(WorkloadName.parse(workload).file)
    said = str(error).partition("from user code:")[2]  # dynamo traces the program without running its frames
    frames = [(name, int(line)) for name, line in _FRAME.findall(said)]
    frames = frames or [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    own = [f"{name}:{line}" for name, line in frames if Path(name) in (file, file.resolve())]
    return f" at {own[-1]}" if own else ""


def _loss(out: Any) -> Any:
    import torch

    leaves: list[Any] = []
    waiting = [out]
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            leaves.append(value)
        elif isinstance(value, dict):
            waiting += list(value.values())
        elif isinstance(value, (list, tuple)):
            waiting += list(value)
    with_gradient = [leaf for leaf in leaves if leaf.requires_grad]
    if not with_gradient:
        msg = "nothing that the workload returns has a gradient; leave out --train, or return the loss"
        raise CannotRunError(msg)
    return sum(leaf if leaf.dim() == 0 else leaf.float().sum() for leaf in with_gradient)


def _first_line(error: BaseException) -> str:
    # What a compiler or an operation says comes wrapped in dynamo's errors, often more than once.
    while isinstance(inner := getattr(error, "inner_exception", None) or error.__cause__, BaseException):
        error = inner
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["(no message)"]
    got = next((line.partition(": got ")[2] for line in lines if line.startswith("Explanation:")), "")
    return (got or f"{type(error).__name__}: {lines[0]}")[:_LONGEST]


def _graph(graph: LoweredGraph, chip: Chip) -> DryGraph:
    return DryGraph(
        name=graph.name,
        kind=graph.kind,
        kernels=tuple(name for name, _ in graph.calls),
        externs=tuple(_externs(graph, chip)),
        nodes=len(graph.calls) + len(graph.externs),
        partitions=graph.partitions,
        unfit=tuple(Unfit(reason=reason, place=place) for reason, place in graph.capture_blockers),
        fp8=tuple(Fp8Use(format=name, place=place) for name, place in graph.fp8),
        seconds=round(graph.seconds, 3),
    )


def _externs(graph: LoweredGraph, chip: Chip) -> Iterator[ExternCall]:
    counts = Counter(extern.name for extern in graph.externs)
    for name, count in counts.items():
        library = library_of(name, chip.platform)
        places = [place for extern in graph.externs if extern.name == name for place in extern.locations]
        yield ExternCall(
            name=name,
            library=library.name,
            count=count,
            capture=library.capture,
            evidence=library.problem,
            places=tuple(dict.fromkeys(places)),
        )


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """A kernel with what is to be compiled of it, or with what came instead."""

    graph: LoweredGraph
    name: str
    source: str
    tasks: tuple[Task, ...] = ()
    refused: str = ""


def _kernels(watch: LoweringRecord, shared: Compiling) -> tuple[Kernel, ...]:
    found: dict[tuple[str, str], tuple[LoweredGraph, str]] = {}  # several graphs may launch one kernel
    for graph in watch.graphs:
        for name, (function, source) in graph.sources.items():
            found.setdefault((name, source), (graph, function))
    waiting = [_loaded(graph, name, function, source) for (name, source), (graph, function) in found.items()]
    tries = iter(compile_all(shared, [task for kernel in waiting for task in kernel.tasks]))
    return tuple(_kernel(kernel, [next(tries) for _ in kernel.tasks], watch, shared.chip) for kernel in waiting)


def _loaded(graph: LoweredGraph, name: str, function: str, source: str) -> _Loaded:
    call = next((args for called, args in graph.calls if called == name), [])
    try:
        tuner = load_kernel(function, source)
        tasks = tuple(_task(f"{graph.name} {name}", tuner, config, call) for config in tuner.configs)
    except Exception as refused:  # noqa: BLE001 - a kernel that cannot be loaded is one that does not compile
        return _Loaded(graph=graph, name=name, source=source, refused=_first_line(refused))
    return _Loaded(graph=graph, name=name, source=source, tasks=tasks)


def _kernel(kernel: _Loaded, tries: list[Compiled], watch: LoweringRecord, chip: Chip) -> Kernel:
    own = watch.user_kernels.get(kernel.name)
    tries = tries or [Compiled(config=KernelConfig(error=kernel.refused))]
    error = " ".join(t.config.error for t in tries)
    return Kernel(
        name=kernel.name,
        origin="user" if own else "template" if "triton_heuristics.template" in kernel.source else "inductor",
        graph=kernel.graph.name,
        source=kernel.source,
        places=tuple(filter(None, (own, *watch.locations.get(kernel.name, ())))),
        foreign=foreign_code(kernel.source, error, chip) if own else (),
        fp8=tuple(dict.fromkeys([f for t in tries for f in t.fp8] + list(fp8_formats(error)))),
        configs=tuple(t.config for t in tries),
    )


def _task(name: str, tuner: Any, config: Any, call: list[str]) -> Task:
    compile_it = functools.partial(compile_config, tuner, config)
    return Task(name=name, config=_config(tuner, config, call), compile_it=compile_it)


def _config(tuner: Any, config: Any, call: list[str]) -> KernelConfig:
    return KernelConfig(
        values={**constants_of(tuner), **config.kwargs},
        warps=int(config.num_warps),
        stages=int(config.num_stages),
        grid=grid_of(tuner, config, call),
    )


def _search(search: LoweredSearch, request: Request, shared: Compiling) -> Search:
    tried = search.tuners[: request.most_choices]
    tasks = []
    for name, load in tried:
        with contextlib.suppress(Exception):  # counted below as one that failed
            tuner = load()
            tasks.append(_task(f"{search.op} {name}", tuner, tuner.configs[0], []))
    done = [attempt.config for attempt in compile_all(shared, tasks)]
    good = sum(bool(config.resources and config.resources.fits) for config in done)
    return Search(
        op=search.op,
        shapes=search.shapes,
        choices=len(search.names),
        compiled=len(tried),
        seconds=round(sum(config.seconds for config in done), 3),
        failed=len(tried) - good,
    )
