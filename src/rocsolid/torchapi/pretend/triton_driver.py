"""Makes Triton compile for a GPU that is not present, and records the kernels that a program launches.

Use it only in child processes: nothing is undone, and no kernel runs. The driver is a subclass of the vendor's own driver class, so
that it has every method of the installed Triton release; `tests/dryrun/test_triton_driver.py` compares the attributes.
"""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rocsolid.model.chip import Chip
from rocsolid.model.platform import Platform
from rocsolid.torchapi.private_api import private_name

_DISK_CACHE = private_name(
    "triton.runtime.autotuner",
    "Autotuner.check_disk_cache",
    "2.9..",
    without="rocsolid dryrun: of an autotuned kernel with cached timings, only one configuration is compiled",
)
_INTERPRETED = private_name(
    "triton.runtime.interpreter",
    "InterpretedFunction",
    "2.10..",
    without="rocsolid dryrun: kernels whose results decide about later launches are not executed",
)
_PATCH_LANGUAGE = private_name(
    "triton.runtime.interpreter",
    "_patch_lang",
    "2.10..",
    without="rocsolid dryrun: kernels whose results decide about later launches are not executed",
)
_IR = private_name(
    "triton._C.libtriton", "ir", "2.9..", without="rocsolid dryrun: the arguments of kernels are not inferred"
)
_REPLACE_SOURCE = private_name(
    "triton.runtime.jit",
    "JITFunction._unsafe_update_src",
    "2.9..",
    without="rocsolid dryrun: kernels whose defaults cannot be evaluated are not loaded",
)
_THREADS: Final = 1024  # the most threads of a workgroup
_UNKNOWN_REGISTERS: Final = 128  # for programs that compute an occupancy; only AMD object files are read
_BEFORE_ARGUMENTS: Final = 6  # stream, function, two kinds of metadata and two hooks precede a kernel's arguments
_log = logging.getLogger("rocsolid")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One variant of a kernel that the program launched: its types, constants and options, and the grid of the first launch."""

    source: Any  # triton.compiler.ASTSource
    options: Mapping[str, Any]
    grid: tuple[int, ...] = ()

    @property
    def function(self) -> Any:
        """The `JITFunction`."""
        return self.source.fn

    @property
    def location(self) -> str:
        """`file:line` of the kernel."""
        code = self.function.fn.__code__
        return f"{code.co_filename}:{code.co_firstlineno}"

    @property
    def types(self) -> dict[str, str]:
        """Type by argument name, without constants."""
        return {name: str(kind) for name, kind in self.source.signature.items() if kind != "constexpr"}

    @property
    def constants(self) -> dict[str, Any]:
        """Value by name of each `tl.constexpr` argument, and of arguments that are 1 or None."""
        names = self.function.arg_names
        return {names[path[0]]: value for path, value in self.source.constants.items() if len(path) == 1}

    def compile(self) -> Any:
        """Compile it; returns Triton's compiled kernel."""
        import triton

        target = triton.runtime.driver.active.get_current_target()
        return triton.compile(self.source, target=target, options=dict(self.options))

    def check(self) -> str:
        """Return Triton's intermediate code, which is the same for every GPU; raises Triton's error."""
        import triton
        from triton.compiler import make_backend

        ir = _IR.get()

        target = triton.runtime.driver.active.get_current_target()
        backend = make_backend(target)
        options = backend.parse_options(dict(self.options))
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        module = self.source.make_ir(
            target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
        )
        return str(module)


@dataclass(kw_only=True)
class LaunchRecord:
    """All launches outside of Inductor's graphs."""

    launches: list[Launch] = field(default_factory=list)
    execute: bool = False  # run each kernel on the CPU with Triton's interpreter
    not_executed: dict[str, str] = field(default_factory=dict)  # error by kernel


