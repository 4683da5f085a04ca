"""The compile log: every graph once, with its phases, kernels and cache result; forward, backward, threads, resets."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch: Any = pytest.importorskip("torch")

from rocsolid.api.observe import record_compiles  # noqa: E402
from rocsolid.errors import UsageError  # noqa: E402
from rocsolid.model.compile_log import CacheResult, CompiledGraph, CompileLog, GraphKind  # noqa: E402
from rocsolid.observe.build_log import phase_group  # noqa: E402
from rocsolid.observe.kernels import graph_kind, read_kernels  # noqa: E402
from rocsolid.observe.recorder import CompileRecorder  # noqa: E402
from rocsolid.torchapi.dynamo import compile_events  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def fresh_number() -> float:
    """A constant that is in no cache."""
    return random.SystemRandom().random()


@pytest.fixture(scope="module")
def trained() -> CompileLog:
    """One function compiled by Inductor, forward and backward; then Dynamo is reset and it is compiled again."""
    number = fresh_number()

    def loss(x: Any, w: Any) -> Any:
        return torch.tanh(x @ w * number).sum()

    torch._dynamo.reset()  # compiles of earlier tests
    with record_compiles() as recorder:
        for _ in range(2):
            compiled = torch.compile(loss)
            compiled(torch.ones(3, 4), torch.ones(4, 5, requires_grad=True)).backward()
            torch._dynamo.reset()
    return recorder.log


def test_each_graph_is_listed_once(trained: CompileLog) -> None:
    assert [(g.number, g.kind) for g in trained.graphs] == [
        (1, GraphKind.FORWARD),
        (2, GraphKind.BACKWARD),
        (3, GraphKind.FORWARD),
        (4, GraphKind.BACKWARD),
    ]
    assert {g.compile_id for g in trained.graphs} == {"0/0"}  # torch restarts its ids after a reset
    assert all(g.function.endswith("loss") for g in trained.graphs)
    assert all(g.location.startswith(f"{__file__}:") for g in trained.graphs)
    assert all(g.called_from.startswith(f"{__file__}:") for g in trained.graphs)
    assert all(g.finished for g in trained.graphs)
    assert trained.breaks == ()


def test_the_first_compile_is_a_cache_miss_and_the_second_a_hit(trained: CompileLog) -> None:
    assert [g.cache for g in trained.graphs] == [CacheResult.MISS, CacheResult.MISS, CacheResult.HIT, CacheResult.HIT]


def test_kernels_are_listed_for_new_and_cached_graphs(trained: CompileLog) -> None:
    first, backward, again, backward_again = trained.graphs

    assert {k.kind for k in first.kernels} == {"cpp", "extern"}
    assert [(k.name, k.launches) for k in first.kernels] == [(k.name, k.launches) for k in again.kernels]
    assert [k.name for k in backward.kernels] == [k.name for k in backward_again.kernels]
    assert first.launches == 2
    (fused,) = [k for k in first.kernels if k.kind == "cpp"]
    assert "tanh" in fused.name
    assert "kernel(" in fused.code
    assert first.nodes_before_fusion >= 2
    assert fused.locations
    assert all(location.startswith(__file__) for location in fused.locations)


def test_operators_and_nodes_are_counted(trained: CompileLog) -> None:
    forward, backward = trained.graphs[:2]

    assert forward.operators["aten.mm"] == 1
    assert forward.operators["aten.tanh"] == 1
    assert backward.operators["aten.mm"] == 1
    assert (forward.inputs, forward.nodes > 5, backward.nodes > 5) == (2, True, True)


def test_phases_add_up_to_the_compile_time(trained: CompileLog) -> None:
    for graph in trained.graphs:
        assert sum(graph.phases.values()) == pytest.approx(graph.seconds)
        assert graph.seconds <= trained.seconds
    assert sum(g.seconds for g in trained.graphs) <= trained.seconds
    assert "kernel compilation" in trained.graphs[0].phases
    assert trained.graphs[0].phases.get("other", 0) < 0.05 * trained.graphs[0].seconds
    assert trained.graphs[0].cuda_graph == "not requested"
    spans = trained.graphs[0].spans
    assert spans[0].depth == 0
    assert spans[0].seconds == pytest.approx(max(s.seconds for s in spans))


def test_phases_of_torch_are_grouped() -> None:
    assert phase_group("bytecode_tracing") == "Dynamo tracing"
    assert phase_group("mm_template_autotuning") == "autotuning"
    assert phase_group("CachingAutotuner.benchmark_all_configs") == "autotuning"
    assert phase_group("something new") == "other"


def eager(graph: Any, _inputs: Any) -> Any:
    return graph.forward


def graphs_of(act: Callable[[Callable[..., Any]], object], function: Callable[..., Any]) -> tuple[CompiledGraph, ...]:
    with record_compiles() as recorder:
        act(torch.compile(function, backend=eager))
    return recorder.graphs


def test_records_compiles_in_worker_threads() -> None:
    with record_compiles() as recorder:
        threads = [
            threading.Thread(
                target=lambda k=k: torch.compile(lambda x: x.sin() * k, backend=eager)(torch.ones(2)),
                name=f"worker-{k}",
            )
            for k in (2, 3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert {g.thread for g in recorder.graphs} == {"worker-2", "worker-3"}


def test_reduce_overhead_reports_why_there_is_no_cuda_graph() -> None:
    with record_compiles() as recorder:
        torch.compile(lambda x: x.sin() + 1, mode="reduce-overhead")(torch.ones(2))

    (graph,) = recorder.graphs
    assert graph.kind is GraphKind.INFERENCE
    if not torch.cuda.is_available():
        assert graph.cuda_graph == "skipped: multiple devices"


def test_records_a_recompile_of_a_function_compiled_before() -> None:
    compiled = torch.compile(lambda x: x + 1, backend=eager)
    compiled(torch.ones(2, 2))
    with record_compiles() as recorder:
        compiled(torch.ones(3, 3))

    (graph,) = recorder.graphs
    assert graph.recompile is not None
    assert graph.recompile.previous_compile_id == "0/0"


def test_records_graphs_compiled_without_dynamo() -> None:
    with record_compiles() as recorder:
        for number in (2, 3):
            graph = torch.fx.symbolic_trace(lambda x, n=number: (x.sin() * n,), concrete_args={"n": number})
            torch._inductor.compile(graph, [torch.ones(2)])

    assert [(g.launches, g.kind) for g in recorder.graphs] == [(1, GraphKind.INFERENCE)] * 2


def test_overlapping_recorders_restore_torch() -> None:
    from torch._dynamo.utils import ChromiumEventLogger
    from torch._inductor.output_code import CompiledFxGraph

    before = (ChromiumEventLogger.log_event_start, CompiledFxGraph.post_compile)
    first, second = CompileRecorder(), CompileRecorder()
    first.__enter__()
    second.__enter__()
    torch.compile(lambda x: x + 1, backend=eager)(torch.ones(2))
    first.__exit__()
    torch.compile(lambda x: x + 2, backend=eager)(torch.ones(2))
    second.__exit__()
    torch.compile(lambda x: x + 3, backend=eager)(torch.ones(2))

    assert (len(first.graphs), len(second.graphs)) == (1, 2)
    assert (ChromiumEventLogger.log_event_start, CompiledFxGraph.post_compile) == before
    with first, pytest.raises(UsageError, match="already recording"):
        first.__enter__()


def test_a_frame_without_tensor_operations_is_listed_as_uncompiled() -> None:
    with record_compiles() as recorder:
        torch.compile(lambda x: x.shape[0], backend=eager)(torch.ones(2))

    assert recorder.graphs == ()
    assert [f.reason for f in recorder.log.uncompiled] == ["it contains no tensor operation"]


def test_lists_the_compiles_in_progress() -> None:
    progress: list[str] = []

    def slow(graph: Any, _inputs: Any) -> Any:
        progress.extend(str(compiling) for compiling in recorder.running())
        return graph.forward

    def waited_for(x: Any) -> Any:
        return x.sin() + 1

    with record_compiles() as recorder:
        torch.compile(waited_for, backend=slow)(torch.ones(2))

    assert progress == ["graph 1, waited_for, 4 nodes, 0 s: calling the backend"]
    assert recorder.running() == ()


def test_recording_takes_less_than_two_percent_of_a_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """All our work in a compile goes through one function; its time is compared with that of the compile."""
    spent = [0.0]
    plain = compile_events._log_failures

    def timed(*args: Any, **kwargs: Any) -> None:
        begin = time.perf_counter()
        plain(*args, **kwargs)
        spent[0] += time.perf_counter() - begin

    monkeypatch.setattr(compile_events, "_log_failures", timed)
    layers = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(6)))

    def share() -> float:
        spent[0] = 0.0
        number = fresh_number()
        with record_compiles() as recorder:
            torch.compile(lambda x: layers(x) * number)(torch.ones(2, 16))
        assert spent[0] > 0
        return spent[0] / recorder.log.compile_s

    assert any(share() < 0.02 for _ in range(3))  # another process may disturb one of them


def test_a_failing_hook_does_not_affect_the_compile(caplog: pytest.LogCaptureFixture) -> None:
    def failing(_event: object) -> None:
        raise RuntimeError

    stop = compile_events.subscribe(failing)
    try:
        result = torch.compile(lambda x: x + 1, backend=eager)(torch.ones(2))
    finally:
        stop()
    assert result.tolist() == [2, 2]
    assert "could not be recorded" in caplog.text


TRITON = """# AOT ID: ['0_forward']
import torch
aten = torch.ops.aten
async_compile = AsyncCompile()


