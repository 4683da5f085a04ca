"""Quick checks before a replay: whether tensors match, share memory or were written to, and whether dictionaries were changed.

For 128 tensors, comparing shapes, strides and dtypes in Python costs more than the replay. Torch's compiled Dynamo guards do it
in a tenth of the time. Where this torch does not have them, Python does.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from rocsolid.torchapi.private_api import private_name

_SLOWER = "rs.capture: {} in Python, so a replay costs more CPU time"
_EAGER = "rs.capture: every call runs in eager, because {} cannot be seen"
_RECAPTURED = "rs.capture: the first compile of the process discards the graphs of modules"
GENERATION_TAGS: Final = (
    private_name("torch._dynamo", "___needs_generation_tag_patch", "2.0..2.14", text=True, without=_RECAPTURED),
    private_name("torch._dynamo", "___has_generation_tag_patch", "2.15..", text=True, without=_RECAPTURED),
)
_GUARDS = "torch._C._dynamo.guards"
_TENSOR_GUARDS = private_name(_GUARDS, "TensorGuards", "2.4..", without=_SLOWER.format("inputs are compared"))
_STATE_GUARD = private_name(_GUARDS, "GlobalStateGuard", "2.4..", without=_SLOWER.format("torch's state is compared"))
_DICT_VERSION = private_name(_GUARDS, "dict_version", "2.1..", without=_SLOWER.format("dictionaries are compared"))
_GLOBAL_HOOKS = private_name(
    "torch.nn.modules.module", "_global_forward_hooks", "2.0..", without=_EAGER.format("a hook for all modules")
)
_GLOBAL_PRE_HOOKS = private_name(
    "torch.nn.modules.module", "_global_forward_pre_hooks", "2.0..", without=_EAGER.format("a hook for all modules")
)
_DISPATCH_MODES = private_name(
    "torch._C", "_len_torch_dispatch_stack", "2.0..", without=_EAGER.format("a TorchDispatchMode")
)
_FUNCTION_MODES = private_name(
    "torch._C", "_len_torch_function_stack", "2.0..", without=_EAGER.format("a TorchFunctionMode")
)
_FUNCTION_MODE_AT = private_name(
    "torch._C", "_get_function_stack_at", "2.0..", without="rs.capture: calls with a default device run in eager"
)
_TRANSFORM_LEVEL = private_name(
    "torch._C._functorch", "maybe_current_level", "2.0..", without=_EAGER.format("a transform of torch.func")
)
_PARAMETRIZE = private_name(
    "torch.nn.utils.parametrize",
    "_cache_enabled",
    "2.0..",
    without=_EAGER.format("torch.nn.utils.parametrize.cached()"),
)
_DEVICE_CONTEXT = private_name(
    "torch.utils._device", "DeviceContext", "2.0..", without="rs.capture: calls with a default device run in eager"
)
_ADDRESSES_EQUAL = private_name(
    "torch._C",
    "_tensors_data_ptrs_at_indices_equal",
    "2.3..",
    gpu_builds_only=True,
    without=_SLOWER.format("addresses are compared"),
)
_STORAGE = private_name(
    "torch",
    "UntypedStorage._cdata",
    "2.0..",
    without="rs.capture: tensors without memory are not recognised as views of one another",
)
_STORAGE_USERS = private_name(
    "torch._C",
    "_storage_Use_Count",
    "2.1..",
    without="rs.optimize: weights are not moved, so projections are not merged",
)
_VERSION = private_name(
    "torch",
    "Tensor._version",
    "2.0..",
    without="rs.capture, rs.optimize: writes to tensors are found by their values; forms with constant weights are not used",
)
MODULE_CONTENTS: Final = tuple(
    private_name("torch.nn", name, "2.0..", of_instances=True, without=_EAGER.format("what a module contains"))
    for name in ("Module._parameters", "Module._buffers", "Module._modules")
)
MODULE_CHILDREN: Final = MODULE_CONTENTS[-1]
FORWARD_HOOKS: Final = tuple(
    private_name("torch.nn", name, "2.0..", of_instances=True, without=_EAGER.format("a module's hook"))
    for name in ("Module._forward_hooks", "Module._forward_pre_hooks")
)
MODULE_HOOKS: Final = (
    *FORWARD_HOOKS,
    *(
        private_name("torch.nn", name, "2.0..", of_instances=True, without=_EAGER.format("a module's hook"))
        for name in ("Module._backward_hooks", "Module._backward_pre_hooks")
    ),
)
_NEEDED_TO_REPLAY = (_GLOBAL_HOOKS, _GLOBAL_PRE_HOOKS, _DISPATCH_MODES, _FUNCTION_MODES, _TRANSFORM_LEVEL, _PARAMETRIZE)


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
    tensor_guards = _TENSOR_GUARDS.find()
    if tensor_guards is None:
        return _tensor_check_in_python(tensors, sizes, strides)
    guards = tensor_guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    check: Callable[..., bool] = guards.check
    return check


def _tensor_check_in_python(
    tensors: Sequence[Any], sizes: Sequence[Any], strides: Sequence[Any]
) -> Callable[..., bool]:
    import torch

    def facts(tensor: Any) -> tuple[Any, ...]:
        properties = (tensor.dtype, tensor.device, tensor.layout, tensor.requires_grad, tensor.is_inference())
        return type(tensor), tensor.dim(), tensor.is_neg(), tensor.is_conj(), *properties

    def modes() -> tuple[bool, bool]:
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    expected, expected_modes = [facts(tensor) for tensor in tensors], modes()
    pairs = [[*zip(*pair, strict=True)] for pair in zip(sizes, strides, strict=True)]

    def check(*others: Any) -> bool:
        return (
            len(others) == len(expected)
            and modes() == expected_modes
            and len({id(other) for other in others}) == len(others)
            and all(isinstance(other, torch.Tensor) for other in others)
            and [facts(other) for other in others] == expected
            and all(
                size in (None, wanted_size) and stride in (None, wanted_stride)
                for other, wanted in zip(others, pairs, strict=True)
                for wanted_size, wanted_stride, (size, stride) in zip(other.shape, other.stride(), wanted, strict=True)
            )
        )

    return check


def _no_tensors(*tensors: Any) -> bool:
    return not tensors


def state_check() -> Callable[[], bool]:
    """Return a function that tells whether torch's global state is still as it is now.

    The state is grad mode, autocast, deterministic algorithms, float32 matmul precision, default dtype and number of threads.
    """
    state_guard = _STATE_GUARD.find()
    if state_guard is None:
        expected = _torch_state()
        return lambda: _torch_state() == expected
    check: Callable[[], bool] = state_guard().check
    return check


def _torch_state() -> tuple[object, ...]:
    import torch

    matmul = torch.backends.cuda.matmul
    return (
        torch.is_grad_enabled(),
        *(torch.is_autocast_enabled(device) for device in ("cpu", "cuda")),
        *(torch.get_autocast_dtype(device) for device in ("cpu", "cuda")),
        torch.is_autocast_cache_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_float32_matmul_precision(),
        matmul.allow_fp16_reduced_precision_reduction,
        matmul.allow_bf16_reduced_precision_reduction,
        torch.get_default_dtype(),
        torch.get_num_threads(),
    )


def mode_counters() -> tuple[Callable[[], int], Callable[[], int]]:
    """Return two C functions that count the active modes: TorchDispatchMode, TorchFunctionMode (the default device is one)."""
    return _DISPATCH_MODES.find() or _not_known, _FUNCTION_MODES.find() or _not_known


def _not_known() -> int:
    return -1  # matches no number of modes, so no graph is replayed


def function_modes() -> list[Any]:
    """Return the active modes of type TorchFunctionMode."""
    mode_at = _FUNCTION_MODE_AT.find() or (lambda _: object())  # an object that equals no mode
    count = (_FUNCTION_MODES.find() or _not_known)()
    return [mode_at(index) for index in range(count)]


def default_device() -> str:
    """Return the device of `torch.set_default_device` or `with torch.device(...)`; empty when none is set."""
    device_context = _DEVICE_CONTEXT.find() or ()
    return next((str(mode.device) for mode in reversed(function_modes()) if isinstance(mode, device_context)), "")


def active_mode() -> str:
    """Return what is active that sees every operator, and that a replay would bypass; empty when nothing is."""
    missing = next((name for name in _NEEDED_TO_REPLAY if name.find() is None), None)
    if missing := missing or next((name for name in (*MODULE_CONTENTS, *MODULE_HOOKS) if name.is_closed()), None):
        return f"a mode or hook that rocsolid cannot see may be active (this torch has no `{missing}`)"
    if _TRANSFORM_LEVEL.get()() is not None:
        return "a transform of torch.func (vmap, grad, jvp) is active"
    if _DISPATCH_MODES.get()():
        return "a TorchDispatchMode is active"
    if _PARAMETRIZE.get():
        return "torch.nn.utils.parametrize.cached() is active"
    device_context = _DEVICE_CONTEXT.find() or ()
    names = (type(mode).__name__ for mode in function_modes() if not isinstance(mode, device_context))
    return next((f"{name} is active" for name in names), "")


def address_comparison() -> Callable[[Sequence[Any], Sequence[int], Sequence[int]], bool] | None:
    """Return torch's C++ function that compares tensors' addresses with a list of numbers; None in CPU builds."""
    equal: Callable[[Sequence[Any], Sequence[int], Sequence[int]], bool] | None = _ADDRESSES_EQUAL.find()
    return equal


def storage_id(tensor: Any) -> int:
    """Return a number that is equal for tensors that share a storage."""
    storage = tensor.untyped_storage()
    if address := _STORAGE.of(storage):
        return int(address)
    try:
        return int(storage.data_ptr()) or -id(tensor)
    except RuntimeError:  # a fake tensor
        return -id(tensor)


def is_only_user(tensor: Any) -> bool:
    """Return whether no other tensor or Python object uses the memory of a tensor; False where this cannot be seen."""
    use_count = _STORAGE_USERS.find()
    storage = tensor.untyped_storage()
    address = _STORAGE.of(storage)
    used_by_both = 2  # the tensor, and `storage` here
    return use_count is not None and address is not None and use_count(address) == used_by_both


def byte_count(tensor: Any) -> int:
    """Return the size of all elements of a tensor in bytes."""
    return int(tensor.numel() * tensor.element_size())


def element_span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of elements in memory from a tensor's first to its last element, gaps included."""
    return 1 + int(sum(step * (size - 1) for step, size in zip(stride, shape, strict=True) if size))


