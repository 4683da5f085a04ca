"""The guard over every way into Inductor: what the compiler saw, with and without it."""

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.routes_list import ROUTES
from tests.support import clean_environ, run_python

pytestmark = pytest.mark.torch
SCRIPT = str(Path(__file__).with_name("routes.py"))


def ran(*args: str, **planted: str) -> dict[str, Any]:
    done = run_python(SCRIPT, *args, env=clean_environ(**planted), timeout=600)
    assert done.code == 0, done.err[-3000:]
    data: dict[str, Any] = done.json()
    return data


@pytest.fixture(scope="module")
def unguarded() -> dict[str, Any]:
    return ran()


@pytest.fixture(scope="module")
def guarded() -> dict[str, Any]:
    """On the stand-in for a ROCm build."""
    return ran("--guard", "--pretend-rocm")


@pytest.fixture(scope="module")
def guarded_elsewhere() -> dict[str, Any]:
    return ran("--guard")


def wishes(route: dict[str, Any]) -> bool:
    return any(s["max_autotune"] or s["cudagraphs"] or s.get("captures") for s in route["seen"])


@pytest.mark.parametrize("name", ROUTES)
def test_without_the_guard_the_route_gets_what_it_asks_for(unguarded: dict[str, Any], name: str) -> None:
    """The test's own teeth: every route really asks."""
    assert wishes(unguarded["routes"][name])


@pytest.mark.parametrize("name", ROUTES)
def test_on_rocm_the_route_is_made_safe(guarded: dict[str, Any], unguarded: dict[str, Any], name: str) -> None:
    route = guarded["routes"][name]

    assert route["seen"]
    assert not wishes(route)
    assert route["told"] > 0  # and said who asked for what
    assert route["answer"] == unguarded["routes"][name]["answer"]  # and computes the same


@pytest.mark.parametrize("name", ROUTES)
def test_elsewhere_the_route_is_left_as_it_was(
    guarded_elsewhere: dict[str, Any], unguarded: dict[str, Any], name: str
) -> None:
    assert guarded_elsewhere["routes"][name] == unguarded["routes"][name]


def test_everything_is_put_back(
    guarded: dict[str, Any], guarded_elsewhere: dict[str, Any], unguarded: dict[str, Any]
) -> None:
    """Layers, values and replaced functions; torch itself leaves one entry changed after packaging."""
    assert set(guarded["changed"]) == set(unguarded["changed"]) == set(guarded_elsewhere["changed"])
    assert guarded_elsewhere["told"] == []


def test_what_was_changed_names_the_users_line(guarded: dict[str, Any]) -> None:
    assert all(SCRIPT in told for told in guarded["told"])
    assert any("mode at" in told and "asked for True and got False" in told for told in guarded["told"])
    assert {told.split(" at ")[0].split(": ")[1] for told in guarded["told"]} == {
        "mode",
        "options",
        "assignment",
        "annotation",
    }
