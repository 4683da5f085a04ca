"""The fastest form that answers rightly, and why."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import rocsolid as rs
from rocsolid.errors import UsageError
from rocsolid.measure.race import Race
from rocsolid.model.optimize_report import Outcome
from rocsolid.model.plan import Tuned

pytest.importorskip("torch")
import torch

from rocsolid.numerics import relative_error
from rocsolid.optimize import optimized
from rocsolid.optimize.example_inputs import Example, examples_of
from rocsolid.optimize.race import judge, named
from rocsolid.runtime.regional_compile import Regional, repeated_regions

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def candidates(report: Any) -> dict[str, Any]:
    return {candidate.name: candidate for candidate in report.candidates}


def contest(monkeypatch: pytest.MonkeyPatch, model: Any, forms: dict[str, Any], example: Any, **kwargs: Any) -> Any:
    """An optimization with candidates of the test's own beside eager."""
    made = {"eager": lambda: model} | {name: (lambda form=form: form) for name, form in forms.items()}
    monkeypatch.setattr(optimized, "candidates", lambda *_, **__: made)
    return rs.optimize(model, example, **kwargs)


def slow(x: Any) -> Any:
    time.sleep(0.003)
    return x * 2


def test_the_fastest_that_is_right_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any) -> Any:
        msg = "no kernel for this\nand more lines"
        raise RuntimeError(msg)

    forms = {"quick": lambda x: x + x, "wrong": lambda x: x * 2.2, "fails": fails, "slower": slow}
    fast = contest(monkeypatch, slow, forms, torch.ones(4))
    report = fast.report()
    found = candidates(report)

    assert report.chosen == "quick"
    assert fast(torch.ones(4)).tolist() == [2.0] * 4
    assert found["quick"].outcome is Outcome.CHOSEN
    assert found["quick"].against_eager.speedup > 5
    assert found["wrong"].outcome is Outcome.WRONG
    assert found["wrong"].error == pytest.approx(0.1)
    assert found["wrong"].timing is None, "what is wrong is not raced"
    assert "its answer is 10.0% of its size away from eager's (1% is allowed)" in found["wrong"].why
    assert found["fails"].outcome is Outcome.FAILED
    assert found["fails"].why == "RuntimeError: no kernel for this"
    assert found["slower"].outcome is Outcome.SLOWER
    assert "quick, because it is" in str(report)


def test_what_is_as_fast_is_not_worth_leaving_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = contest(monkeypatch, slow, {"same": slow}, torch.ones(4))
    assert fast.report().chosen == "eager"
    assert fast.report().why == "nothing else was faster beyond the noise"


def test_a_budget_skips_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = contest(monkeypatch, slow, {"late": lambda x: x + x}, torch.ones(4), budget_s=0)
    assert candidates(fast.report())["late"].outcome is Outcome.SKIPPED
    assert fast.report().chosen == "eager"


def test_the_report_goes_to_json_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    from rocsolid.model.codec import decode
    from rocsolid.model.optimize_report import OptimizeReport

    report = contest(monkeypatch, slow, {"quick": lambda x: x + x}, torch.ones(4)).report()
    assert decode(OptimizeReport, json.loads(report.json())) == report


def test_examples_come_in_every_form() -> None:
    x, y = torch.ones(1), torch.ones(2)
    assert examples_of(x) == [Example((x,), {})]
    assert examples_of((x, y)) == [Example((x, y), {})]
    assert examples_of({"x": x}) == [Example((), {"x": x})]
    assert examples_of(((x,), {"y": y})) == [Example((x,), {"y": y})]
    assert examples_of([x, (x, y)]) == [Example((x,), {}), Example((x, y), {})]
    wrongs: list[Any] = [[], "x", 3]
    for wrong in wrongs:
        with pytest.raises(UsageError):
            examples_of(wrong)
    with pytest.raises(UsageError, match="must be callable"):
        rs.optimize(3, x)  # type: ignore[arg-type]


def test_errors_are_relative_and_strict_about_what_is_not_finite() -> None:
    one = torch.ones(4)
    assert relative_error(one * 1.01, one) == pytest.approx(0.01)
    assert relative_error([one, torch.tensor([1, 2])], [one, torch.tensor([1, 3])]) == 0.5
    assert relative_error(one * float("nan"), one) == float("inf")
    assert relative_error(one[:2], one) == float("inf")
    assert relative_error((one, one), one) == float("inf")
    nan = torch.tensor([1.0, float("nan")])
    assert relative_error(nan, nan) == 0


