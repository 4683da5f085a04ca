"""`rs.optimize` chooses the fastest form with correct results."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rocsolid as rs
from rocsolid.errors import UsageError
from rocsolid.measure.race import Race
from rocsolid.model.form import Form
from rocsolid.model.optimize_report import FormOutcome
from rocsolid.model.plan import Tuned

pytest.importorskip("torch")
import torch

from rocsolid.model.verify_report import Accuracy
from rocsolid.numerics import relative_error
from rocsolid.optimize import form_race, optimized
from rocsolid.optimize import progressive as progressive_module
from rocsolid.optimize.example_inputs import Example, to_examples
from rocsolid.optimize.race import RacedForm, choose_winner, expect, prepare, raced_forms
from rocsolid.runtime.regional_compile import RegionalModel, repeated_layers

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def results(report: Any) -> dict[Form, Any]:
    return {result.form: result for result in report.forms}


def optimize_with(
    monkeypatch: pytest.MonkeyPatch, model: Any, forms: dict[Form, Any], example: Any, **kwargs: Any
) -> Any:
    """Optimize with these functions as forms, in addition to eager."""
    makers = {Form.EAGER: lambda: model} | {
        form: (lambda function=function: function) for form, function in forms.items()
    }
    monkeypatch.setattr(optimized, "available_forms", lambda *_, **__: makers)
    return rs.optimize(model, example, **kwargs)


def slow(x: Any) -> Any:
    time.sleep(0.003)
    return x * 2


def test_the_fastest_form_with_correct_results_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any) -> Any:
        msg = "no kernel for this\nand more lines"
        raise RuntimeError(msg)

    forms = {
        Form.REGIONAL: lambda x: x * 2.2,
        Form.COMPILED: lambda x: x + x,
        Form.EAGER_GRAPH: fails,
        Form.REGIONAL_GRAPH: slow,
    }
    fast = optimize_with(monkeypatch, slow, forms, torch.ones(4))
    report = fast.report()
    by_form = results(report)

    assert report.chosen is Form.COMPILED
    assert fast(torch.ones(4)).tolist() == [2.0] * 4
    assert by_form[Form.COMPILED].outcome is FormOutcome.CHOSEN
    assert by_form[Form.COMPILED].against_eager.speedup > 5
    assert by_form[Form.REGIONAL].outcome is FormOutcome.WRONG
    assert by_form[Form.REGIONAL].relative_error == pytest.approx(0.1)
    assert by_form[Form.REGIONAL].timing is None, "a form with wrong results is not measured"
    assert by_form[Form.REGIONAL].verdict is Accuracy.WRONG
    assert by_form[Form.REGIONAL].why.startswith("wrong: result: relative error 1.0e-01 against the reference")
    assert by_form[Form.EAGER_GRAPH].outcome is FormOutcome.FAILED
    assert by_form[Form.EAGER_GRAPH].why == "RuntimeError: no kernel for this"
    assert by_form[Form.REGIONAL_GRAPH].outcome is FormOutcome.NOT_CHOSEN
    assert "'compiled' was chosen, because it is" in str(report)


def test_eager_is_chosen_if_nothing_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = optimize_with(monkeypatch, slow, {Form.COMPILED: slow}, torch.ones(4))
    assert fast.report().chosen is Form.EAGER
    assert fast.report().why == "no other form is faster by more than the noise"


def test_forms_are_skipped_if_no_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = optimize_with(monkeypatch, slow, {Form.COMPILED: lambda x: x + x}, torch.ones(4), budget_s=0)
    assert results(fast.report())[Form.COMPILED].outcome is FormOutcome.SKIPPED
    assert fast.report().chosen is Form.EAGER


def test_the_report_goes_to_json_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    from rocsolid.model.codec import decode
    from rocsolid.model.optimize_report import OptimizeReport

    report = optimize_with(monkeypatch, slow, {Form.COMPILED: lambda x: x + x}, torch.ones(4)).report()
    assert decode(OptimizeReport, json.loads(report.json())) == report


def test_checks_that_a_form_without_a_graph_cannot_make_are_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`verify=rs.every(n)` compares replays; an operator must not believe that compiled calls are compared, too."""
    forms = {Form.COMPILED: lambda x: x + x}
    unchecked = optimize_with(monkeypatch, slow, forms, torch.ones(4), verify=rs.every(5)).report()

    assert unchecked.chosen is Form.COMPILED
    assert unchecked.unchecked
    assert "calls are not compared with eager: rs.every(n) compares replays" in str(unchecked)
    assert "calls are not compared with eager" in caplog.text
    assert not optimize_with(monkeypatch, slow, forms, torch.ones(4)).report().unchecked
    assert not optimize_with(monkeypatch, slow, {}, torch.ones(4), verify=rs.every(5)).report().unchecked


