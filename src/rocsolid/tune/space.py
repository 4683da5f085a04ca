"""The search space: what may be varied on this machine according to the catalogue, restricted by the user.

A variant is the set of choices that differ from the start. Choices without effect are left out, so that one variant has one name.
"""

import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from rocsolid.catalog.overrides import parse_value
from rocsolid.catalog.registry import all_settings, setting
from rocsolid.catalog.tuning import ONLY_FOR_CHANGING_SHAPES, REQUIRES_ANY
from rocsolid.errors import InputError, UnknownNameError, UsageError
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Severity
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Channel, Owner, Setting, Value
from rocsolid.torchapi.config.upstream import upstream

FORM, GRAPH = "form", "graph"  # not settings: how much is compiled, and whether the whole call is captured in a graph
FORMS: Final = ("compiled", "regional", "eager")
Choices = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One thing that may be varied; the start's value comes first."""

    id: str
    values: tuple[Value, ...]


@dataclass(frozen=True, kw_only=True)
class Restrictions:
    """How the user restricts the space, as text."""

    fixed: Mapping[str, str] = field(default_factory=dict)  # `--set id=value`: every variant has this value
    # `--vary id=a,b`: vary only these; without values, the catalogue's candidates are tried.
    vary: Mapping[str, Sequence[str]] = field(default_factory=dict)
    exclude: Sequence[str] = ()  # `--exclude id`: do not vary this


@dataclass(frozen=True, kw_only=True)
class Space:
    """Where the search starts, and what it may vary."""

    start: Plan
    knobs: tuple[Knob, ...]

    @property
    def size(self) -> int:
        """The number of combinations; there are fewer variants, because some choices have no effect."""
        return math.prod(len(knob.values) for knob in self.knobs)

    def knob(self, name: str) -> Knob | None:
        """The knob with that id."""
        return next((knob for knob in self.knobs if knob.id == name), None)

    def value(self, choices: Choices, name: str) -> Value:
        """The value that a variant has for a knob or a setting."""
        if name in choices:
            return choices[name]
        knob = self.knob(name)
        if knob is not None:
            return knob.values[0]
        decision = self.start.get(name)
        return decision.value if decision else None

    def variant(self, choices: Choices) -> dict[str, Value]:
        """The choices that differ from the start and have an effect, in the order of the knobs."""
        changed = {k.id: choices[k.id] for k in self.knobs if k.id in choices and choices[k.id] != k.values[0]}
        return {name: value for name, value in changed.items() if self._has_effect(name, changed)}

    def _has_effect(self, name: str, choices: Choices) -> bool:
        if name in (FORM, GRAPH):
            return True
        if not name.startswith("process.") and self.value(choices, FORM) == "eager":
            return False
        required = REQUIRES_ANY.get(name)
        return required is None or any(self.value(choices, other) == value for other, value in required)

    def contains(self, choices: Choices) -> bool:
        """Whether a variant from an earlier run belongs to this space, which may be smaller than it was then."""
        values = {knob.id: {str(value) for value in knob.values} for knob in self.knobs}
        return all(str(value) in values.get(name, ()) for name, value in choices.items())

    def all_variants(self) -> Iterator[dict[str, Value]]:
        """Every variant once, the start first."""
        seen = set()
        for values in itertools.product(*(knob.values for knob in self.knobs)):
            variant = self.variant({knob.id: value for knob, value in zip(self.knobs, values, strict=True)})
            if (name := variant_name(variant)) not in seen:
                seen.add(name)
                yield variant

    def plan(self, choices: Choices) -> Plan:
        """The start's plan with a variant's values in it."""
        decisions = {d.id: d for d in self.start}
        for name, value in choices.items():
            if name not in (FORM, GRAPH):
                decisions[name] = _decision(setting(name), value, "Tried by rocsolid tune.")
        return replace(self.start, decisions=tuple(decisions.values()))


def variant_name(choices: Choices) -> str:
    """The name of a variant, under which it is also stored: `inductor.freezing=True graph=False`."""
    return " ".join(f"{name}={value}" for name, value in choices.items()) or "start"


def build_space(
    plan: Plan, env: Environment, restrictions: Restrictions | None = None, *, on_device: bool | None = None
) -> Space:
    """The space for this machine; raises UsageError for an unknown name or value."""
    given = restrictions or Restrictions()
    for name in (*given.fixed, *given.vary, *given.exclude):
        if name not in (FORM, GRAPH):
            setting(name)  # raises for an unknown name, with near matches
    decisions = {d.id: d for d in plan}
    for name, text in given.fixed.items():
        if name not in (FORM, GRAPH):
            known = setting(name)
            decisions[known.id] = _decision(known, parse_value(known, name, text), "Set by the user of rocsolid tune.")
    start = replace(plan, decisions=tuple(decisions.values()))
    only = {_id(name): values for name, values in given.vary.items()}
    excluded = {_id(name) for name in (*given.exclude, *given.fixed)}
    knobs = []
    has_device = env.platform is not Platform.CPU if on_device is None else on_device
    for knob in (*_form_knobs(given, on_device=has_device), *_setting_knobs(start, env, only, on_device=has_device)):
        varied = (not only or knob.id in only) and knob.id not in excluded
        knobs.append(knob if varied else replace(knob, values=knob.values[:1]))
    return Space(start=start, knobs=tuple(k for k in knobs if len(k.values) > 1 or k.id in (FORM, GRAPH)))