class Layer(torch.nn.Module):  # type: ignore[misc]
    """A layer worth compiling."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.inner(x)) + x


class Stack(torch.nn.Module):  # type: ignore[misc]
    """Four alike."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(8, 8)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x: Any) -> Any:
        x = self.head(x)
        for layer in self.layers:
            x = layer(x)
        return x


def test_repeated_layers_are_found_and_compiled_once_without_touching_the_model() -> None:
    model, x, compiled = Stack(), torch.randn(2, 8), []
    assert repeated_regions(model) == list(model.layers)
    assert repeated_regions(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())) == []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    regional = Regional(model, lambda forward: torch.compile(forward, backend=backend, fullgraph=True))
    truth = model(x)
    assert torch.equal(regional(x), truth)
    assert len(compiled) == 1
    assert "forward" not in vars(model.layers[0])
    assert torch.equal(model(x), truth)


def test_on_a_cpu_a_model_is_compiled_checked_and_raced() -> None:
    model, x = Stack().eval(), torch.randn(16, 8)
    fast = rs.optimize(model, x)
    found = candidates(fast.report())

    assert list(found) == ["eager", "compiled by region", "compiled"]
    assert {c.outcome for c in found.values()} <= {Outcome.CHOSEN, Outcome.SLOWER}
    assert all(c.error is not None and c.error < 1e-5 for c in found.values())
    assert torch.allclose(fast(x), model(x), atol=1e-5)
    assert fast.captured is None
    assert fast.head is model.head


ROUNDS = {
    "eager": (9.0, 5.0, 14.0, 6.0, 11.0, 5.0),
    "eager, graph": (0.98, 0.97, 0.99, 0.97, 0.98, 0.97),
    "compiled, graph": (0.45, 0.46, 0.45, 0.47, 0.45, 0.45),
}


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        ({}, "compiled, graph"),  # however restless eager is
        ({"compiled, graph": (0.97, 0.98, 0.98, 0.98, 0.97, 0.98)}, "eager, graph"),  # no faster, and less simple
        ({"eager, graph": (6.0, 9.0, 8.0, 8.0, 7.0, 9.0), "compiled, graph": (7.0, 6.0, 9.0, 8.0, 8.0, 6.0)}, "eager"),
    ],
)
def test_graphs_are_judged_by_their_own_rounds(changed: dict[str, Any], chosen: str) -> None:
    """As on a machine where twenty other processes compile: eager waits for the host, and graphs do not."""
    control = (5.0, 12.0, 6.0, 13.0, 5.0, 9.0)
    raced = Race(samples_ms=ROUNDS | changed, control_ms=control, baseline="eager", clock="device")
    entrants = named({name: (lambda: len) for name in ROUNDS})
    for entrant in entrants:
        entrant.function = len
        entrant.result = replace(entrant.result, outcome=Outcome.SLOWER)
    winner, why = judge(entrants, raced)
    assert winner.name == chosen
    assert winner.result.outcome is Outcome.CHOSEN
    assert why


def test_a_layer_that_somebody_has_patched_stays_patched() -> None:
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(4, 4)) for _ in range(3)])
    patched = model[1].forward = lambda x: x * 2
    x = torch.randn(2, 4)
    wanted = model(x)
    regional = Regional(model, lambda forward: forward)
    assert torch.equal(regional(x), wanted)
    assert vars(model[1])["forward"] is patched
    assert "forward" not in vars(model[0])


@pytest.mark.gpu
def test_on_a_device_the_whole_call_is_a_graph() -> None:
    model, x = Stack().cuda().eval(), torch.randn(1, 8, device="cuda")
    fast = rs.optimize(model, x)
    found = candidates(fast.report())

    assert fast.report().chosen.endswith("graph")
    assert fast.captured is not None
    assert torch.allclose(fast(x), model(x), atol=1e-3)
    assert found["eager, graph"].against_eager.speedup > 1


@pytest.mark.parametrize(
    ("form", "graph", "names"),
    [
        ("compiled", True, ["eager", "compiled, graph"]),
        ("regional", False, ["eager", "compiled by region"]),
        ("eager", False, ["eager"]),
    ],
)
def test_a_tuned_plan_brings_its_form_along(form: str, graph: bool, names: list[str]) -> None:  # noqa: FBT001
    found: dict[str, Any] = {"speedup": 1.2, "low": 1.1, "high": 1.3, "noise": 0.01, "form": form, "graph": graph}
    found |= dict.fromkeys(("workload", "verdict", "checked", "device", "arch", "python", "date"), "")
    plan = replace(rs.resolve("fast"), tuned=Tuned(**found))
    layers = [torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()) for _ in range(3)]

    made = optimized.candidates(torch.nn.Sequential(*layers), plan, lambda _: None, None)  # type: ignore[arg-type,return-value]

    assert list(made) == names