# kernel path: /tmp/x.py
# Topologically Sorted Source Nodes: [mul, relu], Original ATen: [aten.mul, aten.relu]
# Source node to ATen node mapping:
#   mul => mul
triton_poi_fused_mul_relu_0 = async_compile.triton('triton_poi_fused_mul_relu_0', '''
import triton
@triton_heuristics.pointwise(size_hints={'x': 16})
@triton.jit
def triton_poi_fused_mul_relu_0(in_ptr0): pass
''', device_str='cuda')


# Topologically Sorted Source Nodes: [linear], Original ATen: [aten.addmm]
triton_tem_fused_addmm_1 = async_compile.triton('triton_tem_fused_addmm_1', '''
@triton_heuristics.template(num_stages=2)
def triton_tem_fused_addmm_1(): pass
''', device_str='cuda')

async_compile.wait(globals())
del async_compile

class Runner:
    def call(self, args):
        arg0, = args
        with torch.cuda._DeviceGuard(0):
            buf0 = empty_strided_cuda((4, 4), (4, 1), torch.float32)
            # Topologically Sorted Source Nodes: [mm], Original ATen: [aten.mm]
            extern_kernels.mm(arg0, arg0, out=buf0)
            triton_poi_fused_mul_relu_0.run(buf0, 16, stream=stream0)
            triton_poi_fused_mul_relu_0.run(buf0, 16, stream=stream0)
            triton_tem_fused_addmm_1.run(buf0, stream=stream0)
            multi_kernel_0.run(buf0, stream=stream0)
            buf3 = torch.ops.vendor.attention.default(buf0)
        return (buf0, )

