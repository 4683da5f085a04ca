"""Show studies in optuna-dashboard, from a copy in memory that is updated while a study runs."""

import socket
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from rocsolid.errors import CannotRunError, InputError, MissingExtraError, first_line
from rocsolid.model.study import TrialRecord
from rocsolid.tune.store import StoredStudy, read_studies

_UPDATE_EVERY_S: Final = 3.0
_AS_BASELINE: Final = "(as in the baseline)"


def serve(source: str, host: str, port: int, on_start: Callable[[], None] = lambda: None) -> None:
    """Serve the dashboard until it is interrupted; raises MissingExtraError if optuna-dashboard is not installed."""
    try:
        import optuna
        from optuna_dashboard import run_server
    except ImportError as missing:
        feature = "rocsolid tune dashboard"
        raise MissingExtraError(feature, "dashboard") from missing
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    mirror = OptunaMirror(optuna)
    studies = read_studies(source)
    if not studies:
        msg = f"{source} contains no study yet; start one with `rocsolid tune file.py:function`"
        raise InputError(msg)
    mirror.update(studies)
    _check_port(host, port)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            run_server(mirror.storage, host=host, port=port)
        except (OSError, SystemExit) as error:
            errors.append(error)

    # The server runs in a thread: in the main thread, it treats Ctrl-C during a response as an error of that response, and
    # keeps running.
    server = threading.Thread(target=run, name="rocsolid-dashboard", daemon=True)
    on_start()
    server.start()
    while server.is_alive():
        server.join(_UPDATE_EVERY_S)
        with suppress(InputError):  # the studies cannot be read at the moment; try again later
            mirror.update(read_studies(source))
    if errors:
        msg = f"cannot serve the dashboard on {host}:{port}: {first_line(errors[0])}; choose another port with --port"
        raise CannotRunError(msg)


def _check_port(host: str, port: int) -> None:
    """Raise CannotRunError if the port cannot be used, before the address is printed."""
    try:
        with socket.create_server((host, port)):
            return
    except (OSError, OverflowError) as error:
        msg = f"cannot serve the dashboard on {host}:{port}: {first_line(error)}; choose another port with --port"
        raise CannotRunError(msg) from error


class OptunaMirror:
    """A copy of the studies in Optuna's in-memory storage."""

    def __init__(self, optuna: Any) -> None:
        self._optuna = optuna
        self.storage: Any = optuna.storages.InMemoryStorage()
        # By the study's key: the copy, the values that it was created with, and how many trials were copied.
        self._studies: dict[str, tuple[Any, dict[str, list[str]], int]] = {}

    def update(self, studies: list[StoredStudy]) -> None:
        """Add new trials. A study with new values is copied again, because Optuna accepts no new values after the first trial."""
        for stored in studies:
            values = _values_by_name(stored.trials)
            study, copied_values, copied = self._studies.get(stored.key, (None, {}, 0))
            if study is None or copied_values != values:
                name = f"{stored.workload.rpartition('/')[2]} ({stored.key[:8]})"
                if study is not None:
                    self._optuna.delete_study(study_name=name, storage=self.storage)
                study, copied = self._optuna.create_study(study_name=name, storage=self.storage), 0
            for trial in stored.trials[copied:]:
                self._add(study, trial, values)
            self._studies[stored.key] = (study, values, len(stored.trials))

    def _add(self, study: Any, trial: TrialRecord, values: dict[str, list[str]]) -> None:
        distributions = {
            name: self._optuna.distributions.CategoricalDistribution(choices) for name, choices in values.items()
        }
        states = self._optuna.trial.TrialState
        attributes = {
            "result": trial.kind,
            "reason": trial.reason,
            "set-up, s": round(trial.setup_s, 2),
            "log": trial.log,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study.add_trial(
                self._optuna.trial.create_trial(
                    params={name: str(trial.choices.get(name, _AS_BASELINE)) for name in values},
                    distributions=distributions,
                    value=trial.timing.median_ms if trial.timing else None,
                    state=states.COMPLETE if trial.timing else states.FAIL,
                    user_attrs=attributes,
                )
            )


def _values_by_name(trials: tuple[TrialRecord, ...]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for trial in trials:
        for name, value in trial.choices.items():
            known = values.setdefault(name, [_AS_BASELINE])
            if str(value) not in known:
                known.append(str(value))
    return values
