"""Every rule: its page is complete, and it reports exactly the environments that it should."""

from collections.abc import Iterator
from dataclasses import replace
from string import Formatter

import pytest
from tests.support import make_env

from rocsolid.catalog.profiles import resolve
from rocsolid.catalog.registry import all_settings
from rocsolid.errors import UnknownNameError
from rocsolid.model.environment import (
    CacheFolder,
    CheckResult,
    CheckStatus,
    ConfigFile,
    Environment,
    Host,
    Integrity,
    Origin,
    ProbeMode,
    SettingValue,
    TorchBuild,
)
from rocsolid.model.finding import Finding, Severity
from rocsolid.model.plan import Plan
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Owner
from rocsolid.rules.engine import RuleFile, all_rules, check_environment, find_rule, rule

HEADINGS = ["What it does", "Why it matters", "Example", "Use instead", "When to allow it"]
HEALTHY = make_env(rocm="7.1.1")


WHAT_SET_IT = {
    Origin.VARIABLE: "TORCHINDUCTOR_MAX_AUTOTUNE",
    Origin.FORCED: "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
    Origin.OVERRIDE: "TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS",
    Origin.STARTUP: "/usr/lib/python3/sitecustomize.py:3",
    Origin.LIBRARY: "vllm/env_override.py:12",
}


def with_changed_setting(origin: Origin) -> Environment:
    name = "inductor.force_disable_caches" if origin is Origin.FORCED else "inductor.max_autotune"
    return make_env(moved={name: (True, False, origin, WHAT_SET_IT.get(origin, ""))})


def with_config_file(integrity: Integrity) -> Environment:
    file = ConfigFile(owner="inductor", file="_inductor/config.py", integrity=integrity)
    build = TorchBuild(version="2.13.0", hip="7.1", files=(file,), known_release="2.13.0")
    return replace(with_changed_setting(Origin.PATCHED), torch=build)


def with_variables(**values: str) -> Environment:
    return make_env(variables=values)


def with_host(**fields: object) -> Environment:
    return make_env(host=Host(**{"compiler": "g++", **fields}))  # type: ignore[arg-type]


