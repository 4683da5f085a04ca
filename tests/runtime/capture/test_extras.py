"""The small things: spelling of a call, empty tensors, no tensors, copies of the wrapper, what passes through."""

import copy
import inspect
import pickle
from collections import OrderedDict
from typing import Any

import pytest

import rocsolid as rs
from rocsolid.errors import CaptureError, UnknownNameError, UsageError
from rocsolid.runtime.capture.reading import reader
from rocsolid.runtime.capture.surroundings import look_around
from rocsolid.torchapi.graphs.fast_checks import tensor_check

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


def scaled(x: Any, scale: float = 2.0, *, shift: float = 0.0) -> Any:
    """Scale and shift."""
    return x * scale + shift


def test_one_call_spelled_differently_is_one_graph(place: Any) -> None:
    g, x = place.capture(scaled), place.randn(3)
    g(x)
    for args, kwargs in (((x, 2.0), {}), ((x,), {"scale": 2.0}), ((), {"shift": 0.0, "x": x}), ((x,), {"shift": 0.0})):
        assert torch.equal(g(*args, **kwargs), scaled(x))
    assert len(g.report().graphs) == 1
    assert g.report().replays == 4


def test_named_arguments_in_another_order_are_the_same_call(place: Any) -> None:
    g, x, y = place.capture(lambda **named: named["a"] - named["b"]), place.randn(3), place.randn(3)
    g(a=x, b=y)
    assert torch.equal(g(b=y, a=x), x - y)
    assert g.report().replays == 1


def test_empty_tensors_and_single_numbers(place: Any) -> None:
    g = place.capture(lambda x, y: (x * 2, y + 1))
    for _ in range(2):
        empty, one = g(place.randn(0, 3), place.randn(()))
        assert empty.shape == (0, 3)
        assert one.shape == ()
    assert g.report().replays == 1


def test_a_call_without_tensors_and_one_without_work_run_eagerly(place: Any) -> None:
    g = rs.capture(lambda n: n + 1)
    assert [g(1), g(1), g(2)] == [2, 2, 3]
    g = place.capture(lambda x: x)
    x = place.randn(3)
    assert g(x) is x
    assert g(x) is x
    assert g.report().replays == 0


def test_it_looks_like_the_function(place: Any) -> None:
    g = place.capture(scaled)
    assert inspect.signature(g) == inspect.signature(scaled)
    assert (g.__name__, g.__doc__) == ("scaled", "Scale and shift.")

    module = place.module(torch.nn.Linear(3, 2))
    g = place.capture(module)
    assert g.out_features == 2
    assert g.state_dict().keys() == module.state_dict().keys()
    with pytest.raises(AttributeError):
        _ = g.nothing_of_the_kind


def test_a_copy_has_graphs_of_its_own(place: Any) -> None:
    module = place.module(torch.nn.Linear(3, 2))
    g, x = place.capture(module), place.randn(1, 3)
    g(x)
    for twin in (copy.deepcopy(g), pickle.loads(pickle.dumps(g))):  # noqa: S301 - our own
        assert not twin.report().graphs
        assert torch.equal(twin(x), module(x))
        assert torch.equal(twin(x), module(x))
        assert twin.report().replays == 1
    assert g.report().replays == 0


def test_as_a_decorator(place: Any) -> None:
    @rs.capture(backend=place.backend)
    def double(x: Any) -> Any:
        return x * 2

    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        @rs.capture(backend=place.backend)
        def run(self, x: Any) -> Any:
            return x * self.scale

    x = place.randn(3)
    assert torch.equal(double(x), double(x))
    assert double.report().replays == 1
    one, two = Model(2.0), Model(3.0)
    for _ in range(2):
        assert torch.equal(one.run(x), x * 2)
        assert torch.equal(two.run(x), x * 3)
    assert one.run.report().replays == two.run.report().replays == 1


def test_a_registered_container_comes_back_as_itself(place: Any) -> None:
    from torch.utils import _pytree

    class Box:
        def __init__(self, inside: Any, label: str) -> None:
            self.inside, self.label = inside, label

    _pytree.register_pytree_node(Box, lambda b: ([b.inside], b.label), lambda v, c: Box(next(iter(v)), c))
    g, x = place.capture(lambda box: Box(box.inside * 2, box.label + "!")), place.randn(3)
    for _ in range(3):
        made = g(Box(x, "a"))
        assert type(made) is Box
        assert made.label == "a!"
        assert torch.equal(made.inside, x * 2)
    assert g.report().replays == 2
    assert g(Box(x, "b")).label == "b!"


