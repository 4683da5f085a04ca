"""Trials as tasks of a Ray cluster: Ray says where and on which GPU, and inside each task a nanny looks after the trial as ever.

A task is never repeated by Ray itself. When its worker or its machine is lost, the study hears so and tries the variant again.
The workload's file and rocsolid must be found at the same place on every machine.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rocsolid.errors import CannotRunError, MissingExtraError, first_line
from rocsolid.measure.process_race import Knockout, Rules
from rocsolid.model.study import TrialRecord
from rocsolid.model.trial_result import Ending
from rocsolid.tune.engine import Told
from rocsolid.tune.final_race import Standing, run_finals
from rocsolid.tune.isolate.trial import Errand, run
from rocsolid.tune.trials import Job, Room

_ATTEMPTS: Final = 2  # at the finals, when the worker that runs them is lost


class OnRay:
    """Trials on a cluster."""

    def __init__(self, address: str = "", *, ranks: int = 1, wanted: int = 0) -> None:
        # Ray would take over the reporting of our errors, and asks the internet how it is used.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as missing:
            feature = "tuning on a Ray cluster"
            raise MissingExtraError(feature, "ray") from missing
        self._ray = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            try:
                own = {} if address or "RAY_ADDRESS" in os.environ else {"include_dashboard": False}
                ray.init(address=address or None, log_to_driver=False, **own)  # a cluster that runs takes no such wish
            except (ConnectionError, ValueError, RuntimeError) as refused:
                msg = f"cannot reach the Ray cluster {address or 'of this machine'}: {first_line(refused)}"
                raise CannotRunError(msg) from refused
        gpus = int(ray.cluster_resources().get("GPU", 0)) // ranks
        machines = sum(1 for node in ray.nodes() if node["Alive"])
        self.slots = wanted or gpus or machines  # two trials on the cores of one machine disturb each other
        needs = {"num_gpus": ranks, "num_cpus": 1} if gpus else {"num_cpus": 1}
        self._trial: Any = ray.remote(max_retries=0, max_calls=1, scheduling_strategy="SPREAD", **needs)(_trial)
        self._race: Any = ray.remote(max_retries=0, max_calls=1, **needs)(_race)
        self._running: dict[Any, int] = {}

    def start(self, number: int, errand: Errand, folder: Path, told: Told) -> None:
        """Give a trial to the cluster, which waits until there is room."""
        told("given to Ray")
        self._running[self._trial.remote(errand, folder)] = number

    def ended(self, patience_s: float) -> list[tuple[int, Ending | None]]:
        """What has ended; None for a trial whose worker or machine was lost."""
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=patience_s)
        return [(self._running.pop(task), self._outcome(task)) for task in ready]

    def _outcome(self, task: Any) -> Any:
        """What a task returned; None when it was lost, and its own error when it raised."""
        try:
            return self._ray.get(task)
        except self._ray.exceptions.RayTaskError as raised:
            raise raised.as_instanceof_cause() from raised
        except self._ray.exceptions.RayError:
            return None

    def finals(
        self, job: Job, entrants: Sequence[TrialRecord], rules: Rules, told: Told
    ) -> tuple[Knockout, dict[str, Standing]]:
        """The race, as one task: all lanes of it share a machine and a GPU."""
        for _ in range(_ATTEMPTS):
            told("the race is given to Ray")
            task = self._race.remote(replace(job, room=Room()), list(entrants), rules)  # another machine than this one
            self._running[task] = 0
            while not self._ray.wait([task], timeout=0.5)[0]:
                pass
            del self._running[task]
            raced = self._outcome(task)
            if raced is not None:
                found: tuple[Knockout, dict[str, Standing]] = raced
                return found
        msg = f"the Ray worker that ran the race was lost {_ATTEMPTS} times; the trials are kept, and the same command goes on"
        raise CannotRunError(msg)

    def close(self) -> None:
        """Call off what is under way; the nannies notice that their worker is gone, and clear up."""
        for task in self._running:
            self._ray.cancel(task, force=True)
        self._running.clear()
        if self._ours:
            self._ray.shutdown()


def _trial(errand: Errand, folder: Path) -> Ending:
    return run(replace(errand, python=sys.executable), folder)


def _race(job: Job, entrants: list[TrialRecord], rules: Rules) -> tuple[Knockout, dict[str, Standing]]:
    return run_finals(job, entrants, rules, lambda _: None)
