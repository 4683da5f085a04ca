"""Where trials run. This machine runs one trial in each slot; a slot is what one trial has to itself, such as a GPU."""

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

    slots: int

    def start(self, number: int, spec: TrialSpec, folder: Path, on_phase: OnStatus) -> None:
        """Start a trial. The caller never has more than `slots` trials running."""
        ...

    def finished(self, timeout_s: float) -> list[tuple[int, TrialResult | None]]:
        """Trials that have ended since the last call; None for one whose worker or machine was lost."""
        ...

    def final_race(
        self, config: StudyConfig, finalists: Sequence[TrialRecord], options: RaceOptions, on_status: OnStatus
    ) -> tuple[ProcessRaceResult, dict[str, FinalistStatus]]:
        """Run the final race in one slot, while nothing else runs."""
        ...

    def close(self) -> None:
        """Cancel the running trials. All their processes have ended when this returns."""
        ...


class LocalEngine:
    """Runs trials on this machine; a thread waits for each."""

    def __init__(self, slots: Sequence[Slot] = ({},)) -> None:
        self.slots = len(slots)
        self._all, self._free = tuple(slots), list(slots)
        self._running: dict[int, tuple[Trial, Slot, threading.Thread]] = {}
        self._results: queue.SimpleQueue[tuple[int, TrialResult | BaseException]] = queue.SimpleQueue()

    def start(self, number: int, spec: TrialSpec, folder: Path, on_phase: OnStatus) -> None:
        """Start a trial in a free slot."""
        slot = self._free.pop(0)
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
        """Trials that have ended since the last call."""
        with suppress(queue.Empty):
            number, result = self._results.get(timeout=timeout_s)
            _, slot, waiter = self._running.pop(number)
            waiter.join()
            self._free.append(slot)
            if isinstance(result, BaseException):
                raise result
            return [(number, result)]
        return []

    def final_race(
        self, config: StudyConfig, finalists: Sequence[TrialRecord], options: RaceOptions, on_status: OnStatus
    ) -> tuple[ProcessRaceResult, dict[str, FinalistStatus]]:
        """Run the final race in the first slot."""
        config = replace(config, variables={**config.variables, **self._all[0]})
        return run_final_race(config, finalists, options, on_status)

    def close(self) -> None:
        """Cancel all trials, then wait for them."""
        for trial, _, _ in self._running.values():
            trial.request_cancel()
        for _, _, waiter in self._running.values():
            waiter.join()
        self._running.clear()


def gpu_slots(platform: Platform, devices: int, ranks: int = 1, wanted: int = 0) -> list[Slot]:
    """One slot for each visible GPU, or for each group of `ranks` GPUs; one slot if there is no GPU."""
    if wanted < 0:
        msg = f"--slots {wanted}: at least 1 trial must run at a time"
        raise UsageError(msg)
    name = VISIBLE_DEVICES.get(platform)
    if name is None or not devices:
        return [{}] * (wanted or 1)
    visible = [device.strip() for device in os.environ.get(name, "").split(",") if device.strip()]
    # If the GPUs are selected with another variable, the remaining ones are numbered from 0.
    each = visible or [str(number) for number in range(devices)]
    groups = [each[at : at + ranks] for at in range(0, len(each) - ranks + 1, ranks)]
    if not groups:
        msg = f"--ranks {ranks} needs {ranks} GPUs, but {len(each)} {'are' if len(each) != 1 else 'is'} visible"
        raise UsageError(msg)
    return [{name: ",".join(group)} for group in groups[: wanted or None]]
