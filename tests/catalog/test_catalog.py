"""The catalogue: every declaration is complete, and the evidence it cites exists."""

import json
import re
from collections.abc import Iterator

import pytest
from tests.support import ROOT, installed_torch, make_env

from rocsolid.catalog.breaks import BREAK_CAUSES
from rocsolid.catalog.capture_errors import MEANINGS
from rocsolid.catalog.capture_rules import EVIDENCE_BY_RUNTIME
from rocsolid.catalog.chips import CHIPS
from rocsolid.catalog.device_peaks import find_peaks
from rocsolid.catalog.idle_causes import IDLE_CAUSES
from rocsolid.catalog.images import IMAGES
from rocsolid.catalog.problems import all_problems
from rocsolid.catalog.profiles import PROFILES, chain, profile, resolve
from rocsolid.catalog.registry import all_settings, find, setting
from rocsolid.errors import UnknownNameError
from rocsolid.model.code_line import underline
from rocsolid.model.evidence import Evidence, Rank
from rocsolid.model.finding import Severity
from rocsolid.model.known_cause import KnownCause
from rocsolid.model.plan import Plan
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Owner
from rocsolid.model.trace import IdleCause
from rocsolid.probe.packages import torch_folder
from rocsolid.rules.engine import all_rules, find_rule
from rocsolid.torchapi.config.upstream import known_releases, upstream

# Every setting, variable and mode that the five guides mention, and related ones that they do not mention.
MENTIONED = [
    *(f"inductor.{n}" for n in ["max_autotune", "max_autotune_pointwise", "max_autotune_gemm", "max_autotune_gemm_backends", "coordinate_descent_tuning", "epilogue_fusion", "pattern_matcher", "aggressive_fusion", "group_fusion", "max_fusion_size", "triton.cudagraphs", "triton.cudagraph_trees", "memory_planning", "reorder_for_locality", "benchmark_kernel", "triton.multi_kernel", "shape_padding", "freezing", "trace.enabled", "trace.debug_log", "force_disable_caches"]),
    "dynamo.recompile_limit", "dynamo.cache_size_limit", "compile.mode",
    *["TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE", "TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCH_COMPILE_DEBUG", "TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS", "DISABLE_ADDMM_CUDA_LT", "DISABLE_ADDMM_HIP_LT", "TORCH_BLAS_PREFER_HIPBLASLT", "PYTORCH_TUNABLEOP_ENABLED", "PYTORCH_TUNABLEOP_TUNING", "GPU_MAX_HW_QUEUES", "HIP_FORCE_DEV_KERNARG", "HSA_NO_SCRATCH_RECLAIM", "AMD_SERIALIZE_KERNEL", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "HIP_LAUNCH_BLOCKING", "AMD_LOG_LEVEL", "HIP_CACHE_ENABLED", "MIOPEN_DEBUG_CONV_GEMM", "AMDGCN_USE_BUFFER_OPS", "TRITON_DEFAULT_FP_FUSION"],
]  # fmt: skip


@pytest.mark.parametrize("name", MENTIONED)
def test_every_setting_mentioned_in_the_guides_is_declared(name: str) -> None:
    assert find(name) is not None


def all_evidence() -> Iterator[tuple[str, Evidence]]:
    """Each piece of evidence, with the name of what it supports."""
    for declared in all_settings():
        lists = [
            declared.evidence,
            *(r.evidence for r in declared.recommendations),
            *(h.evidence for h in declared.hazards),
        ]
        yield from ((declared.id, e) for evidence in lists for e in evidence)
    for problem in all_problems():
        yield from ((problem.id, e) for e in problem.evidence)
    for file in all_rules():
        yield from ((file.rule.code, e) for e in file.rule.evidence)
    yield from ((runtime.label, e) for runtime, evidence in EVIDENCE_BY_RUNTIME.items() for e in evidence)
    yield from ((meaning.message, e) for meaning in MEANINGS for e in meaning.evidence)


def test_measured_evidence_refers_to_a_stored_run() -> None:
    """The record contains hardware, versions and date; a name after `#` is one of its facts."""
    for who, evidence in all_evidence():
        if evidence.rank is Rank.MEASURED:
            name, _, fact = evidence.ref.partition("#")
            record = json.loads((ROOT / f"evidence/{name}.json").read_text())
            assert {"schema", "what", "date", "device", "torch"} <= record.keys(), who
            assert not fact or fact in record["facts"], (who, evidence.ref)


def test_issue_evidence_has_a_github_url() -> None:
    for who, evidence in all_evidence():
        if evidence.rank is Rank.ISSUE:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", evidence.ref), (who, evidence.ref)


