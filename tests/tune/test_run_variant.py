"""A workload measured under a plan in a child process: its results are checked before it is timed."""

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
from rocsolid.model.trial_result import Raised, Returned, WrongResult
from rocsolid.tune.isolate.trial import TrialSpec, run

pytestmark = pytest.mark.torch
WORKLOADS = Path(__file__).with_name("workloads.py")


def run_trial(folder: Path, workload: str, **given: Any) -> Any:
    plan = encode(resolve("fast", make_env(platform=Platform.CPU)))
    params: Mapping[str, Any] = {
        "workload": f"{WORKLOADS}:{workload}",
        "plan": plan,
        "form": "eager",
        "graph": False,
        **given,
    }
    return run(TrialSpec(target="rocsolid.tune.run_variant:measure", params=params), folder / "trial")


def test_compiled_model_is_checked_and_timed(tmp_path: Path) -> None:
    result = run_trial(tmp_path, "layers", form="compiled")

    assert isinstance(result, Returned), result.reason
    assert len(result.value["samples_ms"]) == 8
    assert result.value["relative_error"] < 1e-4
    assert result.value["checked"] == "2 calls with 2 input sets, compared with eager"
    assert set(result.cost.phases) == {"import", "build", "compile", "verify", "measure"}


def test_call_without_gpu_tensors_is_measured_without_a_graph(tmp_path: Path) -> None:
    result = run_trial(tmp_path, "layers", graph=True)

    assert isinstance(result, Returned), result.reason
    assert "capture" not in result.cost.phases


def test_training_step_without_gradients_names_the_option(tmp_path: Path) -> None:
    result = run_trial(tmp_path, "training")

    assert isinstance(result, Raised), result
    assert "give --grad (in Python grad=True) for a training step" in result.reason


def test_wrong_results_reject_a_variant_with_the_error(tmp_path: Path) -> None:
    result = run_trial(tmp_path, "wrong_when_compiled", form="compiled")

    assert isinstance(result, WrongResult), result
    assert "wrong on input set 1: result: relative error" in result.reason


def test_random_workload_is_reported_as_not_checked(tmp_path: Path) -> None:
    result = run_trial(tmp_path, "random")

    assert isinstance(result, Returned), result.reason
    assert result.value["checked"].startswith("not checked")


def test_regional_form_needs_repeated_layers(tmp_path: Path) -> None:
    result = run_trial(tmp_path, "random", form="regional")

    assert isinstance(result, Raised)
    assert (
        result.reason
        == "CannotRunError: the model has no repeated layers, so form=regional does not apply (in phase compile)"
    )


def test_two_processes_draw_the_same_cores_for_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns that are compared with each other must not run on a fast core and on a slow one."""
    from rocsolid.measure.clock import Clock
    from rocsolid.tune import run_variant

    drawn: list[int | None] = []

    @contextmanager
    def record(core: int | None) -> Iterator[None]:
        drawn.append(core)
        yield

    monkeypatch.setattr(run_variant, "pinned_to_core", record)
    monkeypatch.setattr(run_variant, "pinnable_cores", lambda: [0, 1, 2, 3])
    clock = Clock("host", lambda _call, _times: 1.0)
    for _ in range(2):
        turn = run_variant._turn_timer(clock, lambda: None, turns=8)
        assert [turn() for _ in range(20)] == [1.0] * 20
    assert drawn[:20] == drawn[20:]
    assert set(drawn) == {0, 1, 2, 3}

    drawn.clear()
    run_variant._turn_timer(Clock("device", lambda _call, _times: 1.0), lambda: None, turns=8)()
    run_variant._turn_timer(clock, lambda: None)()
    assert drawn == [None, None]  # GPU times do not depend on a core, and a single long turn is not pinned


def test_calls_per_turn_are_determined_in_the_first_turn() -> None:
    """Earlier, other processes are still being set up, and every call seems slow."""
    from rocsolid.measure.clock import Clock
    from rocsolid.tune import run_variant

    called: list[int] = []

    def sample(call: Callable[[], None], _times: int) -> float:
        call()
        return 1.0

    turn = run_variant._turn_timer(Clock("device", sample), lambda: called.append(1))
    assert not called
    turn()
    assert called


def test_calls_per_sample_are_a_power_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.measure import clock

    def calls(spent_ms: float) -> int:
        monkeypatch.setattr(clock, "_host_sample", lambda _call, _times: spent_ms)
        return clock.calls_per_sample(lambda: None, 1)

    assert {calls(0.32), calls(0.34)} == {4}
    assert [calls(ms) for ms in (30.0, 1.0, 0.9, 1e-9)] == [1, 1, 2, 256]


@pytest.mark.parametrize(("devices", "turns"), [(0, 8), (1, 1)])
def test_host_rounds_have_eight_turns_and_gpu_rounds_one(tmp_path: Path, devices: int, turns: int) -> None:
    from rocsolid.api import tune
    from rocsolid.tune.space import Restrictions

    env = make_env(platform=Platform.ROCM if devices else Platform.CPU)
    env = replace(env, devices=env.devices[:devices])
    plan = resolve("fast", env)
    config, _ = tune._study_config(f"{WORKLOADS}:layers", plan, env, Restrictions(), tmp_path / "tune.db", None)

    assert len(env.devices) == devices
    assert config.turns == turns
    assert config.trial_spec({}).params["turns"] == turns
