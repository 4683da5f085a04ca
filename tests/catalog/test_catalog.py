"""What every declaration must have, and that what it cites is there."""

import json
import re
from collections.abc import Iterator

import pytest
from tests.support import ROOT, make_env

from rocsolid.catalog.capture_errors import MEANINGS
from rocsolid.catalog.capture_rules import BACKING
from rocsolid.catalog.images import IMAGES
from rocsolid.catalog.problems import all_problems
from rocsolid.catalog.profiles import PROFILES, chain, profile, resolve
from rocsolid.catalog.registry import all_settings, find, setting
from rocsolid.errors import UnknownNameError
from rocsolid.model.evidence import Evidence, Rank
from rocsolid.model.finding import Severity
from rocsolid.model.plan import Plan
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Owner
from rocsolid.probe.packages import torch_folder
from rocsolid.rules.engine import all_rules, find_rule
from rocsolid.torchapi.config.upstream import known_releases, upstream

# Every setting, variable and mode that the five guides name, and those they should have named.
NAMED = [
    *(f"inductor.{n}" for n in ["max_autotune", "max_autotune_pointwise", "max_autotune_gemm", "max_autotune_gemm_backends", "coordinate_descent_tuning", "epilogue_fusion", "pattern_matcher", "aggressive_fusion", "group_fusion", "max_fusion_size", "triton.cudagraphs", "triton.cudagraph_trees", "memory_planning", "reorder_for_locality", "benchmark_kernel", "triton.multi_kernel", "shape_padding", "freezing", "trace.enabled", "trace.debug_log", "force_disable_caches"]),
    "dynamo.recompile_limit", "dynamo.cache_size_limit", "compile.mode",
    *["TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE", "TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCH_COMPILE_DEBUG", "TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS", "DISABLE_ADDMM_CUDA_LT", "DISABLE_ADDMM_HIP_LT", "TORCH_BLAS_PREFER_HIPBLASLT", "PYTORCH_TUNABLEOP_ENABLED", "PYTORCH_TUNABLEOP_TUNING", "GPU_MAX_HW_QUEUES", "HIP_FORCE_DEV_KERNARG", "HSA_NO_SCRATCH_RECLAIM", "AMD_SERIALIZE_KERNEL", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "HIP_LAUNCH_BLOCKING", "AMD_LOG_LEVEL", "HIP_CACHE_ENABLED", "MIOPEN_DEBUG_CONV_GEMM", "AMDGCN_USE_BUFFER_OPS", "TRITON_DEFAULT_FP_FUSION"],
]  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_everything_the_guides_name_is_declared(name: str) -> None:
    assert find(name) is not None


def all_evidence() -> Iterator[tuple[str, Evidence]]:
    for declared in all_settings():
        lists = [declared.evidence, *(c.evidence for c in declared.choices), *(h.evidence for h in declared.hazards)]
        yield from ((declared.id, e) for evidence in lists for e in evidence)
    for problem in all_problems():
        yield from ((problem.id, e) for e in problem.evidence)
    for file in all_rules():
        yield from ((file.rule.code, e) for e in file.rule.evidence)
    yield from ((runtime.label, e) for runtime, evidence in BACKING.items() for e in evidence)
    yield from ((meaning.message, e) for meaning in MEANINGS for e in meaning.evidence)


def test_measured_evidence_points_at_a_stored_run() -> None:
    """With hardware, versions and date in it; a fact after `#` is a fact of that record."""
    for who, evidence in all_evidence():
        if evidence.rank is Rank.MEASURED:
            name, _, fact = evidence.ref.partition("#")
            record = json.loads((ROOT / f"evidence/{name}.json").read_text())
            assert {"schema", "what", "date", "device", "torch"} <= record.keys(), who
            assert not fact or fact in record["facts"], (who, evidence.ref)


def test_issues_are_written_so_that_they_have_an_address() -> None:
    for who, evidence in all_evidence():
        if evidence.rank is Rank.ISSUE:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", evidence.ref), (who, evidence.ref)


@pytest.mark.torch
def test_source_evidence_names_a_file_of_torch_and_a_word_in_it() -> None:
    """`torch 2.13 _inductor/config.py max_autotune`: the file is there, and the word is in it."""
    folder = torch_folder()
    assert folder
    checked = 0
    for who, evidence in all_evidence():
        match = re.fullmatch(r"torch 2\.13 (\S+\.(?:py|h))(?: (\S+))?", evidence.ref)
        if evidence.rank is Rank.SOURCE and match:
            text = (folder / match[1]).read_text()
            word = (match[2] or "").rpartition(".")[2]
            assert word in text, (who, evidence.ref)
            checked += 1
    assert checked > 40


def test_every_statement_is_a_sentence() -> None:
    for declared in all_settings():
        for text in (declared.summary, *(c.why for c in declared.choices), *(h.why for h in declared.hazards)):
            assert text[:1] == text[:1].upper() or text[:1].islower(), declared.id
            assert text.endswith("."), (declared.id, text)
    for who, evidence in all_evidence():
        assert evidence.says.endswith("."), (who, evidence.says)


def test_compiler_settings_exist_in_the_releases_they_claim() -> None:
    for declared in all_settings():
        if declared.owner not in (Owner.INDUCTOR, Owner.DYNAMO):
            continue
        for release in known_releases():
            table = upstream(release)
            assert table
            there = declared.id in table.values or declared.id == "inductor.compile_threads"
            assert there == declared.valid.torch.holds(release), (declared.id, release)


