"""On the CPU `rs.optimize` tries settings with the fastest compiled form, and keeps those that make it faster."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.support import make_env

import rocsolid as rs
from rocsolid.catalog import candidates
from rocsolid.catalog.profiles import resolve
from rocsolid.catalog.registry import all_settings
from rocsolid.errors import UsageError
from rocsolid.measure import clock
from rocsolid.model.form import Form
from rocsolid.model.optimize_report import FormOutcome
from rocsolid.model.plan import Decision
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Channel
from rocsolid.numerics import Tolerance

pytest.importorskip("torch")
import torch

from rocsolid.api import optimize as api
from rocsolid.optimize import optimized
from rocsolid.optimize.attention import ATTENTION, ChosenAttention
from rocsolid.optimize.autocast import AUTOCAST, has_bfloat16_instructions
from rocsolid.optimize.child_race import NoChildRace
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.graph_passes import SuitableCalls, is_pass
from rocsolid.optimize.settings_search import TriedSetting, decisions_of
from rocsolid.runtime.compiled import choose_options, compile_with_plan

pytestmark = pytest.mark.torch
FREEZING, CPP_WRAPPER, GEMM = "inductor.freezing", "inductor.cpp_wrapper", "inductor.max_autotune_gemm"


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class FakeTime:
    """The time that `takes` adds to: what a busy machine takes does not decide a test."""

    now = 0.0

    @classmethod
    def perf_counter(cls) -> float:
        return cls.now


def takes(seconds: float) -> Any:
    """A function that doubles its argument in this time of the measured clock."""

    def double(x: Any) -> Any:
        FakeTime.now += seconds
        return x * 2

    return double


def optimize_with_times(
    monkeypatch: pytest.MonkeyPatch, milliseconds: dict[frozenset[str], float], setup_s: float = 0.0, **options: Any
) -> Any:
    """Optimize a function that takes 16 ms in eager and 8 ms compiled; the table has its time for each set of settings."""

    def forms(_: Any, plan: rs.Plan, *__: Any, **___: Any) -> Any:
        settings = frozenset(d.id for d in plan if d.profile == "optimize")
        function = takes(milliseconds.get(settings, 8.0) / 1000)

        def make() -> Any:
            time.sleep(setup_s)
            return function

        return {Form.EAGER: lambda: model, Form.COMPILED: make}

    model = takes(0.016)
    monkeypatch.setattr(clock, "time", FakeTime)
    monkeypatch.setattr(optimized, "available_forms", forms)
    return rs.optimize(model, torch.ones(2), **options)


def outcomes(report: Any) -> dict[str, FormOutcome]:
    return {result.label: result.outcome for result in report.forms}


def test_each_setting_is_kept_if_it_makes_the_form_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = frozenset({FREEZING})
    times = {frozen: 4.0, frozen | {CPP_WRAPPER}: 7.0, frozen | {GEMM}: 1.0}
    report = optimize_with_times(monkeypatch, times, freeze=True).report()

    assert report.chosen is Form.COMPILED
    assert report.settings == {FREEZING: True, GEMM: True}
    assert outcomes(report) == {
        "eager": FormOutcome.NOT_CHOSEN,
        "compiled": FormOutcome.NOT_CHOSEN,
        "compiled, freezing=True": FormOutcome.NOT_CHOSEN,
        "compiled, freezing=True, cpp_wrapper=True": FormOutcome.NOT_CHOSEN,
        "compiled, freezing=True, max_autotune_gemm=True": FormOutcome.CHOSEN,
    }
    assert "'compiled, freezing=True, max_autotune_gemm=True' was chosen" in str(report)


def test_weights_become_constants_only_on_request_and_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = optimize_with_times(monkeypatch, {}).report()
    with torch.enable_grad():
        with_gradients = optimize_with_times(monkeypatch, {}, freeze=True).report()

    for report in (tried, with_gradients):
        assert not [label for label in outcomes(report) if "freezing" in label]


def test_a_setting_can_win_where_the_compiled_form_was_not_faster_than_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    report = optimize_with_times(
        monkeypatch, {frozenset(): 20.0, frozenset({CPP_WRAPPER}): 2.0, frozenset({CPP_WRAPPER, GEMM}): 20.0}
    ).report()

    assert report.settings == {CPP_WRAPPER: True}
    assert report.chosen is Form.COMPILED


def test_a_setting_is_skipped_if_its_set_up_would_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimized, "_SETTINGS_S", 0.7)
    report = optimize_with_times(monkeypatch, {}, setup_s=0.4).report()
    gemm = report.forms[-1]

    assert GEMM in gemm.settings
    assert gemm.outcome is FormOutcome.SKIPPED
    assert "set-up would take about" in gemm.why
    assert "budget_s" in gemm.why


def test_the_next_process_uses_the_settings_of_the_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2

    made: list[Sequence[str]] = []

    def forms(model: Any, plan: rs.Plan, *_: Any, **__: Any) -> Any:
        settings = [d.id for d in plan if d.profile == "optimize"]
        compiled = torch.compile(model, backend="inductor")

        def make() -> Any:
            made.append(settings)
            compiled(torch.ones(2))  # so that there is something to save
            return takes(0.001 if settings == [CPP_WRAPPER] else 0.004)

        return {Form.EAGER: lambda: takes(0.01), Form.COMPILED: make}

    monkeypatch.setattr(clock, "time", FakeTime)
    monkeypatch.setattr(optimized, "available_forms", forms)
    first = rs.optimize(Model(), torch.ones(2)).report()
    made.clear()
    second = rs.optimize(Model(), torch.ones(2)).report()

    assert first.settings == second.settings == {CPP_WRAPPER: True}
    assert made == [[CPP_WRAPPER]]


def test_frozen_weights_are_compiled_again_and_watched() -> None:
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    x = torch.ones(2, 4)
    plan = rs.resolve("fast")
    freezing = next(setting for setting in all_settings() if setting.id == FREEZING)
    decision = Decision(id=FREEZING, value=True, channel=freezing.channel, why="", profile="optimize")
    plain = compile_with_plan(plan, model)
    frozen = compile_with_plan(plan.with_decisions([decision]), model)
    plain(x), frozen(x)
    eager = model(x).clone()
    model[0].weight.mul_(2)
    assert torch.allclose(frozen(x), eager)  # as the hazard of this setting says
    assert not torch.allclose(plain(x), eager)

    report = rs.optimize(model, x, budget_s=0).report()
    watched = optimized.Optimized(frozen, model, report, weights_are_constants=True)
    later = optimized.Optimized(frozen, model, report, weights_are_constants=True)
    watched(x)
    model[0].weight.mul_(2)

    for changed in (watched, later):  # after the first call, and before it
        assert torch.equal(changed(x), model(x))
        assert "were changed" in changed.report().unused_because


def test_a_model_that_writes_to_its_own_buffer_is_not_taken_for_changed() -> None:
    class Counts(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * 2

    model = Counts()
    watched = optimized.Optimized(
        model.forward, model, rs.optimize(model, torch.ones(1), budget_s=0).report(), weights_are_constants=True
    )
    for _ in range(3):
        watched(torch.ones(1))
    assert not watched.report().unused_because


def test_bfloat16_is_tried_if_the_cpu_has_it_and_the_caller_allows_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "has_bfloat16_instructions", lambda: True)
    monkeypatch.setattr(candidates, "ON_CPU", [x for x in candidates.ON_CPU if x.id == AUTOCAST])
    with monkeypatch.context() as patch:
        strict = optimize_with_times(patch, {}).report()
    linear = torch.nn.Linear(64, 3)
    x = torch.randn(4, 64)
    fast = rs.optimize(linear, x, limit=0.02)
    [tried] = [form for form in fast.report().forms if form.settings]

    assert outcomes(strict).keys() == {"eager", "compiled"}
    assert tried.label == "compiled, autocast=bfloat16"
    assert tried.outcome in (FormOutcome.CHOSEN, FormOutcome.NOT_CHOSEN)
    assert 1e-4 < (tried.relative_error or 0.0) < 0.02  # it did compute in bfloat16
    assert fast(x).dtype is torch.float32


def test_bfloat16_needs_instructions_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for capabilities, fast in (({"avx512_bf16": False}, False), ({"amx_bf16": True}, True), ({"sve_bf16": True}, True)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found, raising=False)
        assert has_bfloat16_instructions() is fast
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert not has_bfloat16_instructions()


def test_freezing_is_tried_before_the_model_is_returned() -> None:
    with pytest.raises(UsageError, match="freeze=True and progressive=True exclude each other"):
        rs.optimize(torch.sin, torch.ones(2), freeze=True, progressive=True)


def tried_on(platform: Platform, arch: str, model: Any = torch.sin, **options: bool) -> list[tuple[str, Any]]:
    """What is tried besides graph passes."""
    env = make_env(platform, arch=arch)
    options = {"freeze": False, **options}
    tried = api._tried_settings(model, resolve("fast", env), env, Tolerance(), on_device=True, **options)
    return [(x.decision.id, x.decision.value) for x in tried if not is_pass(x.decision.id)]


def test_the_catalogue_declares_what_is_tried_on_a_gpu() -> None:
    convolution = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1))
    pdl, combo, layout = "inductor.triton.enable_pdl", "inductor.combo_kernels", "inductor.layout_optimization"
    kernels = [(ATTENTION, "efficient"), (ATTENTION, "cudnn")]
    assert tried_on(Platform.CUDA, "sm_90") == [(pdl, True), (ATTENTION, "flash"), (combo, True), *kernels]
    assert tried_on(Platform.CUDA, "sm_80") == [(combo, True), *kernels]
    assert tried_on(Platform.CUDA, "sm_80", freeze=True) == [(FREEZING, True), (combo, True), *kernels]
    assert tried_on(Platform.CUDA, "sm_80", has_budget=True) == [(combo, True), *kernels, (GEMM, True)]
    assert tried_on(Platform.ROCM, "gfx942") == []
    assert tried_on(Platform.ROCM, "gfx942", convolution) == [(layout, True)]
    with torch.enable_grad():
        assert FREEZING not in dict(tried_on(Platform.CUDA, "sm_80", freeze=True))


def test_libraries_for_products_are_tried_on_rocm() -> None:
    def libraries(platform: Platform, arch: str, **options: bool) -> list[Any]:
        env = make_env(platform, arch=arch)
        tried = api._tried_settings(
            torch.sin, resolve("fast", env), env, Tolerance(), freeze=False, on_device=True, **options
        )
        return [x.decision.value for x in tried if x.decision.id == "rocsolid.library"]

    assert libraries(Platform.CUDA, "sm_90") == []
    assert libraries(Platform.ROCM, "gfx942") == ["hipblaslt", "hipblas"]
    assert libraries(Platform.ROCM, "gfx1100", has_budget=True) == ["hipblas", "tunableop"]


@pytest.mark.parametrize("place", ["ON_GPU", "ON_CPU"])
def test_candidates_are_values_of_settings_or_of_rs_optimize(place: str) -> None:
    settings = {setting.id: setting for setting in all_settings()}
    declared = getattr(candidates, place)
    assert len({(x.id, x.value) for x in declared}) == len(declared)
    for candidate in declared:
        for name, value in ((candidate.id, candidate.value), *candidate.also):
            if name in settings:
                assert isinstance(value, settings[name].value_type)
            else:
                assert is_pass(name) or name in (ATTENTION, AUTOCAST), name


def test_matrix_products_are_benchmarked_without_convolutions() -> None:
    env = make_env(Platform.CUDA, arch="sm_90")
    tried = api._tried_settings(
        torch.sin, resolve("fast", env), env, Tolerance(), freeze=False, on_device=True, has_budget=True
    )
    options, _ = choose_options(resolve("fast", env).with_decisions(decisions_of({GEMM: True}, tried)), None, None)
    assert options["max_autotune_gemm"] is True
    assert options["max_autotune_conv_backends"] == "ATEN"


A, B, C, D = "inductor.a", "inductor.b", "inductor.c", "inductor.d"
ALL = frozenset({A, B, C})


def setting(name: str, *values: Any, factor: float = 1.0, **options: Any) -> TriedSetting:
    decision = Decision(id=name, value=(*values, True)[0], channel=Channel.OPTION, why="", profile="optimize")
    return TriedSetting(decision, factor, **options)


@pytest.mark.parametrize(
    ("times", "kept", "tried"),
    [
        ({ALL: 4.0, ALL | {D}: 2.0}, {A, B, C, D}, [ALL, {A, B}, ALL | {D}, {A, B, D}]),
        ({ALL: 4.0, frozenset({A, B}): 2.0}, {A, B}, [ALL, {A, B}, {A, B, D}]),
        ({ALL: 20.0, frozenset({A, B}): 4.0}, {A, B}, [ALL, {A, B}, {A, B, D}]),
        (
            {ALL: 20.0, frozenset({A, B}): 20.0, frozenset({B}): 4.0},
            {B},
            [ALL, {A, B}, set(), {A}, {B}, {B, C}, {B, D}],
        ),
    ],
    ids=["all help", "the suspect one hinders", "with all it is slower than eager", "only one helps"],
)
def test_joint_settings_are_tried_together_and_suspect_ones_are_left_out_once(
    times: dict[frozenset[str], float], kept: set[str], tried: list[set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [
        setting(A, joint=True),
        setting(B, joint=True),
        setting(C, joint=True, suspect=True),
        setting(D, factor=2),
    ]
    monkeypatch.setattr(api, "_tried_settings", lambda *_, **__: settings)
    report = optimize_with_times(monkeypatch, {frozenset({A, B, D}): 20.0, **times}).report()
    assert report.settings.keys() == kept
    assert [set(form.settings) for form in report.forms[1:]] == tried


def test_without_suspect_settings_the_joint_ones_are_compared_with_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_tried_settings", lambda *_, **__: [setting(A, joint=True)])
    report = optimize_with_times(monkeypatch, {frozenset(): 4.0}).report()
    assert [set(form.settings) for form in report.forms[1:]] == [{A}, set()]
    assert report.settings == {}


def test_if_no_form_works_with_the_joint_settings_all_are_raced_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def forms(_: Any, plan: rs.Plan, *__: Any, **___: Any) -> Any:
        fails = any(d.profile == "optimize" for d in plan)
        wrong = {Form.REGIONAL: lambda: lambda x: x * 3, Form.COMPILED: lambda: 1 / 0}
        right = {Form.REGIONAL: lambda: takes(0.008), Form.COMPILED: lambda: takes(0.004)}
        return {Form.EAGER: lambda: model, **(wrong if fails else right)}

    model = takes(0.016)
    monkeypatch.setattr(clock, "time", FakeTime)
    monkeypatch.setattr(optimized, "available_forms", forms)
    monkeypatch.setattr(api, "_tried_settings", lambda *_, **__: [setting(A, joint=True)])
    report = rs.optimize(model, torch.ones(2)).report()
    assert (report.chosen, report.settings) == (Form.COMPILED, {})
    assert [x.outcome for x in report.forms if x.settings] == [FormOutcome.WRONG, FormOutcome.FAILED]


@pytest.mark.parametrize("killed", [True, False])
def test_where_the_child_process_was_killed_nothing_else_is_tried(
    *, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[set[str]] = []
    model = takes(0.016)

    def forms(_: Any, plan: rs.Plan, *__: Any, **___: Any) -> Any:
        made.append({d.id for d in plan if d.profile == "optimize"})
        return {Form.EAGER: lambda: model, Form.COMPILED: lambda: takes(0.008)}

    def race() -> NoChildRace:
        return NoChildRace("the child process crashed", failed=True, killed=killed)

    monkeypatch.setattr(clock, "time", FakeTime)
    monkeypatch.setattr(optimized, "available_forms", forms)
    examples, tried = [Example((torch.ones(2),), {})], [setting(A, joint=True)]
    options: dict[str, Any] = {"capture": None, "budget_s": None, "tried_settings": tried, "child_race": race}
    report = optimized.optimized(model, examples, rs.resolve("fast"), **options).report()

    assert ({A} in made) is not killed
    assert ("without settings and graph passes" in report.raced_in) is killed


@pytest.mark.parametrize(("layers", "whole_works"), [(12, True), (12, False), (24, True)])
def test_few_layers_are_compiled_with_the_whole_model(
    layers: int, *, whole_works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Form] = []

    def forms(*_: Any, **__: Any) -> Any:
        def make(form: Form) -> Any:
            made.append(form)
            if form.id == Form.COMPILED.id and not whole_works:
                raise RuntimeError
            return takes(0.016)

        return {form: lambda form=form: make(form) for form in Form}

    monkeypatch.setattr(clock, "time", FakeTime)
    monkeypatch.setattr(optimized, "available_forms", forms)
    monkeypatch.setattr(optimized, "repeated_layers", lambda _: [1] * layers)
    monkeypatch.setattr(api, "_tried_settings", lambda *_, **__: [])
    report = rs.optimize(takes(0.016), torch.ones(2)).report()
    skipped = [x for x in report.forms if x.outcome is FormOutcome.SKIPPED]
    if layers == 12 and whole_works:
        assert made == [Form.EAGER, Form.COMPILED_GRAPH, Form.COMPILED, Form.EAGER_GRAPH]
        assert [x.form for x in skipped] == [Form.REGIONAL, Form.REGIONAL_GRAPH]
        assert "the whole model, with 12 layers" in skipped[0].why
    else:
        assert len(made) == 6
        assert not skipped
        assert made.index(Form.REGIONAL_GRAPH) < made.index(Form.COMPILED_GRAPH) or layers == 12


def test_without_a_budget_the_search_ends_when_nothing_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_tried_settings", lambda *_, **__: [setting(f"inductor.{i}") for i in range(6)])
    for budget_s, skipped in ((None, 4), (600.0, 0)):
        report = optimize_with_times(monkeypatch, {}, budget_s=budget_s).report()
        outcome = [form.outcome for form in report.forms if form.settings]
        assert outcome.count(FormOutcome.SKIPPED) == skipped, str(report)
    assert all("brought nothing" in form.why for form in report.forms if form.outcome is FormOutcome.SKIPPED)


def test_other_values_of_a_setting_replace_it(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [setting(A, "one", joint=True), setting(B, joint=True), setting(A, "two")]
    monkeypatch.setattr(api, "_tried_settings", lambda *_, **__: settings)
    report = optimize_with_times(monkeypatch, {frozenset({A, B}): 4.0}).report()
    assert [dict(form.settings) for form in report.forms if form.settings] == [
        {A: "one", B: True},
        {A: "two", B: True},
    ]


def test_settings_are_tried_with_the_layers_if_these_are_compiled_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each line: the form, its settings, how long its set-up and a call take."""
    made: list[tuple[Form, set[str]]] = []
    times = {
        (Form.COMPILED, frozenset()): 0.004,
        (Form.COMPILED, frozenset({A, B})): 0.002,
        (Form.REGIONAL, frozenset({A, B})): 0.003,
        (Form.REGIONAL, frozenset({A})): 0.001,
        (Form.COMPILED, frozenset({A})): 0.0005,
    }

    def forms(_: Any, plan: rs.Plan, *__: Any, **___: Any) -> Any:
        settings = frozenset(d.id for d in plan if d.profile == "optimize")

        def make(form: Form) -> Any:
            if form is not Form.EAGER:
                made.append((form, set(settings)))
                time.sleep(0.3 if form is Form.COMPILED else 0.0)
            return takes(times.get((form, settings), 0.016 if form is Form.EAGER else 0.008))

        return {form: lambda form=form: make(form) for form in (Form.EAGER, Form.REGIONAL, Form.COMPILED)}

    monkeypatch.setattr(clock, "time", FakeTime)
    monkeypatch.setattr(optimized, "available_forms", forms)
    settings = [setting(A, joint=True), setting(B, joint=True, suspect=True)]
    monkeypatch.setattr(api, "_tried_settings", lambda *_, **__: settings)
    report = rs.optimize(takes(0.016), torch.ones(2)).report()

    assert (report.chosen, set(report.settings)) == (Form.COMPILED, {A})
    assert made == [(Form.REGIONAL, {A, B}), (Form.COMPILED, {A, B}), (Form.REGIONAL, {A}), (Form.COMPILED, {A})]


