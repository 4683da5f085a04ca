"""The profiles, and how one becomes a plan for a machine."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rocsolid.catalog.registry import all_settings
from rocsolid.errors import UnknownNameError
from rocsolid.model.setting import Profile, Recommendation, Setting

if TYPE_CHECKING:
    from rocsolid.model.environment import Environment
    from rocsolid.model.plan import Plan

PROFILES = (
    Profile(
        name="safe",
        intent="Nothing that can hang, crash or answer wrongly on this platform and version; what a port starts with.",
    ),
    Profile(
        name="balanced",
        intent="safe, plus what costs little and usually helps; where optimising starts.",
        extends="safe",
    ),
    Profile(
        name="fast",
        intent="The complete inference block: only values whose effect was measured.",
        extends="balanced",
    ),
    Profile(
        name="debug",
        intent="See everything: errors where they happen, generated code, every graph break and recompile.",
        extends="safe",
    ),
)


def profile(name: str) -> Profile:
    """The profile of that name; raises UnknownNameError with the near matches."""
    for found in PROFILES:
        if found.name == name:
            return found
    raise UnknownNameError(kind="profile", name=name, known=[p.name for p in PROFILES])


def chain(name: str) -> Iterator[Profile]:
    """A profile and all it builds on, most special first."""
    current: str = name
    while current:
        found = profile(current)
        yield found
        current = found.extends


def resolve(name: str, env: "Environment") -> "Plan":
    """Choose a value for every setting that the profile speaks of and this machine has."""
    from rocsolid.model.plan import Decision, Plan  # `explain` reads profiles and makes no plan

    names = [p.name for p in chain(name)]
    decisions = []
    for setting in all_settings():
        choice = _choice(setting, names, env)
        if choice is not None and setting.valid.holds(env):
            decisions.append(
                Decision(
                    id=setting.id,
                    value=choice.value,
                    channel=setting.channel,
                    why=choice.why,
                    profile=choice.profile,
                    guard=choice.guard,
                    evidence=choice.evidence,
                )
            )
    return Plan(profile=name, platform=env.platform, torch=env.torch_version, decisions=tuple(decisions))


def _choice(setting: Setting, names: list[str], env: "Environment") -> Recommendation | None:
    return next((choice for name in names if (choice := setting.recommendation(name, env))), None)
