"""The guard over every way into Inductor: what the compiler saw, with and without it."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.routes_list import ROUTES
from tests.support import clean_environ, run_python

pytestmark = pytest.mark.torch
SCRIPT = str(Path(__file__).with_name("routes.py"))


def ran(*args: str, **planted: str) -> dict[str, Any]:
    hidden = (
        {} if "cuda" in args else {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    )  # a device survives no fork
    with tempfile.TemporaryDirectory() as caches:  # of its own: what one run leaves must not serve the next
        env = clean_environ(TORCHINDUCTOR_CACHE_DIR=caches, **hidden, **planted)
        done = run_python(SCRIPT, *args, env=env, timeout=900)
    assert done.code == 0, done.err[-3000:]
    data: dict[str, Any] = done.json()
    return data


@pytest.fixture(scope="module")
def runs() -> list[dict[str, Any]]:
    """Alone, guarded on the stand-in for a ROCm build, and guarded elsewhere; side by side, because each takes a minute."""
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(lambda args: ran(*args), [(), ("--guard", "--pretend-rocm"), ("--guard",)]))


@pytest.fixture(scope="module")
def unguarded(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return runs[0]


@pytest.fixture(scope="module")
def guarded(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return runs[1]


@pytest.fixture(scope="module")
def guarded_elsewhere(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return runs[2]


def wishes(route: dict[str, Any]) -> bool:
    return any(s["max_autotune"] or s["cudagraphs"] or s.get("captures") for s in route["seen"])


def taken(data: dict[str, Any], name: str) -> dict[str, Any]:
    """A route's outcome; skipped where this torch does not have the route, or dies of it when nobody guards it."""
    route: dict[str, Any] = data[name]
    if route["answer"] == "none" or str(route["answer"]).startswith("died"):
        pytest.skip(f"this torch: {route['answer']}")
    return route


@pytest.mark.parametrize("name", ROUTES)
def test_without_the_guard_the_route_gets_what_it_asks_for(unguarded: dict[str, Any], name: str) -> None:
    """The test's own teeth: every route really asks."""
    assert wishes(taken(unguarded, name))


@pytest.mark.parametrize("name", ROUTES)
def test_on_rocm_the_route_is_made_safe(guarded: dict[str, Any], unguarded: dict[str, Any], name: str) -> None:
    route = guarded[name]
    if route["answer"] == "none":
        pytest.skip("this torch does not have the route")
    taken(unguarded, name)

    assert route["seen"], route["answer"]
    assert not wishes(route)
    assert route["told"]  # and said who asked for what
    assert route["answer"] == taken(unguarded, name)["answer"]  # and computes the same


@pytest.mark.parametrize("name", ROUTES)
def test_elsewhere_the_route_is_left_as_it_was(
    guarded_elsewhere: dict[str, Any], unguarded: dict[str, Any], name: str
) -> None:
    alone, beside = taken(unguarded, name), guarded_elsewhere[name]

    assert (beside["seen"], beside["answer"], beside["told"]) == (alone["seen"], alone["answer"], [])


@pytest.mark.parametrize("name", ROUTES)
def test_everything_is_put_back(guarded: dict[str, Any], unguarded: dict[str, Any], name: str) -> None:
    """Layers, values and replaced functions; nothing but what the route and torch leave changed by themselves."""
    assert set(guarded[name]["changed"]) <= set(taken(unguarded, name)["changed"])


def test_what_was_changed_names_the_users_line(guarded: dict[str, Any]) -> None:
    told = [text for route in guarded.values() for text in route["told"]]
    kinds = {text.split(" at ")[0].split(": ")[1] for text in told}

    assert all(SCRIPT in text for text in told)
    assert any("mode at" in text and "asked for True and got False" in text for text in told)
    assert {"mode", "options", "assignment"} <= kinds <= {"mode", "options", "assignment", "annotation"}


@pytest.mark.gpu
def test_on_a_cuda_device_every_route_is_left_as_it_was() -> None:
    """The same routes with tensors on the device; the search is kept short by leaving it one candidate."""
    short = {"TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": "ATEN"}
    alone, guarded = ran("--device", "cuda", **short), ran("--device", "cuda", "--guard", **short)

    for name in ROUTES:
        assert (guarded[name]["seen"], guarded[name]["told"]) == (alone[name]["seen"], []), name
    assert sum(wishes(route) for route in alone.values()) > len(ROUTES) / 2
