"""Without one of torch's private names, a feature works less well, and the user's call works as before.

Each scenario is run once to find the names that it uses. Then each of these names is closed, and the scenario runs again. All scenarios
together use every name that this torch has, without those that `NOT_USED_HERE` lists.
"""

import ast
import json
import logging
import os
import random
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from tests.support import SOURCE, Ran, clean_environ, make_env, run_python

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import rocsolid as rs  # noqa: E402
from rocsolid import new_torch  # noqa: E402
from rocsolid.errors import UnsupportedTorchError  # noqa: E402
from rocsolid.model.form import Form  # noqa: E402
from rocsolid.model.platform import Platform  # noqa: E402
from rocsolid.model.probed_name import ProbedName  # noqa: E402
from rocsolid.model.release import compare  # noqa: E402
from rocsolid.numerics import Tolerance  # noqa: E402
from rocsolid.observe.breaks import find_breaks  # noqa: E402
from rocsolid.ops.audit_op import audit_op  # noqa: E402
from rocsolid.optimize import graph_passes  # noqa: E402
from rocsolid.optimize.dynamo_traces import DynamoTraces  # noqa: E402
from rocsolid.optimize.example_inputs import Example  # noqa: E402
from rocsolid.optimize.optimized import optimized  # noqa: E402
from rocsolid.optimize.passes.autotuned_products import benchmark_products  # noqa: E402
from rocsolid.optimize.progressive import Progressive  # noqa: E402
from rocsolid.runtime import compiled as runtime_compiled  # noqa: E402
from rocsolid.torchapi import dispatch, name_probes, private_api  # noqa: E402
from rocsolid.torchapi.dynamo import compile_phase  # noqa: E402
from rocsolid.torchapi.inductor.graph_pass import passes_supported  # noqa: E402
from rocsolid.torchapi.name_probes import load_all_names  # noqa: E402
from rocsolid.torchapi.private_api import PrivateName, close_names, reopen_names  # noqa: E402
from rocsolid.verify.candidate import Cases  # noqa: E402
from rocsolid.verify.trial import _Bench  # noqa: E402

NAMES = load_all_names()
HERE = {  # the names that this torch has
    str(name)
    for name in NAMES
    if name.releases.holds(torch.__version__) and (torch.backends.cuda.is_built() or not name.gpu_builds_only)
}
_RUNTIME, _SELECT = "torch._inductor.runtime.triton_heuristics", "torch._inductor.select_algorithm"
_ON_GPU = "a capture on a GPU uses it: see the test with the mark `gpu`"
_PHASE = "a phase that needs a GPU, or a C++ compiler for many seconds; it is looked up like the others"
NOT_USED_HERE = {
    "torch._C._CUDAGraph.replay": _ON_GPU,
    "torch._C._cuda_endAllocateToPool": _ON_GPU,
    "torch._C._cuda_releasePool": _ON_GPU,
    "torch._C._tensors_data_ptrs_at_indices_equal": _ON_GPU,
    'torch._C: "synchronizing CUDA operation"': "a text that only an error on a GPU has",
    "torch._inductor.autotune_process.BenchmarkRequest.benchmark": _PHASE,
    "torch._inductor.cpp_builder.CppBuilder.build": _PHASE,
    "torch._inductor.cpp_builder.run_compile_cmd": _PHASE,
    f"{_RUNTIME}.CachingAutotuner.benchmark_all_configs": _PHASE,
    f"{_RUNTIME}.CachingAutotuner.coordinate_descent_tuning": _PHASE,
    f"{_RUNTIME}.CachingAutotuner.precompile": _PHASE,
    f"{_SELECT}.AlgorithmSelectorCache.benchmark_choices": _PHASE,
    f"{_SELECT}.AlgorithmSelectorCache.make_precompile_fn": _PHASE,
    f"{_SELECT}.TritonTemplateCaller.precompile": _PHASE,
}
# Without these a dry run of a workload cannot work. It says so.
NEEDED = {
    "torch._inductor.graph.GraphLowering.compile_to_module",
    "torch._subclasses.fake_tensor.FakeTensorMode",
    "torch._subclasses.fake_tensor.DataDependentOutputException",
    "torch.cuda._lazy_init",
}


