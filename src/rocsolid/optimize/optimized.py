"""Measures every form of a model on the user's examples, and returns the fastest one with correct results."""

import logging
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import torch

from rocsolid.errors import UsageError
from rocsolid.measure.gc_pause import gc_paused
from rocsolid.model.capture_report import CaptureReport
from rocsolid.model.form import Form
from rocsolid.model.log import log as _log
from rocsolid.model.optimize_report import UNCHECKED, FormOutcome, FormResult, OptimizeReport, form_label
from rocsolid.model.plan import Decision, Plan, Tuned
from rocsolid.model.program_report import ProgramPart, ProgramReport
from rocsolid.model.progress import OnStep, ignore_step
from rocsolid.numerics import Tolerance
from rocsolid.optimize.attention import ATTENTION, ChosenAttention
from rocsolid.optimize.autocast import AUTOCAST, with_autocast
from rocsolid.optimize.child_race import NoChildRace
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.form_race import FormRace, Forms, MakeForms, RaceOutcome
from rocsolid.optimize.graph_passes import finding_unsuitable, is_pass, pass_options
from rocsolid.optimize.prewarm import prewarm_libraries
from rocsolid.optimize.race import MakeForm, RacedForm, RaceLimits, expect, prepare
from rocsolid.optimize.settings_search import (
    SettingsSearch,
    TriedSetting,
    can_be_set,
    decisions_of,
    joint_settings,
)
from rocsolid.optimize.warm_start import SavedRun, artefact_file, has_winner, key_of, warm_start
from rocsolid.runtime.capture.backends.device import DeviceSession
from rocsolid.runtime.capture.captured import Captured
from rocsolid.runtime.compiled import compile_with_plan
from rocsolid.runtime.regional_compile import (
    RegionalModel,
    RepeatedStep,
    compile_states,
    counting_calls,
    repeated_layers,
    repeated_step,
)
from rocsolid.runtime.wrapped_module import WrappedModule, refuse_sharding, wrap_module
from rocsolid.torchapi.dynamo.compile_hooks import remove_skip_marks
from rocsolid.torchapi.graphs.replay_checks import write_counts

_RECHECK: Final = RaceLimits(seconds=2.0, rounds=8)  # compares the fastest form of an earlier process with eager
_SETTINGS_S: Final = 60.0  # how long settings are tried without a budget
_RACE_SHARE: Final = 0.1  # of the budget, in which nothing is compiled any more
_SETTINGS_ON_GPU_S: Final = 30.0  # there, the settings that bring most are in the first race
_PATIENCE: Final = 2  # without a budget, the search for settings ends after so many that brought nothing
_UNDONE: Final = "undo() was called"
_IN_CHILD: Final = "a child process; only the chosen one was set up, verified and measured in this one"
Capture = Callable[[Callable[..., Any]], Captured]
ChildRace = Callable[[], OptimizeReport | NoChildRace]


