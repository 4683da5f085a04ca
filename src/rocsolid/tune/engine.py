"""Where trials run: on this machine, one at a time for each slot. A slot is what one trial has to itself, such as a GPU."""

import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from rocsolid.errors import UsageError
from rocsolid.measure.process_race import Knockout, Rules
from rocsolid.model.platform import Platform
from rocsolid.model.study import TrialRecord
from rocsolid.model.trial_result import Ending
from rocsolid.tune.final_race import Standing, run_finals
from rocsolid.tune.isolate.trial import Errand, Trial
from rocsolid.tune.trials import Job

Told = Callable[[str], None]
Slot = Mapping[str, str]  # variables that every process of a trial in it has
VISIBLE: Final = {Platform.ROCM: "HIP_VISIBLE_DEVICES", Platform.CUDA: "CUDA_VISIBLE_DEVICES"}


class Engine(Protocol):
    """Runs trials, some of them at once."""

    slots: int

    def start(self, number: int, errand: Errand, folder: Path, told: Told) -> None:
        """Begin a trial; at most `slots` are under way."""
        ...

    def ended(self, patience_s: float) -> list[tuple[int, Ending | None]]:
        """Trials that have ended since; None is one whose worker or machine was lost: nothing is known of it."""
        ...

    def finals(
        self, job: Job, entrants: Sequence[TrialRecord], rules: Rules, told: Told
    ) -> tuple[Knockout, dict[str, Standing]]:
        """The race, on one slot while nothing else runs."""
        ...

    def close(self) -> None:
        """Call off what is under way; every process of it has ended when this returns."""
        ...


class Local:
    """Trials on this machine, each watched by a thread that only reads."""

    def __init__(self, slots: Sequence[Slot] = ({},)) -> None:
        self.slots = len(slots)
        self._all, self._free = tuple(slots), list(slots)
        self._running: dict[int, tuple[Trial, Slot, threading.Thread]] = {}
        self._ended: queue.SimpleQueue[tuple[int, Ending | BaseException]] = queue.SimpleQueue()

    def start(self, number: int, errand: Errand, folder: Path, told: Told) -> None:
        """Begin a trial in a free slot."""
        slot = self._free.pop(0)
        trial = Trial(replace(errand, variables={**errand.variables, **slot}), folder, told)
        watch = threading.Thread(target=self._watch, args=(number, trial), name=f"rocsolid-trial-{number}", daemon=True)
        self._running[number] = (trial, slot, watch)
        watch.start()

    def _watch(self, number: int, trial: Trial) -> None:
        try:
            self._ended.put((number, trial.wait()))
        except BaseException as broken:  # noqa: BLE001 - told in the thread that asks
            self._ended.put((number, broken))

    def ended(self, patience_s: float) -> list[tuple[int, Ending | None]]:
        """What has ended."""
        with suppress(queue.Empty):
            number, ending = self._ended.get(timeout=patience_s)
            _, slot, watch = self._running.pop(number)
            watch.join()
            self._free.append(slot)
            if isinstance(ending, BaseException):
                raise ending
            return [(number, ending)]
        return []

    def finals(
        self, job: Job, entrants: Sequence[TrialRecord], rules: Rules, told: Told
    ) -> tuple[Knockout, dict[str, Standing]]:
        """The race, in the first slot."""
        return run_finals(replace(job, variables={**job.variables, **self._all[0]}), entrants, rules, told)

    def close(self) -> None:
        """Call everything off, then wait for all of it."""
        for trial, _, _ in self._running.values():
            trial.call_off()
        for _, _, watch in self._running.values():
            watch.join()
        self._running.clear()


def slots_of(platform: Platform, devices: int, ranks: int = 1, wanted: int = 0) -> list[Slot]:
    """A slot for each visible GPU, or for as many of them as a workload has ranks; without GPUs there is one."""
    if wanted < 0:
        msg = f"{wanted} trials at once are none; give at least 1"
        raise UsageError(msg)
    name = VISIBLE.get(platform)
    if name is None or not devices:
        return [{}] * (wanted or 1)
    seen = [device.strip() for device in os.environ.get(name, "").split(",") if device.strip()]
    # Who hides devices by another variable has numbered those left from 0.
    each = seen or [str(number) for number in range(devices)]
    groups = [each[at : at + ranks] for at in range(0, len(each) - ranks + 1, ranks)]
    if not groups:
        msg = f"the workload has {ranks} ranks, and {len(each)} GPU{'s are' if len(each) != 1 else ' is'} visible"
        raise UsageError(msg)
    return [{name: ",".join(group)} for group in groups[: wanted or None]]
