"""A workload measured under a plan in a process of its own: right before fast."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support import make_env

from rocsolid.catalog.profiles import resolve
from rocsolid.model.codec import encode
from rocsolid.model.platform import Platform
from rocsolid.model.trial_result import Answered, Refused, WrongResult
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


def test_what_has_nothing_on_a_device_is_measured_without_a_graph(tmp_path: Path) -> None:
    ending = ended(tmp_path, "layers", graph=True)

    assert isinstance(ending, Answered), ending.reason
    assert "capture" not in ending.account.phases


def test_a_variant_that_answers_wrongly_is_out_with_its_error(tmp_path: Path) -> None:
    ending = ended(tmp_path, "wrong_when_compiled", form="compiled")

    assert isinstance(ending, WrongResult), ending
    assert "of its size away from eager's (1% is allowed)" in ending.reason


def test_random_numbers_are_said_not_to_be_checked(tmp_path: Path) -> None:
    ending = ended(tmp_path, "random")

    assert isinstance(ending, Answered), ending.reason
    assert ending.value["checked"].startswith("not checked")


def test_a_model_without_layers_refuses_regions(tmp_path: Path) -> None:
    ending = ended(tmp_path, "random", form="regional")

    assert isinstance(ending, Refused)
    assert ending.reason == "phase compile: CannotRunError: the model has no repeated layers"


def test_short_turns_of_two_processes_are_on_the_same_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them draws by itself; what is held against each other must not be on a fast core and on a slow one."""
    from rocsolid.measure.clock import Clock
    from rocsolid.tune import variant

    drawn: list[int | None] = []

    @contextmanager
    def noted(core: int | None) -> Iterator[None]:
        drawn.append(core)
        yield

    monkeypatch.setattr(variant, "on_core", noted)
    monkeypatch.setattr(variant, "cores_here", lambda: [0, 1, 2, 3])
    clock = Clock("host", lambda _call, _times: 1.0)
    for _ in range(2):
        turn = variant._block(clock, lambda: None, turns=8)
        assert [turn() for _ in range(20)] == [1.0] * 20
    assert drawn[:20] == drawn[20:]
    assert set(drawn) == {0, 1, 2, 3}

    drawn.clear()
    variant._block(Clock("device", lambda _call, _times: 1.0), lambda: None, turns=8)()
    variant._block(clock, lambda: None)()
    assert drawn == [None, None]  # a device has no cores of ours, and one long turn sees them all


def test_the_size_of_a_turn_is_found_out_in_the_first_one() -> None:
    """Before that, others are being set up beside it, and every call seems long."""
    from rocsolid.measure.clock import Clock
    from rocsolid.tune import variant

    made: list[int] = []

    def sample(call: Callable[[], None], _times: int) -> float:
        call()
        return 1.0

    turn = variant._block(Clock("device", sample), lambda: made.append(1))
    assert not made
    turn()
    assert made


def test_equal_processes_take_samples_of_equally_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.measure import clock

    def calls(spent_ms: float) -> int:
        monkeypatch.setattr(clock, "_host_sample", lambda _call, _times: spent_ms)
        return clock.calls_per_sample(lambda: None, 1)

    assert {calls(0.32), calls(0.34)} == {4}
    assert [calls(ms) for ms in (30.0, 1.0, 0.9, 1e-9)] == [1, 1, 2, 256]


@pytest.mark.parametrize(("devices", "turns"), [(0, 8), (1, 1)])
def test_rounds_are_short_turns_where_only_the_host_is_timed(tmp_path: Path, devices: int, turns: int) -> None:
    from rocsolid.api import tune
    from rocsolid.tune.space import Narrowing

    env = make_env(platform=Platform.ROCM if devices else Platform.CPU)
    env = replace(env, devices=env.devices[:devices])
    plan = resolve("fast", env)
    job, _ = tune._job(f"{WORKLOADS}:layers", plan, env, Narrowing(), tmp_path / "tune.db", None)

    assert len(env.devices) == devices
    assert job.turns == turns
    assert job.errand({}).params["turns"] == turns