class Optimized:
    """The chosen form of a function, called like the function; `report()` shows all forms that were measured."""

    def __init__(
        self,
        function: Callable[..., Any],
        model: Any,
        report: OptimizeReport,
        *,
        weights_are_constants: bool = False,
        checks_expected: bool = False,
    ) -> None:
        if weights_are_constants:
            function = _ConstantWeights(function, model, partial(self.check_model, new_weights=True))
        self._chosen = self._function = function
        self._model = model
        self._report = report
        self._weights_are_constants = weights_are_constants
        self._measured_with = _describe(model)
        self._why_unused = ""
        self._checks_expected = checks_expected  # verify=rs.every(n) was given
        self._sealed = ""  # what a call does that would compile: "raise" or "eager"; empty: it compiles
        self._watch_compiles()
        self._warn_if_unchecked()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the chosen form."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Optimized {str(self.report()).partition(chr(10))[0]}>"

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def report(self) -> OptimizeReport:
        """Return the forms that were tried, with their times and errors, and the chosen one."""
        states = compile_states(_without_wrappers(self._chosen))
        return replace(
            self._report,
            unused_because=self._why_unused,
            unchecked=self._unchecked,
            late_compiles=sum(state.late_compiles for state in states),
            refused_compiles=sum(state.refused_compiles for state in states),
        )

    def explain(self) -> ProgramReport:
        """Return whether the model was optimized, with its graphs and what could not be captured."""
        return ProgramReport(name=self._report.name, parts=(self.as_part("the model"),))

    def as_part(self, name: str) -> ProgramPart:
        """Return what was done to this model, as a part of a program."""
        report, captured = self.report(), self.captured
        used = report.chosen is not Form.EAGER and not report.unused_because
        detail = report.unused_because or f"{report.chosen_label}, {report.why}"
        if report.late_compiles:
            detail += f"; compiled again within {_count(report.late_compiles, 'call')}"
        counters = report.counters()
        if captured is not None:
            graphs = captured.report()
            counters |= graphs.counters()
            if used:
                used = bool(graphs.graphs or not graphs.refusals)
                detail = "; ".join((detail, *_graphs(graphs)))
        return ProgramPart(name=name, optimized=used, detail=detail, counters=counters)

    def undo(self) -> Any:
        """Free the graphs and return the plain model. From now on this object behaves like it, too."""
        for function in (self._function, self._chosen):
            if (captured := _as_captured(function)) is not None:
                captured.close()
        self._why_unused, self._function = _UNDONE, self._model
        return self._model

    @property
    def _undone(self) -> bool:
        return self._why_unused == _UNDONE

    def seal(self, otherwise: str = "raise") -> None:
        """Forbid compiles and captures within calls. A call that would compile raises RecompileError.

        With `otherwise="eager"` such a call runs in eager instead, and `report().refused_compiles` counts it. Calls without a graph
        run without one. With `progressive=True` this begins when the compiled form is in use.
        """
        if otherwise not in ("raise", "eager"):
            msg = f"seal(otherwise={otherwise!r}): use 'raise' or 'eager'"
            raise UsageError(msg)
        self._sealed = otherwise
        self._watch_compiles()

    @property
    def _unchecked(self) -> bool:
        """Whether calls are not compared with eager although `verify=rs.every(n)` asks for it: only replays are compared."""
        return self._checks_expected and self._report.chosen.compiles and not self._report.chosen.graph

    def _warn_if_unchecked(self) -> None:
        """Log that calls are not compared with eager although they should be."""
        if self._unchecked:
            _log.warning("%s: %s", self._report.name, UNCHECKED)

    def _watch_compiles(self) -> None:
        """Count the compiles of the chosen form from now on, or forbid them."""
        for state in compile_states(_without_wrappers(self._chosen)):
            state.in_service = True
            if self._sealed:
                state.seal(self._sealed)
        if self._sealed and self.captured is not None:
            self.captured.freeze()

    @property
    def model(self) -> Any:
        """The function or module that was optimized, unchanged."""
        return self._model

    @property
    def __rocsolid_function__(self) -> Any:
        return self._model

    @property
    def captured(self) -> Captured | None:
        """The captured function, if the chosen form has a graph; its own report counts replays."""
        return _as_captured(self._function)

    def use(self, function: Callable[..., Any]) -> None:
        """Use another form from now on, unless the model has changed."""
        self._chosen = function
        if self._undone and (captured := _as_captured(function)) is not None:
            captured.close()
        if not self._why_unused:
            self._function = function
        self._watch_compiles()

    def check_model(self, *, new_weights: bool = False) -> None:
        """Compare mode, dtypes and devices of the model with those of the measurement.

        If they differ, the chosen form is verified with the next call before it is used again. In training mode the model runs in
        eager, unless it was measured like that: two runs of one training step cannot be compared.
        """
        if self._undone:
            return
        if new_weights and self._weights_are_constants:
            self._chosen = self._model
            self._set_unused("its weights are constants of the compiled code (inductor.freezing), and were changed")
            return
        change = _first_change(self._measured_with, _describe(self._model))
        if change and self._model.training:
            self._set_unused(change)
        elif change:
            self._function = self._verified_call
        elif self._function is not self._chosen:
            self._why_unused, self._function = "", self._chosen
            _log.info("%s: the form %r is used again", self._report.name, self._report.chosen.label)

    def _set_unused(self, why: str) -> None:
        if why != self._why_unused:
            _log.warning("%s runs in eager: %s. Call rs.optimize again", self._report.name, why)
        self._why_unused, self._function = why, self._model

    def _verified_call(self, *args: Any, **kwargs: Any) -> Any:
        """Compare the chosen form with eager on this call, and use it from now on if the results match."""
        raced = RacedForm(form=self._report.chosen, make=lambda: self._chosen)
        example = Example(args, kwargs)
        states = compile_states(_without_wrappers(self._chosen))
        refused = [state.refused_compiles for state in states]
        prepare(raced, [example], expect(self._model, [example], Tolerance()), float("inf"))
        for state, count in zip(states, refused, strict=True):
            state.refused_compiles = count  # without these runs, which are no calls of the user
        now = _describe(self._model)
        if raced.eligible:
            self._measured_with, self._why_unused, self._function = now, "", self._chosen
            _log.info("%s has changed, and the form %r was verified again", self._report.name, raced.label)
        else:
            self._set_unused(f"{_first_change(self._measured_with, now)}, and {raced.result.why or 'it failed'}")
        return self._model(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg)
        return getattr(self._model, name)

    def __reduce_ex__(self, _: Any) -> Any:
        msg = (
            "the result of rs.optimize cannot be copied or pickled: compiled code and graphs belong to this process.\n"
            "fix: copy or save the model inside (`.rocsolid.model`, `.state_dict()`), and call rs.optimize on the copy"
        )
        raise UsageError(msg)