def test_a_value_that_the_plan_forbids_or_has_already_is_not_tried() -> None:
    combo = next(setting for setting in all_settings() if setting.id == "inductor.combo_kernels")
    env = make_env(Platform.CUDA, arch="sm_80")
    for value, guard in ((False, True), (True, False)):
        decision = Decision(id=combo.id, value=value, channel=combo.channel, why="", profile="safe", guard=guard)
        plan = rs.resolve("fast").with_decisions([decision])
        tried = api._tried_settings(torch.sin, plan, env, Tolerance(), freeze=False, on_device=True)
        assert combo.id not in [x.decision.id for x in tried]


class Attends(torch.nn.Module):  # type: ignore[misc]
    """A layer with attention."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Sequential(torch.nn.Linear(8, 8))

    def forward(self, x: Any) -> Any:
        heads = self.project(x).view(1, 4, 2, 4).transpose(1, 2)
        seen = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return x + seen.transpose(1, 2).reshape(1, 4, 8)


def test_the_attention_kernel_is_chosen_while_the_model_is_traced() -> None:
    torch._dynamo.reset()
    graphs: list[list[str]] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append([str(node.args) for node in graph.graph.nodes if "_backend_from_string" in str(node.target)])
        return graph.forward

    x, wrap = torch.randn(1, 4, 8), ChosenAttention("flash")
    layers = [Attends() for _ in range(3)]
    for layer in layers:
        compiled = torch.compile(wrap(layer.forward), backend=backend, fullgraph=True)
        assert torch.allclose(compiled(x), layer(x), atol=1e-6)
    assert len(graphs) == 1, "layers with the same code are compiled once"
    assert graphs[0][:3] == ["('FLASH_ATTENTION',)", "('EFFICIENT_ATTENTION',)", "('MATH',)"]

    captured = rs.capture(wrap(layers[0]), backend="record")
    captured(x), captured(x)
    layers[0].project[0].weight.data = torch.zeros(8, 8)  # moved to another address: this must be noticed
    assert torch.allclose(captured(x), layers[0](x))

    with SuitableCalls({ATTENTION}) as calls:
        torch.nn.functional.relu(x)
        assert not calls.found
        layers[0](x)
        assert calls.found == {ATTENTION}


def test_flash_attention_is_tried_for_models_with_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    decision = Decision(id=ATTENTION, value="flash", channel=Channel.SCOPE, why="", profile="optimize")
    monkeypatch.setattr(api, "_tried_settings", lambda *_, **__: [TriedSetting(decision)])
    monkeypatch.setattr(
        optimized,
        "compile_with_plan",
        lambda plan, model, **options: compile_with_plan(plan, model, backend="eager", **options),
    )
    x = torch.randn(1, 4, 8)
    layer = Attends()
    report = rs.optimize(layer, x).report()
    [tried] = [form for form in report.forms if form.settings]
    assert tried.label == "compiled, attention=flash"
    assert tried.outcome in (FormOutcome.CHOSEN, FormOutcome.NOT_CHOSEN)
    assert not [form for form in rs.optimize(layer.project, x).report().forms if form.settings]


@pytest.mark.gpu
def test_on_a_gpu_settings_are_tried_and_constant_weights_are_watched() -> None:
    layers = torch.nn.ModuleList(Attends() for _ in range(3))
    model = torch.nn.Sequential(*layers).cuda().half().eval()
    x = torch.randn(1, 4, 8, device="cuda").half()
    fast = rs.optimize(model, x, freeze=True, race_in="process")
    report = fast.report()
    tried = {name for form in report.forms for name in form.settings}
    assert FREEZING in tried, str(report)
    assert not [form for form in report.forms if form.settings and form.outcome is FormOutcome.WRONG], str(report)
    assert torch.allclose(fast(x), model(x), atol=1e-2)
    layers[0].project[0].weight.mul_(2)
    assert torch.allclose(fast(x), model(x), atol=1e-2)
    constant = bool(report.settings.get(FREEZING))
    assert bool(fast.report().unused_because) is constant
