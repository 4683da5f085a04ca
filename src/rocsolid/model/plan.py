"""The plan: the values that a profile chooses for one machine, each with its reason."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rocsolid.model.codec import decode, encode, read_text
from rocsolid.model.evidence import Evidence
from rocsolid.model.notebook import NotebookResult
from rocsolid.model.plan_toml import from_toml, to_toml
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Channel, Owner, Value

_MAX_FILE_BYTES = 16 << 20  # most of it TunableOp results


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One value of a plan."""

    id: str
    value: Value
    channel: Channel
    why: str
    profile: str  # the profile that chose the value: profiles extend each other
    guard: bool = False
    evidence: tuple[Evidence, ...] = ()

    @property
    def owner(self) -> Owner:
        """The config module, or `compile` or `process`, that the setting belongs to."""
        return Owner(self.id.partition(".")[0])

    @property
    def name(self) -> str:
        """The setting's name without its owner."""
        return self.id.partition(".")[2]


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What `rocsolid tune` measured for a plan: the fastest form, its speedup, the device and the versions."""

    workload: str
    form: str  # the id of a `Form`: compiled, regional or eager
    graph: bool  # whether the whole call is captured
    speedup: float  # compared with the plan that the study started from; `low` and `high` are its confidence interval
    low: float
    high: float
    verdict: str
    noise: float
    checked: str
    device: str
    arch: str  # gfx942, sm_90
    python: str
    date: str
    tunableop: str = ""  # contents of TunableOp's results file, if it is part of the plan


@dataclass(frozen=True, kw_only=True)
class Plan(NotebookResult):
    """A list of decisions for one platform and torch version. Iterating yields the decisions."""

    profile: str
    platform: Platform
    torch: str  # the torch version that it was made for
    decisions: tuple[Decision, ...]
    tuned: Tuned | None = None

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.decisions)

    def __len__(self) -> int:
        return len(self.decisions)

    def get(self, setting_id: str) -> Decision | None:
        """Return the decision for one setting; None if the plan has none."""
        return next((d for d in self.decisions if d.id == setting_id), None)

    def with_decisions(self, decisions: Iterable[Decision]) -> "Plan":
        """Return the plan with these decisions; they replace those for the same settings."""
        return replace(self, decisions=tuple({d.id: d for d in (*self, *decisions)}.values()))

    def save(self, file: str | Path) -> None:
        """Write the plan as TOML."""
        Path(file).write_text(to_toml(encode(self)), encoding="utf-8")

    @classmethod
    def load(cls, file: str | Path) -> "Plan":
        """Read a plan from a TOML file; raises InputError if the file is not a plan.

        Whether the plan fits this machine is checked when it is used: `rs.apply`, `rs.compile` and `rocsolid run` refuse a plan
        that was made for another platform, unless `ignore_platform` (`--ignore-platform`) is set.
        """
        text = read_text(file, max_bytes=_MAX_FILE_BYTES)
        return decode(cls, from_toml(text, str(file)), str(file))

    def __str__(self) -> str:
        width = max((len(f"{d.id} = {d.value!r}") for d in self), default=0)
        head = f"profile {self.profile} for torch {self.torch or '(none)'} on {self.platform.label}"
        rows = [f"  {f'{d.id} = {d.value!r}':<{width}}  {d.why}" for d in self]
        return "\n".join([head, *rows])
