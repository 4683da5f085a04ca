"""Where trials run: on this machine, one trial in each slot. A slot is what only one trial uses at a time, such as a GPU."""

import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from rocsolid.catalog.tuning import VISIBLE_DEVICES
from rocsolid.errors import UsageError
from rocsolid.measure.process_race import ProcessRaceResult, RaceOptions
from rocsolid.model.platform import Platform
from rocsolid.model.study import TrialRecord
from rocsolid.model.trial_result import TrialResult
from rocsolid.tune.final_race import FinalistStatus, run_final_race
from rocsolid.tune.isolate.trial import Trial, TrialSpec
from rocsolid.tune.trials import StudyConfig

OnStatus = Callable[[str], None]
Slot = Mapping[str, str]  # environment variables of every process of a trial in this slot


class Engine(Protocol):
    """Runs trials, several at a time."""

    parallel_trials: int

    def start(self, number: int, spec: TrialSpec, folder: Path, on_phase: OnStatus) -> None:
        """Start a trial. The caller never has more than `parallel_trials` trials running."""
        ...

    def finished(self, timeout_s: float) -> list[tuple[int, TrialResult | None]]:
        """Return the trials that have ended since the last call; the result is None if the worker or machine was lost."""
        ...

    def final_race(
        self, config: StudyConfig, finalists: Sequence[TrialRecord], options: RaceOptions, on_status: OnStatus
    ) -> tuple[ProcessRaceResult, dict[str, FinalistStatus]]:
        """Run the final comparison in one slot, while nothing else runs."""
        ...

    def close(self) -> None:
        """Cancel the running trials. All their processes have ended when this returns."""
        ...


class LocalEngine:
    """Runs trials on this machine; a thread waits for each."""

    def __init__(self, slots: Sequence[Slot] = ({},)) -> None:
        self.parallel_trials = len(slots)
        self._slots, self._free_slots = tuple(slots), list(slots)
        self._running: dict[int, tuple[Trial, Slot, threading.Thread]] = {}
        self._results: queue.SimpleQueue[tuple[int, TrialResult | BaseException]] = queue.SimpleQueue()

    def start(self, number: int, spec: TrialSpec, folder: Path, on_phase: OnStatus) -> None:
        """Start a trial in a free slot."""
        slot = self._free_slots.pop(0)
        trial = Trial(replace(spec, variables={**spec.variables, **slot}), folder, on_phase)
        waiter = threading.Thread(target=self._wait, args=(number, trial), name=f"rocsolid-trial-{number}", daemon=True)
        self._running[number] = (trial, slot, waiter)
        waiter.start()

    def _wait(self, number: int, trial: Trial) -> None:
        try:
            self._results.put((number, trial.wait()))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that calls `finished`
            self._results.put((number, error))

    def finished(self, timeout_s: float) -> list[tuple[int, TrialResult | None]]:
        """Return the trials that have ended since the last call."""
        with suppress(queue.Empty):
            number, result = self._results.get(timeout=timeout_s)
            _, slot, waiter = self._running.pop(number)
            waiter.join()
            self._free_slots.append(slot)
            if isinstance(result, BaseException):
                raise result
            return [(number, result)]
        return []

    def final_race(
        self, config: StudyConfig, finalists: Sequence[TrialRecord], options: RaceOptions, on_status: OnStatus
    ) -> tuple[ProcessRaceResult, dict[str, FinalistStatus]]:
        """Run the final comparison in the first slot."""
        config = replace(config, variables={**config.variables, **self._slots[0]})
        return run_final_race(config, finalists, options, on_status)

    def close(self) -> None:
        """Cancel all trials, then wait for them."""
        for trial, _, _ in self._running.values():
            trial.request_cancel()
        for _, _, waiter in self._running.values():
            waiter.join()
        self._running.clear()


def gpu_slots(platform: Platform, devices: int, ranks: int = 1, parallel_trials: int = 0) -> list[Slot]:
    """One slot for each visible GPU, or for each group of `ranks` GPUs; one slot if there is no GPU.

    `parallel_trials` limits the number of slots; without a GPU it is the number of slots.
    """
    if parallel_trials < 0:
        msg = f"--parallel-trials {parallel_trials}: give at least 1"
        raise UsageError(msg)
    variable = VISIBLE_DEVICES.get(platform)
    if variable is None or not devices:
        return [{}] * (parallel_trials or 1)
    visible = [device.strip() for device in os.environ.get(variable, "").split(",") if device.strip()]
    # If the GPUs are selected with another variable, the remaining ones are numbered from 0.
    gpus = visible or [str(index) for index in range(devices)]
    groups = [gpus[first : first + ranks] for first in range(0, len(gpus) - ranks + 1, ranks)]
    if not groups:
        msg = f"--ranks {ranks} needs {ranks} GPUs, but {len(gpus)} {'are' if len(gpus) != 1 else 'is'} visible"
        raise UsageError(msg)
    return [{variable: ",".join(group)} for group in groups[: parallel_trials or None]]
