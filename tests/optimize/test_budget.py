"""`budget_s` is kept: compiles end with it, long ones are not started, and a loop's step is compiled instead of the unrolled loop."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

import rocsolid as rs
from rocsolid.model.form import Form
from rocsolid.model.optimize_report import FormOutcome

pytest.importorskip("torch")
import torch

from rocsolid.optimize import form_race, optimized
from rocsolid.runtime.compiled import compile_with_plan
from rocsolid.runtime.regional_compile import counting_calls, repeated_step

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


class Step(torch.nn.Module):  # type: ignore[misc]
    """One step: a linear layer and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.act = torch.nn.Linear(4, 4), torch.nn.ReLU()

    def forward(self, x: Any) -> Any:
        return self.act(self.linear(x))


class Loop(torch.nn.Module):  # type: ignore[misc]
    """Runs one step several times, as a denoiser does."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.step = steps, Step()

    def forward(self, x: Any) -> Any:
        for _ in range(self.steps):
            x = x - self.step(x) / self.steps
        return x


def slow_backend(graph: Any, _: Any) -> Any:
    """Compile for 0.4 s for each matrix product in the graph, in small steps."""
    products = sum("linear" in str(node.target) for node in graph.graph.nodes if node.op == "call_function")
    ends = time.perf_counter() + 0.4 * max(1, products)
    while time.perf_counter() < ends:
        time.sleep(0.01)
    return graph.forward


@pytest.fixture
def compiles_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        optimized,
        "compile_with_plan",
        lambda plan, model, **options: compile_with_plan(plan, model, backend=slow_backend, **options),
    )


def outcomes(report: Any) -> dict[Form, FormOutcome]:
    return {result.form: result.outcome for result in report.forms}


@pytest.mark.usefixtures("compiles_slowly")
def test_a_compile_ends_with_the_budget() -> None:
    layers = torch.nn.Sequential(*[Step() for _ in range(12)])  # by region 0.4 s, as a whole 4.8 s
    rs.optimize(layers, torch.ones(2, 4), budget_s=0)  # imports
    started = time.perf_counter()
    report = rs.optimize(layers, torch.ones(2, 4), budget_s=3.0).report()
    assert time.perf_counter() - started < 4.5
    assert outcomes(report)[Form.REGIONAL] in (FormOutcome.CHOSEN, FormOutcome.NOT_CHOSEN)
    assert outcomes(report)[Form.COMPILED] is FormOutcome.FAILED


@pytest.mark.usefixtures("compiles_slowly")
def test_the_step_of_a_loop_is_compiled_instead_of_the_whole_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Loop(10), torch.ones(2, 4)
    report = rs.optimize(model, x, budget_s=3.0).report()
    assert outcomes(report)[Form.REGIONAL] in (FormOutcome.CHOSEN, FormOutcome.NOT_CHOSEN)
    skipped = report.forms[-1]
    assert (skipped.form, skipped.outcome) == (Form.COMPILED, FormOutcome.SKIPPED)
    assert skipped.why.startswith("it would compile the same step 10 times: set-up would take about")

    torch._dynamo.reset()
    monkeypatch.setattr(form_race, "_LONG_SETUP_S", 1.0)
    without_budget = rs.optimize(Loop(5), x).report()
    assert outcomes(without_budget)[Form.COMPILED] is FormOutcome.SKIPPED
    monkeypatch.setattr(form_race, "_LONG_SETUP_S", 60.0)
    short = rs.optimize(Loop(3), x).report()
    assert outcomes(short)[Form.COMPILED] in (FormOutcome.CHOSEN, FormOutcome.NOT_CHOSEN), "a short one is tried"


def test_the_outermost_repeated_part_is_the_step() -> None:
    class Nested(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.head, self.inner = torch.nn.Linear(4, 4), Loop(4)

        def forward(self, x: Any) -> Any:
            for _ in range(3):
                x = self.inner(x)
            return self.head(self.head(self.head(x)))

    model = Nested()
    with counting_calls(model) as counts:
        model(torch.ones(4))
        model(torch.ones(4))
    step = repeated_step(model, counts, 2)
    assert step is not None
    assert (step.module, step.calls) == (model.inner, 3)
    layers = torch.nn.Sequential(Step(), Step())
    with counting_calls(layers) as counts:
        layers(torch.ones(4))
    assert repeated_step(layers, counts, 1) is None
    assert not layers[0]._forward_pre_hooks
    compiled = torch.nn.Sequential(torch.compile(Step()))
    with counting_calls(compiled):
        assert not compiled[0]._orig_mod._forward_pre_hooks
    with counting_calls(torch.sin) as counts:
        assert repeated_step(torch.sin, counts, 1) is None


def test_a_graph_is_set_up_before_the_form_that_it_shares_a_compile_with(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[Form] = []

    def forms(model: Any, *_: Any, **__: Any) -> Any:
        def maker(form: Form) -> Any:
            def make() -> Any:
                order.append(form)
                return model

            return make

        return {form: maker(form) for form in Form}

    monkeypatch.setattr(optimized, "available_forms", forms)
    report = rs.optimize(Step(), torch.ones(2, 4)).report()
    assert order == list(form_race._SETUP_ORDER)
    assert order.index(Form.COMPILED_GRAPH) < order.index(Form.COMPILED) < order.index(Form.EAGER_GRAPH)
    assert [result.form for result in report.forms] == list(Form), "the report lists the simplest first"
