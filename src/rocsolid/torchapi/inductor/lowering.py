"""Records the graphs that Inductor lowers; nothing is compiled or run.

Use it only in child processes that called `pretend_device`: the patches made here are not undone.
"""

import ast
import contextlib
import re
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from rocsolid.torchapi.config import modes
from rocsolid.torchapi.private_api import private_name

_GRAPH = private_name(
    "torch._inductor.graph", "GraphLowering.compile_to_module", "2.11..", without="rocsolid dryrun: does not run"
)
_NO_CUDAGRAPHS = 'rocsolid dryrun: mode="reduce-overhead" is traced like mode="default"'
_CUDAGRAPHS = private_name("torch._inductor.output_code", "cudagraph_post_compile", "2.11..", without=_NO_CUDAGRAPHS)
_PARTITIONS = private_name(
    "torch._inductor.output_code", "cudagraph_partition_post_compile", "2.11..", without=_NO_CUDAGRAPHS
)
_DEFINE = private_name(
    "torch._inductor.codegen.triton",
    "TritonScheduling.define_kernel",
    "2.11..",
    without="rocsolid dryrun: kernels are listed without the user's lines",
)
_DEFINE_USER = private_name(
    "torch._inductor.codegen.wrapper",
    "PythonWrapperCodegen.define_user_defined_triton_kernel",
    "2.11..",
    without="rocsolid dryrun: the user's own Triton kernels are listed without their lines",
)
_EXTERN_KERNEL = private_name(
    "torch._inductor.ir", "ExternKernel", "2.11..", without="rocsolid dryrun: calls of libraries are not listed"
)
_UNSAFE_NODE = private_name(
    "torch._inductor.utils",
    "get_first_incompatible_cudagraph_node",
    "2.11..",
    without="rocsolid dryrun: operators that torch never captures are not named",
)
_NO_AUTOTUNING = "rocsolid dryrun: max_autotune is not traced (in a compile, this phase is not named)"
_TEMPLATE = private_name("torch._inductor.select_algorithm", "TritonTemplateCaller", "2.11..", without=_NO_AUTOTUNING)
AUTOTUNING = private_name(
    "torch._inductor.select_algorithm", "AlgorithmSelectorCache.do_autotuning", "2.11..", without=_NO_AUTOTUNING
)
_LOAD = private_name(
    "torch._inductor.codecache", "PyCodeCache.load", "2.11..", without="rocsolid dryrun: kernels are not compiled"
)
LOAD_BY_KEY = private_name(
    "torch._inductor.codecache", "PyCodeCache.load_by_key_path", "2.11..", without=_NO_AUTOTUNING
)
_PRECOMPILE = private_name(
    "torch._inductor.runtime.triton_heuristics",
    "CachingAutotuner._precompile_config",
    "2.11..",
    without="rocsolid dryrun: kernels are not compiled",
)
_GRID = private_name(
    "torch._inductor.runtime.triton_heuristics",
    "GridExpr",
    "2.11..",
    without="rocsolid dryrun: the number of workgroups is unknown",
)
_BREAKS = private_name(
    "torch._dynamo.utils", "graph_break_reasons", "2.11..", without="rocsolid dryrun: graph breaks are not listed"
)

_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH_FOLDER: Final = "/torch/"
_NOT_LIBRARY_CALLS: Final = ("MultiOutput", "UserDefinedTritonKernel", "NopKernel", "ConcatKernel", "DynamicScalar")


@dataclass(kw_only=True)
class LoweredExtern:
    """A call of a library function, and the user's lines that it implements."""

    name: str
    locations: tuple[str, ...]


@dataclass(kw_only=True)
class LoweredGraph:
    """One graph, lowered by Inductor."""

    name: str
    kind: str
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)  # function name and source code, by kernel name
    calls: list[tuple[str, list[str]]] = field(default_factory=list)  # kernel name and the source text of its arguments
    externs: list[LoweredExtern] = field(default_factory=list)
    capture_blockers: list[tuple[str, str]] = field(default_factory=list)  # reason, location
    fp8: list[tuple[str, str]] = field(default_factory=list)  # format, location
    partitions: int = 1
    seconds: float = 0.0


