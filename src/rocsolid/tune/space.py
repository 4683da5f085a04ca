"""What may be varied: the catalogue's candidates for this machine, narrowed by the user.

A variant is what it chooses otherwise than the start does. Choices that have no effect beside the others are left out, so that
one variant has one name.
"""

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from rocsolid.catalog.overrides import parse_value
from rocsolid.catalog.registry import all_settings, setting
from rocsolid.errors import InputError, UnknownNameError, UsageError
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Severity
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Channel, Owner, Setting, Value
from rocsolid.torchapi.config.upstream import upstream

FORM, GRAPH = "form", "graph"  # what no setting says: how much is compiled, and whether the whole call is captured
FORMS: Final = ("compiled", "regional", "eager")
Choices = Mapping[str, Value]
# What has no effect on a call whose shapes never change is not worth a trial, unless it is asked for by name.
_FOR_CHANGING_SHAPES: Final = ("dynamo.recompile_limit", "dynamo.automatic_dynamic_shapes", "compile.dynamic")
_SEARCHING: Final = ("inductor.max_autotune", "inductor.max_autotune_gemm")
_OF_A_SEARCH: Final = (
    "inductor.max_autotune_gemm_backends",
    "inductor.max_autotune_gemm_search_space",
    "inductor.autotune_in_subproc",
    "inductor.use_experimental_benchmarker",
)


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One thing that may be varied; the start's value comes first."""

    id: str
    values: tuple[Value, ...]


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """What a user says about the space, as text."""

    fixed: Mapping[str, str] = field(default_factory=dict)  # `--set id=value`: part of every variant
    vary: Mapping[str, Sequence[str]] = field(
        default_factory=dict
    )  # `--vary id=a,b`: these and no others; empty: its candidates
    without: Sequence[str] = ()  # `--no id`


@dataclass(frozen=True, kw_only=True)
class Space:
    """Where the search begins, and where it may go."""

    start: Plan
    knobs: tuple[Knob, ...]

    def knob(self, name: str) -> Knob | None:
        """The knob of that id."""
        return next((knob for knob in self.knobs if knob.id == name), None)

    def value(self, choices: Choices, name: str) -> Value:
        """What a variant has for a knob or a setting."""
        if name in choices:
            return choices[name]
        knob = self.knob(name)
        if knob is not None:
            return knob.values[0]
        decision = self.start.get(name)
        return decision.value if decision else None

    def variant(self, choices: Choices) -> dict[str, Value]:
        """The choices that differ from the start and have an effect, in the order of the knobs."""
        moved = {k.id: choices[k.id] for k in self.knobs if k.id in choices and choices[k.id] != k.values[0]}
        return {name: value for name, value in moved.items() if self._matters(name, moved)}

    def _matters(self, name: str, choices: Choices) -> bool:
        if name in (FORM, GRAPH) or name.startswith("process."):
            needs_tunable = name == "process.PYTORCH_TUNABLEOP_TUNING"
            return not needs_tunable or self.value(choices, "process.PYTORCH_TUNABLEOP_ENABLED") == "1"
        if self.value(choices, FORM) == "eager":
            return False
        if name in _OF_A_SEARCH:
            searches = any(self.value(choices, search) is True for search in _SEARCHING)
            return searches or str(self.value(choices, "compile.mode")).startswith("max-autotune")
        return True

    def holds(self, choices: Choices) -> bool:
        """Whether a variant that was tried before belongs to this space, which may be narrower than it was then."""
        values = {knob.id: {str(value) for value in knob.values} for knob in self.knobs}
        return all(str(value) in values.get(name, ()) for name, value in choices.items())

    def every(self) -> Iterator[dict[str, Value]]:
        """Every variant once, the start first."""
        seen = set()
        for values in itertools.product(*(knob.values for knob in self.knobs)):
            variant = self.variant({knob.id: value for knob, value in zip(self.knobs, values, strict=True)})
            if (name := name_of(variant)) not in seen:
                seen.add(name)
                yield variant

    def plan(self, choices: Choices) -> Plan:
        """The start's plan with a variant's values in it."""
        decisions = {d.id: d for d in self.start}
        for name, value in choices.items():
            if name not in (FORM, GRAPH):
                decisions[name] = _decision(setting(name), value, "The tuner tries it.")
        return replace(self.start, decisions=tuple(decisions.values()))


def name_of(choices: Choices) -> str:
    """A variant's name, which is also how it is stored: `inductor.freezing=True graph=False`."""
    return " ".join(f"{name}={value}" for name, value in choices.items()) or "start"


