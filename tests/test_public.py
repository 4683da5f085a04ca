"""The public names: exactly these, loaded when first used; importing the package changes nothing."""

import doctest
import inspect
import os
import re
import subprocess
import sys
from typing import get_args

import pytest

import rocsolid as rs
from rocsolid import errors
from rocsolid.api import capture, dryrun, explain, lint, observe, optimize, pretend, probe, safety, trace, tune
from rocsolid.ops import audit_op, patch_calls, vendor_op
from tests.support import ROOT, clean_environ, has_gpu, run_python

NAMES = [
    "ABResult",
    "Accuracy",
    "Applied",
    "BreakReport",
    "Bucket",
    "CallPrediction",
    "CannotRunError",
    "CaptureError",
    "CaptureReport",
    "Captured",
    "CapturedModule",
    "CheckFailure",
    "CheckResult",
    "CompileDeadlineError",
    "CompileInCaptureError",
    "CompileLog",
    "CompileRecorder",
    "CompileReport",
    "CompiledGraph",
    "Culprit",
    "DryRunRecord",
    "EagerFallback",
    "Effort",
    "Environment",
    "Finding",
    "Form",
    "FormResult",
    "GraphBreak",
    "Guard",
    "InputError",
    "LintRecord",
    "MissingExtraError",
    "OpAudit",
    "OptimizeReport",
    "Optimized",
    "OptimizedModule",
    "Plan",
    "PlanError",
    "PretendedChip",
    "ProgramPart",
    "ProgramReport",
    "RecompileError",
    "Refusal",
    "RocsolidError",
    "Severity",
    "SpeedComparison",
    "StaleOutputError",
    "Step",
    "Study",
    "TimedOutError",
    "Timing",
    "TraceComparison",
    "TraceReport",
    "TrialRecord",
    "UnknownNameError",
    "UnsupportedTorchError",
    "UsageError",
    "VendorOp",
    "VendorOpError",
    "Verdict",
    "Verify",
    "VerifyReport",
    "ab",
    "apply",
    "audit_op",
    "breaks",
    "capture",
    "check",
    "compare",
    "compile",
    "compiles",
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
    "profile",
    "record_compiles",
    "resolve",
    "trace",
    "tune",
    "vendor_op",
    "verify",
]


def test_public_names() -> None:
    assert rs.__all__ == NAMES
    assert all(hasattr(rs, name) for name in NAMES)
    assert set(NAMES) <= set(dir(rs))


def test_every_public_name_has_a_page_with_an_example() -> None:
    pages = {page.stem: page.read_text() for page in (ROOT / "docs/api").rglob("*.md") if page.stem in NAMES}

    assert sorted(pages) == sorted(NAMES)
    assert not [name for name, text in pages.items() if "```py" not in text or "xample" not in text]


def test_every_error_is_public() -> None:
    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}

    assert "RocsolidError" in classes
    assert classes <= set(NAMES)


@pytest.mark.torch
def test_result_types_of_public_functions_are_public() -> None:
    functions = [getattr(rs, name) for name in NAMES if inspect.isfunction(getattr(rs, name))]
    missing = {
        f"{function.__name__} returns {result.__name__}"
        for function in functions
        for result in _classes_in(inspect.signature(function).return_annotation, function.__globals__)
        if result.__module__.startswith("rocsolid.") and result.__name__ not in NAMES
    }

    assert not missing


def _classes_in(annotation: object, names: dict[str, object]) -> set[type]:
    """The classes in a return annotation, also inside `list[...]` and `A | B`."""
    if isinstance(annotation, str):
        annotation = eval(annotation, names)  # noqa: S307 - an annotation of our own source
    found = {annotation} if isinstance(annotation, type) and not get_args(annotation) else set()
    return found.union(*(_classes_in(part, names) for part in get_args(annotation)))


@pytest.mark.torch
def test_experimental_names_say_so() -> None:
    assert set(NAMES) >= rs._EXPERIMENTAL
    for name in rs._EXPERIMENTAL:
        assert "Experimental" in str(getattr(rs, name).__doc__), name


def test_importing_a_subpackage_does_not_hide_the_function() -> None:
    """`rocsolid.probe` is a folder and `rs.probe` a function; importing the one must not hide the other."""
    import rocsolid.probe.snapshot

    assert callable(rs.probe)
    assert rocsolid.probe is probe.probe


def test_unknown_name_raises_the_usual_error() -> None:
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
    ):  # observe comes first, because it resets torch.compile
        result = doctest.testmod(module)
        assert result.attempted > 0
        assert result.failed == 0


def test_no_dependency_can_replace_torch() -> None:
    """If we required torch, triton or a numpy version, pip could replace the user's ROCm build."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [text for wanted in project["optional-dependencies"].values() for text in wanted]
    names = {re.split(r"[^\w-]", text)[0] for text in (*project["dependencies"], *extras)}

    assert not names & {"torch", "triton", "pytorch-triton-rocm", "torchvision"}
    assert "lerobot" not in names  # 0.4.4 requires torch below 2.11
    assert {text for text in extras if text.startswith("numpy")} <= {
        "numpy"
    }  # without a version, so that pip keeps the installed one


def test_every_package_has_a_docstring() -> None:
    for init in (ROOT / "src/rocsolid").glob("*/__init__.py"):
        first = init.read_text().splitlines()[0]
        assert first.startswith('"""'), init
        assert "." in first, init


@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13", "3.14"])
def test_commands_without_torch_run_on_every_supported_python(version: str) -> None:
    """Skipped if that Python is not installed."""
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


def test_module_runs_as_a_program() -> None:
    assert sys.executable
    assert run_python("-m", "rocsolid", "--version").out.strip() == f"rocsolid {rs.__version__}"
