"""Calls every private torch name on something tiny, and checks what it did.

A name can stay and change its meaning. A probe finds that by name: `rocsolid doctor` lists the names that fail, and on a torch release
that rocsolid was not tested with they are closed before they are used (`rocsolid.probe.private_names`). A probe raises, or returns False,
if the name does not do what rocsolid needs. Probes run in a process of their own, because a C function with another signature may end
the process, and because some of them compile.
"""

import contextlib
import importlib
import importlib.util
import inspect
import json
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from rocsolid.model.probed_name import ProbedName
from rocsolid.torchapi.private_api import PrivateName, all_private_names

# Without the current folder, where a file could hide a module of the same name.
_CODE: Final = (
    "import sys; '' in sys.path[:1] and sys.path.pop(0); sys.path.insert(0, sys.argv[1]); "
    "from rocsolid.torchapi.name_probes import main; main()"
)
_PROBES: Final[dict[str, Callable[[Any], object]]] = {}
_GRAPH_HOOKS: Final = ("capture_start", "capture_end", "replay_start", "replay_end")
_RESULT_MARK: Final = "rocsolid-probes:"


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
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is the result
        return ProbedName(name=str(name), without=name.without, problem=f"{type(error).__name__}: {error}"[:300])
    problem = "" if passed or passed is None else "it exists, and does something else than rocsolid needs"
    return ProbedName(name=str(name), without=name.without, problem=problem)


def probe_of(name: PrivateName) -> Callable[[Any], object]:
    """Return the probe of a name; a text without its own probe is searched in the module's source."""
    return _PROBES.get(str(name)) or (lambda module: name.name in _source(module))


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


def _takes(function: Any, *names: str) -> bool:
    """Return whether a function that is replaced, and not called here, still takes these arguments in this order."""
    parameters = list(inspect.signature(function).parameters)
    return parameters[: len(names)] == list(names)


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
    register(lambda graph: graph).remove()
    return True


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
def _custom_pass(base: Any) -> object:
    """Checks the class and that the compiler asks passes of it for their id; compiling would take seconds."""
    codecache = importlib.import_module("torch._inductor.codecache")
    post_grad = importlib.import_module("torch._inductor.fx_passes.post_grad")
    has_methods = _takes(base.__call__, "self", "graph") and callable(base.uuid)
    return has_methods and "uuid()" in _source(codecache) and "post_grad_custom_pre_pass" in _source(post_grad)


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


@_probes("torch._C._CUDAGraph.replay", "torch._C._cuda_endAllocateToPool", "torch._C._cuda_releasePool")
def _needs_a_gpu(function: Any) -> object:
    return callable(function)  # calling it needs a GPU: the `gpu` tests do


@_probes("torch._C._cuda_getCurrentRawStream")
def _raw_stream(raw_stream: Any) -> object:
    import torch

    if not torch.cuda.is_available():
        return callable(raw_stream)
    return raw_stream(torch.cuda.current_device()) == torch.cuda.current_stream().cuda_stream


@_probes('torch._C: "synchronizing CUDA operation"')
def _sync_error(module: Any) -> object:
    libraries = Path(module.__file__).parent.glob("lib/libc10_*.so")
    return any(b"synchronizing CUDA operation" in library.read_bytes() for library in libraries)


@_probes("torch.cuda.graphs.graph.__enter__", "torch.cuda.graphs.graph.__exit__")
def _graph_block(method: Any) -> object:
    return _takes(method, "self") and len(inspect.signature(method).parameters) in (1, 2, 4)


@_probes("torch.cuda.graphs.graph.stream_ctx")
def _stream_context(graph: Any) -> object:
    return "self.stream_ctx" in inspect.getsource(graph)


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

    return isinstance(inductor._is_dirty, bool)


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


@_probes("torch._inductor.compile_fx.create_compiler_config_extra")
def _config_extra(create: Any) -> object:
    source = inspect.getsource(create)
    return "cudagraphs" in source and hasattr(_read_extra(create).cudagraphs, "value")


