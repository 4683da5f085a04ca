"""Where the reference decides: rs.optimize, rs.tune, vendor operators, captures; and checks in service."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

import rocsolid as rs
from rocsolid.model.form import Form
from rocsolid.model.optimize_report import FormOutcome
from rocsolid.model.workload import Workload
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.race import RacedForm, expect, prepare
from rocsolid.tune.check_results import ResultChecker
from rocsolid.tune.isolate.trial_process import WrongResultError

pytestmark = pytest.mark.torch


class Scan(torch.nn.Module):  # type: ignore[misc]
    """A recurrence in bfloat16, like the scan of Mamba: every step rounds, so eager itself is far from the truth."""

    def forward(self, x: Any) -> Any:
        state = torch.zeros_like(x[:, 0])
        for step in range(x.shape[1]):
            state = torch.sin(state * 2.0 + x[:, step])
        return state


def scan_with_wide_state(x: Any) -> Any:
    """What a compiled scan does: the state stays in float32."""
    state = torch.zeros_like(x[:, 0], dtype=torch.float32)
    for step in range(x.shape[1]):
        state = torch.sin(state * 2.0 + x[:, step].float())
    return state.to(x.dtype)


def scan_inputs() -> Any:
    return torch.randn(16, 12, 8, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)


def prepared(model: Any, function: Any, x: Any) -> Any:
    examples = [Example((x,), {})]
    expected = expect(model, examples)
    eager, raced = RacedForm(form=Form.EAGER, make=lambda: model), RacedForm(form=Form.COMPILED, make=lambda: function)
    for form in (eager, raced):
        prepare(form, examples, expected, float("inf"))
    return raced.result


def test_optimize_keeps_a_form_that_differs_from_eager_but_is_as_accurate() -> None:
    result = prepared(Scan(), scan_with_wide_state, scan_inputs())

    assert result.relative_error > 0.05, "more than the old limit"
    assert result.reference_error < result.eager_reference_error
    assert result.outcome is FormOutcome.NOT_CHOSEN
    assert result.verdict is rs.Accuracy.AS_ACCURATE
    assert "error" in result.why
    assert "eager's own" in result.why


def test_optimize_excludes_a_form_that_is_less_accurate() -> None:
    def rounded(x: Any) -> Any:
        return torch.sin(x.to(torch.bfloat16).float()) * 1.0

    result = prepared(torch.sin, rounded, torch.randn(64))

    assert result.outcome is FormOutcome.WRONG
    assert result.reference_error > 1.1 * result.eager_reference_error


def test_eager_with_dropout_is_reported_as_random() -> None:
    examples = [Example((torch.ones(64),), {})]
    model = torch.nn.Dropout(0.5)
    eager = RacedForm(form=Form.EAGER, make=lambda: model)
    prepare(eager, examples, expect(model, examples), float("inf"))

    assert eager.result.outcome is FormOutcome.WRONG
    assert "it draws random numbers: is dropout left on?" in eager.result.why


def test_tune_accepts_as_accurate_and_refuses_less_accurate_variants() -> None:
    checker = ResultChecker(Workload(name="scan", callable=Scan(), args=(scan_inputs(),)))
    checked, error = checker.check(scan_with_wide_state)

    assert error is not None
    assert error > 0.05
    assert "against higher precision, eager " in checked
    with pytest.raises(WrongResultError, match="wrong on input set 1: result: "):
        checker.check(lambda x: scan_with_wide_state(x) * 1.5)


def test_a_vendor_operator_may_be_as_inaccurate_as_its_reference_in_the_same_dtype() -> None:
    def scan(x: torch.Tensor) -> torch.Tensor:
        return scan_with_wide_state(x) + 0.0

    op = rs.vendor_op("verify_used::scan", scan, fake=torch.empty_like, reference=lambda x: Scan()(x)[:, :])
    x = torch.randn(4, 6, 8).to(torch.bfloat16)
    from rocsolid.numerics import as_accurate

    exact = Scan()(x.double())
    assert as_accurate(op(x), Scan()(x), exact)
    assert not as_accurate(op(x) * 1.5, Scan()(x), exact)


@pytest.mark.parametrize("backward", [False, True])
def test_a_failed_check_is_saved_reported_and_followed_by_eager(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, *, backward: bool
) -> None:
    from rocsolid.runtime.capture import entry, training

    seen: list[rs.CheckFailure] = []
    verify = rs.every(2, save_failures=tmp_path / "failures", on_failure=seen.append)
    graph = rs.capture(lambda x: x * 2, backend="record", verify=verify, backward=backward)
    x = torch.ones(3, requires_grad=backward)
    graph(x)
    plain, plain_forward = entry.Entry.replay_on, training.TrainingStep.replay_forward
    monkeypatch.setattr(entry.Entry, "replay_on", lambda *args: plain(*args) + 1)
    monkeypatch.setattr(
        training.TrainingStep, "replay_forward", lambda *args: tuple(tensor + 1 for tensor in plain_forward(*args))
    )
    with caplog.at_level(logging.WARNING, "rocsolid"):
        graph(x)
        checked = graph(x)
    report = graph.report()

    assert checked.tolist() == [2.0] * 3, "the caller gets eager's result"
    assert report.graphs == ()
    assert len(seen) == report.check_failures == report.counters()["rocsolid_check_failures_total"] == 1
    assert "relative error" in seen[0].mismatches[0]
    saved = torch.load(seen[0].file)
    assert saved["inputs"]["x"].tolist() == [1.0] * 3
    assert saved["eager"]["result"].tolist() == [2.0] * 3
    assert saved["replay"]["result"].tolist() == [3.0] * 3
    assert f"its inputs and results are in {seen[0].file}" in caplog.text


def test_a_failure_that_cannot_be_saved_or_reported_does_not_stop_the_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rocsolid.runtime.capture import entry

    (tmp_path / "file").write_text("")
    verify = rs.every(2, save_failures=tmp_path / "file" / "folder", on_failure=lambda _: 1 / 0)
    graph = rs.capture(lambda x: x * 2, backend="record", verify=verify)
    graph(torch.ones(3))
    plain = entry.Entry.replay_on
    monkeypatch.setattr(entry.Entry, "replay_on", lambda *args: plain(*args) + 1)
    graph(torch.ones(3))

    assert graph(torch.ones(3)).tolist() == [2.0] * 3
    assert "cannot be saved" in caplog.text
    assert "on_failure= raised an error" in caplog.text