@pytest.fixture(autouse=True)
def _reopened(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("rocsolid.api.optimize._tried_settings", lambda *_, **__: [])  # which compile C++ for a minute
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    fresh()
    assert not torch.nn.modules.module._has_any_global_hook()


def fresh() -> None:
    """Open all names, and forget what was looked up and compiled before."""
    reopen_names()
    while runtime_compiled._remove_listener:
        runtime_compiled._remove_listener.pop()()
    torch._dynamo.reset()
    for name, module in list(sys.modules.items()):
        if name.startswith("rocsolid.torchapi") and module is not name_probes:
            for value in vars(module).values():
                if hasattr(value, "cache_clear") and getattr(value, "__module__", "") == name:
                    value.cache_clear()


def double(x: Any) -> Any:
    return x * 2 + 1


def both(x: Any, y: Any) -> tuple[Any, Any]:
    return x + y, x @ y


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Two matrix products, which need no C++ compiler."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (torch.nn.Linear(8, 8, bias=False) for _ in range(2))

    def forward(self, x: Any) -> Any:
        return self.first(x) + self.second(x)


def capture() -> None:
    with tempfile.TemporaryDirectory() as folder:
        captured = rs.capture(double, backend="record", annotate=folder)
        for number in range(3):
            x = torch.full((2,), float(number))
            assert torch.equal(captured(x), double(x))
        with torch.device("cpu"):
            assert torch.equal(captured(x), double(x))
    several, x, y = rs.capture(both, backend="record"), torch.ones(2, 2), torch.eye(2)
    for mode in (torch.no_grad, torch.inference_mode):
        for _ in range(2):
            with mode():
                assert all(map(torch.equal, several(x, y), both(x, y)))
    module = rs.capture(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), backend="record")
    with torch.no_grad():
        for _ in range(2):
            assert module(torch.ones(1, 2)).shape == (1, 2)


def compile_and_guard() -> None:
    with rs.guard(deadline_s=60), rs.apply(rs.resolve("safe"), ignore_platform=True):
        compiled = rs.compile(double, deadline_s=60, backend="eager")
        assert torch.equal(compiled(torch.ones(2)), double(torch.ones(2)))
        torch._inductor.config.max_autotune  # noqa: B018 - reading a setting must work
        torch.compile(double, mode="reduce-overhead")
    rs.compile(double, mode="reduce-overhead")


def guard_on_rocm() -> None:
    annotate = getattr(torch._dynamo, "override_cudagraphs", lambda **_: lambda f: f)
    x = torch.ones(2, 2)
    with rs.Guard(rs.resolve("safe", make_env(Platform.ROCM))), torch.no_grad():
        assert torch.equal(torch.compile(annotate(fwd=True)(torch.mm))(x, x), x @ x)


def graph_block() -> None:
    """A compile in a block of torch.cuda.graph, whose capture then cannot be ended; the probe has a stand-in for the graph."""
    name_probes._in_graph_block.__wrapped__()


def forbidden_recompile() -> None:
    compiled = rs.compile(lambda x, n: x * n, backend="eager", max_recompiles=0, dynamic=False)
    compiled(torch.ones(2), 2)
    try:
        compiled(torch.ones(2), 3)
    except rs.RecompileError:
        return
    assert private_api._closed, "without the hook, recompiles are not counted"


def cancelled_compile() -> None:
    def backend(graph: Any, _: Any) -> Any:
        for _ in range(500):
            time.sleep(0.01)
        return graph

    with rs.guard(deadline_s=0.2):
        try:
            assert torch.equal(torch.compile(double, backend=backend)(torch.ones(2)), double(torch.ones(2)))
        except BaseException as error:  # noqa: BLE001 - without the names that turn it into a call in eager, it is raised
            assert type(error).__name__ in ("CompileDeadlineError", "CompileCancelled")  # noqa: PT017 - not always
            assert private_api._closed
    assert torch.equal(rs.compile(double, backend="eager")(torch.ones(2)), double(torch.ones(2)))