# By code: environments that the rule must report, then similar ones that it must not report.
CASES: dict[str, tuple[list[Environment], list[Environment]]] = {
    "CFG001": ([with_changed_setting(Origin.VARIABLE)], [with_changed_setting(Origin.FORCED), HEALTHY]),
    "CFG002": ([with_changed_setting(Origin.FORCED)], [with_changed_setting(Origin.VARIABLE)]),
    "CFG003": ([with_changed_setting(Origin.OVERRIDE)], [with_changed_setting(Origin.VARIABLE)]),
    "CFG004": ([with_changed_setting(Origin.STARTUP)], [with_changed_setting(Origin.LIBRARY)]),
    "CFG005": ([with_changed_setting(Origin.LIBRARY)], [with_changed_setting(Origin.STARTUP)]),
    "CFG006": (
        [
            with_config_file(Integrity.DIFFERS_FROM_WHEEL),
            with_config_file(Integrity.DIFFERS_FROM_RELEASE),
            with_config_file(Integrity.RECORDED),
        ],
        [with_config_file(Integrity.RELEASED), with_config_file(Integrity.UNKNOWN)],
    ),
    "CFG007": ([with_config_file(Integrity.DIFFERS_FROM_RELEASE)], [with_changed_setting(Origin.VARIABLE)]),
    "CFG008": (
        [with_changed_setting(Origin.ASSIGNED), with_changed_setting(Origin.MUTATED)],
        [with_changed_setting(Origin.STARTUP)],
    ),
    "CFG009": (
        [
            make_env(
                settings={
                    "a.b": SettingValue(
                        value=1,
                        default=1,
                        origin=Origin.OTHER_THREAD,
                        other_thread_value=2,
                        other_threads="a new thread",
                    )
                }
            ),
            make_env(
                settings={
                    "a.b": SettingValue(
                        value=1, default=2, origin=Origin.ASSIGNED, other_thread_value=2, other_threads="a new thread"
                    )
                }
            ),
        ],
        [with_changed_setting(Origin.ASSIGNED)],
    ),
    "CFG010": (
        [make_env(settings={"inductor.compile_worker_wait_timeout": SettingValue(value=0, default=0)})],
        [make_env(settings={"inductor.compile_worker_wait_timeout": SettingValue(value=900, default=0)}), HEALTHY],
    ),
    "ENV001": (
        [
            with_variables(HIP_LAUNCH_BLOCKING="1"),
            with_variables(PYTORCH_HIP_ALLOC_CONF="expandable_segments:True"),
            with_variables(HSA_OVERRIDE_GFX_VERSION="10.3.0"),
        ],
        [
            with_variables(HIP_LAUNCH_BLOCKING="0"),
            with_variables(PYTORCH_HIP_ALLOC_CONF="max_split_size_mb:256"),
            HEALTHY,
        ],
    ),
    "ENV002": (
        [
            with_variables(INDUCTOR_COORD_DESCENT="1"),
            with_variables(TORCHINDUCTOR_MAX_AUTOTUNES="1"),
            with_variables(INDUCTOR_GROUP_FUSION="1"),
        ],
        [
            with_variables(TORCHINDUCTOR_MAX_AUTOTUNE="1"),
            with_variables(TORCH_MY_OWN_THING="1"),
            with_variables(NCCL_DEBUGS="1"),
        ],
    ),
    "ENV003": (
        [with_variables(HIP_MADE_UP_NAME="1")],
        [
            with_variables(HIP_VISIBLE_DEVICES="0"),
            with_variables(INDUCTOR_COORD_DESCENT="1"),
            with_variables(NCCL_MADE_UP="1"),
        ],
    ),
    "ENV004": (
        [
            with_variables(HIP_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="1"),
            with_variables(PYTORCH_ALLOC_CONF="a", PYTORCH_CUDA_ALLOC_CONF="b"),
            with_variables(PYTORCH_TUNABLEOP_TUNING="1"),
        ],
        [
            with_variables(HIP_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="0"),
            with_variables(PYTORCH_TUNABLEOP_TUNING="1", PYTORCH_TUNABLEOP_ENABLED="1"),
        ],
    ),
    "ENV005": ([with_variables(DISABLE_ADDMM_HIP_LT="1")], [with_variables(DISABLE_ADDMM_CUDA_LT="1")]),
    "ENV006": (
        [
            with_variables(HIP_CACHE_ENABLED="1"),
            make_env(rocm="7.2.1", variables={"DEBUG_CLR_GRAPH_PACKET_CAPTURE": "1"}),
            make_env(Platform.CUDA, variables={"GPU_MAX_HW_QUEUES": "4"}),
        ],
        [
            make_env(rocm="6.4.3", variables={"DEBUG_CLR_GRAPH_PACKET_CAPTURE": "1"}),
            with_variables(GPU_MAX_HW_QUEUES="4"),
        ],
    ),
    "SYS001": (
        [replace(make_env(Platform.CUDA), devices=make_env(Platform.ROCM).devices)],
        [make_env(Platform.ROCM), make_env(Platform.CPU), make_env(Platform.CUDA)],
    ),
    "SYS002": ([replace(HEALTHY, torch=None, python="3.11.7")], [HEALTHY]),
    "SYS003": (
        [make_env(torch="2.6.0"), make_env(torch="2.16.0")],
        [make_env(torch="2.9.1"), make_env(torch="2.15.0")],
    ),
    "SYS004": (
        [with_host(numa_balancing=True, numa_nodes=2)],
        [with_host(numa_balancing=True, numa_nodes=1), with_host(numa_balancing=False)],
    ),
    "SYS005": ([with_host(compiler="")], [with_host(compiler="g++")]),
    "SYS006": (
        [make_env(libraries={"libamd_smi": ("a", "b")})],
        [make_env(libraries={"libamd_smi": ("a",)}), make_env(Platform.CUDA, libraries={"libamd_smi": ("a", "b")})],
    ),
    "SYS007": ([with_host(kfd_access="denied")], [with_host(kfd_access="ok"), with_host(kfd_access="")]),
    "SYS008": (
        [
            make_env(triton_copies=("triton 3.7.1", "pytorch-triton-rocm 3.5.1")),
            replace(
                HEALTHY,
                torch=TorchBuild(version="2.13.0", required_triton=("triton==3.7.1",)),
                triton_copies=("triton 3.6.0",),
            ),
        ],
        [
            make_env(triton_copies=("triton 3.7.1",)),
            replace(
                HEALTHY,
                torch=TorchBuild(version="2.13.0", required_triton=("triton==3.7.1",)),
                triton_copies=("triton 3.7.1",),
            ),
        ],
    ),
    "SYS009": (
        [
            make_env(caches=(CacheFolder(name="inductor", folder="/x", free_bytes=1024, writable=True),)),
            make_env(caches=(CacheFolder(name="triton", folder="/x", free_bytes=None, writable=False),)),
        ],
        [make_env(caches=(CacheFolder(name="inductor", folder="/x", free_bytes=10 * 1024**3, writable=True),))],
    ),
    "SYS010": (
        [
            with_host(shared_memory_bytes=64 * 1024**2),
            with_host(limits={"stack bytes": 1024**2}),
            with_host(limits={"open files": 256}),
        ],
        [with_host(shared_memory_bytes=16 * 1024**3), with_host(limits={"stack bytes": None, "open files": 65536})],
    ),
    "SYS011": (
        [
            make_env(tools=(CheckResult(name="rocminfo", status=CheckStatus.HUNG, detail="no output for 5 s"),)),
            make_env(
                tools=(
                    CheckResult(
                        name="rocminfo",
                        status=CheckStatus.OK,
                        detail="rocminfo lists no GPU, the kernel driver lists gfx942",
                    ),
                )
            ),
        ],
        [make_env(tools=(CheckResult(name="rocminfo", status=CheckStatus.OK),))],
    ),
    "KNO001": ([make_env(rocm="7.2.1")], [make_env(Platform.CPU, torch="2.15.0", rocm="")]),
    "ACT001": (
        [
            make_env(
                active_checks=(
                    CheckResult(
                        name="capture (process 1)", status=CheckStatus.WRONG, detail="replay 117 differs from eager"
                    ),
                    CheckResult(name="capture (process 2)", status=CheckStatus.OK),
                    CheckResult(name="capture (process 3)", status=CheckStatus.OK),
                )
            )
        ],
        [
            make_env(
                active_checks=(
                    CheckResult(name="capture", status=CheckStatus.OK),
                    CheckResult(name="fp8", status=CheckStatus.SKIPPED),
                )
            )
        ],
    ),
}
RULES_WITH_CHECK = [file for file in all_rules() if file.check]


