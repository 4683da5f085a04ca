"""Quick checks before a replay: whether tensors match, share memory or were written to, and whether dictionaries were changed.

For 128 tensors, comparing shapes, strides and dtypes in Python costs more than the replay. Torch's compiled Dynamo guards do it
in a tenth of the time.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rocsolid.torchapi.private_api import private_name

_TENSOR_GUARDS = private_name("torch._C._dynamo.guards", "TensorGuards", "2.4..")
_STATE_GUARD = private_name("torch._C._dynamo.guards", "GlobalStateGuard", "2.4..")
_DICT_VERSION = private_name("torch._C._dynamo.guards", "dict_version", "2.1..")
_GLOBAL_HOOKS = private_name("torch.nn.modules.module", "_global_forward_hooks", "2.0..")
_GLOBAL_PRE_HOOKS = private_name("torch.nn.modules.module", "_global_forward_pre_hooks", "2.0..")
_DISPATCH_MODES = private_name("torch._C", "_len_torch_dispatch_stack", "2.0..")
_FUNCTION_MODES = private_name("torch._C", "_len_torch_function_stack", "2.0..")
_FUNCTION_MODE_AT = private_name("torch._C", "_get_function_stack_at", "2.0..")
_TRANSFORM_LEVEL = private_name("torch._C._functorch", "maybe_current_level", "2.0..")
_PARAMETRIZE = private_name("torch.nn.utils.parametrize", "_cache_enabled", "2.0..")
_DEVICE_CONTEXT = private_name("torch.utils._device", "DeviceContext", "2.0..")
_ADDRESSES_EQUAL = private_name("torch._C", "_tensors_data_ptrs_at_indices_equal", "2.3..", gpu_builds_only=True)


def tensor_check(tensors: Sequence[Any], free_dims: Mapping[int, Collection[int]] | None = None) -> Callable[..., bool]:
    """Return a function that tells whether tensors match these in type, shape, stride, dtype, device and requires_grad.

    `free_dims` lists, by tensor, the dimensions that may have any size; such a tensor may have any strides. Grad mode and
    inference mode must be as they are now. The same tensor passed twice never matches.
    """
    if not tensors:
        return _no_tensors
    free_dims = free_dims or {}
    sizes = [
        [None if dim in free_dims.get(index, ()) else size for dim, size in enumerate(tensor.shape)]
        for index, tensor in enumerate(tensors)
    ]
    strides = [
        [None] * tensor.dim() if index in free_dims else list(tensor.stride()) for index, tensor in enumerate(tensors)
    ]
    guards = _TENSOR_GUARDS.get()(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    check: Callable[..., bool] = guards.check
    return check


def _no_tensors(*tensors: Any) -> bool:
    return not tensors


def state_check() -> Callable[[], bool]:
    """Return a function that tells whether torch's global state is still as it is now.

    The state is grad mode, autocast, deterministic algorithms, float32 matmul precision, default dtype and number of threads.
    """
    check: Callable[[], bool] = _STATE_GUARD.get()().check
    return check


def mode_counters() -> tuple[Callable[[], int], Callable[[], int]]:
    """Return two C functions that count the active modes: TorchDispatchMode, TorchFunctionMode (the default device is one)."""
    return _DISPATCH_MODES.get(), _FUNCTION_MODES.get()


def function_modes() -> list[Any]:
    """Return the active modes of type TorchFunctionMode."""
    mode_at = _FUNCTION_MODE_AT.get()
    return [mode_at(index) for index in range(_FUNCTION_MODES.get()())]


def default_device() -> str:
    """Return the device of `torch.set_default_device` or `with torch.device(...)`; empty when none is set."""
    device_context = _DEVICE_CONTEXT.get()
    return next((str(mode.device) for mode in reversed(function_modes()) if isinstance(mode, device_context)), "")


def active_mode() -> str:
    """Return what is active that sees every operator, and that a replay would bypass; empty when nothing is."""
    if _TRANSFORM_LEVEL.get()() is not None:
        return "a transform of torch.func (vmap, grad, jvp)"
    if _DISPATCH_MODES.get()():
        return "a TorchDispatchMode"
    if _PARAMETRIZE.get():
        return "torch.nn.utils.parametrize.cached()"
    device_context = _DEVICE_CONTEXT.get()
    return next((type(mode).__name__ for mode in function_modes() if not isinstance(mode, device_context)), "")


def address_comparison() -> Callable[[Sequence[Any], Sequence[int], Sequence[int]], bool] | None:
    """Return torch's C++ function that compares tensors' addresses with a list of numbers; None in CPU builds."""
    if not _ADDRESSES_EQUAL.exists():
        return None
    equal: Callable[[Sequence[Any], Sequence[int], Sequence[int]], bool] = _ADDRESSES_EQUAL.get()
    return equal


def storage_id(tensor: Any) -> int:
    """Return a number that is equal for tensors that share a storage."""
    return int(tensor.untyped_storage()._cdata)


def byte_count(tensor: Any) -> int:
    """Return the size of all elements of a tensor in bytes."""
    return int(tensor.numel() * tensor.element_size())


def element_span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of elements in memory from a tensor's first to its last element, gaps included."""
    return 1 + int(sum(step * (size - 1) for step, size in zip(stride, shape, strict=True) if size))


def write_count(tensor: Any) -> int | None:
    """Return how often a tensor was written to in place; None for a tensor made in inference mode, which has no counter."""
    return None if tensor.is_inference() else int(tensor._version)


def dict_version() -> Callable[[dict[Any, Any]], object]:
    """Return a function that returns the version of a dictionary: any assignment or deletion changes it."""
    return _DICT_VERSION.get() if _DICT_VERSION.exists() else _dict_content


def _dict_content(values: dict[Any, Any]) -> object:
    return tuple(map(id, values)), tuple(map(id, values.values()))


def parametrization_cache() -> tuple[dict[str, Any], str]:
    """Return where torch stores whether `torch.nn.utils.parametrize.cached()` is active: a dictionary and the key."""
    from torch.nn.utils import parametrize

    return vars(parametrize), _PARAMETRIZE.name


def backend_flags() -> tuple[Any, ...]:
    """Return the flags of `torch.backends` that a program may branch on."""
    from torch import backends

    cuda, cudnn, matmul = backends.cuda, backends.cudnn, backends.cuda.matmul
    return (
        cudnn.enabled,
        cudnn.benchmark,
        cudnn.deterministic,
        cudnn.allow_tf32,
        matmul.allow_tf32,
        matmul.allow_fp16_reduced_precision_reduction,
        matmul.allow_bf16_reduced_precision_reduction,
        cuda.flash_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.math_sdp_enabled(),
        cuda.cudnn_sdp_enabled(),
        backends.mkldnn.enabled,
    )


def global_forward_hooks() -> list[dict[Any, Any]]:
    """Return the dictionaries of the hooks that run for every module (`register_module_forward_hook`)."""
    return [_GLOBAL_HOOKS.get(), _GLOBAL_PRE_HOOKS.get()]
