"""What `rs.optimize` did to a program of another library, such as `model.generate(...)` of transformers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from rocsolid.model.notebook import NotebookResult


@dataclass(frozen=True, kw_only=True)
class ProgramPart:
    """One part of a program: optimized or left as it was, and why."""

    name: str
    optimized: bool
    detail: str
    counters: Mapping[str, int] = field(default_factory=dict, repr=False)  # of its graphs and its form, by metric

    def __str__(self) -> str:
        return f"{'optimized' if self.optimized else 'unchanged'}  {self.name}: {self.detail}"


@dataclass(frozen=True, kw_only=True)
class ProgramReport(NotebookResult):
    """The parts of a program that `rs.optimize` made faster, and those that it left alone, with reasons."""

    name: str
    parts: tuple[ProgramPart, ...]

    def counters(self) -> dict[str, int]:
        """Return the counters of all parts as flat numbers for a server's metrics, such as `rocsolid_replays_total{part="unet"}`."""
        found: Counter[str] = Counter()
        for part in self.parts:
            for metric, count in part.counters.items():
                name, _, labels = metric.rstrip("}").partition("{")
                found[f'{name}{{part="{part.name}"{"," if labels else ""}{labels}}}'] += count
        return dict(found)

    def __str__(self) -> str:
        return "\n".join((self.name, *(f"  {part}" for part in self.parts)))