class _Recorded:
    """A kernel as `JITFunction.run` expects it. It is compiled only if the program reads its figures, such as `n_regs`."""

    function = packed_metadata = None

    def __init__(self, record: LaunchRecord, source: Any, options: Mapping[str, Any]) -> None:
        self._record = record
        self._launch = Launch(source=source, options=options)
        self._launched = False
        self._kernel: Any = None

    def launch_metadata(self, *_: Any) -> None:
        """Return nothing: there is no hook that would read it."""

    def run(self, x: int, y: int, z: int, *args: Any) -> None:
        """Record the launch."""
        grid = tuple(int(axis) for axis in (x, y, z))
        if not self._launched:
            self._launched = True
            self._record.launches.append(
                Launch(source=self._launch.source, options=self._launch.options, grid=_trimmed(grid))
            )
        if self._record.execute:
            _interpret(self._record, self._launch.function, grid, args[_BEFORE_ARGUMENTS:])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._kernel is None:
            self._kernel = self._launch.compile()
        return getattr(self._kernel, name)


def record_launches(*, first_only: bool) -> LaunchRecord:
    """Record every kernel launch of this process that is not part of a graph of Inductor; nothing is compiled.

    Of an autotuned kernel, each configuration is launched that its own pruning leaves, or the first of them with `first_only`.
    """
    import triton.compiler

    record = LaunchRecord()

    def compile_later(src: Any, target: Any = None, options: Any = None, **_: Any) -> _Recorded:  # noqa: ARG001 - Triton's signature
        return _Recorded(record, src, dict(options or {}))

    # `JITFunction` takes the function from here; Inductor and programs that compile ahead of time use `triton.compile`.
    triton.compiler.compile = compile_later
    _DISK_CACHE.patch(lambda _: _without_disk_cache)
    if first_only:
        prune = triton.runtime.Autotuner.prune_configs
        triton.runtime.Autotuner.prune_configs = lambda tuner, kwargs: prune(tuner, kwargs)[:1]
    _once_instead_of_timed()
    return record


def replace_source(function: Any, source: str) -> None:
    """Replace the source of a `JITFunction`."""
    _REPLACE_SOURCE.get()(function, source)


def pretend_triton_driver(chip: Chip) -> None:
    """Make Triton compile for that chip."""
    import triton
    from triton.backends import backends

    driver = _make_driver(chip)
    triton.runtime.driver.set_active(driver)
    for backend in backends.values():  # programs ask each of them whether Triton can be used
        active = isinstance(driver, backend.driver)
        backend.driver.is_active = staticmethod(lambda active=active: active)


def _make_driver(chip: Chip) -> Any:
    """Return a driver of the vendor's class for that chip, which needs no GPU and no vendor library."""
    from triton.backends import backends
    from triton.backends.compiler import GPUTarget

    rocm = chip.platform is Platform.ROCM
    arch = chip.arch if rocm else chip.capability[0] * 10 + chip.capability[1]
    target = GPUTarget("hip" if rocm else "cuda", arch, chip.wavefront_size)
    vendor = backends["amd" if rocm else "nvidia"].driver

    class PretendedLauncher(_Launcher):
        warp_size = chip.wavefront_size

    class PretendedDriver(vendor):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:  # the vendor's constructor builds and loads a library for the GPU
            self.utils = _Utils(chip)
            self.launcher_cls = PretendedLauncher
            self.get_device_capability = lambda *_: chip.capability
            self.get_current_device = lambda: 0
            self.set_current_device = lambda *_: None
            self.get_current_stream = lambda *_: 0

        @staticmethod
        def is_active() -> bool:
            return True

        def get_current_target(self) -> Any:
            return target

        def get_active_torch_device(self) -> Any:
            import torch

            return torch.device("cuda", 0)

        def get_benchmarker(self) -> Callable[..., Any]:
            return _call_once

        def get_empty_cache_for_benchmark(self) -> Any:
            import torch

            return torch.empty(0, dtype=torch.int)

    return PretendedDriver()


