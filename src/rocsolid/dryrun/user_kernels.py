"""Compiles the Triton kernels of one file. Runs in the child process."""

import functools
import importlib.util
import inspect
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocsolid.dryrun.compile_kernels import CompileContext, CompiledConfig
from rocsolid.dryrun.compile_workers import Task, compile_all
from rocsolid.dryrun.kernel_signature import OPTIONS
from rocsolid.dryrun.request import KernelSignature, Request
from rocsolid.dryrun.resource_usage import foreign_code, fp8_formats
from rocsolid.errors import InputError, UnknownNameError
from rocsolid.model.chip import Chip
from rocsolid.model.dryrun import DryRun, DryRunKernel, KernelConfig
from rocsolid.model.platform import Platform

_DEFAULT_WARPS, _DEFAULT_STAGES = 4, 2


def compile_file(request: Request, shared: CompileContext) -> DryRun:
    """Compile every given signature; kernels without one are listed in a note."""
    import triton

    started = time.monotonic()
    file_kernels = dict(_find_kernels(_import(Path(request.file))))
    if not file_kernels:
        msg = f"{request.file} contains no @triton.jit kernel"
        raise InputError(msg)
    for signature in request.signatures:
        if signature.name not in file_kernels:
            raise UnknownNameError(kind="kernel", where=request.file, name=signature.name, known=file_kernels)
    if not request.signatures:
        msg = (
            f"no kernel signature given; add {'; '.join(_hint(name, kernel) for name, kernel in file_kernels.items())}"
        )
        raise InputError(msg)
    for signature in request.signatures:
        _check_arguments(signature, file_kernels[signature.name])
    tasks = [list(_tasks(signature, file_kernels[signature.name], shared)) for signature in request.signatures]
    compiled = iter(compile_all(shared, [task for kernel_tasks in tasks for task in kernel_tasks]))
    kernels = tuple(
        _kernel(signature, file_kernels[signature.name], [next(compiled) for _ in kernel_tasks], shared)
        for signature, kernel_tasks in zip(request.signatures, tasks, strict=True)
    )
    not_compiled = [name for name in file_kernels if name not in {s.name for s in request.signatures}]
    return DryRun(
        target=shared.chip.arch,
        product=shared.chip.product,
        torch=getattr(sys.modules.get("torch"), "__version__", "not used"),
        triton=triton.__version__,
        kernels=kernels,
        notes=(f"not compiled, because no signature was given: {', '.join(not_compiled)}",) if not_compiled else (),
        seconds=round(time.monotonic() - started, 3),
    )


def _import(file: Path) -> Any:
    if not file.is_file():
        msg = f"cannot read {file}: no such file"
        raise InputError(msg)
    spec = importlib.util.spec_from_file_location(f"rocsolid_kernels_{file.stem}", file)
    if spec is None or spec.loader is None:
        msg = f"{file} is not a Python file"
        raise InputError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        msg = f"importing {file} failed: {type(error).__name__}: {error}"
        raise InputError(msg) from error
    return module


def _find_kernels(module: Any) -> Iterator[tuple[str, Any]]:
    """The kernels of the module by name, also those with further decorators."""
    for name, value in vars(module).items():
        if _jit_function(value) is not None and _jit_function(value).fn.__module__ == module.__name__:
            yield name, value


def _jit_function(value: Any) -> Any:
    """The `JITFunction` inside autotuners and heuristics; None if it is no kernel."""
    from triton.runtime.jit import JITFunction

    while not isinstance(value, JITFunction):
        if type(value).__module__.partition(".")[0] != "triton" or not hasattr(value, "fn"):
            return None
        value = value.fn
    return value


def _hint(name: str, kernel: Any) -> str:
    function = _jit_function(kernel)
    arguments = [f"{p.name}={'…' if p.is_constexpr else 'type'}" for p in function.params]
    return f"--kernel '{name}({', '.join(arguments)})'"


def _check_arguments(signature: KernelSignature, kernel: Any) -> None:
    function = _jit_function(kernel)
    missing = [
        n
        for n in function.arg_names
        if n not in {*signature.types, *signature.constants} and not _set_by_autotuner(kernel, n)
    ]
    for name in (*signature.types, *signature.constants):
        if name not in function.arg_names and name not in OPTIONS:
            known = [*function.arg_names, *OPTIONS]
            raise UnknownNameError(kind="argument", where=signature.name, name=name, known=known)
    if missing:
        msg = f"the signature of {signature.name} lacks {', '.join(missing)}: {_hint(signature.name, kernel)}"
        raise InputError(msg)


def _kernel(
    signature: KernelSignature, kernel: Any, compiled: list[CompiledConfig], shared: CompileContext
) -> DryRunKernel:
    function = _jit_function(kernel)
    code = function.fn.__code__
    source = inspect.getsource(function.fn)
    error = " ".join(c.config.error for c in compiled)
    return DryRunKernel(
        name=signature.name,
        origin="user",
        source=source,
        locations=(f"{code.co_filename}:{code.co_firstlineno}",),
        foreign=foreign_code(source, error, shared.chip),
        fp8=tuple(dict.fromkeys([f for c in compiled for f in c.fp8] + list(fp8_formats(*signature.types.values())))),
        configs=tuple(c.config for c in compiled),
    )


def _configs(kernel: Any) -> list[Any]:
    return list(getattr(kernel, "configs", ()))


def _set_by_autotuner(kernel: Any, name: str) -> bool:
    return any(name in config.kwargs for config in _configs(kernel))


def _tasks(signature: KernelSignature, kernel: Any, shared: CompileContext) -> Iterator[Task]:
    """One task per configuration of the kernel's autotuner, or one for the given signature."""
    for tuned in _configs(kernel) or [None]:
        values = {**(tuned.kwargs if tuned else {}), **signature.constants}
        options: dict[str, int] = {"num_warps": _DEFAULT_WARPS, "num_stages": _DEFAULT_STAGES}
        if tuned:
            options = {"num_warps": tuned.num_warps, "num_stages": tuned.num_stages}
        options |= signature.options
        config = KernelConfig(values=values, warps=options["num_warps"], stages=options["num_stages"])
        compile_it = functools.partial(_compile, _jit_function(kernel), signature.types, values, options, shared.chip)
        yield Task(name=signature.name, config=config, compile_it=compile_it)


def _compile(function: Any, types: Any, values: Any, options: Any, chip: Chip) -> Any:
    import triton
    from triton.compiler import ASTSource

    names = function.arg_names
    signature = {name: types.get(name, "constexpr") for name in names}
    constants = {(names.index(name),): value for name, value in values.items() if name in names}
    # At a launch Triton specialises on alignment: pointers from torch are aligned to 16 bytes, and sizes usually are multiples of 16.
    aligned = {
        (i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if signature[name].startswith(("*", "i"))
    }
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=aligned)
    extra_options = {name: value for name, value in values.items() if name not in names}  # such as waves_per_eu
    target = triton.runtime.driver.active.get_current_target()
    if chip.platform is not Platform.ROCM:
        extra_options = {
            name: value
            for name, value in extra_options.items()
            if name not in ("waves_per_eu", "kpack", "matrix_instr_nonkdim")
        }
    return triton.compile(source, target=target, options={**options, **extra_options})