@dataclass(kw_only=True)
class LoweredSearch:
    """The kernels that autotuning would compare for one operation; the Triton kernels among them are loaded on demand."""

    op: str
    shapes: str
    names: list[str]
    tuners: list[tuple[str, Callable[[], Any]]]  # name of each Triton kernel, and a function that loads it


@dataclass(kw_only=True)
class LoweringRecord:
    """Everything that was recorded in this process."""

    graphs: list[LoweredGraph] = field(default_factory=list)
    searches: list[LoweredSearch] = field(default_factory=list)
    locations: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by kernel name
    user_kernels: dict[str, str] = field(default_factory=dict)  # file:line by kernel name
    user_functions: dict[str, Any] = field(default_factory=dict)  # the user's kernel object by kernel name


def record_lowering(on_graph: Callable[[Any], None]) -> LoweringRecord:
    """Patch Inductor so that graphs are recorded and not compiled; return the record, to which each lowered graph is added.

    `on_graph` is called with the FX module of each graph.
    """
    record = LoweringRecord()
    _GRAPH.get()  # raises UnsupportedTorchError if this torch does not have it

    def compile_to_module(lowering: Any) -> Any:
        graph, outputs = _read_lowering(lowering, len(record.graphs))
        record.graphs.append(graph)
        on_graph(lowering.module)
        return SimpleNamespace(call=_make_call(outputs), __file__=f"{graph.name}.py")

    def no_graphs(*_: Any, **__: Any) -> None:
        """Capture nothing: whether a graph can be captured is derived from its operations."""

    _GRAPH.patch(lambda _: compile_to_module)
    _CUDAGRAPHS.patch(lambda _: no_graphs)
    _PARTITIONS.patch(lambda _: no_graphs)
    _record_definitions(record)
    _replace_autotuning(record)
    return record


