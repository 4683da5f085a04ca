"""Show studies in optuna-dashboard, from a copy in memory that is updated while a study runs."""

import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from rocsolid.errors import CannotRunError, InputError, MissingExtraError, first_line
from rocsolid.model.study import TrialRecord
from rocsolid.tune.store import StoredStudy, read_studies

_UPDATE_EVERY_S: Final = 3.0
_START: Final = "(as the start)"


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
    found = read_studies(source)
    if not found:
        msg = f"there is no study in {source} yet; start one with `rocsolid tune file.py:function`"
        raise InputError(msg)
    mirror.update(found)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            run_server(mirror.storage, host=host, port=port)
        except (OSError, SystemExit) as error:
            errors.append(error)

    # In a thread, because the server treats Ctrl-C during a response as an error of the response, and keeps running.
    server = threading.Thread(target=run, name="rocsolid-dashboard", daemon=True)
    on_start()
    server.start()
    while server.is_alive():
        server.join(_UPDATE_EVERY_S)
        with suppress(InputError):  # it cannot be read at the moment
            mirror.update(read_studies(source))
    if errors:
        msg = f"cannot serve the dashboard on {host}:{port}: {first_line(errors[0])}; choose another port with --port"
        raise CannotRunError(msg)


class OptunaMirror:
    """A copy of the studies in Optuna's in-memory storage."""

    def __init__(self, optuna: Any) -> None:
        self._optuna = optuna
        self.storage: Any = optuna.storages.InMemoryStorage()
        self._studies: dict[str, tuple[Any, dict[str, list[str]], int]] = {}

    def update(self, found: list[StoredStudy]) -> None:
        """Add new trials. A study with new values is copied again, because Optuna fixes the values with the first trial."""
        for stored in found:
            values = _values(stored.trials)
            study, known, copied = self._studies.get(stored.key, (None, {}, 0))
            if study is None or known != values:
                name = f"{stored.workload.rpartition('/')[2]} ({stored.key[:8]})"
                if study is not None:
                    self._optuna.delete_study(study_name=name, storage=self.storage)
                study, copied = self._optuna.create_study(study_name=name, storage=self.storage), 0
            for trial in stored.trials[copied:]:
                self._add(study, trial, values)
            self._studies[stored.key] = (study, values, len(stored.trials))

    def _add(self, study: Any, trial: TrialRecord, values: dict[str, list[str]]) -> None:
        distributions = {
            name: self._optuna.distributions.CategoricalDistribution(known) for name, known in values.items()
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
                    params={name: str(trial.choices.get(name, _START)) for name in values},
                    distributions=distributions,
                    value=trial.timing.median_ms if trial.timing else None,
                    state=states.COMPLETE if trial.timing else states.FAIL,
                    user_attrs=attributes,
                )
            )


def _values(trials: tuple[TrialRecord, ...]) -> dict[str, list[str]]:
    seen: dict[str, list[str]] = {}
    for trial in trials:
        for name, value in trial.choices.items():
            known = seen.setdefault(name, [_START])
            if str(value) not in known:
                known.append(str(value))
    return seen
