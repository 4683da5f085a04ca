"""Makes torch report one GPU of a given model, for tracing and code generation only.

For child processes: the patches are not undone, and no kernel can run. It must be called before torch is imported, because torch's
compiler reads the vendor once, at import. Every tensor on the pretended device is a fake tensor; the few whose value torch needs,
for constant folding, are on the CPU.
"""

import contextlib
import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from rocsolid.errors import CannotRunError
from rocsolid.model.chip import Chip
from rocsolid.model.platform import Platform
from rocsolid.model.pretended_chip import PretendedChip
from rocsolid.torchapi.pretend.fake_device_info import build_versions, device_properties
from rocsolid.torchapi.private_api import private

_SOURCE: Final = Path(__file__).with_name("guard.cpp")
_FAKE_MODE = private("torch._subclasses.fake_tensor", "FakeTensorMode.avoid_device_init", "2.9..")
_SHAPES = private("torch._subclasses.fake_tensor", "DynamicOutputShapeException", "2.1..")
_VALUES = private("torch._subclasses.fake_tensor", "DataDependentOutputException", "2.1..")
_SET_DRIVER = private("torch._inductor.runtime.triton_helpers", "set_driver_to_gpu", "2.9..")
_PAD = private("torch._inductor.fx_passes.pad_mm", "should_pad", "2.9..")
_BENCHMARKER = private("torch._inductor.runtime.benchmarking", "benchmarker.benchmark_gpu", "2.9..")
_CONVERT = private("torch.nn", "Module._apply", "2.0..")
# Hide real devices: code that gets past the stubs finds no device and reports that.
_HIDE_DEVICES: Final = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}
_keep_alive: list[Any] = []  # torch drops a registration when its object is collected


def build_stub_library(folder: Path) -> Path:
    """Build the C++ library with stubs for torch's device functions, once per torch build; return its path."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        msg = "a dry run needs torch, which is not installed"
        raise CannotRunError(msg)
    torch = Path(spec.origin).parent
    version = (torch / "version.py").read_bytes()
    tag = hashlib.sha256(_SOURCE.read_bytes() + version + sysconfig.get_platform().encode()).hexdigest()[:16]
    library = folder / f"guard-{tag}.so"
    if library.exists():
        return library
    compiler = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    if compiler is None:
        msg = "a dry run needs a C++ compiler, and none was found on PATH. Install g++ or clang++"
        raise CannotRunError(msg)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = library.with_suffix(f".{os.getpid()}.part")
    command = [compiler, "-O1", "-shared", "-fPIC", "-std=c++20", "-I", f"{torch}/include", str(_SOURCE)]
    command += ["-o", str(temporary), f"-L{torch}/lib", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch}/lib"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own source
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr.strip()]
        msg = f"{compiler} failed to build the device stubs: {lines[0][:300]}"
        raise CannotRunError(msg)
    temporary.replace(library)
    return library


def pretend_device(chip: Chip, release: str, guard: Path) -> Any:
    """Import torch so that it reports a build for that chip; return torch."""
    if "torch" in sys.modules:
        msg = "torch is already imported; a dry run needs its own process"
        raise CannotRunError(msg)
    os.environ.update(_HIDE_DEVICES)
    # This fails for a torch that must load its vendor libraries first; the library is loaded again below.
    with contextlib.suppress(OSError):
        ctypes.CDLL(str(guard), ctypes.RTLD_GLOBAL)
    import torch

    library = ctypes.CDLL(str(guard), ctypes.RTLD_GLOBAL)
    library.rocsolid_take_over()
    _keep_alive.append(library)
    for name, text in build_versions(PretendedChip(chip=chip, release=release)).items():
        setattr(torch.version, name, text)
    _replace_device_module(torch, chip)
    _register_factories(torch)
    pretend_triton_driver(chip)
    _SET_DRIVER.get()
    sys.modules["torch._inductor.runtime.triton_helpers"].set_driver_to_gpu = lambda: None  # type: ignore[attr-defined]
    _FAKE_MODE.get()
    fake = sys.modules["torch._subclasses.fake_tensor"]
    fake.FakeTensorMode.avoid_device_init = property(lambda _: True)
    _replace_conversion(torch)
    _configure()
    return torch


def needs_values(error: BaseException) -> bool:
    """Whether a trace failed because the program needs a tensor's value, or a size that depends on values."""
    return isinstance(error, (_SHAPES.get(), _VALUES.get()))


