"""Watches Inductor lower graphs, and takes its result before anything is compiled or run.

For processes in which `pretend` was called: what is replaced here stays replaced.
"""

import ast
import contextlib
import re
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from rocsolid.torchapi.private_api import door

_GRAPH = door("torch._inductor.graph", "GraphLowering.compile_to_module", "2.9..")
_CUDAGRAPHS = door("torch._inductor.output_code", "cudagraph_post_compile", "2.9..")
_PARTITIONS = door("torch._inductor.output_code", "cudagraph_partition_post_compile", "2.9..")
_DEFINE = door("torch._inductor.codegen.triton", "TritonScheduling.define_kernel", "2.9..")
_DEFINE_USER = door(
    "torch._inductor.codegen.wrapper", "PythonWrapperCodegen.define_user_defined_triton_kernel", "2.9.."
)
_EXTERN = door("torch._inductor.ir", "ExternKernel", "2.9..")
_UNSAFE_NODE = door("torch._inductor.utils", "get_first_incompatible_cudagraph_node", "2.9..")
_TEMPLATE = door("torch._inductor.select_algorithm", "TritonTemplateCaller", "2.9..")
_AUTOTUNING = door("torch._inductor.select_algorithm", "AlgorithmSelectorCache.do_autotuning", "2.10..")
_LOAD = door("torch._inductor.codecache", "PyCodeCache.load", "2.9..")
_LOAD_BY_KEY = door("torch._inductor.codecache", "PyCodeCache.load_by_key_path", "2.9..")
_MODE_OPTIONS = door("torch._inductor", "list_mode_options", "2.9..")
_PRECOMPILE = door("torch._inductor.runtime.triton_heuristics", "CachingAutotuner._precompile_config", "2.9..")
_GRID = door("torch._inductor.runtime.triton_heuristics", "GridExpr", "2.9..")
_BREAKS = door("torch._dynamo.utils", "graph_break_reasons", "2.9..")

_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH: Final = "/torch/"
_NO_CALL: Final = ("MultiOutput", "UserDefinedTritonKernel", "NopKernel", "ConcatKernel", "DynamicScalar")


@dataclass(kw_only=True)
class LoweredExtern:
    """A call into a library, and the lines it stands for."""

    name: str
    places: tuple[str, ...]


@dataclass(kw_only=True)
class LoweredGraph:
    """What Inductor made of one graph."""

    name: str
    kind: str
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)  # function's name and source, by kernel name
    calls: list[tuple[str, list[str]]] = field(default_factory=list)  # kernel and the text of its arguments
    externs: list[LoweredExtern] = field(default_factory=list)
    unfit: list[tuple[str, str]] = field(default_factory=list)  # reason, place
    fp8: list[tuple[str, str]] = field(default_factory=list)  # format, place
    partitions: int = 1
    seconds: float = 0.0


@dataclass(kw_only=True)
class LoweredSearch:
    """What autotuning would try for one operation: kernels to load lazily, and how many there are."""

    op: str
    shapes: str
    names: list[str]
    tuners: list[tuple[str, Callable[[], Any]]]


@dataclass(kw_only=True)
class Watch:
    """Everything seen so far."""

    graphs: list[LoweredGraph] = field(default_factory=list)
    searches: list[LoweredSearch] = field(default_factory=list)
    places: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by kernel name
    user_kernels: dict[str, str] = field(default_factory=dict)  # file:line by kernel name


def watch_lowering() -> Watch:
    """Replace what would compile and run; returns the list that fills as graphs are lowered."""
    from torch._inductor import output_code
    from torch._inductor.graph import GraphLowering

    watch = Watch()
    for entry in (_GRAPH, _CUDAGRAPHS, _PARTITIONS, _DEFINE, _DEFINE_USER, _EXTERN):
        entry.reach()

    def compile_to_module(lowering: Any) -> Any:
        graph, outputs = _lowered(lowering, len(watch.graphs))
        watch.graphs.append(graph)
        return SimpleNamespace(call=_answer(outputs), __file__=f"{graph.name}.py")

    def no_graphs(*_: Any, **__: Any) -> None:
        """Captures are judged from the graph, never made."""

    GraphLowering.compile_to_module = compile_to_module
    output_code.cudagraph_post_compile = no_graphs
    output_code.cudagraph_partition_post_compile = no_graphs
    _watch_definitions(watch)
    _replace_search(watch)
    return watch


def mode_options(mode: str) -> dict[str, Any]:
    """The options that a mode of torch.compile stands for."""
    return {} if mode == "default" else dict(_MODE_OPTIONS.reach()(mode))


