"""Calls every private torch name on something tiny, and checks what it did.

A name can stay and change its meaning. A probe finds that by name: `rocsolid doctor` lists the names that fail, and on a torch release
that rocsolid was not tested with they are closed before they are used (`rocsolid.new_torch`). A probe raises, or returns False,
if the name does not do what rocsolid needs. Probes run in a process of their own, because a C function with another signature may end
the process, and because some of them compile.
"""

import ast
import contextlib
import importlib
import importlib.util
import inspect
import json
import logging
import os
import pkgutil
import subprocess
import sys
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import CodeType
from typing import Any, Final
from unittest import mock

from rocsolid.model.probed_name import ProbedName
from rocsolid.model.release import compare
from rocsolid.torchapi.pretend import tiny_dry_run
from rocsolid.torchapi.private_api import PrivateName, all_private_names

# Without the current folder, where a file could hide a module of the same name.
_CODE: Final = (
    "import sys; '' in sys.path[:1] and sys.path.pop(0); sys.path.insert(0, sys.argv[1]); "
    "from rocsolid.torchapi.name_probes import main; main()"
)
_PROBES: Final[dict[str, Callable[[Any], object]]] = {}
_GRAPH_HOOKS: Final = ("capture_start", "capture_end", "replay_start", "replay_end")
_LOG_METHODS: Final = ("debug", "info", "warning", "error", "exception", "warning_once")
_MODULE_ATTRIBUTES: Final = (
    "_parameters",
    "_buffers",
    "_modules",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_RESULT_MARK: Final = "rocsolid-probes:"
_DRY_RUN_S: Final = 200.0


class _CannotBeCalledError(Exception):
    """A probe needs something that this machine does not have."""


def load_all_names() -> tuple[PrivateName, ...]:
    """Import every module of the package, so that all names are declared, and return them."""
    import rocsolid.torchapi

    for info in pkgutil.walk_packages(rocsolid.torchapi.__path__, "rocsolid.torchapi."):
        importlib.import_module(info.name)
    return all_private_names()


def run_probes() -> Iterator[ProbedName]:
    """Probe every declared name in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in load_all_names():
            yield probe(name)


def probe(name: PrivateName) -> ProbedName:
    """Probe one name; an error of the probe is a result."""
    import torch

    if not name.releases.holds(torch.__version__):
        return ProbedName(name=str(name), without=name.without, skipped=f"only torch {name.releases} has it")
    if name.gpu_builds_only and not torch.backends.cuda.is_built():
        return ProbedName(name=str(name), without=name.without, skipped="only builds with CUDA or ROCm have it")
    package = name.module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        return ProbedName(name=str(name), without=name.without, skipped=f"{package} is not installed")
    try:
        passed = probe_of(name)(name.get())
    except _CannotBeCalledError as why:
        return ProbedName(name=str(name), without=name.without, skipped=str(why))
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is the result
        return ProbedName(name=str(name), without=name.without, problem=f"{type(error).__name__}: {error}"[:300])
    problem = "" if passed or passed is None else "it exists, and does something else than rocsolid needs"
    return ProbedName(name=str(name), without=name.without, problem=problem)


def probe_of(name: PrivateName) -> Callable[[Any], object]:
    """Return the probe of a name; a text without its own probe must be what a call in the module's source logs."""
    return _PROBES.get(str(name)) or (lambda module: _is_logged(name.name, module))


def command() -> list[str]:
    """Return the command line that probes in another process and prints what `read_output` reads."""
    return [sys.executable, "-c", _CODE, str(Path(__file__).parents[2])]


def main() -> None:
    """Probe, and print the results as JSON after a mark, because libraries may print too."""
    rows = [vars(row) for row in run_probes()]
    print(_RESULT_MARK + json.dumps(rows), flush=True)  # noqa: T201 - the parent reads it


def read_output(text: str) -> tuple[ProbedName, ...] | None:
    """Return the results from the output of `command`; None if it ended before it printed them."""
    for line in text.splitlines():
        if line.startswith(_RESULT_MARK):
            return tuple(ProbedName(**row) for row in json.loads(line.removeprefix(_RESULT_MARK)))
    return None


def _probes(*names: str) -> Callable[[Callable[[Any], object]], Callable[[Any], object]]:
    def add(function: Callable[[Any], object]) -> Callable[[Any], object]:
        _PROBES.update(dict.fromkeys(names, function))
        return function

    return add


@cache
def _source(module: Any) -> str:
    return Path(module.__file__).read_text(encoding="utf-8")


def _is_logged(text: str, module: Any) -> bool:
    """Return whether a call such as `log.warning` in a module's source has this text in its message."""
    calls = (node for node in ast.walk(ast.parse(_source(module))) if isinstance(node, ast.Call))
    logging_calls = (c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr in _LOG_METHODS)
    strings = (n for call in logging_calls for n in ast.walk(call) if isinstance(n, ast.Constant))
    return any(text in n.value for n in strings if isinstance(n.value, str))


def _needs_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        msg = "calling it needs a GPU"
        raise _CannotBeCalledError(msg)


# What rs.capture uses.


@_probes("torch.utils._python_dispatch.TorchDispatchMode")
def _dispatch_mode(mode: Any) -> object:
    import torch

    seen = []

    class Mode(mode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.name())
            return func(*args, **(kwargs or {}))

    with Mode():
        torch.ones(2) + 1
    return "aten::add.Tensor" in seen


@_probes("torch.autograd._profiler_enabled")
def _profiler_enabled(enabled: Any) -> object:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]):
        inside = enabled()
    return inside and not enabled()


@_probes(*(f"torch.cuda.graphs.register_graph_{when}_hook" for when in _GRAPH_HOOKS))
def _graph_hook(register: Any) -> object:
    _needs_gpu()
    return f"{register.__name__.removeprefix('register_graph_').removesuffix('_hook')}" in _graph_on_gpu().hooks


@_probes("torch._C._dispatch_has_kernel_for_dispatch_key")
def _has_kernel(has_kernel: Any) -> object:
    return has_kernel("aten::add.Tensor", "CPU") and not has_kernel("aten::matmul", "CPU")


@_probes("torch._C.DispatchKey.CompositeImplicitAutograd", "torch._ops.OpOverload._op_dk")
def _run_composite(_: Any) -> object:
    import torch

    from rocsolid.torchapi.dispatch import run_decomposed

    x = torch.arange(4.0).reshape(2, 2)
    result = run_decomposed(torch.ops.aten.matmul.default, (x, x), {})
    return torch.equal(result, x @ x) and run_decomposed(torch.ops.aten.add.Tensor, (x, x), {}) is NotImplemented