@pytest.mark.torch
@pytest.mark.skipif(not installed_torch().startswith("2.13"), reason="needs torch 2.13, whose files are named")
def test_source_evidence_names_a_torch_file_and_a_symbol_in_it() -> None:
    """For `torch 2.13 _inductor/config.py max_autotune`: the file exists and contains the symbol."""
    folder = torch_folder()
    assert folder
    checked = 0
    for who, evidence in all_evidence():
        match = re.fullmatch(r"torch 2\.13 (\S+\.(?:py|h))(?: (\S+))?", evidence.ref)
        if evidence.rank is Rank.SOURCE and match:
            text = (folder / match[1]).read_text()
            symbol = (match[2] or "").rpartition(".")[2]
            assert symbol in text, (who, evidence.ref)
            checked += 1
    assert checked > 40


def test_every_summary_reason_and_statement_ends_with_a_period() -> None:
    for declared in all_settings():
        for text in (declared.summary, *(r.why for r in declared.recommendations), *(h.why for h in declared.hazards)):
            assert text.endswith("."), (declared.id, text)
    for who, evidence in all_evidence():
        assert evidence.statement.endswith("."), (who, evidence.statement)


def test_compiler_settings_exist_in_exactly_the_declared_releases() -> None:
    for declared in all_settings():
        if declared.owner not in (Owner.INDUCTOR, Owner.DYNAMO):
            continue
        for release in known_releases():
            table = upstream(release)
            assert table
            exists = declared.id in table.values or declared.id == "inductor.compile_threads"
            assert exists == declared.valid.torch.holds(release), (declared.id, release)


def test_environment_variables_override_python_only_where_declared() -> None:
    """Checked against torch's source: the variable is read, and forces the value exactly if `overrides_config` is set."""
    from rocsolid.torchapi.config.source import Build, read_configs

    folder = torch_folder()
    assert folder
    (read,) = read_configs(folder, [{}], Build(version=installed_torch()))
    for declared in all_settings():
        entry = read.get(declared.id)
        if entry is None or declared.variable is None or not declared.variable.torch.holds(installed_torch()):
            continue
        names = entry.forcing_variables if declared.variable.overrides_config else entry.variables
        assert declared.variable.name in names, declared.id


def test_profiles_extend_each_other() -> None:
    assert [p.name for p in chain("fast")] == ["fast", "balanced", "safe"]
    assert [p.name for p in chain("debug")] == ["debug", "safe"]
    with pytest.raises(UnknownNameError, match="did you mean 'safe'"):
        profile("saef")


@pytest.mark.parametrize("name", [p.name for p in PROFILES])
@pytest.mark.parametrize("platform", list(Platform))
def test_every_profile_resolves_on_every_platform(name: str, platform: Platform) -> None:
    plan = resolve(name, make_env(platform))

    assert len(plan) > 10
    assert all(d.why and d.evidence for d in plan)


def test_rocm_recommendations_do_not_apply_on_cuda() -> None:
    cuda, rocm = resolve("safe", make_env(Platform.CUDA)), resolve("safe", make_env(Platform.ROCM))

    assert cuda.get("inductor.triton.cudagraphs") is None
    assert cuda.get("compile.mode") is None
    graphs, mode = rocm.get("inductor.triton.cudagraphs"), rocm.get("compile.mode")
    assert graphs
    assert mode
    assert (graphs.value, graphs.guard) == (False, True)
    assert (mode.value, mode.guard) == ("default", True)


def test_a_profile_overrides_the_profile_it_extends() -> None:
    env = make_env(Platform.ROCM)
    debug, safe = resolve("debug", env), resolve("safe", env)

    assert _value(safe, "process.HIP_LAUNCH_BLOCKING") is None
    assert _value(debug, "process.HIP_LAUNCH_BLOCKING") == "1"
    assert _value(debug, "inductor.max_autotune") is False


def _value(plan: Plan, name: str) -> object:
    decision = plan.get(name)
    assert decision
    return decision.value


def test_a_setting_is_only_chosen_if_this_torch_has_it() -> None:
    name = "inductor.compile_worker_wait_timeout"

    assert resolve("safe", make_env(torch="2.12.0")).get(name) is None
    assert resolve("safe", make_env(torch="2.13.0")).get(name)


def test_plans_compare_by_value_and_print_their_reasons() -> None:
    one, other = (resolve("safe", make_env()) for _ in range(2))

    assert one == other
    assert one != resolve("fast", make_env())
    assert "inductor.max_autotune = False" in str(one)
    assert "has no deadline of its own" in str(one)