class _Utils:
    """What the vendor's C library offers to Triton, in every release from 3.5 to 3.9."""

    def __init__(self, chip: Chip) -> None:
        self._chip = chip

    def get_device_properties(self, *_: Any) -> dict[str, Any]:
        chip = self._chip
        return {
            "max_shared_mem": chip.lds_bytes,
            "max_num_regs": chip.registers_per_unit,
            "multiprocessor_count": chip.compute_units,
            "warpSize": chip.wavefront_size,
            "arch": chip.runtime_name,
            "sm_clock_rate": 2_100_000,
            "mem_clock_rate": 1_300_000,
            "mem_bus_width": 8192,
        }

    def load_binary(self, _: str, binary: bytes, *__: Any) -> tuple[int, int, int, int, int]:
        registers = _metadata_number(binary, b".vgpr_count") or _UNKNOWN_REGISTERS
        return 0, 0, registers, _metadata_number(binary, b".vgpr_spill_count"), _THREADS

    def get_device_capability(self, *_: Any) -> tuple[int, int]:
        return self._chip.capability

    def get_current_device(self) -> int:
        return 0

    def get_default_stream(self, *_: Any) -> int:
        return 0

    def is_stream_capturing(self, *_: Any) -> bool:
        return False

    def build_signature_metadata(self, *_: Any) -> bytes:
        return b""

    def _ignore(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    launch = unload_module = set_current_device = set_printf_fifo_size = cuOccupancyMaxActiveClusters = _ignore  # noqa: N815 - as Triton spells it
    fill_tma_descriptor = fill_tma_descriptor_tiled = fill_tma_descriptor_im2col = create_tdm_descriptor = _ignore


class _Launcher:
    """Launches nothing. The attributes are those of every release from 3.5 to 3.9."""

    launch_cooperative_grid = launch_pdl = gsan_enabled = False
    global_scratch_size = profile_scratch_size = 0
    global_scratch_align = profile_scratch_align = num_ctas = 1
    arg_annotations: tuple[()] = ()
    kernel_signature = b""

    def __init__(self, *_: Any) -> None:
        """Take what the vendor's launcher takes, and ignore it."""

    def launch(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    def __call__(self, *_: Any, **__: Any) -> None:
        """Do nothing."""


def _metadata_number(binary: bytes, key: bytes) -> int:
    """Read an integer from the metadata (MessagePack) of an AMD object file; 0 if the key is missing."""
    start = binary.find(key)
    if start < 0:
        return 0
    rest = binary[start + len(key) : start + len(key) + 5]
    size = {0xCC: 1, 0xCD: 2, 0xCE: 4}.get(rest[0], 0)
    return int.from_bytes(rest[1 : 1 + size], "big") if size else rest[0]


def _call_once(kernel_call: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
    """Call the kernel once instead of timing it; every configuration of an autotuner then takes the same time."""
    kernel_call()
    return [1.0] * len(quantiles) if quantiles else 1.0


def _once_instead_of_timed() -> None:
    import triton.testing

    for name in [name for name in vars(triton.testing) if name.startswith("do_bench")]:
        setattr(triton.testing, name, _call_once)


def _without_disk_cache(_: Any, __: Any, ___: Any, bench: Callable[[], None]) -> bool:
    bench()
    return False


def _trimmed(grid: tuple[int, ...]) -> tuple[int, ...]:
    while len(grid) > 1 and grid[-1] == 1:
        grid = grid[:-1]
    return grid


def _interpret(record: LaunchRecord, function: Any, grid: tuple[int, ...], args: Any) -> None:
    """Run a kernel on CPU tensors. What the interpreter cannot run leaves the tensors as they are."""
    interpreted, patch_language = _INTERPRETED.find(), _PATCH_LANGUAGE.find()
    if interpreted is None or patch_language is None:
        return
    try:
        with _interpreted_calls(interpreted, patch_language):
            interpreted(function.fn).run(*args, grid=grid, warmup=False)
    except Exception as error:  # noqa: BLE001 - the program's kernel
        _log.debug("Triton's interpreter could not run %s", function.fn.__name__, exc_info=True)
        record.not_executed.setdefault(function.fn.__name__, f"{type(error).__name__}: {error}".partition("\n")[0])


@contextlib.contextmanager
def _interpreted_calls(interpreted: Any, patch_language: Any) -> Iterator[None]:
    """Interpret the device functions that a kernel calls."""
    jit = sys.modules["triton.runtime.jit"].JITFunction
    original = jit.__call__

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        scope = patch_language(function.fn)
        try:
            return interpreted(function.fn).rewrite()(*args, **kwargs)
        finally:  # the interpreter would leave it patched, and no kernel could be compiled afterwards
            scope.restore()

    jit.__call__ = call
    try:
        yield
    finally:
        jit.__call__ = original
