"""Traces a workload on the pretended device, and compiles every kernel that comes of it. Runs in the child."""

import functools
import re
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rocsolid.catalog.extern import library_of
from rocsolid.dryrun.compiling import Compiled, Compiling, compiled, progress
from rocsolid.dryrun.reading import foreign_code, fp8_formats
from rocsolid.dryrun.request import Request
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
from rocsolid.torchapi.lowering import (
    LoweredGraph,
    LoweredSearch,
    Watch,
    compile_config,
    constants_of,
    graph_breaks,
    grid_of,
    load_kernel,
    mode_options,
    watch_lowering,
)
from rocsolid.torchapi.pretend import fake_mode, needs_values

_LONGEST: Final = 400
_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')


def trace(request: Request, shared: Compiling) -> DryRun:
    """Everything a workload becomes on one chip. Raises CannotRunError when it cannot be traced."""
    import torch
    import triton

    started = time.monotonic()
    watch = watch_lowering()
    notes = tuple(note for note in (_call(request),) if note)
    searches = tuple(_search(s, request, shared) for s in watch.searches)
    kernels = tuple(_kernels(watch, shared))
    return DryRun(
        target=shared.chip.arch,
        product=shared.chip.product,
        torch=torch.__version__,
        triton=triton.__version__,
        graphs=tuple(_graph(g, shared.chip) for g in watch.graphs),
        kernels=kernels,
        breaks=tuple(GraphBreak(reason=reason, place=place) for reason, place in graph_breaks()),
        searches=searches,
        notes=notes,
        seconds=round(time.monotonic() - started, 3),
    )


def _call(request: Request) -> str:
    """Compile and call the workload once, backward too when training; returns a note."""
    import torch

    from rocsolid.dryrun.faking import fake_workload

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
        unfit=tuple(Unfit(reason=reason, place=place) for reason, place in graph.unfit),
        fp8=tuple(Fp8Use(format=name, place=place) for name, place in graph.fp8),
        seconds=round(graph.seconds, 3),
    )


def _externs(graph: LoweredGraph, chip: Chip) -> Iterator[ExternCall]:
    counts = Counter(extern.name for extern in graph.externs)
    for name, count in counts.items():
        library = library_of(name, chip.platform)
        places = [place for extern in graph.externs if extern.name == name for place in extern.places]
        yield ExternCall(
            name=name,
            library=library.name,
            count=count,
            capture=library.capture,
            evidence=library.problem,
            places=tuple(dict.fromkeys(places)),
        )


def _kernels(watch: Watch, shared: Compiling) -> Iterator[Kernel]:
    seen: set[tuple[str, str]] = set()
    waiting = [(g, name, *source) for g in watch.graphs for name, source in g.sources.items()]
    for number, (graph, name, function, source) in enumerate(waiting):
        if (name, source) in seen:
            continue
        seen.add((name, source))
        progress(shared, f"{shared.chip.arch}: kernel {number + 1} of {len(waiting)}, {name}")
        call = next((args for called, args in graph.calls if called == name), [])
        tries = _configs(f"{graph.name} {name}", function, source, call, shared)
        own = watch.user_kernels.get(name)
        error = " ".join(t.config.error for t in tries)
        yield Kernel(
            name=name,
            origin="user" if own else "template" if "triton_heuristics.template" in source else "inductor",
            graph=graph.name,
            source=source,
            places=tuple(filter(None, (own, *watch.places.get(name, ())))),
            foreign=foreign_code(source, error, shared.chip) if own else (),
            fp8=tuple(dict.fromkeys([f for t in tries for f in t.fp8] + list(fp8_formats(error)))),
            configs=tuple(t.config for t in tries),
        )


def _configs(key: str, function: str, source: str, call: list[str], shared: Compiling) -> list[Compiled]:
    try:
        tuner = load_kernel(function, source)
    except Exception as refused:  # noqa: BLE001 - a kernel that cannot be loaded is one that does not compile
        return [Compiled(config=KernelConfig(error=_first_line(refused)))]
    return [
        compiled(shared, key, _config(tuner, config, call), functools.partial(compile_config, tuner, config))
        for config in tuner.configs
    ]


def _config(tuner: Any, config: Any, call: list[str]) -> KernelConfig:
    return KernelConfig(
        values={**constants_of(tuner), **config.kwargs},
        warps=int(config.num_warps),
        stages=int(config.num_stages),
        grid=grid_of(tuner, config, call),
    )


def _search(search: LoweredSearch, request: Request, shared: Compiling) -> Search:
    started = time.monotonic()
    tried = search.tuners[: request.most_choices]
    failed = 0
    for name, load in tried:
        try:
            tuner = load()
            config = tuner.configs[0]
        except Exception:  # noqa: BLE001 - counted
            failed += 1
            continue
        key = f"{search.op} {name}"
        done = compiled(shared, key, _config(tuner, config, []), functools.partial(compile_config, tuner, config))
        failed += done.config.resources is None or not done.config.resources.fits
    return Search(
        op=search.op,
        shapes=search.shapes,
        choices=len(search.names),
        compiled=len(tried),
        seconds=round(time.monotonic() - started, 3),
        failed=failed,
    )
