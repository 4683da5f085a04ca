"""`torch.compile` with a plan attached to the function, a deadline, and a limit on recompiles."""

import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from rocsolid.catalog.recompiles import RECOMPILE_CAUSES
from rocsolid.errors import RecompileError, UsageError
from rocsolid.model.compile_report import CompileReport, EagerFallback
from rocsolid.model.finding import Finding
from rocsolid.model.intervention import Intervention
from rocsolid.model.log import log as _log
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.setting import Channel, Owner
from rocsolid.runtime.compile_deadline import deadline
from rocsolid.runtime.guard import refusal_finding, source_line
from rocsolid.runtime.signature import CallSignature, differences, nearest, parameter_names, signature_of
from rocsolid.torchapi.config import modes
from rocsolid.torchapi.config.scope import settings_scope
from rocsolid.torchapi.dynamo.compile_hooks import (
    Compile,
    CompileCancelled,
    CompiledRuns,
    add_compile_listener,
    frames_up,
    remove_skip_marks,
)
from rocsolid.torchapi.dynamo.failed_guards import FailedGuard, failed_guards
from rocsolid.torchapi.user_frames import read_code_line, user_location

_STATE_VARIABLE: Final = "__rocsolid_compiled__"  # the local variable of the wrapper that holds the CompileState
_MAX_GUARDS_IN_MESSAGE: Final = 3
_MAX_REFUSED_CHANGES: Final = 10  # that are logged
# Functions of rocsolid that run inside a user's function do not count.
_OWN_CODE: Final = f"{Path(__file__).parents[1]}/"
_MIN_COMPILE_S: Final = 0.01
_NOTHING_COMPILED: Final = (
    "torch skipped it: it has no tensor operation, is disabled, or an earlier compile of the same code failed; "
    "torch._dynamo.reset() removes the marks of earlier failures"
)
# Called with the model, the arguments of torch.compile, and a call's arguments; returns "" or the reason not to compile.
Trial = Callable[..., str]


