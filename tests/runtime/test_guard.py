"""The guard and `rs.apply`: insisted values hold, suggested values are overridden, and everything is restored."""

import logging
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support import make_env

from rocsolid.catalog.profiles import resolve
from rocsolid.catalog.registry import setting
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Severity
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.platform import Platform
from rocsolid.runtime.applied_plan import Applied, Effect
from rocsolid.runtime.guard import Guard
from rocsolid.torchapi.config.live import read_override, write_override

pytestmark = pytest.mark.torch


@pytest.fixture
def config() -> Iterator[Any]:
    import torch._inductor.config as inductor_config

    before = layers(inductor_config)
    yield inductor_config
    assert layers(inductor_config) == before


def layers(module: Any) -> dict[str, Any]:
    return {
        n: (e.env_value_force, e.env_value_default, read_override(e))
        for n, e in module._config.items()
        if n in CHECKED_ENTRIES
    }


CHECKED_ENTRIES = (
    "max_autotune",
    "triton.cudagraphs",
    "max_fusion_size",
    "triton.cudagraph_trees",
    "combo_kernels",
)


def rocm() -> Environment:
    return make_env(Platform.ROCM)


def smaller_kernels(env: Environment) -> Plan:
    """The plan of profile safe with one more value that it only suggests, of a setting that every torch has."""
    size = setting("inductor.max_fusion_size")
    return resolve("safe", env).with_decisions(
        [Decision(id=size.id, value=32, channel=size.channel, why="", profile="safe")]
    )


def test_an_insisted_value_holds_despite_assignments_patches_and_other_threads(config: Any) -> None:
    with Guard(resolve("safe", rocm())) as guard:
        config.max_autotune = True
        with config.patch(max_autotune=True):
            assert config.max_autotune is False
        values: list[object] = []

        def assign() -> None:
            config.max_autotune = True
            values.append(config.max_autotune)

        thread = threading.Thread(target=assign)
        thread.start()
        thread.join()
        assert values == [False]
    assert {(i.how, i.requested, i.used) for i in guard.interventions} == {
        ("assignment", True, False),
        ("config.patch", True, False),
    }
    assert all("test_guard.py:" in i.location for i in guard.interventions)


def test_a_suggested_value_is_overridden_by_a_patch_and_then_restored(config: Any) -> None:
    name = "max_fusion_size"
    with Guard(smaller_kernels(rocm())):
        assert config.max_fusion_size == 32
        with config.patch({name: 5}):
            assert config.max_fusion_size == 5
        assert config.max_fusion_size == 32
    assert config.max_fusion_size == 64


def test_two_guards_nest_and_overlap(config: Any) -> None:
    first, second = Guard(resolve("safe", rocm())), Guard(resolve("fast", rocm()))
    first.keep()
    second.keep()
    first.undo()  # not in reverse order
    config.max_autotune = True
    assert config.max_autotune is False
    assert second.interventions
    assert not first.interventions
    second.undo()
    second.undo()
    assert not first.active


def test_guards_in_two_threads_both_restore(config: Any) -> None:
    barrier = threading.Barrier(2)
    seen: list[bool] = []

    def work(may_end: threading.Event) -> None:
        with Guard(resolve("safe", rocm())):
            barrier.wait()
            config.max_autotune = True
            seen.append(config.max_autotune)
            may_end.wait(1)

    events = [threading.Event(), threading.Event()]
    threads = [threading.Thread(target=work, args=(event,)) for event in events]
    for thread in threads:
        thread.start()
    events[1].set()
    events[0].set()
    for thread in threads:
        thread.join()

    assert seen == [False, False]
    assert config.max_autotune is False


def test_values_are_restored_after_an_exception(config: Any) -> None:
    with pytest.raises(ValueError, match="x"), Guard(resolve("safe", rocm())):
        raise ValueError("x")  # noqa: EM101 - a test
    assert not [w for w in config._config.values() if w.env_value_force is False and w.default is True]


def test_a_guard_without_a_plan_changes_nothing(config: Any) -> None:
    before = layers(config)
    with Guard(None) as guard:
        assert not guard.active
        assert layers(config) == before


