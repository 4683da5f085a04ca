"""What may be varied here, and how a user narrows it."""

from pathlib import Path

import pytest
from tests.support import make_env

from rocsolid.catalog.profiles import resolve
from rocsolid.errors import InputError, PlanError, UnknownNameError, UsageError
from rocsolid.model.platform import Platform
from rocsolid.tune.space import Narrowing, Space, name_of, read_narrowing, space_of, variables_of


def space(platform: Platform = Platform.CUDA, **said: object) -> Space:
    env = make_env(platform=platform)
    return space_of(resolve("fast", env), env, Narrowing(**said))  # type: ignore[arg-type]


def ids(found: Space) -> set[str]:
    return {knob.id for knob in found.knobs}


def test_the_space_comes_from_the_catalogue() -> None:
    found = space(Platform.ROCM)

    assert {"form", "graph", "inductor.freezing", "compile.mode", "process.PYTORCH_TUNABLEOP_ENABLED"} <= ids(found)
    assert "process.GPU_MAX_HW_QUEUES" not in ids(space(Platform.CUDA))


def test_without_a_device_nothing_is_captured_and_no_variable_of_a_driver_is_tried() -> None:
    found = space(Platform.CPU)
    graph = found.knob("graph")

    assert graph is not None
    assert graph.values == (False,)
    assert not any(name.startswith(("process.", "inductor.triton.")) for name in ids(found))


def test_the_first_value_is_the_one_the_plan_has() -> None:
    freezing = space().knob("inductor.freezing")
    padding = space().knob("inductor.shape_padding")

    assert freezing is not None
    assert freezing.values == (False, True)
    assert padding is not None
    assert padding.values == (True, False)  # as upstream ships it


def test_what_is_known_to_hurt_is_tried_only_when_it_is_named() -> None:
    plain = space(Platform.ROCM).knob("inductor.max_autotune")
    named = space(Platform.ROCM, vary={"inductor.max_autotune": []}).knob("inductor.max_autotune")

    assert plain is None
    assert named is not None
    assert named.values == (False, True)


def test_narrowing() -> None:
    only = space(vary={"inductor.freezing": [], "form": ["compiled", "eager"]})
    assert {k.id: k.values for k in only.knobs} == {
        "form": ("compiled", "eager"),
        "graph": (True,),
        "inductor.freezing": (False, True),
    }

    fixed = space(fixed={"inductor.freezing": "true", "form": "eager"})
    assert "inductor.freezing" not in ids(fixed)
    decision = fixed.start.get("inductor.freezing")
    assert decision is not None
    assert decision.value is True
    assert fixed.value({}, "form") == "eager"

    assert "inductor.freezing" not in ids(space(without=["inductor.freezing"]))


def test_a_variant_has_one_name() -> None:
    found = space()

    assert found.variant({"inductor.freezing": False, "form": "compiled"}) == {}
    assert name_of({}) == "start"
    assert name_of(found.variant({"inductor.freezing": True})) == "inductor.freezing=True"


def test_what_has_no_effect_is_left_out() -> None:
    found = space()
    backends = {"inductor.max_autotune_gemm_backends": "ATEN"}

    assert found.variant({"form": "eager", "inductor.freezing": True}) == {"form": "eager"}
    assert found.variant(backends) == {}
    assert found.variant({**backends, "compile.mode": "max-autotune-no-cudagraphs"}).keys() >= backends.keys()


def test_every_variant_comes_once() -> None:
    found = space(vary={"inductor.freezing": [], "form": [], "graph": []})
    names = [name_of(variant) for variant in found.every()]

    assert names[0] == "start"
    assert len(names) == len(set(names)) == 2 * 2 * 2 + 2  # eager knows no freezing


def test_a_narrower_space_knows_what_is_no_longer_part_of_it() -> None:
    narrow = space(vary={"inductor.freezing": [], "form": ["compiled", "eager"]})

    assert narrow.holds({})
    assert narrow.holds({"inductor.freezing": True, "form": "eager"})
    assert not narrow.holds({"form": "regional"})
    assert not narrow.holds({"inductor.aggressive_fusion": True})


def test_the_plan_of_a_variant() -> None:
    found = space()
    plan = found.plan({"inductor.freezing": True, "form": "eager", "process.TRITON_DEFAULT_FP_FUSION": "1"})
    freezing = plan.get("inductor.freezing")

    assert freezing is not None
    assert freezing.value is True
    assert freezing.profile == "tune"
    assert variables_of(plan)[0]["TRITON_DEFAULT_FP_FUSION"] == "1"


def test_wrong_names_and_values_are_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'inductor\.freezing'"):
        space(vary={"inductor.freezin": []})
    with pytest.raises(PlanError, match=r"inductor\.freezing must be 1 or 0"):
        space(fixed={"inductor.freezing": "perhaps"})
    with pytest.raises(UnknownNameError, match="unknown value of form 'half'"):
        space(vary={"form": ["half"]})
    with pytest.raises(UsageError, match="has no candidates of its own"):
        space(vary={"inductor.memory_planning": []})
    (tmp_path / "space.toml").write_text("[vray]\n")
    with pytest.raises(UnknownNameError, match="did you mean 'vary'"):
        read_narrowing(tmp_path / "space.toml")
    with pytest.raises(InputError, match=r"cannot read .*/none\.toml: No such file or directory$"):
        read_narrowing(tmp_path / "none.toml")
    for text, said in (
        ("no = 'graph'", "no is a list of names, and 'graph' is none"),
        ("set = 3", "set is a table, and 3 is none"),
        ("vary.inductor.freezing = true", r"under vary, inductor\.freezing takes a list of values, and True is none"),
    ):
        (tmp_path / "space.toml").write_text(text)
        with pytest.raises(InputError, match=said):
            read_narrowing(tmp_path / "space.toml")


def test_a_space_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text('no = ["graph"]\n[set]\ninductor.freezing = true\n[vary]\n"form" = ["compiled", "eager"]\n')
    said = read_narrowing(file)

    assert said == Narrowing(
        fixed={"inductor.freezing": "True"}, vary={"form": ["compiled", "eager"]}, without=["graph"]
    )
