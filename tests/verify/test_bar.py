"""The bar: of 40 planted faults at least 38 are called wrong, and the operator is named in 36; none of 40 correct variants is wrong."""

from collections.abc import Iterator

import pytest
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
    assert sum(entry.docs for entry in FAULTS) == 20
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
    assert sum(entry.docs for entry in VARIANTS) == 20
    assert not wrong
