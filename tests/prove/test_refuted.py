"""Every check says `refuted` when it is shown a lie: a doctored answer, a wrong result, a kernel with spills."""

import copy
import importlib.util
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.prove.fake_gpu import FakeGpu, fake_gpu
from tests.support import make_env

from rocsolid import new_torch
from rocsolid.catalog.capture_rules import CAPTURE_RULES
from rocsolid.catalog.chips import chip
from rocsolid.catalog.problems import all_problems, problem
from rocsolid.catalog.registry import setting
from rocsolid.catalog.runtime_errors import RUNTIME_ERRORS
from rocsolid.model.environment import Environment
from rocsolid.model.platform import Platform
from rocsolid.model.proof import Claim, ClaimResult, ClaimVerdict
from rocsolid.model.setting import Condition
from rocsolid.numerics import error_limit, relative_error
from rocsolid.ops.shipped import references
from rocsolid.probe import active_programs
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.prove import check as check_module
from rocsolid.prove import costs, facts, gpu, problems, runtime, settings
from rocsolid.prove.check import CannotDecide, NotApplicable, Seen, Task, all_claims, load_checks
from rocsolid.prove.gpu_cases import CaseResults
from rocsolid.prove.prove import torch_has_gpu
from rocsolid.torchapi.config.source import SourceEntry

pytestmark = pytest.mark.torch
__all__ = ["fake_gpu"]
CPU, ROCM = make_env(Platform.CPU), make_env(Platform.ROCM)
CLAIMS = {claim.id: claim for claim in all_claims()}


def claim(name: str) -> Claim:
    return CLAIMS[name]


def verdict_of(seen: Seen) -> ClaimVerdict:
    return ClaimVerdict.CONFIRMED if seen.holds else ClaimVerdict.REFUTED


def only(results: Iterable[ClaimResult]) -> ClaimVerdict:
    (result,) = results
    return result.verdict


def a_setting() -> list[ClaimVerdict]:
    declared, asked = setting("inductor.max_autotune"), claim("setting:inductor.max_autotune")
    entries = [
        None,
        SourceEntry(value="yes", variables=("TORCHINDUCTOR_MAX_AUTOTUNE",)),
        SourceEntry(value=False, variables=("OTHER_NAME",)),
    ]
    return [settings.judge_setting(asked, declared, entry, CPU, Path()).verdict for entry in entries]


def a_profile() -> list[ClaimVerdict]:
    asked = replace(claim("setting:inductor.memory_planning/safe"), refs=("inductor.memory_planning", "safe", "True"))
    return [
        only(settings.profiles(Task(claims=(asked,), argument="", env=quick_environment())))
    ]  # a plan is for this machine


def a_variable(monkeypatch: pytest.MonkeyPatch) -> list[ClaimVerdict]:
    monkeypatch.setattr(settings, "_contains", lambda *_: False)
    unread = settings.judge_variable(claim("setting:process.TORCH_LOGS"), "TORCH_LOGS", ROCM)
    monkeypatch.setattr(settings, "_contains", lambda *_: True)
    monkeypatch.setattr(settings, "_readers", lambda _: [Path("libamdhip64.so")])
    read = settings.judge_variable(claim("setting:process.HIP_CACHE_ENABLED"), "HIP_CACHE_ENABLED", ROCM)
    return [unread.verdict, read.verdict]


def a_source(tmp_path: Path) -> list[ClaimVerdict]:
    (tmp_path / "config.py").write_text("nothing here")
    asked = replace(claim("capture-rule:malloc"), refs=("torch 2.13 config.py max_autotune",))
    return [settings.judge_source(asked, {"torch": tmp_path}, {"torch": "2.13.0"}).verdict]


def a_capture_rule() -> list[ClaimVerdict]:
    """A runtime that allows hipMalloc in every mode."""
    allowed = {"returned": 0, "state": "active", "ended": 0, "nodes": 1}
    seen = {mode: {rule.id: dict(allowed) for rule in CAPTURE_RULES} for mode in ("global", "thread_local", "relaxed")}
    return [only(runtime.judge_rules([claim("capture-rule:malloc")], seen, replace(ROCM, rocm_version="7.2.4")))]


def an_error() -> list[ClaimVerdict]:
    error = next(error for error in RUNTIME_ERRORS if error.number == 900)
    return [
        runtime.judge_error(claim("error:900"), error, name, text, hip=True).verdict
        for name, text in ((error.hip, "another text"), ("hipErrorOther", error.text))
    ]