def _form_knobs(given: Restrictions, *, on_device: bool) -> Iterator[Knob]:
    known: dict[str, tuple[Value, ...]] = {FORM: FORMS, GRAPH: (True, False) if on_device else (False,)}
    for name, values in known.items():
        wanted = given.vary.get(name) or ()
        used = [v for v in values if str(v).lower() in {w.lower() for w in wanted}] if wanted else list(values)
        fixed = given.fixed.get(name)
        if fixed is not None:
            used = [v for v in values if str(v).lower() == fixed.lower()]
        if not used:
            raise UnknownNameError(
                kind=f"value of {name}", name=str(fixed or wanted[0]), known=[str(v) for v in values]
            )
        yield Knob(id=name, values=tuple(used))


def _setting_knobs(
    plan: Plan, env: Environment, only: Mapping[str, Sequence[str]], *, on_device: bool
) -> Iterator[Knob]:
    for known in all_settings():
        named = known.id in only
        if not known.valid.holds(env) or known.no_effect or not (known.candidates or named):
            continue
        given = tuple(parse_value(known, known.id, text) for text in only.get(known.id, ()))
        if named and not (given or known.candidates):
            msg = f"the catalogue lists no values to try for {known.id}; name them: --vary {known.id}=A,B"
            raise UsageError(msg)
        if not named and not _worth_trying(known, on_device=on_device):
            continue
        first = _start_value(known, plan, env)
        values = [v for v in given or known.candidates if named or not _is_critical(known, v, env)]
        yield Knob(
            id=known.id, values=(first, *(v for v in dict.fromkeys(values) if v != first or type(v) is not type(first)))
        )


def _worth_trying(known: Setting, *, on_device: bool) -> bool:
    if known.id in ONLY_FOR_CHANGING_SHAPES:
        return False
    return on_device or not (known.owner is Owner.PROCESS or known.name.startswith("triton."))


def _is_critical(known: Setting, value: Value, env: Environment) -> bool:
    """Whether the value is known to hang, crash or give wrong results here. A value that is only known to be slow is tried."""
    hazard = known.hazard(value, env)
    return hazard is not None and hazard.severity is Severity.CRITICAL


def _start_value(known: Setting, plan: Plan, env: Environment) -> Value:
    decision = plan.get(known.id)
    if decision is not None:
        return decision.value
    if known.owner is Owner.PROCESS:
        return None  # not set
    release = upstream(env.torch_version)
    try:
        default: Any = release.default(known.id, hip=env.platform is Platform.ROCM) if release else known.candidates[0]
    except (KeyError, IndexError):
        default = known.candidates[0] if known.candidates else None
    value: Value = default
    return value


def _decision(known: Setting, value: Value, why: str) -> Decision:
    return Decision(id=known.id, value=value, channel=known.channel, why=why, profile="tune")


def _id(name: str) -> str:
    return name if name in (FORM, GRAPH) else setting(name).id


def process_variables(plan: Plan) -> tuple[dict[str, str], list[str]]:
    """The environment variables that a plan sets in a new process, and those that it unsets."""
    wanted = {d.name: d.value for d in plan if d.channel is Channel.PROCESS}
    given = {name: str(value) for name, value in wanted.items() if value is not None}
    return given, [name for name, value in wanted.items() if value is None]


def read_restrictions(file: Path) -> Restrictions:
    """Restrictions from a TOML file: a table `set`, a table `vary` of lists, and a list `exclude`."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"cannot read {file}: {getattr(error, 'strerror', None) or error}"
        raise InputError(msg) from error
    keys = ["set", "vary", "exclude"]
    unknown = set(data) - set(keys)
    if unknown:
        raise UnknownNameError(kind="key", where=str(file), name=min(unknown), known=keys)
    for name, kind in (("set", dict), ("vary", dict), ("exclude", list)):
        if not isinstance(data.get(name, kind()), kind):
            msg = f"{file}: `{name}` must be a {'table' if kind is dict else 'list of names'}, not {data[name]!r}"
            raise InputError(msg)
    vary = dict(_flatten(data.get("vary", {})))
    for name, values in vary.items():
        if not isinstance(values, list):
            msg = f"{file}: `vary.{name}` must be a list of values, not {values!r}"
            raise InputError(msg)
    return Restrictions(
        fixed={name: str(value) for name, value in _flatten(data.get("set", {}))},
        vary={name: [str(value) for value in values] for name, values in vary.items()},
        exclude=[str(name) for name in data.get("exclude", [])],
    )


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """TOML reads `inductor.freezing = true` as nested tables; here it is one name."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
