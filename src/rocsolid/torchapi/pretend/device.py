"""Makes this process believe that it has one accelerator of a given kind, for tracing and code generation only.

For child processes: nothing here is undone, and nothing here can run a kernel. It must come before torch is imported, because
torch's compiler reads the vendor when it is imported. Every tensor on the pretended device is fake; the few that torch makes for
their value, when it folds constants, live on the CPU.
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
from rocsolid.model.pretended_chip import Pretence
from rocsolid.torchapi.pretend.fake_device_info import properties, versions
from rocsolid.torchapi.private_api import door

_SOURCE: Final = Path(__file__).with_name("guard.cpp")
_FAKE_MODE = door("torch._subclasses.fake_tensor", "FakeTensorMode.avoid_device_init", "2.9..")
_SHAPES = door("torch._subclasses.fake_tensor", "DynamicOutputShapeException", "2.1..")
_VALUES = door("torch._subclasses.fake_tensor", "DataDependentOutputException", "2.1..")
_SET_DRIVER = door("torch._inductor.runtime.triton_helpers", "set_driver_to_gpu", "2.9..")
_PAD = door("torch._inductor.fx_passes.pad_mm", "should_pad", "2.9..")
_BENCHMARKER = door("torch._inductor.runtime.benchmarking", "benchmarker.benchmark_gpu", "2.9..")
_CONVERT = door("torch.nn", "Module._apply", "2.0..")
# A device that is here is not ours to wake: whatever would reach past the stand-ins finds none, and says so.
_HIDDEN: Final = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}
_keep: list[Any] = []  # registrations end when their objects do


def build_guard(folder: Path) -> Path:
    """The library of stand-ins below Python; built once per torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        msg = "a dry run needs torch, and it is not installed"
        raise CannotRunError(msg)
    torch = Path(spec.origin).parent
    version = (torch / "version.py").read_bytes()
    tag = hashlib.sha256(_SOURCE.read_bytes() + version + sysconfig.get_platform().encode()).hexdigest()[:16]
    library = folder / f"guard-{tag}.so"
    if library.exists():
        return library
    compiler = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    if compiler is None:
        msg = "a dry run needs a C++ compiler, and there is none: install g++"
        raise CannotRunError(msg)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = library.with_suffix(f".{os.getpid()}.part")
    command = [compiler, "-O1", "-shared", "-fPIC", "-std=c++20", "-I", f"{torch}/include", str(_SOURCE)]
    command += ["-o", str(temporary), f"-L{torch}/lib", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch}/lib"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own source
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr.strip()]
        msg = f"{compiler} cannot build the stand-in for a device: {lines[0][:300]}"
        raise CannotRunError(msg)
    temporary.replace(library)
    return library


def pretend(chip: Chip, release: str, guard: Path) -> Any:
    """Import torch as a build for that chip; returns torch."""
    if "torch" in sys.modules:
        msg = "torch was imported before the stand-ins; a dry run needs a process of its own"
        raise CannotRunError(msg)
    os.environ.update(_HIDDEN)
    with contextlib.suppress(OSError):  # a torch that finds its vendor's libraries by itself must come first
        ctypes.CDLL(str(guard), ctypes.RTLD_GLOBAL)
    import torch

    library = ctypes.CDLL(str(guard), ctypes.RTLD_GLOBAL)
    library.rocsolid_take_over()
    _keep.append(library)
    for name, text in versions(Pretence(chip=chip, release=release)).items():
        setattr(torch.version, name, text)
    _replace_device_module(torch, chip)
    _register_factories(torch)
    pretend_driver(chip)
    _SET_DRIVER.reach()
    sys.modules["torch._inductor.runtime.triton_helpers"].set_driver_to_gpu = lambda: None  # type: ignore[attr-defined]
    _FAKE_MODE.reach()
    fake = sys.modules["torch._subclasses.fake_tensor"]
    fake.FakeTensorMode.avoid_device_init = property(lambda _: True)
    _replace_conversion(torch)
    _configure()
    return torch


def needs_values(error: BaseException) -> bool:
    """Whether a trace ended because the program asked for a value, or for a size that depends on values."""
    return isinstance(error, (_SHAPES.reach(), _VALUES.reach()))