def findings_in(file: RuleFile, env: Environment) -> list[Finding]:
    assert file.check
    return list(file.check(env, resolve("safe", env)))


@pytest.mark.parametrize("file", RULES_WITH_CHECK, ids=lambda file: file.rule.code)
def test_every_rule_has_test_cases(file: RuleFile) -> None:
    assert file.rule.code in CASES


@pytest.mark.parametrize("code", CASES)
def test_rule_reports_its_hazard(code: str) -> None:
    for env in CASES[code][0]:
        found = findings_in(rule(code), env)
        assert found, env
        for finding in found:
            assert finding.code == code
            for text in (finding.message, finding.why, finding.fix, finding.check):
                assert text
                assert "{" not in text.replace("{...}", "")  # an unfilled template
                assert "  " not in text.replace("   (", " (")


@pytest.mark.parametrize("code", [code for code in CASES if code != "KNO001"])
def test_rule_ignores_similar_environments(code: str) -> None:
    for env in CASES[code][1]:
        assert findings_in(rule(code), env) == [], env


def test_unchanged_cpu_machine_has_no_known_problem_above_info() -> None:
    found = findings_in(rule("KNO001"), CASES["KNO001"][1][0])

    assert [f.subject for f in found if f.severity > Severity.INFO] == []


@pytest.mark.parametrize("file", all_rules(), ids=lambda file: file.rule.code)
def test_rule_page_is_complete(file: RuleFile) -> None:
    """Five headings in order, each with a text."""
    headings = [line.removeprefix("## ") for line in file.page.splitlines() if line.startswith("## ")]
    bodies = [part.strip() for part in file.page.split("\n## ")[1:]]

    assert headings == HEADINGS
    assert all(len(body.splitlines()) > 1 for body in bodies)
    assert file.page.partition("\n")[0].endswith(".")
    assert file.rule.name == file.rule.name.lower()
    assert file.rule.since