def observe() -> None:
    def broken(x: Any) -> Any:
        torch._dynamo.graph_break()
        return torch.mm(x, x)

    with rs.record_compiles() as recorder:
        report = find_breaks(broken, (torch.ones(2, 2),), backend="inductor")
        double_or_half(torch.compile(branch_on_value, backend="eager"))
    assert recorder.log is not None
    assert report.function == "broken"


def branch_on_value(x: Any) -> Any:
    return x * 2 if x.sum() > 0 else x / 2


def double_or_half(function: Callable[[Any], Any]) -> None:
    assert function(torch.ones(2)).tolist() == [2.0, 2.0]


def operators() -> None:
    name = f"closed::double{random.getrandbits(60)}"
    operator = rs.vendor_op(name, double, schema="(Tensor x) -> Tensor", fake=torch.empty_like)
    assert torch.equal(operator(torch.ones(2)), double(torch.ones(2)))
    assert audit_op(name).findings is not None
    with pytest.raises(rs.UnknownNameError):
        audit_op("aten::no_such_operator")


def verify() -> None:
    gelu = torch.nn.functional.gelu
    assert str(rs.verify(gelu, gelu, torch.ones(4), seeds=1).verdict.value) in ("same", "unknown")
    rs.verify(lambda x: gelu(x) * 1.5, gelu, torch.ones(4), seeds=1)


def bisect() -> None:
    def broken(x: Any) -> Any:
        y = torch.nn.functional.gelu(x)
        torch._dynamo.graph_break()
        return torch.nn.functional.gelu(y)

    plan, cases = rs.resolve("fast"), Cases(seeds=1, scales=(1.0,))
    bench = _Bench(broken, Example((torch.ones(4),), {}), plan, cases, Tolerance())
    part = {"action": "part", "backend": "aot_eager_decomp_partition", "subsystem": "decomposition"}
    assert bench.answer(part)["wrong"] is False
    assert bench.answer({**part, "limit": 0})["wrong"] is False
    bench.answer({**part, "graph": 0})  # a failure is an answer, too


def profile() -> None:
    assert len(rs.profile(double, torch.ones(2)).files) == 1


def graph_pass() -> None:
    net, x = Net().eval(), torch.ones(2, 8)
    passes = {graph_passes.MERGED_PROJECTIONS: True, graph_passes.AUTOTUNED_PRODUCTS: True}
    # A graph from the cache is not passed through them.
    with torch.no_grad(), torch._inductor.config.patch(force_disable_caches=True):
        with graph_passes.finding_unsuitable(net, passes):  # makes the weights adjacent
            expected = net(x)
        if passes_supported():
            options = graph_passes.pass_options(passes)
            torch.testing.assert_close(torch.compile(net, options=options)(x), expected)


def optimize() -> None:
    net, x = Net().eval(), torch.ones(2, 8)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for _ in range(2):  # the second time with what the first has saved
            captures = partial(rs.capture, backend="record")
            fast = optimized(
                net, [Example((x,), {})], rs.resolve("fast"), artefacts=Path(folder), budget_s=None, capture=captures
            )
            torch.testing.assert_close(fast(x), net(x))
            torch._dynamo.reset()


def optimize_in_the_background() -> None:
    net, x = Net().eval(), torch.ones(2, 8)

    def compiled() -> Any:
        torch.fx.symbolic_trace(net)
        return torch.compile(net)

    with torch.no_grad():
        fast = Progressive(net, [Example((x,), {})], profile="fast", compiled=compiled, capture=None, trial=None)
        assert fast.wait(60)
        torch.testing.assert_close(fast(x), net(x))


def saved_traces() -> None:
    net, x = Net().eval(), torch.ones(2, 8)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            traces = DynamoTraces(net, Path(folder) / "net")
            traces.load()
            with traces.tracing(Form.COMPILED_GRAPH):
                torch.testing.assert_close(torch.compile(traces.model)(x), net(x))
            traces.save()
            torch._dynamo.reset()