def test_arguments_that_would_do_nothing_are_refused() -> None:
    x = torch.ones(2, 3)
    with pytest.raises(
        UsageError, match="buckets= names `nonsense`, but the call has no such argument; it has `input`"
    ):
        rs.optimize(torch.nn.Linear(3, 3), x, buckets={"nonsense": rs.Bucket(dim=0, sizes=[2, 4])})
    rs.optimize(torch.nn.Linear(3, 3), x, buckets={"input": rs.Bucket(dim=0, sizes=[2, 4])}, budget_s=0)
    with pytest.raises(UsageError, match="artefacts= and progressive=True exclude each other"):
        rs.optimize(torch.sin, x, progressive=True, artefacts="somewhere")


def test_all_documented_types_of_example_inputs_are_accepted() -> None:
    x, y = torch.ones(1), torch.ones(2)
    assert to_examples(x) == [Example((x,), {})]
    assert to_examples((x, y)) == [Example((x, y), {})]
    assert to_examples({"x": x}) == [Example((), {"x": x})]
    assert to_examples(((x,), {"y": y})) == [Example((x,), {"y": y})]
    assert to_examples([x, (x, y)]) == [Example((x,), {}), Example((x, y), {})]
    wrongs: list[Any] = [[], "x", 3]
    for wrong in wrongs:
        with pytest.raises(UsageError):
            to_examples(wrong)
    with pytest.raises(UsageError, match="needs a callable"):
        rs.optimize(3, x)


def test_errors_are_relative_and_infinite_for_a_different_nan_pattern() -> None:
    one = torch.ones(4)
    assert relative_error(one * 1.01, one) == pytest.approx(0.01)
    assert relative_error([one, torch.tensor([1, 2])], [one, torch.tensor([1, 3])]) == 0.5
    assert relative_error(one * float("nan"), one) == float("inf")
    assert relative_error(one[:2], one) == float("inf")
    assert relative_error((one, one), one) == float("inf")
    nan = torch.tensor([1.0, float("nan")])
    assert relative_error(nan, nan) == 0


class Layer(torch.nn.Module):  # type: ignore[misc]
    """A layer with a child module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.inner(x)) + x


class Stack(torch.nn.Module):  # type: ignore[misc]
    """Four layers of the same type."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(8, 8)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x: Any) -> Any:
        x = self.head(x)
        for layer in self.layers:
            x = layer(x)
        return x


def test_repeated_layers_are_compiled_once_and_the_model_is_unchanged() -> None:
    model, x, compiled = Stack(), torch.randn(2, 8), []
    assert repeated_layers(model) == list(model.layers)
    assert repeated_layers(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())) == []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    regional = RegionalModel(model, lambda forward: torch.compile(forward, backend=backend, fullgraph=True))
    expected = model(x)
    assert torch.equal(regional(x), expected)
    assert len(compiled) == 1
    assert "forward" not in vars(model.layers[0])
    assert torch.equal(model(x), expected)


def test_on_the_cpu_a_model_is_compiled_verified_and_measured() -> None:
    model, x = Stack().eval(), torch.randn(16, 8)
    fast = rs.optimize(model, x)
    by_form = results(fast.report())

    assert list(by_form) == [Form.EAGER, Form.REGIONAL, Form.COMPILED]
    assert {result.outcome for result in by_form.values()} <= {FormOutcome.CHOSEN, FormOutcome.NOT_CHOSEN}
    assert all(r.relative_error is not None and r.relative_error < 1e-5 for r in by_form.values())
    assert torch.allclose(fast(x), model(x), atol=1e-5)
    assert fast.captured is None
    assert fast.head is model.head