def load_kernel(function: str, source: str) -> Any:
    """The autotuner around a generated kernel, with the configurations it would try."""
    return getattr(_LOAD.reach()(source), function)


def constants_of(tuner: Any) -> dict[str, Any]:
    """Block sizes and other constants that are fixed for every configuration, as they are in user-written kernels."""
    kept = tuner.triton_meta.get("constants", {})
    return {str(k): v for k, v in kept.items() if isinstance(k, str) and isinstance(v, (bool, int, float, str))}


def grid_of(tuner: Any, config: Any, call: list[str]) -> tuple[int, ...]:
    """How many workgroups a launch starts; empty where that depends on what is not known before the run."""
    names = [name for name, kind in tuner.triton_meta["signature"].items() if kind != "constexpr"]
    values: dict[str, Any] = dict(config.kwargs)
    for name, text in zip(names, call, strict=False):
        with contextlib.suppress(ValueError, SyntaxError):
            values[name] = ast.literal_eval(text)
    # Grids of user-written kernels are passed along after the arguments.
    for number, text in enumerate(call[len(names) :]):
        with contextlib.suppress(ValueError, SyntaxError):
            values[f"_grid_{number}"] = ast.literal_eval(text)
    try:
        expression = _GRID.reach().from_meta(tuner.inductor_meta, config)
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
    """Compile one configuration; returns Triton's compiled kernel."""
    return _PRECOMPILE.reach()(tuner, config).kernel


def graph_breaks() -> Iterator[tuple[str, str]]:
    """Reason and place of every graph break so far."""
    for seen in _BREAKS.reach():
        frames = [f for f in seen.user_stack if _TORCH not in f.filename]
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        yield str(seen.reason).strip().partition("\n")[0], place


def _lowered(lowering: Any, number: int) -> tuple[LoweredGraph, list[Any]]:
    started = time.monotonic()
    wrapper, _ = lowering.codegen()
    code = wrapper.value
    kind = "backward" if lowering.is_backward else "inference" if lowering.is_inference else "forward"
    graph = LoweredGraph(name=f"graph {number}", kind=kind)
    tree = ast.parse(code)
    graph.sources = dict(_kernels(tree))
    graph.calls = list(_launches(tree, graph.sources))
    graph.externs = list(_externs(lowering))
    graph.unfit = list(_unfit(lowering))
    graph.fp8 = list(_fp8(lowering))
    graph.partitions = max(1, len(lowering.partition_maps or []))
    outputs = [_output(value) for value in lowering.graph_outputs]
    graph.seconds = time.monotonic() - started
    return graph, outputs


