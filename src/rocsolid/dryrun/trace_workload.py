"""Traces a workload on the simulated GPU and compiles all its kernels. Runs in the child process."""

import contextlib
import functools
import re
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rocsolid.catalog.extern_kernels import library_of
from rocsolid.dryrun.compile_kernels import CompileContext, CompiledConfig
from rocsolid.dryrun.compile_workers import Task, compile_all
from rocsolid.dryrun.kernel_loader import jit_function
from rocsolid.dryrun.request import Request
from rocsolid.dryrun.resource_usage import foreign_code, fp8_formats
from rocsolid.dryrun.user_kernels import best, compile_launches, device_libraries
from rocsolid.errors import CannotRunError
from rocsolid.measure.load_workload import load_workload
from rocsolid.model.chip import Chip
from rocsolid.model.dryrun import (
    AutotuneSearch,
    CaptureBlocker,
    DryRun,
    DryRunBreak,
    DryRunGraph,
    DryRunKernel,
    ExternCall,
    Fp8Use,
    KernelConfig,
)
from rocsolid.model.workload import Workload, WorkloadName
from rocsolid.torchapi.inductor.lowering import (
    LoweredGraph,
    LoweredSearch,
    LoweringRecord,
    compile_config,
    compile_options,
    constants_of,
    graph_breaks,
    grid_of,
    load_kernel,
    record_lowering,
)
from rocsolid.torchapi.pretend.cpu_values import on_cpu
from rocsolid.torchapi.pretend.custom_ops import (
    Implementations,
    record_implementations,
    run_called_operators,
    run_graph_operators,
)
from rocsolid.torchapi.pretend.device import fake_mode, needs_values
from rocsolid.torchapi.pretend.triton_driver import Launch, LaunchRecord, record_launches

_MAX_ERROR_CHARACTERS: Final = 400
_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')


def trace(request: Request, shared: CompileContext) -> DryRun:
    """Trace and compile a workload for one chip. Raises CannotRunError if it cannot be traced."""
    import torch
    import triton

    started = time.monotonic()
    operators = record_implementations()
    record = record_lowering(lambda module: run_graph_operators(module, operators))
    launches = record_launches(first_only=request.configs == "first")
    notes = _call(request, operators, launches)
    if not record.graphs and not launches.launches:
        notes.append("nothing was compiled: torch.compile found no tensor operation in the workload")
    searches = tuple(_search(s, request, shared) for s in record.searches)
    kernels = _kernels(record, request, shared)
    launched = [launch for launch in launches.launches if not _is_in_graph(launch, kernels)]
    kernels = (*kernels, *compile_launches(launched, shared, request.configs))
    return DryRun(
        target=shared.chip.arch,
        product=shared.chip.product,
        torch=torch.__version__,
        triton=triton.__version__,
        graphs=tuple(_graph(g, shared.chip) for g in record.graphs),
        kernels=kernels,
        breaks=tuple(DryRunBreak(reason=reason, location=location) for reason, location in graph_breaks()),
        searches=searches,
        notes=tuple(notes),
        seconds=round(time.monotonic() - started, 3),
    )


def _is_in_graph(launch: Launch, kernels: tuple[DryRunKernel, ...]) -> bool:
    """Whether a graph launches the same kernel with the same constants."""
    return any(
        all(launch.constants.get(name) == value for name, value in config.values.items())
        for kernel in kernels
        if kernel.origin == "user" and launch.location in kernel.locations
        for config in kernel.configs
    )


def _call(request: Request, operators: Implementations, launches: LaunchRecord) -> list[str]:
    """Compile and call the workload once, with the backward pass when training; returns notes."""
    import torch

    from rocsolid.dryrun.fake_tensors import fake_workload

    mode = fake_mode()
    workload, note = fake_workload(request.workload, mode)
    options = compile_options(request.mode, request.options)
    function = torch.compile(workload.callable, options=options, dynamic=request.dynamic)
    notes = [note] if note else []
    try:
        with mode, run_called_operators(operators):
            _call_once(function, workload, request)
    except CannotRunError:
        raise
    except Exception as error:
        where = _workload_line(error, workload.name)
        if not needs_values(error):
            msg = f"{request.workload} cannot be traced{where}: {_first_line(error)}"
            raise CannotRunError(msg) from error
        stopped = f"tracing stopped{where}, where {_first_line(error)} needs real values; the rest was not compiled"
        return [*notes, stopped + _call_with_values(request, launches)]
    return notes


