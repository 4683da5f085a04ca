"""What graph capture and torch.compile do to each other: all but two need a GPU, and torch 2.10 to 2.13."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from facts.declare import Seen, chain_of, error_of, fact, kind_of

GPU = ("gpu",)
SMALL = 8  # so small that no Triton kernel has a second candidate to time inside a capture


@fact(
    "On a CPU build is_current_stream_capturing, graph_pool_handle and CUDAGraph all raised RuntimeError.",
    expect={
        "is_current_stream_capturing": "RuntimeError",
        "graph_pool_handle": "RuntimeError",
        "CUDAGraph": "RuntimeError",
    },
    cpu_build=True,
)
def cpu_capture_queries() -> Seen:
    """Ask about captures where there is no device."""
    import torch

    names = ("is_current_stream_capturing", "graph_pool_handle", "CUDAGraph")
    return {name: kind_of(error_of(getattr(torch.cuda, name))) for name in names}


@fact(
    "torch.cuda.graph_pool_handle and torch.cuda.graphs.graph_pool_handle are one object.",
    expect={"same": True},
    kinds=("cpu", "gpu"),
)
def graph_pool_handle_same() -> Seen:
    """Compare the two names."""
    import torch

    return {"same": torch.cuda.graph_pool_handle is torch.cuda.graphs.graph_pool_handle}


def layer() -> tuple[Any, Any]:
    """A layer that is one matmul forward and one backward, and an input for it, on the device."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Linear(SMALL, SMALL, bias=False, device="cuda"), torch.randn(SMALL, SMALL, device="cuda")


def captured(call: Any) -> tuple[Any, Any]:
    """One call in one graph, captured as the guides do it: the graph, and its output."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = call()
    return graph, output


def compiles() -> int:
    """How many graphs Dynamo has handed to a backend in this process."""
    import torch._dynamo.utils

    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


@contextmanager
def counted_captures() -> Iterator[list[Any]]:
    """Collect every graph on which a capture begins, whoever begins it."""
    import torch

    graphs: list[Any] = []
    begin = torch.cuda.CUDAGraph.capture_begin

    def counted(graph: Any, *args: Any, **kwargs: Any) -> None:
        graphs.append(graph)
        begin(graph, *args, **kwargs)

    torch.cuda.CUDAGraph.capture_begin = counted
    try:
        yield graphs
    finally:
        torch.cuda.CUDAGraph.capture_begin = begin


def captures_of(**arguments: object) -> int:
    """How many captures begin while a function compiled with these arguments is called four times."""
    import torch

    torch._dynamo.reset()
    x = torch.ones(SMALL, device="cuda")
    with torch.no_grad(), counted_captures() as graphs:
        compiled = torch.compile(lambda x: x.sin() + 1, **arguments)
        for _ in range(4):
            compiled(x)
        torch.cuda.synchronize()
    return len(graphs)


@fact(
    'A first compile inside a capture raised {kind}: "{cause}".',
    expect={"raised": True, "names_the_capture": True},
    kinds=GPU,
)
def capture_first_compile() -> Seen:
    """Capture a compiled layer that was never called."""
    import torch

    linear, x = layer()
    compiled = torch.compile(torch.nn.Sequential(linear, torch.nn.ReLU()))
    with torch.no_grad():
        error = error_of(lambda: captured(lambda: compiled(x)))
    texts = [str(one) for one in chain_of(error)]
    lines = [line.strip() for text in reversed(texts) for line in text.splitlines() if "captur" in line.lower()]
    return {
        "raised": error is not None,
        "kind": kind_of(error),
        "chain": [kind_of(one) for one in chain_of(error)],
        "names_the_capture": bool(lines),
        "cause": lines[0][:300] if lines else "",
        "text": texts[0][:600] if texts else "",
    }


@fact(
    "Warmed up under no_grad and captured with gradients on, the layer was compiled {compiles_in_capture} more time "
    "inside the capture, without an error or a warning about it; the replay agreed with eager.",
    expect={"compiles_in_warm_up": 1, "compiles_in_capture": 1, "warned": False, "replay_agrees": True},
    kinds=GPU,
)
def capture_silent_recompile() -> Seen:
    """Warm up under no_grad, capture without it, and count compiles."""
    import warnings

    import torch

    model, x = layer()
    compiled = torch.compile(model)
    with torch.no_grad():
        compiled(x)
    torch.cuda.synchronize()
    warm = compiles()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graph, output = captured(lambda: compiled(x))
    inside = compiles() - warm
    graph.replay()
    torch.cuda.synchronize()
    texts = [str(warning.message)[:200] for warning in caught]
    return {
        "compiles_in_warm_up": warm,
        "compiles_in_capture": inside,
        "warned": any("compil" in text.lower() or "captur" in text.lower() for text in texts),
        "warnings": texts,
        "replay_agrees": torch.allclose(output.detach(), model(x).detach(), atol=1e-2),
    }


@fact(
    "With triton.cudagraphs=False assigned, mode default began no capture, reduce-overhead {reduce_overhead} and "
    "max-autotune {max_autotune} (the first use of Inductor's graph trees adds an empty one).",
    expect={"default": 0, "reduce_overhead_captures": True, "max_autotune_captures": True},
    kinds=GPU,
)
def capture_modes_over_config() -> Seen:
    """Assign the setting that should keep graphs off, and count captures under each mode."""
    import torch._inductor.config as inductor

    inductor.triton.cudagraphs = False
    counts = {mode: captures_of(mode=mode) for mode in ("default", "reduce-overhead", "max-autotune")}
    return {
        "default": counts["default"],
        "reduce_overhead": counts["reduce-overhead"],
        "max_autotune": counts["max-autotune"],
        "reduce_overhead_captures": counts["reduce-overhead"] > 0,
        "max_autotune_captures": counts["max-autotune"] > 0,
    }


@fact(
    "With triton.cudagraph_trees=False, mode reduce-overhead still began {captures} capture, made by the older "
    "cudagraphify_impl of compile_fx.",
    expect={"captures": 1, "legacy_calls": 1},
    kinds=GPU,
)
def capture_trees_legacy() -> Seen:
    """Switch the trees off and count captures, and calls of the code that came before the trees."""
    import torch._inductor.config as inductor
    from torch._inductor import compile_fx

    inductor.triton.cudagraph_trees = False
    calls = 0
    legacy = compile_fx.cudagraphify_impl

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return legacy(*args, **kwargs)

    compile_fx.cudagraphify_impl = counted
    return {"captures": captures_of(mode="reduce-overhead"), "legacy_calls": calls}


@fact(
    "torch.cuda.get_rng_state and set_rng_state both succeeded inside a capture, and the graph replayed.",
    expect={"get_error": "", "set_error": "", "replayed": [2.0]},
    kinds=GPU,
)
def rng_in_capture() -> Seen:
    """Read and write the generator's state during a capture."""
    import torch

    x = torch.zeros(1, device="cuda")
    errors: dict[str, str] = {}

    def body() -> Any:
        saved: list[Any] = []
        errors["get_error"] = str(error_of(lambda: saved.append(torch.cuda.get_rng_state())) or "")
        errors["set_error"] = str(error_of(lambda: torch.cuda.set_rng_state(saved[0])) or "") if saved else "not tried"
        return x + 2

    x + 2  # the kernel is loaded before the capture
    graph, output = captured(body)
    graph.replay()
    torch.cuda.synchronize()
    return errors | {"replayed": output.tolist()}


