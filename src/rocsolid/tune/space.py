"""The search space: the forms and settings that may be varied on this machine, and their values.

They come from the catalogue; the user can restrict them. A variant is the set of choices that differ from the baseline, which is
where the search starts. Choices without effect are left out, so that one variant has one name.
"""

import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from rocsolid.catalog.overrides import parse_value
from rocsolid.catalog.registry import all_settings, setting
from rocsolid.catalog.tuning import CPU_THREADS, ONLY_FOR_CHANGING_SHAPES, REQUIRES_ANY
from rocsolid.errors import InputError, UnknownNameError, UsageError
from rocsolid.model.codec import parse_toml, read_text
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Severity
from rocsolid.model.form import Form
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Channel, Owner, Setting, Value
from rocsolid.torchapi.config.upstream import upstream

# Two names besides those of settings: how much is compiled, and whether the whole call is captured in a graph.
FORM, GRAPH = "form", "graph"
FORMS: Final = (Form.COMPILED.id, Form.REGIONAL.id, Form.EAGER.id)
BASELINE: Final = "baseline"  # the name of the variant without changes
Choices = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Knob:
    """A form or setting that may be varied, with its values; the value of the baseline comes first."""

    id: str
    values: tuple[Value, ...]


@dataclass(frozen=True, kw_only=True)
class Restrictions:
    """How the user restricts the space; values are text, as on the command line."""

    fixed: Mapping[str, str] = field(default_factory=dict)  # `--set id=value`: every variant has this value
    # `--vary id=a,b`: vary only what is named here. Without values, the catalogue's candidates are tried.
    vary: Mapping[str, Sequence[str]] = field(default_factory=dict)
    exclude: Sequence[str] = ()  # `--exclude id`: do not vary this


@dataclass(frozen=True, kw_only=True)
class Space:
    """The plan of the baseline, and what the search may vary."""

    baseline_plan: Plan
    knobs: tuple[Knob, ...]

    @property
    def size(self) -> int:
        """The number of combinations. There may be fewer variants, because some choices have no effect."""
        return math.prod(len(knob.values) for knob in self.knobs)

    def knob(self, name: str) -> Knob | None:
        """Return the knob with that id, or None."""
        return next((knob for knob in self.knobs if knob.id == name), None)

    def value(self, choices: Choices, name: str) -> Value:
        """Return the value of a form or setting in a variant."""
        if name in choices:
            return choices[name]
        knob = self.knob(name)
        if knob is not None:
            return knob.values[0]
        decision = self.baseline_plan.get(name)
        return decision.value if decision else None

    def variant(self, choices: Choices) -> dict[str, Value]:
        """Return only the choices that differ from the baseline and have an effect, in the order of the knobs."""
        changed = {k.id: choices[k.id] for k in self.knobs if k.id in choices and choices[k.id] != k.values[0]}
        return {name: value for name, value in changed.items() if self._has_effect(name, changed)}

    def _has_effect(self, name: str, choices: Choices) -> bool:
        if name in (FORM, GRAPH):
            return True
        if not name.startswith("process.") and self.value(choices, FORM) == Form.EAGER.id:
            return False
        required = REQUIRES_ANY.get(name)
        return required is None or any(self.value(choices, other) == value for other, value in required)

    def contains(self, choices: Choices) -> bool:
        """Whether a variant from an earlier run belongs to this space, which may be smaller than it was then."""
        values = {knob.id: {str(value) for value in knob.values} for knob in self.knobs}
        return all(str(value) in values.get(name, ()) for name, value in choices.items())

    def all_variants(self) -> Iterator[dict[str, Value]]:
        """Yield every variant once, the baseline first."""
        seen = set()
        for values in itertools.product(*(knob.values for knob in self.knobs)):
            variant = self.variant({knob.id: value for knob, value in zip(self.knobs, values, strict=True)})
            if (name := variant_name(variant)) not in seen:
                seen.add(name)
                yield variant

    def plan(self, choices: Choices) -> Plan:
        """The start's plan with a variant's values in it."""
        tried = ((name, value) for name, value in choices.items() if name not in (FORM, GRAPH))
        why = "Tried by rocsolid tune."
        return self.baseline_plan.with_decisions(_decision(setting(name), value, why) for name, value in tried)


def variant_name(choices: Choices) -> str:
    """Return the name of a variant, such as `inductor.freezing=True graph=False`; trials are stored under it."""
    return " ".join(f"{name}={value}" for name, value in choices.items()) or BASELINE