def phases() -> None:
    """The phase is asked for wherever a compile enters a function that may be the first of one."""
    functions = {function for _, function in compile_phase._PHASES}
    seen = set()

    def on_event(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name in functions and "/torch/" in frame.f_code.co_filename:
            seen.add(compile_phase.phase_of(threading.get_ident()))

    sys.setprofile(on_event)
    try:
        with torch._inductor.config.patch(force_disable_caches=True), torch.no_grad():
            torch.compile(torch.mm)(torch.ones(2, 2), torch.ones(2, 2))
    finally:
        sys.setprofile(None)
    assert len(seen) > 5


SCENARIOS: dict[str, Callable[[], None]] = {
    f.__name__: f
    for f in (
        capture,
        compile_and_guard,
        guard_on_rocm,
        graph_block,
        forbidden_recompile,
        cancelled_compile,
        observe,
        operators,
        verify,
        bisect,
        profile,
        graph_pass,
        optimize,
        optimize_in_the_background,
        saved_traces,
        phases,
    )
}


def capture_on_a_gpu() -> None:
    captured, several = rs.capture(double), rs.capture(both)
    for number in range(3):
        x = torch.full((2, 2), float(number), device="cuda")
        assert torch.equal(captured(x), double(x))
        assert all(map(torch.equal, several(x, x), both(x, x)))
    weights = torch.nn.Linear(2, 2, bias=False, device="cuda")  # replays compare the addresses of the weights
    module = rs.capture(weights)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(module(x), weights(x))
    waits = rs.capture(lambda x: x * x.sum().item())
    for _ in range(2):
        assert torch.equal(waits(torch.ones(2, device="cuda")), torch.full((2,), 2.0, device="cuda"))


ON_GPU: dict[str, Callable[[], None]] = {"capture_on_a_gpu": capture_on_a_gpu}


@contextmanager
def recorded_uses() -> Iterator[set[str]]:
    """Record the names that are looked up in the block."""
    used: set[str] = set()
    originals = {method: getattr(PrivateName, method) for method in ("_resolve", "is_closed", "put")}

    def recording(method: str) -> Any:
        def call(name: PrivateName, *args: Any) -> Any:
            used.add(str(name))
            return originals[method](name, *args)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for method in originals:
            patch.setattr(PrivateName, method, recording(method))
        yield used


@cache
def used_names(scenario: str) -> frozenset[str]:
    """The names that a scenario looks up."""
    fresh()
    with recorded_uses() as used:
        (SCENARIOS | ON_GPU)[scenario]()
    return frozenset(used)


def times_logged(messages: list[str], name: str) -> int:
    """How often it was logged what is lost without a name."""
    without = next(declared.without for declared in NAMES if str(declared) == name)
    return sum(
        m.startswith(f"{without} (torch ") and f"`{name}` is missing or behaves differently" in m for m in messages
    )


GROUP_SIZES = {
    "optimize": 8,
    "bisect": 4,
    "graph_pass": 4,
}  # names that are closed together, because one run takes long


def run_closed(scenario: str, names: Sequence[str], caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    """Run a scenario with names closed; return what went wrong, by name."""
    fresh()
    close_names(names)
    caplog.clear()
    try:
        with recorded_uses() as used, caplog.at_level(logging.WARNING, "rocsolid"):
            (SCENARIOS | ON_GPU)[scenario]()
    except Exception as error:  # noqa: BLE001 - collected for one report
        return dict.fromkeys(names, f"{type(error).__name__}: {error}")
    # Another name of a group may have disabled the feature before this one was looked up. A name of other releases is no loss.
    logged = {name: times_logged(caplog.messages, name) for name in names if len(names) == 1 or name in used}
    return {name: f"logged {times} times" for name, times in logged.items() if times != (name in HERE)}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_with_any_one_name_closed_the_users_call_works(scenario: str, caplog: pytest.LogCaptureFixture) -> None:
    without = {str(name): name.without for name in NAMES}
    names = sorted(used_names(scenario), key=lambda name: (without[name], name))
    count = -(-len(names) // GROUP_SIZES.get(scenario, 1))
    problems: dict[str, str] = {}
    for group in (names[start::count] for start in range(count)):  # names of one feature are in different groups
        problems |= run_closed(scenario, group, caplog)

    replaced = scenario == "graph_block" and compare(torch.__version__, "2.15") >= 0  # by public hooks
    assert bool(names) is not replaced
    assert problems == {}


@pytest.mark.gpu
def test_on_a_gpu_captures_work_with_any_one_name_closed(caplog: pytest.LogCaptureFixture) -> None:
    names = sorted(used_names("capture_on_a_gpu"))
    problems: dict[str, str] = {}
    for name in names:
        problems |= run_closed("capture_on_a_gpu", [name], caplog)

    assert {"torch._C._CUDAGraph.replay", "torch._C._tensors_data_ptrs_at_indices_equal"} <= {*names}
    assert problems == {}


WORKLOAD = """
import torch
import triton
import triton.language as tl


@triton.jit
def add_one(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i) + 1)


tuned = triton.autotune([triton.Config({"BLOCK": size}) for size in (4, 8)], key=[], cache_results=True)(add_one)


def graphs():
    def call(x):
        y = torch.empty_like(x)
        add_one[(1,)](x, y, BLOCK=4)
        torch._dynamo.graph_break()
        tuned[(1,)](x, y)
        torch._dynamo.graph_break()
        return y.cos() @ y

    return call, (torch.ones(8, 8),), {}


def product():
    return (lambda x, w: (x @ w).sin()), (torch.ones(7, 7), torch.ones(7, 7)), {}


def values():
    def call(x):
        y = torch.empty_like(x)
        for _ in range(int(x.sum().item())):
            add_one[(1,)](x, y, BLOCK=4)
        return y[y > 0]

    return call, (torch.ones(4),), {}
"""
KERNELS = """
import triton
import triton.language as tl


@triton.jit
def scaled(x, y, FACTOR: tl.constexpr = a_name_that_does_not_exist, BLOCK: tl.constexpr = 4):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i) * 2)
"""
_LOWERING = "torch._inductor"
# By part of a dry run: names that are closed together, because each run takes a second.
DRY_RUNS: list[tuple[str, list[str]]] = [
    (
        "graphs",
        [
            "torch._dynamo.utils.graph_break_reasons",
            f"{_LOWERING}.codegen.triton.TritonScheduling.define_kernel",
            f"{_LOWERING}.codegen.wrapper.PythonWrapperCodegen.define_user_defined_triton_kernel",
            f"{_LOWERING}.ir.ExternKernel",
            f"{_LOWERING}.list_mode_options",
            f"{_LOWERING}.output_code.cudagraph_post_compile",
            f"{_RUNTIME}.GridExpr",
            f"{_LOWERING}.utils.get_first_incompatible_cudagraph_node",
            "torch.utils._python_dispatch.TorchDispatchMode",
            "triton.runtime.autotuner.Autotuner.check_disk_cache",
        ],
    ),
    (
        "graphs",
        [f"{_LOWERING}.output_code.cudagraph_partition_post_compile", f"{_LOWERING}.codecache.PyCodeCache.load"],
    ),
    ("graphs", [f"{_RUNTIME}.CachingAutotuner._precompile_config"]),
    ("graphs", [f"{_LOWERING}.graph.GraphLowering.compile_to_module"]),
    ("graphs", ["torch._subclasses.fake_tensor.FakeTensorMode"]),
    ("autotuned", [f"{_SELECT}.TritonTemplateCaller"]),
    ("autotuned", [f"{_LOWERING}.codecache.PyCodeCache.load_by_key_path"]),
    ("autotuned", [f"{_SELECT}.AlgorithmSelectorCache.do_autotuning"]),
    ("values", ["triton.runtime.interpreter.InterpretedFunction"]),
    ("values", ["triton.runtime.interpreter._patch_lang"]),
    ("values", ["torch._subclasses.fake_tensor.DataDependentOutputException"]),
    ("values", ["torch._subclasses.fake_tensor.DynamicOutputShapeException"]),
    ("kernels", ["triton._C.libtriton.ir"]),
    ("kernels", ["triton.runtime.jit.JITFunction._unsafe_update_src"]),
]


BEFORE = [  # names that are used when the simulated GPU is set up
    "torch._C._cuda_cudaCachingAllocator_is_enabled",
    "torch._C._cuda_getCurrentRawStream",
    "torch._C._cuda_getDevice",
    "torch._C._cuda_getDeviceCount",
    "torch._inductor.fx_passes.pad_mm.should_pad",
    "torch._inductor.runtime.benchmarking.benchmarker.benchmark_gpu",
    "torch._inductor.runtime.triton_helpers.set_driver_to_gpu",
    "torch._subclasses.fake_tensor.FakeTensor",
    "torch._subclasses.fake_tensor.FakeTensorMode.avoid_device_init",
    "torch.nn.Module._apply",
    "torch.cuda._exchange_device",
    "torch.cuda._maybe_exchange_device",
    "torch.cuda._lazy_init",
]


@dataclass(frozen=True, kw_only=True)
class DryRunResult:
    """What a part of a dry run used, logged and returned."""

    part: str
    closed: tuple[str, ...]
    used: frozenset[str]
    logged: tuple[str, ...]
    result: str
    error: str


@pytest.fixture(scope="module")
def dry_runs(tmp_path_factory: pytest.TempPathFactory) -> list[DryRunResult]:
    """All parts of a dry run with their names closed: in one process those of `DRY_RUNS`, in another those of `BEFORE`."""
    if compare(torch.__version__, "2.11") < 0:
        return []  # dry runs of workloads need 2.11
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("dry-run")
    (folder / "workload.py").write_text(WORKLOAD)
    (folder / "kernels.py").write_text(KERNELS)
    caches = {f"{name}_CACHE_DIR": str(folder / name) for name in ("TRITON", "TORCHINDUCTOR")}
    results = []
    for before, runs in (([], DRY_RUNS), (BEFORE, [("autotuned", [])])):
        script = str(Path(__file__).with_name("closed_dry_run.py"))
        ran = run_python(
            script, str(folder), json.dumps(before), json.dumps(runs), env=clean_environ(**caches), timeout=900
        )
        assert ran.code == 0, ran.err[-3000:]
        for (part, closed), found in zip(runs, ran.json(), strict=True):
            names = (*before, *closed)
            results.append(DryRunResult(part=part, closed=names, **{**found, "used": frozenset(found["used"])}))
    return results


def test_with_names_closed_a_dry_run_works_or_says_what_it_needs(dry_runs: list[DryRunResult]) -> None:
    for run in dry_runs:
        if run.error:
            assert NEEDED & set(run.closed), run
            assert run.error.startswith("UnsupportedTorchError: torch") or "cannot be traced" in run.error, run
        else:
            assert not NEEDED & set(run.closed), run
        logged = {name: times_logged(list(run.logged), name) for name in run.closed if name in HERE}
        assert logged == dict.fromkeys(logged, 1), run


def test_all_scenarios_together_use_every_name(dry_runs: list[DryRunResult]) -> None:
    used = frozenset().union(*map(used_names, SCENARIOS), *(run.used for run in dry_runs))
    of_dry_runs = {name for _, names in DRY_RUNS for name in names} | {*BEFORE}

    unused = HERE - used - (set() if dry_runs else of_dry_runs)
    assert unused == HERE & NOT_USED_HERE.keys()


def test_nearly_all_names_degrade_a_feature_and_the_rest_says_what_it_needs() -> None:
    degraded = {str(name) for name in NAMES} - NEEDED

    assert len(degraded) / len(NAMES) >= 0.95
    for name in NEEDED & HERE:
        (declared,) = (n for n in NAMES if str(n) == name)
        close_names([name])
        with pytest.raises(UnsupportedTorchError, match=r"this feature needs it.\n.*\nfix: use "):
            declared.get()


def test_a_capture_that_cannot_be_recorded_leaves_the_users_calls_alone() -> None:
    """Calls that read a value on the CPU stayed forbidden after a capture that failed where it began."""
    captured = rs.capture(double, backend="record")
    close_names(["torch.utils._python_dispatch.TorchDispatchMode"])
    x = torch.ones(2)

    assert torch.equal(captured(x), double(x))
    assert (x + 1).tolist() == [2.0, 2.0]
    assert "TorchDispatchMode" in captured.report().refusals[0].message


def test_a_product_that_cannot_be_benchmarked_stays_as_it_is() -> None:
    """Inductor called torch's product through an operator of ours, and so fused nothing with it."""
    close_names(["torch._inductor.lowering.lowerings"])
    graph = torch.fx.experimental.proxy_tensor.make_fx(torch.mm)(torch.ones(2, 2), torch.ones(2, 2)).graph
    for node in graph.nodes:
        node.meta["val"] = torch.ones(2, 2)

    benchmark_products(graph)

    assert [node.target for node in graph.nodes if node.op == "call_function"] == [torch.ops.aten.mm.default]


def test_a_cancelled_compile_does_not_raise_where_its_mark_cannot_be_removed() -> None:
    def backend(graph: Any, _: Any) -> Any:
        for _ in range(500):
            time.sleep(0.01)
        return graph

    torch.compile(torch.nn.Identity(), backend="eager")(torch.ones(2))  # imports the compiler

    close_names(["torch._C._dynamo.eval_frame.reset_code"])

    with rs.guard(deadline_s=0.5):
        assert torch.equal(torch.compile(double, backend=backend)(torch.ones(2)), double(torch.ones(2)))
    assert torch.equal(rs.compile(double, backend="eager")(torch.ones(2)), double(torch.ones(2)))


def test_the_schema_of_an_operator_is_also_read_with_torchs_public_function() -> None:
    closed = "torch._ops.OpOverload._schema"
    read = dispatch.schema_of.__wrapped__
    operators = torch.ops.aten.add_.Tensor, torch.ops.aten.split.Tensor, torch.ops.aten.empty.memory_format
    expected = [read(operator) for operator in operators]
    close_names([closed])

    assert [read(operator) for operator in operators] == expected
    with pytest.raises(UnsupportedTorchError, match=r"of torch 2\.0 and later have it, so"):
        read(torch.ops.aten.record_stream.default)  # its public signature has a type that torch does not know


def test_a_closed_name_is_logged_once_with_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    close_names(["torch._C._dynamo.guards.TensorGuards"])

    with caplog.at_level(logging.WARNING, "rocsolid"):
        capture()

    lines = [r.getMessage() for r in caplog.records if "TensorGuards" in r.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("rs.capture: inputs are compared in Python, so a replay costs more CPU time")


def test_comparisons_in_python_notice_what_torchs_guards_notice() -> None:
    from rocsolid.torchapi.graphs.replay_checks import state_check, tensor_check

    close_names(["torch._C._dynamo.guards.TensorGuards", "torch._C._dynamo.guards.GlobalStateGuard"])
    x, y = torch.zeros(2, 3), torch.zeros(4)
    matches, same_state = tensor_check([x, y], {0: {1}}), state_check()

    assert matches(torch.ones(2, 9), torch.ones(4))
    for others in (
        (torch.ones(3, 3), y),
        (x, torch.ones(5)),
        (x, torch.ones(4, dtype=torch.int64)),
        (x, torch.ones(4, requires_grad=True)),
        (x, torch.ones(8)[::2]),
        (x, torch.nn.Parameter(torch.ones(4), requires_grad=False)),
        (x,),
    ):
        assert not matches(*others)
    assert not tensor_check([y, y.clone()])(y, y)
    with torch.no_grad():
        assert not matches(torch.ones(2, 9), torch.ones(4))
        assert not same_state()
    assert same_state()


@pytest.mark.parametrize("seed", range(3))
def test_a_future_torch_starts_with_the_probes_and_one_warning(
    seed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    choice = random.Random(seed)  # noqa: S311 - which names are closed
    failed = {str(name) for name in choice.sample(list(NAMES), 12)}
    failed |= {str(n) for n in NAMES if not n.exists()}  # those of later releases than the installed torch
    results = [
        ProbedName(name=str(n), without=n.without, problem="it is gone" if str(n) in failed else "") for n in NAMES
    ]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch, "__version__", ("2.16.0", "2.16.0.dev20261117+cpu", "3.0.0+rocm10.1")[seed])
    probes: list[int] = []

    def probe() -> tuple[list[ProbedName], str]:
        probes.append(1)
        return results, ""

    monkeypatch.setattr(new_torch, "probe_private_names", probe)
    new_torch.check_new_torch.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "rocsolid"):
            for scenario in (capture, compile_and_guard, observe):
                scenario()
            new_torch.check_new_torch.cache_clear()  # another process of the same build
            new_torch.check_new_torch()
    finally:
        new_torch.check_new_torch.cache_clear()

    warned = [r.getMessage() for r in caplog.records if r.name == "rocsolid" and "is newer than" in r.getMessage()]
    others = [r.getMessage() for r in caplog.records if "missing or behaves differently" in r.getMessage()]
    assert len(probes) == 1, "the second process reads the stored result"
    assert len(warned) == 2, "one in each process"
    assert warned[0].startswith(f"torch {torch.__version__} is newer than the releases that rocsolid was tested with")
    assert others == []
    assert private_api._closed == failed


def test_a_tested_torch_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_torch, "probe_private_names", lambda: pytest.fail("probed"))
    new_torch.check_new_torch.cache_clear()

    new_torch.check_new_torch()


FUTURE = "2.16.0.dev20261117"
NEWER_TORCH = f"""
from rocsolid.torchapi.import_hooks import when_imported

def change(torch):
    torch.__version__ = torch.torch_version.TorchVersion({FUTURE!r})

when_imported("torch", change)
"""
FIRST_USE = """
import sys, torch
import rocsolid as rs

def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

x = torch.ones(2)
if sys.argv[1] == "vendor_op":
    operator = rs.vendor_op("future::double", double, fake=torch.empty_like)
    captured = rs.capture(double, backend="record")
    print(operator(x).tolist(), captured(x).tolist(), captured(x).tolist())
elif sys.argv[1] == "audit_op":
    print(rs.audit_op("aten::relu").ok)
else:
    print(len(rs.profile(double, x).files))
"""


@pytest.fixture(scope="module")
def use_on_a_newer_torch(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ran]:
    """Run a program in a process in which torch says that it is a release that does not exist yet."""
    folder = tmp_path_factory.mktemp("newer")
    (folder / "sitecustomize.py").write_text(NEWER_TORCH)
    paths = os.pathsep.join((str(folder), str(SOURCE)))
    env = clean_environ(XDG_CACHE_HOME=str(folder / "cache"), PYTHONPATH=paths)
    return lambda what: run_python("-c", FIRST_USE, what, env=env, timeout=400)


def test_a_torch_that_does_not_exist_yet_is_probed_once_and_works(use_on_a_newer_torch: Callable[[str], Ran]) -> None:
    first = use_on_a_newer_torch("vendor_op")

    assert first.out.splitlines() == ["[2.0, 2.0] [2.0, 2.0] [2.0, 2.0]"], first.err
    (warning,) = (line for line in first.err.splitlines() if "is newer than" in line)
    assert warning.startswith(f"torch {FUTURE} is newer than the releases that rocsolid was tested with")
    assert "the process that probes torch" not in warning
    for other in ("audit_op", "profile"):
        started = time.monotonic()
        ran = use_on_a_newer_torch(other)
        assert ran.out.splitlines() in (["True"], ["1"]), ran.err
        assert [line for line in ran.err.splitlines() if "is newer than" in line] == [warning], other
        assert time.monotonic() - started < 60, "the stored results are read"


def test_no_private_name_is_looked_up_while_a_module_is_imported() -> None:
    """It would be looked up before a new torch is probed."""
    lookups = ("find", "get", "exists", "patch", "put", "is_closed")
    early = []
    for file in sorted((SOURCE / "rocsolid").rglob("*.py")):
        waiting: list[ast.AST] = [*ast.parse(file.read_text(encoding="utf-8")).body]
        while waiting:
            node = waiting.pop()
            if isinstance(node, (ast.FunctionDef, ast.Lambda)):
                continue
            waiting += ast.iter_child_nodes(node)
            call = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
            if call and call.attr in lookups and isinstance(call.value, ast.Name) and call.value.id.isupper():
                early.append(f"{file.relative_to(SOURCE)}: {ast.unparse(node)}")

    assert [found for found in early if "/catalog/" not in found] == []
