"""Every condition of the catalogue and every platform-dependent rule is tested on simulated machines where it holds and where it fails.

Only the machines, and the input that triggers each rule, are listed by hand. Conditions and rules are enumerated, and each is tested
through the code that users call. If a new catalogue entry holds on all machines or on none, the test fails and prints its name.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from tests.pretend.pretended_machines import conditional_entries, deciding_parts, machines, restricted_parts
from tests.rules.test_rules import CASES as RULE_CASES
from tests.support import has_gpu

from rocsolid.catalog.profiles import resolve
from rocsolid.model.environment import Environment, Host, Origin, SettingValue
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.pretended_chip import PretendedChip
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.rules.engine import rule

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(has_gpu(), reason="rs.pretend needs a machine without a GPU"),
]
Pretend = Callable[[str], PretendedChip]


@pytest.fixture
def probe(pretend_chip: Pretend) -> Callable[[str], Environment]:
    def probe_pretended(text: str) -> Environment:
        if text:
            pretend_chip(text)
        env = quick_environment()
        assert env.pretended == text
        return env

    return probe_pretended


def test_every_condition_holds_on_one_machine_and_fails_on_another(
    probe: Callable[[str], Environment],
) -> None:
    environments = list(machines(probe))
    problems = []
    entries = list(conditional_entries())
    for entry in entries:
        held = [entry.holds(env) for env in environments]
        problems += [f"{entry.name}: never holds"] if not any(held) else []
        problems += [f"{entry.name}: never fails"] if all(held) else []
        decided = {part for env in environments for part in deciding_parts(entry.when, env)}
        problems += [f"{entry.name}: {part} never decides" for part in sorted(restricted_parts(entry.when) - decided)]
        # An entry may apply less often than its condition holds (another choice comes first), but never more often.
        problems += [
            f"{entry.name}: applies although its condition fails, on {env.pretended} with torch {env.torch_version}"
            for env, met in zip(environments, held, strict=True)
            if met and not entry.when.holds(env)
        ][:1]

    assert len(entries) > 100
    assert problems == []


class _RecordingEnvironment(Environment):
    """An environment that records which platform-dependent fields are read."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("platform", "rocm_version", "devices"):
            _fields_read.add(name)
        return super().__getattribute__(name)


_fields_read: set[str] = set()


def reads_platform(code: str) -> bool:
    """Return whether a rule's check reads platform, ROCm release or devices in one of its own test cases."""
    check = rule(code).check
    assert check
    _fields_read.clear()
    for env in (env for side in RULE_CASES[code] for env in side):
        plan = resolve("safe", env)
        list(
            check(
                _RecordingEnvironment(**{field.name: getattr(env, field.name) for field in fields(Environment)}), plan
            )
        )
    return bool(_fields_read)


def _changed_setting(origin: Origin) -> dict[str, Any]:
    return {"settings": {"inductor.max_autotune": SettingValue(value=True, default=False, origin=origin, set_by="who")}}


# By rule code: changed fields of the environment, a chip for which the rule reports them, and one with a different result.
CASES_BY_CODE: dict[str, tuple[dict[str, Any], str, str]] = {
    "CFG001": (_changed_setting(Origin.VARIABLE), "gfx942", "sm_90"),
    "CFG002": (_changed_setting(Origin.FORCED), "gfx942", "sm_90"),
    "CFG003": (_changed_setting(Origin.OVERRIDE), "gfx942", "sm_90"),
    "CFG004": (_changed_setting(Origin.STARTUP), "gfx942", "sm_90"),
    "CFG005": (_changed_setting(Origin.LIBRARY), "gfx942", "sm_90"),
    "CFG007": (_changed_setting(Origin.PATCHED), "gfx942", "sm_90"),
    "CFG008": (_changed_setting(Origin.ASSIGNED), "gfx942", "sm_90"),
    "ENV001": ({"variables": {"TORCH_BLAS_PREFER_HIPBLASLT": "1"}}, "gfx1100", "gfx942"),
    "ENV004": ({"variables": {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}}, "gfx942", "sm_90"),
    "ENV006": ({"variables": {"DEBUG_CLR_GRAPH_PACKET_CAPTURE": "1"}}, "gfx942@7.2.4", "gfx942@6.4.3"),
    "SYS001": ({"platform": Platform.CUDA}, "gfx942", "sm_90"),
    "SYS004": ({"host": Host(numa_balancing=True, numa_nodes=2)}, "gfx942", "sm_90"),
    "SYS006": ({"libraries": {"libamd_smi": ("a", "b")}}, "gfx942", "sm_90"),
    "SYS010": ({"host": Host(compiler="g++", limits={"stack bytes": 1024**2})}, "gfx942", "sm_90"),
    "KNO001": ({}, "gfx942@7.2.1", "gfx942@7.1.1"),
}


def test_every_platform_dependent_rule_has_a_case() -> None:
    assert [code for code in RULE_CASES if reads_platform(code)] == list(CASES_BY_CODE)


@pytest.mark.parametrize("code", CASES_BY_CODE)
def test_a_platform_dependent_rule_differs_between_two_platforms(
    code: str, probe: Callable[[str], Environment]
) -> None:
    changes, reported_chip, other_chip = CASES_BY_CODE[code]
    found = [set(_found(code, replace(probe(_with_release(text)), **changes))) for text in (reported_chip, other_chip)]

    assert found[0]
    assert found[0] != found[1]


def _found(code: str, env: Environment) -> Iterator[tuple[str, Severity]]:
    check = rule(code).check
    assert check
    for finding in check(env, resolve("safe", env)):
        yield finding.subject, finding.severity


def _with_release(text: str) -> str:
    from rocsolid.catalog.chips import parse_pretended_chip

    return str(parse_pretended_chip(text))
