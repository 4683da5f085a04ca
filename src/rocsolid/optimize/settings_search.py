"""Tries settings and graph passes with the fastest compiled form, and keeps those that make it faster."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rocsolid.measure.statistics import compare
from rocsolid.model.form import Form
from rocsolid.model.optimize_report import FormOutcome
from rocsolid.model.plan import Decision
from rocsolid.model.progress import Step
from rocsolid.model.setting import Value
from rocsolid.model.timing import Verdict
from rocsolid.optimize.attention import ATTENTION
from rocsolid.optimize.form_race import FormRace, MakeForms, RaceOutcome, close_others, too_long
from rocsolid.optimize.graph_passes import OWN_ATTENTION
from rocsolid.optimize.race import RacedForm, RaceLimits, choose_winner, prepare, run_race
from rocsolid.runtime.capture.captured import Captured

_LIMITS: Final = RaceLimits(seconds=2.5, rounds=15)
_MUCH_FASTER: Final = 2.0
Settings = Mapping[str, Value]


@dataclass(frozen=True)
class TriedSetting:
    """A value that is tried, and what the catalogue says about it (`rocsolid.model.setting.Candidate`)."""

    decision: Decision
    setup_factor: float = 1.0
    also: tuple[Decision, ...] = ()  # set together with it
    setup_s: float = 0.0
    joint: bool = False
    suspect: bool = False

    @property
    def settings(self) -> dict[str, Value]:
        """The value by its id."""
        return {self.decision.id: self.decision.value}

    def is_in(self, settings: Settings) -> bool:
        """Whether these settings have the value."""
        return settings.items() >= self.settings.items()


def decisions_of(settings: Settings, tried: Iterable[TriedSetting]) -> list[Decision]:
    """Return the decisions for these tried settings."""
    return [d for x in tried if x.is_in(settings) for d in (x.decision, *x.also)]


def joint_settings(tried: Iterable[TriedSetting]) -> Settings:
    """Return the values that are tried together, before all others."""
    return {name: value for x in tried if x.joint for name, value in x.settings.items()}


def can_be_set(settings: Settings, tried: Iterable[TriedSetting]) -> bool:
    """Return whether these settings, which an earlier race has found, can still be set."""
    return settings.items() <= {item for x in tried for item in x.settings.items()}


@dataclass(kw_only=True)
class SettingsSearch:
    """Makes compiled forms once more with other settings, until a deadline."""

    race: FormRace
    make_forms: MakeForms
    tried: Sequence[TriedSetting]  # in the order in which they are tried
    deadline: float
    outcome: RaceOutcome
    patience: int = 0  # the search ends after so many settings that brought nothing; 0: it tries all
    _base: RacedForm = field(init=False)  # the form with the settings that are kept so far
    _kept_s: float = 0.0  # of the time until the deadline, for the whole model

    def run(self) -> RaceOutcome:
        """Return the outcome with all forms that were tried, and the fastest form as its winner.

        Where the layers of a model are compiled much faster than the whole model, settings are tried with the layers. Those that are
        kept are then tried with the whole model.
        """
        whole = _fastest_compiled(self.outcome)
        if whole is None or not self.tried:
            return self.outcome
        layers = self._layers(whole)
        self._base = layers or whole
        self._kept_s = self._setup_s(whole) if layers else 0.0
        unsuccessful = 0
        for settings, new in self._moves():
            if self.patience and unsuccessful >= self.patience:
                self._skip(settings, f"{unsuccessful} others brought nothing; budget_s= tries all")
                continue
            before = self._base
            self._try(settings, new)
            if len(new) <= 1:  # several together may fail because of one of them
                unsuccessful = unsuccessful + 1 if self._base is before else 0
        kept, self._kept_s = self._base.settings, 0.0
        if layers is not None and kept:
            self._base = RacedForm(form=whole.form, make=whole.make, settings=whole.settings)
            self._try(kept, [])
        return self.outcome

    def _layers(self, whole: RacedForm) -> RacedForm | None:
        """Return the form that compiles only the layers or the step of the model, if this is much faster; it can be raced again."""
        form = Form.of(Form.REGIONAL.id, graph=whole.form.graph)
        found = next((x for x in self.outcome.forms if x.form is form and x.result.timing), None)
        if whole.form.id != Form.COMPILED.id or found is None:
            return None
        if _MUCH_FASTER * self._setup_s(found) > self._setup_s(whole):
            return None
        if isinstance(found.function, Captured):  # its graph was released after the race
            setup_s = found.result.setup_s
            prepare(found, self.race.examples, self.race.expected, self.deadline)
            found.result = replace(found.result, setup_s=setup_s)
        return found if found.eligible else None

    def _setup_s(self, raced: RacedForm) -> float:
        """Return how long the set-up takes, also if another form has compiled the same before."""
        alike = [x for x in self.outcome.forms if x.form.id == raced.form.id and x.settings == raced.settings]
        return max((x.result.setup_s for x in alike), default=raced.result.setup_s)

    def _moves(self) -> Iterator[tuple[Settings, Sequence[TriedSetting]]]:
        """Yield settings to try, and which of them are new. What is yielded depends on what was kept before."""
        joint = [x for x in self.tried if x.joint]
        certain = [x for x in joint if not x.suspect]
        if joint:
            yield joint_settings(joint), joint
        if certain and len(joint) > len(certain):
            yield joint_settings(certain), certain
        if joint and (joint == certain or not self.outcome.winner.form.compiles):
            yield {}, []
        left: list[TriedSetting] = []
        for x in self.tried:
            kept = self._base.settings
            if x.decision.id == ATTENTION and not x.joint and OWN_ATTENTION in kept:
                continue  # torch's kernels are not used
            if not x.is_in(kept):
                yield self._with([x]), [x]
            elif x.suspect and len(kept) > 1:
                left.append(x)
        for x in left:
            kept = self._base.settings
            yield {name: value for name, value in kept.items() if name != x.decision.id}, []

    def _with(self, group: Sequence[TriedSetting]) -> Settings:
        return {**self._base.settings, **{name: value for x in group for name, value in x.settings.items()}}

    def _try(self, settings: Settings, new: Sequence[TriedSetting]) -> None:
        """Make the form with these settings; it becomes the base if it is faster."""
        base = self._base
        if any(x.form is base.form and x.settings == settings for x in self.outcome.forms):
            return
        left_s = self.deadline - self._kept_s - time.perf_counter()
        factor = max((x.setup_factor for x in new), default=1.0)
        expected_s = self._setup_s(base) * factor + sum(x.setup_s for x in new)
        if expected_s > left_s:
            self._skip(settings, too_long(expected_s, left_s))
            return
        tried = self._add(settings)
        number = sum(bool(x.settings) for x in self.outcome.forms) - 1
        what = f"setting up and verifying {tried.label!r}"
        self.race.on_step(Step(what=what, done=number, total=max(number + 1, len(self.tried)), alike=False))
        prepare(tried, self.race.examples, self.race.expected, self.deadline - self._kept_s)
        if tried.eligible:
            self._compare(tried)

    def _add(self, settings: Settings) -> RacedForm:
        form = self._base.form
        make = self.make_forms(decisions_of(settings, self.tried), self.deadline - self._kept_s)[form]
        added = RacedForm(form=form, make=make, settings=settings)
        self.outcome = replace(self.outcome, forms=[*self.outcome.forms, added])
        return added

    def _skip(self, settings: Settings, why: str) -> None:
        if not any(x.form is self._base.form and x.settings == settings for x in self.outcome.forms):
            skipped = self._add(settings)
            skipped.result = replace(skipped.result, why=why)

    def _compare(self, tried: RacedForm) -> None:
        eager, winner, base = self.outcome.forms[0], self.outcome.winner, self._base
        winner.result = replace(winner.result, outcome=FormOutcome.NOT_CHOSEN)
        others = [x for x in (winner, *([] if base is winner else [base])) if x is not eager and x.eligible]
        competing = [eager, *others, tried]
        times = run_race(competing, self.race.examples, self.race.within_budget(_LIMITS), self.race.on_step)
        new_winner, why = choose_winner(competing, times)
        rounds = times.samples_ms
        if (
            not any(x is base for x in others)
            or compare(rounds[base.label], rounds[tried.label]).verdict is Verdict.FASTER
        ):
            self._base = tried
        close_others(competing, new_winner, keep=self._base.function)
        self.outcome = replace(self.outcome, winner=new_winner, why=why, noise=times.noise)


def _fastest_compiled(outcome: RaceOutcome) -> RacedForm | None:
    """Return the winner if it is compiled, otherwise the fastest compiled form that works."""
    if outcome.winner.form.compiles:
        return outcome.winner
    working = [
        (x.result.timing.median_ms, x) for x in outcome.forms if x.form.compiles and x.eligible and x.result.timing
    ]
    return min(working, key=lambda pair: pair[0])[1] if working else None
