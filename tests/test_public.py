"""The public surface: exactly these names, loaded when used, and importing changes nothing."""

import doctest
import os
import re
import subprocess
import sys

import pytest
from tests.support import ROOT, clean_environ, has_gpu, run_python

import rocsolid as rs
from rocsolid.api import capture, dryrun, explain, lint, observe, optimize, pretend, probe, safety, trace, tune
from rocsolid.ops import audit_op, patch_calls, vendor_op

NAMES = [
    "Bucket",
    "Environment",
    "Finding",
    "Plan",
    "RocsolidError",
    "ab",
    "apply",
    "audit_op",
    "breaks",
    "capture",
    "check",
    "compare",
    "compile",
    "dryrun",
    "every",
    "explain",
    "guard",
    "lint",
    "optimize",
    "patch_calls",
    "pause_captures",
    "pretend",
    "probe",
    "record_compiles",
    "resolve",
    "trace",
    "tune",
    "vendor_op",
]


def test_the_names_are_these() -> None:
    assert rs.__all__ == NAMES
    assert all(hasattr(rs, name) for name in NAMES)
    assert set(NAMES) <= set(dir(rs))


def test_a_folder_does_not_hide_the_function_of_its_name() -> None:
    """`rocsolid.probe` is a folder and `rs.probe` a function; importing the one must not hide the other."""
    import rocsolid.probe.snapshot

    assert callable(rs.probe)
    assert rocsolid.probe is probe.probe


def test_an_unknown_name_is_said_as_python_says_it() -> None:
    with pytest.raises(AttributeError, match="module 'rocsolid' has no attribute 'nothing'"):
        _ = rs.nothing  # type: ignore[attr-defined]


def test_importing_changes_nothing() -> None:
    script = (
        "import os, sys, gc\n"
        "before = dict(os.environ), list(sys.path), sys.getrecursionlimit(), gc.isenabled()\n"
        "import rocsolid, rocsolid.cli\n"
        "after = dict(os.environ), list(sys.path), sys.getrecursionlimit(), gc.isenabled()\n"
        "assert before == after\n"
        "assert not {'torch', 'numpy', 'argparse'} & set(sys.modules)\n"
    )

    assert run_python("-c", script).code == 0


@pytest.mark.torch
def test_docstring_examples_run() -> None:
    for module in (
        observe,
        vendor_op,
        audit_op,
        patch_calls,
        probe,
        explain,
        safety,
        capture,
        optimize,
        trace,
        lint,
        tune,
        dryrun,
        *([] if has_gpu() else [pretend]),
    ):  # observe forgets what was compiled before
        result = doctest.testmod(module)
        assert result.attempted > 0
        assert result.failed == 0


def test_no_dependency_can_touch_the_users_torch() -> None:
    """A resolver that is asked for torch, triton or numpy can replace a ROCm build."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [text for wanted in project["optional-dependencies"].values() for text in wanted]
    names = {re.split(r"[^\w-]", text)[0] for text in (*project["dependencies"], *extras)}

    assert not names & {"torch", "triton", "pytorch-triton-rocm", "torchvision"}
    assert {text for text in extras if text.startswith("numpy")} <= {"numpy"}  # any numpy will do, so none is replaced


def test_every_folder_says_what_it_is_in_one_sentence() -> None:
    for init in (ROOT / "src/rocsolid").glob("*/__init__.py"):
        first = init.read_text().splitlines()[0]
        assert first.startswith('"""'), init
        assert "." in first, init


@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13", "3.14"])
def test_the_reading_half_runs_on_every_supported_python(version: str) -> None:
    """Where that Python is installed: lists, explains and probes without torch."""
    found = (
        subprocess.run([f"python{version}", "-c", "print(1)"], capture_output=True, check=False)
        if _on_path(version)
        else None
    )
    if found is None or found.returncode != 0:
        pytest.skip(f"python{version} is not installed")
    env = clean_environ()
    for args in (["explain", "safe"], ["settings"], ["probe", "--fail-on", "never"]):
        done = subprocess.run(
            [f"python{version}", "-m", "rocsolid", *args], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def _on_path(version: str) -> bool:
    return any(os.access(f"{folder}/python{version}", os.X_OK) for folder in os.environ["PATH"].split(os.pathsep))


def test_the_command_is_the_module() -> None:
    assert sys.executable
    assert run_python("-m", "rocsolid", "--version").out.strip() == f"rocsolid {rs.__version__}"