def a_fact() -> list[ClaimVerdict]:
    row = {"failed": "x: expected True, saw False", "seen": {"x": False}}
    return [verdict_of(facts.judge_fact(row, "2.13.0", "2.13.0+cpu"))]


def private_name(monkeypatch: pytest.MonkeyPatch) -> list[ClaimVerdict]:
    class Failed:
        name, problem = "torch._x", "it returned 3"

    monkeypatch.setattr(new_torch, "probe_private_names", lambda: ((Failed(),), ""))
    return [verdict_of(facts.private_names(Task(claims=(), argument="", env=CPU)))]


def a_version(monkeypatch: pytest.MonkeyPatch) -> list[ClaimVerdict]:
    import rocsolid

    monkeypatch.setattr(rocsolid, "__all__", ["capture", "no_such_name"])
    return [verdict_of(facts.versions(Task(claims=(), argument="", env=replace(CPU, python="3.11.7"))))]


def a_probe() -> list[ClaimVerdict]:
    return [
        verdict_of(facts.judge_probe(["gfx90a"], ["gfx942"], Platform.ROCM, Platform.ROCM)),
        verdict_of(facts.judge_probe(["gfx942"], ["gfx942"], Platform.CPU, Platform.ROCM)),
    ]


def observing(monkeypatch: pytest.MonkeyPatch) -> list[ClaimVerdict]:
    import rocsolid

    class Nothing:
        breaks = graphs = ()

    monkeypatch.setattr(rocsolid, "record_compiles", lambda: nullcontext(Nothing()), raising=False)
    return [verdict_of(facts.observe(Task(claims=(), argument="", env=CPU)))]


def test_a_recorded_break_is_confirmed() -> None:
    assert verdict_of(facts.observe(Task(claims=(), argument="", env=CPU))) is ClaimVerdict.CONFIRMED


def a_computation(monkeypatch: pytest.MonkeyPatch) -> list[ClaimVerdict]:
    monkeypatch.setattr(active_programs, "gemm", lambda _: ("wrong", "relative error 0.5", {"relative_error": 0.5}))
    return [verdict_of(facts.active(Task(claims=(), argument="gemm", env=CPU)))]


def a_route() -> list[ClaimVerdict]:
    safe = {"max_autotune": False, "cudagraphs": False}
    unsafe = {"max_autotune": True, "cudagraphs": False}
    runs = [{"options": {"observed": [row]}} for row in (unsafe, safe)]
    return [
        verdict_of(facts.judge_routes(runs[0], runs[0], refuses=True)),
        verdict_of(facts.judge_routes(runs[0], runs[1], refuses=False)),
    ]


def gpu_test() -> list[ClaimVerdict]:
    return [
        facts.judge_tests(CaseResults(passed=("a",), failed=("b",))),
        facts.judge_tests(CaseResults(passed=("a",), died=("c ended the process with SIGSEGV",))),
    ]


def a_capture() -> list[ClaimVerdict]:
    return [
        verdict_of(gpu.judge_capture([0.0, 0.7], [2])),
        verdict_of(gpu.judge_capture([0.0, 0.0], [2, 0])),
    ]


def random_numbers() -> list[ClaimVerdict]:
    return [verdict_of(gpu.judge_rng(drawn)) for drawn in ([[1.0], [1.0], [1.0]], [[1.0], [2.0], [3.0]])]


def a_replay() -> list[ClaimVerdict]:
    lies = {"branch": ([-1.0, 1.0, 7.0], 8, 0), "output": ([1.0, 1.0, 1.0], 8, 0), "memory": ([1.0, 1.0, 7.0], 8, 8)}
    assert all(gpu.judge_replay(about, [1.0, 1.0, 7.0], 8, 0).holds for about in lies)
    return [verdict_of(gpu.judge_replay(about, *lie)) for about, lie in lies.items()]


def a_profile_of_kernels() -> list[ClaimVerdict]:
    assert facts.judge_profile(11).holds
    return [verdict_of(facts.judge_profile(9))]


def a_mistake() -> list[ClaimVerdict]:
    return [gpu.judge_mistake(claim("error:host-copy"), "operation not permitted when stream is capturing").verdict]


def optimizing(monkeypatch: pytest.MonkeyPatch) -> list[ClaimVerdict]:
    import rocsolid

    class Wrong:
        def __call__(self, x: Any) -> Any:
            return x[:, :8] * 0 + 7

        def report(self) -> str:
            return "eager"

    monkeypatch.setattr(rocsolid, "optimize", lambda *_, **__: Wrong(), raising=False)
    return [verdict_of(gpu.optimize(Task(claims=(), argument="", env=CPU)))]


