"""A captured function that meets the rules of a runtime which is not there."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rocsolid.model.capture_report import CaptureReport
from rocsolid.model.capture_rule import Runtime
from rocsolid.runtime.capture.captured import Captured, Inputs
from rocsolid.runtime.capture.playing import playing


class Played(Captured):
    """What `rs.capture` returns where `plays=` names a runtime."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call as the function would on that runtime."""
        with playing(self._runtime):
            return super().__call__(*args, **kwargs)

    def warm(self, calls: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> None:
        """Capture these calls ahead."""
        with playing(self._runtime):
            super().warm(calls)

    def inputs(self, *args: Any, **kwargs: Any) -> Inputs:
        """The graph's own buffers for a call like this."""
        with playing(self._runtime):
            return super().inputs(*args, **kwargs)

    def report(self) -> CaptureReport:
        """As that of any captured function; whose rules were played is said beside the backend."""
        told = super().report()
        return replace(told, backend=f"{told.backend}, plays {self._runtime.label}")

    @property
    def _runtime(self) -> Runtime:
        return Runtime(self._options.plays)