@fact(
    "After a capture that failed on torch.cuda.synchronize(), torch.cuda.current_stream() was still the capture "
    "stream.",
    expect={"error": True, "same_as_before": False, "is_capture_stream": True},
    kinds=GPU,
)
def capture_failed_stream() -> Seen:
    """Let a capture fail and look which stream is current."""
    import torch

    x, side = torch.ones(SMALL, device="cuda"), torch.cuda.Stream()
    before = torch.cuda.current_stream()
    x.add(1)  # the kernel is loaded before the capture

    def fail() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=side):
            x.add(1)
            torch.cuda.synchronize()

    error = error_of(fail)
    after = torch.cuda.current_stream()
    return {
        "error": error is not None,
        "message": str(error).strip().splitlines()[0][:300],
        "same_as_before": after == before,
        "is_capture_stream": after == side,
    }


@fact(
    'A capture that read a value with .item() surfaced "{surfaced}"; the first error, "{first}", was in its '
    "__context__.",
    expect={"error": True, "has_context": True, "surfaced_differs": True},
    kinds=GPU,
)
def capture_failed_message() -> Seen:
    """Let a capture fail on a read and compare the error that surfaces with the first one."""
    import torch

    x = torch.ones(SMALL, device="cuda")
    x.sum().item()  # the kernel is loaded before the capture
    error = error_of(lambda: captured(lambda: x.sum().item()))
    context = error.__context__ if error else None
    surfaced, first = (str(one).strip().splitlines()[0][:300] if one else "" for one in (error, context))
    return {
        "error": error is not None,
        "kind": kind_of(error),
        "surfaced": surfaced,
        "has_context": context is not None,
        "context_kind": kind_of(context),
        "first": first,
        "surfaced_differs": surfaced != first,
    }
