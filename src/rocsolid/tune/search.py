"""Choose the variant to try next. The choice depends only on the finished trials, so an interrupted study can be resumed."""

import itertools
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from rocsolid.errors import MissingExtraError, UnknownNameError
from rocsolid.model.form import Form
from rocsolid.model.setting import Value
from rocsolid.model.study import RUNNING, TrialRecord
from rocsolid.tune.space import FORM, GRAPH, Knob, Space, variant_name

NextVariant = Callable[[Sequence[TrialRecord]], dict[str, Value] | None]  # None: nothing is left to try
SEARCHES: Final = ("tpe", "one-at-a-time", "exhaustive")
SECOND_OBJECTIVES: Final[Mapping[str, Callable[[TrialRecord], float]]] = {
    "memory": lambda trial: trial.peak_bytes,
    "setup": lambda trial: trial.setup_s,
}
_MAX_TIME_RATIO: Final = 0.99  # a value helps if the time with it is less than this share of the time without it
_SMALL_SPACE: Final = 2000  # a space with at most this many combinations is searched completely
_MAX_SUGGESTIONS: Final = 60  # if so many suggestions of the sampler were all tried before, a random variant is taken


def make_search(name: str, space: Space, seed: int = 0, second_objective: str = "") -> NextVariant:
    """Return the search with that name; raises MissingExtraError if it needs Optuna and Optuna is not installed.

    With a second objective, `memory` or `setup`, TPE searches for variants that are fast and need little of it. The other searches
    ignore it.
    """
    if second_objective and second_objective not in SECOND_OBJECTIVES:
        raise UnknownNameError(kind="second objective", name=second_objective, known=SECOND_OBJECTIVES)
    if name == "one-at-a-time":
        return lambda trials: _first_new(_one_at_a_time(space, trials), trials)
    if name == "exhaustive":
        return lambda trials: _first_new(space.all_variants(), trials)
    if name == "tpe":
        return _tpe(space, seed, second_objective)
    raise UnknownNameError(kind="search", name=name, known=SEARCHES)


def has_optuna() -> bool:
    """Whether Optuna is installed."""
    from importlib.util import find_spec

    return find_spec("optuna") is not None


def form_variants(space: Space) -> Iterator[dict[str, Value]]:
    """Yield the baseline and every other form, each with and without a graph. Each study tries these first."""
    values = [knob.values if (knob := space.knob(name)) else () for name in (FORM, GRAPH)]
    for form, graph in itertools.product(*values):
        yield space.variant({FORM: form, GRAPH: graph})


def _first_new(variants: Iterator[dict[str, Value]], trials: Sequence[TrialRecord]) -> dict[str, Value] | None:
    tried = {trial.name for trial in trials}
    return next((variant for variant in variants if variant_name(variant) not in tried), None)


def _one_at_a_time(space: Space, trials: Sequence[TrialRecord]) -> Iterator[dict[str, Value]]:
    """Yield the forms; then each value alone in the fastest compiled form; then all values that helped; then all of them but one."""
    yield from form_variants(space)
    times = {trial.name: trial.timing.median_ms for trial in trials if trial.timing}
    compiled = [variant for variant in form_variants(space) if space.value(variant, FORM) != Form.EAGER.id]
    base = min(compiled or form_variants(space), key=lambda variant: times.get(variant_name(variant), float("inf")))
    helped: list[tuple[float, str, Value]] = []  # milliseconds, knob id, value
    for knob in space.knobs:
        if knob.id in (FORM, GRAPH):
            continue
        for value in knob.values[1:]:
            variant = space.variant({**base, knob.id: value})
            yield variant
            time_with, time_without = times.get(variant_name(variant)), times.get(variant_name(base))
            if time_with and time_without and variant != base and time_with < _MAX_TIME_RATIO * time_without:
                helped.append((time_with, knob.id, value))
    # The slowest first: of two values of one knob that helped, the faster one stays in the dict.
    best = {name: value for _, name, value in sorted(helped, key=lambda entry: entry[0], reverse=True)}
    yield space.variant({**base, **best})
    for left_out in best:
        yield space.variant({**base, **{name: value for name, value in best.items() if name != left_out}})


def _random_variants(space: Space, seed: int) -> Iterator[dict[str, Value]]:
    """Yield variants in random order; all of them if the space is small."""
    rng = random.Random(seed)  # noqa: S311 - not used for security
    if space.size <= _SMALL_SPACE:
        variants = list(space.all_variants())
        rng.shuffle(variants)
        yield from variants
        return
    for _ in range(_SMALL_SPACE):
        yield space.variant({knob.id: rng.choice(knob.values) for knob in space.knobs})


def _index(knob: Knob, value: Value) -> int:
    return [str(known) for known in knob.values].index(str(value))


def _tpe(space: Space, seed: int, second_objective: str) -> NextVariant:
    try:
        import optuna
    except ImportError as missing:
        feature = "--search tpe"
        raise MissingExtraError(feature, "tune") from missing
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():  # Optuna before 5 marks `multivariate` as experimental
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=6)
    study = optuna.create_study(sampler=sampler, directions=["minimize"] * (2 if second_objective else 1))
    added: set[str] = set()
    # Optuna gets the index of a value instead of the value: categories must be plain types, and True equals 1.
    choices = {knob.id: [str(index) for index in range(len(knob.values))] for knob in space.knobs}

    def add(trial: TrialRecord) -> None:
        added.add(trial.name)
        if trial.timing is None:  # a failed trial has no time
            return
        params = {k.id: str(_index(k, space.value(trial.choices, k.id))) for k in space.knobs}
        distributions: Any = {
            name: optuna.distributions.CategoricalDistribution(indices) for name, indices in choices.items()
        }
        second_value = [float(SECOND_OBJECTIVES[second_objective](trial))] if second_objective else []
        values = [trial.timing.median_ms, *second_value]
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, values=values))

    def next_variant(trials: Sequence[TrialRecord]) -> dict[str, Value] | None:
        for trial in trials:
            if trial.name not in added and trial.kind != RUNNING:
                add(trial)
        form = _first_new(form_variants(space), trials)
        if form is not None:
            return form
        tried = {trial.name for trial in trials}
        for _ in range(_MAX_SUGGESTIONS):
            suggested = study.ask()
            indices = {knob.id: int(suggested.suggest_categorical(knob.id, choices[knob.id])) for knob in space.knobs}
            study.tell(suggested, state=optuna.trial.TrialState.FAIL)  # its real result is added when it is known
            variant = space.variant({knob.id: knob.values[indices[knob.id]] for knob in space.knobs})
            if variant_name(variant) not in tried:
                return variant
        # The sampler has converged: try a random variant.
        return _first_new(_random_variants(space, seed + len(trials)), trials)

    return next_variant