ROUNDS = {
    Form.EAGER: (9.0, 5.0, 14.0, 6.0, 11.0, 5.0),
    Form.EAGER_GRAPH: (0.98, 0.97, 0.99, 0.97, 0.98, 0.97),
    Form.COMPILED_GRAPH: (0.45, 0.46, 0.45, 0.47, 0.45, 0.45),
}


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        ({}, Form.COMPILED_GRAPH),  # although eager is noisy
        ({Form.COMPILED_GRAPH: (0.97, 0.98, 0.98, 0.98, 0.97, 0.98)}, Form.EAGER_GRAPH),  # as fast, and simpler
        (
            {Form.EAGER_GRAPH: (6.0, 9.0, 8.0, 8.0, 7.0, 9.0), Form.COMPILED_GRAPH: (7.0, 6.0, 9.0, 8.0, 8.0, 6.0)},
            Form.EAGER,
        ),
    ],
)
def test_graphs_are_compared_by_their_own_rounds(changed: dict[Form, Any], chosen: Form) -> None:
    """The times are as on a machine with twenty other compiling processes: eager is slow and noisy, graphs are not."""
    control = (5.0, 12.0, 6.0, 13.0, 5.0, 9.0)
    samples = {form.label: times for form, times in (ROUNDS | changed).items()}
    times = Race(samples_ms=samples, control_ms=control, baseline="eager", clock="device")
    forms = raced_forms({form: (lambda: len) for form in ROUNDS}, {})
    for raced in forms:
        raced.function = len
        raced.result = replace(raced.result, outcome=FormOutcome.NOT_CHOSEN)
    winner, why = choose_winner(forms, times)
    assert winner.form is chosen
    assert winner.result.outcome is FormOutcome.CHOSEN
    assert why


def test_a_patched_layer_stays_patched() -> None:
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(4, 4)) for _ in range(3)])
    patched = model[1].forward = lambda x: x * 2
    x = torch.randn(2, 4)
    expected = model(x)
    regional = RegionalModel(model, lambda forward: forward)
    assert torch.equal(regional(x), expected)
    assert vars(model[1])["forward"] is patched
    assert "forward" not in vars(model[0])


@pytest.mark.gpu
def test_on_a_gpu_the_whole_call_is_captured() -> None:
    model, x = Stack().cuda().eval(), torch.randn(1, 8, device="cuda")
    fast = rs.optimize(model, x)
    by_form = results(fast.report())

    assert fast.report().chosen.graph
    assert fast.captured is not None
    assert torch.allclose(fast(x), model(x), atol=1e-3)
    assert by_form[Form.EAGER_GRAPH].against_eager.speedup > 1


@pytest.mark.parametrize(
    ("form", "graph", "forms"),
    [
        ("compiled", True, [Form.EAGER, Form.COMPILED_GRAPH]),
        ("regional", False, [Form.EAGER, Form.REGIONAL]),
        ("eager", False, [Form.EAGER]),
    ],
)
def test_a_tuned_plan_limits_the_forms_to_its_own(form: str, graph: bool, forms: list[Form]) -> None:  # noqa: FBT001
    tuned: dict[str, Any] = {"speedup": 1.2, "low": 1.1, "high": 1.3, "noise": 0.01, "form": form, "graph": graph}
    tuned |= dict.fromkeys(("workload", "verdict", "checked", "device", "arch", "python", "date"), "")
    plan = replace(rs.resolve("fast"), tuned=Tuned(**tuned))
    layers = [torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()) for _ in range(3)]

    available = optimized.available_forms(torch.nn.Sequential(*layers), plan, lambda _: None, None)  # type: ignore[arg-type,return-value]

    assert list(available) == forms