def test_a_refusal_is_a_finding_and_is_logged_once(config: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rocsolid"), Guard(resolve("safe", rocm())) as guard:
        for _ in range(3):
            config.max_autotune = True
    (finding,) = guard.findings

    assert (finding.code, finding.severity, finding.subject) == ("GRD001", Severity.WARNING, "inductor.max_autotune")
    assert finding.location.endswith(tuple("0123456789"))
    assert len(caplog.records) == 1


def test_config_caches_are_cleared_in_every_thread(config: Any) -> None:
    """A cache key must contain the enforced values, not those from before the guard."""
    before = config.get_config_copy()["max_autotune_gemm_backends"]
    keys = config.save_config_portable()
    with Guard(resolve("safe", rocm())):
        assert config.get_config_copy()["max_autotune_gemm_backends"] == "ATEN" != before
        assert config.save_config_portable() != keys
    assert config.get_config_copy()["max_autotune_gemm_backends"] == before


@pytest.mark.usefixtures("config")
def test_while_graphs_are_forbidden_the_users_graph_policy_decides_about_everything_else() -> None:
    utils: Any = pytest.importorskip("torch._inductor.cudagraph_utils")
    if not hasattr(utils, "CUDAGraphPolicy"):
        pytest.skip("torch has a cudagraph_policy from 2.12 on")
    inductor: Any = pytest.importorskip("torch._inductor.config")
    base: Any = utils.CUDAGraphPolicy

    class Policy(base):  # type: ignore[misc]
        def wrap_output(self, output_code: Any) -> Any:
            return "wrapped", output_code

    def policy() -> Any:
        return inductor.cudagraph_policy

    requested = SimpleNamespace(cudagraph_info=object(), disabled_cudagraphs_reason=None)
    not_requested = SimpleNamespace(cudagraph_info=None, disabled_cudagraphs_reason=None)
    with Guard(resolve("safe", rocm())) as guard:
        ours = policy()
        assert ours.should_wrap(not_requested)
        assert not ours.should_wrap(requested)
        assert ours.wrap_output("code") == "code"
        with inductor.patch(cudagraph_policy=Policy()):
            assert policy().wrap_output("code") == ("wrapped", "code")
            assert not policy().should_wrap(requested)
        with inductor.patch(cudagraph_policy=inductor.get_config_copy()["cudagraph_policy"]):
            assert policy() is ours, "torch copies its settings, and compares the copies"
            assert ours.wrap_output("code") == "code"
    assert policy() is None
    assert ours.should_wrap(requested), (
        "a copy of the settings that torch kept forbids nothing after the guard has ended"
    )
    assert {i.how for i in guard.interventions} == {"annotation"}


def test_the_cudagraphs_backend_is_refused_although_it_reads_no_config() -> None:
    import torch._inductor.cudagraph_trees as trees

    original = trees.cudagraphify_impl
    with Guard(resolve("safe", rocm())) as guard:
        assert trees.cudagraphify_impl("the model", [], ()) == "the model"
        assert [i.how for i in guard.interventions] == ["backend='cudagraphs'"]
    assert trees.cudagraphify_impl is original


def test_apply_sets_values_shows_effects_and_restores(config: Any) -> None:
    plan = smaller_kernels(make_env(Platform.CPU))
    before = read_override(config._config["combo_kernels"])
    config.combo_kernels = True
    try:
        applied = Applied(plan=plan)
        with applied:
            assert config.combo_kernels is False
            assert config.max_fusion_size == 32
            seen: list[object] = []
            thread = threading.Thread(target=lambda: seen.append(config.max_fusion_size))
            thread.start()
            thread.join()
            assert seen == [32]  # in every thread
            config.combo_kernels = True  # an assignment inside the block overrides the plan
            assert config.combo_kernels is True
        assert config.combo_kernels is True
        assert config.max_fusion_size == 64
        assert applied.effects["inductor.max_autotune"] is Effect.ALREADY
        assert applied.effects["inductor.combo_kernels"] is Effect.SET
        assert applied.effects["process.TRITON_INTERPRET"] is Effect.PROCESS
        assert "already set" in str(applied)
    finally:
        write_override(config._config["combo_kernels"], before)


def test_keep_holds_until_undo(config: Any) -> None:
    applied = Applied(plan=smaller_kernels(rocm())).keep()
    assert config.max_fusion_size == 32
    applied.undo()
    assert config.max_fusion_size == 64