def a_kernel(monkeypatch: pytest.MonkeyPatch) -> list[ClaimVerdict]:
    """The real operator runs, and its result is doctored."""
    from rocsolid.ops import shipped

    right = shipped.rms_norm
    monkeypatch.setattr(shipped, "rms_norm", lambda *inputs: right(*inputs) * 1.01)
    task = Task(claims=(claim("kernel:rms_norm"), claim("kernel:linear")), argument="", env=CPU)
    wrong, untouched = gpu.kernels(task)
    assert untouched.verdict is ClaimVerdict.CONFIRMED
    return [wrong.verdict]


def resources() -> list[ClaimVerdict]:
    names = ("registers", "spills", "LDS bytes", "waves per SIMD")
    right = {f"{kernel} {name}": 24 for kernel in ("gate_mul_kernel", "attention_kernel") for name in names}
    lies = [{**right, f"attention_kernel {name}": 64} for name in names]
    results = [gpu.judge_resources(claim("support:dryrun"), right, seen, "3.7.1") for seen in lies]
    assert gpu.judge_resources(claim("support:dryrun"), right, right, "3.7.1").verdict is ClaimVerdict.CONFIRMED
    assert [sum(not p.holds for p in r.predictions) for r in results] == [1, 1, 1, 1]
    return [r.verdict for r in results]


def a_chip() -> list[ClaimVerdict]:
    here, asked, waves = chip("gfx942"), claim("chip:gfx942"), claim("guide:triton-4571b1")
    right = {name: getattr(here, name) for name in ("wavefront_size", "compute_units", "lds_bytes", "memory_gib")}

    def judged(asked: Claim, product: str = "AMD Instinct MI300X OAM", **seen: int) -> ClaimVerdict:
        return gpu.judge_chip(asked, here, {**right, **seen}, product).verdict

    assert judged(asked) is judged(waves) is ClaimVerdict.CONFIRMED
    assert judged(claim("chip:gfx950")) is ClaimVerdict.NOT_APPLICABLE
    assert judged(asked, compute_units=38, memory_gib=24) is ClaimVerdict.NOT_APPLICABLE  # a partition
    assert judged(asked, "AMD Instinct MI325X", memory_gib=256) is ClaimVerdict.NOT_APPLICABLE
    assert gpu.judge_chip(waves, chip("sm_90"), right, "NVIDIA H200").verdict is ClaimVerdict.NOT_APPLICABLE
    return [
        judged(asked, compute_units=300),
        judged(asked, memory_gib=100),
        judged(asked, "AMD Instinct MI325X", lds_bytes=1),
        judged(waves, wavefront_size=32),
    ]


def vendor_result() -> list[ClaimVerdict]:
    return [verdict_of(gpu.judge_vendor(torch.ones(4), torch.zeros(4) + 2))]


def autotuning() -> list[ClaimVerdict]:
    return [gpu.judge_autotune(claim("setting:inductor.max_autotune/harmful:True"), "nothing to see", "ok").verdict]


def a_cost() -> list[ClaimVerdict]:
    return [
        verdict_of(seen)
        for seen in (
            costs.judge_launch(400.0),
            costs.judge_faster("a node", 9.0, "a launch", 5.0),
            costs.judge_states(100.0, 101.0),
        )
    ]


def a_model() -> list[ClaimVerdict]:
    fast, slow = {"ms": 1.0, "differs": False}, {"ms": 2.0, "differs": False}
    slower = {"eager": slow, "reduce-overhead": fast, "rs.optimize": slow}
    wrong = {"eager": slow, "reduce-overhead": slow, "rs.optimize": {"ms": 1.0, "differs": True}}
    return [verdict_of(costs.judge_model(measured)) for measured in (slower, wrong)]


LIES: dict[str, Callable[..., list[ClaimVerdict]]] = {
    "settings": a_setting,
    "profiles": a_profile,
    "variables": a_variable,
    "cited-source": a_source,
    "capture-rules": a_capture_rule,
    "errors": an_error,
    "fact": a_fact,
    "private-names": private_name,
    "versions": a_version,
    "probe": a_probe,
    "observe": observing,
    "active": a_computation,
    "routes": a_route,
    "gpu-tests": gpu_test,
    "capture": a_capture,
    "rng": random_numbers,
    "capture-mistakes": a_mistake,
    "replay": a_replay,
    "profiler": a_profile_of_kernels,
    "optimize": optimizing,
    "kernels": a_kernel,
    "dryrun": resources,
    "chips": a_chip,
    "vendor": vendor_result,
    "autotune-runs": autotuning,
    "cost": a_cost,
    "model": a_model,
}
PROGRAMS = sorted(name.removeprefix("problem:") for name in load_checks() if name.startswith("problem:"))