def _read_extra(create: Any) -> Any:
    import torch
    import torch._inductor.config as inductor

    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    arguments: dict[str, Any] = {"config": inductor, "gm": graph}
    return create(*(arguments.get(name) for name in inspect.signature(create).parameters))


@_probes("torch._inductor.cudagraph_trees.cudagraphify_impl")
def _cudagraphify(cudagraphify: Any) -> object:
    return _takes(cudagraphify, "model", "inputs", "static_input_idxs")


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


@cache
def _observed() -> _Seen:
    import torch

    from rocsolid.torchapi.dynamo.compile_events import subscribe

    def broken(x: Any, n: int) -> Any:
        y = x.sin() * n
        torch._dynamo.graph_break()
        return y + 1

    events: list[Any] = []
    torch._dynamo.reset()
    unsubscribe = subscribe(events.append)
    try:
        with torch._inductor.config.patch(force_disable_caches=False):
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
    )


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
def _lowered(initialise: Any) -> object:
    return _takes(initialise, "self", "gm")  # a graph from the cache is not lowered


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
def _instruction(translator: Any) -> object:
    from torch._dynamo.bytecode_transformation import Instruction

    return "positions" in Instruction.__dataclass_fields__ and "current_instruction" in inspect.getsource(translator)


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
def _bisector(bisector: Any) -> object:
    return _takes(bisector.disable_subsystem, "backend", "subsystem", "debug_info") and not bisector.bisection_enabled


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
    return _saved_traces()


@cache
def _saved_traces() -> bool:
    """Return whether the traces of a function can be saved."""
    import tempfile

    import torch

    from rocsolid.torchapi.dynamo.precompile import saving_traces, take_traces

    torch._dynamo.reset()
    with tempfile.TemporaryDirectory() as folder:
        with saving_traces(_saved_function, Path(folder), {}):
            torch.compile(_saved_function)(torch.ones(1))
        traces = take_traces()
    torch._dynamo.reset()
    return len(traces) == 1


def _saved_function(x: Any) -> Any:
    return x + 1


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


@_probes("torch._inductor.compile_fx.compile_fx")
def _compile_fx(compile_fx: Any) -> object:
    return _takes(compile_fx, "model_", "example_inputs_")


@_probes("torch._inductor.async_compile.maybe_warm_pool")
def _warm_pool(warm_pool: Any) -> object:
    return not [p for p in inspect.signature(warm_pool).parameters.values() if p.default is inspect.Parameter.empty]


@_probes("torch._inductor.graph.GraphLowering.compile_to_module")
def _compile_to_module(method: Any) -> object:
    from torch._inductor.graph import GraphLowering

    needed = ("is_backward", "is_inference", "graph_outputs", "device_node_mapping", "operations", "partition_maps")
    source = inspect.getsource(GraphLowering)
    return _takes(method, "self") and callable(GraphLowering.codegen) and all(f"self.{n}" in source for n in needed)


@_probes(
    "torch._inductor.output_code.cudagraph_post_compile",
    "torch._inductor.output_code.cudagraph_partition_post_compile",
)
def _cudagraph_post_compile(function: Any) -> object:
    return _takes(function, "example_inputs", "compiled_graph")


@_probes("torch._inductor.codegen.triton.TritonScheduling.define_kernel")
def _define_kernel(function: Any) -> object:
    return _takes(function, "self", "src_code", "node_schedule")


@_probes("torch._inductor.codegen.wrapper.PythonWrapperCodegen.define_user_defined_triton_kernel")
def _define_user_kernel(function: Any) -> object:
    return _takes(function, "self", "kernel")


@_probes("torch._inductor.ir.ExternKernel")
def _extern_kernel(kind: Any) -> object:
    from torch._inductor import ir

    return issubclass(ir.ExternKernelOut, kind) and hasattr(kind, "get_origins")


@_probes("torch._inductor.utils.get_first_incompatible_cudagraph_node")
def _unsafe_node(find: Any) -> object:
    import torch

    safe = torch.fx.symbolic_trace(lambda x: x + 1)
    unsafe = torch.fx.Graph()
    unsafe.call_function(torch.ops.aten._fused_moving_avg_obs_fq_helper.default, (unsafe.placeholder("x"),))
    return find(safe) is None and find(torch.fx.GraphModule({}, unsafe)) is not None


