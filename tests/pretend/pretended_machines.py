"""Simulated machines, and whether each condition of the catalogue holds on them."""

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

# An empty string is a machine without a GPU. Each condition must hold on one of these machines with one of the torch releases, and
# fail on another.
SIMULATED = (
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
TORCH_RELEASES = ("2.9.1", "2.10.0", "2.11.0", "2.13.0", "2.14.0", "2.16.0")
# Chips of public reports that cannot be simulated, because the catalogue has no data for them: another chip is used, with its arch
# replaced.
OTHER_CHIPS = {"gfx1151@7.1.1": "gfx1100@7.1.1", "gfx1151@7.2.4": "gfx1201@7.2.4"}
_COMPARED_FIELDS = ("profile", "value", "why", "guard", "evidence")
_CONDITION_PARTS = ("platforms", "torch", "rocm", "archs")


@dataclass(frozen=True)
class ConditionalEntry:
    """A catalogue entry that depends on the platform, the ROCm release or the chip."""

    name: str
    when: Condition
    holds: Callable[[Environment], bool]  # computed by the code that users call, not by the condition itself


def machines(probe: Callable[[str], Environment]) -> Iterator[Environment]:
    """Yield every simulated machine with every torch release."""
    envs = {text: probe(text) for text in SIMULATED}
    without_gpu = envs[""]
    assert without_gpu.torch is not None
    torch = replace(without_gpu.torch, cuda="")
    envs[""] = replace(without_gpu, platform=Platform.CPU, cuda_version="", devices=(), torch=torch)
    for text, similar in OTHER_CHIPS.items():
        arch = text.partition("@")[0]
        envs[text] = replace(envs[similar], devices=tuple(replace(d, arch=arch) for d in envs[similar].devices))
    for env in envs.values():
        assert env.torch is not None
        for release in TORCH_RELEASES:
            yield replace(env, torch=replace(env.torch, version=release))


def depends_on_machine(when: Condition) -> bool:
    """Return whether the condition depends on platform, ROCm release or chip."""
    return bool(restricted_parts(when) - {"torch"})


def restricted_parts(when: Condition) -> set[str]:
    """Return the parts of a condition that are restricted; a list of all platforms is no restriction."""
    restricted = {name for name in _CONDITION_PARTS if getattr(when, name) not in (frozenset(), EVERY_RELEASE, ())}
    return restricted - ({"platforms"} if when.platforms == frozenset(Platform) else set())


def conditional_entries() -> Iterator[ConditionalEntry]:
    """Yield all recommendations, hazards, settings and known problems that depend on the machine."""
    for setting in all_settings():
        for index, choice in enumerate(setting.recommendations):
            if depends_on_machine(choice.when):
                name = f"{setting.id}, recommendation {index} ({choice.profile}: {choice.value!r})"
                yield ConditionalEntry(name, choice.when, _is_recommended(setting, choice))
        for index, hazard in enumerate(setting.hazards):
            if depends_on_machine(hazard.when):
                yield ConditionalEntry(f"{setting.id}, hazard {index}", hazard.when, _is_harmful(setting, hazard))
        if depends_on_machine(setting.valid):
            yield ConditionalEntry(f"{setting.id}, where it exists", setting.valid, _exists(setting))
    for problem in all_problems():
        if depends_on_machine(problem.when):
            yield ConditionalEntry(f"known problem {problem.id}", problem.when, _problem_applies(problem.id))


def deciding_parts(when: Condition, env: Environment) -> set[str]:
    """Return the parts that make a condition fail in this environment, although all other parts hold.

    The platform always counts if it fails: without ROCm, the ROCm release is unknown and fails too.
    """
    if when.holds(env):
        return set()
    without_part = {part: replace(when, **{part: getattr(EVERYWHERE, part)}) for part in restricted_parts(when)}
    deciding = {part for part, condition in without_part.items() if condition.holds(env)}
    other_platform = "platforms" in without_part and env.platform not in when.platforms
    return deciding | ({"platforms"} if other_platform else set())


def _is_recommended(setting: Setting, choice: Recommendation) -> Callable[[Environment], bool]:
    def holds(env: Environment) -> bool:
        decision = resolve(choice.profile, env).get(setting.id)
        return decision is not None and all(
            getattr(decision, name) == getattr(choice, name) for name in _COMPARED_FIELDS
        )

    return holds


def _is_harmful(setting: Setting, hazard: Hazard) -> Callable[[Environment], bool]:
    value = f"a:1,{hazard.value}" if hazard.contains else hazard.value
    return lambda env: setting.hazard(value, env) is hazard


def _exists(setting: Setting) -> Callable[[Environment], bool]:
    check = rule("ENV006").check
    assert check
    return lambda env: not list(check(replace(env, variables={setting.name: "1"}), resolve("safe", env)))


def _problem_applies(problem_id: str) -> Callable[[Environment], bool]:
    problem = next(p for p in all_problems() if p.id == problem_id)
    check = rule("KNO001").check
    assert check
    pairs = [text.partition("=") for text in problem.variables[:1]]
    variables = {variable: text for variable, _, text in pairs}
    packages = dict.fromkeys(problem.packages[:1], "1.0")

    def holds(env: Environment) -> bool:
        changed_env = replace(env, variables=variables, packages=packages)
        if problem.covered_by:
            return problem.applies(changed_env)
        return problem_id in {finding.subject for finding in check(changed_env, resolve("safe", changed_env))}

    return holds