def build_space(
    plan: Plan, env: Environment, restrictions: Restrictions | None = None, *, on_device: bool | None = None
) -> Space:
    """Return the space for this machine; raises UsageError for an unknown name or value."""
    restrictions = restrictions or Restrictions()
    for name in (*restrictions.fixed, *restrictions.vary, *restrictions.exclude):
        if name not in (FORM, GRAPH):
            setting(name)  # raises for an unknown name, with near matches
    decisions = {d.id: d for d in plan}
    for name, text in restrictions.fixed.items():
        if name not in (FORM, GRAPH):
            known = setting(name)
            decisions[known.id] = _decision(known, parse_value(known, name, text), "Set by the user of rocsolid tune.")
    baseline_plan = replace(plan, decisions=tuple(decisions.values()))
    vary = {_id(name): values for name, values in restrictions.vary.items()}
    excluded = {_id(name) for name in (*restrictions.exclude, *restrictions.fixed)}
    knobs = []
    has_device = env.platform is not Platform.CPU if on_device is None else on_device
    form_knobs = _form_knobs(restrictions, on_device=has_device)
    for knob in (*form_knobs, *_setting_knobs(baseline_plan, env, vary, on_device=has_device)):
        is_varied = (not vary or knob.id in vary) and knob.id not in excluded
        knobs.append(knob if is_varied else replace(knob, values=knob.values[:1]))
    return Space(
        baseline_plan=baseline_plan, knobs=tuple(k for k in knobs if len(k.values) > 1 or k.id in (FORM, GRAPH))
    )


def _form_knobs(restrictions: Restrictions, *, on_device: bool) -> Iterator[Knob]:
    all_values: dict[str, tuple[Value, ...]] = {FORM: FORMS, GRAPH: (True, False) if on_device else (False,)}
    for name, values in all_values.items():
        fixed = restrictions.fixed.get(name)
        requested = list(restrictions.vary.get(name) or ()) if fixed is None else [fixed]
        if requested:
            selected = [v for v in values if str(v).lower() in {text.lower() for text in requested}]
        else:
            selected = list(values)
        if not selected:
            raise UnknownNameError(kind=name, name=requested[0], known=[str(v) for v in values], is_argument=True)
        yield Knob(id=name, values=tuple(selected))


def _setting_knobs(
    plan: Plan, env: Environment, vary: Mapping[str, Sequence[str]], *, on_device: bool
) -> Iterator[Knob]:
    for known in all_settings():
        named = known.id in vary
        if not known.valid.holds(env) or known.no_effect or not (known.candidates or named):
            continue
        given = tuple(parse_value(known, known.id, text) for text in vary.get(known.id, ()))
        if named and not (given or known.candidates):
            msg = f"the catalogue lists no values to try for {known.id}; name the values: --vary {known.id}=A,B"
            raise UsageError(msg)
        if not named and not _worth_trying(known, on_device=on_device):
            continue
        baseline_value = _baseline_value(known, plan, env)
        values = [v for v in given or known.candidates if named or not _is_critical(known, v, env)]
        if known.id in CPU_THREADS and not named:
            values = [v for v in values if int(str(v)) <= (os.cpu_count() or 1)]
        yield Knob(
            id=known.id,
            values=(
                baseline_value,
                *(v for v in dict.fromkeys(values) if v != baseline_value or type(v) is not type(baseline_value)),
            ),
        )


def _worth_trying(known: Setting, *, on_device: bool) -> bool:
    if known.id in ONLY_FOR_CHANGING_SHAPES:
        return False
    if known.id in CPU_THREADS:
        return not on_device
    return on_device or not (known.owner is Owner.PROCESS or known.name.startswith("triton."))


def _is_critical(known: Setting, value: Value, env: Environment) -> bool:
    """Whether the value is known to hang, crash or give wrong results on this machine. Values that are only slow are tried."""
    hazard = known.hazard(value, env)
    return hazard is not None and hazard.severity is Severity.CRITICAL


def _baseline_value(known: Setting, plan: Plan, env: Environment) -> Value:
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
    """Return the environment variables that a plan sets in a new process, and the names of those that it unsets."""
    variables = {d.name: d.value for d in plan if d.channel is Channel.PROCESS}
    set_variables = {name: str(value) for name, value in variables.items() if value is not None}
    return set_variables, [name for name, value in variables.items() if value is None]


def read_restrictions(file: Path) -> Restrictions:
    """Read restrictions from a TOML file: a table `set`, a table `vary` of lists, and a list `exclude`."""
    data = parse_toml(read_text(file), str(file))
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
    """Yield dotted names and their values: TOML reads `inductor.freezing = true` as nested tables."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