def fake_mode() -> Any:
    """A FakeTensorMode that accepts real tensors among the inputs, such as constants of the user's code."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def _replace_device_module(torch: Any, chip: Chip) -> None:
    chip_properties = device_properties(chip)

    def random_state(*_: Any) -> Any:
        return torch.zeros(16, dtype=torch.uint8)

    replacements: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda *_: chip_properties,
        "get_device_capability": lambda *_: chip.capability,
        "get_device_name": lambda *_: chip.product,
        "is_bf16_supported": lambda *_, **__: True,
        "is_current_stream_capturing": lambda: False,
        "memory_allocated": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0,
        "mem_get_info": lambda *_: (chip.memory_gib << 30, chip.memory_gib << 30),
        "get_rng_state": random_state,
        "_exchange_device": lambda *_: 0,
        "_maybe_exchange_device": lambda *_: 0,
    }
    no_ops = (
        "init",
        "_lazy_init",
        "set_device",
        "synchronize",
        "empty_cache",
        "set_rng_state",
        "reset_peak_memory_stats",
    )
    # One function object for each name: Dynamo keeps rules by function and rejects two rules for one.
    replacements |= {name: (lambda *_, **__: None) for name in no_ops}
    for name, replacement in replacements.items():
        setattr(torch.cuda, name, replacement)
    torch.cuda.default_generators = (torch.Generator(),)  # used by torch.manual_seed, which seeds every device
    torch.cuda.random.get_rng_state, torch.cuda.random.set_rng_state = random_state, replacements["set_rng_state"]
    private = {
        "_cuda_getCurrentRawStream": lambda *_: 0,
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_getDevice": lambda: 0,
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
    }
    for name, replacement in private.items():
        setattr(torch._C, name, replacement)


def _replace_conversion(torch: Any) -> None:
    """Let `module.to(...)` create new parameters: changing a fake parameter in place fails while it is referenced."""
    convert = _CONVERT.get()
    fake = sys.modules["torch._subclasses.fake_tensor"].FakeTensor
    # By id, so that shared parameters stay shared; the old parameter is kept alive so that its id is not reused.
    converted: dict[int, tuple[Any, Any]] = {}

    def apply(module: Any, fn: Callable[[Any], Any], recurse: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's signature
        parameters = list(module.named_parameters(recurse=False, remove_duplicate=False))
        if not any(isinstance(value, fake) for _, value in parameters):
            return convert(module, fn, recurse)
        for child in module.children() if recurse else ():
            child._apply(fn)
        for name, value in parameters:
            if id(value) not in converted:
                with torch.no_grad():
                    new = fn(value)
                converted[id(value)] = (value, torch.nn.Parameter(new, requires_grad=value.requires_grad))
            setattr(module, name, converted[id(value)][1])
        for name, value in list(module.named_buffers(recurse=False, remove_duplicate=False)):
            setattr(module, name, fn(value))
        return module

    torch.nn.Module._apply = apply


def _register_factories(torch: Any) -> None:
    """Create real tensors on the CPU for constant folding, which runs operations on one element for their value."""

    def empty(size: Any, dtype: Any = None, **_: Any) -> Any:
        return torch.empty(size, dtype=dtype, device="cpu")

    def empty_strided(size: Any, stride: Any, dtype: Any = None, **_: Any) -> Any:
        return torch.empty_strided(size, stride, dtype=dtype, device="cpu")

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():  # a device build warns that its own implementations are replaced
        warnings.simplefilter("ignore")
        library.impl("empty.memory_format", empty, "CUDA")
        library.impl("empty_strided", empty_strided, "CUDA")
    _keep_alive.append(library)


def pretend_triton_driver(chip: Chip) -> None:
    """Make Triton compile for that chip; this alone is enough for kernels in a file."""
    import triton
    from triton.backends.compiler import GPUTarget

    rocm = chip.platform is Platform.ROCM
    arch = chip.arch if rocm else chip.capability[0] * 10 + chip.capability[1]
    target = GPUTarget("hip" if rocm else "cuda", arch, chip.wavefront_size)
    limits = {
        "max_shared_mem": chip.lds_bytes,
        "multiprocessor_count": chip.compute_units,
        "warpSize": chip.wavefront_size,
    }
    driver = SimpleNamespace(
        utils=SimpleNamespace(get_device_properties=lambda *_: limits),
        get_current_target=lambda: target,
        get_active_torch_device=_device,
        get_current_device=lambda: 0,
        get_current_stream=lambda *_: 0,
        get_device_interface=lambda: sys.modules["torch"].cuda,
    )
    triton.runtime.driver.set_active(driver)


def _device() -> Any:
    import torch

    return torch.device("cuda", 0)


def _configure() -> None:
    """Disable caches of whole graphs (a cached graph is not lowered, so its kernels are not seen) and all timing of kernels."""
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor

    inductor.compile_threads = 1
    # rocsolid: allow[harmful-value] a graph from the cache is not lowered, so its kernels are not seen
    inductor.fx_graph_cache = False
    inductor.fx_graph_remote_cache = False
    launcher = (
        "use_static_triton_launcher" if hasattr(inductor, "use_static_triton_launcher") else "use_static_cuda_launcher"
    )
    setattr(inductor, launcher, False)  # its name before torch 2.11 is different
    inductor.benchmark_epilogue_fusion = False
    functorch.enable_autograd_cache = False
    # Where Inductor would time two versions on the device, report equal times, so that it keeps the program unchanged.
    _PAD.get()
    _BENCHMARKER.get()
    sys.modules["torch._inductor.fx_passes.pad_mm"].should_pad = lambda *_, **__: False  # type: ignore[attr-defined]
    benchmarker = sys.modules["torch._inductor.runtime.benchmarking"].benchmarker
    for name in ("benchmark", "benchmark_gpu"):
        setattr(benchmarker, name, lambda *_, **__: 1.0)
