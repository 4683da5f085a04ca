"""Which variant to try next, given what was tried: from the history alone, so that a study resumes where it was."""

import itertools
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from rocsolid.errors import MissingExtraError, UnknownNameError
from rocsolid.model.setting import Value
from rocsolid.model.study import RUNNING, TrialRecord
from rocsolid.tune.space import FORM, GRAPH, Knob, Space, name_of

Next = Callable[[Sequence[TrialRecord]], dict[str, Value] | None]
SEARCHES: Final = ("tpe", "one-at-a-time", "exhaustive")
SECONDS: Final[Mapping[str, Callable[[TrialRecord], float]]] = {
    "memory": lambda trial: trial.peak_bytes,
    "setup": lambda trial: trial.setup_s,
}
_WORTH: Final = 0.99  # a value counts as a help when it leaves less than this of the time
_SMALL: Final = 2000  # points of a space that is gone through
_ASKS: Final = 60  # of the sampler, before we believe that it has nothing new


def search_of(name: str, space: Space, seed: int = 0, second: str = "") -> Next:
    """A way to search; raises MissingExtraError where Optuna is needed and missing.

    With a second objective, `memory` or `setup`, TPE looks for variants that are good at both; the others try the same as ever.
    """
    if second and second not in SECONDS:
        raise UnknownNameError(kind="second objective", name=second, known=SECONDS)
    if name == "one-at-a-time":
        return lambda done: _first_new(_one_at_a_time(space, done), done)
    if name == "exhaustive":
        return lambda done: _first_new(space.every(), done)
    if name == "tpe":
        return _tpe(space, seed, second)
    raise UnknownNameError(kind="search", name=name, known=SEARCHES)


def has_optuna() -> bool:
    """Whether the extra is installed."""
    from importlib.util import find_spec

    return find_spec("optuna") is not None


def forms(space: Space) -> Iterator[dict[str, Value]]:
    """The start and every other form: what `optimize` would try, and what every study tries first."""
    values = [knob.values if (knob := space.knob(name)) else () for name in (FORM, GRAPH)]
    for form, graph in itertools.product(*values):
        yield space.variant({FORM: form, GRAPH: graph})


def _first_new(variants: Iterator[dict[str, Value]], done: Sequence[TrialRecord]) -> dict[str, Value] | None:
    tried = {trial.name for trial in done}
    return next((variant for variant in variants if name_of(variant) not in tried), None)


def _one_at_a_time(space: Space, done: Sequence[TrialRecord]) -> Iterator[dict[str, Value]]:
    """The forms; each value by itself in the best of them; then those that helped, together and all but one."""
    yield from forms(space)
    times = {trial.name: trial.timing.median_ms for trial in done if trial.timing}
    compiled = [variant for variant in forms(space) if space.value(variant, FORM) != "eager"]
    base = min(compiled or forms(space), key=lambda variant: times.get(name_of(variant), float("inf")))
    helped: list[tuple[float, str, Value]] = []
    for knob in space.knobs:
        if knob.id in (FORM, GRAPH):
            continue
        for value in knob.values[1:]:
            variant = space.variant({**base, knob.id: value})
            yield variant
            took, before = times.get(name_of(variant)), times.get(name_of(base))
            if took and before and name_of(variant) != name_of(base) and took < _WORTH * before:
                helped.append((took, knob.id, value))
    best = {name: value for _, name, value in sorted(helped, key=lambda h: h[0], reverse=True)}
    yield space.variant({**base, **best})
    for left_out in best:
        yield space.variant({**base, **{name: value for name, value in best.items() if name != left_out}})


def _anywhere(space: Space, seed: int) -> Iterator[dict[str, Value]]:
    """Variants at random; of a small space all of them."""
    points = math.prod(len(knob.values) for knob in space.knobs)
    if points <= _SMALL:
        everything = list(space.every())
        random.Random(seed).shuffle(everything)  # noqa: S311 - an order, no secret
        yield from everything
        return
    order = random.Random(seed)  # noqa: S311
    for _ in range(_SMALL):
        yield space.variant({knob.id: order.choice(knob.values) for knob in space.knobs})


def _place(knob: Knob, value: Value) -> int:
    return [str(known) for known in knob.values].index(str(value))


def _tpe(space: Space, seed: int, second: str) -> Next:
    try:
        import optuna
    except ImportError as missing:
        feature = "searching by TPE"
        raise MissingExtraError(feature, "tune") from missing
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():  # releases before 5 call it experimental
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=6)
    study = optuna.create_study(sampler=sampler, directions=["minimize"] * (2 if second else 1))
    told: set[str] = set()
    # Values are named by their place, since a category must be a plain type and True is not 1.
    choices = {knob.id: [str(place) for place in range(len(knob.values))] for knob in space.knobs}

    def tell(trial: TrialRecord) -> None:
        told.add(trial.name)
        if trial.timing is None:  # a failure teaches nothing about speed, and no number stands for it
            return
        params = {k.id: str(_place(k, space.value(trial.choices, k.id))) for k in space.knobs}
        kinds: Any = {name: optuna.distributions.CategoricalDistribution(places) for name, places in choices.items()}
        values = [trial.timing.median_ms, *([float(SECONDS[second](trial))] if second else [])]
        study.add_trial(optuna.trial.create_trial(params=params, distributions=kinds, values=values))

    def following(done: Sequence[TrialRecord]) -> dict[str, Value] | None:
        for trial in done:
            if trial.name not in told and trial.kind != RUNNING:
                tell(trial)
        fresh = _first_new(forms(space), done)
        if fresh is not None:
            return fresh
        tried = {trial.name for trial in done}
        for _ in range(_ASKS):
            asked = study.ask()
            places = {knob.id: int(asked.suggest_categorical(knob.id, choices[knob.id])) for knob in space.knobs}
            study.tell(asked, state=optuna.trial.TrialState.FAIL)  # what it comes to is added once it is known
            variant = space.variant({knob.id: knob.values[places[knob.id]] for knob in space.knobs})
            if name_of(variant) not in tried:
                return variant
        return _first_new(_anywhere(space, seed + len(done)), done)  # it is sure of its best, and we may look elsewhere

    return following