def space_of(
    plan: Plan, env: Environment, narrowing: Narrowing | None = None, *, on_device: bool | None = None
) -> Space:
    """The space of this machine; raises UsageError for a name or a value that is none."""
    said = narrowing or Narrowing()
    for name in (*said.fixed, *said.vary, *said.without):
        if name not in (FORM, GRAPH):
            setting(name)  # a wrong name is said now, with its near matches
    decisions = {d.id: d for d in plan}
    for name, text in said.fixed.items():
        if name not in (FORM, GRAPH):
            known = setting(name)
            decisions[known.id] = _decision(known, parse_value(known, name, text), "Set for this study.")
    start = replace(plan, decisions=tuple(decisions.values()))
    only = {_id(name): values for name, values in said.vary.items()}
    left_out = {_id(name) for name in (*said.without, *said.fixed)}
    knobs = []
    found = env.platform is not Platform.CPU if on_device is None else on_device
    for knob in (*_forms(said, on_device=found), *_settings(start, env, only, on_device=found)):
        chosen = (not only or knob.id in only) and knob.id not in left_out
        knobs.append(knob if chosen else replace(knob, values=knob.values[:1]))
    return Space(start=start, knobs=tuple(k for k in knobs if len(k.values) > 1 or k.id in (FORM, GRAPH)))


def _forms(said: Narrowing, *, on_device: bool) -> Iterator[Knob]:
    known: dict[str, tuple[Value, ...]] = {FORM: FORMS, GRAPH: (True, False) if on_device else (False,)}
    for name, values in known.items():
        wanted = said.vary.get(name) or ()
        kept = [v for v in values if str(v).lower() in {w.lower() for w in wanted}] if wanted else list(values)
        first = said.fixed.get(name)
        if first is not None:
            kept = [v for v in values if str(v).lower() == first.lower()]
        if not kept:
            raise UnknownNameError(
                kind=f"value of {name}", name=str(first or wanted[0]), known=[str(v) for v in values]
            )
        yield Knob(id=name, values=tuple(kept))


def _settings(plan: Plan, env: Environment, only: Mapping[str, Sequence[str]], *, on_device: bool) -> Iterator[Knob]:
    for known in all_settings():
        named = known.id in only
        if not known.valid.holds(env) or known.inert or not (known.candidates or named):
            continue
        asked = tuple(parse_value(known, known.id, text) for text in only.get(known.id, ()))
        if named and not (asked or known.candidates):
            msg = f"{known.id} has no candidates of its own: say which values to try, as in --vary {known.id}=…"
            raise UsageError(msg)
        if not named and not _worth_trying(known, on_device=on_device):
            continue
        first = _start(known, plan, env)
        values = [v for v in asked or known.candidates if named or not _hurts(known, v, env)]
        yield Knob(
            id=known.id, values=(first, *(v for v in dict.fromkeys(values) if v != first or type(v) is not type(first)))
        )


def _worth_trying(known: Setting, *, on_device: bool) -> bool:
    if known.id in _FOR_CHANGING_SHAPES:
        return False
    return on_device or not (known.owner is Owner.PROCESS or known.name.startswith("triton."))


def _hurts(known: Setting, value: Value, env: Environment) -> bool:
    """Whether it is known to hang, crash or answer wrongly here; what is only known to be slow is tried."""
    hazard = known.hazard(value, env)
    return hazard is not None and hazard.severity is Severity.CRITICAL


def _start(known: Setting, plan: Plan, env: Environment) -> Value:
    decision = plan.get(known.id)
    if decision is not None:
        return decision.value
    if known.owner is Owner.PROCESS:
        return None  # not set
    release = upstream(env.torch_version)
    try:
        shipped: Any = release.default(known.id, hip=env.platform is Platform.ROCM) if release else known.candidates[0]
    except (KeyError, IndexError):
        shipped = known.candidates[0] if known.candidates else None
    value: Value = shipped
    return value


def _decision(known: Setting, value: Value, why: str) -> Decision:
    return Decision(id=known.id, value=value, channel=known.channel, why=why, profile="tune")


def _id(name: str) -> str:
    return name if name in (FORM, GRAPH) else setting(name).id


def variables_of(plan: Plan) -> tuple[dict[str, str], list[str]]:
    """What a plan wants in the environment of a new process, and what it wants out of it."""
    wanted = {d.name: d.value for d in plan if d.channel is Channel.PROCESS}
    given = {name: str(value) for name, value in wanted.items() if value is not None}
    return given, [name for name, value in wanted.items() if value is None]


def read_narrowing(file: Path) -> Narrowing:
    """A space as TOML: a table `set`, a table `vary` of lists, and a list `no`."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as broken:
        msg = f"cannot read {file}: {getattr(broken, 'strerror', None) or broken}"
        raise InputError(msg) from broken
    unknown = set(data) - {"set", "vary", "no"}
    if unknown:
        raise UnknownNameError(kind=f"table in {file}", name=min(unknown), known=["set", "vary", "no"])
    for name, kind in (("set", dict), ("vary", dict), ("no", list)):
        if not isinstance(data.get(name, kind()), kind):
            msg = f"{file}: {name} is a {'table' if kind is dict else 'list of names'}, and {data[name]!r} is none"
            raise InputError(msg)
    vary = dict(_flat(data.get("vary", {})))
    for name, values in vary.items():
        if not isinstance(values, list):
            msg = f"{file}: under vary, {name} takes a list of values, and {values!r} is none"
            raise InputError(msg)
    return Narrowing(
        fixed={name: str(value) for name, value in _flat(data.get("set", {}))},
        vary={name: [str(value) for value in values] for name, values in vary.items()},
        without=[str(name) for name in data.get("no", [])],
    )


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`inductor.freezing = true` is a table in a table for TOML; for us it is one name."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