def _as_captured(function: Any) -> Captured | None:
    function = function.function if isinstance(function, _ConstantWeights) else function
    return function if isinstance(function, Captured) else None


def _graphs(report: CaptureReport) -> Iterator[str]:
    """Yield how many graphs a model has, one for each shape of its inputs, and what was not captured."""
    yield f"{_count(len(report.graphs), 'graph')}, {_count(report.replays, 'replay')}"
    if report.evictions:
        yield f"{_count(report.evictions, 'graph')} of other shapes discarded, the least recently used first"
    for message in dict.fromkeys(refusal.message.partition("\n")[0] for refusal in report.refusals):
        yield f"not captured: {message}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _without_wrappers(function: Any) -> Any:
    """Return the compiled function or the model inside a form."""
    if isinstance(function, _ConstantWeights):
        function = function.function
    if isinstance(function, partial):  # with autocast
        function = function.args[0]
    return function.__rocsolid_function__ if isinstance(function, Captured) else function


class _ConstantWeights:
    """A form whose compiled code has the weights as constants: before each call, checks that nothing was written to them."""

    def __init__(self, function: Callable[..., Any], model: Any, on_change: Callable[[], None]) -> None:
        self.function = function
        self._model = model
        self._on_change = on_change
        tensors = (*model.parameters(), *model.buffers()) if isinstance(model, torch.nn.Module) else ()
        self._tensors = [tensor for tensor in tensors if not tensor.is_inference()]  # those have no counter
        self._counts = write_counts(self._tensors)
        self._called = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if write_counts(self._tensors) != self._counts:
            self._on_change()
            return self._model(*args, **kwargs)
        result = self.function(*args, **kwargs)
        if not self._called:
            self._leave_out_written()
        return result

    def _leave_out_written(self) -> None:
        """After the first call: tensors that the model itself writes to, such as a cache, are not constants."""
        self._called = True
        pairs = zip(self._tensors, self._counts, write_counts(self._tensors), strict=True)
        self._tensors = [tensor for tensor, before, after in pairs if before == after]
        self._counts = write_counts(self._tensors)


