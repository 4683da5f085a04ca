"""A/B tests: when the comparison is over, and when it is repeated."""

import importlib
import random
import re
from dataclasses import replace
from typing import Any

import pytest

from rocsolid.measure.process_race import RaceOptions
from rocsolid.model.progress import Step
from rocsolid.model.timing import Verdict

ab_test = importlib.import_module("rocsolid.tune.ab_test")
OPTIONS = RaceOptions(rounds=24, restart_every=6, eliminate=False)


class FakeProcess:
    """Each restart gives it a new random offset."""

    offsets = 0.0

    def __init__(self, _study_config: Any, choices: Any, name: str, _on_status: Any) -> None:
        self.rng = random.Random(name)  # noqa: S311 - not used for security
        self.ms, self.failure, self.processes = choices["ms"], "", 0
        self.restart()

    def restart(self) -> None:
        self.processes += 1
        self.offset = self.rng.gauss(0, self.offsets)

    def ready(self) -> bool:
        return not self.failure

    def sample(self) -> float | None:
        return float(self.ms * (1 + self.offset + self.rng.gauss(0, 0.002)))

    def finish(self) -> dict[str, str]:
        return {}

    def cancel(self) -> None: ...


class FakeConfig:
    """Only the name of the workload is used."""

    workload = "w"


def run(monkeypatch: pytest.MonkeyPatch, offsets: float, b: float) -> tuple[Any, list[str]]:
    monkeypatch.setattr(ab_test, "VariantProcess", FakeProcess)
    monkeypatch.setattr(FakeProcess, "offsets", offsets)
    steps: list[Step] = []
    found = ab_test.run_ab_test(
        (("a", FakeConfig, {"ms": 1.0}), ("b", FakeConfig, {"ms": b})), OPTIONS, 0.02, steps.append
    )
    return found, [step.what for step in steps if "repeated in fresh processes" in step.what]


def test_each_step_says_how_far_the_test_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ab_test, "VariantProcess", FakeProcess)
    steps: list[Step] = []
    sides: Any = (("eager", FakeConfig, {"ms": 1.0}), ("fast", FakeConfig, {"ms": 0.5}))
    ab_test.run_ab_test(sides, OPTIONS, 0.02, steps.append)

    set_up = [(step.what, step.done) for step in steps if step.total == 3 and "process" not in step.what]
    assert set_up == [
        ("starting a (eager)", 0),
        ("starting b (fast)", 1),
        ("starting the control, a second copy of a; 24 rounds follow", 2),
    ]
    rounds = [step.done for step in steps if step.what.startswith("timing")]
    assert rounds == list(range(OPTIONS.rounds))
    assert all(step.total == OPTIONS.rounds for step in steps if step.what.startswith("timing"))
    assert re.search(r"in turns; so far a (1|0\.99\d|1\.0\d*) ms, b 0\.(5|50\d|49\d) ms$", steps[-1].what)


def test_clear_result_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    same, again = run(monkeypatch, 0.003, 1.0)
    assert (same.b_against_a.verdict, same.rounds, same.processes, again) == (Verdict.SAME, 24, 4, [])

    faster, again = run(monkeypatch, 0.02, 0.8)
    assert (faster.b_against_a.verdict, faster.rounds, again) == (Verdict.FASTER, 24, [])


def test_unsure_result_is_repeated_in_fresh_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    found, again = run(monkeypatch, 0.03, 1.0)

    assert again
    assert found.rounds == 24 * (1 + len(again))
    assert found.processes == 4 * (1 + len(again))


def test_unsure_result_is_repeated_at_most_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    found, again = run(monkeypatch, 0.3, 1.0)

    assert (found.b_against_a.verdict, found.rounds, len(again)) == (Verdict.UNSURE, 72, 2)


def test_unsure_result_is_not_repeated_beyond_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ab_test, "VariantProcess", FakeProcess)
    monkeypatch.setattr(FakeProcess, "offsets", 0.3)
    options = replace(OPTIONS, budget_s=0.0)
    found = ab_test.run_ab_test(
        (("a", FakeConfig, {"ms": 1.0}), ("b", FakeConfig, {"ms": 1.0})), options, 0.02, lambda _: None
    )

    assert found.b_against_a.verdict is Verdict.UNSURE
    assert found.rounds == 8, "a race has at least 8 rounds"
