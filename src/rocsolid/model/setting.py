"""A setting: what it does, how it can be moved, what we advise, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from rocsolid.model.evidence import Evidence, Rank
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.release import EVERY_RELEASE, Span, span

if TYPE_CHECKING:  # `explain` and `settings` need no snapshot, and should not wait for its classes
    from rocsolid.model.environment import Environment

Value = bool | int | float | str | None


class Owner(Enum):
    """Who reads the setting; the first word of its id."""

    INDUCTOR = "inductor"
    DYNAMO = "dynamo"
    COMPILE = "compile"  # arguments of torch.compile
    PROCESS = "process"  # environment variables that libraries read at start


class Channel(Enum):
    """How a value reaches its reader."""

    OPTION = "option"  # rides on the compiled function: reaches every thread
    SCOPE = "scope"  # config set around the compiling call: this thread only
    ARGUMENT = "argument"  # an argument of torch.compile
    PROCESS = "process"  # environment of a new process, before torch is imported


_CHANNELS = {
    Owner.INDUCTOR: Channel.OPTION,
    Owner.DYNAMO: Channel.SCOPE,
    Owner.COMPILE: Channel.ARGUMENT,
    Owner.PROCESS: Channel.PROCESS,
}


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Where a statement holds. Empty means everywhere."""

    platforms: frozenset[Platform] = frozenset()
    torch: Span = EVERY_RELEASE
    rocm: Span = EVERY_RELEASE
    archs: tuple[str, ...] = ()  # prefixes: "gfx94" is every chip of that family

    def holds(self, env: "Environment") -> bool:
        """Whether the statement holds on this machine; what is not known counts as possible where it is a danger."""
        return (
            (not self.platforms or env.platform in self.platforms)
            and self.torch.holds(env.torch_version)
            and self.rocm.holds(env.rocm_version)
            and (not self.archs or any(d.arch.startswith(self.archs) for d in env.devices))
        )

    def __str__(self) -> str:
        rocm = "" if self.rocm == EVERY_RELEASE else f"ROCm {self.rocm}"
        platforms = sorted(p.label for p in self.platforms if not (rocm and p is Platform.ROCM))
        torch = "" if self.torch == EVERY_RELEASE else f"torch {self.torch}"
        said = [" and ".join(platforms), rocm, torch, ", ".join(self.archs)]
        return ", ".join(filter(None, said)) or "everywhere"


EVERYWHERE = Condition()


def on(*platforms: Platform, torch: str = "..", rocm: str = "..", archs: tuple[str, ...] = ()) -> Condition:
    """A condition as the catalogue writes it: `on(Platform.ROCM, rocm="7.2.0..7.2.3")`."""
    return Condition(platforms=frozenset(platforms), torch=span(torch), rocm=span(rocm), archs=archs)


@dataclass(frozen=True, kw_only=True)
class Variable:
    """The environment variable of a setting that also lives in Python."""

    name: str
    wins: bool = False  # True: beats any assignment. False: only moves the default, so Python wins
    on: str = "1"  # how "true" is spelled
    off: str = "0"
    presence: bool = False  # being set at all is what counts


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One value for one profile: the unit of advice."""

    profile: str
    value: Value
    why: str
    evidence: tuple[Evidence, ...]
    when: Condition = EVERYWHERE
    guard: bool = False  # the profile insists: a caller's own value does not win


@dataclass(frozen=True, kw_only=True)
class Hazard:
    """A value that hurts: where, how badly, and why."""

    value: Value
    severity: Severity
    why: str
    evidence: tuple[Evidence, ...]
    when: Condition = EVERYWHERE
    contains: bool = False  # the value need only occur in the setting's text

    def hurts(self, seen: object, env: "Environment") -> bool:
        """Whether the value seen is this hazard on this machine."""
        if not self.when.holds(env):
            return False
        return str(self.value) in str(seen) if self.contains else same(seen, self.value)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One knob, declared once; probe, guard, lint, tuner and docs all read this."""

    owner: Owner
    name: str  # as upstream spells it, dots and all
    kind: type
    summary: str  # what it does, not what to do
    choices: tuple[Choice, ...] = ()  # the first that holds wins, so special cases go first
    hazards: tuple[Hazard, ...] = ()  # likewise
    candidates: tuple[Value, ...] = ()  # what the tuner may try
    variable: Variable | None = None
    valid: Condition = EVERYWHERE  # where the setting exists
    via: Channel | None = None  # when it travels otherwise than its owner's settings do
    former_names: tuple[str, ...] = ()
    inert: str = ""  # why it has no effect, when it has none
    instead: str = ""  # what to do instead of a value that the guard refuses
    dispute: str = ""  # where guides contradict each other: what we take, and why
    notes: str = ""
    evidence: tuple[Evidence, ...] = ()  # for what the summary and the notes say

    def __post_init__(self) -> None:
        for value in self._values():
            if value is not None and not isinstance(value, self.kind):
                msg = f"{self.id}: {value!r} is no {self.kind.__name__}"
                raise TypeError(msg)
        for choice in self.choices:
            if all(e.rank is Rank.CLAIM for e in choice.evidence):
                msg = f"{self.id}: a claim alone never becomes a default ({choice.profile})"
                raise ValueError(msg)

    def _values(self) -> Iterator[Value]:
        yield from (choice.value for choice in self.choices)
        yield from (hazard.value for hazard in self.hazards if not hazard.contains)
        yield from self.candidates

    @property
    def id(self) -> str:
        """`owner.name`, by which everything else refers to the setting."""
        return f"{self.owner.value}.{self.name}"

    @property
    def channel(self) -> Channel:
        """How a value of this setting reaches its reader."""
        return self.via or _CHANNELS[self.owner]

    def choice(self, profile: str, env: "Environment") -> Choice | None:
        """What this one profile says here, leaving aside what it extends."""
        return next((c for c in self.choices if c.profile == profile and c.when.holds(env)), None)

    def hazard(self, seen: object, env: "Environment") -> Hazard | None:
        """The hazard that the value seen is on this machine, if it is one."""
        return next((h for h in self.hazards if h.hurts(seen, env)), None)


def same(seen: object, wanted: object) -> bool:
    """Equal in value and kind: True is not 1, because torch tells them apart."""
    return type(seen) is type(wanted) and seen == wanted


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A named intent, and the profile it builds on."""

    name: str
    intent: str
    extends: str = ""