class OptimizedModule(WrappedModule):
    """The chosen form of a module: what `rs.optimize` returns for an `nn.Module`.

    It is an instance of a subclass of the module's own class and shares all attributes with the module. After a change of the mode
    (`eval()`), dtype or device the chosen form is verified again with the next call; in training mode the module runs in eager.
    """

    __slots__ = ()

    def report(self) -> OptimizeReport:
        """Return the forms that were tried, with their times and errors, and the chosen one."""
        report: OptimizeReport = self.rocsolid.report()
        return report

    @property
    def captured(self) -> Captured | None:
        """The captured function, if the chosen form has a graph; its own report counts replays."""
        captured: Captured | None = self.rocsolid.captured
        return captured

    def explain(self) -> ProgramReport:
        """Return whether the model was optimized, with its graphs and what could not be captured."""
        return self.rocsolid.explain()  # type: ignore[no-any-return]

    def undo(self) -> Any:
        """Free the graphs and return the plain model. From now on this object behaves like it, too."""
        return self.rocsolid.undo()

    def seal(self, otherwise: str = "raise") -> None:
        """Forbid compiles and captures within calls; with `otherwise="eager"` such calls run in eager and are counted."""
        self.rocsolid.seal(otherwise)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the background work of `progressive=True` has ended; return False if the timeout was reached before."""
        return bool(self.rocsolid.wait(timeout_s))

    def train(self, mode: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's signature
        """Set the mode as for any module."""
        self.__rocsolid_function__.train(mode)
        self.rocsolid.check_model()
        return self

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Convert parameters and buffers; `to()`, `half()`, `cuda()` and others call this."""
        self.__rocsolid_function__._apply(*args, **kwargs)  # noqa: SLF001 - torch's name of this method
        self.rocsolid.check_model()
        return self

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load weights as for any module."""
        result = self.__rocsolid_function__.load_state_dict(*args, **kwargs)
        self.rocsolid.check_model(new_weights=True)
        return result

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__":
            refuse_sharding(value, "rs.optimize")
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.rocsolid.__reduce_ex__(protocol)


_MODULE_METHODS: Final = ("report", "explain", "undo", "captured", "seal", "wait", "_repr_html_")


def optimized_module(optimized_model: Optimized) -> Any:
    """Return an `OptimizedModule` for a module, and the object itself for a function."""
    if not isinstance(optimized_model.model, torch.nn.Module):
        return optimized_model
    return wrap_module(optimized_model, OptimizedModule, _MODULE_METHODS)


def _describe(model: Any) -> dict[str, str]:
    """Return the mode of each module, and dtype and device of each parameter and buffer."""
    if not isinstance(model, torch.nn.Module):
        return {}
    described = {f"module `{name}`" if name else "the model": _mode(part) for name, part in model.named_modules()}
    for kind, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        described |= {f"{kind} `{name}`": f"{tensor.dtype} on {tensor.device}" for name, tensor in tensors}
    return described


def _mode(module: Any) -> str:
    return "in training mode" if module.training else "in eval mode"


def _first_change(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the first difference of two descriptions; "" if there is none."""
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            return f"{name} is {now.get(name, 'gone')}, and was {before.get(name, 'not there')} when it was measured"
    return ""


def optimized(  # noqa: PLR0913 - each is one decision of rs.optimize
    model: Callable[..., Any],
    examples: Sequence[Example],
    plan: Plan,
    *,
    capture: Capture | None,
    budget_s: float | None,
    artefacts: Path | None = None,
    tolerance: Tolerance = Tolerance(),
    tried_settings: Sequence[TriedSetting] = (),
    on_step: OnStep = ignore_step,
    child_race: ChildRace | None = None,
    checks_expected: bool = False,
) -> Any:
    """Measure every form and return the chosen one; `capture` captures a function as a graph, and is None without a GPU.

    The values in `tried_settings` are tried one after the other with the fastest compiled form, and kept if they make it faster.
    With `child_race` all this happens in a child process, and only its winner is set up here. If that fails, it happens here.
    """
    deadline = time.perf_counter() + budget_s if budget_s is not None else float("inf")
    compiles_end = deadline - _RACE_SHARE * (budget_s or 0.0)
    remove_skip_marks()
    file = artefact_file(artefacts, key_of(model, plan, examples, [x.decision for x in tried_settings]))
    raced = _race_elsewhere(child_race, model, deadline) if not has_winner(model, file) else None
    with warm_start(model, file, traces=capture is not None) as saved:
        may_crash = isinstance(raced, NoChildRace) and raced.killed  # this process must not end in the same kernel
        tried = [] if plan.tuned or may_crash else list(tried_settings)
        known = raced.settings if isinstance(raced, OptimizeReport) else saved.settings if saved.winner else None
        if known is not None:  # what has lost is not prepared again
            tried = [x for x in tried if not is_pass(x.decision.id) or x.decision.id in known]
        with counting_calls(model) as calls, finding_unsuitable(model, {x.decision.id for x in tried}) as unsuitable:
            expected = expect(model, examples, tolerance)
        tried = [x for x in tried if x.decision.id not in unsuitable]
        step = repeated_step(model, calls, len(examples))

        def forms(settings: Sequence[Decision] = (), ends_at: float = compiles_end) -> Forms:
            changed = plan.with_decisions(
                d for d in settings if d.id not in (AUTOCAST, ATTENTION) and not is_pass(d.id)
            )
            attention = next((str(d.value) for d in settings if d.id == ATTENTION), "")
            made = available_forms(
                model,
                changed,
                capture,
                budget_s,
                ends_at=None if ends_at == float("inf") else ends_at,
                whole_model=saved.traces.model,
                step=step,
                options=pass_options({d.id: d.value for d in settings}),
                wrap=ChosenAttention(attention) if attention else None,
            )
            in_bfloat16 = any(d.id == AUTOCAST for d in settings)
            return {f: with_autocast(make) if in_bfloat16 and f.compiles else make for f, make in made.items()}

        form_race = FormRace(
            examples=examples,
            expected=expected,
            deadline=deadline,
            on_step=on_step,
            unrolled_steps=step.calls if step else 0,
            layers=len(repeated_layers(model)),
        )
        raced_in, outcome = "", None
        elsewhere: Sequence[FormResult] = ()
        if isinstance(raced, NoChildRace):
            raced_in = f"this process: {raced.why}{'; without settings and graph passes' * may_crash}"
        elif raced is not None and (outcome := _set_up_winner(raced, forms, saved, form_race, tried)):
            raced_in, elsewhere = _IN_CHILD, raced.forms
        elif raced is not None:
            saved.winner = None  # do not check it again
            saved.traces.disable()
        outcome = outcome or _recheck_or_race(forms, saved, form_race, tried)
    results = {x.label: x for x in elsewhere} | {x.label: x.result for x in outcome.forms}
    report = OptimizeReport(
        name=getattr(model, "__name__", type(model).__name__),
        machine=device_and_versions(),
        profile=plan.profile,
        forms=tuple(results.values()),
        chosen=outcome.winner.form,
        settings=outcome.winner.settings,
        why=outcome.why,
        noise=outcome.noise,
        example_count=len(examples),
        raced_in=raced_in,
        graphs_captured=DeviceSession.captures,
    )
    freezing = plan.get("inductor.freezing")
    frozen = outcome.winner.settings.get("inductor.freezing", freezing is not None and freezing.value)
    constants = bool(frozen) and report.chosen.compiles
    chosen = Optimized(
        outcome.winner.made, model, report, weights_are_constants=constants, checks_expected=checks_expected
    )
    return optimized_module(chosen)


