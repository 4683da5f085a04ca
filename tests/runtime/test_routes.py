"""The guard on every route into Inductor: the settings that the compiler saw, with and without it."""

import re
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
    # A GPU context does not survive a fork.
    hidden = {} if "cuda" in args else {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory() as caches:  # an own cache: runs must not use each other's results
        env = clean_environ(TORCHINDUCTOR_CACHE_DIR=caches, **hidden, **planted)
        done = run_python(SCRIPT, *args, env=env, timeout=900)
    assert done.code == 0, done.err[-3000:]
    data: dict[str, Any] = done.json()
    return data


@pytest.fixture(scope="module")
def runs() -> list[dict[str, Any]]:
    """Without guard, guarded on a pretended ROCm build, and guarded on the CPU; in parallel, because each takes a minute."""
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


def unsafe(route: dict[str, Any]) -> bool:
    return any(s["max_autotune"] or s["cudagraphs"] or s.get("captures") for s in route["seen"])


def taken(data: dict[str, Any], name: str) -> dict[str, Any]:
    """A route's outcome; skipped if this torch does not have the route, or crashes on it without the guard."""
    route: dict[str, Any] = data[name]
    if route["result"] == "none" or str(route["result"]).startswith("died"):
        pytest.skip(f"this torch: {route['result']}")
    return route


@pytest.mark.parametrize("name", ROUTES)
def test_without_the_guard_the_route_gets_the_requested_values(unguarded: dict[str, Any], name: str) -> None:
    """Otherwise the other tests would prove nothing."""
    assert unsafe(taken(unguarded, name))


@pytest.mark.parametrize("name", ROUTES)
def test_on_rocm_the_guard_refuses_the_values_on_every_route(
    guarded: dict[str, Any], unguarded: dict[str, Any], name: str
) -> None:
    route = guarded[name]
    if route["result"] == "none":
        pytest.skip("this torch does not have the route")
    taken(unguarded, name)

    assert route["seen"], route["result"]
    assert not unsafe(route)
    assert route["reported"]
    assert route["result"] == taken(unguarded, name)["result"]  # the same numbers


@pytest.mark.parametrize("name", ROUTES)
def test_on_other_platforms_the_route_is_unchanged(
    guarded_elsewhere: dict[str, Any], unguarded: dict[str, Any], name: str
) -> None:
    alone, route = taken(unguarded, name), guarded_elsewhere[name]

    assert (route["seen"], route["result"], route["reported"]) == (alone["seen"], alone["result"], [])


@pytest.mark.parametrize("name", ROUTES)
def test_everything_is_restored(guarded: dict[str, Any], unguarded: dict[str, Any], name: str) -> None:
    """Layers, values and patched functions, except for what the route and torch change without the guard."""
    assert set(guarded[name]["changed"]) <= set(taken(unguarded, name)["changed"])


def test_interventions_name_the_users_line_and_the_way_of_the_request(guarded: dict[str, Any]) -> None:
    reported = [text for route in guarded.values() for text in route["reported"]]
    ways = {re.split(r"[=\[]", text.split("(requested by ")[1].splitlines()[0].rstrip(")"))[0] for text in reported}

    assert all(SCRIPT in text for text in reported)
    assert any("True refused, False used (requested by mode='reduce-overhead')" in text for text in reported)
    assert {"mode", "options", "assignment"} <= ways
    assert ways <= {"mode", "options", "config.patch", "assignment", "annotation"}


@pytest.mark.gpu
def test_on_a_cuda_device_every_route_is_unchanged() -> None:
    """The same routes with tensors on the GPU; one GEMM backend keeps autotuning short."""
    short = {"TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": "ATEN"}
    alone, guarded = ran("--device", "cuda", **short), ran("--device", "cuda", "--guard", **short)

    for name in ROUTES:
        assert (guarded[name]["seen"], guarded[name]["reported"]) == (alone[name]["seen"], []), name
    assert sum(unsafe(route) for route in alone.values()) > len(ROUTES) / 2
