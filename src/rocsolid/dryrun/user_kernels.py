"""Compiles Triton kernels: those that a program launched, and those found in files and folders. Runs in the child process."""

import ast
import dis
import inspect
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rocsolid.dryrun.compile_kernels import CompileContext, CompiledConfig
from rocsolid.dryrun.compile_workers import Failed, Job, Task, compile_all, run_jobs
from rocsolid.dryrun.infer_signature import ProjectSource, with_block_shape
from rocsolid.dryrun.kernel_loader import FoundKernel, Loader, find_kernels, jit_function
from rocsolid.dryrun.kernel_signature import OPTIONS, signature_text
from rocsolid.dryrun.request import ChildResult, KernelSignature, Request
from rocsolid.dryrun.resource_usage import foreign_code, fp8_formats
from rocsolid.dryrun.search_signature import search_signature
from rocsolid.errors import InputError, UnknownNameError, first_line
from rocsolid.model.chip import Chip
from rocsolid.model.dryrun import DryRun, DryRunKernel, KernelConfig, SkippedKernel
from rocsolid.model.platform import Platform
from rocsolid.torchapi.pretend.triton_driver import Launch

_DEFAULT_WARPS, _DEFAULT_STAGES = 4, 2
_ROCM_OPTIONS = ("waves_per_eu", "kpack", "matrix_instr_nonkdim")  # other compilers refuse them
_ROCM_DEFAULTS = (0, 1)
_ASSUMED_SIZE: Final = 256  # for heuristics that compute constants from sizes
_VENDOR_MODULES: Final = ("triton.language.extra.cuda", "triton.language.extra.hip")
_NOT_SEARCHED: Final = (".git", ".venv", "venv", "node_modules", "__pycache__", "build", "dist")


@dataclass(frozen=True, kw_only=True)
class _Project:
    """The kernels of the given files and folders."""

    kernels: tuple[FoundKernel, ...]
    source: ProjectSource
    loader: Loader

    def load(self, found: FoundKernel) -> Any:
        return self.loader.module(found.file).kernel(found)


def find_signatures(request: Request, shared: CompileContext) -> ChildResult:
    """Return how each kernel is called: as given, recorded, or inferred and accepted by Triton. Device functions are left out."""
    project = _read_project(request.kernels)
    wanted = [(name.rpartition(":")[2], name.rpartition(":")[0]) for name in request.only]
    for name, file in wanted:
        _named(project, name, file)
    given = list(_given(request, project))
    done = {(found.file, found.name) for _, found in given}
    open_kernels = [
        found
        for found in project.kernels
        if (found.file, found.name) not in done
        and not project.source.is_device_function(found.node)
        and (not wanted or any(_matches(found, name, file) for name, file in wanted))
    ]
    results = run_jobs(
        shared,
        [Job(name=found.name, run=lambda found=found: _infer(project, found, shared.chip)) for found in open_kernels],  # type: ignore[misc]
    )
    inferred, skipped = [], []
    for found, result in zip(open_kernels, results, strict=True):
        if isinstance(result, KernelSignature):
            inferred.append(replace(result, file=str(found.file), origin="inferred"))
        else:
            reason = result.error if isinstance(result, Failed) else str(result)
            skipped.append(SkippedKernel(name=found.name, location=f"{found.file}:{found.line}", reason=reason))
    signatures = [replace(signature, file=str(found.file)) for signature, found in given] + inferred
    return ChildResult(signatures=tuple(signatures), skipped=tuple(skipped))


def _given(request: Request, project: _Project) -> Iterator[tuple[KernelSignature, FoundKernel]]:
    """The kernels whose signature was given or recorded; raises InputError for a wrong one that was given."""
    for signature in request.signatures:
        if signature.origin == "given":
            for found in _named(project, signature.name, signature.file):
                _check_arguments(signature, project.load(found))
                yield signature, found
            continue
        for found in project.kernels:
            if _matches(found, signature.name, signature.file):
                kernel = project.load(found)
                decorated = {*_tuned_names(kernel), *(name for values in _heuristics(kernel) for name in values)}
                constants = {name: value for name, value in signature.constants.items() if name not in decorated}
                options = {} if _configs(kernel) else signature.options
                yield replace(signature, constants=constants, options=options), found


