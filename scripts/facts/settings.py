"""Where the value of a setting comes from, and which of several values holds."""

import asyncio
import os
import sys
import threading
from typing import Any

from facts.declare import Seen, error_of, fact, kind_of, run_python, watched_compiles

LOOK_ALIKES = {
    "INDUCTOR_COORD_DESCENT": "1",
    "INDUCTOR_BENCHMARK_KERNEL": "1",
    "INDUCTOR_GROUP_FUSION": "1",
    "INDUCTOR_AGGRESSIVE_FUSION": "1",
    "INDUCTOR_MAX_FUSION_SIZE": "128",
    "INDUCTOR_FREEZING": "1",
}
LOOK_ALIKE_SETTINGS = {
    "coordinate_descent_tuning": False,
    "benchmark_kernel": False,
    "group_fusion": False,
    "aggressive_fusion": False,
    "max_fusion_size": 64,
    "freezing": False,
}
DEFAULTS = {
    "max_autotune": False,
    "max_autotune_pointwise": False,
    "max_autotune_gemm": False,
    "max_autotune_gemm_backends": "ATEN,TRITON,CPP",
    "coordinate_descent_tuning": False,
    "epilogue_fusion": True,
    "pattern_matcher": True,
    "aggressive_fusion": False,
    "reorder_for_locality": True,
    "memory_planning": False,
    "shape_padding": True,
    "max_fusion_size": 64,
    "freezing": False,
    "triton.cudagraphs": False,
    "triton.cudagraph_trees": True,
}


@fact(
    "With nothing set, max_autotune, coordinate_descent_tuning, aggressive_fusion, memory_planning, freezing and "
    "triton.cudagraphs were False, epilogue_fusion, pattern_matcher, reorder_for_locality and shape_padding True, "
    "and Dynamo's limits 8 and 256.",
    expect={"inductor": DEFAULTS, "recompile_limit": 8, "cache_size_limit": 8, "accumulated_recompile_limit": 256},
)
def config_defaults() -> Seen:
    """Read the settings the guides write about in a process where nothing was set."""
    import torch._dynamo.config as dynamo
    import torch._inductor.config as inductor

    return {
        "inductor": {name: getattr(inductor, name) for name in DEFAULTS},
        "recompile_limit": dynamo.recompile_limit,
        "cache_size_limit": dynamo.cache_size_limit,
        "accumulated_recompile_limit": dynamo.accumulated_recompile_limit,
    }


@fact(
    "With their variables set to 1, max_autotune, triton.cudagraphs and trace.enabled read True and, after assigning "
    "False, False; force_disable_caches stayed True.",
    expect={
        "max_autotune": [True, False],
        "cudagraphs": [True, False],
        "trace_enabled": [True, False],
        "force_disable_caches": [True, True],
    },
    env={
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
        "TORCHINDUCTOR_CUDAGRAPHS": "1",
        "TORCH_COMPILE_DEBUG": "1",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    },
)
def config_env_vs_assign() -> Seen:
    """Read each setting with its variable set, assign False, and read again."""
    import torch._inductor.config as inductor

    def values() -> list[bool]:
        return [
            inductor.max_autotune,
            inductor.triton.cudagraphs,
            inductor.trace.enabled,
            inductor.force_disable_caches,
        ]

    before = values()
    inductor.max_autotune = inductor.triton.cudagraphs = inductor.trace.enabled = False
    inductor.force_disable_caches = False
    names = ("max_autotune", "cudagraphs", "trace_enabled", "force_disable_caches")
    return {name: list(pair) for name, pair in zip(names, zip(before, values(), strict=True), strict=True)}


@fact(
    "max_autotune, assigned True in the main thread, read True there and in asyncio.to_thread, and False in a "
    "threading.Thread.",
    expect={"main": True, "thread": False, "asyncio_to_thread": True},
)
def config_thread_local() -> Seen:
    """Assign a setting in the main thread and read it in others."""
    import torch._inductor.config as inductor

    inductor.max_autotune = True
    elsewhere: list[bool] = []
    thread = threading.Thread(target=lambda: elsewhere.append(inductor.max_autotune))
    thread.start()
    thread.join()
    copied = asyncio.run(asyncio.to_thread(lambda: inductor.max_autotune))
    return {"main": inductor.max_autotune, "thread": elsewhere[0], "asyncio_to_thread": copied}


