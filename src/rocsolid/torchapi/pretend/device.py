"""Makes torch report one simulated GPU, for tracing and code generation only.

Use it only in child processes: the patches are not undone, and no kernel can run. `pretend_device` must be called before torch is
imported, because torch's compiler reads the vendor once, at import. Tensors on the simulated GPU are fake tensors, except those whose
value torch needs for constant folding: they are real tensors on the CPU.
"""

import contextlib
import ctypes
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rocsolid.errors import CannotRunError
from rocsolid.model.chip import Chip
from rocsolid.model.pretended_chip import PretendedChip
from rocsolid.torchapi.config.live import MODULES
from rocsolid.torchapi.graphs.driver_api import RAW_STREAM
from rocsolid.torchapi.pretend.fake_device_info import build_versions, device_properties
from rocsolid.torchapi.pretend.triton_driver import pretend_triton_driver
from rocsolid.torchapi.private_api import private_name

_STUB_SOURCE: Final = Path(__file__).with_name("guard.cpp")
_FAKE_TENSOR = "torch._subclasses.fake_tensor"
_NOT_TRACED = "rocsolid dryrun: {} is not traced"
_FAKE_MODE = private_name(_FAKE_TENSOR, "FakeTensorMode", "2.11..", without="rocsolid dryrun: does not run")
_AVOID_INIT = private_name(
    _FAKE_TENSOR,
    "FakeTensorMode.avoid_device_init",
    "2.11..",
    without=_NOT_TRACED.format("a workload on a build of torch with CUDA or ROCm"),
)
_FAKE = private_name(
    _FAKE_TENSOR, "FakeTensor", "2.11..", without=_NOT_TRACED.format("a model that is moved with .to()")
)
_NO_CAUSE = "rocsolid dryrun: that a workload needs the values of tensors is not recognised"
_SHAPES = private_name(_FAKE_TENSOR, "DynamicOutputShapeException", "2.1..", without=_NO_CAUSE)
_VALUES = private_name(_FAKE_TENSOR, "DataDependentOutputException", "2.1..", without=_NO_CAUSE)
_SET_DRIVER = private_name(
    "torch._inductor.runtime.triton_helpers",
    "set_driver_to_gpu",
    "2.11..",
    without="rocsolid dryrun: kernels are not compiled",
)
_PAD = private_name(
    "torch._inductor.fx_passes.pad_mm",
    "should_pad",
    "2.11..",
    without=_NOT_TRACED.format("a matmul that Inductor may pad"),
)
_BENCHMARKER = private_name(
    "torch._inductor.runtime.benchmarking",
    "benchmarker.benchmark_gpu",
    "2.11..",
    without=_NOT_TRACED.format("a choice that Inductor makes by timing"),
)
_CONVERT = private_name(
    "torch.nn", "Module._apply", "2.0..", without=_NOT_TRACED.format("a model that is moved with .to()")
)
_ASKED = _NOT_TRACED.format("a workload on a build of torch with CUDA or ROCm")
_DEVICE_FUNCTIONS: Final = {  # and what they return
    private_name("torch.cuda", "_exchange_device", "2.0..", without=_ASKED): 0,
    private_name("torch.cuda", "_maybe_exchange_device", "2.1..", without=_ASKED): 0,
    private_name("torch.cuda", "_lazy_init", "2.0..", without=_ASKED): None,
    private_name("torch._C", "_cuda_getDeviceCount", "2.0..", gpu_builds_only=True, without=_ASKED): 1,
    private_name("torch._C", "_cuda_getDevice", "2.0..", gpu_builds_only=True, without=_ASKED): 0,
    private_name(
        "torch._C", "_cuda_cudaCachingAllocator_is_enabled", "2.11..", gpu_builds_only=True, without=_ASKED
    ): True,
    RAW_STREAM: 0,
}
# Hide real GPUs: code that does not use the stubs then reports that there is no GPU.
_HIDE_DEVICES: Final = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}
_keep_alive: list[Any] = []  # torch removes a registration when its object is garbage-collected


def build_stub_library(folder: Path) -> Path:
    """Build the C++ library with stubs for torch's device functions, once per torch build; return its path."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        msg = "a dry run needs torch, which is not installed"
        raise CannotRunError(msg)
    torch = Path(spec.origin).parent
    version = (torch / "version.py").read_bytes()
    tag = hashlib.sha256(_STUB_SOURCE.read_bytes() + version + sysconfig.get_platform().encode()).hexdigest()[:16]
    library = folder / f"guard-{tag}.so"
    if library.exists():
        return library
    compiler = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    if compiler is None:
        msg = "a dry run needs a C++ compiler, and none was found on PATH. Install g++ or clang++"
        raise CannotRunError(msg)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = library.with_suffix(f".{os.getpid()}.part")
    command = [compiler, "-O1", "-shared", "-fPIC", "-std=c++20", "-I", f"{torch}/include", str(_STUB_SOURCE)]
    command += ["-o", str(temporary), f"-L{torch}/lib", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch}/lib"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own source
    if completed.returncode:
        lines = [line for line in completed.stderr.splitlines() if "error" in line] or [completed.stderr.strip()]
        msg = f"{compiler} failed to build the device stubs: {lines[0][:300]}"
        raise CannotRunError(msg)
    temporary.replace(library)
    return library


def pretend_device(chip: Chip, release: str, stub_library: Path) -> Any:
    """Import torch so that it reports a build for that chip; return torch."""
    if "torch" in sys.modules:
        msg = "torch is already imported; a dry run needs its own process"
        raise CannotRunError(msg)
    os.environ.update(_HIDE_DEVICES)
    # This fails if torch must load its vendor libraries first; in that case the library is loaded below, after torch.
    with contextlib.suppress(OSError):
        ctypes.CDLL(str(stub_library), ctypes.RTLD_GLOBAL)
    import torch

    library = ctypes.CDLL(str(stub_library), ctypes.RTLD_GLOBAL)
    library.rocsolid_take_over()
    _keep_alive.append(library)
    pretend_properties(chip, release)
    _register_factories(torch)
    _SET_DRIVER.patch(lambda _: lambda: None)
    _AVOID_INIT.patch(lambda _: property(lambda _: True))
    _replace_conversion(torch)
    if (fake := _FAKE.find()) is not None:  # Triton reads the address of a tensor for its alignment
        fake.data_ptr = lambda tensor: int(tensor.storage_offset() * tensor.element_size())
    _configure_inductor()
    return torch


def pretend_properties(chip: Chip, release: str) -> None:
    """Make torch and Triton report that chip. To compile Triton kernels, nothing else is needed."""
    import torch

    for name, text in build_versions(PretendedChip(chip=chip, release=release)).items():
        setattr(torch.version, name, text)
    _replace_device_module(torch, chip)
    pretend_triton_driver(chip)


def needs_values(error: BaseException) -> bool:
    """Return whether a trace failed because the program needs a tensor's value, or a size that depends on values."""
    return isinstance(error, tuple(filter(None, (_SHAPES.find(), _VALUES.find()))))


