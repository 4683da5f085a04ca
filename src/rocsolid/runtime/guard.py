"""Enforces a plan for every compile, however it is started, for a block or for the process."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import CodeType, TracebackType

from rocsolid.catalog import registry
from rocsolid.model.compile_report import CompileReport, EagerFallback
from rocsolid.model.finding import Finding
from rocsolid.model.intervention import Intervention
from rocsolid.model.log import log as _log
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.setting import Channel
from rocsolid.rules.runtime.value_rejected_by_guard import RULE
from rocsolid.runtime.compile_deadline import deadline
from rocsolid.torchapi.config.pins import Attempt, Pins, pin
from rocsolid.torchapi.dynamo.compile_hooks import Compile, add_compile_listener, remove_skip_marks
from rocsolid.torchapi.graphs.capture_state import refuse_compiles_in_captures
from rocsolid.torchapi.user_frames import read_code_line


class Guard:
    """Enforces a plan: as a context manager for a block, or with `keep()` for the process.

    Values that the plan insists on are pinned: no assignment, mode, option or annotation changes them, in any thread. Values that
    the plan only suggests replace the defaults. Without a plan the guard changes nothing.
    """

    def __init__(self, plan: Plan | None, *, deadline_s: float | None = None, quiet: bool = False) -> None:
        self.plan = plan
        self.deadline_s = deadline_s
        self.quiet = quiet  # do not log interventions: the caller reports them
        self._interventions: list[Intervention] = []
        self._listener = _CompileListener(deadline_s)
        self._lock = threading.Lock()
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> "Guard":
        return self.keep()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def keep(self) -> "Guard":
        """Activate the guard until `undo` or until the process ends."""
        if self._undo:
            return self
        if self.plan is not None:
            decisions = _compiler_decisions(self.plan)
            pins = Pins(
                forced={d.id: d.value for d in decisions if d.guard},
                suggested={d.id: d.value for d in decisions if not d.guard},
                on_refused=self._on_refused,
            )
            self._undo.append(pin(pins))
            self._undo.append(refuse_compiles_in_captures())
        self._undo += [remove_skip_marks, add_compile_listener(self._listener)]
        return self

    def undo(self) -> None:
        """Deactivate the guard and restore the previous values. Functions whose compile was cancelled are compiled again."""
        undos, self._undo = self._undo, []
        for undo in reversed(undos):
            undo()

    @property
    def active(self) -> bool:
        """Whether the guard enforces values or a deadline now."""
        return bool(self._undo) and (self.plan is not None or self.deadline_s is not None)

    @property
    def interventions(self) -> tuple[Intervention, ...]:
        """The refused values, each once, oldest first."""
        with self._lock:
            return tuple(self._interventions)

    def __repr__(self) -> str:
        return f"<Guard {'active' if self.active else 'not active'}: {str(self.report()).partition(chr(10))[0]}>"

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def report(self) -> CompileReport:
        """Return the compiles while the guard was active, what runs in eager instead, and the refused values."""
        seen = self._listener
        return CompileReport(
            name="guard",
            compiles=seen.compiles,
            recompiles=seen.compiles - len(seen.compiled_code),
            eager=tuple(seen.eager),
            interventions=self.interventions,
        )

    @property
    def findings(self) -> list[Finding]:
        """The interventions as findings."""
        return [refusal_finding(intervention) for intervention in self.interventions]

    def _on_refused(self, attempt: Attempt) -> None:
        decision = self.plan.get(attempt.setting) if self.plan else None
        if decision is None:
            return
        self.record(
            Intervention(
                setting=attempt.setting,
                requested=attempt.requested,
                used=decision.value,
                why=decision.why,
                how=attempt.how,
                location=attempt.location,
                source=source_line(attempt.location),
                thread=threading.current_thread().name,
            )
        )

    def record(self, intervention: Intervention) -> None:
        """Store an intervention and log it, once."""
        with self._lock:
            if _identity(intervention) in map(_identity, self._interventions):
                return
            self._interventions.append(intervention)
        if not self.quiet:
            _log.warning("%s", intervention)


class _CompileListener:
    """Gives every compile the same deadline, and counts what was compiled and what runs in eager instead."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self.compiles = 0
        self.compiled_code: set[CodeType] = set()
        self.eager: list[EagerFallback] = []

    def on_start(self, compile_: Compile) -> AbstractContextManager[object]:
        return nullcontext() if self._limit_s is None else deadline(compile_, self._limit_s)

    def on_end(self, compile_: Compile, *, compiled: bool) -> None:
        """Count the compile."""
        if compiled:
            self.compiles += 1
            self.compiled_code.add(compile_.code)
        elif reason := compile_.eager_reason:
            shared = (
                "; so do other functions with this code" if compile_.cancel_reason and compile_.owner is None else ""
            )
            self.eager.append(EagerFallback(function=compile_.name, why=reason + shared))


def refusal_finding(intervention: Intervention) -> Finding:
    """Convert an intervention to a finding, with the fix from the catalogue."""
    setting = registry.find(intervention.setting)
    return RULE.found(
        intervention.setting,
        location=intervention.location,
        requested=repr(intervention.requested),
        used=repr(intervention.used),
        how=intervention.how,
        reason=intervention.why,
        fix=(setting.instead if setting else "") or "remove this value, or test it on this machine first",
    )


def source_line(location: str) -> str:
    """Return the source text at `file:line`; empty if it cannot be read."""
    return read_code_line(location).text


def _identity(intervention: Intervention) -> tuple[str, object, str, str]:
    return intervention.setting, intervention.requested, intervention.location, intervention.how


def _compiler_decisions(plan: Plan) -> list[Decision]:
    return [d for d in plan if d.channel in (Channel.OPTION, Channel.SCOPE)]