def write_count(tensor: Any) -> int | None:
    """Return how often a tensor was written to in place; None for a tensor made in inference mode, which has no counter."""
    return None if tensor.is_inference() else _VERSION.of(tensor)


def write_counts(tensors: Sequence[Any]) -> list[object]:
    """Return `write_count` of many tensors, none of them made in inference mode; without a loop, because it runs at each call."""
    if _VERSION.is_closed():
        return [object() for _ in tensors]  # equal to no other counts
    return list(map(_read_version, tensors))


_read_version = attrgetter(_VERSION.attribute)


def replaced_by_first_compile() -> frozenset[str]:
    """Return attributes of `nn.Module` that Dynamo replaces or adds with the first compile of the process, perhaps in another thread."""
    return frozenset({"__init__", "__setstate__"} | {n.name for n in GENERATION_TAGS if not n.is_closed()})


def dict_version() -> Callable[[dict[Any, Any]], object]:
    """Return a function that returns the version of a dictionary: any assignment or deletion changes it."""
    return _DICT_VERSION.find() or _dict_content


def _dict_content(values: dict[Any, Any]) -> object:
    # Not the methods of a subclass; an OrderedDict has an order of its own.
    return tuple(map(id, dict.keys(values))), tuple(map(id, dict.values(values)))


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
    return [hooks for name in (_GLOBAL_HOOKS, _GLOBAL_PRE_HOOKS) if (hooks := name.find()) is not None]
