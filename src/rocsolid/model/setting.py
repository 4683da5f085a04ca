"""A setting: what it does, how it is set, which value is recommended, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from rocsolid.model.evidence import Evidence, Rank
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.release import EVERY_RELEASE, Span, span

if TYPE_CHECKING:  # `explain` and `settings` need no Environment and start faster without it
    from rocsolid.model.environment import Environment

Value = bool | int | float | str | None


class Owner(Enum):
    """The component that reads a setting; the first word of the setting's id."""

    INDUCTOR = "inductor"
    DYNAMO = "dynamo"
    COMPILE = "compile"  # arguments of torch.compile
    PROCESS = "process"  # environment variables that libraries read when they are loaded


class Channel(Enum):
    """How rocsolid sets the value of a setting."""

    OPTION = "option"  # an option of the compiled function: takes effect in every thread
    SCOPE = "scope"  # config set for the duration of the call that compiles: this thread only
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
    """The platforms, versions and chips for which a statement holds. An empty condition always holds."""

    platforms: frozenset[Platform] = frozenset()
    torch: Span = EVERY_RELEASE
    rocm: Span = EVERY_RELEASE
    archs: tuple[str, ...] = ()  # prefixes: "gfx94" matches every chip of that family

    def holds(self, env: "Environment") -> bool:
        """Whether the statement holds on this machine; with an unknown version it holds."""
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
        parts = [" and ".join(platforms), rocm, torch, ", ".join(self.archs)]
        return ", ".join(filter(None, parts)) or "all platforms"


EVERYWHERE = Condition()


def on(*platforms: Platform, torch: str = "..", rocm: str = "..", archs: tuple[str, ...] = ()) -> Condition:
    """Short form of `Condition` for the catalogue: `on(Platform.ROCM, rocm="7.2.0..7.2.3")`."""
    return Condition(platforms=frozenset(platforms), torch=span(torch), rocm=span(rocm), archs=archs)


@dataclass(frozen=True, kw_only=True)
class Variable:
    """The environment variable of a setting that can also be set in Python."""

    name: str
    overrides_config: bool = (
        False  # True: overrides any assignment. False: only changes the default; an assignment overrides it
    )
    on: str = "1"  # the text that means true
    off: str = "0"
    any_value_enables: bool = False  # any non-empty value means true, even "0"
    torch: Span = EVERY_RELEASE  # the releases that read it, of those that have the setting


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The value that one profile recommends for a setting, with its reason."""

    profile: str
    value: Value
    why: str
    evidence: tuple[Evidence, ...]
    when: Condition = EVERYWHERE
    guard: bool = False  # enforced: rs.guard replaces the caller's own value


@dataclass(frozen=True, kw_only=True)
class Hazard:
    """A harmful value: where it is harmful, how badly, and why."""

    value: Value
    severity: Severity
    why: str
    evidence: tuple[Evidence, ...]
    when: Condition = EVERYWHERE
    contains: bool = False  # True: harmful if the text of the setting contains the value
    check: str = ""  # the check of `rocsolid prove`, if it does not follow from the evidence
    undecidable: str = ""  # why no program decides whether the value does this

    def applies(self, value: object, env: "Environment") -> bool:
        """Whether this value is harmful on this machine."""
        if not self.when.holds(env):
            return False
        return str(self.value) in str(value) if self.contains else same(value, self.value)


class Needs(Enum):
    """What `rs.optimize` must find in a model or be allowed, so that it tries a candidate."""

    NO_GRADIENTS = "inference: no gradients"
    CONSTANT_WEIGHTS = "freeze=True, and no gradients"
    CONVOLUTIONS = "convolutions"
    LOWER_PRECISION = "a limit= that allows bfloat16, on a CPU that computes in it"
    CUDNN_ATTENTION = "attention of cuDNN not switched off"
    AITER = "AITER installed, and no gradients"
    BUDGET = "budget_s=, and no gradients"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A value that `rs.optimize` tries with the fastest compiled form."""

    id: str  # of a setting; or of something that only rs.optimize can switch on, such as a graph pass
    value: Value
    effect: str  # what it does
    when: Condition = EVERYWHERE
    needs: Needs | None = None
    setup_factor: float = (
        1.0  # how much longer the set-up may take with it: an estimate, which only decides what is skipped
    )
    setup_s: float = 0.0  # so many seconds in addition
    joint: bool = False  # tried first, with all others of these
    suspect: bool = False  # slower for some models: one of the others that were kept is tried without it
    also: tuple[
        tuple[str, Value], ...
    ] = ()  # other settings, by id, that are set together with it where torch has them


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting, declared once; probe, guard, lint, tuner and docs all read this declaration."""

    owner: Owner
    name: str  # as upstream spells it, including dots
    value_type: type
    summary: str  # what the setting does; advice belongs in `recommendations`
    recommendations: tuple[Recommendation, ...] = ()  # the first that applies is used, so put special cases first
    hazards: tuple[Hazard, ...] = ()  # the first that applies is used
    candidates: tuple[Value, ...] = ()  # values that the tuner tries
    variable: Variable | None = None
    valid: Condition = EVERYWHERE  # the platforms and versions that have the setting
    via: Channel | None = None  # set if it differs from the channel of the owner
    former_names: tuple[str, ...] = ()
    names_file: bool = False  # the value names something to load: a plan file may only choose a value of the catalogue
    elsewhere: str = ""  # what to set instead where `valid` does not hold
    no_effect: str = ""  # why the setting has no effect; empty if it has one
    instead: str = ""  # what to use instead of a value that the guard forbids
    disagreement: str = ""  # if guides contradict each other: what we recommend, and why
    notes: str = ""
    evidence: tuple[Evidence, ...] = ()  # for the summary and the notes

    def __post_init__(self) -> None:
        for value in self._values():
            if value is not None and not isinstance(value, self.value_type):
                msg = f"{self.id}: {value!r} is not of type {self.value_type.__name__}"
                raise TypeError(msg)
        for advice in self.recommendations:
            if all(e.rank is Rank.CLAIM for e in advice.evidence):
                msg = f"{self.id}: a recommendation needs evidence stronger than a claim (profile {advice.profile})"
                raise ValueError(msg)

    def _values(self) -> Iterator[Value]:
        yield from (advice.value for advice in self.recommendations)
        yield from (hazard.value for hazard in self.hazards if not hazard.contains)
        yield from self.candidates

    @property
    def id(self) -> str:
        """`owner.name`, for example `inductor.max_autotune`."""
        return f"{self.owner.value}.{self.name}"

    @property
    def channel(self) -> Channel:
        """How rocsolid sets a value of this setting."""
        return self.via or _CHANNELS[self.owner]

    def recommendation(self, profile: str, env: "Environment") -> Recommendation | None:
        """What this profile itself recommends on this machine; profiles that it extends are not included."""
        return next((r for r in self.recommendations if r.profile == profile and r.when.holds(env)), None)

    def hazard(self, value: object, env: "Environment") -> Hazard | None:
        """The hazard that applies to this value on this machine, or None."""
        return next((h for h in self.hazards if self.valid.holds(env) and h.applies(value, env)), None)


def same(value: object, expected: object) -> bool:
    """Equal in value and type: True is not 1, because torch distinguishes them."""
    return type(value) is type(expected) and value == expected


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A named set of values, and the profile it extends."""

    name: str
    intent: str
    extends: str = ""
