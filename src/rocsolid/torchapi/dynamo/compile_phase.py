"""Names the current phase of a compile from the stack of its thread.

Torch is not patched. Another thread reads the frames of the compiling thread, innermost first; the first one that is in the table
`_PHASES` gives the phase.
"""

import sys
import threading
import traceback
from collections.abc import Mapping
from types import FrameType
from typing import Final

from rocsolid.torchapi.dynamo.compile_hooks import frames_up
from rocsolid.torchapi.private_api import private_name

# The phase by file (inside torch) and function.
_PHASES: Final[Mapping[tuple[str, str], str]] = {
    ("_inductor/select_algorithm.py", "benchmark_choices"): "autotuning {choices}",
    ("_inductor/select_algorithm.py", "do_autotuning"): "autotuning",
    ("_inductor/select_algorithm.py", "precompile"): "compiling autotune choices",
    ("_inductor/select_algorithm.py", "wait_on_futures"): "compiling autotune choices",
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
    ("_inductor/graph.py", "run"): "lowering the graph (Inductor)",
    ("_inductor/fx_passes/post_grad.py", "post_grad_passes"): "running graph passes (Inductor)",
    ("_inductor/fx_passes/joint_graph.py", "joint_graph_passes"): "running graph passes (Inductor)",
    ("_inductor/compile_fx.py", "compile_fx"): "compiling with Inductor",
    ("_functorch/aot_autograd.py", "aot_module_simplified"): "tracing forward and backward (AOTAutograd)",
    ("_dynamo/symbolic_convert.py", "run"): "tracing the function (Dynamo)",
    ("_dynamo/output_graph.py", "call_user_compiler"): "calling the backend",
}
for _file, _function in _PHASES:
    private_name(
        "torch." + _file.removesuffix(".py").replace("/", "."),
        f"def {_function}(",
        "2.9..",
        text=True,
        without=f"rs.compile: that a compile is {_PHASES[_file, _function].partition(' ')[0]} is not reported",
    )


def phase_of(thread_id: int) -> str:
    """Return the phase of the compile in a thread; "running other code" if its stack matches no known phase."""
    frame = sys._current_frames().get(thread_id)
    for current in frames_up(frame):
        file = current.f_code.co_filename.replace("\\", "/").rpartition("/torch/")[2]
        if phase := _PHASES.get((file, current.f_code.co_name)):
            return phase.format(choices=_progress(current)).rstrip()
    return "running other code"


def thread_stack(thread_id: int, innermost: int = 8) -> str:
    """Return the last calls of a thread, one line each, for a message."""
    frames = traceback.extract_stack(sys._current_frames().get(thread_id))[-innermost:]
    lines = [f"    {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    return "\n".join([*lines, *(f"      {frame.line}" for frame in frames[-1:])])


def all_stacks() -> str:
    """Return the stacks of all threads, formatted like tracebacks."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, ident)}:\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(parts)


def _progress(frame: FrameType) -> str:
    """Return the progress of autotuning, such as `17 of 40`; empty if it is not known."""
    variables = frame.f_locals
    timings, choices = variables.get("timings"), variables.get("choices")
    try:
        return f"{len(timings) + 1} of {len(choices)}" if timings is not None and choices is not None else ""
    except TypeError:
        return ""