def compile_kernels(request: Request, shared: CompileContext) -> DryRun:
    """Compile the kernels with the signatures of the request."""
    import triton

    started = time.monotonic()
    project = _read_project(sorted({signature.file for signature in request.signatures}))
    by_name = {(str(found.file), found.name): found for found in project.kernels}
    launches: list[Launch] = []
    texts: dict[str, str] = {}
    not_loaded: list[DryRunKernel] = []
    for signature in request.signatures:
        found = by_name[str(Path(signature.file)), signature.name]
        text = f"{signature.origin}: {signature_text(replace(signature, file=''))}"
        try:
            new = list(_launches(signature, project.load(found), request.configs, shared.chip))
        except Exception as error:  # noqa: BLE001 - the project's own code
            not_loaded.append(_failed(found, text, f"cannot be loaded: {type(error).__name__}: {first_line(error)}"))
            continue
        launches += new
        texts |= {launch.location: text for launch in new}
    kernels = compile_launches(launches, shared, request.configs, texts)
    return DryRun(
        target=shared.chip.arch,
        product=shared.chip.product,
        torch=getattr(sys.modules.get("torch"), "__version__", "not used"),
        triton=triton.__version__,
        kernels=(*kernels, *not_loaded),
        seconds=round(time.monotonic() - started, 3),
    )


def _failed(found: FoundKernel, signature: str, error: str) -> DryRunKernel:
    return DryRunKernel(
        name=found.name,
        origin="user",
        source=ast.unparse(found.node),
        signature=signature,
        locations=(f"{found.file}:{found.line}",),
        configs=(KernelConfig(error=error),),
    )


def _read_project(paths: Sequence[str]) -> _Project:
    """Read all kernels; raises InputError if a path is missing, a file cannot be parsed, or there is no kernel."""
    kernels: list[FoundKernel] = []
    source = ProjectSource()
    for file in dict.fromkeys(file for path in paths for file in _python_files(Path(path))):
        text = file.read_text(encoding="utf-8", errors="replace")
        if "triton" not in text:
            continue
        try:
            tree = ast.parse(text, str(file))
        except SyntaxError as error:
            if len(paths) == 1 and Path(paths[0]).is_file():
                msg = f"cannot parse {file}:{error.lineno}: {error.msg}"
                raise InputError(msg) from error
            continue
        found = list(find_kernels(tree, file))
        kernels += found
        source.add(tree, [kernel.node for kernel in found])
    if not kernels:
        msg = f"{', '.join(paths)}: no @triton.jit kernel found"
        raise InputError(msg)
    return _Project(kernels=tuple(kernels), source=source, loader=Loader())


def _python_files(path: Path) -> Iterator[Path]:
    path = path.resolve()
    if path.is_file():
        yield path
    elif path.is_dir():
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if name not in _NOT_SEARCHED)
            yield from (Path(folder) / name for name in sorted(names) if name.endswith(".py"))
    else:
        msg = f"cannot read {path}: no such file or folder"
        raise InputError(msg)


def _named(project: _Project, name: str, file: str) -> list[FoundKernel]:
    """The kernels of that name, in the file if one is given; raises UnknownNameError."""
    found = [kernel for kernel in project.kernels if _matches(kernel, name, file)]
    if not found:
        known = [kernel.name for kernel in project.kernels]
        raise UnknownNameError(kind="kernel", where=file or "these files", name=name, known=known)
    return found


def _matches(found: FoundKernel, name: str, file: str) -> bool:
    return found.name == name and (not file or found.file.match(file))


def _infer(project: _Project, found: FoundKernel, chip: Chip) -> KernelSignature | str:
    """A signature that Triton accepts, or why none was found."""
    try:
        kernel = project.load(found)
    except Exception as error:  # noqa: BLE001 - the project's own code
        return f"cannot be loaded: {type(error).__name__}: {first_line(error)}"
    decorated = [*_tuned_names(kernel), *(name for values in _heuristics(kernel) for name in values)]
    check = lambda signature: next(_launches(signature, kernel, "first", chip)).check()  # noqa: E731
    return search_signature(found.node, project.source, decorated, check)