def test_finds_settings_by_former_name_and_by_variable() -> None:
    assert setting("dynamo.cache_size_limit").id == "dynamo.recompile_limit"
    assert setting("TORCHINDUCTOR_FREEZING").id == "inductor.freezing"
    with pytest.raises(UnknownNameError, match=r"did you mean 'inductor\.freezing'"):
        setting("inductor.freezin")


def test_settings_on_which_guides_disagree_explain_the_recommendation() -> None:
    for name in ("inductor.aggressive_fusion", "inductor.coordinate_descent_tuning", "dynamo.recompile_limit"):
        assert len(setting(name).disagreement) > 60


def test_every_known_problem_has_all_texts_and_public_evidence() -> None:
    problems = all_problems()

    assert len(problems) >= 25
    for problem in problems:
        assert any(e.rank >= Rank.ISSUE for e in problem.evidence), problem.id
        assert all((problem.symptom, problem.fix, problem.verify, problem.status)), problem.id
        assert not problem.covered_by or find_rule(problem.covered_by), problem.id


@pytest.mark.parametrize(
    "name",
    [
        "hip-graph-replay-corruption",
        "hipblaslt-handle-in-capture",
        "rng-state-read-in-capture",
        "expandable-segments-on-rocm",
        "shared-graph-pool-corruption",
        "second-libamd-smi",
    ],
)
def test_common_problems_are_listed(name: str) -> None:
    assert name in {p.id for p in all_problems()}


def test_replay_corruption_applies_only_to_the_reported_versions() -> None:
    (corruption,) = [p for p in all_problems() if p.id == "hip-graph-replay-corruption"]

    assert [
        v for v in ("7.0", "7.1.1", "7.2.0", "7.2.3", "7.2", "7.2.4", "7.13") if corruption.applies(make_env(rocm=v))
    ] == [
        "7.2.0",
        "7.2.3",
        "7.2",
    ]
    assert not corruption.applies(make_env(Platform.CUDA))


def test_a_problem_applies_only_with_its_variable_or_package() -> None:
    by_id = {p.id: p for p in all_problems()}
    segments = by_id["expandable-segments-on-rocm"]
    moe = by_id["aiter-mxfp4-moe-graph-corruption"]

    assert not segments.applies(make_env())
    assert segments.applies(make_env(variables={"PYTORCH_ALLOC_CONF": "a:1,expandable_segments:True"}))
    assert not moe.applies(make_env(rocm="7.2.0", arch="gfx950"))
    assert moe.applies(make_env(rocm="7.2.0", arch="gfx950", packages={"amd-aiter": "1"}))


def test_an_ordinary_rocm_machine_gets_few_warnings() -> None:
    from rocsolid.rules.engine import check_environment

    env = make_env(rocm="7.1.1", torch="2.13.0", arch="gfx942")
    warnings = [f for f in check_environment(env, resolve("safe", env)) if f.severity > Severity.INFO]

    assert len(warnings) <= 8, [f.key for f in warnings]


def test_images_mentioned_in_guides_have_only_claims_as_evidence() -> None:
    assert len(IMAGES) == 3
    assert all(e.rank is Rank.CLAIM for image in IMAGES for e in image.evidence)


@pytest.mark.parametrize("cause", [c for c in BREAK_CAUSES if c.underline], ids=lambda cause: cause.cause)
def test_a_break_cause_underlines_a_name_in_its_own_example(cause: KnownCause) -> None:
    assert any(underline(line, *cause.underline) != (0, 0) for line in cause.before.splitlines())


def test_every_cause_of_idle_time_is_explained_as_in_the_reference() -> None:
    """The table of the reference page has the same causes, and the same words up to the first colon."""
    page = (ROOT / "docs" / "reference" / "trace.md").read_text(encoding="utf-8")

    assert sorted(info.cause.value for info in IDLE_CAUSES) == sorted(cause.value for cause in IdleCause)
    for info in IDLE_CAUSES:
        assert f"| `{info.cause.value}` | {info.meaning.partition(':')[0]} |" in page
        assert not info.rule or find_rule(info.rule)


def test_chips_have_the_figures_of_their_product() -> None:
    """On RDNA, torch counts pairs of compute units."""
    for one in CHIPS:
        if one.platform is Platform.ROCM:
            peaks = find_peaks(one.product)
            assert peaks is not None, one.product
            assert (peaks.arch, peaks.memory_gb) == (one.arch, one.memory_gib)
            assert peaks.compute_units == one.compute_units * (1 if one.arch.startswith("gfx9") else 2), one.product