@dataclass(kw_only=True)
class CompileState:
    """The state that `rs.compile` attaches to a function, available as `fn.rocsolid`."""

    plan: Plan
    options: Mapping[str, object]  # the options passed to torch.compile
    interventions: tuple[Intervention, ...] = ()
    deadline_s: float | None = None
    ends_at: float | None = None  # a compile before the function is in service ends by then, in `time.perf_counter()`
    max_recompiles: int | None = None
    sealed: bool = False
    sealed_calls: str = "raise"  # what a call does that would compile after `seal()`: "raise" or "eager"
    refused_compiles: int = 0  # calls that ran in eager because of that
    refused_changes: set[str] = field(default_factory=set)  # what was logged about them
    in_service: bool = False  # `rs.optimize` has chosen this function: a compile from now on delays a request
    late_compiles: int = 0  # compiles since then
    compiled_calls: list[CallSignature] = field(default_factory=list)  # the calls that triggered a compile
    compiled_code: set[CodeType] = field(default_factory=set)  # the function, and its parts after graph breaks
    recompiles: int = 0  # the number of recompiles so far
    parameters: tuple[str, ...] = ()  # names of the function's parameters
    name: str = "function"
    compiles: int = 0  # compiles that produced code
    eager: list[EagerFallback] = field(default_factory=list)  # what runs in eager instead
    checked: bool = False  # whether it is known if the first call ran compiled code
    eager_only: bool = False  # all calls run in eager from now on
    fall_back_together: "list[CompileState]" = field(default_factory=list, repr=False)

    def time_left_s(self) -> float | None:
        """Return how long a compile that starts now may take; None without a limit."""
        if self.ends_at is None or self.in_service:
            return self.deadline_s
        left_s = max(_MIN_COMPILE_S, self.ends_at - time.perf_counter())
        return left_s if self.deadline_s is None else min(self.deadline_s, left_s)

    @property
    def findings(self) -> list[Finding]:
        """The requested values that were refused, as findings."""
        return [refusal_finding(intervention) for intervention in self.interventions]

    def report(self) -> CompileReport:
        """Return what was compiled and what runs in eager instead."""
        return CompileReport(
            name=self.name,
            compiles=self.compiles,
            recompiles=self.recompiles,
            eager=tuple(self.eager),
            interventions=self.interventions,
            refused_compiles=self.refused_compiles,
        )

    def run_in_eager(self, why: str) -> None:
        """Run all calls in eager from now on, also those of the functions that fall back together with this one."""
        for state in (self, *self.fall_back_together):
            state.eager_only = True
        self.eager.append(EagerFallback(function=self.name, why=why))

    def count(self, compile_: Compile, *, compiled: bool) -> None:
        """Count a compile that has ended."""
        self.compiles += compiled
        reason = "" if compiled else compile_.eager_reason
        if compile_.cancel_reason and not compile_.full_graph:
            self.run_in_eager(reason)
        elif reason:
            self.eager.append(EagerFallback(function=compile_.name, why=reason))
            _log.info("%s runs in eager: %s", compile_.name, reason)

    def seal(self, otherwise: str = "raise") -> None:
        """Forbid new compiles of this function. A call that would compile raises RecompileError, which describes what changed.

        With `otherwise="eager"` such a call runs in eager instead, and `report().refused_compiles` counts it.
        """
        if otherwise not in ("raise", "eager"):
            msg = f"seal(otherwise={otherwise!r}): use 'raise' or 'eager'"
            raise UsageError(msg)
        self.sealed, self.sealed_calls = True, otherwise

    def check(self, call: FrameType, compile_: Compile) -> None:
        """Count a compile; raise RecompileError if the function is sealed or `max_recompiles` is reached."""
        signature = signature_of(call.f_locals["args"], call.f_locals["kwargs"], self.parameters)
        is_recompile = compile_.code in self.compiled_code
        if self.sealed and self.sealed_calls == "eager" and not compile_.full_graph:
            change = self._change(signature)
            if change not in self.refused_changes and len(self.refused_changes) < _MAX_REFUSED_CHANGES:
                self.refused_changes.add(change)
                _log.warning(
                    "%s\n  this call and others with this change run in eager", self._error_message(signature, compile_)
                )
            self.refused_compiles += 1
            raise CompileCancelled
        if self.sealed or (is_recompile and self.max_recompiles is not None and self.recompiles >= self.max_recompiles):
            raise RecompileError(self._error_message(signature, compile_))
        if self.in_service:
            self._warn_about_late_compile(signature, compile_)
        self.compiled_code.add(compile_.code)
        self.recompiles += is_recompile
        if signature not in self.compiled_calls:
            self.compiled_calls.append(signature)

    def _warn_about_late_compile(self, signature: CallSignature, compile_: Compile) -> None:
        if not self.late_compiles:
            _log.warning(
                "%s compiles within this call, which differs from the examples of rs.optimize: %s\n"
                "  fix: pass such an example to rs.optimize, or .seal(otherwise='eager') to run such calls in eager",
                self.name if compile_.code.co_filename.startswith(_OWN_CODE) else compile_.name,
                self._change(signature),
            )
        self.late_compiles += 1

    def _change(self, signature: CallSignature) -> str:
        """Return what distinguishes a call from the nearest one that was compiled."""
        changed = differences(nearest(self.compiled_calls, signature), signature) if self.compiled_calls else []
        return "; ".join(changed) or "the state of the module or of torch has changed"

    def _error_message(self, signature: CallSignature, compile_: Compile) -> str:
        why = (
            "new compiles are forbidden since seal()"
            if self.sealed
            else f"max_recompiles={self.max_recompiles} is reached"
        )
        name, _, location = compile_.name.partition(" ")
        lines = [f"{name} would be compiled again, but {why}", f"  function: {location.strip('()')}"]
        if caller := user_location(compile_.stack):
            lines += _labelled_code_line("called at: ", caller, compile_.user_code.co_name)
        guards = failed_guards(compile_.code, compile_.frame.f_locals) if compile_.frame is not None else []
        for failed in guards[:_MAX_GUARDS_IN_MESSAGE]:
            lines.append(f"  failed Dynamo guard: {failed.guard}")
            if failed.location:
                lines += _labelled_code_line("needed by: ", failed.location)
        changed = differences(nearest(self.compiled_calls, signature), signature) if self.compiled_calls else []
        if changed:
            lines.append(f"  changed since the most similar compiled call: {'; '.join(changed)}")
        elif not guards and self.compiled_calls:
            lines.append("  no argument changed, so the state of the module or of torch must have changed")
        lines.append(f"  fix: {_fix(guards)}")
        lines.append(f"  or: {'call seal() later' if self.sealed else 'raise max_recompiles'}")
        return "\n".join(lines)


