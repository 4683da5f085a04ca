"""The captured function as an object: ways to write a call, metadata, copies, options, prediction, report."""

import copy
import inspect
import pickle
from collections import OrderedDict
from typing import Any

import pytest
from tests.support import run_python

import rocsolid as rs
from rocsolid.errors import CaptureError, UnknownNameError, UsageError
from rocsolid.runtime.capture.fast_path import make_reader
from rocsolid.runtime.capture.reachable_state import collect_reachable
from rocsolid.runtime.capture.state_snapshot import Snapshot
from rocsolid.torchapi.graphs.replay_checks import tensor_check

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


def scaled(x: Any, scale: float = 2.0, *, shift: float = 0.0) -> Any:
    """Scale and shift."""
    return x * scale + shift


def test_a_call_written_differently_uses_the_same_graph(target: Any) -> None:
    g, x = target.capture(scaled), target.randn(3)
    g(x)
    for args, kwargs in (((x, 2.0), {}), ((x,), {"scale": 2.0}), ((), {"shift": 0.0, "x": x}), ((x,), {"shift": 0.0})):
        assert torch.equal(g(*args, **kwargs), scaled(x))
    assert len(g.report().graphs) == 1
    assert g.report().replays == 4


def test_keyword_order_does_not_matter(target: Any) -> None:
    g, x, y = target.capture(lambda **named: named["a"] - named["b"]), target.randn(3), target.randn(3)
    g(a=x, b=y)
    assert torch.equal(g(b=y, a=x), x - y)
    assert g.report().replays == 1


def test_empty_and_zero_dimensional_tensors(target: Any) -> None:
    g = target.capture(lambda x, y: (x * 2, y + 1))
    for _ in range(2):
        empty, one = g(target.randn(0, 3), target.randn(()))
        assert empty.shape == (0, 3)
        assert one.shape == ()
    assert g.report().replays == 1


def test_calls_without_tensors_or_without_work_run_in_eager(target: Any) -> None:
    g = rs.capture(lambda n: n + 1)
    assert [g(1), g(1), g(2)] == [2, 2, 3]
    g = target.capture(lambda x: x)
    x = target.randn(3)
    assert g(x) is x
    assert g(x) is x
    assert g.report().replays == 0


def test_signature_name_doc_and_attributes_are_the_functions(target: Any) -> None:
    g = target.capture(scaled)
    assert inspect.signature(g) == inspect.signature(scaled)
    assert (g.__name__, g.__doc__) == ("scaled", "Scale and shift.")

    module = target.module(torch.nn.Linear(3, 2))
    g = target.capture(module)
    assert g.out_features == 2
    assert g.state_dict().keys() == module.state_dict().keys()
    with pytest.raises(AttributeError):
        _ = g.nothing_of_the_kind


def test_deepcopy_and_pickle_start_without_graphs(target: Any) -> None:
    module = target.module(torch.nn.Linear(3, 2))
    g, x = target.capture(module), target.randn(1, 3)
    g(x)
    for twin in (copy.deepcopy(g), pickle.loads(pickle.dumps(g))):  # noqa: S301 - our own
        assert not twin.report().graphs
        assert torch.equal(twin(x), module(x))
        assert torch.equal(twin(x), module(x))
        assert twin.report().replays == 1
    assert g.report().replays == 0


def test_use_as_a_decorator(target: Any) -> None:
    @rs.capture(backend=target.backend)
    def double(x: Any) -> Any:
        return x * 2

    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        @rs.capture(backend=target.backend)
        def run(self, x: Any) -> Any:
            return x * self.scale

    x = target.randn(3)
    assert torch.equal(double(x), double(x))
    assert double.report().replays == 1
    one, two = Model(2.0), Model(3.0)
    for _ in range(2):
        assert torch.equal(one.run(x), x * 2)
        assert torch.equal(two.run(x), x * 3)
    assert one.run.report().replays == two.run.report().replays == 1


def test_a_registered_pytree_node_is_rebuilt(target: Any) -> None:
    from torch.utils import _pytree

    class Box:
        def __init__(self, inside: Any, label: str) -> None:
            self.inside, self.label = inside, label

    _pytree.register_pytree_node(Box, lambda b: ([b.inside], b.label), lambda v, c: Box(next(iter(v)), c))
    g, x = target.capture(lambda box: Box(box.inside * 2, box.label + "!")), target.randn(3)
    for _ in range(3):
        made = g(Box(x, "a"))
        assert type(made) is Box
        assert made.label == "a!"
        assert torch.equal(made.inside, x * 2)
    assert g.report().replays == 2
    assert g(Box(x, "b")).label == "b!"


def test_the_order_of_dictionary_keys_matters(target: Any) -> None:
    g, x, y = target.capture(lambda d: [v * n for n, v in enumerate(d.values())]), target.randn(2), target.randn(2)
    for given in (OrderedDict(a=x, b=y), OrderedDict(b=y, a=x), OrderedDict(a=x, b=y)):
        for got, truth in zip(g(given), [v * n for n, v in enumerate(given.values())], strict=True):
            assert torch.equal(got, truth)


