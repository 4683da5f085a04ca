"""An A/B test: compare two variants of one workload, a and b, with a second copy of a as control."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Final

from rocsolid.errors import CannotRunError
from rocsolid.measure.process_race import ProcessRaceResult, RaceOptions, race_processes
from rocsolid.model.progress import OnStep, Step
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
    on_step: OnStep,
) -> ABResult:
    """Run the test; raises CannotRunError when either side cannot be measured."""
    processes: dict[str, VariantProcess] = {}
    place = Step(
        what="", total=len(sides) + 1
    )  # first the processes are set up, the control last; then come the rounds

    def on_status(text: str, done: int | None = None) -> None:
        nonlocal place
        if done is not None:
            place = replace(place, done=done)
        on_step(replace(place, what=text))

    deadline = time.monotonic() + options.budget_s
    try:
        for key, (_, config, choices) in zip("ab", sides, strict=True):
            processes[key] = VariantProcess(config, choices, key, on_status)
        processes["control"] = VariantProcess(sides[0][1], sides[0][2], "control", on_status)
        for number, (key, (name, _, _)) in enumerate(zip("ab", sides, strict=True)):
            on_status(f"starting {key} ({name})", number)
            _check(key, name, processes)  # a side that cannot run is reported before the race, not after it
        on_status(f"starting the control, a second copy of a; {options.rounds} rounds follow", len(sides))
        processes["control"].ready()
        place = Step(what="", total=options.rounds)
        race = _race(processes, options, on_status)
        for repeat in range(_MAX_REPEATS):
            failed = any(process.failure for process in processes.values())
            if failed or time.monotonic() > deadline or race.compare("a", "b", min_gain).verdict is not Verdict.UNSURE:
                break
            on_status(
                f"the verdict is UNSURE, so the test is repeated in fresh processes (repeat {repeat + 1} of {_MAX_REPEATS})",
                0,
            )
            for process in processes.values():
                process.restart()
            race = race.extended_by(_race(processes, options, on_status))
        machines = {key: processes[key].finish() for key in "ab"}
        for key, (name, _, _) in zip("ab", sides, strict=True):
            _check(key, name, processes)
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
    processes: Mapping[str, VariantProcess], options: RaceOptions, on_status: Callable[[str, int], None]
) -> ProcessRaceResult:
    def on_round(index: int, samples_ms: Mapping[str, Sequence[float]]) -> None:
        medians = [f"{key} {median(samples):.3g} ms" for key, samples in samples_ms.items() if samples]
        on_status(f"timing a, b and the control in turns{'; so far ' * bool(medians)}{', '.join(medians)}", index)

    sides = {key: processes[key] for key in "ab"}
    return race_processes(sides, processes["control"], options, on_round)


def _check(key: str, name: str, processes: Mapping[str, VariantProcess]) -> None:
    processes[key].ready()
    if processes[key].failure:
        msg = f"side {key} ({name}) cannot be measured: {processes[key].failure}"
        raise CannotRunError(msg)