@_probes("torch._ops.OpOverload._schema")
def _schema(_: Any) -> object:
    import torch

    from rocsolid.torchapi.dispatch import schema_of, writes_in_place

    ops = torch.ops.aten
    return (
        writes_in_place(ops.add_.Tensor)
        and not writes_in_place(ops.add.Tensor)
        and schema_of(ops.add.Tensor).arguments[0].name == "self"
    )


@_probes("torch._C._dynamo.guards.TensorGuards")
def _tensor_guards(tensor_guards: Any) -> object:
    import torch

    x = torch.zeros(2, 3)
    check = tensor_guards(x, dynamic_dims_sizes=[[2, None]], dynamic_dims_strides=[[None, None]]).check
    others = (torch.zeros(3, 3), torch.zeros(2, 3, dtype=torch.int32), torch.zeros(2, 3, requires_grad=True))
    exact = tensor_guards(x, dynamic_dims_sizes=[[2, 3]], dynamic_dims_strides=[[3, 1]]).check
    return check(torch.ones(2, 5)) and not any(map(check, others)) and not exact(torch.zeros(3, 2).T)


@_probes("torch._C._dynamo.guards.GlobalStateGuard")
def _state_guard(state_guard: Any) -> object:
    import torch

    check = state_guard().check
    with torch.no_grad():
        in_other_mode = check()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        in_autocast = check()
    return check() and not in_other_mode and not in_autocast


@_probes("torch._C._dynamo.guards.dict_version")
def _dict_version(dict_version: Any) -> object:
    values = {"a": 1}
    before = dict_version(values)
    same = dict_version(values)
    values["b"] = 2
    return before == same != dict_version(values)


@_probes("torch.nn.modules.module._global_forward_hooks", "torch.nn.modules.module._global_forward_pre_hooks")
def _global_hooks(hooks: Any) -> object:
    from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

    before = len(hooks)
    handles = [
        register_module_forward_hook(lambda *_: None),
        register_module_forward_pre_hook(lambda *_: None),
    ]
    during = len(hooks)
    for handle in handles:
        handle.remove()
    return during == before + 1 and len(hooks) == before


@_probes(*(f"torch.nn.Module.{name}" for name in _MODULE_ATTRIBUTES))
def _module_contents(_: Any) -> object:
    """A module holds what it contains and its hooks in these dictionaries."""
    import torch

    module = torch.nn.Linear(1, 1, bias=False)
    module.add_module("child", torch.nn.Identity())
    module.register_buffer("count", torch.zeros(1))
    for register in (
        module.register_forward_hook,
        module.register_forward_pre_hook,
        module.register_full_backward_hook,
        module.register_full_backward_pre_hook,
    ):
        register(lambda *_: None)
    held = [list(vars(module)[name]) for name in _MODULE_ATTRIBUTES]
    return held[:3] == [["weight", "bias"], ["count"], ["child"]] and [len(hooks) for hooks in held[3:]] == [1] * 4


@_probes("torch._C._len_torch_dispatch_stack")
def _dispatch_modes(count: Any) -> object:
    from torch.utils._python_dispatch import TorchDispatchMode

    with TorchDispatchMode():
        during = count()
    return during == count() + 1


@_probes("torch._C._len_torch_function_stack", "torch._C._get_function_stack_at", "torch.utils._device.DeviceContext")
def _function_modes(_: Any) -> object:
    import torch

    from rocsolid.torchapi.graphs.replay_checks import default_device, function_modes

    before = len(function_modes())
    with torch.device("meta"):
        during = len(function_modes()), default_device()
    return during == (before + 1, "meta")


@_probes("torch._C._functorch.maybe_current_level")
def _transform_level(level: Any) -> object:
    import torch

    levels = []

    def record(x: Any) -> Any:
        levels.append(level())
        return x * 2

    torch.func.vmap(record)(torch.ones(2))
    return level() is None and levels[0] is not None


@_probes("torch._C._tensors_data_ptrs_at_indices_equal")
def _addresses_equal(equal: Any) -> object:
    import torch

    x, y = torch.zeros(2), torch.zeros(2)
    addresses = [x.data_ptr(), y.data_ptr()]
    return equal([x, y], addresses, [0, 1]) and not equal([y, x], addresses, [0, 1])


@_probes("torch.UntypedStorage._cdata")
def _storage(_: Any) -> object:
    import torch

    from rocsolid.torchapi.graphs.replay_checks import storage_id

    x = torch.zeros(4)
    return storage_id(x) == storage_id(x[2:]) != storage_id(torch.zeros(4))


@_probes("torch._C._storage_Use_Count")
def _storage_users(_: Any) -> object:
    import torch

    from rocsolid.torchapi.graphs.replay_checks import is_only_user

    x = torch.zeros(4)
    alone = is_only_user(x)
    view = x[2:]
    return alone and not is_only_user(x) and not is_only_user(view)


@_probes("torch._inductor.custom_graph_pass.CustomGraphPass")
def _custom_pass(_: Any) -> object:
    return "aten.mm.default" in _lowered_once().in_pass and _lowered_once().asked_for_id


@_probes("torch._inductor.lowering.lowerings", "torch._inductor.config.patch")
def _benchmarked_products(_: Any) -> object:
    """Inductor finds the function that lowers an operator in the table, and reads the setting while it runs."""
    import torch

    config = importlib.import_module("torch._inductor.config")
    lowering = importlib.import_module("torch._inductor.lowering")
    graph = _source(importlib.import_module("torch._inductor.graph"))
    before = config.max_autotune_gemm
    with config.patch(max_autotune_gemm=True):
        is_set = config.max_autotune_gemm
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    known = all(callable(lowering.lowerings.get(product)) for product in products)
    return known and is_set is True and config.max_autotune_gemm == before and "lowerings[target](" in graph


@_probes("torch.Tensor._version")
def _version(_: Any) -> object:
    import torch

    from rocsolid.torchapi.graphs.replay_checks import write_count

    x = torch.zeros(2)
    before = write_count(x)
    x.add_(1)
    return before is not None and write_count(x) == before + 1


