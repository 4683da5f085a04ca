"""Says what a compile is doing, from the stack of the thread it runs in.

Nothing of torch's is touched: the watcher looks at the compiling thread's frames from outside, innermost first, and the first
that the table knows gives the word.
"""

import sys
import threading
import traceback
from collections.abc import Mapping
from types import FrameType
from typing import Final

from rocsolid.torchapi.dynamo.compile_hooks import frames_up

# File (by its end) and function: what a person would call that.
_PHASES: Final[Mapping[tuple[str, str], str]] = {
    ("_inductor/select_algorithm.py", "benchmark_choices"): "autotuning {choices}",
    ("_inductor/select_algorithm.py", "do_autotuning"): "autotuning",
    ("_inductor/select_algorithm.py", "precompile"): "compiling autotune candidates",
    ("_inductor/select_algorithm.py", "wait_on_futures"): "compiling autotune candidates",
    ("_inductor/autotune_process.py", "benchmark"): "autotuning in a child process",
    (
        "_inductor/runtime/triton_heuristics.py",
        "benchmark_all_configs",
    ): "timing launch configurations of a Triton kernel",
    (
        "_inductor/runtime/triton_heuristics.py",
        "coordinate_descent_tuning",
    ): "tuning a Triton kernel by coordinate descent",
    ("_inductor/runtime/triton_heuristics.py", "precompile"): "compiling a Triton kernel",
    ("_inductor/async_compile.py", "wait"): "waiting for compile workers",
    ("_inductor/async_compile.py", "_wait_futures"): "waiting for compile workers",
    ("_inductor/cpp_builder.py", "run_compile_cmd"): "compiling C++",
    ("_inductor/cpp_builder.py", "build"): "compiling C++",
    ("_inductor/codecache.py", "load_by_key_path"): "loading generated code",
    ("_inductor/graph.py", "codegen"): "generating code",
    ("_inductor/scheduler.py", "fuse_nodes"): "fusing kernels",
    ("_inductor/graph.py", "run"): "lowering the graph",
    ("_inductor/fx_passes/post_grad.py", "post_grad_passes"): "rewriting the graph",
    ("_inductor/fx_passes/joint_graph.py", "joint_graph_passes"): "rewriting the graph",
    ("_inductor/compile_fx.py", "compile_fx"): "compiling with Inductor",
    ("_functorch/aot_autograd.py", "aot_module_simplified"): "deriving forward and backward",
    ("_dynamo/symbolic_convert.py", "run"): "tracing the function",
    ("_dynamo/output_graph.py", "call_user_compiler"): "calling the backend",
}


def phase_of(thread_id: int) -> str:
    """What the compile in that thread is doing now, as far as its stack tells."""
    frame = sys._current_frames().get(thread_id)
    for current in frames_up(frame):
        file = current.f_code.co_filename.replace("\\", "/").rpartition("/torch/")[2]
        if said := _PHASES.get((file, current.f_code.co_name)):
            return said.format(choices=_choices(current)) if "{" in said else said
    return "working"


def all_stacks() -> str:
    """The stack of every thread, the way a traceback shows it."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, ident)}:\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(parts)


def _choices(frame: FrameType) -> str:
    """How far a search is: `17 of 40`."""
    seen = frame.f_locals
    done, all_ = seen.get("timings"), seen.get("choices")
    try:
        return f"{len(done) + 1} of {len(all_)}" if done is not None and all_ is not None else ""
    except TypeError:
        return ""
