"""Studies for optuna-dashboard: a copy in memory that follows what is kept, so that a study can be watched while it runs."""

import threading
import warnings
from contextlib import suppress
from typing import Any, Final

from rocsolid.errors import CannotRunError, InputError, MissingExtraError, first_line
from rocsolid.model.study import TrialRecord
from rocsolid.tune.store import Kept, kept_in

_EVERY_S: Final = 3.0


def serve(where: str, host: str, port: int) -> None:
    """Show what is kept there until it is interrupted; raises MissingExtraError where optuna-dashboard is not installed."""
    try:
        import optuna
        from optuna_dashboard import run_server
    except ImportError as missing:
        feature = "the dashboard"
        raise MissingExtraError(feature, "dashboard") from missing
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    copy = Copy(optuna)
    found = kept_in(where)
    if not found:
        msg = f"no study is kept in {where} yet: rocsolid tune begins one"
        raise InputError(msg)
    copy.follow(found)
    refused: list[BaseException] = []

    def show() -> None:
        try:
            run_server(copy.storage, host=host, port=port)
        except (OSError, SystemExit) as error:
            refused.append(error)

    # In a thread, because the server takes an interrupt in the middle of an answer for a mistake of its own, and goes on.
    server = threading.Thread(target=show, name="rocsolid-dashboard", daemon=True)
    server.start()
    while server.is_alive():
        server.join(_EVERY_S)
        with suppress(InputError):  # it cannot be read just now
            copy.follow(kept_in(where))
    if refused:
        msg = f"cannot serve the dashboard on {host}:{port}: {first_line(refused[0])}; choose another with --port"
        raise CannotRunError(msg)


class Copy:
    """The studies as Optuna's."""

    def __init__(self, optuna: Any) -> None:
        self._optuna = optuna
        self.storage: Any = optuna.storages.InMemoryStorage()
        self._studies: dict[str, tuple[Any, dict[str, list[str]], int]] = {}

    def follow(self, found: list[Kept]) -> None:
        """Add what is new; a study whose values have become more is copied anew, since Optuna keeps to the first it saw."""
        for kept in found:
            values = _values(kept.trials)
            study, known, copied = self._studies.get(kept.key, (None, {}, 0))
            if study is None or known != values:
                name = f"{kept.workload.rpartition('/')[2]} ({kept.key[:8]})"
                if study is not None:
                    self._optuna.delete_study(study_name=name, storage=self.storage)
                study, copied = self._optuna.create_study(study_name=name, storage=self.storage), 0
            for trial in kept.trials[copied:]:
                self._add(study, trial, values)
            self._studies[kept.key] = (study, values, len(kept.trials))

    def _add(self, study: Any, trial: TrialRecord, values: dict[str, list[str]]) -> None:
        kinds = {name: self._optuna.distributions.CategoricalDistribution(seen) for name, seen in values.items()}
        states = self._optuna.trial.TrialState
        about = {"kind": trial.kind, "reason": trial.reason, "set-up, s": round(trial.setup_s, 2), "log": trial.log}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study.add_trial(
                self._optuna.trial.create_trial(
                    params={name: str(trial.choices.get(name, _START)) for name in values},
                    distributions=kinds,
                    value=trial.timing.median_ms if trial.timing else None,
                    state=states.COMPLETE if trial.timing else states.FAIL,
                    user_attrs=about,
                )
            )


_START: Final = "(as the start)"


def _values(trials: tuple[TrialRecord, ...]) -> dict[str, list[str]]:
    seen: dict[str, list[str]] = {}
    for trial in trials:
        for name, value in trial.choices.items():
            known = seen.setdefault(name, [_START])
            if str(value) not in known:
                known.append(str(value))
    return seen
