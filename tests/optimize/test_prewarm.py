"""Each GPU library that a model needs is loaded once, and errors are ignored."""

from typing import Any

import pytest

pytest.importorskip("torch")
import torch

from rocsolid.optimize import prewarm
from rocsolid.optimize.prewarm import first_calls, prewarm_libraries

pytestmark = pytest.mark.torch


def model_with_two_layer_types() -> Any:
    layers = torch.nn.Conv2d(3, 4, 1), torch.nn.Conv2d(4, 4, 1), torch.nn.LayerNorm(4)
    return torch.nn.Sequential(*layers, torch.nn.Linear(4, 4), torch.nn.Linear(4, 2).double())


def test_there_is_one_call_for_each_library_and_dtype() -> None:
    made = [call() for call in first_calls(model_with_two_layer_types(), "cpu")]
    results = [result for result in made if isinstance(result, torch.Tensor)]
    assert {(result.dim(), result.dtype) for result in results} == {
        (4, torch.float32),
        (2, torch.float32),
        (2, torch.float64),
    }
    assert len(results) == 3
    compared = [result for result in made if not isinstance(result, torch.Tensor)]
    assert [(verdict.error, error) for verdict, error in compared] == [(1.0, 0.5)] * 3


def test_a_model_on_the_cpu_needs_no_prewarming() -> None:
    assert prewarm_libraries(model_with_two_layer_types()) is None
    assert prewarm_libraries(torch.sin) is None


def test_an_error_in_one_call_is_ignored() -> None:
    made = []

    def fails() -> None:
        msg = "CUBLAS_STATUS_NOT_INITIALIZED"
        raise RuntimeError(msg)

    prewarm._run_all([fails, lambda: made.append(torch.is_grad_enabled())])
    assert made == [False]


@pytest.mark.gpu
def test_a_thread_loads_the_libraries_of_the_model() -> None:
    thread = prewarm_libraries(model_with_two_layer_types().to("cuda", torch.bfloat16))
    assert thread is not None
    thread.join()
