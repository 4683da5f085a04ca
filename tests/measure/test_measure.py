"""Confidence intervals, verdicts, interleaved rounds, and evidence records."""

import json
import os
import random
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from rocsolid.measure import evidence
from rocsolid.measure.clock import pinnable_cores, pinned_to_core
from rocsolid.measure.race import race
from rocsolid.measure.statistics import compare, error_of_mean, paired_center, summarize_samples
from rocsolid.model.timing import Timing, Verdict


def noisy(rng: random.Random, true: float, drift: list[float]) -> list[float]:
    """Samples around a true time, multiplied by the drift of each round, with a long tail."""
    return [true * speed * (1 + rng.gauss(0, 0.01)) * (1.3 if rng.random() < 0.03 else 1) for speed in drift]


def make_drift(rng: random.Random, rounds: int) -> list[float]:
    speed, seen = 1.0, []
    for _ in range(rounds):
        speed = 1 + 0.97 * (speed - 1) + rng.gauss(0, 0.02)
        seen.append(speed)
    return seen


def test_median_interval_has_the_stated_coverage() -> None:
    rng = random.Random(1)  # noqa: S311 - not used for security
    held = 0
    for _ in range(400):
        timing = summarize_samples([rng.expovariate(1.0) for _ in range(30)])
        held += timing.low_ms <= 0.6931 <= timing.high_ms
    assert 0.93 <= held / 400 <= 1.0


def test_equal_samples_are_rarely_called_different() -> None:
    rng = random.Random(2)  # noqa: S311
    wrong = 0
    for _ in range(200):
        drift = make_drift(rng, 15)
        a, b, control = (noisy(rng, 1.0, drift) for _ in range(3))
        wrong += compare(a, b, control_ms=control).verdict in (Verdict.FASTER, Verdict.SLOWER)
    assert wrong <= 6


@pytest.mark.parametrize(("true", "expected"), [(0.9, Verdict.FASTER), (1.1, Verdict.SLOWER), (0.5, Verdict.FASTER)])
def test_ten_percent_is_found_despite_drift(true: float, expected: Verdict) -> None:
    rng = random.Random(3)  # noqa: S311
    right = 0
    for _ in range(100):
        drift = make_drift(rng, 15)
        found = compare(noisy(rng, 1.0, drift), noisy(rng, true, drift), control_ms=noisy(rng, 1.0, drift))
        right += found.verdict is expected
        assert found.verdict in (expected, Verdict.UNSURE)
        assert found.low <= found.speedup <= found.high
    assert right >= 90


def test_noise_gives_unsure() -> None:
    rng = random.Random(4)  # noqa: S311
    times = [[rng.uniform(0.5, 2) for _ in range(10)] for _ in range(3)]
    assert compare(times[0], times[1], control_ms=times[2]).verdict is Verdict.UNSURE


def test_one_round_gives_an_interval_of_one_point() -> None:
    assert paired_center([0.5]) == (0.5, 0.5, 0.5)
    assert summarize_samples([3.0]) == Timing(median_ms=3.0, low_ms=3.0, high_ms=3.0, samples=1)


@pytest.mark.torch
def test_race_ranks_two_sleeps() -> None:
    found = race({"slow": lambda: time.sleep(0.004), "quick": lambda: time.sleep(0.002)}, rounds=12, warmups=1)

    assert found.baseline == "slow"
    assert len(found.samples_ms["quick"]) == 12
    assert found.timing("slow").median_ms > 3.9
    comparison = found.against_baseline("quick")
    assert comparison.verdict is Verdict.FASTER
    assert 1.4 < comparison.speedup < 2.6


@pytest.mark.torch
def test_race_respects_its_budget_but_runs_three_rounds() -> None:
    begun = time.perf_counter()
    found = race({"one": lambda: time.sleep(0.05)}, rounds=1000, budget_s=0.2, warmups=1)

    assert 3 <= len(found.samples_ms["one"]) < 20
    assert time.perf_counter() - begun < 20  # all rounds take 50


def test_times_are_printed_in_a_fitting_unit() -> None:
    assert str(Timing(median_ms=0.0123, low_ms=0.012, high_ms=0.013, samples=9)) == "12.3 µs [12.0 µs, 13.0 µs]"
    assert str(Timing(median_ms=12.34, low_ms=12, high_ms=1300, samples=9)) == "12.3 ms [12 ms, 1.3 s]"


@pytest.mark.torch
def test_pinning_to_a_core_is_undone() -> None:
    import torch

    allowed, threads = os.sched_getaffinity(0), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert pinnable_cores() == sorted(allowed)
        torch.set_num_threads(2)
        assert pinnable_cores() == []  # threads of a pool are not pinned
    finally:
        torch.set_num_threads(threads)
    for core in (max(allowed), None):
        with suppress(ValueError), pinned_to_core(core):
            assert os.sched_getaffinity(0) == ({core} if core is not None else allowed)
            raise ValueError
        assert os.sched_getaffinity(0) == allowed


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 12, 20])
def test_error_of_mean_has_the_stated_coverage(count: int) -> None:
    rng = random.Random(count)  # noqa: S311 - not used for security
    sets = [[rng.gauss(0, 0.02) for _ in range(count)] for _ in range(4000)]
    within = sum(abs(sum(other)) / count <= error_of_mean(one) for one, other in pairwise(sets))

    assert 0.935 <= within / len(sets) <= 0.965
    alone = sum(abs(other[0]) <= error_of_mean(one, 1) for one, other in pairwise(sets))
    assert 0.935 <= alone / len(sets) <= 0.965, "a single other difference"
    assert error_of_mean([]) == 0.0


def test_evidence_record_fills_in_date_and_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(evidence, "this_machine", lambda: {"device": "this", "torch": "2.13.0", "python": "3.11"})
    filled_in = evidence.evidence(what="w", command="c", facts={"µ": 1})
    given = evidence.evidence(what="w", command="c", device="that", date="2026-01-01")
    evidence.write(filled_in, tmp_path / "record.json")

    assert (filled_in["schema"], filled_in["device"], filled_in["torch"]) == ("rocsolid/evidence/1", "this", "2.13.0")
    assert len(filled_in["date"]) == len("2026-01-01")
    assert given == {
        "schema": "rocsolid/evidence/1",
        "what": "w",
        "command": "c",
        "date": "2026-01-01",
        "device": "that",
    }
    assert json.loads((tmp_path / "record.json").read_text()) == filled_in