def fake_mode() -> Any:
    """Return a FakeTensorMode that accepts real tensors as inputs, such as constants of the user's code."""
    return _FAKE_MODE.get()(allow_non_fake_inputs=True)


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
    }
    no_ops = (
        "init",
        "set_device",
        "synchronize",
        "empty_cache",
        "set_rng_state",
        "reset_peak_memory_stats",
    )
    # Each name gets its own function object, because Dynamo stores one rule per function object and rejects a second one.
    replacements |= {name: (lambda *_, **__: None) for name in no_ops}
    for name, replacement in replacements.items():
        setattr(torch.cuda, name, replacement)
    torch.cuda.default_generators = (torch.Generator(),)  # used by torch.manual_seed, which seeds every device
    torch.cuda.random.get_rng_state, torch.cuda.random.set_rng_state = random_state, replacements["set_rng_state"]
    for function, result in _DEVICE_FUNCTIONS.items():
        function.put(_returning(result))


def _returning(result: object) -> Callable[..., object]:
    return lambda *_, **__: result


def _replace_conversion(torch: Any) -> None:
    """Make `module.to(...)` create new parameters, because a fake parameter that is referenced cannot be changed in place."""
    convert, fake = _CONVERT.find(), _FAKE.find() or ()
    # The old and the new parameter by id of the old one, so that shared parameters stay shared. Keeping the old parameter alive makes
    # sure that its id is not reused.
    converted: dict[int, tuple[Any, Any]] = {}

    def apply(module: Any, fn: Callable[[Any], Any], recurse: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's signature
        parameters = list(module.named_parameters(recurse=False, remove_duplicate=False))
        if not any(isinstance(value, fake) for _, value in parameters):
            return convert(module, fn, recurse)
        for child in module.children() if recurse else ():
            getattr(child, _CONVERT.attribute)(fn)  # which a class such as RNN overrides
        for name, value in parameters:
            if id(value) not in converted:
                with torch.no_grad():
                    new = fn(value)
                converted[id(value)] = (value, torch.nn.Parameter(new, requires_grad=value.requires_grad))
            setattr(module, name, converted[id(value)][1])
        for name, value in list(module.named_buffers(recurse=False, remove_duplicate=False)):
            setattr(module, name, fn(value))
        return module

    _CONVERT.patch(lambda _: apply)


def _register_factories(torch: Any) -> None:
    """Create real tensors on the CPU for constant folding, which runs operations on single elements and needs the result."""

    def empty(size: Any, dtype: Any = None, **_: Any) -> Any:
        return torch.empty(size, dtype=dtype, device="cpu")

    def empty_strided(size: Any, stride: Any, dtype: Any = None, **_: Any) -> Any:
        return torch.empty_strided(size, stride, dtype=dtype, device="cpu")

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():  # a CUDA or ROCm build warns that its own implementations are replaced
        warnings.simplefilter("ignore")
        library.impl("empty.memory_format", empty, "CUDA")
        library.impl("empty_strided", empty_strided, "CUDA")
    _keep_alive.append(library)


def _configure_inductor() -> None:
    """Disable caches of whole graphs (a cached graph is not lowered, so its kernels are not seen) and all timing of kernels."""
    functorch: Any = importlib.import_module(MODULES["functorch"])
    inductor: Any = importlib.import_module(MODULES["inductor"])
    inductor.compile_threads = 1
    # A graph from the cache is not lowered, so its kernels are not seen.
    inductor.fx_graph_cache = False
    inductor.fx_graph_remote_cache = False
    launcher = (
        "use_static_triton_launcher" if hasattr(inductor, "use_static_triton_launcher") else "use_static_cuda_launcher"
    )
    setattr(inductor, launcher, False)  # renamed in torch 2.11
    inductor.benchmark_epilogue_fusion = False
    functorch.enable_autograd_cache = False
    # Inductor would time two versions on the GPU and take the faster one: report equal times, so that it changes nothing.
    _PAD.patch(lambda _: lambda *_, **__: False)
    if _BENCHMARKER.find() is not None:
        benchmarker = sys.modules[_BENCHMARKER.module].benchmarker
        for name in ("benchmark", _BENCHMARKER.attribute):
            setattr(benchmarker, name, lambda *_, **__: 1.0)