def compile_options(mode: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for `torch.compile`: those that the mode sets, and the given ones."""
    chosen = {**modes.mode_options(mode, dynamic=None), **options}
    if not all(name.find() is not None for name in (_CUDAGRAPHS, _PARTITIONS)):  # torch would capture
        chosen.pop("triton.cudagraphs", None)
    return chosen


def load_kernel(function: str, source: str) -> Any:
    """Return the autotuner object of a generated kernel, with the configurations that it would try."""
    _PRECOMPILE.get()  # here, because the processes that compile report errors by kernel only
    return getattr(_LOAD.get()(source), function)


def constants_of(tuner: Any) -> dict[str, Any]:
    """Return block sizes and other constants that are the same in every configuration, as in user-written kernels."""
    constants = tuner.triton_meta.get("constants", {})
    return {str(k): v for k, v in constants.items() if isinstance(k, str) and isinstance(v, (bool, int, float, str))}


def grid_of(tuner: Any, config: Any, call: list[str]) -> tuple[int, ...]:
    """Return the grid of a launch (workgroups per axis); empty if it depends on values that are known only at run time."""
    names = [name for name, kind in tuner.triton_meta["signature"].items() if kind != "constexpr"]
    values: dict[str, Any] = dict(config.kwargs)
    for name, text in zip(names, call, strict=False):
        with contextlib.suppress(ValueError, SyntaxError):
            values[name] = ast.literal_eval(text)
    # For user-written kernels, the grid follows the arguments in the call.
    for axis_index, text in enumerate(call[len(names) :]):
        with contextlib.suppress(ValueError, SyntaxError):
            values[f"_grid_{axis_index}"] = ast.literal_eval(text)
    grid_expression = _GRID.find()
    if grid_expression is None:
        return ()
    try:
        expression = grid_expression.from_meta(tuner.inductor_meta, config)
        for line in expression.prefix:
            target, _, text = line.partition(" = ")
            values[target] = eval(text, {"max": max, "min": min}, values)  # noqa: S307 - Inductor's own arithmetic
        axes = (expression.x_grid, expression.y_grid, expression.z_grid)
        grid = [int(eval(str(axis), {"max": max, "min": min}, values)) for axis in axes]  # noqa: S307 - as above
    except (NameError, TypeError, ValueError, KeyError, AttributeError, SyntaxError, NotImplementedError):
        return ()
    while len(grid) > 1 and grid[-1] == 1:
        grid.pop()
    return tuple(grid)


def compile_config(tuner: Any, config: Any) -> Any:
    """Compile one configuration; return Triton's compiled kernel."""
    return _PRECOMPILE.get()(tuner, config).kernel


def graph_breaks() -> Iterator[tuple[str, str]]:
    """Yield the reason and the user's `file:line` of every graph break so far."""
    for graph_break in _BREAKS.find() or ():
        frames = [f for f in graph_break.user_stack if _TORCH_FOLDER not in f.filename]
        location = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        yield str(graph_break.reason).strip().partition("\n")[0], location


def _read_lowering(lowering: Any, index: int) -> tuple[LoweredGraph, list[Any]]:
    started = time.monotonic()
    wrapper, _ = lowering.codegen()
    code = wrapper.value
    kind = "backward" if lowering.is_backward else "inference" if lowering.is_inference else "forward"
    graph = LoweredGraph(name=f"graph {index}", kind=kind)
    tree = ast.parse(code)
    graph.sources = dict(_kernels(tree))
    graph.calls = list(_launches(tree, graph.sources))
    graph.externs = list(_externs(lowering))
    graph.capture_blockers = list(_capture_blockers(lowering))
    graph.fp8 = list(_fp8_formats(lowering))
    graph.partitions = max(1, len(lowering.partition_maps or []))
    outputs = [_output(value, lowering.sizevars) for value in lowering.graph_outputs]
    graph.seconds = time.monotonic() - started
    return graph, outputs


def _kernels(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield every `kernel = async_compile.triton(function, source)` in the generated wrapper code."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if ast.unparse(node.value.func) == "async_compile.triton" and isinstance(node.targets[0], ast.Name):
            function, source = (ast.literal_eval(argument) for argument in node.value.args[:2])
            yield node.targets[0].id, (function, source)


def _launches(tree: ast.Module, sources: Container[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield every `kernel.run(...)` in the generated wrapper code, in order."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "run":
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in sources:
                yield owner.id, [ast.unparse(argument) for argument in node.args]


def _externs(lowering: Any) -> Iterator[LoweredExtern]:
    kind = _EXTERN_KERNEL.find() or ()
    for operation in lowering.operations:
        if not isinstance(operation, kind) or any(c.__name__ in _NOT_LIBRARY_CALLS for c in type(operation).__mro__):
            continue
        name = str(getattr(operation, "python_kernel_name", None) or getattr(operation, "op_overload", None) or "")
        name = name.removeprefix("torch.ops.").removeprefix("extern_kernels.")
        # The origins include operations that compute the inputs; `origin_node`, or the node that calls the operator, is the call itself.
        origin_node, origins = getattr(operation, "origin_node", None), operation.get_origins()
        own = [node for node in origins if node.target is getattr(operation, "op_overload", None)]
        nodes = [origin_node] if origin_node is not None else own or origins
        yield LoweredExtern(name=name or type(operation).__name__, locations=_user_locations(nodes))


def _capture_blockers(lowering: Any) -> Iterator[tuple[str, str]]:
    """Yield operations that torch never captures in a CUDA graph: reason and location."""
    find_unsafe_node = _UNSAFE_NODE.find()
    node = None
    with contextlib.suppress(AssertionError):  # torch 2.12 cannot read the result of a user's Triton kernel here
        node = find_unsafe_node(lowering.module) if find_unsafe_node is not None else None
    if node is not None:
        yield f"{node.target} cannot be captured", next(iter(_user_locations([node])), "")
    for device, used_by in lowering.device_node_mapping.items():
        if device.type == "cpu":
            yield f"{used_by.name} is on the CPU", next(iter(_user_locations([used_by, *used_by.users])), "")
    reason = lowering.disable_cudagraphs_reason
    if reason and node is None:
        first = str(reason).strip().partition("\n")[0]
        frames = _FRAME.findall(str(reason))
        yield first, f"{frames[-1][0]}:{frames[-1][1]}" if frames else ""


def _fp8_formats(lowering: Any) -> Iterator[tuple[str, str]]:
    reported = set()
    for node in lowering.module.graph.nodes:
        name = str(getattr(node.meta.get("val"), "dtype", "")).removeprefix("torch.")
        if name.startswith("float8") and name not in reported:
            locations = _user_locations([node, *node.users])
            if locations:
                reported.add(name)
                yield name, locations[0]


def _output(value: Any, sizevars: Any) -> Any:
    """Return shape, strides, dtype and device of an output; for an output that is not a tensor, its number or None."""
    try:
        return (
            _sizes(value.get_size(), sizevars),
            _sizes(value.get_stride(), sizevars),
            value.get_dtype(),
            value.get_device(),
        )
    except (AttributeError, NotImplementedError):
        return int(value.expr) if hasattr(value, "expr") else None


def _sizes(sizes: Any, sizevars: Any) -> tuple[int, ...]:
    hint = getattr(sizevars, "optimization_hint", None) or sizevars.size_hint  # renamed in torch 2.12
    return tuple(size if isinstance(size, int) else int(hint(size)) for size in sizes)


def _make_call(outputs: list[Any]) -> Callable[[list[Any]], Any]:
    def call(args: list[Any]) -> Any:
        import torch

        args.clear()
        return tuple(
            torch.empty_strided(o[0], o[1], dtype=o[2], device=o[3]) if isinstance(o, tuple) else o for o in outputs
        )

    return call


def _record_definitions(record: LoweringRecord) -> None:
    """Record which lines of the model each kernel implements."""
    define, define_user = _DEFINE.find(), _DEFINE_USER.find()

    def define_kernel(scheduling: Any, src_code: str, node_schedule: Any, *args: Any, **kwargs: Any) -> Any:
        name = define(scheduling, src_code, node_schedule, *args, **kwargs)
        inner = [getattr(item, "node", None) for item in node_schedule] if isinstance(node_schedule, list) else []
        origins = [origin for node in inner if node is not None for origin in node.get_origins()]
        record.locations[name] = tuple(dict.fromkeys((*record.locations.get(name, ()), *_user_locations(origins))))
        return name

    def define_user_kernel(wrapper: Any, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        definition = define_user(wrapper, kernel, *args, **kwargs)
        name = definition[0]
        record.user_functions[str(name)] = kernel
        function = getattr(kernel, "fn", kernel)
        with contextlib.suppress(AttributeError):
            code = getattr(function, "fn", function).__code__
            record.user_kernels[str(name)] = f"{code.co_filename}:{code.co_firstlineno}"
        return definition

    _DEFINE.patch(lambda _: define_kernel)
    _DEFINE_USER.patch(lambda _: define_user_kernel)


def _replace_autotuning(record: LoweringRecord) -> None:
    """Replace autotuning, which would need a GPU: record its choices, and report a shorter time for library calls, so that they are chosen."""
    template = _TEMPLATE.find() or ()

    def do_autotuning(_: Any, name: str, input_nodes: Any, *args: Any, **kwargs: Any) -> dict[Any, float]:
        choices = kwargs["choices"] if "choices" in kwargs else args[3]
        shapes = " × ".join(f"{str(n.get_dtype()).removeprefix('torch.')}{list(n.get_size())}" for n in input_nodes)
        tuners = [(c.name, _template_loader(c)) for c in choices if isinstance(c, template)]
        record.searches.append(LoweredSearch(op=name, shapes=shapes, names=[c.name for c in choices], tuners=tuners))
        return {c: 2.0 if isinstance(c, template) else 1.0 for c in choices}

    AUTOTUNING.patch(lambda _: do_autotuning)


def _template_loader(choice: Any) -> Callable[[], Any]:
    def load() -> Any:
        request = choice.bmreq
        module = LOAD_BY_KEY.get()(request.module_cache_key, request.module_path)
        return getattr(module, request.kernel_name)

    return load


def _user_locations(nodes: Any) -> tuple[str, ...]:
    """Return the user's lines that graph nodes come from, sorted by file and line."""
    lines: set[tuple[str, int]] = set()
    for node in nodes:
        frames = _FRAME.findall(str(getattr(node, "stack_trace", None) or node.meta.get("stack_trace") or ""))
        user_lines = [
            (file, int(line)) for file, line in frames if _TORCH_FOLDER not in file and Path(file).suffix == ".py"
        ]
        if user_lines:
            lines.add(user_lines[-1])
    return tuple(f"{file}:{line}" for file, line in sorted(lines))
