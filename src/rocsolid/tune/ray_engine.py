"""Run trials as tasks of a Ray cluster. Ray chooses the machine and the GPU; inside each task a supervisor isolates the trial.

Ray never retries a task by itself. When a worker or a machine is lost, the study tries the variant again. The workload's file and
rocsolid must have the same path on every machine.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rocsolid.errors import CannotRunError, MissingExtraError, first_line
from rocsolid.measure.process_race import ProcessRaceResult, RaceOptions
from rocsolid.model.study import TrialRecord
from rocsolid.model.trial_result import TrialResult
from rocsolid.tune.engine import OnStatus
from rocsolid.tune.final_race import FinalistStatus, run_final_race
from rocsolid.tune.isolate.trial import TrialSpec, run
from rocsolid.tune.trials import Capacity, StudyConfig

_MAX_RACE_ATTEMPTS: Final = 2  # the final comparison is run again when its worker was lost


class RayEngine:
    """Runs trials on a Ray cluster."""

    def __init__(self, address: str = "", *, ranks: int = 1, parallel_trials: int = 0) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports to the internet
        try:
            import ray
        except ImportError as missing:
            feature = "--engine ray"
            raise MissingExtraError(feature, "ray") from missing
        self._ray = ray
        self._started_ray = not ray.is_initialized()
        if self._started_ray:
            try:
                # A cluster that already runs does not accept the option.
                options = {} if address or "RAY_ADDRESS" in os.environ else {"include_dashboard": False}
                ray.init(address=address or None, log_to_driver=False, **options)
            except (ConnectionError, ValueError, RuntimeError) as error:
                cluster = f"the Ray cluster at {address}" if address else "Ray on this machine"
                msg = f"cannot connect to {cluster}: {first_line(error)}"
                raise CannotRunError(msg) from error
        gpus = int(ray.cluster_resources().get("GPU", 0)) // ranks
        machines = sum(1 for node in ray.nodes() if node["Alive"])
        # Without GPUs, one trial per machine: two trials on the cores of one machine would disturb each other.
        self.parallel_trials = parallel_trials or gpus or machines
        resources = {"num_gpus": ranks, "num_cpus": 1} if gpus else {"num_cpus": 1}
        self._trial: Any = ray.remote(max_retries=0, max_calls=1, scheduling_strategy="SPREAD", **resources)(_trial)
        self._race: Any = ray.remote(max_retries=0, max_calls=1, **resources)(_race)
        self._running: dict[Any, int] = {}

    def start(self, number: int, spec: TrialSpec, folder: Path, on_phase: OnStatus) -> None:
        """Submit a trial to the cluster, where it waits for a free worker."""
        on_phase("submitted to Ray")
        self._running[self._trial.remote(spec, folder)] = number

    def finished(self, timeout_s: float) -> list[tuple[int, TrialResult | None]]:
        """Return the trials that have ended since the last call; the result is None if the worker or machine was lost."""
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout_s)
        return [(self._running.pop(task), self._fetch(task)) for task in ready]

    def _fetch(self, task: Any) -> Any:
        """Return what a task returned, or None when its worker was lost; raises what the task raised."""
        try:
            return self._ray.get(task)
        except self._ray.exceptions.RayTaskError as raised:
            raise raised.as_instanceof_cause() from raised
        except self._ray.exceptions.RayError:
            return None

    def final_race(
        self, config: StudyConfig, finalists: Sequence[TrialRecord], options: RaceOptions, on_status: OnStatus
    ) -> tuple[ProcessRaceResult, dict[str, FinalistStatus]]:
        """Run the final comparison as one task, so that all variants run on the same machine and GPU."""
        for _ in range(_MAX_RACE_ATTEMPTS):
            on_status("submitted to Ray")
            # The capacity is that of this machine, and the task may run on another one.
            task = self._race.remote(replace(config, capacity=Capacity()), list(finalists), options)
            self._running[task] = 0
            while not self._ray.wait([task], timeout=0.5)[0]:
                pass
            del self._running[task]
            returned = self._fetch(task)
            if returned is not None:
                race: tuple[ProcessRaceResult, dict[str, FinalistStatus]] = returned
                return race
        msg = (
            f"the Ray worker of the final comparison was lost {_MAX_RACE_ATTEMPTS} times; "
            "finished trials are saved, run the same command again to continue"
        )
        raise CannotRunError(msg)

    def close(self) -> None:
        """Cancel the running tasks. Their supervisors notice that the worker is gone, and end the trials."""
        for task in self._running:
            self._ray.cancel(task, force=True)
        self._running.clear()
        if self._started_ray:
            self._ray.shutdown()


def _trial(spec: TrialSpec, folder: Path) -> TrialResult:
    return run(replace(spec, python=sys.executable), folder)


def _race(
    config: StudyConfig, finalists: list[TrialRecord], options: RaceOptions
) -> tuple[ProcessRaceResult, dict[str, FinalistStatus]]:
    return run_final_race(config, finalists, options, lambda _: None)