def test_wrong_options_raise_at_once() -> None:
    unknown: list[dict[str, Any]] = [
        {"outputs": "copy"},
        {"on_error": "warn"},
        {"verify": "always"},
        {"backend": "gpu"},
        {"pool": "mine"},
    ]
    for wrong in unknown:
        with pytest.raises(UnknownNameError):
            rs.capture(scaled, **wrong)
    unsupported: list[dict[str, Any]] = [
        {"max_graphs": -1},
        {"warmups": 0},
        {"backward": True, "outputs": "out"},
        {"backward": True, "outputs": "alias"},
    ]
    for wrong in unsupported:
        with pytest.raises(UsageError):
            rs.capture(scaled, **wrong)
    with pytest.raises(UsageError, match="must be at least 1"):
        rs.every(0)
    with pytest.raises(CaptureError, match="no tensor of this call is on one"):
        rs.capture(scaled, backend="device")(torch.ones(2))


def test_auto_runs_in_eager_without_a_gpu() -> None:
    g = rs.capture(scaled)
    assert torch.equal(g(torch.ones(2)), torch.full((2,), 2.0))
    assert g.report().eager_calls == {"no device": 1}
    assert "no tensor of the call is on a GPU, so it runs in eager" in g.report().warning
    on_request = rs.capture(scaled, backend="eager")
    assert on_request(torch.ones(2)).sum() == 4
    assert not on_request.report().warning


def test_max_graphs_zero_captures_nothing(target: Any) -> None:
    g = target.capture(scaled, max_graphs=0)
    assert torch.equal(g(target.randn(3) * 0), torch.zeros(3, device=target.device))
    assert "max_graphs=0" in g.report().refusals[0].message


def test_explain_predicts_what_a_call_does(target: Any) -> None:
    g, x = target.capture(scaled), target.randn(3)
    assert g.explain(x).action == "capture"
    g(x)
    assert g.explain(x).action == "replay"
    other = g.explain(target.randn(4))
    assert other.action == "capture"
    device = "" if target.device == "cpu" else " on cuda:0"
    assert other.differences == (f"argument 'x' was float32[3]{device}, is now float32[4]{device}",)
    g.freeze()
    assert g.explain(target.randn(4)).action == "eager"
    assert torch.equal(g(torch.ones(4, device=target.device)), torch.full((4,), 2.0, device=target.device))
    assert g.report().eager_calls["frozen"] == 1


def test_report_as_json_text_and_counters(target: Any) -> None:
    import json

    g, x = target.capture(scaled), target.randn(3)
    for _ in range(3):
        g(x)
    report = g.report()
    document = json.loads(report.json())
    assert document["schema"] == "rocsolid/capture/1"
    assert document["graphs"][0]["replays"] == 2
    counters = report.counters()
    assert counters["rocsolid_replays_total"] == 2
    assert counters['rocsolid_eager_calls_total{reason="first call"}'] == 1
    assert str(report).startswith(f"scaled (backend {target.backend}): 1 graph, 2 replays, 1 eager call, ")


def test_a_warning_is_logged_once_when_most_calls_run_in_eager(target: Any, caplog: pytest.LogCaptureFixture) -> None:
    g, x = target.capture(lambda x: x * x.sum().item()), target.randn(3)
    for _ in range(101):
        g(x)
    assert g.report().warning.startswith(
        "<lambda>: most calls run in eager instead of replaying a graph: host sync (100)"
    )
    assert sum("most calls" in line for line in caplog.messages) == 1


def test_the_fast_path_rejects_every_call_with_another_key(target: Any) -> None:
    """The generated reader and the C++ guards must agree with the cache key."""
    from rocsolid.runtime.capture.call import Parameters, parse_call

    x, y = target.randn(2), target.randn(3)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((x,), {}),
        ((x, y), {}),
        ((x, x), {}),
        ((x,), {"y": y}),
        (([x, y],), {}),
        (((x, y),), {}),
        (([x],), {}),
        (({"a": x},), {}),
        (({"b": x},), {}),
        (({"a": x, "b": y},), {}),
        (({"b": y, "a": x},), {}),
        ((x, 1), {}),
        ((x, True), {}),
        ((x, 1.0), {}),
        ((x, None), {}),
        ((x, "1"), {}),
        ((x, torch.float32), {}),
        ((x, torch.float16), {}),
        ((x, slice(1, 2)), {}),
        ((x, slice(1, 3)), {}),
    ]
    taken = [parse_call(Parameters(), args, kwargs) for args, kwargs in calls]
    for number, call in enumerate(taken):
        read, fits = make_reader(call), tensor_check([leaf.value for leaf in call.tensors])
        for other, (args, kwargs) in enumerate(calls):
            tensors = read(args, kwargs)
            if tensors is not None and not fits(*tensors):
                tensors = None
            if other == number:
                assert tensors is not None
                assert [t.data_ptr() for t in tensors] == [leaf.value.data_ptr() for leaf in call.tensors]
            elif other != number:
                assert tensors is None, (calls[number], args, kwargs)


def test_the_compile_log_of_a_compiled_function_is_not_reachable_state() -> None:
    def called(x: Any) -> Any:
        return inner(x)

    inner = rs.compile(lambda x: x * 2, backend="eager", dynamic=False)
    snapshot = Snapshot(collect_reachable(called))
    for size in (2, 3):
        called(torch.ones(size))
    assert inner.rocsolid.recompiles == 1
    assert not snapshot.changes()


def test_an_exception_that_was_cancelled_for_another_thread_does_not_hang_a_capture() -> None:
    """Python 3.11 keeps its flag, and then hangs in the first profiled call."""
    code = """
import ctypes, threading, torch, rocsolid as rs
ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
fast = rs.capture(lambda x: x * 2, backend="record")
for _ in range(3):
    fast(torch.ones(2))
assert fast.report().replays
"""
    ran = run_python("-c", code, timeout=60)
    assert ran.code == 0, ran.err
