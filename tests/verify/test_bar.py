"""The bar: of 40 planted faults at least 38 are called wrong, and the operator is named in 36; none of 40 correct variants is wrong.

The same share holds for cases by somebody who knew only the documentation.
"""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.verify import outside_cases
from tests.verify.cases import FAULTS, VARIANTS

import rocsolid as rs
from rocsolid.model.verify_report import Accuracy

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small operators are faster on one thread, also on a busy machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))


@pytest.mark.parametrize("device", DEVICES)
def test_planted_faults_are_called_wrong_and_the_operator_is_named(device: str) -> None:
    missed, unnamed = [], []
    for entry in FAULTS:
        case = entry.make(device)
        report = rs.verify(case.candidate, case.model, case.inputs)
        if not report.wrong:
            missed.append((entry.name, str(report)))
        elif report.culprit is None or not any(op in report.culprit.op for op in entry.ops):
            unnamed.append((entry.name, str(report.culprit)))

    assert len(FAULTS) == 40
    assert len(missed) <= 2, missed
    assert len(missed) + len(unnamed) <= 4, [*missed, *unnamed]


@pytest.mark.parametrize("device", DEVICES)
def test_correct_variants_are_never_called_wrong(device: str) -> None:
    wrong = []
    for entry in VARIANTS:
        case = entry.make(device)
        report = rs.verify(case.candidate, case.model, case.inputs)
        if report.verdict is Accuracy.WRONG:
            wrong.append((entry.name, str(report)))

    assert len(VARIANTS) == 40
    assert not wrong


def verify_outside_case(make: outside_cases.Case, device: str = "cpu") -> rs.VerifyReport:
    """The cases name no device, so on a GPU it is the default device, also of generators."""
    import torch

    class Generator(torch.Generator):  # type: ignore[misc]
        def __new__(cls, where: str = device) -> Any:
            return super().__new__(cls, where)

    with ExitStack() as stack:
        if device != "cpu":
            stack.enter_context(torch.device(device))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # of Dynamo, about the mode that sets the default device
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "Generator", Generator)
            candidate, model, inputs, *options = make()
        return rs.verify(candidate, model, inputs, **(options[0] if options else {}))


@pytest.mark.parametrize("device", DEVICES)
def test_faults_by_an_outsider_are_called_wrong_and_the_operator_is_named(device: str) -> None:
    missed, unnamed = [], []
    for make, ops in outside_cases.FAULTS:
        report = verify_outside_case(make, device)
        named = f"{report.culprit.op} {report.culprit.detail}" if report.culprit else ""
        if not report.wrong:
            missed.append((make.__name__, str(report)))
        elif not any(op.replace("::", ".").partition(" ")[0] in named for op in ops):
            unnamed.append((make.__name__, str(report.culprit)))

    assert len(outside_cases.FAULTS) == 20
    assert len(missed) <= 1, missed
    assert len(missed) + len(unnamed) <= 2, [*missed, *unnamed]


@pytest.mark.parametrize("device", DEVICES)
def test_correct_variants_by_an_outsider_are_never_called_wrong(device: str) -> None:
    in_numpy = {outside_cases.vendor_rms_norm_rounds_once} if device == "cuda" else set()
    made = [make for make in outside_cases.VARIANTS if make not in in_numpy]
    reports = {make.__name__: verify_outside_case(make, device) for make in made}

    assert len(reports) == 20 - len(in_numpy)
    assert not [f"{name}: {report}" for name, report in reports.items() if report.wrong]


def test_a_fused_operator_is_compared_with_all_that_it_contains() -> None:
    report = verify_outside_case(outside_cases.batch_norm_folded_with_old_variance)
    assert report.culprit
    assert "w2, b2" in report.culprit.location  # the first convolution is folded correctly


def test_an_overflow_in_lower_precision_is_found_where_it_happens() -> None:
    report = verify_outside_case(outside_cases.rms_norm_square_in_fp16)
    assert report.culprit
    assert report.culprit.location.endswith("wide = x.float()")
    assert "aten.pow.Tensor_Scalar is the first with a wrong result" in report.culprit.detail


def test_a_candidate_whose_operators_torch_cannot_see_is_wrong_without_a_culprit() -> None:
    """It looked for operators without end."""
    import torch

    def fails(_x: Any) -> Any:
        msg = "not implemented"
        raise RuntimeError(msg)

    report = rs.verify(fails, torch.nn.Linear(4, 4), torch.randn(2, 4))
    assert report.wrong
    assert "raises RuntimeError where eager returns a result" in str(report)


def test_another_default_device_does_not_matter() -> None:
    import torch

    x = torch.ones(4)
    with torch.device("meta"):
        report = rs.verify(lambda x: x * 2, lambda x: x + x, x)
    assert report.verdict is Accuracy.SAME


def test_a_model_that_compiles_itself_is_compared_with_eager() -> None:
    import torch

    class Wrong(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2 if torch.compiler.is_compiling() else x * 3

    compiled = torch.compile(Wrong(), backend="eager")

    assert rs.verify(compiled, compiled, torch.randn(4), culprit=False).wrong
