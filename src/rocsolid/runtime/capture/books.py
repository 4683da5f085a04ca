"""What a captured function counts and remembers, for its report, for a server's metrics and for its alarm."""

import logging
from collections import Counter
from collections.abc import Hashable
from typing import Final

from rocsolid.model.capture_report import CaptureReport, Reason, Refusal
from rocsolid.runtime.capture.call import Call, CannotCapture
from rocsolid.runtime.capture.store import Store

_log = logging.getLogger("rocsolid")
_MANY_EAGER: Final = 100
_KEPT_TEXTS: Final = 20
_QUIET: Final = (Reason.FIRST_CALL, Reason.NO_DEVICE)


class Books:
    """Counters and refusals of one function."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._eager: Counter[Reason] = Counter()
        self._refused: dict[Hashable, Refusal] = {}
        self._said: set[str] = set()
        self._thrown_away: list[str] = []
        self._alarm = ""
        self.past_hits = 0  # of graphs that are gone
        self.captures = 0
        self.checks = 0
        self.check_failures = 0

    def eager_call(self, reason: Reason, replays: int) -> None:
        """Count a call that no graph answered; raise the alarm when most calls are such."""
        self._eager[reason] += 1
        count = sum(n for why, n in self._eager.items() if why not in _QUIET)
        if not self._alarm and count >= _MANY_EAGER and count > replays:
            why = ", ".join(f"{reason.value} ({times})" for reason, times in self._eager.most_common())
            self._alarm = f"most calls of {self._name} run eagerly: {why}"
            _log.warning("%s", self._alarm)

    def refuse(self, call: Call | None, why: CannotCapture, *, runs_eagerly: bool) -> None:
        """Remember that a call cannot be captured; that it runs eagerly is said once."""
        if why.reason in (Reason.WRONG_RESULT, Reason.PADDING):
            self.check_failures += 1
        key: Hashable = why.detail if call is None else call.key
        parts = {} if call is None else call.signature.parts
        self._refused[key] = Refusal(key=parts, reason=why.reason, detail=why.detail, place=why.place)
        if runs_eagerly and why.detail not in self._said:
            self._said.add(why.detail)
            _log.warning("%s runs eagerly: %s", self._name, why.detail)

    def refusal(self, call: Call) -> Refusal | None:
        """Why this call is not captured, when that was tried before."""
        return self._refused.get(call.key)

    def threw_away(self, why: str) -> None:
        """Remember why a graph is no more."""
        self._thrown_away = [*self._thrown_away, why][-_KEPT_TEXTS:]

    def forget_refusals(self) -> None:
        """Let everything be tried again."""
        self._refused.clear()

    def report(self, store: Store, backend: str, *, frozen: bool) -> CaptureReport:
        """All of it."""
        return CaptureReport(
            name=self._name,
            backend=backend,
            graphs=tuple(entry.record() for entry in store),
            refusals=tuple(self._refused.values()),
            invalidated=tuple(self._thrown_away),
            replays=self.past_hits + sum(entry.hits for entry in store),
            eager_calls={reason.value: times for reason, times in self._eager.items()},
            captures=self.captures,
            evictions=store.evictions,
            checks=self.checks,
            check_failures=self.check_failures,
            bytes=store.bytes,
            frozen=frozen,
            alarm=self._alarm,
        )
