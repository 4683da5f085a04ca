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

from rocsolid.torchapi.dynamo.compile_events import CALL_BACKEND
from rocsolid.torchapi.dynamo.compile_hooks import frames_up
from rocsolid.torchapi.inductor.compiler_startup import COMPILE_FX
from rocsolid.torchapi.inductor.lowering import AUTOTUNING, LOAD_BY_KEY
from rocsolid.torchapi.private_api import PrivateName, private_name

_NOT_REPORTED: Final = "rs.compile, rocsolid compiles: that a compile is {} is not reported"


_Phase = tuple[tuple[str, str], tuple[PrivateName, str]]


def _phase(module: str, name: str, phase: str, function: str = "") -> _Phase:
    """Declare the function of a phase; `function` is a function inside of it."""
    without = _NOT_REPORTED.format(phase.partition(" {")[0])
    return _phase_of(private_name(f"torch.{module}", name, "2.9..", without=without), phase, function)


def _phase_of(declared: PrivateName, phase: str, function: str = "") -> _Phase:
    """Return the file (inside torch) and the function of a phase, and its private name and text."""
    file = declared.module.removeprefix("torch.").replace(".", "/") + ".py"
    return (file, function or declared.attribute), (declared, phase)


_SELECT, _RUNTIME = "_inductor.select_algorithm", "_inductor.runtime.triton_heuristics"
_PHASES: Final[Mapping[tuple[str, str], tuple[PrivateName, str]]] = dict(
    (
        _phase(_SELECT, "AlgorithmSelectorCache.benchmark_choices", "autotuning {choices}"),
        _phase_of(AUTOTUNING, "autotuning"),
        _phase(_SELECT, "TritonTemplateCaller.precompile", "compiling autotune choices"),
        _phase(_SELECT, "AlgorithmSelectorCache.make_precompile_fn", "waiting for autotune choices", "wait_on_futures"),
        _phase("_inductor.autotune_process", "BenchmarkRequest.benchmark", "autotuning in a child process"),
        _phase(_RUNTIME, "CachingAutotuner.benchmark_all_configs", "timing launch configurations of a Triton kernel"),
        _phase(_RUNTIME, "CachingAutotuner.coordinate_descent_tuning", "tuning a Triton kernel by coordinate descent"),
        _phase(_RUNTIME, "CachingAutotuner.precompile", "compiling a Triton kernel"),
        _phase("_inductor.async_compile", "AsyncCompile.wait", "waiting for compile workers"),
        _phase("_inductor.async_compile", "AsyncCompile._wait_futures", "waiting for compile workers"),
        _phase("_inductor.cpp_builder", "run_compile_cmd", "compiling C++"),
        _phase("_inductor.cpp_builder", "CppBuilder.build", "compiling C++"),
        _phase_of(LOAD_BY_KEY, "loading generated code"),
        _phase("_inductor.graph", "GraphLowering.codegen", "generating code"),
        _phase("_inductor.scheduler", "Scheduler.fuse_nodes", "fusing kernels"),
        _phase("_inductor.graph", "GraphLowering.run", "lowering the graph (Inductor)"),
        _phase("_inductor.fx_passes.post_grad", "post_grad_passes", "running graph passes (Inductor)"),
        _phase("_inductor.fx_passes.joint_graph", "joint_graph_passes", "running graph passes (Inductor)"),
        _phase_of(COMPILE_FX, "compiling with Inductor"),
        _phase("_functorch.aot_autograd", "aot_module_simplified", "tracing forward and backward (AOTAutograd)"),
        _phase("_dynamo.symbolic_convert", "InstructionTranslatorBase.run", "tracing the function (Dynamo)"),
        _phase_of(CALL_BACKEND, "calling the backend"),
    )
)


def phase_of(thread_id: int) -> str:
    """Return the phase of the compile in a thread; "running other code" if its stack matches no known phase."""
    frame = sys._current_frames().get(thread_id)
    for current in frames_up(frame):
        file = current.f_code.co_filename.replace("\\", "/").rpartition("/torch/")[2]
        name, phase = _PHASES.get((file, current.f_code.co_name), (None, ""))
        if name is not None and not name.is_closed():
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
