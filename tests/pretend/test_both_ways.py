"""Whatever of the catalogue and the rules depends on the platform is met both ways, on machines that are pretended.

Nothing is listed here by hand but the machines, and what a rule finds hurtful: conditions and rules are enumerated, and each is
asked by the code that users meet. What is added to the catalogue and not met both ways makes a test fail by its name.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from tests.pretend.surroundings import conditioned, deciding, machines, named_parts
from tests.rules.test_rules import CASES as RULE_CASES
from tests.support import has_gpu

from rocsolid.catalog.profiles import resolve
from rocsolid.model.environment import Environment, Host, Origin, SettingValue
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.pretended_chip import Pretence
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.rules.engine import rule

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(has_gpu(), reason="pretending is for machines without an accelerator"),
]
Pretend = Callable[[str], Pretence]
Outcome = set[tuple[str, Severity]]


@pytest.fixture
def look(pretend_chip: Pretend) -> Callable[[str], Environment]:
    def looked(text: str) -> Environment:
        if text:
            pretend_chip(text)
        env = quick_environment()
        assert env.pretended == text
        return env

    return looked


def test_every_condition_of_the_catalogue_holds_somewhere_and_fails_somewhere(
    look: Callable[[str], Environment],
) -> None:
    everywhere = list(machines(look))
    unmet = []
    subjects = list(conditioned())
    for subject in subjects:
        held = [subject.holds(env) for env in everywhere]
        unmet += [f"{subject.name}: never holds"] if not any(held) else []
        unmet += [f"{subject.name}: never fails"] if all(held) else []
        decided = {part for env in everywhere for part in deciding(subject.when, env)}
        unmet += [f"{subject.name}: {part} never decides" for part in sorted(named_parts(subject.when) - decided)]
        # What users meet may hold less often than its condition (another choice comes first), and never more often.
        unmet += [
            f"{subject.name}: met where its condition fails, on {env.pretended} with torch {env.torch_version}"
            for env, met in zip(everywhere, held, strict=True)
            if met and not subject.when.holds(env)
        ][:1]

    assert len(subjects) > 100
    assert unmet == []


class _Watched(Environment):
    """Remembers whether anybody asked what depends on the platform."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("platform", "rocm_version", "devices"):
            _asked.add(name)
        return super().__getattribute__(name)


_asked: set[str] = set()


def asks(code: str) -> bool:
    """Whether a rule's check asks for platform, release of ROCm or chips in any of its own cases."""
    check = rule(code).check
    assert check
    _asked.clear()
    for env in (env for side in RULE_CASES[code] for env in side):
        plan = resolve("safe", env)
        list(check(_Watched(**{field.name: getattr(env, field.name) for field in fields(Environment)}), plan))
    return bool(_asked)


def _moved(origin: Origin) -> dict[str, Any]:
    return {"settings": {"inductor.max_autotune": SettingValue(value=True, default=False, origin=origin, set_by="who")}}


# By code: what is planted in the surroundings, where it is found as on ROCm, and where the same is found otherwise or not at all.
PLANTED: dict[str, tuple[dict[str, Any], str, str]] = {
    "CFG001": (_moved(Origin.VARIABLE), "gfx942", "sm_90"),
    "CFG002": (_moved(Origin.FORCED), "gfx942", "sm_90"),
    "CFG003": (_moved(Origin.OVERRIDE), "gfx942", "sm_90"),
    "CFG004": (_moved(Origin.STARTUP), "gfx942", "sm_90"),
    "CFG005": (_moved(Origin.LIBRARY), "gfx942", "sm_90"),
    "CFG007": (_moved(Origin.PATCHED), "gfx942", "sm_90"),
    "CFG008": (_moved(Origin.ASSIGNED), "gfx942", "sm_90"),
    "ENV001": ({"variables": {"TORCH_BLAS_PREFER_HIPBLASLT": "1"}}, "gfx1100", "gfx942"),
    "ENV004": ({"variables": {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}}, "gfx942", "sm_90"),
    "ENV006": ({"variables": {"DEBUG_CLR_GRAPH_PACKET_CAPTURE": "1"}}, "gfx942@7.2.4", "gfx942@6.4.3"),
    "SYS001": ({"platform": Platform.CUDA}, "gfx942", "sm_90"),
    "SYS004": ({"host": Host(numa_balancing=True, numa_nodes=2)}, "gfx942", "sm_90"),
    "SYS006": ({"libraries": {"libamd_smi": ("a", "b")}}, "gfx942", "sm_90"),
    "SYS010": ({"host": Host(compiler="g++", limits={"stack bytes": 1024**2})}, "gfx942", "sm_90"),
    "KNO001": ({}, "gfx942@7.2.1", "gfx942@7.1.1"),
}


def test_every_rule_that_asks_for_the_platform_is_planted_here() -> None:
    assert [code for code in RULE_CASES if asks(code)] == list(PLANTED)


@pytest.mark.parametrize("code", PLANTED)
def test_a_rule_that_asks_for_the_platform_answers_both_ways(code: str, look: Callable[[str], Environment]) -> None:
    planted, here, there = PLANTED[code]
    seen = [set(_found(code, replace(look(_full(text)), **planted))) for text in (here, there)]

    assert seen[0]
    assert seen[0] != seen[1]


def _found(code: str, env: Environment) -> Iterator[tuple[str, Severity]]:
    check = rule(code).check
    assert check
    for finding in check(env, resolve("safe", env)):
        yield finding.subject, finding.severity


def _full(text: str) -> str:
    from rocsolid.catalog.chips import parse_pretended_chip

    return str(parse_pretended_chip(text))