@_probes("torch.fx._symbolic_trace._Patcher.patch_method", "torch.fx._symbolic_trace._is_fx_tracing_flag")
def _fx_traces(_: Any) -> object:
    """In another thread, a module runs as usual while torch.fx traces."""
    import torch

    from rocsolid.torchapi.fx_tracing import traces_in_one_thread

    linear, seen = torch.nn.Linear(2, 2), []

    class Traced(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            with ThreadPoolExecutor(1) as pool:
                seen.append(pool.submit(linear, torch.ones(1, 2)).result().shape)
                seen.append(
                    pool.submit(lambda: bool(getattr(torch.fx._symbolic_trace, "_is_fx_tracing_flag", False))).result()
                )
            return x + 1

    with traces_in_one_thread():
        torch.fx.symbolic_trace(Traced())
    return seen == [(1, 2), False]


@_probes("torch._foreach_copy_")
def _foreach_copy(copy_many: Any) -> object:
    import torch

    targets = [torch.zeros(2), torch.zeros(3)]
    copy_many(targets, [torch.ones(2), torch.full((3,), 2.0)])
    return [t.tolist() for t in targets] == [[1, 1], [2, 2, 2]]


@_probes("torch._C._CUDAGraph.replay")
def _replay(_: Any) -> object:
    _needs_gpu()
    return _graph_on_gpu().replayed


@_probes("torch._C._cuda_endAllocateToPool", "torch._C._cuda_releasePool")
def _pools(_: Any) -> object:
    _needs_gpu()
    return _graph_on_gpu().usable_after_failure


@dataclass(frozen=True, kw_only=True)
class _OnGpu:
    """What was seen when one operation was captured on a GPU, and when a capture failed."""

    hooks: frozenset[str]
    replayed: bool
    usable_after_failure: bool


@cache
def _graph_on_gpu() -> _OnGpu:
    import torch

    from rocsolid.torchapi.graphs.device_graphs import clean_up_failed_capture, is_capturing, new_graph, replay_function

    hooks: set[str] = set()
    handles = [
        register(partial(_add, hooks, when))
        for when in _GRAPH_HOOKS
        if (register := getattr(torch.cuda.graphs, f"register_graph_{when}_hook", None)) is not None
    ]
    x = torch.zeros(2, device="cuda").add_(0)
    graph = new_graph(keep=False)
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        x.add_(1)
    replay_function(graph)()
    graph.replay()  # in which torch calls the hooks
    for handle in handles:
        handle.remove()
    failing, pool = new_graph(keep=False), torch.cuda.graph_pool_handle()

    def begin_and_fail() -> None:
        failing.capture_begin(pool, capture_error_mode="thread_local")
        with contextlib.suppress(RuntimeError):
            x.add_(1).tolist()  # rocsolid: allow[host-sync-in-captured-region] this capture is meant to fail

    with torch.cuda.stream(torch.cuda.Stream()):
        begin_and_fail()
        clean_up_failed_capture(failing, torch.cuda.current_device(), pool, [])
        usable = not is_capturing(torch.cuda.current_stream()) and torch.ones(2, device="cuda").tolist() == [1, 1]
    return _OnGpu(hooks=frozenset(hooks), replayed=x.tolist() == [2, 2], usable_after_failure=usable)


def _add(found: set[str], when: str, _: object) -> None:
    found.add(when)


@_probes("torch._C._cuda_getDeviceCount")
def _device_count(count: Any) -> object:
    import torch

    return count() == torch.cuda.device_count()


@_probes("torch._C._cuda_getDevice")
def _current_device(current: Any) -> object:
    import torch

    _needs_gpu()
    return current() == torch.cuda.current_device()


@_probes("torch._C._cuda_getCurrentRawStream")
def _raw_stream(raw_stream: Any) -> object:
    import torch

    _needs_gpu()
    return raw_stream(torch.cuda.current_device()) == torch.cuda.current_stream().cuda_stream


@_probes('torch._C: "synchronizing CUDA operation"')
def _sync_error(module: Any) -> object:
    import torch

    from rocsolid.torchapi.graphs.capture_state import is_sync_error

    if torch.cuda.is_available():
        x = torch.ones(1, device="cuda")
        torch.cuda.set_sync_debug_mode("error")
        try:
            return bool(x.item()) is None
        except RuntimeError as error:
            return is_sync_error(error)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    libraries = Path(module.__file__).parent.glob("lib/libc10_*.so")
    return any(b"synchronizing CUDA operation" in library.read_bytes() for library in libraries)


@_probes("torch.cuda.graphs.graph.__enter__", "torch.cuda.graphs.graph.__exit__", "torch.cuda.graphs.graph.stream_ctx")
def _graph_block(_: Any) -> object:
    """In a `torch.cuda.graph` block compiles are refused, and a capture that cannot be ended leaves the stream as it was."""
    import torch

    refused, streams_left = _in_graph_block()
    return streams_left == 1 and (refused or compare(torch.__version__, "2.14") >= 0)  # then torch itself refuses


@cache
def _in_graph_block() -> tuple[bool, int]:
    import torch

    from rocsolid.errors import CompileInCaptureError
    from rocsolid.torchapi.graphs.capture_state import refuse_compiles_in_captures

    left = []

    class Graph:
        """Stands in for a `torch.cuda.CUDAGraph`, which needs a GPU: here only its block is used."""

        def capture_begin(self, *_: Any, **__: Any) -> None:
            pass

        def capture_end(self) -> None:
            msg = "operation failed due to a previous error during capture"
            raise RuntimeError(msg)

    class Stream:
        """Stands in for `torch.cuda.stream(...)`."""

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            left.append(self)

    compiled = torch.compile(lambda x: x + 1, backend="eager")
    refused = False
    with ExitStack() as stack:
        for owner, name in ((torch.cuda, "synchronize"), (torch.cuda, "empty_cache"), (torch._C, "_host_emptyCache")):
            stack.enter_context(mock.patch.object(owner, name, create=True))
        stack.enter_context(mock.patch.object(torch.cuda.graph, "default_capture_stream", object()))
        stack.enter_context(mock.patch.object(torch.cuda, "stream", return_value=Stream()))
        stack.callback(refuse_compiles_in_captures())
        try:
            # rocsolid: allow[capture-without-warmup] its refusal is what is probed
            with torch.cuda.graph(Graph(), stream=object()):
                compiled(torch.ones(1))
        except CompileInCaptureError:
            refused = True
        except RuntimeError:  # of `capture_end`
            pass
    return refused, len(left)


@_probes("torch.utils._pytree.tree_leaves")
def _tree_leaves(tree_leaves: Any) -> object:
    return tree_leaves({"a": [1, (2, 3)]}) == [1, 2, 3]


@_probes("torch.utils._pytree.SUPPORTED_NODES")
def _nodes(_: Any) -> object:
    from rocsolid.torchapi.pytree import registered

    found = registered(dict)
    values, context = found.flatten({"a": 1}) if found else ([], None)
    return found is not None and list(values) == [1] and found.unflatten([2], context) == {"a": 2}


# Operators.


@_probes("torch._library.utils.has_fake_kernel")
def _has_fake(has_fake: Any) -> object:
    import torch

    return has_fake(torch.ops.aten.add.Tensor)


@_probes("torch._C._dispatch_get_all_op_names")
def _all_names(all_names: Any) -> object:
    return "aten::add.Tensor" in {str(name) for name in all_names()}


@_probes("torch._library.utils.fill_defaults")
def _fill(_: Any) -> object:
    import torch

    from rocsolid.torchapi.operators import with_defaults

    x = torch.ones(1)
    return with_defaults(torch.ops.aten.add.Tensor, (x, x), {})[2:] == (1,)


# Settings.


@_probes(
    "torch.utils._config_module._UNSET_SENTINEL",
    "torch.utils._config_module.ConfigModule._config",
    "torch.utils._config_module._ConfigEntry.user_override",
)
def _entries(_: Any) -> object:
    import torch._inductor.config as inductor

    from rocsolid.torchapi.config.live import read_entries

    # rocsolid: allow[harmful-value] a probe in a process of its own; nothing is compiled for long
    with inductor.patch(max_autotune=True):
        assigned = read_entries({"inductor": inductor})["inductor.max_autotune"]
    after = read_entries({"inductor": inductor})["inductor.max_autotune"]
    return assigned.value is True and assigned.assigned and after.value is False and not after.assigned


@_probes("torch.utils._config_module._ConfigEntry.env_value_force")
def _force(_: Any) -> object:
    return _pinned_value(forced={"inductor.max_autotune": True}, assigned=False)


@_probes("torch.utils._config_module._ConfigEntry.env_value_default")
def _suggest(_: Any) -> object:
    return _pinned_value(suggested={"inductor.max_autotune": True}) and not _pinned_value(
        suggested={"inductor.max_autotune": True}, assigned=False
    )


def _pinned_value(
    *, forced: dict[str, object] | None = None, suggested: dict[str, object] | None = None, assigned: object = None
) -> object:
    """Return `max_autotune` while it is pinned; with `assigned`, after the user's code has assigned that value."""
    import torch._inductor.config as inductor

    from rocsolid.torchapi.config.pins import Pins, pin

    unpin = pin(Pins(forced=forced or {}, suggested=suggested or {}, on_refused=lambda _: None))
    try:
        with contextlib.nullcontext() if assigned is None else inductor.patch(max_autotune=assigned):
            return inductor.max_autotune
    finally:
        unpin()


@_probes("torch.utils._config_module.ConfigModule.__setattr__", "torch.utils._config_module.ConfigModule.patch")
def _refused_write(_: Any) -> object:
    import torch._inductor.config as inductor

    from rocsolid.torchapi.config.pins import Attempt, Pins, pin

    attempts: list[Attempt] = []
    unpin = pin(Pins(forced={"inductor.max_autotune": False}, suggested={}, on_refused=attempts.append))
    try:
        # rocsolid: allow[harmful-value] a probe in a process of its own; nothing is compiled for long
        inductor.max_autotune = True
        # rocsolid: allow[harmful-value] a probe in a process of its own; nothing is compiled for long
        with inductor.patch({"max_autotune": True}):
            pass
    finally:
        unpin()
    return [attempt.how for attempt in attempts] == ["assignment", "config.patch"]


@_probes("torch.utils._config_module.ConfigModule._is_dirty")
def _is_dirty(_: Any) -> object:
    import torch._inductor.config as inductor

    before = inductor.get_hash()
    return before != _pinned_hash() and inductor.get_hash() == before


@_probes(
    "torch.utils._config_module.ConfigModule._hash_dirty_var",
    "torch.utils._config_module.ConfigModule._hash_cache_var",
    "torch.utils._config_module.ConfigModule._get_dict_dirty_keys_var",
    "torch.utils._config_module.ConfigModule._get_dict_cache_var",
)
def _cache_variables(_: Any) -> object:
    import torch._inductor.config as inductor

    from rocsolid.torchapi.config.pins import CACHE_VARIABLES

    before = inductor.get_hash()
    pinned = _pinned_hash()
    variables = [name.of(inductor) for name in CACHE_VARIABLES]
    return all(isinstance(v, ContextVar) for v in variables) and before != pinned and inductor.get_hash() == before


def _pinned_hash() -> object:
    import torch._inductor.config as inductor

    from rocsolid.torchapi.config.pins import Pins, pin

    unpin = pin(Pins(forced={"inductor.max_fusion_size": 3}, suggested={}, on_refused=lambda _: None))
    try:
        return inductor.get_hash()
    finally:
        unpin()


@_probes("torch._TorchCompileInductorWrapper.apply_options", "torch._TorchCompileInductorWrapper.apply_mode")
def _refused_mode(_: Any) -> object:
    import torch

    from rocsolid.torchapi.config.pins import Attempt, Pins, pin

    attempts: list[Attempt] = []
    unpin = pin(Pins(forced={"inductor.triton.cudagraphs": False}, suggested={}, on_refused=attempts.append))
    try:
        # rocsolid: allow[mode-hard-coded] a probe in a process of its own; nothing is compiled for long
        torch.compile(lambda x: x, mode="reduce-overhead")
        # rocsolid: allow[harmful-value] a probe in a process of its own; nothing is compiled for long
        torch.compile(lambda x: x, options={"triton.cudagraphs": True})
    finally:
        unpin()
    return [a.how for a in attempts] == ["mode='reduce-overhead'", "options['triton.cudagraphs']"]


@_probes("torch._inductor.cudagraph_utils.CUDAGraphPolicy")
def _graph_policy(_: Any) -> object:
    """Torch asks the policy before it wraps compiled code in a graph, also where an annotation requested the graph."""
    import torch

    from rocsolid.torchapi.config.pins import Attempt, Pins, pin

    attempts: list[Attempt] = []
    torch._dynamo.reset()
    unpin = pin(Pins(forced={"inductor.triton.cudagraphs": False}, suggested={}, on_refused=attempts.append))
    try:
        annotated = torch._dynamo.override_cudagraphs(fwd=True)(lambda x: torch.mm(x, x))
        with torch.no_grad():
            torch.compile(annotated)(torch.ones(2, 2))
    finally:
        unpin()
        torch._dynamo.reset()
    return "annotation" in [a.how for a in attempts]


@_probes("torch._inductor.cudagraph_trees.cudagraphify_impl")
def _cudagraphify(_: Any) -> object:
    """The backend "cudagraphs" makes its graphs with it. Only tensors on a GPU have graphs, so its look at the device is left out."""
    import torch

    from rocsolid.torchapi.config.pins import Attempt, Pins, pin

    backend = importlib.import_module("torch._dynamo.backends.cudagraphs")
    attempts: list[Attempt] = []
    unpin = pin(Pins(forced={"inductor.triton.cudagraphs": False}, suggested={}, on_refused=attempts.append))
    try:
        with (
            mock.patch.object(backend, "check_for_skip", return_value=None),
            mock.patch.object(backend, "get_device_index", return_value=0),
        ):
            result = torch.compile(lambda x: x + 1, backend="cudagraphs")(torch.ones(1)).item()
    finally:
        unpin()
        torch._dynamo.reset()
    return result == 2.0 and [a.how for a in attempts] == ["backend='cudagraphs'"]  # noqa: PLR2004 - 1 + 1


@_probes("torch._inductor.list_mode_options")
def _modes(list_mode_options: Any) -> object:
    return list_mode_options("reduce-overhead", None) == {"triton.cudagraphs": True}


@_probes("torch._inductor.config.get_config_copy")
def _config_copy(get_config_copy: Any) -> object:
    return get_config_copy()["max_autotune"] is False


# Dynamo. One small compile shows what most of the hooks do.


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What was observed while a function with a graph break was compiled twice."""

    kinds: frozenset[str]
    names: tuple[str, ...]
    phases: tuple[str, ...]
    recompile_reason: str
    ids: tuple[str, ...]
    break_line: int  # of the instruction that Dynamo's translator was at, counted from the function's first line


@cache
def _observed() -> _Seen:
    import torch

    from rocsolid.torchapi.dynamo import compile_events
    from rocsolid.torchapi.dynamo.graph_events import INSTRUCTION

    lines: list[int] = []

    def make_event(unit: int, error: Any, reason: str, source: Any, **kwargs: Any) -> Any:
        positions = getattr(INSTRUCTION.of(source), "positions", None)
        lines.append(getattr(positions, "lineno", 0) - broken.__code__.co_firstlineno)
        return original(unit, error, reason, source, **kwargs)

    def broken(x: Any, n: int) -> Any:
        y = x.sin() * n
        torch._dynamo.graph_break()
        return y + 1

    events: list[Any] = []
    torch._dynamo.reset()
    original = vars(compile_events)["break_event"]
    unsubscribe = compile_events.subscribe(events.append)
    try:
        with (
            mock.patch.object(compile_events, "break_event", make_event),
            torch._inductor.config.patch(force_disable_caches=False),
        ):
            compiled = torch.compile(broken, dynamic=False)
            compiled(torch.ones(2), 2)
            compiled(torch.ones(2), 3)
    finally:
        unsubscribe()
        torch._dynamo.reset()
    by_kind: dict[str, list[Any]] = {}
    for event in events:
        by_kind.setdefault(type(event).__name__, []).append(event)
    reasons = [e.metrics.get("recompile_reason") for e in by_kind.get("MetricsReported", ())]
    return _Seen(
        kinds=frozenset(by_kind),
        names=tuple(e.function for e in by_kind.get("CompileStarted", ())),
        phases=tuple(e.name for e in by_kind.get("PhaseTimed", ())),
        recompile_reason=next((str(reason) for reason in reasons if reason), ""),
        ids=tuple(e.compile_id for e in by_kind.get("CompileIdAssigned", ())),
        break_line=next(iter(lines), 0),
    )


@dataclass(frozen=True, kw_only=True)
class _Lowered:
    """What was seen while Inductor compiled a matrix product, which needs no C++ compiler, that is in no cache."""

    events: tuple[str, ...]
    called: frozenset[tuple[str, str]]  # file and name of the functions that ran
    in_pass: frozenset[str]  # the operators that a graph pass saw
    asked_for_id: bool  # of the pass


@cache
def _lowered_once() -> _Lowered:
    import torch
    import torch._inductor.config as inductor

    from rocsolid.torchapi.dynamo import compile_events
    from rocsolid.torchapi.inductor import graph_pass

    events: list[Any] = []
    called: set[tuple[str, str]] = set()

    def profiler(frame: Any, event: str, _: object) -> None:
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_name))

    asked: list[str] = []

    class NewPass(type(graph_pass.graph_pass())):  # type: ignore[misc]
        def uuid(self) -> str:  # a new one, so that the graph is in no cache
            asked.append(uuid.uuid4().hex)
            return asked[0]

    _pass_operators.clear()
    torch._dynamo.reset()
    unsubscribe = compile_events.subscribe(events.append)
    previous = sys.getprofile()
    sys.setprofile(profiler)
    try:
        options = {"post_grad_custom_pre_pass": NewPass((_remember_operators,)), "fx_graph_cache": True}
        with inductor.patch(force_disable_caches=False), torch.no_grad():
            torch.compile(torch.mm, dynamic=False, options=options)(torch.ones(2, 2), torch.ones(2, 2))
    finally:
        sys.setprofile(previous)
        unsubscribe()
        torch._dynamo.reset()
    return _Lowered(
        events=tuple(type(event).__name__ for event in events),
        called=frozenset(called),
        in_pass=frozenset(_pass_operators),
        asked_for_id=bool(asked),
    )


_pass_operators: Final[list[str]] = []


def _remember_operators(graph: Any) -> None:
    _pass_operators.extend(str(node.target) for node in graph.nodes)


@_probes("torch._guards.CompileContext.try_get")
def _context(try_get: Any) -> object:
    return try_get() is None and _observed().ids[0].endswith("/0")


@_probes(
    "torch._dynamo.utils.ChromiumEventLogger.log_event_start",
    "torch._dynamo.utils.ChromiumEventLogger.log_event_end",
)
def _phase_times(_: Any) -> object:
    return "_compile.compile_inner" in _observed().phases or "entire_frame_compile" in _observed().phases


@_probes("torch._dynamo.utils.ChromiumEventLogger.log_instant_event")
def _cache_events(_: Any) -> object:
    return "CacheLookup" in _observed().kinds


@_probes("torch._dynamo.utils.CompilationMetrics.create")
def _summary(_: Any) -> object:
    return "n == 2" in _observed().recompile_reason.replace("L['n']", "n")


@_probes("torch._guards.TracingContext.extract_stack")
def _extract_stack(extract_stack: Any) -> object:
    return len(extract_stack()) == 0


@_probes("torch._dynamo.output_graph.OutputGraph.call_user_compiler")
def _traced(_: Any) -> object:
    return "GraphTraced" in _observed().kinds


@_probes("torch._inductor.graph.GraphLowering.__init__")
def _lowering_started(_: Any) -> object:
    return "LoweringStarted" in _lowered_once().events


@_probes("torch._inductor.output_code.CompiledFxGraph.post_compile")
def _generated(_: Any) -> object:
    return "CodeGenerated" in _observed().kinds


@_probes(
    "torch._dynamo.symbolic_convert.InstructionTranslatorBase.log_graph_break",
    "torch._dynamo.symbolic_convert.log_graph_break",
)
def _graph_breaks(_: Any) -> object:
    return "BreakReported" in _observed().kinds


@_probes("torch._dynamo.symbolic_convert.InstructionTranslatorBase.current_instruction")
def _instruction(_: Any) -> object:
    if sys.version_info < (3, 11):
        msg = "only Python 3.11 and later has the columns of an instruction"
        raise _CannotBeCalledError(msg)
    return _observed().break_line == 2  # noqa: PLR2004 - the second line of `broken`


@_probes("torch._dynamo.convert_frame.ConvertFrameAssert.__call__")
def _compile_started(_: Any) -> object:
    return bool(_observed().names) and "broken" in _observed().names[0]


@_probes(
    "torch._dynamo.convert_frame.ConvertFrame.__call__",
    "torch._dynamo.types.ConvertFrameReturn",
    "torch._dynamo.types.FrameExecStrategy",
    "torch._dynamo.types.FrameAction",
    "torch._dynamo.convert_frame.ConvertFrameAssert._one_graph",
)
def _cancelled(_: Any) -> object:
    return _cancelled_compile()


@cache
def _cancelled_compile() -> bool:
    """Return whether a cancelled compile falls back to eager, and raises our error with fullgraph=True."""
    import torch

    from rocsolid.errors import CompileDeadlineError
    from rocsolid.torchapi.dynamo.compile_hooks import Compile, CompileCancelled, add_compile_listener

    class Canceller:
        def on_start(self, compile_: Compile) -> Any:  # noqa: ARG002 - the signature of a listener
            raise CompileCancelled

        def on_end(self, compile_: Compile, *, compiled: bool) -> None:
            pass

    def function(x: Any) -> Any:
        return x + 1

    def whole(x: Any) -> Any:
        return x + 1

    torch._dynamo.reset()
    remove = add_compile_listener(Canceller())
    raised = False
    try:
        in_eager = torch.compile(function, backend="eager")(torch.ones(1)).item() == 2.0  # noqa: PLR2004 - 1 + 1
        try:
            torch.compile(whole, backend="eager", fullgraph=True)(torch.ones(1))
        except CompileDeadlineError:
            raised = True
    finally:
        remove()
        torch._dynamo.reset()
    return in_eager and raised


@_probes("torch.nn.utils.parametrize._cache_enabled")
def _parametrization_cache(outside: Any) -> object:
    from torch.nn.utils import parametrize

    with parametrize.cached():
        inside = vars(parametrize)["_cache_enabled"]
    return not outside and inside


@_probes("torch._C._dynamo.eval_frame.reset_code")
def _reset_code(reset_code: Any) -> object:
    import torch

    compiles = []

    def count(graph: Any, _: Any) -> Any:
        compiles.append(graph)
        return graph

    def double(x: Any) -> Any:
        return x * 2

    compiled = torch.compile(double, backend=count)
    for _ in range(2):
        compiled(torch.ones(2))
        reset_code(double.__code__)
    return len(compiles) == 2  # noqa: PLR2004 - compiled again after the reset


@_probes("torch._C._dynamo.eval_frame.set_guard_complete_hook")
def _guard_hook(set_hook: Any) -> object:
    import torch

    hits = []

    def hook(cache_hit: bool) -> bool:  # noqa: FBT001 - torch's signature
        hits.append(cache_hit)
        return True

    compiled = torch.compile(lambda x: x * 2, backend="eager")
    previous = set_hook(hook)
    try:
        compiled(torch.ones(2))
        compiled(torch.ones(2))
    finally:
        set_hook(previous)
    return hits[-1:] == [True]


@_probes("torch._inductor.compiler_bisector.CompilerBisector")
def _bisector(_: Any) -> object:
    """A part of the compiler can be switched off, and the parts before it are named."""
    import torch

    from rocsolid.torchapi.inductor.bisector import limited

    def call(x: Any) -> Any:
        return torch.nn.functional.gelu(x)

    torch._dynamo.reset()
    with limited("decomposition", 0) as parts, torch.no_grad():
        torch.compile(call, backend="aot_eager_decomp_partition")(torch.ones(2))
    torch._dynamo.reset()
    return ["gelu" in name for name, _ in parts] == [True]


@_probes("torch._dynamo.lookup_backend")
def _lookup_backend(lookup: Any) -> object:
    import torch

    graph = torch.fx.symbolic_trace(torch.nn.ReLU())
    return float(lookup("eager")(graph, [torch.ones(1)])(torch.ones(1))) == 1.0


@_probes("torch._dynamo.external_utils.wrap_inline")
def _module_wrapper(wrap: Any) -> object:
    inner = wrap(lambda x: x)
    return inner.__code__ in wrap.__code__.co_consts


@_probes(
    "torch._dynamo.eval_frame.OptimizedModule._orig_mod",
    "torch._dynamo.eval_frame.OptimizeContext._torchdynamo_orig_callable",
)
def _original(_: Any) -> object:
    import torch

    from rocsolid.torchapi.dynamo.compiled_function import original_function

    def function(x: Any) -> Any:
        return x

    module = torch.nn.Identity()
    return all(original_function(torch.compile(f, backend="eager")) is f for f in (function, module))


@_probes("torch._dynamo.reset")
def _reset(reset: Any) -> object:
    return callable(reset) and _observed() is not None  # it is called there


@_probes("torch._dynamo.eval_frame._debug_get_cache_entry_list")
def _failed_guard(_: Any) -> object:
    import torch

    from rocsolid.torchapi.dynamo.failed_guards import failed_guards

    def function(x: Any, n: int) -> Any:
        return x * n

    torch._dynamo.reset()
    torch.compile(function, backend="eager", dynamic=False)(torch.ones(1), 2)
    guards = failed_guards(function.__code__, {"x": torch.ones(1), "n": 3})
    torch._dynamo.reset()
    return [guard.guard for guard in guards] == ["n == 2"]


@_probes(
    "torch._dynamo.package.DynamoCache.path_prefix",
    "torch._dynamo.precompile_context.PrecompileContext.create_cache_entries",
    "torch._dynamo.precompile_context.PrecompileContext.clear",
    "torch._dynamo.convert_frame.ConvertFrameAssert.__init__",
    "torch._dynamo.convert_frame.ConvertFrameAssert._package",
    "torch._dynamo.config.caching_precompile",
)
def _saved(_: Any) -> object:
    return _saved_traces().traces == 1


@dataclass(frozen=True, kw_only=True)
class _Saved:
    """What was seen while the traces of a function were saved, and then loaded as if by another Python."""

    traces: int
    dropped: tuple[str, ...]
    rejected_entry_was_logged: bool


@cache
def _saved_traces() -> _Saved:
    import torch

    from rocsolid.torchapi.dynamo.precompile import saving_traces, take_traces

    messages: list[str] = []

    class Messages(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            messages.append(str(record.msg))
            return True

    log, seen = logging.getLogger("torch._dynamo.eval_frame"), Messages()
    torch._dynamo.reset()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        with saving_traces(_saved_function, Path(folder), {}) as dropped:
            torch.compile(_saved_function)(torch.ones(1))
        traces = take_traces()
        torch._dynamo.reset()
        log.addFilter(seen)  # before the one that hides the message
        with (
            saving_traces(_saved_function, Path(other), traces),
            mock.patch("platform.python_version", return_value="0"),  # torch loads no trace of another Python
        ):
            torch.compile(_saved_function)(torch.ones(1))
        take_traces()
    log.removeFilter(seen)
    torch._dynamo.reset()
    return _Saved(
        traces=len(traces),
        dropped=tuple(dropped),
        rejected_entry_was_logged=any("Failed to load entry from dynamo cache" in m for m in messages),
    )


def _saved_function(x: Any) -> Any:
    return _helper(x) + 1


def _helper(x: Any) -> Any:
    return x * 2


@_probes('torch._dynamo: "_dynamo_marked_constant"')
def _marked_constant(_: Any) -> object:
    """Dynamo calls a function with this mark while it traces, and does not trace it."""
    import torch

    from rocsolid.torchapi.graphs.capture_state import MARKED_CONSTANT

    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append([node.op for node in graph.graph.nodes])
        return graph

    def constant() -> bool:
        return bool(eval("True"))  # noqa: S307 - Dynamo cannot trace this

    vars(constant)[MARKED_CONSTANT.name] = True
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1 if constant() else x - 1, backend=backend, fullgraph=True)(torch.ones(1))
    torch._dynamo.reset()
    return graphs == [["placeholder", "call_function", "output"]]


@_probes('torch._dynamo: "__compiled_fn"')
def _graph_name(_: Any) -> object:
    import torch

    from rocsolid.torchapi.dynamo.compile_hooks import CompiledRuns

    torch._dynamo.reset()
    with CompiledRuns() as runs:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    torch._dynamo.reset()
    return runs.ran_compiled


@_probes('torch._dynamo: "___needs_generation_tag_patch"', 'torch._dynamo: "___has_generation_tag_patch"')
def _generation_tags(_: Any) -> object:
    """After the first compile, `nn.Module` has an attribute with one of these names, and no other new one."""
    import torch

    from rocsolid.torchapi.graphs.replay_checks import replaced_by_first_compile

    module = torch.nn.Linear(1, 1)
    torch.compile(module, backend="eager")(torch.ones(1))
    torch._dynamo.reset()
    added = {name for name in vars(torch.nn.Module) if name.startswith("___")}
    return added and added <= replaced_by_first_compile()


@_probes('torch._dynamo: "__import_"', 'torch._dynamo: "__builtins_dict__"')
def _generated_names(_: Any) -> object:
    """Dynamo adds modules to a function's globals under names that begin like this."""
    import torch

    from rocsolid.torchapi.dynamo.precompile import BUILTINS_PREFIX, IMPORT_PREFIX

    module = torch.nn.Linear(1, 1)
    scope: dict[str, Any] = {"module": module, "torch": torch}
    exec("def call(x):\n    return module(x) if isinstance(x, torch.Tensor) and len([x]) else x", scope)  # noqa: S102
    torch._dynamo.reset()
    torch.compile(scope["call"], backend="eager")(torch.ones(1))
    names = list(scope)
    torch._dynamo.reset()  # removes them
    of_modules = [name for name in names if name.startswith(IMPORT_PREFIX.name)]
    return any("_dot_" in name for name in of_modules) and any(name.startswith(BUILTINS_PREFIX.name) for name in names)


@_probes('torch._dynamo.guards: "is dropped with caching_precompile"')
def _dropped_guards(_: Any) -> object:
    """The guard on a function that the saved function calls is dropped, and its name is known."""
    return any("_helper" in name for name in _saved_traces().dropped)


@_probes('torch._dynamo.eval_frame: "Failed to load entry from dynamo cache"')
def _rejected_entry(_: Any) -> object:
    return _saved_traces().rejected_entry_was_logged


@_probes("torch._dynamo.bytecode_transformation.unique_id")
def _unique_id(unique_id: Any) -> object:
    first, second = (int(unique_id("__rocsolid").rpartition("_")[2]) for _ in range(2))
    return second == first + 1


@_probes("torch._dynamo.source.DefaultsSource.__reduce__")
def _defaults_source(_: Any) -> object:
    import pickle

    from torch._dynamo.source import DefaultsSource, LocalSource

    from rocsolid.torchapi.dynamo.precompile import reduce_by_init_fields

    source = DefaultsSource(LocalSource("f"), 0)
    kind, arguments = reduce_by_init_fields(source)
    return pickle.dumps(arguments) and kind(*arguments) == source


# Inductor.


@_probes("torch._inductor.runtime.triton_compat.triton_key")
def _triton_key(triton_key: Any) -> object:
    if importlib.util.find_spec("triton") is None:
        return callable(triton_key)
    return triton_key() == triton_key()


def _ran(name: str, function: str = "") -> Callable[[Any], object]:
    """Return a probe: the function runs while Inductor compiles."""
    called = function or name.rpartition(".")[2]
    return lambda found: (inspect.getsourcefile(inspect.unwrap(found)), called) in _lowered_once().called


_PROBES.update(
    {
        name: _ran(name)
        for name in (
            "torch._dynamo.symbolic_convert.InstructionTranslatorBase.run",
            "torch._functorch.aot_autograd.aot_module_simplified",
            "torch._inductor.async_compile.AsyncCompile.wait",
            "torch._inductor.async_compile.AsyncCompile._wait_futures",
            "torch._inductor.compile_fx.compile_fx",
            "torch._inductor.fx_passes.joint_graph.joint_graph_passes",
            "torch._inductor.fx_passes.post_grad.post_grad_passes",
            "torch._inductor.graph.GraphLowering.codegen",
            "torch._inductor.graph.GraphLowering.run",
            "torch._inductor.scheduler.Scheduler.fuse_nodes",
        )
    }
)


@_probes("torch._inductor.cpp_builder.run_compile_cmd")
def _compile_command(run: Any) -> object:
    with tempfile.TemporaryDirectory() as folder:
        run("touch made", folder)
        return os.path.exists(f"{folder}/made")  # noqa: PTH110 - bool


def _calls(needed: str) -> Callable[[Any], object]:
    """Return a probe of a function that runs only with a GPU, or with a C++ compiler: its own code calls what makes it slow."""
    return lambda found: needed in _names_in(inspect.unwrap(found).__code__)


def _names_in(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {code.co_name, *code.co_names, *code.co_varnames, *code.co_freevars}.union(*map(_names_in, inner))


_PROBES.update(
    {
        "torch._inductor.autotune_process.BenchmarkRequest.benchmark": _calls("make_run_fn"),
        "torch._inductor.cpp_builder.CppBuilder.build": _calls("run_compile_cmd"),
        "torch._inductor.runtime.triton_heuristics.CachingAutotuner.benchmark_all_configs": _calls("bench"),
        "torch._inductor.runtime.triton_heuristics.CachingAutotuner.coordinate_descent_tuning": _calls(
            "_coordinate_descent_tuning"
        ),
        "torch._inductor.runtime.triton_heuristics.CachingAutotuner.precompile": _calls("_precompile_worker"),
        "torch._inductor.select_algorithm.AlgorithmSelectorCache.benchmark_choices": _calls("benchmark_choice"),
        "torch._inductor.select_algorithm.AlgorithmSelectorCache.make_precompile_fn": _calls("wait_on_futures"),
        "torch._inductor.select_algorithm.TritonTemplateCaller.precompile": _calls("bmreq"),
    }
)


@_probes("torch._inductor.utils.get_first_incompatible_cudagraph_node")
def _unsafe_node(find: Any) -> object:
    import torch

    safe = torch.fx.symbolic_trace(lambda x: x + 1)
    unsafe = torch.fx.Graph()
    unsafe.call_function(torch.ops.aten._fused_moving_avg_obs_fq_helper.default, (unsafe.placeholder("x"),))
    return find(safe) is None and find(torch.fx.GraphModule({}, unsafe)) is not None


def _in_dry_run(name: str) -> Callable[[Any], object]:
    """Return a probe: a tiny dry run, in a process of its own, needed the name and got what it needs."""

    def probe_in_dry_run(_: Any) -> object:
        results, failure = _dry_run()
        if "C++ compiler" in failure:
            msg = "a dry run needs a C++ compiler"
            raise _CannotBeCalledError(msg)
        problem = failure or results[name]
        if problem:
            raise RuntimeError(problem)
        return True

    return probe_in_dry_run


_PROBES.update({name: _in_dry_run(name) for name in tiny_dry_run.NAMES})


@cache
def _dry_run() -> tuple[dict[str, str], str]:
    """Return what did not work by name, and why there are no results if the process failed."""
    if importlib.util.find_spec("triton") is None:
        return {}, "triton is not installed"
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROCSOLID_")}
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            tiny_dry_run.command(), env=env, capture_output=True, text=True, check=False, timeout=_DRY_RUN_S
        )
    except subprocess.TimeoutExpired:
        return {}, f"a tiny dry run did not end within {_DRY_RUN_S:.0f} s"
    results = tiny_dry_run.read_output(done.stdout)
    return results, "" if results else (done.stderr.strip().splitlines() or ["a tiny dry run failed"])[-1]


# The pretended GPU of a dry run.


@_probes(
    "torch._subclasses.fake_tensor.DynamicOutputShapeException",
    "torch._subclasses.fake_tensor.DataDependentOutputException",
)
def _needs_values(_: Any) -> object:
    import torch

    from rocsolid.torchapi.pretend.device import fake_mode, needs_values

    calls: tuple[Callable[[Any], object], ...] = (torch.nonzero, lambda x: x.item())
    raised = []
    with fake_mode():
        for call in calls:
            try:
                call(torch.ones(1))
            except Exception as error:  # noqa: BLE001 - its class is the question
                raised.append(needs_values(error))
    return raised == [True, True]


@_probes("torch._inductor.runtime.benchmarking.benchmarker.benchmark_gpu")
def _benchmark(_: Any) -> object:
    """Inductor times a function of a tensor on a GPU with it."""
    import torch
    from torch._inductor.runtime.benchmarking import benchmarker

    x = torch.empty(1, device="meta")
    with mock.patch.object(benchmarker, "benchmark_gpu", return_value=17.0):
        return benchmarker.benchmark(lambda _: None, (x,), {}) == 17.0  # noqa: PLR2004 - as in the line above


@_probes("torch.nn.Module._apply")
def _convert(_: Any) -> object:
    import torch

    seen = []

    def record(x: Any) -> Any:
        seen.append(x)
        return x

    torch.nn.Linear(1, 1)._apply(record)
    return len(seen) >= 2  # noqa: PLR2004 - weight and bias
