"""The search space, and how a user restricts it."""

import os
from pathlib import Path

import pytest
from tests.support import make_env

from rocsolid.catalog.profiles import resolve
from rocsolid.errors import InputError, PlanError, UnknownNameError, UsageError
from rocsolid.model.platform import Platform
from rocsolid.tune.space import Restrictions, Space, build_space, process_variables, read_restrictions, variant_name


def space(platform: Platform = Platform.CUDA, **restrictions: object) -> Space:
    env = make_env(platform=platform)
    return build_space(resolve("fast", env), env, Restrictions(**restrictions))  # type: ignore[arg-type]


def ids(found: Space) -> set[str]:
    return {knob.id for knob in found.knobs}


def test_space_comes_from_the_catalogue() -> None:
    found = space(Platform.ROCM)

    assert {"form", "graph", "inductor.freezing", "compile.mode", "process.PYTORCH_TUNABLEOP_ENABLED"} <= ids(found)
    assert "process.GPU_MAX_HW_QUEUES" not in ids(space(Platform.CUDA))


def test_cpu_space_has_no_graph_and_no_gpu_settings() -> None:
    found = space(Platform.CPU)
    graph = found.knob("graph")

    assert graph is not None
    assert graph.values == (False,)
    assert [name for name in ids(found) if name.startswith(("process.", "inductor.triton."))] == [
        "process.OMP_NUM_THREADS"
    ]


def test_cpu_space_has_what_matters_on_a_cpu() -> None:
    found = space(Platform.CPU)
    assert {"inductor.freezing", "inductor.cpp_wrapper", "inductor.max_autotune"} <= set(ids(found))
    threads = found.knob("process.OMP_NUM_THREADS")
    assert threads is not None
    assert all(int(str(value)) <= (os.cpu_count() or 1) for value in threads.values[1:])
    assert "process.OMP_NUM_THREADS" not in ids(space(Platform.CUDA))


def test_first_value_is_that_of_the_plan_or_of_torch() -> None:
    freezing = space().knob("inductor.freezing")
    padding = space().knob("inductor.shape_padding")

    assert freezing is not None
    assert freezing.values == (False, True)
    assert padding is not None
    assert padding.values == (True, False)  # torch's default


def test_critical_value_is_tried_only_when_named() -> None:
    plain = space(Platform.ROCM).knob("inductor.max_autotune")
    named = space(Platform.ROCM, vary={"inductor.max_autotune": []}).knob("inductor.max_autotune")

    assert plain is None
    assert named is not None
    assert named.values == (False, True)


def test_set_vary_and_exclude_restrict_the_space() -> None:
    only = space(vary={"inductor.freezing": [], "form": ["compiled", "eager"]})
    assert {k.id: k.values for k in only.knobs} == {
        "form": ("compiled", "eager"),
        "graph": (True,),
        "inductor.freezing": (False, True),
    }

    fixed = space(fixed={"inductor.freezing": "true", "form": "eager"})
    assert "inductor.freezing" not in ids(fixed)
    decision = fixed.baseline_plan.get("inductor.freezing")
    assert decision is not None
    assert decision.value is True
    assert fixed.value({}, "form") == "eager"

    assert "inductor.freezing" not in ids(space(exclude=["inductor.freezing"]))


def test_variant_has_one_name() -> None:
    found = space()

    assert found.variant({"inductor.freezing": False, "form": "compiled"}) == {}
    assert variant_name({}) == "baseline"
    assert variant_name(found.variant({"inductor.freezing": True})) == "inductor.freezing=True"


def test_choices_without_effect_are_left_out() -> None:
    found = space()
    backends = {"inductor.max_autotune_gemm_backends": "ATEN"}

    assert found.variant({"form": "eager", "inductor.freezing": True}) == {"form": "eager"}
    assert found.variant(backends) == {}
    assert found.variant({**backends, "compile.mode": "max-autotune-no-cudagraphs"}).keys() >= backends.keys()


def test_all_variants_come_once() -> None:
    found = space(vary={"inductor.freezing": [], "form": [], "graph": []})
    names = [variant_name(variant) for variant in found.all_variants()]

    assert names[0] == "baseline"
    assert len(names) == len(set(names)) == 2 * 2 * 2 + 2  # freezing has no effect in eager


def test_space_contains_only_its_own_variants() -> None:
    narrow = space(vary={"inductor.freezing": [], "form": ["compiled", "eager"]})

    assert narrow.contains({})
    assert narrow.contains({"inductor.freezing": True, "form": "eager"})
    assert not narrow.contains({"form": "regional"})
    assert not narrow.contains({"inductor.aggressive_fusion": True})


def test_plan_of_a_variant_holds_its_values() -> None:
    found = space()
    plan = found.plan({"inductor.freezing": True, "form": "eager", "process.TRITON_DEFAULT_FP_FUSION": "1"})
    freezing = plan.get("inductor.freezing")

    assert freezing is not None
    assert freezing.value is True
    assert freezing.profile == "tune"
    assert process_variables(plan)[0]["TRITON_DEFAULT_FP_FUSION"] == "1"


def test_wrong_names_and_values_raise_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'inductor\.freezing'"):
        space(vary={"inductor.freezin": []})
    with pytest.raises(PlanError, match=r"inductor\.freezing must be 1 or 0"):
        space(fixed={"inductor.freezing": "perhaps"})
    with pytest.raises(UnknownNameError, match="form='half' is not a valid value"):
        space(vary={"form": ["half"]})
    with pytest.raises(UsageError, match=r"lists no values to try for inductor\.memory_planning"):
        space(vary={"inductor.memory_planning": []})
    (tmp_path / "space.toml").write_text("[vray]\n")
    with pytest.raises(UnknownNameError, match="did you mean 'vary'"):
        read_restrictions(tmp_path / "space.toml")
    with pytest.raises(InputError, match=r"cannot read .*/none\.toml: No such file or directory$"):
        read_restrictions(tmp_path / "none.toml")
    for text, message in (
        ("exclude = 'graph'", "`exclude` must be a list of names, not 'graph'"),
        ("set = 3", "`set` must be a table, not 3"),
        ("vary.inductor.freezing = true", r"`vary\.inductor\.freezing` must be a list of values, not True"),
    ):
        (tmp_path / "space.toml").write_text(text)
        with pytest.raises(InputError, match=message):
            read_restrictions(tmp_path / "space.toml")


def test_restrictions_are_read_from_toml(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text('exclude = ["graph"]\n[set]\ninductor.freezing = true\n[vary]\n"form" = ["compiled", "eager"]\n')
    found = read_restrictions(file)

    assert found == Restrictions(
        fixed={"inductor.freezing": "True"}, vary={"form": ["compiled", "eager"]}, exclude=["graph"]
    )