def _check_arguments(signature: KernelSignature, kernel: Any) -> None:
    function = jit_function(kernel)
    decorated = {*_tuned_names(kernel), *(name for values in _heuristics(kernel) for name in values)}
    defaults = {p.name for p in function.params if p.has_default}
    missing = [
        name
        for name in function.arg_names
        if name not in {*signature.types, *signature.constants, *decorated, *defaults}
    ]
    for name in (*signature.types, *signature.constants):
        if name not in function.arg_names and name not in OPTIONS:
            known = [*function.arg_names, *OPTIONS]
            raise UnknownNameError(kind="argument", where=signature.name, name=name, known=known)
    if missing:
        arguments = [f"{p.name}={'…' if p.is_constexpr else 'type'}" for p in function.params]
        hint = f"--kernel '{signature.name}({', '.join(arguments)})'"
        msg = f"the signature of {signature.name} lacks {', '.join(missing)}: {hint}"
        raise InputError(msg)


def _decorators(kernel: Any) -> Iterator[Any]:
    """The autotuners and heuristics around a kernel, the outermost first."""
    function = jit_function(kernel)
    while kernel is not function:
        yield kernel
        kernel = kernel.fn


def _configs(kernel: Any) -> list[Any]:
    return [config for decorator in _decorators(kernel) for config in getattr(decorator, "configs", ())]


def _heuristics(kernel: Any) -> list[dict[str, Any]]:
    return [
        decorator.values for decorator in _decorators(kernel) if isinstance(getattr(decorator, "values", None), dict)
    ]


def _tuned_names(kernel: Any) -> set[str]:
    return {name for config in _configs(kernel) for name in config.kwargs}


def _launches(signature: KernelSignature, kernel: Any, which: str, chip: Chip) -> Iterator[Launch]:
    """One launch per configuration of the kernel's autotuner that its own pruning leaves, or one for the signature."""
    import triton.language as tl

    function = jit_function(kernel)
    with_callees(function)  # loads the names that they read: Triton copies the globals
    constants = {
        name: getattr(tl, value.removeprefix("tl.")) if isinstance(value, str) and value.startswith("tl.") else value
        for name, value in signature.constants.items()
    }
    arguments = {
        name: _Argument() if kind.startswith(("*", "tensordesc")) else 1.0 if kind.startswith("f") else _ASSUMED_SIZE
        for name, kind in signature.types.items()
    }
    defaults = {p.name: p.default for p in function.params if p.is_constexpr and p.has_default}
    configs = _pruned(kernel, {**arguments, **constants})[: 1 if which == "first" else None]
    for config in configs or [None]:
        tuned = config.all_kwargs() if config else {}
        options = {name: value for name, value in tuned.items() if name not in function.arg_names}
        values = {**defaults, **{k: v for k, v in tuned.items() if k in function.arg_names}, **constants}
        for heuristics in _heuristics(kernel):
            for name, compute in heuristics.items():
                values[name] = compute({**arguments, **values, **options})
        options = {"num_warps": _DEFAULT_WARPS, "num_stages": _DEFAULT_STAGES, **options, **signature.options}
        types = {name: with_block_shape(kind, values) for name, kind in signature.types.items()}
        yield make_launch(function, types, values, options, chip)


def _pruned(kernel: Any, arguments: Mapping[str, Any]) -> list[Any]:
    """The configurations that the project's own pruning leaves; all of them where it needs real tensors."""
    for decorator in _decorators(kernel):
        prune = getattr(decorator, "early_config_prune", None)
        if prune is not None:
            try:
                return list(prune(decorator.configs, dict(arguments))) or list(decorator.configs)
            except Exception:  # noqa: BLE001 - the project's own code
                return list(decorator.configs)
    return _configs(kernel)


class _Argument:
    """A tensor argument for heuristics, of which only its presence is known."""


def make_launch(
    function: Any, types: Mapping[str, str], values: Mapping[str, Any], options: Mapping[str, Any], chip: Chip
) -> Launch:
    """Return a launch with these types and values. A value that is no argument is an option such as `waves_per_eu`."""
    from triton.compiler import ASTSource

    names = function.arg_names
    signature = {name: types.get(name, "constexpr") for name in names}
    constants = {(names.index(name),): value for name, value in values.items() if name in names}
    # At a launch Triton specialises on alignment: pointers from torch are aligned to 16 bytes, and sizes usually are multiples of 16.
    aligned = {
        (i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if signature[name].startswith(("*", "i"))
    }
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=aligned)
    given = {**options, **{name: value for name, value in values.items() if name not in names}}
    other_vendor = () if chip.platform is Platform.ROCM else _ROCM_OPTIONS
    return Launch(source=source, options={name: value for name, value in given.items() if name not in other_vendor})