def _labelled_code_line(label: str, location: str, *names: str) -> list[str]:
    """Return a source line after a label, indented, with carets in a second line."""
    code_line, *caret_lines = read_code_line(location, *names).lines()
    return [f"  {label}{code_line}", *(" " * (len(label) + 2) + line for line in caret_lines)]


def _fix(guards: Sequence[FailedGuard]) -> str:
    """Return the catalogue's fix for the first failed guard."""
    if not guards:
        return "pad the input, or mark the changing dimension as dynamic"
    return next(cause.fix for cause in RECOMPILE_CAUSES if cause.matches("", guards[0].guard))


class _CompileListener:
    """Applies the state of the innermost function from `rs.compile` to every compile that runs inside it."""

    def on_start(self, compile_: Compile) -> AbstractContextManager[object]:
        call = _innermost_call(compile_.stack)
        if call is None:
            return nullcontext()
        state: CompileState = call.f_locals[_STATE_VARIABLE]
        compile_.owner = state
        if state.eager_only:  # another thread's compile was cancelled while this one waited for it
            raise CompileCancelled
        state.check(call, compile_)
        scope = ExitStack()
        scope.enter_context(settings_scope({d.id: d.value for d in _scoped_decisions(state.plan)}))
        if (limit_s := state.time_left_s()) is not None:
            scope.enter_context(deadline(compile_, limit_s))
        return scope

    def on_end(self, compile_: Compile, *, compiled: bool) -> None:
        """Count the compile; after a cancelled one, the function runs in eager."""
        if isinstance(compile_.owner, CompileState) and not compile_.code.co_filename.startswith(_OWN_CODE):
            compile_.owner.count(compile_, compiled=compiled)


_listener: Final = _CompileListener()
_remove_listener: list[Callable[[], None]] = []


def compile_with_plan(
    plan: Plan,
    model: Any,
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    deadline_s: float | None = None,
    ends_at: float | None = None,
    max_recompiles: int | None = None,
    trial: Trial | None = None,
    **kwargs: Any,
) -> Any:
    """Call `torch.compile` with the plan's options; the plan's other values are set during each compile of the function."""
    import torch

    arguments: dict[str, Any] = dict(kwargs)
    uses_inductor = kwargs.get("backend", "inductor") == "inductor"
    if (
        uses_inductor and mode is None and options is None
    ):  # a tuned plan may contain a mode; the caller's mode or options override it
        mode = _plan_argument(plan, "compile.mode", arguments)
    if (dynamic := _plan_argument(plan, "compile.dynamic", arguments)) is not None:
        arguments["dynamic"] = dynamic
    refused: Sequence[Intervention] = ()
    if uses_inductor:
        arguments["options"], refused = choose_options(plan, mode, options, dynamic=arguments.get("dynamic"))
    else:  # the plan has options of Inductor only
        arguments["mode"], arguments["options"] = mode, dict(options) if options else None
    for intervention in refused:
        _log.warning("%s", intervention)
    state = CompileState(
        plan=plan,
        options=dict(arguments["options"] or {}),
        interventions=tuple(refused),
        deadline_s=deadline_s,
        ends_at=ends_at,
        max_recompiles=max_recompiles,
        parameters=parameter_names(getattr(model, "forward", model)),
        name=getattr(model, "__qualname__", type(model).__qualname__),
    )
    remove_skip_marks()
    compiled = torch.compile(model, **arguments)
    return _attach_state(compiled, state, partial(trial, model, arguments) if trial else None, model)