def test_ordered_dictionaries_and_their_order(place: Any) -> None:
    g, x, y = place.capture(lambda d: [v * n for n, v in enumerate(d.values())]), place.randn(2), place.randn(2)
    for given in (OrderedDict(a=x, b=y), OrderedDict(b=y, a=x), OrderedDict(a=x, b=y)):
        for got, truth in zip(g(given), [v * n for n, v in enumerate(given.values())], strict=True):
            assert torch.equal(got, truth)


def test_what_cannot_be_said_is_told_at_once() -> None:
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
    senseless: list[dict[str, Any]] = [{"max_graphs": -1}, {"warmups": 0}, {"backward": True, "outputs": "out"}]
    for wrong in senseless:
        with pytest.raises(UsageError):
            rs.capture(scaled, **wrong)
    with pytest.raises(UsageError, match="every 1, 2 or more calls"):
        rs.every(0)
    with pytest.raises(CaptureError, match="none of the call's tensors is on a device"):
        rs.capture(scaled, backend="device")(torch.ones(2))


def test_without_a_device_auto_runs_eagerly() -> None:
    g = rs.capture(scaled)
    assert torch.equal(g(torch.ones(2)), torch.full((2,), 2.0))
    assert g.report().eager_calls == {"no device": 1}
    assert rs.capture(scaled, backend="eager")(torch.ones(2)).sum() == 4


def test_more_graphs_than_asked_for_are_never_kept(place: Any) -> None:
    g = place.capture(scaled, max_graphs=0)
    assert torch.equal(g(place.randn(3) * 0), torch.zeros(3, device=place.device))
    assert "max_graphs=0" in g.report().refusals[0].detail


def test_what_a_call_would_do_is_foretold(place: Any) -> None:
    g, x = place.capture(scaled), place.randn(3)
    assert g.explain(x).action == "capture"
    g(x)
    assert g.explain(x).action == "replay"
    other = g.explain(place.randn(4))
    assert other.action == "capture"
    device = "" if place.device == "cpu" else " on cuda:0"
    assert other.differences == (f"argument 'x': float32[3]{device} before, float32[4]{device} now",)
    g.freeze()
    assert g.explain(place.randn(4)).action == "eager"
    assert torch.equal(g(torch.ones(4, device=place.device)), torch.full((4,), 2.0, device=place.device))
    assert g.report().eager_calls["frozen"] == 1


def test_the_report_goes_to_json_and_counts(place: Any) -> None:
    import json

    g, x = place.capture(scaled), place.randn(3)
    for _ in range(3):
        g(x)
    report = g.report()
    document = json.loads(report.json())
    assert document["schema"] == "rocsolid/capture/1"
    assert document["graphs"][0]["hits"] == 2
    counters = report.counters()
    assert counters["rocsolid_replays_total"] == 2
    assert counters['rocsolid_eager_calls_total{reason="first call"}'] == 1
    assert str(report).startswith(f"scaled ({place.backend}): 1 graph, 2 replays, 1 eager call, ")


def test_an_alarm_is_raised_when_graphs_are_not_used(place: Any, caplog: pytest.LogCaptureFixture) -> None:
    g, x = place.capture(lambda x: x * x.sum().item()), place.randn(3)
    for _ in range(101):
        g(x)
    assert g.report().alarm.startswith("most calls of <lambda> run eagerly: host read (100)")
    assert sum("most calls" in line for line in caplog.messages) == 1


def test_reading_made_to_measure_agrees_with_reading_in_general(place: Any) -> None:
    """The short way must refuse whatever the general way would key differently."""
    from rocsolid.runtime.capture.call import Parameters, take_call

    x, y = place.randn(2), place.randn(3)
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
    taken = [take_call(Parameters(), args, kwargs) for args, kwargs in calls]
    for number, call in enumerate(taken):
        read, fits = reader(call), tensor_check([leaf.value for leaf in call.tensors])
        for other, (args, kwargs) in enumerate(calls):
            tensors = read(args, kwargs)
            if tensors is not None and not fits(*tensors):
                tensors = None
            if other == number:
                assert tensors is not None
                assert [t.data_ptr() for t in tensors] == [leaf.value.data_ptr() for leaf in call.tensors]
            elif other != number:
                assert tensors is None, (calls[number], args, kwargs)


def test_what_a_compiled_function_keeps_about_itself_is_no_part_of_it() -> None:
    def called(x: Any) -> Any:
        return inner(x)

    inner = rs.compile(lambda x: x * 2, backend="eager", dynamic=False)
    sight = look_around(called)
    before = sight.fingerprint()
    for size in (2, 3):
        called(torch.ones(size))
    assert inner.rocsolid.used == 1
    assert sight.fingerprint() == before
