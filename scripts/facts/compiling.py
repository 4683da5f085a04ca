"""What a compile does: when it happens again, what it keeps and where it stops."""

import sys
from typing import Any

from facts.declare import Counting, Seen, chain_of, error_of, fact, kind_of, watched_compiles


@fact(
    "With recompile_limit 3 and eight shapes, three were compiled, the other five ran eagerly, and the first shape was "
    "still served by its compiled code; under fullgraph the fourth shape raised {fullgraph_error}.",
    expect={
        "compiles": 3,
        "compiled_runs": 3,
        "first_shape_again": 1,
        "fullgraph_compiles": 3,
        "fullgraph_error": "FailOnRecompileLimitHit",
    },
)
def recompile_limit() -> Seen:
    """Call one function with more shapes than the limit allows."""
    import torch

    torch._dynamo.config.recompile_limit = 3
    shapes = range(2, 10)
    backend, strict = Counting(), Counting()
    compiled = torch.compile(lambda x: x * 2, backend=backend, dynamic=False)
    for size in shapes:
        compiled(torch.ones(size))
    runs = backend.runs
    compiled(torch.ones(shapes[0]))
    whole = torch.compile(lambda x: x * 3, backend=strict, dynamic=False, fullgraph=True)
    refusal = torch._dynamo.exc.FailOnRecompileLimitHit
    return {
        "limit": torch._dynamo.config.recompile_limit,
        "shapes": len(shapes),
        "compiles": backend.compiles,
        "compiled_runs": runs,
        "first_shape_again": backend.runs - runs,
        "fullgraph_error": kind_of(error_of(lambda: [whole(torch.ones(size)) for size in shapes], refusal)),
        "fullgraph_compiles": strict.compiles,
    }


@fact(
    "The same call compiled once under no_grad and once more with gradients on; under "
    "set_stance('fail_on_recompile') the second raised {refused}.",
    expect={"compiles_no_grad": 1, "compiles_then_grad": 2, "refused": "RuntimeError"},
)
def grad_mode_recompile() -> Seen:
    """Warm up under no_grad and call with gradients on."""
    import torch

    model, x, backend = torch.nn.Linear(4, 4), torch.randn(2, 4), Counting()
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        compiled(x)
    warm = backend.compiles
    with torch.compiler.set_stance("fail_on_recompile"):
        refused = error_of(lambda: compiled(x))
    compiled(x)
    return {
        "compiles_no_grad": warm,
        "compiles_then_grad": backend.compiles,
        "refused": kind_of(refused),
        "message": str(refused).partition(" filename")[0],
    }


@fact(
    "mark_dynamic gave one compile for three sizes, automatic dynamic shapes two for four.",
    expect={"marked": 1, "automatic": 2},
)
def dynamic_shapes_compiles() -> Seen:
    """Count compiles over several sizes, with the dimension marked and without."""
    import torch

    marked, automatic = Counting(), Counting()
    compiled = torch.compile(lambda x: x * 2, backend=marked)
    for size in (5, 7, 9):
        x = torch.ones(size)
        torch._dynamo.mark_dynamic(x, 0)
        compiled(x)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * 2, backend=automatic)
    for size in (5, 7, 9, 11):
        compiled(torch.ones(size))
    return {"marked": marked.compiles, "automatic": automatic.compiles}


@fact(
    "Inductor's compile_fx was called once per graph without a mode or with default, twice with options or "
    "max-autotune-no-cudagraphs.",
    expect={"no_mode": 1, "default": 1, "options": 2, "max_autotune_no_cudagraphs": 2},
)
def compile_fx_count() -> Seen:
    """Count the calls of compile_fx for one graph."""
    import torch

    def calls(**arguments: object) -> int:
        torch._dynamo.reset()
        with watched_compiles("max_autotune") as values:
            torch.compile(lambda x: x.sin() + 1, **arguments)(torch.ones(4))
        return len(values)

    return {
        "no_mode": calls(),
        "default": calls(mode="default"),
        "options": calls(options={"max_autotune": False}),
        "max_autotune_no_cudagraphs": calls(mode="max-autotune-no-cudagraphs"),
    }


@fact(
    "Replacements for preserve_global_state, one assigned in convert_frame and one in dynamo.utils (where no such name "
    "was), were in place before a compile; neither was called.",
    expect={"utils_had_the_name": False, "convert_frame_calls": 0, "utils_calls": 0, "compiles": 1},
)
def rng_patches_inert() -> Seen:
    """Put both replacements in place, compile, and count their calls."""
    import torch
    import torch._dynamo.convert_frame as frames
    import torch._dynamo.utils as names

    calls = {"convert_frame_calls": 0, "utils_calls": 0}

    def counted(key: str) -> Any:
        def patch(traced: Any) -> Any:
            calls[key] += 1
            return traced

        return patch

    had = hasattr(names, "preserve_global_state")
    frames.preserve_global_state = counted("convert_frame_calls")
    names.preserve_global_state = counted("utils_calls")
    backend = Counting()
    torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.ones(3))
    return {"utils_had_the_name": had, **calls, "compiles": backend.compiles}