def compile_launches(
    launches: Sequence[Launch], shared: CompileContext, which: str, signatures: Mapping[str, str] | None = None
) -> tuple[DryRunKernel, ...]:
    """Compile every launch; one kernel for each function, with a configuration for each set of types, constants and options."""
    by_location: dict[str, list[Launch]] = {}  # a file may have been loaded twice
    for launch in launches:
        by_location.setdefault(launch.location, []).append(launch)
    groups = [(found[0].function, list(_distinct(found))) for found in by_location.values()]
    tasks = [
        Task(name=function.fn.__name__, config=config, compile_it=launch.compile)
        for function, found in groups
        for launch, config in found
    ]
    compiled = iter(compile_all(shared, tasks))
    kernels = []
    for function, found in groups:
        kernel = _kernel(function, [next(compiled) for _ in found], shared, which)
        taken = any(kind.startswith("tensordesc") for launch, _ in found for kind in launch.types.values())
        kernels.append(replace(kernel, descriptors=taken or kernel.descriptors))
    return tuple(replace(kernel, signature=(signatures or {}).get(kernel.locations[0], "")) for kernel in kernels)


def _distinct(launches: Sequence[Launch]) -> Iterator[tuple[Launch, KernelConfig]]:
    """Yield each launch with other types, constants or options; types that differ between them are part of the configuration."""
    types = [launch.types for launch in launches]
    varying = {name for kinds in types for name, kind in kinds.items() if any(t.get(name, kind) != kind for t in types)}
    seen = set()
    for launch, kinds in zip(launches, types, strict=True):
        values = {
            name: value if isinstance(value, (bool, int, float, str)) else str(value)
            for name, value in launch.constants.items()
            if value is not None
        }
        options = {
            name: launch.options[name] for name in _ROCM_OPTIONS if launch.options.get(name, 0) not in _ROCM_DEFAULTS
        }
        config = KernelConfig(
            values={**{name: kind for name, kind in kinds.items() if name in varying}, **values, **options},
            warps=int(launch.options.get("num_warps", _DEFAULT_WARPS)),
            stages=int(launch.options.get("num_stages", _DEFAULT_STAGES)),
            grid=launch.grid,
        )
        if config.label not in seen:
            seen.add(config.label)
            yield launch, config


def _kernel(function: Any, compiled: list[CompiledConfig], shared: CompileContext, which: str) -> DryRunKernel:
    code = function.fn.__code__
    sources = [inspect.getsource(called.fn) for called in with_callees(function)]
    error = " ".join(c.config.error for c in compiled)
    configs = tuple(c.config for c in compiled)
    return DryRunKernel(
        name=function.fn.__name__,
        origin="user",
        graph=function.fn.__module__,
        source=sources[0],
        locations=(f"{code.co_filename}:{code.co_firstlineno}",),
        foreign=foreign_code(
            "\n".join(sources), " ".join([error, *(device_libraries(function) if error else ())]), shared.chip
        ),
        fp8=tuple(dict.fromkeys([f for c in compiled for f in c.fp8] + list(fp8_formats(error)))),
        descriptors=any("tensor_descriptor" in source or "descriptor_load" in source for source in sources),
        configs=(best(configs),) if which == "best" else configs,
    )


def best(configs: Sequence[KernelConfig]) -> KernelConfig:
    """The configuration that can be launched, spills least and has the most waves. No kernel is timed."""

    def rank(config: KernelConfig) -> tuple[float, ...]:
        used = config.resources
        return (0, not used.fits, used.spills, -used.occupancy, -used.lanes_used) if used else (1,)

    return min(configs, key=rank)


def device_libraries(function: Any) -> list[str]:
    """The modules of Triton for one vendor that a kernel's file imports and the kernel uses, directly or in a device function."""
    values = [value for called in with_callees(function) for value in _globals_read(called.fn)]
    names = [str(getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", "")) for value in values]
    return list(dict.fromkeys(name for name in names if name.startswith(_VENDOR_MODULES)))


def _globals_read(fn: Any) -> list[Any]:
    return [fn.__globals__.get(i.argval) for i in dis.get_instructions(fn) if i.opname == "LOAD_GLOBAL"]


def with_callees(function: Any) -> list[Any]:
    """The kernel and the device functions that it calls, directly or not."""
    found = {function: None}
    stack = [function]
    while stack:
        named = _globals_read(stack.pop().fn)
        new = [called for value in named if (called := jit_function(value)) is not None and called not in found]
        found |= dict.fromkeys(new)
        stack += new
    return list(found)