def benchmark_compiled_module(times=10):
    triton_poi_fused_mul_relu_0.run(1)
"""


def test_reads_triton_kernels_from_generated_code() -> None:
    kernels = read_kernels(TRITON, {"mul": "model.py:3", "relu": "model.py:4"})

    assert graph_kind(TRITON) is GraphKind.FORWARD
    assert [(k.name, k.kind, k.launches) for k in kernels] == [
        ("triton_poi_fused_mul_relu_0", "triton", 2),
        ("triton_tem_fused_addmm_1", "template", 1),
        ("extern_kernels.mm", "extern", 1),
        ("multi_kernel_0", "triton", 1),
        ("torch.ops.vendor.attention.default", "extern", 1),
    ]
    assert kernels[0].locations == ("model.py:3", "model.py:4")
    assert kernels[0].operators == ("aten.mul", "aten.relu")
    assert kernels[0].code.startswith("import triton")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # torch warns when it creates its memory pool
def test_gpu_lists_triton_kernels_and_cuda_graphs() -> None:
    number = fresh_number()

    def function(x: Any) -> Any:
        return torch.relu(x @ x * number).sum(-1)

    x = torch.randn(64, 64, device="cuda")
    with record_compiles() as recorder, torch.no_grad():
        compiled = torch.compile(function, mode="reduce-overhead")
        for _ in range(3):
            compiled(x)

    (graph,) = recorder.graphs
    assert graph.cuda_graph == "captured"
    assert {"triton", "extern"} <= {k.kind for k in graph.kernels}
    (fused,) = [k for k in graph.kernels if k.kind == "triton"]
    assert "aten.relu" in fused.operators
    assert all(location.startswith(__file__) for location in fused.locations)
    assert fused.locations
    assert "@triton.jit" in fused.code


@pytest.mark.gpu
def test_gpu_times_autotuning() -> None:
    number = fresh_number()
    x = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16)
    with record_compiles() as recorder, torch.no_grad():
        torch.compile(lambda x: x @ x * number, options={"max_autotune": True})(x)

    (graph,) = recorder.graphs
    assert graph.autotuning_s > 0
