"""Makes every way into the compiler follow a plan, for as long as a block lasts or for the process."""

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final

from rocsolid.model.finding import Finding
from rocsolid.model.intervention import Intervention
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.setting import Channel
from rocsolid.rules.runtime.value_rejected_by_guard import RULE
from rocsolid.runtime.compile_deadline import deadline
from rocsolid.torchapi.config.pins import Attempt, Pins, pin
from rocsolid.torchapi.dynamo.compile_hooks import Compile, listen
from rocsolid.torchapi.graphs.capture_state import refuse_compiles_in_captures

_log = logging.getLogger("rocsolid")
_OFFERS: Final = {
    "inductor.triton.cudagraphs": "compile in the default mode, warm up, and capture the whole call in one torch.cuda.graph",
}


class Guard:
    """A plan that holds: as a context manager for a block, or with `keep()` for the process.

    What the plan insists on is pinned: no assignment, mode, option or annotation moves it, in any thread. What the plan only
    advises takes the place of the default. With no plan the guard changes nothing.
    """

    def __init__(self, plan: Plan | None, *, deadline_s: float | None = None, quiet: bool = False) -> None:
        self.plan = plan
        self.deadline_s = deadline_s
        self.quiet = quiet  # somebody else will tell what was changed
        self._interventions: list[Intervention] = []
        self._lock = threading.Lock()
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> "Guard":
        return self.keep()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def keep(self) -> "Guard":
        """Put the guard up until `undo`, or for the life of the process."""
        if self._undo:
            return self
        if self.plan is not None:
            decisions = _compiler_decisions(self.plan)
            pins = Pins(
                forced={d.id: d.value for d in decisions if d.guard},
                suggested={d.id: d.value for d in decisions if not d.guard},
                heard=self._heard,
            )
            self._undo.append(pin(pins))
            self._undo.append(refuse_compiles_in_captures())
        if self.deadline_s is not None:
            self._undo.append(listen(_Deadlines(self.deadline_s)))
        return self

    def undo(self) -> None:
        """Take the guard down; everything is as it was before it went up."""
        undos, self._undo = self._undo, []
        for undo in reversed(undos):
            undo()

    @property
    def up(self) -> bool:
        """Whether the guard changes anything now."""
        return bool(self._undo)

    @property
    def interventions(self) -> tuple[Intervention, ...]:
        """What was asked for and not given, each once, oldest first."""
        with self._lock:
            return tuple(self._interventions)

    @property
    def findings(self) -> list[Finding]:
        """The interventions as findings."""
        return [refusal(intervention) for intervention in self.interventions]

    def _heard(self, attempt: Attempt) -> None:
        decision = self.plan.get(attempt.setting) if self.plan else None
        if decision is None:
            return
        self.note(
            Intervention(
                setting=attempt.setting,
                asked=attempt.asked,
                got=decision.value,
                why=decision.why,
                how=attempt.how,
                place=attempt.place,
                thread=threading.current_thread().name,
            )
        )

    def note(self, intervention: Intervention) -> None:
        """Remember an intervention and say it once."""
        with self._lock:
            known = {(i.setting, i.asked, i.place, i.how) for i in self._interventions}
            if (intervention.setting, intervention.asked, intervention.place, intervention.how) in known:
                return
            self._interventions.append(intervention)
        if not self.quiet:
            _log.warning("%s", intervention)


class _Deadlines:
    """Gives every compile the same time."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s

    def begun(self, compile_: Compile) -> AbstractContextManager[object]:
        return deadline(compile_, self._limit_s)

    def ended(self, compile_: Compile, *, compiled: bool) -> None:
        """Nothing to do: the deadline has been left."""


def refusal(intervention: Intervention) -> Finding:
    """An intervention as a finding."""
    return RULE.found(
        intervention.setting,
        location=intervention.place,
        asked=repr(intervention.asked),
        got=repr(intervention.got),
        how=intervention.how,
        reason=intervention.why,
        fix=_OFFERS.get(intervention.setting, "leave the value to the profile, or check it on this machine first"),
    )


def _compiler_decisions(plan: Plan) -> list[Decision]:
    return [d for d in plan if d.channel in (Channel.OPTION, Channel.SCOPE)]