def _race_elsewhere(child_race: ChildRace | None, model: Any, deadline: float) -> OptimizeReport | NoChildRace | None:
    """Race in a child process. The libraries of this process are loaded meanwhile."""
    if child_race is None or deadline <= time.perf_counter():
        return None
    prewarm_libraries(model)
    raced = child_race()
    if isinstance(raced, NoChildRace):
        _log.log(
            logging.WARNING if raced.failed else logging.INFO, "the forms are measured in this process: %s", raced.why
        )
    return raced


def _set_up_winner(
    raced: OptimizeReport,
    make_forms: MakeForms,
    saved: SavedRun,
    form_race: FormRace,
    tried_settings: Sequence[TriedSetting],
) -> RaceOutcome | None:
    """Set up and verify the form that won in the child process; None if it does not work here."""
    if raced.chosen is Form.COMPILED or raced.settings:
        # Without a graph, every call needs all guards, and saved traces lack some; and they are without these settings.
        saved.traces.disable()
    if not can_be_set(raced.settings, tried_settings):
        return None
    made = make_forms(decisions_of(raced.settings, tried_settings))
    with gc_paused():
        outcome = form_race.run(
            _with_eager(made, raced.chosen),
            limits=_RECHECK,
            tracing=saved.traces.tracing,
            settings=raced.settings,
        )
    here = {x.label: x for x in outcome.forms}
    winner = here[form_label(raced.chosen, raced.settings)]
    if winner.function is None or winner.result.outcome not in (FormOutcome.CHOSEN, FormOutcome.NOT_CHOSEN):
        _log.warning("%r won in a child process, but not here: %s", winner.label, winner.result.why or "it failed")
        return None
    if winner.form is Form.EAGER:
        outcome.why = raced.why
    return outcome