def _kernels(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    """Every `kernel = async_compile.triton(function, source)` in the wrapper."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if ast.unparse(node.value.func) == "async_compile.triton" and isinstance(node.targets[0], ast.Name):
            function, source = (ast.literal_eval(argument) for argument in node.value.args[:2])
            yield node.targets[0].id, (function, source)


def _launches(tree: ast.Module, sources: Container[str]) -> Iterator[tuple[str, list[str]]]:
    """Every `kernel.run(...)` in the wrapper, in order."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "run":
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in sources:
                yield owner.id, [ast.unparse(argument) for argument in node.args]


def _externs(lowering: Any) -> Iterator[LoweredExtern]:
    kind = _EXTERN.reach()
    for operation in lowering.operations:
        if not isinstance(operation, kind) or any(c.__name__ in _NO_CALL for c in type(operation).__mro__):
            continue
        name = str(getattr(operation, "python_kernel_name", None) or getattr(operation, "op_overload", None) or "")
        name = name.removeprefix("torch.ops.").removeprefix("extern_kernels.")
        # Among the origins are those of what is folded into it; the one that it was made for says its line.
        made_for = getattr(operation, "origin_node", None)
        nodes = [made_for] if made_for is not None else operation.get_origins()
        yield LoweredExtern(name=name or type(operation).__name__, places=_places(nodes))


def _unfit(lowering: Any) -> Iterator[tuple[str, str]]:
    """Operations that torch itself would not capture, whatever the mode asks for."""
    node = _UNSAFE_NODE.reach()(lowering.module)
    if node is not None:
        yield f"{node.target} cannot be captured", next(iter(_places([node])), "")
    for device, used_by in lowering.device_node_mapping.items():
        if device.type == "cpu":
            yield f"{used_by.name} is on the CPU", next(iter(_places([used_by, *used_by.users])), "")
    reason = lowering.disable_cudagraphs_reason
    if reason and node is None:
        first = str(reason).strip().partition("\n")[0]
        frames = _FRAME.findall(str(reason))
        yield first, f"{frames[-1][0]}:{frames[-1][1]}" if frames else ""


def _fp8(lowering: Any) -> Iterator[tuple[str, str]]:
    seen = set()
    for node in lowering.module.graph.nodes:
        name = str(getattr(node.meta.get("val"), "dtype", "")).removeprefix("torch.")
        if name.startswith("float8") and name not in seen:
            places = _places([node, *node.users])
            if places:
                seen.add(name)
                yield name, places[0]


def _output(value: Any) -> Any:
    """Shape, strides, type and device of an output; a plain number where it is no tensor."""
    try:
        return (_sizes(value.get_size()), _sizes(value.get_stride()), value.get_dtype(), value.get_device())
    except (AttributeError, NotImplementedError):
        return int(value.expr) if hasattr(value, "expr") else None


def _sizes(sizes: Any) -> tuple[int, ...]:
    from torch._inductor.virtualized import V

    hint = getattr(V.graph.sizevars, "optimization_hint", None) or V.graph.sizevars.size_hint
    return tuple(size if isinstance(size, int) else int(hint(size)) for size in sizes)


def _answer(outputs: list[Any]) -> Callable[[list[Any]], Any]:
    def call(args: list[Any]) -> Any:
        import torch

        args.clear()
        return tuple(
            torch.empty_strided(o[0], o[1], dtype=o[2], device=o[3]) if isinstance(o, tuple) else o for o in outputs
        )

    return call


def _watch_definitions(watch: Watch) -> None:
    """Remember which lines of the model each kernel stands for."""
    from torch._inductor.codegen.triton import TritonScheduling
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    define, define_user = TritonScheduling.define_kernel, PythonWrapperCodegen.define_user_defined_triton_kernel

    def define_kernel(scheduling: Any, src_code: str, node_schedule: Any, *args: Any, **kwargs: Any) -> Any:
        name = define(scheduling, src_code, node_schedule, *args, **kwargs)
        inner = [getattr(item, "node", None) for item in node_schedule] if isinstance(node_schedule, list) else []
        origins = [origin for node in inner if node is not None for origin in node.get_origins()]
        watch.places[name] = tuple(dict.fromkeys((*watch.places.get(name, ()), *_places(origins))))
        return name

    def define_user_kernel(wrapper: Any, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        made = define_user(wrapper, kernel, *args, **kwargs)
        name = made[0]
        function = getattr(kernel, "fn", kernel)
        with contextlib.suppress(AttributeError):
            code = getattr(function, "fn", function).__code__
            watch.user_kernels[str(name)] = f"{code.co_filename}:{code.co_firstlineno}"
        return made

    TritonScheduling.define_kernel = define_kernel
    PythonWrapperCodegen.define_user_defined_triton_kernel = define_user_kernel


def _replace_search(watch: Watch) -> None:
    """Autotuning would benchmark on the device: keep the list of what it would try, and let the library win."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    _AUTOTUNING.reach()
    template = _TEMPLATE.reach()

    def do_autotuning(_: Any, name: str, input_nodes: Any, *args: Any, **kwargs: Any) -> dict[Any, float]:
        choices = kwargs["choices"] if "choices" in kwargs else args[3]
        shapes = " × ".join(f"{str(n.get_dtype()).removeprefix('torch.')}{list(n.get_size())}" for n in input_nodes)
        tuners = [(c.name, _template_loader(c)) for c in choices if isinstance(c, template)]
        watch.searches.append(LoweredSearch(op=name, shapes=shapes, names=[c.name for c in choices], tuners=tuners))
        return {c: 2.0 if isinstance(c, template) else 1.0 for c in choices}

    AlgorithmSelectorCache.do_autotuning = do_autotuning


def _template_loader(choice: Any) -> Callable[[], Any]:
    def load() -> Any:
        request = choice.bmreq
        module = _LOAD_BY_KEY.reach()(request.module_cache_key, request.module_path)
        return getattr(module, request.kernel_name)

    return load


def _places(nodes: Any) -> tuple[str, ...]:
    """The user's own lines behind nodes of a graph, in the order of the file."""
    found: set[tuple[str, int]] = set()
    for node in nodes:
        frames = _FRAME.findall(str(getattr(node, "stack_trace", None) or node.meta.get("stack_trace") or ""))
        own = [(file, int(line)) for file, line in frames if _TORCH not in file and Path(file).suffix == ".py"]
        if own:
            found.add(own[-1])
    return tuple(f"{file}:{line}" for file, line in sorted(found))
