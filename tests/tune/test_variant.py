"""A workload measured under a plan in a process of its own: right before fast."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support import make_env

from rocsolid.catalog.profiles import resolve
from rocsolid.model.codec import encode
from rocsolid.model.ending import Answered, Refused, WrongAnswer
from rocsolid.model.platform import Platform
from rocsolid.tune.isolate.trial import Errand, run

pytestmark = pytest.mark.torch
WORKLOADS = Path(__file__).with_name("workloads.py")


def ended(folder: Path, workload: str, **given: Any) -> Any:
    plan = encode(resolve("fast", make_env(platform=Platform.CPU)))
    params: Mapping[str, Any] = {
        "workload": f"{WORKLOADS}:{workload}",
        "plan": plan,
        "form": "eager",
        "graph": False,
        **given,
    }
    return run(Errand(target="rocsolid.tune.variant:measure", params=params), folder / "trial")


def test_a_compiled_model_is_checked_and_timed(tmp_path: Path) -> None:
    ending = ended(tmp_path, "layers", form="compiled")

    assert isinstance(ending, Answered), ending.reason
    assert len(ending.value["samples_ms"]) == 8
    assert ending.value["error"] < 1e-4
    assert ending.value["checked"] == "2 calls with 2 inputs, against eager and double precision"
    assert set(ending.account.phases) == {"import", "build", "compile", "verify", "measure"}


def test_a_variant_that_answers_wrongly_is_out_with_its_error(tmp_path: Path) -> None:
    ending = ended(tmp_path, "wrong_when_compiled", form="compiled")

    assert isinstance(ending, WrongAnswer), ending
    assert "of its size away from eager's (1% is allowed)" in ending.reason


def test_random_numbers_are_said_not_to_be_checked(tmp_path: Path) -> None:
    ending = ended(tmp_path, "random")

    assert isinstance(ending, Answered), ending.reason
    assert ending.value["checked"].startswith("not checked")


def test_a_model_without_layers_refuses_regions(tmp_path: Path) -> None:
    ending = ended(tmp_path, "random", form="regional")

    assert isinstance(ending, Refused)
    assert ending.reason == "phase compile: CannotRunError: the model has no repeated layers"