def _recheck_or_race(
    make_forms: MakeForms,
    saved: SavedRun,
    form_race: FormRace,
    tried_settings: Sequence[TriedSetting],
) -> RaceOutcome:
    """Return the fastest form of an earlier process if it is still correct and faster than eager; otherwise measure all forms."""
    traces, saved_winner = saved.traces, saved.winner
    allowed = can_be_set(saved.settings, tried_settings)
    forms = make_forms(decisions_of(saved.settings, tried_settings)) if allowed else {}
    if saved_winner is not None and saved_winner in forms:
        with gc_paused():  # a garbage collection after the import of torch would take a tenth of these few seconds
            outcome = form_race.run(
                _with_eager(forms, saved_winner), limits=_RECHECK, tracing=traces.tracing, settings=saved.settings
            )
        measured = f"the other forms were measured on {saved.race_date} and were not faster"
        if saved_winner is Form.EAGER:
            outcome.why = f"{measured}; delete the saved artefacts to measure them again (rocsolid cache)"
            return outcome
        if outcome.winner.form is not Form.EAGER:
            outcome.why += f"; {measured}"
            return outcome
        traces.disable()
    outcome = _race(make_forms, saved, form_race, tried_settings)
    on_gpu = any(raced.form.graph for raced in outcome.forms)
    limit = min(form_race.deadline, time.perf_counter() + (_SETTINGS_ON_GPU_S if on_gpu else _SETTINGS_S))
    outcome = SettingsSearch(
        race=form_race,
        make_forms=make_forms,
        tried=tried_settings,
        deadline=limit,
        outcome=outcome,
        patience=_PATIENCE if form_race.deadline == float("inf") else 0,
    ).run()
    saved.winner, saved.settings = outcome.winner_to_save, outcome.winner.settings
    if traces.enabled and outcome.winner.form is Form.COMPILED and not outcome.winner.settings:
        # Code that was traced for saving lacks guards, and without a graph this process would run it in every call: compile it again.
        traces.disable()
        outcome = form_race.run(_with_eager(make_forms(), Form.COMPILED))
    return outcome


def _race(
    make_forms: MakeForms,
    saved: SavedRun,
    form_race: FormRace,
    tried_settings: Sequence[TriedSetting],
) -> RaceOutcome:
    """Race all forms, the compiled ones with the joint settings, so that each form is compiled once; without, if none of these works."""
    failed: Sequence[RacedForm] = ()
    if joint := joint_settings(tried_settings):
        saved.traces.disable()  # they are without these settings
        outcome = form_race.run(make_forms(decisions_of(joint, tried_settings)), settings=joint)
        failed = [x for x in outcome.forms if x.form.compiles]
        if not failed or any(x.result.timing for x in failed):
            return outcome
    outcome = form_race.run(make_forms(), tracing=saved.traces.tracing)
    outcome.forms = [*outcome.forms, *failed]
    return outcome


def _with_eager(forms: Forms, form: Form) -> Forms:
    """Return only one form, and eager as the baseline."""
    return {kept: forms[kept] for kept in dict.fromkeys((Form.EAGER, form))}


def available_forms(  # noqa: PLR0913 - each changes what is compiled
    model: Callable[..., Any],
    plan: Plan,
    capture: Capture | None,
    budget_s: float | None,
    *,
    ends_at: float | None = None,
    whole_model: Callable[..., Any] | None = None,
    step: RepeatedStep | None = None,
    options: Mapping[str, object] | None = None,
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> Forms:
    """Return every form that this model supports, simplest first. A compiled form and its graph share one compiled function.

    No compile ends after `ends_at`. `whole_model` is compiled instead of `model` for the forms that compile the whole model. By
    region, `step` is compiled, or else the repeated layers. `options` are for torch.compile, `wrap` is applied to what is compiled.
    """

    def compile_part(part: Callable[..., Any]) -> Any:
        function = wrap(part) if wrap else part
        return compile_with_plan(plan, function, options=options or None, deadline_s=budget_s, ends_at=ends_at)

    @cache
    def compiled() -> Callable[..., Any]:
        function: Callable[..., Any] = compile_part(model if wrap or whole_model is None else whole_model)
        return function

    @cache
    def regional() -> Callable[..., Any]:
        return RegionalModel(model, compile_part, [step.module] if step else None)

    forms: dict[Form, MakeForm] = {Form.EAGER: lambda: model}
    if step or repeated_layers(model):
        forms[Form.REGIONAL] = regional
    forms[Form.COMPILED] = compiled
    if capture is not None:
        forms |= {form.with_graph: _make_captured(capture, make) for form, make in forms.items()}
    return _tuned_only(forms, plan.tuned) if plan.tuned else forms


def _tuned_only(forms: Forms, tuned: Tuned) -> Forms:
    """Return only eager and the form of the tuned plan; all forms if the form of the plan is not available."""
    tuned_form = Form.of(tuned.form, graph=tuned.graph)
    return _with_eager(forms, tuned_form) if tuned_form in forms else forms


def _make_captured(capture: Capture, make: MakeForm) -> Callable[[], Captured]:
    return lambda: capture(make())


def device_and_versions() -> str:
    """Return the device, the torch version and the Python version, for reports."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return f"{device}, torch {torch.__version__}, Python {platform.python_version()}"