@_probes("torch._inductor.select_algorithm.TritonTemplateCaller")
def _template(kind: Any) -> object:
    return "bmreq" in inspect.signature(kind.__init__).parameters


@_probes("torch._inductor.select_algorithm.AlgorithmSelectorCache.do_autotuning")
def _autotuning(function: Any) -> object:
    parameters = list(inspect.signature(function).parameters)
    return parameters[:3] == ["self", "name", "input_nodes"] and parameters.index("choices") == 6  # noqa: PLR2004 - args[3]


@_probes("torch._inductor.codecache.PyCodeCache.load", "torch._inductor.codecache.PyCodeCache.load_by_key_path")
def _code_cache(_: Any) -> object:
    from torch._inductor.codecache import PyCodeCache

    key, path = PyCodeCache.write("number = 7")
    return PyCodeCache.load("number = 7").number == PyCodeCache.load_by_key_path(key, path).number == 7  # noqa: PLR2004


@_probes("torch._inductor.runtime.triton_heuristics.CachingAutotuner._precompile_config")
def _precompile_config(function: Any) -> object:
    required = [p for p in inspect.signature(function).parameters.values() if p.default is inspect.Parameter.empty]
    return len(required) == 2  # noqa: PLR2004 - self and the configuration


@_probes("torch._inductor.runtime.triton_heuristics.GridExpr")
def _grid(grid: Any) -> object:
    return hasattr(grid, "from_meta") and {"x_grid", "y_grid", "z_grid", "prefix"} <= grid.__dataclass_fields__.keys()


@_probes("torch._dynamo.utils.graph_break_reasons")
def _break_reasons(reasons: Any) -> object:
    from torch._dynamo.output_graph import GraphCompileReason

    return isinstance(reasons, list) and {"reason", "user_stack"} <= GraphCompileReason.__dataclass_fields__.keys()


# The pretended GPU of a dry run.


@_probes("torch._subclasses.fake_tensor.FakeTensorMode.avoid_device_init", "torch._subclasses.fake_tensor.FakeTensor")
def _fake_mode(_: Any) -> object:
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode() as mode:
        x = torch.ones(2, 3)
    return isinstance(x, FakeTensor) and tuple(x.shape) == (2, 3) and isinstance(mode.avoid_device_init, bool)


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


@_probes("triton.runtime.autotuner.Autotuner.check_disk_cache")
def _check_disk_cache(function: Any) -> object:
    return len(inspect.signature(function).parameters) == 4  # noqa: PLR2004 - self, key, configurations, benchmark


@_probes("triton.runtime.interpreter.InterpretedFunction")
def _interpreted_function(kind: Any) -> object:
    return {"grid", "warmup"} <= set(inspect.signature(kind.run).parameters)


@_probes("triton.runtime.interpreter._patch_lang")
def _patch_language(function: Any) -> object:
    import triton.language as tl

    before = tl.load
    scope = function(eval("lambda: 0", {"tl": tl}))  # noqa: S307 - a function whose globals have triton.language
    patched = tl.load is not before
    scope.restore()
    return patched and tl.load is before


@_probes("torch._inductor.runtime.triton_helpers.set_driver_to_gpu")
def _set_driver(function: Any) -> object:
    return not inspect.signature(function).parameters


@_probes("torch._inductor.fx_passes.pad_mm.should_pad")
def _should_pad(function: Any) -> object:
    return callable(function) and bool(inspect.signature(function).parameters)


@_probes("torch._inductor.runtime.benchmarking.benchmarker.benchmark_gpu")
def _benchmark(_: Any) -> object:
    from torch._inductor.runtime.benchmarking import benchmarker

    return callable(benchmarker.benchmark)


@_probes("torch.nn.Module._apply")
def _convert(_: Any) -> object:
    import torch

    seen = []

    def record(x: Any) -> Any:
        seen.append(x)
        return x

    torch.nn.Linear(1, 1)._apply(record)
    return len(seen) >= 2  # noqa: PLR2004 - weight and bias