def fake_mode() -> Any:
    """A mode in which tensors have everything but values; constants of the user's own may stay real."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def _replace_device_module(torch: Any, chip: Chip) -> None:
    seen = properties(chip)

    def random_state(*_: Any) -> Any:
        return torch.zeros(16, dtype=torch.uint8)

    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda *_: seen,
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
    nothing = (
        "init",
        "_lazy_init",
        "set_device",
        "synchronize",
        "empty_cache",
        "set_rng_state",
        "reset_peak_memory_stats",
    )
    # A function of its own for each: dynamo keeps rules by function, and refuses two rules for one.
    answers |= {name: (lambda *_, **__: None) for name in nothing}
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    torch.cuda.default_generators = (torch.Generator(),)  # for torch.manual_seed, which seeds every device
    torch.cuda.random.get_rng_state, torch.cuda.random.set_rng_state = random_state, answers["set_rng_state"]
    private = {
        "_cuda_getCurrentRawStream": lambda *_: 0,
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_getDevice": lambda: 0,
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
    }
    for name, answer in private.items():
        setattr(torch._C, name, answer)


def _replace_conversion(torch: Any) -> None:
    """`module.to(...)` swaps a fake parameter's insides, which fails while anything refers to it; put a new one in its place."""
    convert = _CONVERT.reach()
    fake = sys.modules["torch._subclasses.fake_tensor"].FakeTensor
    made: dict[
        int, tuple[Any, Any]
    ] = {}  # the old one too, so that its id stays its own; shared parameters stay shared

    def apply(module: Any, fn: Callable[[Any], Any], recurse: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's signature
        parameters = list(module.named_parameters(recurse=False, remove_duplicate=False))
        if not any(isinstance(value, fake) for _, value in parameters):
            return convert(module, fn, recurse)
        for child in module.children() if recurse else ():
            child._apply(fn)
        for name, value in parameters:
            if id(value) not in made:
                with torch.no_grad():
                    new = fn(value)
                made[id(value)] = (value, torch.nn.Parameter(new, requires_grad=value.requires_grad))
            setattr(module, name, made[id(value)][1])
        for name, value in list(module.named_buffers(recurse=False, remove_duplicate=False)):
            setattr(module, name, fn(value))
        return module

    torch.nn.Module._apply = apply


def _register_factories(torch: Any) -> None:
    """Constant folding runs operations of one element on the device for their value; give it the CPU's."""

    def empty(size: Any, dtype: Any = None, **_: Any) -> Any:
        return torch.empty(size, dtype=dtype, device="cpu")

    def empty_strided(size: Any, stride: Any, dtype: Any = None, **_: Any) -> Any:
        return torch.empty_strided(size, stride, dtype=dtype, device="cpu")

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():  # a build for devices has its own, and says that they are replaced
        warnings.simplefilter("ignore")
        library.impl("empty.memory_format", empty, "CUDA")
        library.impl("empty_strided", empty_strided, "CUDA")
    _keep.append(library)


def pretend_driver(chip: Chip) -> None:
    """Make Triton compile for that chip; all that kernels of a file need."""
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
    """No caches of whole graphs, since a graph that is not lowered shows no kernels; nothing that runs or measures."""
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor

    inductor.compile_threads = 1
    # rocsolid: allow[value-known-to-hurt] a graph from the cache is not lowered, and shows no kernels
    inductor.fx_graph_cache = False
    inductor.fx_graph_remote_cache = False
    launcher = (
        "use_static_triton_launcher" if hasattr(inductor, "use_static_triton_launcher") else "use_static_cuda_launcher"
    )
    setattr(inductor, launcher, False)  # called otherwise before 2.11
    inductor.benchmark_epilogue_fusion = False
    functorch.enable_autograd_cache = False
    # Where Inductor would measure two ways on the device, both take as long, and it keeps the program as it is.
    _PAD.reach()
    _BENCHMARKER.reach()
    sys.modules["torch._inductor.fx_passes.pad_mm"].should_pad = lambda *_, **__: False  # type: ignore[attr-defined]
    benchmarker = sys.modules["torch._inductor.runtime.benchmarking"].benchmarker
    for name in ("benchmark", "benchmark_gpu"):
        setattr(benchmarker, name, lambda *_, **__: 1.0)
