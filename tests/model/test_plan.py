"""Plans as TOML and back, and overrides from environment variables."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support import make_env

from rocsolid.catalog.overrides import apply_overrides, variable_of
from rocsolid.catalog.profiles import resolve
from rocsolid.catalog.registry import setting
from rocsolid.errors import InputError, PlanError, UnknownNameError
from rocsolid.model.plan import Plan, Tuned
from rocsolid.model.platform import Platform


@pytest.mark.parametrize("profile", ["safe", "fast", "debug"])
def test_plan_survives_its_file(tmp_path: Path, profile: str) -> None:
    plan = resolve(profile, make_env())
    plan.save(tmp_path / "plan.toml")

    assert Plan.load(tmp_path / "plan.toml") == plan
    assert "why = " in (tmp_path / "plan.toml").read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = [", "is not valid TOML"),
        ("x = 1", "is not a rocsolid plan"),
        ('schema = "rocsolid/plan/1"\nprofile = 3', "expected str, found 3"),
        ('schema = "rocsolid/plan/1"\nprofile = "a"\nplatform = "vax"', "expected one of rocm, cuda, cpu"),
    ],
)
def test_refuses_a_file_that_is_not_a_plan(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(text)

    with pytest.raises(InputError, match=says):
        Plan.load(file)


def test_missing_plan_file() -> None:
    with pytest.raises(InputError, match="cannot read /no/where: No such file or directory"):
        Plan.load("/no/where")


def test_variables_override_single_values() -> None:
    plan = resolve("safe", make_env())
    changed = apply_overrides(
        plan, {"ROCSOLID_INDUCTOR_MAX_AUTOTUNE": "1", "ROCSOLID_DYNAMO_RECOMPILE_LIMIT": "64", "PATH": "x"}
    )

    values = {d.id: (d.value, d.profile, d.guard) for d in changed}
    assert values["inductor.max_autotune"] == (True, "variable", True)
    assert values["dynamo.recompile_limit"] == (64, "variable", True)
    assert values["inductor.combo_kernels"][0] is False
    assert apply_overrides(plan, {"ROCSOLID_LEDGER": "x", "ROCSOLID_RUN_PACKAGE_FOLDER": "y"}) == plan
    assert variable_of(setting("inductor.triton.cudagraphs")) == "ROCSOLID_INDUCTOR_TRITON_CUDAGRAPHS"


def test_unknown_override_suggests_similar_names() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'ROCSOLID_INDUCTOR_MAX_AUTOTUNE'"):
        apply_overrides(resolve("safe", make_env()), {"ROCSOLID_INDUCTOR_MAX_AUTOTUN": "1"})


def test_refuses_an_override_of_the_wrong_type() -> None:
    with pytest.raises(
        PlanError, match=r"ROCSOLID_INDUCTOR_MAX_AUTOTUNE='maybe': inductor\.max_autotune must be 1 or 0"
    ):
        apply_overrides(resolve("safe", make_env()), {"ROCSOLID_INDUCTOR_MAX_AUTOTUNE": "maybe"})


def a_tuned_plan(**given: Any) -> Plan:
    env = make_env(platform=Platform.ROCM)
    found: dict[str, Any] = {
        "workload": "model.py:build",
        "form": "compiled",
        "graph": True,
        "speedup": 1.25,
        "low": 1.2,
        "high": 1.3,
        "verdict": "faster",
        "noise": 0.01,
        "checked": "22 calls",
        "device": "MI300X",
        "arch": env.devices[0].arch,
        "python": "3.12.1",
        "date": "2026-11-15",
    }
    return replace(resolve("fast", env), tuned=Tuned(**{**found, **given}))


def test_tuned_plan_keeps_its_measurements(tmp_path: Path) -> None:
    plan = a_tuned_plan()
    plan.save(tmp_path / "plan.toml")

    assert Plan.load(tmp_path / "plan.toml") == plan


def test_tuned_plan_is_replaced_on_another_chip_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    from rocsolid.api.safety import check_plan_fits

    env = make_env(platform=Platform.ROCM)
    assert check_plan_fits(a_tuned_plan(), env) == a_tuned_plan()
    assert caplog.text == ""

    elsewhere = check_plan_fits(a_tuned_plan(arch="gfx1201"), env)
    assert elsewhere == resolve("safe", env)
    assert "using profile safe instead; tune again with rocsolid tune" in caplog.text

    other = replace(env.devices[0], arch="sm_90", platform=Platform.CUDA)  # a GPU that this torch cannot use
    assert check_plan_fits(a_tuned_plan(arch="sm_90"), replace(env, devices=(*env.devices, other))) == resolve(
        "safe", env
    )

    caplog.clear()
    older = replace(a_tuned_plan(), torch="2.9.0")
    assert check_plan_fits(older, env) is older
    assert "tuned with torch 2.9.0" in caplog.text
    assert check_plan_fits(a_tuned_plan(arch="gfx1201"), env, ignore_platform=True).tuned is not None