def test_a_compiled_form_that_ran_in_eager_is_rejected_and_explained(caplog: pytest.LogCaptureFixture) -> None:
    @torch.compiler.disable
    def never_compiled(x: Any) -> Any:
        return x.sin() + x.cos()

    def model(x: Any) -> Any:
        return never_compiled(x)

    report = rs.optimize(model, torch.ones(4)).report()

    compiled = results(report)[Form.COMPILED]
    assert report.chosen is Form.EAGER
    assert compiled.outcome is FormOutcome.FAILED
    assert "torch ran it in eager" in compiled.why
    assert any("torch ran it in eager" in text for text in caplog.messages)


class Wave(torch.nn.Module):  # type: ignore[misc]
    """A model of which several instances are made."""

    def forward(self, x: Any) -> Any:
        return x.sin() + x.cos()


def test_after_a_deadline_trip_the_class_is_still_compiled(tmp_path: Path) -> None:
    torch._dynamo.reset()
    slow = rs.compile(Wave(), deadline_s=0.001)
    slow(torch.ones(4))
    assert slow.rocsolid.report().eager

    compiled = results(rs.optimize(Wave(), torch.ones(4)).report())[Form.COMPILED]

    assert compiled.timing is not None
    assert compiled.setup_s > 0.05
    again = results(rs.optimize(Wave(), torch.ones(4), artefacts=tmp_path / "new").report())[Form.COMPILED]
    assert again.timing is not None  # the code of the first call is used again: it ran compiled, without a compile


def test_a_function_that_compiles_itself_is_not_called_eager() -> None:
    compiled = torch.compile(lambda x: x * 2, backend="eager")
    plain = rs.optimize(lambda x: x * 2, torch.ones(2), budget_s=0).report().forms[0]
    own = rs.optimize(lambda x: compiled(x) + 1, torch.ones(2), budget_s=0).report().forms[0]

    assert not plain.why
    assert "the function calls torch.compile itself, so this is your compiled code" in own.why


def choose_compiled(forms: Any, _: Any) -> Any:
    """Choose the compiled form, however long it takes."""
    winner = next(raced for raced in forms if raced.form is Form.COMPILED)
    winner.result = replace(winner.result, outcome=FormOutcome.CHOSEN)
    return winner, "the test wants it"


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_compile_in_a_later_call_is_reported_and_can_be_avoided(
    progressive: bool,  # noqa: FBT001
    sealed: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for module in (form_race, progressive_module):
        monkeypatch.setattr(module, "choose_winner", choose_compiled)
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).eval()
    fast = rs.optimize(model, torch.randn(4, 8), progressive=progressive)
    if sealed:
        fast.seal(otherwise="eager")
    if progressive:
        assert fast.wait(300)
    assert fast.report().chosen is Form.COMPILED, fast.report()
    fast(torch.randn(4, 8))
    assert (fast.report().late_compiles, fast.report().refused_compiles) == (0, 0)

    odd = torch.randn(2, 3, 8)
    torch.testing.assert_close(fast(odd), model(odd))
    fast(torch.randn(4, 8))

    report = fast.report()
    assert (report.late_compiles, report.refused_compiles) == ((0, 1) if sealed else (1, 0))
    expected = "1 call ran in eager, because" if sealed else "1 compile within calls that differ from the examples"
    assert expected in str(report)
    if sealed:
        fast.double()
        fast(torch.randn(4, 8).double())
        assert fast.report().refused_compiles == 1, "the runs that verify the form again are not counted"
    assert report.counters()["rocsolid_late_compiles_total"] == report.late_compiles
    assert "is now float32[2, 3, 8]" in caplog.text
    with pytest.raises(UsageError, match="use 'raise' or 'eager'"):
        fast.seal(otherwise="never")


def test_a_graph_form_in_segments_says_what_runs_in_eager() -> None:
    class Waits(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2 if x.sum().item() > 0 else x * -3

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), Waits(), torch.nn.Linear(4, 4))
    raced = RacedForm(form=Form.EAGER_GRAPH, make=lambda: rs.capture(model, backend="record").rocsolid)
    example = Example((torch.randn(2, 4),), {})
    prepare(raced, [example], expect(model, [example]), float("inf"))
    assert raced.eligible
    assert raced.result.why.startswith("in eager between graphs: Waits `1`, because `x.sum().item()`")
