"""An A/B test: compare two variants of one workload, a and b, with a second copy of a as control."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from rocsolid.errors import CannotRunError
from rocsolid.measure.process_race import ProcessRaceResult, RaceOptions, race_processes
from rocsolid.model.study import ABResult
from rocsolid.model.timing import Verdict
from rocsolid.tune.space import Choices
from rocsolid.tune.trials import StudyConfig, VariantProcess

Side = tuple[str, StudyConfig, Choices]  # the user's text, and what it stands for
_MAX_REPEATS: Final = 2  # how often a test is repeated while its verdict is UNSURE


def run_ab_test(
    sides: tuple[Side, Side],
    options: RaceOptions,
    min_gain: float,
    show_status: Callable[[str], None],
) -> ABResult:
    """Run the test; raises CannotRunError when either side cannot be measured."""
    processes: dict[str, VariantProcess] = {}
    where = ""

    def on_status(text: str) -> None:
        """Add the round to the lines about new processes, so that each says how far the test is."""
        nonlocal where
        where = text if text.startswith("round") else where
        show_status(f"{where}: {text}" if where and text.startswith("starting") else text)

    deadline = time.monotonic() + options.budget_s
    try:
        for key, (_, config, choices) in zip("ab", sides, strict=True):
            processes[key] = VariantProcess(config, choices, key, on_status)
        processes["control"] = VariantProcess(sides[0][1], sides[0][2], "control", on_status)
        _check_both(sides, processes)  # a side that cannot run is reported before the race, not after it
        race = _race(processes, options, on_status)
        for repeat in range(_MAX_REPEATS):
            failed = any(process.failure for process in processes.values())
            if failed or time.monotonic() > deadline or race.compare("a", "b", min_gain).verdict is not Verdict.UNSURE:
                break
            on_status(
                f"the verdict is UNSURE, so the test is repeated in fresh processes (repeat {repeat + 1} of {_MAX_REPEATS})"
            )
            for process in processes.values():
                process.restart()
            race = race.extended_by(_race(processes, options, on_status))
        machines = {key: processes[key].finish() for key in "ab"}
        _check_both(sides, processes)
    finally:
        for process in processes.values():
            process.cancel()
    return ABResult(
        workload=sides[0][1].workload,
        a=sides[0][0],
        b=sides[1][0],
        timing_a=race.timing("a"),
        timing_b=race.timing("b"),
        b_against_a=race.compare("a", "b", min_gain),
        rounds=len(race.samples_ms["a"]),
        processes=processes["a"].processes,
        machine=machines["a"],
    )


def _race(
    processes: Mapping[str, VariantProcess], options: RaceOptions, on_status: Callable[[str], None]
) -> ProcessRaceResult:
    started = time.monotonic()

    def on_round(index: int, _: object) -> None:
        estimate = ""
        if index:
            left_s = (time.monotonic() - started) / index * (options.rounds - index)
            estimate = f", about {left_s:.0f} s left"
        on_status(f"round {index + 1} of {options.rounds}{estimate}")

    sides = {key: processes[key] for key in "ab"}
    return race_processes(sides, processes["control"], options, on_round)


def _check_both(sides: tuple[Side, Side], processes: Mapping[str, VariantProcess]) -> None:
    for key, (name, _, _) in zip("ab", sides, strict=True):
        processes[key].ready()
        if processes[key].failure:
            msg = f"side {key} ({name}) cannot be measured: {processes[key].failure}"
            raise CannotRunError(msg)