def stale(model: Any, x: Any, change: Any, *, grad: bool = False, **arguments: object) -> bool:
    """Whether a model compiled before a change of its weights misses the change."""
    import torch

    torch._dynamo.reset()
    model = model.eval()
    compiled = torch.compile(model, **arguments)
    with torch.set_grad_enabled(grad):
        before = compiled(x).clone()
        with torch.no_grad():
            change(model)
        after, wanted = compiled(x), model(x)
    seen = torch.allclose(after, wanted, atol=1e-4)
    if seen == torch.allclose(after, before, atol=1e-4):
        msg = "the answer is neither the old one nor the new one"
        raise ValueError(msg)
    return not seen


@fact(
    "With freezing set for the process and gradients off, a weight doubled in place or rebound after the compile left "
    "the answer unchanged, for a linear layer and for conv + batch norm; with gradients on, or with freezing given as "
    "an option, the doubled weight was seen, so nothing was frozen.",
    expect={"in_place": True, "rebound": True, "conv_batch_norm": True, "gradients_on": False, "as_option": False},
)
def freezing_stale_weights() -> Seen:
    """Change weights after a compile with freezing, set in different ways."""
    import torch
    import torch._inductor.config as inductor
    from torch import nn

    def double(model: Any) -> None:
        next(model.parameters()).mul_(2)

    def rebind(model: Any) -> None:
        model.weight.data = model.weight.data * 2

    torch.manual_seed(0)
    x, image = torch.randn(2, 4), torch.randn(1, 3, 8, 8)
    as_option = stale(nn.Linear(4, 4), x, double, options={"freezing": True})
    inductor.freezing = True
    return {
        "in_place": stale(nn.Linear(4, 4), x, double),
        "rebound": stale(nn.Linear(4, 4), x, rebind),
        "conv_batch_norm": stale(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), image, double),
        "gradients_on": stale(nn.Linear(4, 4), x, double, grad=True),
        "as_option": as_option,
    }


def planner_end(buffers: int, *, planner: bool) -> list[str]:
    """How a compile with so many buffers alive at once ends: nothing, or the errors, last first."""
    import torch
    import torch._inductor.config as inductor

    torch._dynamo.reset()
    inductor.memory_planning = planner

    def chain(x: Any, weight: Any) -> Any:
        kept = [x @ weight for _ in range(buffers)]
        for value in reversed(kept):
            weight = value @ weight
        return weight

    with torch.no_grad():
        error = error_of(lambda: torch.compile(chain, fullgraph=True)(torch.ones(8, 8), torch.eye(8)))
    return [kind_of(one) for one in chain_of(error)]


@fact(
    "With memory_planning on and gradients off, 250 buffers alive at once compiled and 300 raised InductorError caused "
    "by RecursionError (the process went on); with it off 300 compiled.",
    expect={"on_250": [], "on_300": ["InductorError", "RecursionError"], "off_300": []},
)
def memory_planning_recursion() -> Seen:
    """Compile functions that keep many buffers alive, with the memory planner and without."""
    return {
        "recursion_limit": sys.getrecursionlimit(),
        "on_300": planner_end(300, planner=True),
        "on_250": planner_end(250, planner=True),
        "off_300": planner_end(300, planner=False),
    }


@fact(
    "A wrapper with an if, a loop and attributes gave one graph; a call under torch._dynamo.disable two (an error under "
    "fullgraph); a registered operator one graph with the call as a single node, or TorchRuntimeError without a fake.",
    expect={
        "python_control_flow": [1, 0],
        "disabled_call": [2, 1],
        "disabled_fullgraph": "Unsupported",
        "registered": [1, 0],
        "nodes_of_registered": 1,
        "no_fake": "TorchRuntimeError",
    },
)
def graph_break_cases() -> Seen:
    """Count graphs and breaks for calls of the kinds vendor libraries offer."""
    import torch

    class Wrapper:
        kind = "double"

        def __call__(self, x: Any, times: tuple[int, ...] = (1, 2)) -> Any:
            if self.kind == "double":
                for number in times:
                    x = x * number
            return x

    @torch._dynamo.disable  # type: ignore[untyped-decorator, unused-ignore]
    def disabled(x: Any) -> Any:
        return x * 2

    def explained(call: Any) -> Any:
        torch._dynamo.reset()
        return torch._dynamo.explain(call)(torch.ones(4))

    def counts(call: Any) -> list[int]:
        found = explained(call)
        return [found.graph_count, found.graph_break_count]

    def whole(call: Any) -> str:
        torch._dynamo.reset()
        return kind_of(error_of(lambda: torch.compile(call, fullgraph=True, backend="eager")(torch.ones(4))))

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    operator = torch.library.custom_op("facts::double", double, mutates_args=())

    def registered(x: Any) -> Any:
        return torch.ops.facts.double(x + 1) + 1

    no_fake = whole(registered)
    operator.register_fake(torch.empty_like)
    nodes = [str(node.target) for node in explained(registered).graphs[0].graph.nodes if node.op == "call_function"]
    return {
        "python_control_flow": counts(Wrapper()),
        "disabled_call": counts(lambda x: disabled(x + 1) + 1),
        "disabled_fullgraph": whole(lambda x: disabled(x + 1) + 1),
        "registered": counts(registered),
        "nodes_of_registered": sum("facts.double" in node for node in nodes),
        "nodes": nodes,
        "no_fake": no_fake,
    }
