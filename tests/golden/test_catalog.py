"""The pages and cause lists that users read from the catalogue."""

import pytest
from tests.support import check_golden

from rocsolid.catalog.breaks import BREAK_CAUSES
from rocsolid.catalog.problems import problem
from rocsolid.catalog.profiles import profile
from rocsolid.catalog.recompiles import RECOMPILE_CAUSES
from rocsolid.catalog.registry import setting
from rocsolid.model.known_cause import KnownCause
from rocsolid.report.reference_pages import problem_page, profile_page, setting_page


@pytest.mark.parametrize(
    "name",
    [
        "inductor.max_autotune",
        "inductor.triton.cudagraphs",
        "dynamo.recompile_limit",
        "compile.mode",
        "process.PYTORCH_ALLOC_CONF",
    ],
)
def test_setting_pages(name: str) -> None:
    check_golden(f"catalog/setting-{name}", setting_page(setting(name)))


@pytest.mark.parametrize(
    "name",
    [
        "hip-graph-replay-corruption",
        "max-autotune-left-on-by-image",
        "compile-inside-capture",
        "config-overrides-are-context-local",
        "cuda-torch-on-amd-machine",
    ],
)
def test_problem_pages(name: str) -> None:
    check_golden(f"catalog/problem-{name}", problem_page(problem(name)))


def test_profile_page() -> None:
    check_golden("catalog/profile-safe", profile_page(profile("safe")))


def test_break_causes() -> None:
    check_golden("catalog/break-causes", _listed(BREAK_CAUSES))


def test_recompile_causes() -> None:
    check_golden("catalog/recompile-causes", _listed(RECOMPILE_CAUSES))


def _listed(causes: tuple[KnownCause, ...]) -> str:
    return "\n".join(f"{cause.cause}\n    fix: {cause.fix}" for cause in causes)
