"""The profiles, and how a profile is resolved into a plan for one machine."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rocsolid.catalog.registry import all_settings
from rocsolid.errors import UnknownNameError, require_type
from rocsolid.model.setting import Profile, Recommendation, Setting

if TYPE_CHECKING:
    from rocsolid.model.environment import Environment
    from rocsolid.model.plan import Plan

PROFILES = (
    Profile(
        name="safe",
        intent=(
            "Avoids everything that is known to hang, crash or return wrong results on this platform "
            "and version. Use it first when you move a program to another platform."
        ),
    ),
    Profile(
        name="balanced",
        intent=(
            "The values of safe, plus settings that cost little and usually help. Use it first when "
            "you optimise a program."
        ),
        extends="safe",
    ),
    Profile(
        name="fast",
        intent="For inference: the values of balanced, plus values that were faster in a measurement.",
        extends="balanced",
    ),
    Profile(
        name="debug",
        intent=(
            "For debugging: errors are raised at the call that causes them, generated code is "
            "saved, and every graph break and recompile is logged."
        ),
        extends="safe",
    ),
)


def profile(name: str) -> Profile:
    """The profile with this name; raises UnknownNameError with similar names."""
    for candidate in PROFILES:
        if candidate.name == name:
            return candidate
    raise UnknownNameError(kind="profile", name=name, known=[p.name for p in PROFILES])


def chain(name: str) -> Iterator[Profile]:
    """The profile, then the profile it extends, and so on."""
    while name:
        current = profile(name)
        yield current
        name = current.extends


def resolve(name: str, env: "Environment") -> "Plan":
    """Choose a value for every setting that the profile covers and that exists on this machine."""
    from rocsolid.model.plan import Decision, Plan  # imported late: `explain` reads profiles but needs no plan

    require_type("profile", name, str, "the name of a profile, such as 'safe'")
    profiles = [p.name for p in chain(name)]
    decisions = []
    for setting in all_settings():
        advice = _recommendation(setting, profiles, env)
        if advice is not None and setting.valid.holds(env):
            decisions.append(
                Decision(
                    id=setting.id,
                    value=advice.value,
                    channel=setting.channel,
                    why=advice.why,
                    profile=advice.profile,
                    guard=advice.guard,
                    evidence=advice.evidence,
                )
            )
    return Plan(profile=name, platform=env.platform, torch=env.torch_version, decisions=tuple(decisions))


def _recommendation(setting: Setting, profiles: list[str], env: "Environment") -> Recommendation | None:
    """The value of the first of these profiles that recommends one."""
    return next((advice for name in profiles if (advice := setting.recommendation(name, env))), None)