def test_variables_of_settings_act_as_declared() -> None:
    """Held against torch's own source: the variable is asked for, and forces exactly where we say so."""
    from rocsolid.torchapi.config.source import Build, read_configs

    folder = torch_folder()
    assert folder
    (read,) = read_configs(folder, [{}], Build(version="2.13.0"))
    for declared in all_settings():
        entry = read.get(declared.id)
        if entry is None or declared.variable is None:
            continue
        names = entry.forcing if declared.variable.wins else entry.asked
        assert declared.variable.name in names, declared.id


def test_profiles_extend_each_other() -> None:
    assert [p.name for p in chain("fast")] == ["fast", "balanced", "safe"]
    assert [p.name for p in chain("debug")] == ["debug", "safe"]
    with pytest.raises(UnknownNameError, match="did you mean 'safe'"):
        profile("saef")


@pytest.mark.parametrize("name", [p.name for p in PROFILES])
@pytest.mark.parametrize("platform", list(Platform))
def test_every_profile_resolves_everywhere(name: str, platform: Platform) -> None:
    plan = resolve(name, make_env(platform))

    assert len(plan) > 10
    assert all(d.why and d.evidence for d in plan)


def test_the_nvidia_path_is_unchanged_by_what_is_advised_for_rocm() -> None:
    cuda, rocm = resolve("safe", make_env(Platform.CUDA)), resolve("safe", make_env(Platform.ROCM))

    assert cuda.get("inductor.triton.cudagraphs") is None
    assert cuda.get("compile.mode") is None
    graphs, mode = rocm.get("inductor.triton.cudagraphs"), rocm.get("compile.mode")
    assert graphs
    assert mode
    assert (graphs.value, graphs.guard) == (False, True)
    assert (mode.value, mode.guard) == ("default", True)


def test_a_more_special_profile_wins() -> None:
    env = make_env(Platform.ROCM)
    debug, safe = resolve("debug", env), resolve("safe", env)

    assert _value(safe, "process.HIP_LAUNCH_BLOCKING") is None
    assert _value(debug, "process.HIP_LAUNCH_BLOCKING") == "1"
    assert _value(debug, "inductor.max_autotune") is False


def _value(plan: Plan, name: str) -> object:
    decision = plan.get(name)
    assert decision
    return decision.value


def test_a_setting_of_a_later_torch_is_not_chosen_for_an_earlier_one() -> None:
    name = "inductor.compile_worker_wait_timeout"

    assert resolve("safe", make_env(torch="2.12.0")).get(name) is None
    assert resolve("safe", make_env(torch="2.13.0")).get(name)


def test_equal_plans_are_equal_and_print_their_reasons() -> None:
    one, other = (resolve("safe", make_env()) for _ in range(2))

    assert one == other
    assert one != resolve("fast", make_env())
    assert "inductor.max_autotune = False" in str(one)
    assert "has no deadline of its own" in str(one)


def test_settings_are_found_by_former_names_and_variables() -> None:
    assert setting("dynamo.cache_size_limit").id == "dynamo.recompile_limit"
    assert setting("TORCHINDUCTOR_FREEZING").id == "inductor.freezing"
    with pytest.raises(UnknownNameError, match=r"did you mean 'inductor\.freezing'"):
        setting("inductor.freezin")


def test_contradictions_between_guides_are_settled_on_the_page() -> None:
    for name in ("inductor.aggressive_fusion", "inductor.coordinate_descent_tuning", "dynamo.recompile_limit"):
        assert len(setting(name).dispute) > 60


def test_at_least_25_problems_are_known_each_with_a_public_thread_or_source() -> None:
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
def test_the_problems_everybody_meets_are_among_them(name: str) -> None:
    assert name in {p.id for p in all_problems()}


def test_replay_corruption_strikes_exactly_where_it_was_reported() -> None:
    (corruption,) = [p for p in all_problems() if p.id == "hip-graph-replay-corruption"]

    assert [
        v for v in ("7.0", "7.1.1", "7.2.0", "7.2.3", "7.2", "7.2.4", "7.13") if corruption.strikes(make_env(rocm=v))
    ] == [
        "7.2.0",
        "7.2.3",
        "7.2",
    ]
    assert not corruption.strikes(make_env(Platform.CUDA))


def test_a_problem_that_needs_a_variable_or_a_package_waits_for_it() -> None:
    by_id = {p.id: p for p in all_problems()}
    segments = by_id["expandable-segments-on-rocm"]
    experts = by_id["aiter-mxfp4-moe-graph-corruption"]

    assert not segments.strikes(make_env())
    assert segments.strikes(make_env(variables={"PYTORCH_ALLOC_CONF": "a:1,expandable_segments:True"}))
    assert not experts.strikes(make_env(rocm="7.2.0", arch="gfx950"))
    assert experts.strikes(make_env(rocm="7.2.0", arch="gfx950", packages={"amd-aiter": "1"}))


def test_an_ordinary_rocm_machine_is_not_flooded() -> None:
    from rocsolid.rules.engine import judge

    env = make_env(rocm="7.1.1", torch="2.13.0", arch="gfx942")
    loud = [f for f in judge(env, resolve("safe", env)) if f.severity > Severity.INFO]

    assert len(loud) <= 8, [f.key for f in loud]


def test_images_of_the_guides_are_claims_and_nothing_more() -> None:
    assert len(IMAGES) == 3
    assert all(e.rank is Rank.CLAIM for image in IMAGES for e in image.evidence)
