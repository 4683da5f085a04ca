"""Pretended machines, and whether each condition of the catalogue holds on them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rocsolid.catalog.problems import all_problems
from rocsolid.catalog.profiles import resolve
from rocsolid.catalog.registry import all_settings
from rocsolid.model.environment import Environment
from rocsolid.model.platform import Platform
from rocsolid.model.release import EVERY_RELEASE
from rocsolid.model.setting import EVERYWHERE, Condition, Hazard, Recommendation, Setting
from rocsolid.rules.engine import rule

# An empty string is a machine without a GPU. Each condition must hold on one of these machines and fail on another, with one of
# the torch releases.
PRETENDED = (
    "",
    "sm_90@13.0",
    "gfx90a@7.13.0",
    "gfx90a@7.2.4",
    "gfx942@6.3.0",
    "gfx942@6.4.3",
    "gfx942@7.0.2",
    "gfx942@7.2.1",
    "gfx942@7.2.4",
    "gfx942@7.13.0",
    "gfx942@7.14.0",
    "gfx942@10.0.0",
    "gfx950@7.1.1",
    "gfx950@7.2.1",
    "gfx950@7.14.0",
    "gfx1100@6.4.3",
    "gfx1100@7.1.1",
    "gfx1201@7.2.4",
)
TORCHES = ("2.9.1", "2.10.0", "2.11.0", "2.13.0", "2.14.0", "2.16.0")
# Chips that public reports name but the catalogue has no data for: a device of that name replaces a pretended one.
OTHER_CHIPS = {"gfx1151@7.1.1": "gfx1100@7.1.1", "gfx1151@7.2.4": "gfx1201@7.2.4"}
_COMPARED = ("profile", "value", "why", "guard", "evidence")
_PARTS = ("platforms", "torch", "rocm", "archs")


@dataclass(frozen=True)
class Conditioned:
    """A catalogue entry that depends on the platform, the ROCm release or the chip."""

    name: str
    when: Condition
    holds: Callable[[Environment], bool]  # through the code that users call, not through the condition itself


def machines(probe: Callable[[str], Environment]) -> Iterator[Environment]:
    """Every pretended machine with every torch release."""
    envs = {text: probe(text) for text in PRETENDED}
    without_gpu = envs[""]
    assert without_gpu.torch is not None
    torch = replace(without_gpu.torch, cuda="")
    envs[""] = replace(without_gpu, platform=Platform.CPU, cuda_version="", devices=(), torch=torch)
    for text, like in OTHER_CHIPS.items():
        arch = text.partition("@")[0]
        envs[text] = replace(envs[like], devices=tuple(replace(d, arch=arch) for d in envs[like].devices))
    for env in envs.values():
        assert env.torch is not None
        for release in TORCHES:
            yield replace(env, torch=replace(env.torch, version=release))


def depends(when: Condition) -> bool:
    """Whether the condition depends on platform, ROCm release or chip."""
    return bool(named_parts(when) - {"torch"})


def named_parts(when: Condition) -> set[str]:
    """The parts of a condition that are restricted; naming every platform restricts nothing."""
    bounded = {name for name in _PARTS if getattr(when, name) not in (frozenset(), EVERY_RELEASE, ())}
    return bounded - ({"platforms"} if when.platforms == frozenset(Platform) else set())


def conditioned() -> Iterator[Conditioned]:
    """All choices, hazards, settings and known problems that depend on the machine."""
    for setting in all_settings():
        for number, choice in enumerate(setting.recommendations):
            if depends(choice.when):
                name = f"{setting.id}, choice {number} ({choice.profile}: {choice.value!r})"
                yield Conditioned(name, choice.when, _chosen(setting, choice))
        for number, hazard in enumerate(setting.hazards):
            if depends(hazard.when):
                yield Conditioned(f"{setting.id}, hazard {number}", hazard.when, _hurts(setting, hazard))
        if depends(setting.valid):
            yield Conditioned(f"{setting.id}, where it exists", setting.valid, _exists(setting))
    for problem in all_problems():
        if depends(problem.when):
            yield Conditioned(f"known problem {problem.id}", problem.when, _strikes(problem.id))


def deciding(when: Condition, env: Environment) -> set[str]:
    """The parts that alone make a condition fail here; without ROCm its release is unknown."""
    if when.holds(env):
        return set()
    others = {part: replace(when, **{part: getattr(EVERYWHERE, part)}) for part in named_parts(when)}
    alone = {part for part, other in others.items() if other.holds(env)}
    elsewhere = "platforms" in others and env.platform not in when.platforms
    return alone | ({"platforms"} if elsewhere else set())


def _chosen(setting: Setting, choice: Recommendation) -> Callable[[Environment], bool]:
    def holds(env: Environment) -> bool:
        made = resolve(choice.profile, env).get(setting.id)
        return made is not None and all(getattr(made, name) == getattr(choice, name) for name in _COMPARED)

    return holds


def _hurts(setting: Setting, hazard: Hazard) -> Callable[[Environment], bool]:
    seen = f"a:1,{hazard.value}" if hazard.contains else hazard.value
    return lambda env: setting.hazard(seen, env) is hazard


def _exists(setting: Setting) -> Callable[[Environment], bool]:
    check = rule("ENV006").check
    assert check
    return lambda env: not list(check(replace(env, variables={setting.name: "1"}), resolve("safe", env)))


def _strikes(name: str) -> Callable[[Environment], bool]:
    problem = next(p for p in all_problems() if p.id == name)
    check = rule("KNO001").check
    assert check
    pairs = [text.partition("=") for text in problem.variables[:1]]
    variables = {variable: text for variable, _, text in pairs}
    packages = dict.fromkeys(problem.packages[:1], "1.0")

    def holds(env: Environment) -> bool:
        there = replace(env, variables=variables, packages=packages)
        if problem.covered_by:
            return problem.applies(there)
        return name in {finding.subject for finding in check(there, resolve("safe", there))}

    return holds