@fact(
    "After `import torch` torch._inductor.config was not loaded (with TORCH_COMPILE_DEBUG=1 it was); a variable set "
    "after it was loaded changed nothing.",
    expect={"loaded_by_torch": False, "loaded_with_debug": True, "after_late_variable": False},
)
def config_import_time() -> Seen:
    """Look when Inductor's config is imported, and set a variable too late."""
    import torch

    loaded = "torch._inductor.config" in sys.modules
    question = "import sys, torch; print('torch._inductor.config' in sys.modules)"
    with_debug, _ = run_python(question, TORCH_COMPILE_DEBUG="1")
    import torch._inductor.config as inductor

    os.environ["TORCHINDUCTOR_MAX_AUTOTUNE"] = "1"
    torch.compile(lambda x: x + 1)(torch.ones(3))
    return {
        "loaded_by_torch": loaded,
        "loaded_with_debug": with_debug.strip() == "True",
        "after_late_variable": inductor.max_autotune,
    }


def in_force(name: str, compiler: Any, **arguments: object) -> Any:
    """The value of a setting inside the compile that a call of torch.compile leads to."""
    import torch

    torch._dynamo.reset()
    with watched_compiles(name) as values:
        compiler(lambda x: x.sin() + 1, **arguments)(torch.ones(3))
    return values[-1]


@fact(
    "With triton.cudagraphs=False assigned, it was True inside a compile with mode reduce-overhead or max-autotune; "
    "with True assigned, mode default left it True.",
    expect={"reduce_overhead": True, "max_autotune": True, "default_after_true": True, "default_after_false": False},
)
def mode_patch_over_config() -> Seen:
    """Assign a setting and read it inside compiles with a mode."""
    import torch
    import torch._inductor.config as inductor

    def under(mode: str) -> bool:
        return bool(in_force("triton.cudagraphs", torch.compile, mode=mode))

    inductor.triton.cudagraphs = False
    off = {"reduce_overhead": under("reduce-overhead"), "max_autotune": under("max-autotune")}
    off["default_after_false"] = under("default")
    inductor.triton.cudagraphs = True
    return off | {"default_after_true": under("default")}


@fact(
    "With torch.compile replaced by a wrapper that turns no mode and reduce-overhead into default, options={{...}} "
    "raised {options_error}, and max-autotune and a torch.compile imported earlier still had triton.cudagraphs on.",
    expect={
        "options_error": "RuntimeError",
        "reduce_overhead": False,
        "max_autotune": True,
        "imported_earlier": True,
    },
)
def monkey_patch_compile() -> Seen:
    """Install such a wrapper and call torch.compile in the ways programs do."""
    import torch

    original = torch.compile

    def wrapper(model: Any = None, **kwargs: Any) -> Any:
        if kwargs.get("mode") in (None, "reduce-overhead"):
            kwargs["mode"] = "default"
        return original(model, **kwargs)

    torch.compile = wrapper
    error = error_of(lambda: torch.compile(lambda x: x + 1, options={"max_autotune": False}))
    return {
        "options_error": kind_of(error),
        "options_message": str(error).strip(),
        "reduce_overhead": in_force("triton.cudagraphs", torch.compile, mode="reduce-overhead"),
        "max_autotune": in_force("triton.cudagraphs", torch.compile, mode="max-autotune"),
        "imported_earlier": in_force("triton.cudagraphs", original, mode="reduce-overhead"),
    }


@fact(
    "With TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS naming max_fusion_size 33, a compile with options 99 ran with 33, "
    "and the backends eager and aot_eager raised BackendCompilerFailed.",
    expect={"in_force": 33, "eager": "BackendCompilerFailed", "aot_eager": "BackendCompilerFailed"},
    env={"TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS": ">=0:max_fusion_size=33"},
)
def override_variable() -> Seen:
    """Set the override variable, give another value as an option, and try other backends."""
    import torch

    def refused(backend: str) -> BaseException | None:
        torch._dynamo.reset()
        return error_of(lambda: torch.compile(lambda x: x + 1, backend=backend)(torch.ones(3)))

    errors = {backend: refused(backend) for backend in ("eager", "aot_eager")}
    return {
        "in_force": in_force("max_fusion_size", torch.compile, options={"max_fusion_size": 99}),
        **{backend: kind_of(error) for backend, error in errors.items()},
        "message": "".join(str(errors["eager"]).strip().splitlines()[1:2])[:200],
    }


@fact(
    "With six INDUCTOR_* variables of a guide set, every one of the six settings kept its default.",
    expect={"settings": LOOK_ALIKE_SETTINGS},
    env=LOOK_ALIKES,
)
def inductor_env_names() -> Seen:
    """Set variables that no version of torch reads, and look at the settings they are said to set."""
    import torch._inductor.config as inductor

    return {"variables": LOOK_ALIKES, "settings": {name: getattr(inductor, name) for name in LOOK_ALIKE_SETTINGS}}


@fact("torch.version.hip exists in a CPU build and is None.", expect={"exists": True, "value": None})
def version_hip_attribute() -> Seen:
    """Read the attribute that names a ROCm build."""
    import torch

    return {"exists": hasattr(torch.version, "hip"), "value": torch.version.hip}