def _call_once(function: Any, workload: Workload, request: Request) -> None:
    import torch

    if isinstance(workload.callable, torch.nn.Module):
        workload.callable.train(request.train)
    with torch.enable_grad() if request.train else torch.no_grad():
        out = function(*workload.args, **workload.kwargs)
        if request.train:
            _loss(out).backward()


def _call_with_values(request: Request, launches: LaunchRecord) -> str:
    """Call the workload without compiling it, on CPU tensors with values, to record the kernels that it launches; returns a note."""
    import torch

    before = len(launches.launches)
    launches.execute = True
    torch.compiler.set_stance("force_eager")
    try:
        with on_cpu():
            workload = load_workload(request.workload)
            _call_once(workload.callable, workload, request)
    except Exception as error:  # noqa: BLE001 - a second attempt; the note says how far it came
        ended = f", up to {_first_line(error)}"
    else:
        ended = ""
    if len(launches.launches) == before:
        return ""
    skipped = "".join(f"; {name} was not executed ({error})" for name, error in launches.not_executed.items())
    return f", except the Triton kernels that the workload launches when it runs on the CPU{ended}{skipped}"


def _workload_line(error: BaseException, workload: str) -> str:
    """Return ` at file:line` if the error is in the workload's file; otherwise an empty text."""
    file = Path(WorkloadName.parse(workload).file)
    user_code = str(error).partition("from user code:")[2]  # Dynamo does not run the frames it traces
    frames = [(name, int(line)) for name, line in _FRAME.findall(user_code)]
    frames = frames or [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    in_workload = [f"{name}:{line}" for name, line in frames if Path(name) in (file, file.resolve())]
    return f" at {in_workload[-1]}" if in_workload else ""


def _loss(out: Any) -> Any:
    import torch

    leaves: list[Any] = []
    stack = [out]
    while stack:
        value = stack.pop()
        if isinstance(value, torch.Tensor):
            leaves.append(value)
        elif isinstance(value, dict):
            stack += list(value.values())
        elif isinstance(value, (list, tuple)):
            stack += list(value)
    with_gradient = [leaf for leaf in leaves if leaf.requires_grad]
    if not with_gradient:
        msg = "--train: no tensor in the workload's result has requires_grad=True; return the loss, or drop --train"
        raise CannotRunError(msg)
    return sum(leaf if leaf.dim() == 0 else leaf.float().sum() for leaf in with_gradient)


def _first_line(error: BaseException) -> str:
    # Dynamo wraps the error of a compiler or operator in its own, often more than once.
    while isinstance(inner := getattr(error, "inner_exception", None) or error.__cause__, BaseException):
        error = inner
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["(no message)"]
    unsupported = next((line.partition(": got ")[2] for line in lines if line.startswith("Explanation:")), "")
    return (unsupported or f"{type(error).__name__}: {lines[0]}")[:_MAX_ERROR_CHARACTERS]


def _graph(graph: LoweredGraph, chip: Chip) -> DryRunGraph:
    return DryRunGraph(
        name=graph.name,
        kind=graph.kind,
        kernels=tuple(name for name, _ in graph.calls),
        externs=tuple(_externs(graph, chip)),
        nodes=len(graph.calls) + len(graph.externs),
        partitions=graph.partitions,
        capture_blockers=tuple(
            CaptureBlocker(reason=reason, location=location) for reason, location in graph.capture_blockers
        ),
        fp8=tuple(Fp8Use(format=name, location=location) for name, location in graph.fp8),
        seconds=round(graph.seconds, 3),
    )


def _externs(graph: LoweredGraph, chip: Chip) -> Iterator[ExternCall]:
    counts = Counter(extern.name for extern in graph.externs)
    for name, count in counts.items():
        library = library_of(name, chip.platform)
        locations = [location for extern in graph.externs if extern.name == name for location in extern.locations]
        yield ExternCall(
            name=name,
            library=library.name,
            count=count,
            capture=library.capture,
            evidence=library.problem,
            locations=tuple(dict.fromkeys(locations)),
        )


@dataclass(frozen=True, kw_only=True)
class _LoadedKernel:
    """A kernel with its configurations to compile, or with the error of loading it."""

    graph: LoweredGraph
    name: str
    source: str
    tasks: tuple[Task, ...] = ()
    error: str = ""


def _kernels(record: LoweringRecord, request: Request, shared: CompileContext) -> tuple[DryRunKernel, ...]:
    found: dict[tuple[str, str], tuple[LoweredGraph, str]] = {}  # several graphs may launch the same kernel
    for graph in record.graphs:
        for name, (function, source) in graph.sources.items():
            found.setdefault((name, source), (graph, function))
    first_only = request.configs == "first"
    loaded = [_load(graph, name, function, source, first_only) for (name, source), (graph, function) in found.items()]
    compiled = iter(compile_all(shared, [task for kernel in loaded for task in kernel.tasks]))
    kernels = [_kernel(kernel, [next(compiled) for _ in kernel.tasks], record, shared.chip) for kernel in loaded]
    return tuple(replace(k, configs=(best(k.configs),)) if request.configs == "best" else k for k in kernels)


def _load(graph: LoweredGraph, name: str, function: str, source: str, first_only: bool) -> _LoadedKernel:  # noqa: FBT001 - internal
    call = next((args for called, args in graph.calls if called == name), [])
    try:
        tuner = load_kernel(function, source)
        configs = tuner.configs[:1] if first_only else tuner.configs
        tasks = tuple(_task(f"{graph.name} {name}", tuner, config, call) for config in configs)
    except Exception as error:  # noqa: BLE001 - counts as a kernel that does not compile
        return _LoadedKernel(graph=graph, name=name, source=source, error=_first_line(error))
    return _LoadedKernel(graph=graph, name=name, source=source, tasks=tasks)


def _kernel(kernel: _LoadedKernel, compiled: list[CompiledConfig], record: LoweringRecord, chip: Chip) -> DryRunKernel:
    user_location = record.user_kernels.get(kernel.name)
    compiled = compiled or [CompiledConfig(config=KernelConfig(error=kernel.error))]
    error = " ".join(c.config.error for c in compiled)
    return DryRunKernel(
        name=kernel.name,
        origin="user" if user_location else "template" if "triton_heuristics.template" in kernel.source else "inductor",
        graph=kernel.graph.name,
        source=kernel.source,
        locations=tuple(filter(None, (user_location, *record.locations.get(kernel.name, ())))),
        foreign=(
            *foreign_code(kernel.source, error, chip),
            *_replaced_libraries(record.user_functions.get(kernel.name), chip),
        )
        if user_location
        else (),
        fp8=tuple(dict.fromkeys([f for c in compiled for f in c.fp8] + list(fp8_formats(error)))),
        configs=tuple(c.config for c in compiled),
    )


def _replaced_libraries(function: Any, chip: Chip) -> list[str]:
    """Libraries of another vendor that the user's file imports. Inductor's generated file imports its own, so that they are not compiled."""
    function = jit_function(function)
    libraries = device_libraries(function) if function is not None else []
    foreign = [found for name in libraries for found in foreign_code(name, "", chip)]
    if len(foreign) < len(libraries):  # the kernel has a branch for each vendor
        return []
    return [f"{name} (replaced by torch.compile; a launch outside it fails)" for name in foreign]


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


def _search(search: LoweredSearch, request: Request, shared: CompileContext) -> AutotuneSearch:
    tried = search.tuners[: request.max_choices]
    tasks = []
    for name, load in tried:
        with contextlib.suppress(Exception):  # counted below as failed
            tuner = load()
            tasks.append(_task(f"{search.op} {name}", tuner, tuner.configs[0], []))
    configs = [result.config for result in compile_all(shared, tasks)]
    launchable = sum(bool(config.resources and config.resources.fits) for config in configs)
    return AutotuneSearch(
        op=search.op,
        shapes=search.shapes,
        choices=len(search.names),
        compiled=len(tried),
        seconds=round(sum(config.seconds for config in configs), 3),
        failed=len(tried) - launchable,
    )