def test_every_check_is_shown_a_lie() -> None:
    assert {*LIES, *(f"problem:{name}" for name in PROGRAMS)} == set(load_checks())


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_refuted(name: str, request: pytest.FixtureRequest) -> None:
    wanted = LIES[name].__code__.co_varnames[: LIES[name].__code__.co_argcount]
    verdicts = LIES[name](**{fixture: request.getfixturevalue(fixture) for fixture in wanted})

    assert verdicts
    assert set(verdicts) == {ClaimVerdict.REFUTED}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_symptom_outside_of_the_stated_machines_refutes_a_problem(name: str) -> None:
    declared, present = problem(name), problems.Symptom(seen=True, detail="seen")
    absent = problems.Symptom(seen=False, detail="not seen")
    elsewhere = replace(declared, when=Condition(platforms=frozenset({Platform.CUDA})))
    here = replace(declared, when=Condition())

    assert problems.judge(elsewhere, ROCM, present, always=False)[0] is ClaimVerdict.REFUTED
    assert problems.judge(elsewhere, ROCM, absent, always=False)[0] is ClaimVerdict.NOT_APPLICABLE
    assert problems.judge(here, ROCM, absent, always=True)[0] is ClaimVerdict.REFUTED
    assert problems.judge(here, ROCM, absent, always=False)[0] is ClaimVerdict.COULD_NOT_RUN
    assert problems.judge(here, ROCM, present, always=True)[0] is ClaimVerdict.CONFIRMED