@pytest.mark.parametrize("file", all_rules(), ids=lambda file: file.rule.code)
def test_rule_code_and_templates_are_well_formed(file: RuleFile) -> None:
    code = file.rule.code

    assert code[:3].isalpha()
    assert code[:3].isupper()
    assert code[3:].isdigit()
    assert len(code) == 6
    for text in (file.rule.message, file.rule.why, file.rule.fix, file.rule.check):
        list(Formatter().parse(text))  # raises ValueError for a broken template


def test_severity_of_autotuning_depends_on_the_platform() -> None:
    for platform, severity in (
        (Platform.ROCM, Severity.CRITICAL),
        (Platform.CUDA, Severity.WARNING),
        (Platform.CPU, Severity.WARNING),
    ):
        env = make_env(
            platform, moved={"inductor.max_autotune": (True, False, Origin.VARIABLE, "TORCHINDUCTOR_MAX_AUTOTUNE")}
        )
        (found,) = findings_in(rule("CFG001"), env)

        assert found.severity is severity
        assert found.fix_commands.unset == ("TORCHINDUCTOR_MAX_AUTOTUNE",)


def test_changed_setting_without_known_hazard_is_info() -> None:
    env = make_env(moved={"inductor.some_new_thing": (2, 1, Origin.VARIABLE, "X")})
    (found,) = findings_in(rule("CFG001"), env)

    assert found.severity is Severity.INFO


def test_crashing_check_becomes_a_finding_with_traceback() -> None:
    def crashing_check(_env: Environment, _plan: Plan) -> Iterator[Finding]:
        msg = "boom"
        raise RuntimeError(msg)

    broken = RuleFile(rule=rule("CFG001").rule, page="", check=crashing_check)
    (found,) = check_environment(HEALTHY, resolve("safe", HEALTHY), [broken])

    assert (found.code, found.subject) == ("INT001", "CFG001")
    assert "RuntimeError: boom" in found.message
    assert "Traceback" in str(found.facts["trace"])


def test_find_rule_by_code_or_name() -> None:
    assert find_rule("cfg001") == find_rule("setting-changed-by-variable")
    with pytest.raises(UnknownNameError) as error:
        rule("CFG0O1")
    assert str(error.value) == "unknown rule 'CFG0O1'; did you mean 'CFG010' or 'CFG001' or 'CFG009'?"


def test_misspelled_variable_gets_the_correct_name() -> None:
    (found,) = findings_in(rule("ENV002"), with_variables(INDUCTOR_COORD_DESCENT="1"))

    assert found.why == "It has no effect. The correct name is TORCHINDUCTOR_COORDINATE_DESCENT_TUNING."
    assert found.fix_commands.unset == ("INDUCTOR_COORD_DESCENT",)


def test_environment_has_a_probe_mode() -> None:
    assert HEALTHY.probe_mode is ProbeMode.STATIC


@pytest.mark.parametrize("platform", [Platform.ROCM, Platform.CUDA])
def test_no_variable_is_harmful_and_without_effect_on_one_machine(platform: Platform) -> None:
    for setting in all_settings():
        for hazard in setting.hazards if setting.owner is Owner.PROCESS else ():
            env = make_env(platform, variables={setting.name: str(hazard.value)})
            found = {f.code for f in check_environment(env, resolve("safe", env)) if f.subject == setting.name}
            assert not {"ENV001", "ENV006"} <= found, setting.name


def test_cuda_launch_blocking_on_rocm_names_the_variable_of_hip() -> None:
    (finding,) = findings_in(rule("ENV006"), with_variables(CUDA_LAUNCH_BLOCKING="1"))

    assert "HIP_LAUNCH_BLOCKING=1" in finding.why