def choose_options(
    plan: Plan, mode: str | None, options: Mapping[str, object] | None, *, dynamic: bool | None = None
) -> tuple[dict[str, object], Sequence[Intervention]]:
    """Return the options for `torch.compile`, and the refused values: the caller's values override the plan's, unless the plan insists."""
    decisions = {d.name: d for d in plan if d.channel is Channel.OPTION}
    from_mode = modes.mode_options(mode, dynamic=dynamic) if mode else {}
    passed = {name.replace("-", "_"): value for name, value in (options or {}).items()}
    requested = {**from_mode, **passed}
    # Dynamo reuses code that was compiled with equal options, so the scoped values are among them, too.
    scoped = {d.name: d.value for d in _scoped_decisions(plan) if d.owner is Owner.INDUCTOR and d.value}
    chosen: dict[str, object] = {**scoped, **{name: d.value for name, d in decisions.items()}}
    refused = []
    for name, value in requested.items():
        decision = decisions.get(name)
        if decision and decision.guard and decision.value != value:
            refused.append(_intervention(decision, value, f"options[{name!r}]" if name in passed else f"mode={mode!r}"))
        else:
            chosen[name] = value
    not_inductor = {"guard_filter_fn", "use_aoti"}  # torch.compile itself removes these from the options
    accepted = modes.accepted_options(set(chosen))
    return {name: value for name, value in chosen.items() if name in accepted | not_inductor or name in passed}, refused


def _plan_argument(plan: Plan, setting_id: str, passed: Mapping[str, Any]) -> Any:
    """Return the plan's value for an argument of torch.compile; None if the caller passed that argument."""
    decision = plan.get(setting_id)
    return decision.value if decision and decision.name not in passed else None


def _intervention(decision: Decision, requested: object, how: str) -> Intervention:
    location = user_location(sys._getframe(2))  # noqa: SLF001 - the caller's line
    return Intervention(
        setting=decision.id,
        requested=requested,
        used=decision.value,
        why=decision.why,
        how=how,
        location=location,
        source=source_line(location),
    )


def _scoped_decisions(plan: Plan) -> Iterator[Decision]:
    return (d for d in plan if d.channel is Channel.SCOPE)


def _attach_state(compiled: Any, state: CompileState, trial: Callable[..., str] | None, model: Any) -> Any:
    """Wrap the compiled function so that a compile can find the state: it is a local variable of the wrapper. This costs one Python call."""
    import torch

    if not _remove_listener:
        _remove_listener.append(add_compile_listener(_listener))
    if isinstance(compiled, torch.nn.Module):
        vars(compiled)["forward"] = _with_state(compiled.forward, model, state, trial)
        vars(compiled)["rocsolid"] = state
        return compiled
    wrapper = functools.wraps(compiled)(_with_state(compiled, model, state, trial))
    vars(wrapper)["rocsolid"] = state
    return wrapper


def _with_state(
    compiled: Callable[..., Any], model: Any, state: CompileState, trial: Callable[..., str] | None
) -> Callable[..., Any]:
    """Return a function that calls the compiled function, or the model in eager after a failure; the first call is checked."""
    from torch.compiler import is_compiling

    def call(
        *args: Any,
        __rocsolid_compiled__: CompileState = state,  # noqa: ARG001 - `_innermost_call` finds it in the frame
        **kwargs: Any,
    ) -> Any:
        if is_compiling() or state.checked or state.eager_only:  # Dynamo must not trace the check
            return (model if state.eager_only else compiled)(*args, **kwargs)
        if trial is not None and (failure := trial(args, kwargs)):
            _log.error("%s; the function runs in eager", failure)
            state.run_in_eager(failure)
            state.checked = True
            return model(*args, **kwargs)
        with CompiledRuns() as runs:
            result = compiled(*args, **kwargs)
        state.checked = True
        if runs.only_eager and not state.eager_only:
            if not state.eager:
                state.eager.append(EagerFallback(function=state.name, why=_NOTHING_COMPILED))
            _log.warning("%s: nothing was compiled, it runs in eager. %s", state.name, state.eager[-1].why)
        return result

    return call


def _innermost_call(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the innermost call of a function from `rs.compile` in a stack."""
    return next(
        (f for f in frames_up(frame) if f.f_code.co_name == "call" and _STATE_VARIABLE in f.f_code.co_varnames), None
    )