def test_a_program_of_a_problem_gives_its_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole check, with the variable that an image sets: confirmed where the catalogue says so, refuted elsewhere."""
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    (name,) = {c.check for c in all_claims() if c.id == "problem:max-autotune-left-on-by-image"}

    assert {r.verdict for r in check_module.run_check(name, ROCM)} == {ClaimVerdict.CONFIRMED}
    assert {r.verdict for r in check_module.run_check(name, CPU)} == {ClaimVerdict.REFUTED}


def test_what_cannot_be_decided_is_no_verdict() -> None:
    with pytest.raises(CannotDecide, match="not done after"):
        facts.judge_fact({"failed": "not done after 120 s"}, "2.13.0", "2.13.0")
    with pytest.raises(NotApplicable, match=r"with 2\.11\.0"):
        facts.judge_fact({"failed": "x: saw 3", "seen": {"x": 3}}, "2.13.0", "2.11.0")
    for undecided in (CaseResults(), CaseResults(skipped=("a",)), CaseResults(passed=("a",), errors=("b",))):
        assert facts.judge_tests(undecided) is ClaimVerdict.COULD_NOT_RUN
    verdicts = {r.verdict for r in check_module.run_check("capture", no_gpu())}
    assert verdicts <= {ClaimVerdict.COULD_NOT_RUN, ClaimVerdict.CONFIRMED}


def test_an_experiment_on_cpu_builds_says_nothing_about_others() -> None:
    (row,) = check_module.run_check("fact:cpu-capture-queries", ROCM)

    assert (row.verdict, row.detail) == (
        ClaimVerdict.NOT_APPLICABLE,
        "it is about CPU builds of torch; this is one for ROCm",
    )


def test_a_trace_without_a_gpu_has_operators_and_no_kernels() -> None:
    if not torch_has_gpu():
        (row,) = check_module.run_check("profiler", CPU)
        assert row.verdict is ClaimVerdict.NOT_APPLICABLE
        assert "10 of 10 operators are in the trace" in row.detail


@pytest.mark.parametrize("wrong", ["", "random numbers", "in eager"])
def test_captures_of_a_stand_in_for_a_gpu(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import rocsolid

    capture = rocsolid.capture

    def recorded(eager: Any) -> Any:
        captured = capture(eager, backend="record", max_graphs=0 if wrong == "in eager" else 4)
        if wrong != "random numbers" or isinstance(eager, torch.nn.Module):
            return captured
        drawn = torch.rand(8, 64)  # the same random numbers in every replay

        class Stale:
            report = captured.report

            def __call__(self, x: Any) -> Any:
                captured(x)
                return x + drawn[:1]

        return Stale()

    monkeypatch.setattr(rocsolid, "capture", recorded, raising=False)
    seen = gpu.capture(Task(claims=(), argument="", env=CPU))
    assert seen.holds == (not wrong), seen.detail
    assert "21 calls" in seen.detail


@pytest.mark.parametrize("about", ["branch", "output", "memory"])
def test_replays_of_a_stand_in_for_a_gpu(about: str, fake_gpu: FakeGpu) -> None:
    task = Task(claims=(), argument=about, env=CPU)

    assert gpu.replay(task).holds
    fake_gpu.lies = True
    assert gpu.replay(task).holds == (about == "branch")  # the lie leaves the last operator out


def no_gpu() -> Environment:
    return CPU


def test_real_answers_of_hip_confirm_the_capture_rules() -> None:
    """The answers that the real runtimes gave on the rig are those that the table states."""
    import json

    from tests.support import ROOT

    answers = json.loads((ROOT / "evidence/capture-rules-on-hip.json").read_text())["answers"]
    rules = [c for c in all_claims() if c.id.startswith("capture-rule:")]
    for column, release in (("hip-6.4", "6.4.3"), ("hip-7.2", "7.2.4")):
        results = list(runtime.judge_rules(rules, answers[column], replace(ROCM, rocm_version=release)))
        assert {r.verdict for r in results} == {ClaimVerdict.CONFIRMED}, [
            r for r in results if r.verdict is ClaimVerdict.REFUTED
        ]


def test_problems_that_no_program_decides_give_a_reason() -> None:
    assert all(
        p.undecidable or f"problem:{p.id}" in load_checks() or p.check
        for p in all_problems()
        if Platform.ROCM in p.when.platforms
    )


def test_a_model_may_differ_from_eager_as_much_as_eager_from_float64() -> None:
    """24 linear layers in bfloat16: the same layers in float32 are far from eager, and closer to float64."""
    import torch

    from rocsolid.prove.models import MODELS, is_wrong

    torch.manual_seed(0)
    make, make_inputs = MODELS["layers"]
    eager = make().bfloat16()
    inputs = tuple(x.bfloat16() for x in make_inputs())
    exact = copy.deepcopy(eager).float()
    with torch.no_grad():
        want = exact(inputs[0].float()).bfloat16()

        assert relative_error(want, eager(*inputs)) > error_limit(want)
        assert not is_wrong(lambda _: want, eager, inputs)
        assert is_wrong(lambda _: want * 1.2, eager, inputs)


class Vendor:
    """A package of a vendor, with results that are off by a factor."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def flash_attn_func(self, q: Any, k: Any, v: Any, softmax_scale: Any = None, causal: bool = False) -> Any:  # noqa: FBT001, FBT002
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return references.attention(q, k, v, softmax_scale, causal).transpose(1, 2) * self.factor

    def rmsnorm2d_fwd(self, x: Any, weight: Any, eps: float) -> Any:
        return references.rms_norm(x, weight, eps)

    def rmsnorm2d_fwd_with_add(self, out: Any, x: Any, residual: Any, total: Any, weight: Any, eps: float) -> None:
        for target, value in zip((out, total), references.add_rms_norm(x, residual, weight, eps), strict=True):
            target.copy_(value)

    @property
    def tgemm(self) -> Any:
        return SimpleNamespace(mm=lambda x, weight, bias, otype: references.linear(x, weight, bias).to(otype))


@pytest.mark.usefixtures("fake_gpu")
@pytest.mark.parametrize(("package", "factor", "holds"), [("flash_attn", 1.0, True), ("flash_attn", 1.1, False), ("aiter", 1.0, True), ("aiter", 1.1, False), ("ck4inductor", 1.0, True)])  # fmt: skip
def test_operators_of_a_vendor(package: str, factor: float, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    """The whole check, with a stand-in for the package."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: package)
    for name in (package, f"{package}.tuned_gemm"):
        monkeypatch.setitem(sys.modules, name, Vendor(factor))
    seen = gpu.vendor(Task(claims=(), argument=package, env=ROCM))

    assert seen.holds == holds, seen.detail
    assert (seen.detail.count("error"), package) in {(4, "aiter"), (1, "flash_attn"), (1, "ck4inductor")}


def test_an_absent_vendor_is_not_applicable() -> None:
    with pytest.raises(NotApplicable, match="no_such_package is not installed"):
        gpu.vendor(Task(claims=(), argument="no_such_package", env=ROCM))
