"""The libraries that a model needs are called for, once each, and nothing is lost where one is not there."""

from typing import Any

import pytest

pytest.importorskip("torch")
import torch

from rocsolid.optimize import prewarm
from rocsolid.optimize.prewarm import first_calls, wake_libraries

pytestmark = pytest.mark.torch


def both() -> Any:
    layers = torch.nn.Conv2d(3, 4, 1), torch.nn.Conv2d(4, 4, 1), torch.nn.LayerNorm(4)
    return torch.nn.Sequential(*layers, torch.nn.Linear(4, 4), torch.nn.Linear(4, 2).double())


def test_one_call_for_each_library_and_element_type() -> None:
    made = [call() for call in first_calls(both(), "cpu")]
    answers = [answer for answer in made if isinstance(answer, torch.Tensor)]
    kinds = {(answer.dim(), answer.dtype) for answer in answers}
    assert kinds == {(4, torch.float32), (2, torch.float32), (2, torch.float64)}
    assert len(answers) == 3
    compared = [answer for answer in made if not isinstance(answer, torch.Tensor)]
    assert [(verdict.error, error) for verdict, error in compared] == [(1.0, 0.5)] * 3


def test_nothing_on_a_device_needs_no_waking() -> None:
    assert wake_libraries(both()) is None
    assert wake_libraries(torch.sin) is None


def test_a_call_that_fails_is_no_harm() -> None:
    made = []

    def fails() -> None:
        msg = "CUBLAS_STATUS_NOT_INITIALIZED"
        raise RuntimeError(msg)

    prewarm._make([fails, lambda: made.append(torch.is_grad_enabled())])
    assert made == [False]


@pytest.mark.gpu
def test_a_thread_wakes_what_the_model_will_call() -> None:
    thread = wake_libraries(both().to("cuda", torch.bfloat16))
    assert thread is not None
    thread.join()
