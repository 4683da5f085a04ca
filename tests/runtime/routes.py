"""Starts Inductor in every possible way (a *route*), each in its own process, and prints as JSON which settings the compiler used.

python routes.py [--guard] [--pretend-rocm] [--device cuda]

On the CPU the processes are forks of a process that has imported all modules and computed nothing. If a route crashes its process, the
others are not affected.
"""

import argparse
import asyncio
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import compile as compiled_early

parser = argparse.ArgumentParser()
parser.add_argument("--guard", action="store_true")
parser.add_argument("--pretend-rocm", action="store_true")
parser.add_argument("--device", default="cpu")
parser.add_argument("--only", default="")
parser.add_argument("--routes", nargs="*", help="some of the routes; without it, all")
ARGS = parser.parse_args()
if ARGS.pretend_rocm:
    torch.version.hip = "7.1.0"  # before Inductor is imported

import torch._dynamo  # noqa: E402
import torch._inductor.graph as graph_module  # noqa: E402
from torch._inductor import config, output_code  # noqa: E402
from torch._inductor.compile_fx import compile_fx as compile_fx_early  # noqa: E402

import rocsolid as rs  # noqa: E402

REQUESTED = {"max_autotune": True, "triton.cudagraphs": True}
OBSERVED: list[dict[str, Any]] = []
X: Any = None  # created in the process that uses it
UNIQUE_NUMBERS = iter(range(2, 1000))


def new_function() -> Callable[[Any], Any]:
    """Return a function that was not compiled before, and for which Inductor writes no kernel of its own: compiling that takes longest."""
    scope: dict[str, Any] = {"torch": torch}
    exec(f"def fn(x):\n    return torch.addmm(x, x, x, beta={next(UNIQUE_NUMBERS)})\n", scope)  # noqa: S102 - a new code object each time
    function: Callable[[Any], Any] = scope["fn"]
    return function


