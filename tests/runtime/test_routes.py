"""Every way to start Inductor (a *route*): the settings that the compiler uses with and without the guard."""

import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.routes_list import ROUTES
from tests.support import clean_environ, run_python

pytestmark = pytest.mark.torch
# On the CPU the guard refuses nothing. Routes that find the code of another one in the cache are left out.
ROUTES_ON_CPU = ("mode_reduce_overhead", "mode_max_autotune", "options", "assigned_globally", "annotation")
SCRIPT = str(Path(__file__).with_name("routes.py"))


def run_routes(*args: str, **planted: str) -> dict[str, Any]:
    # Hide GPUs: CUDA cannot be used after a fork.
    hide_gpus = {} if "cuda" in args else {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory() as caches:  # a separate cache, so that no run uses the results of another
        env = clean_environ(TORCHINDUCTOR_CACHE_DIR=caches, **hide_gpus, **planted)
        completed = run_python(SCRIPT, *args, env=env, timeout=900)
    assert completed.code == 0, completed.err[-3000:]
    data: dict[str, Any] = completed.json()
    return data


@pytest.fixture(scope="module")
def runs() -> list[dict[str, Any]]:
    """Run all routes without the guard and with it on a simulated ROCm build, and a few with it on the CPU; in parallel, because each takes minutes."""
    one_backend = {"TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": "ATEN"}  # keeps autotuning short
    options = [(), ("--guard", "--pretend-rocm"), ("--guard", "--routes", *ROUTES_ON_CPU)]
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(lambda args: run_routes(*args, **one_backend), options))


@pytest.fixture(scope="module")
def unguarded(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return runs[0]


@pytest.fixture(scope="module")
def guarded(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return runs[1]


@pytest.fixture(scope="module")
def guarded_on_cpu(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return runs[2]


def unsafe(route: dict[str, Any]) -> bool:
    return any(s["max_autotune"] or s["cudagraphs"] or s.get("captures") for s in route["observed"])


def route_outcome(data: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the outcome of a route; skip the test if this torch does not have the route, or crashes on it without the guard."""
    route: dict[str, Any] = data[name]
    if route["result"] == "none" or str(route["result"]).startswith("crashed"):
        pytest.skip(f"this torch: {route['result']}")
    return route


@pytest.mark.parametrize("name", ROUTES)
def test_without_the_guard_the_route_gets_the_requested_values(unguarded: dict[str, Any], name: str) -> None:
    """Make sure that the routes request unsafe values, so that the other tests check something."""
    assert unsafe(route_outcome(unguarded, name))


@pytest.mark.parametrize("name", ROUTES)
def test_on_rocm_the_guard_refuses_the_values_on_every_route(
    guarded: dict[str, Any], unguarded: dict[str, Any], name: str
) -> None:
    route = guarded[name]
    if route["result"] == "none":
        pytest.skip("this torch does not have the route")
    route_outcome(unguarded, name)

    assert route["observed"], route["result"]
    assert not unsafe(route)
    assert route["reported"]
    assert route["result"] == route_outcome(unguarded, name)["result"]  # the same numbers


@pytest.mark.parametrize("name", ROUTES_ON_CPU)
def test_on_other_platforms_the_route_is_unchanged(
    guarded_on_cpu: dict[str, Any], unguarded: dict[str, Any], name: str
) -> None:
    without_guard, route = route_outcome(unguarded, name), guarded_on_cpu[name]

    assert (route["observed"], route["result"], route["reported"]) == (
        without_guard["observed"],
        without_guard["result"],
        [],
    )


@pytest.mark.parametrize("name", ROUTES)
def test_everything_is_restored(guarded: dict[str, Any], unguarded: dict[str, Any], name: str) -> None:
    """Check layers, values and patched functions, except for those that the route and torch also change without the guard."""
    assert set(guarded[name]["changed"]) <= set(route_outcome(unguarded, name)["changed"])


def test_interventions_contain_the_users_line_and_how_the_value_was_requested(guarded: dict[str, Any]) -> None:
    reported = [text for route in guarded.values() for text in route["reported"]]
    ways = {re.split(r"[=\[]", text.split("(requested by ")[1].splitlines()[0].rstrip(")"))[0] for text in reported}

    assert all(SCRIPT in text for text in reported)
    assert any("True refused, False used (requested by mode='reduce-overhead')" in text for text in reported)
    assert {"mode", "options", "assignment"} <= ways
    assert ways <= {"mode", "options", "config.patch", "assignment", "annotation"}


@pytest.mark.gpu
def test_on_a_cuda_device_every_route_is_unchanged() -> None:
    """The same routes with tensors on the GPU; one GEMM backend keeps autotuning short."""
    one_backend = {"TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": "ATEN"}
    unguarded, guarded = (
        run_routes("--device", "cuda", **one_backend),
        run_routes("--device", "cuda", "--guard", **one_backend),
    )

    for name in ROUTES:
        assert (guarded[name]["observed"], guarded[name]["reported"]) == (unguarded[name]["observed"], []), name
    assert sum(unsafe(route) for route in unguarded.values()) > len(ROUTES) / 2
