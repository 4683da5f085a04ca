"""Two sides against each other: when a comparison is over, and when it goes on."""

import importlib
import random
from dataclasses import replace
from typing import Any

import pytest

from rocsolid.measure.process_race import Rules
from rocsolid.model.timing import Verdict

duel = importlib.import_module("rocsolid.tune.ab_test")
RULES = Rules(rounds=24, renew_every=6, drop=False)


class Lane:
    """Each of its processes is off by something else."""

    off = 0.0

    def __init__(self, _job: Any, choices: Any, name: str, _told: Any) -> None:
        self.rng = random.Random(name)  # noqa: S311 - noise, no secret
        self.ms, self.out, self.processes = choices["ms"], "", 0
        self.renew()

    def renew(self) -> None:
        self.processes += 1
        self.offset = self.rng.gauss(0, self.off)

    def ready(self) -> bool:
        return not self.out

    def sample(self) -> float | None:
        return float(self.ms * (1 + self.offset + self.rng.gauss(0, 0.002)))

    def finish(self) -> dict[str, str]:
        return {}

    def cancel(self) -> None: ...


class Job:
    """Of which only the name of the workload is told."""

    workload = "w"


def duelled(monkeypatch: pytest.MonkeyPatch, off: float, b: float) -> tuple[Any, list[str]]:
    monkeypatch.setattr(duel, "Resident", Lane)
    monkeypatch.setattr(Lane, "off", off)
    said: list[str] = []
    found = duel.run_duel((("a", Job, {"ms": 1.0}), ("b", Job, {"ms": b})), RULES, 0.02, said.append)
    return found, [line for line in said if "once more" in line]


def test_what_is_clear_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    same, again = duelled(monkeypatch, 0.003, 1.0)
    assert (same.b_against_a.verdict, same.rounds, same.processes, again) == (Verdict.SAME, 24, 4, [])

    faster, again = duelled(monkeypatch, 0.02, 0.8)
    assert (faster.b_against_a.verdict, faster.rounds, again) == (Verdict.FASTER, 24, [])


def test_what_is_too_close_to_call_goes_on_in_fresh_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    found, again = duelled(monkeypatch, 0.03, 1.0)

    assert again
    assert found.rounds == 24 * (1 + len(again))
    assert found.processes == 4 * (1 + len(again))


def test_it_does_not_go_on_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    found, again = duelled(monkeypatch, 0.3, 1.0)

    assert (found.b_against_a.verdict, found.rounds, len(again)) == (Verdict.UNSURE, 72, 2)


def test_nor_beyond_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duel, "Resident", Lane)
    monkeypatch.setattr(Lane, "off", 0.3)
    said: list[str] = []
    rules = replace(RULES, budget_s=0.0)
    found = duel.run_duel((("a", Job, {"ms": 1.0}), ("b", Job, {"ms": 1.0})), rules, 0.02, said.append)

    assert found.b_against_a.verdict is Verdict.UNSURE
    assert found.rounds == 8, "as many as a race has at least"