def current_settings() -> dict[str, Any]:
    return {
        "max_autotune": config.max_autotune,
        "cudagraphs": config.triton.cudagraphs,
        "max_fusion_size": config.max_fusion_size,
        "thread": threading.current_thread() is threading.main_thread(),
    }


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Record the settings that the compiler has when it lowers a graph, and whether it would capture it."""
    init, post_compile = graph_module.GraphLowering.__init__, output_code.CompiledFxGraph.post_compile

    def recording_init(self: Any, *args: Any, **kwargs: Any) -> None:
        OBSERVED.append(current_settings())
        init(self, *args, **kwargs)

    def recording_post_compile(compiled: Any, *args: Any, **kwargs: Any) -> Any:
        policy = getattr(config, "cudagraph_policy", None)
        requested = compiled.cudagraph_info is not None or compiled.disabled_cudagraphs_reason
        captures = bool(requested) and (policy is None or policy.should_wrap(compiled))
        OBSERVED.append({**current_settings(), "captures": captures})
        return post_compile(compiled, *args, **kwargs)

    graph_module.GraphLowering.__init__ = recording_init
    output_code.CompiledFxGraph.post_compile = recording_post_compile
    try:
        yield
    finally:
        graph_module.GraphLowering.__init__ = init
        output_code.CompiledFxGraph.post_compile = post_compile


ROUTES: dict[str, Callable[[], Any]] = {}


def route(function: Callable[[], Any]) -> Callable[[], Any]:
    ROUTES[function.__name__] = function
    return function


@route
def mode_reduce_overhead() -> Any:
    return torch.compile(new_function(), mode="reduce-overhead")(X)


@route
def mode_max_autotune() -> Any:
    return torch.compile(new_function(), mode="max-autotune")(X)


@route
def options() -> Any:
    return torch.compile(new_function(), options=dict(REQUESTED))(X)


@route
def decorator() -> Any:
    return torch.compile(mode="max-autotune")(new_function())(X)


@route
def imported_early() -> Any:
    return compiled_early(new_function(), mode="max-autotune")(X)


@route
def module_compile() -> Any:
    class Net(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.cos(x @ x) * 3

    module = Net()
    module.compile(mode="max-autotune")
    return module(X)


@route
def compiler_compile() -> Any:
    return torch.compiler.compile(new_function(), mode="max-autotune")(X)


@route
def string_backend() -> Any:
    return torch.compile(new_function(), backend="inductor", mode="reduce-overhead")(X)


@route
def dynamo_optimize() -> Any:
    with config.patch(REQUESTED):
        return torch._dynamo.optimize("inductor")(new_function())(X)


@route
def assigned_globally() -> Any:
    config.max_autotune, config.triton.cudagraphs = True, True
    try:
        return torch.compile(new_function())(X)
    finally:
        config.max_autotune, config.triton.cudagraphs = False, False


@route
def compile_fx_taken_early() -> Any:
    return torch.compile(new_function(), backend=functools.partial(compile_fx_early, config_patches=dict(REQUESTED)))(X)


@route
def standalone() -> Any:
    from torch._inductor import standalone_compile

    traced = torch.fx.symbolic_trace(lambda x: (torch.addmm(x, x, x, beta=next(UNIQUE_NUMBERS)),))
    with config.patch(REQUESTED):
        return standalone_compile(traced, [X], dynamic_shapes="from_example_inputs")(X)[0]


@route
def nested_region() -> Any:
    marked = torch.compiler.nested_compile_region(new_function())
    return torch.compile(lambda x: marked(x) + marked(x), mode="max-autotune", fullgraph=True)(X)


@route
def annotation() -> Any:
    override = getattr(torch._dynamo, "override_cudagraphs", None)
    if override is None:
        return None
    return torch.compile(override(fwd=True)(new_function()))(X)


@route
def forced_backend() -> Any:
    backend = functools.partial(compile_fx_early, config_patches=dict(REQUESTED))
    with torch.compiler.set_stance("default", force_backend=backend):
        return torch.compile(new_function())(X)


@route
def aot_package() -> Any:
    class Net(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.sin(x) * 2

    exported = torch.export.export(Net(), (X,))
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "net.pt2")
        torch._inductor.aoti_compile_and_package(exported, package_path=file, inductor_configs={"max_autotune": True})
        return torch._inductor.aoti_load_package(file)(X)


@route
def backward() -> Any:
    x = X.clone().requires_grad_()
    torch.compile(new_function(), mode="max-autotune")(x).sum().backward()
    return x.grad


@route
def cache_hit() -> Any:
    """Compile the same code twice, the second time from the caches on disk."""
    function = new_function()
    with config.patch(force_disable_caches=False):
        first = torch.compile(function, mode="max-autotune")(X)
        torch._dynamo.reset()
        torch.compile(function, mode="max-autotune")(X)
    return first


@route
def worker_thread() -> Any:
    results: list[Any] = []
    function = torch.compile(new_function(), mode="max-autotune")
    thread = threading.Thread(target=lambda: results.append(function(X)))
    thread.start()
    thread.join()
    return results[0]


@route
def pool_thread() -> Any:
    def work() -> Any:
        config.max_autotune = True  # that thread's own assignment
        return torch.compile(new_function(), mode="reduce-overhead")(X)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@route
def event_loop() -> Any:
    async def work() -> Any:
        return torch.compile(new_function(), mode="max-autotune")(X)

    return asyncio.run(work())


def guarded_state() -> dict[str, str]:
    """Return everything that the guard may change: both layers and the value of every entry, and the patched functions."""
    machinery = sys.modules["torch.utils._config_module"]
    entries = {
        f"{module.__name__}.{name}": repr((id(e.env_value_force), id(e.env_value_default), module.__getattr__(name)))
        for module in (config, torch._dynamo.config)
        for name, e in vars(module)["_config"].items()
        if name not in ("_save_config_ignore", "_cache_config_ignore_prefix", "inductor_choices_class")
    }
    patched = {
        "setattr": machinery.ConfigModule.__setattr__,
        "patch": machinery.ConfigModule.patch,
        "options": torch._TorchCompileInductorWrapper.apply_options,
        "graph": torch.cuda.graphs.graph.__enter__,
        "compile": torch.compile,
    }
    return (
        entries | {name: str(id(function)) for name, function in patched.items()} | {"finders": str(len(sys.meta_path))}
    )


def main() -> None:
    import warnings

    warnings.simplefilter("ignore")
    if ARGS.only:
        json.dump(outcome(ROUTES[ARGS.only]), sys.stdout)
    elif ARGS.device == "cpu":
        torch.set_num_threads(1)  # OpenMP threads cannot be used after a fork
        from torch._inductor.cpu_vec_isa import pick_vec_isa

        pick_vec_isa()  # compiles small programs to detect the CPU's features; once is enough
        json.dump({name: in_a_fork(ROUTES[name]) for name in ARGS.routes or ROUTES}, sys.stdout)
    else:  # CUDA cannot be used after a fork
        with ThreadPoolExecutor(6) as pool:
            names = ARGS.routes or list(ROUTES)
            json.dump(dict(zip(names, pool.map(in_a_fresh_process, names), strict=True)), sys.stdout)


def in_a_fresh_process(name: str) -> dict[str, Any]:
    completed = subprocess.run([sys.executable, *sys.argv, "--only", name], capture_output=True, text=True, check=False)
    return json.loads(completed.stdout) if completed.returncode == 0 else crashed(completed.returncode)


def crashed(status: int) -> dict[str, Any]:
    return {"observed": [], "result": f"crashed with status {status}", "reported": [], "changed": {}}


def in_a_fork(run: Callable[[], Any]) -> dict[str, Any]:
    """Run a route in a forked process; if it crashes, that is the result."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        with os.fdopen(write_end, "w") as pipe:
            json.dump(outcome(run), pipe)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(text) if text else crashed(status)


def outcome(run: Callable[[], Any]) -> dict[str, Any]:
    """Return the settings that the compiler had, the result, the interventions, and what is still changed after the guard ended."""
    globals()["X"] = torch.arange(64.0, device=ARGS.device).reshape(8, 8) / 64
    config.force_disable_caches = True
    for name in vars(config)["_config"]:
        config.__getattr__(name)  # reading copies mutable defaults into this context: do that first
    state_before = guarded_state()
    guard: Any = rs.guard() if ARGS.guard else contextlib.nullcontext()
    with guard as active, recording():
        try:
            result = run()
            result_text: Any = "none" if result is None else round(float(result.sum()), 3)
        except Exception as error:  # noqa: BLE001 - which routes fail is part of the result
            result_text = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    state_after = guarded_state()
    return {
        "observed": list(OBSERVED),
        "result": result_text,
        "reported": [str(i) for i in active.interventions] if active else [],
        "changed": {
            name: (value, state_after.get(name))
            for name, value in state_before.items()
            if value != state_after.get(name)
        },
    }


if __name__ == "__main__":
    main()
