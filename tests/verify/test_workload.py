"""`rocsolid verify`: forms in child processes, exit codes, bisection, the page."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT

from rocsolid.cli.app import run
from rocsolid.model.verify_report import (
    Accuracy,
    Culprit,
    FormCheck,
    LayerError,
    OutputCheck,
    TensorError,
    VerifyReport,
)
from rocsolid.report.result_pages import result_page

pytestmark = pytest.mark.torch
WORKLOADS = ROOT / "tests/verify/workloads.py"
QUICK = ("--seeds", "1", "--scales", "1")


def verify(function: str, out: Path, *options: str) -> tuple[int, Any]:
    code = run(["verify", f"{WORKLOADS}:{function}", *QUICK, "--output", "json", "--out", str(out), *options])
    return code, json.loads(out.read_text()) if out.exists() else None


def test_a_wrong_compile_is_found_bisected_and_fixed(tmp_path: Path) -> None:
    code, report = verify("build_small_wrong", tmp_path / "report.json", "--form", "compiled", "--bisect")

    assert code == 1
    (form,) = report["forms"]
    culprit = form["culprit"]
    assert form["outputs"][0]["verdict"] == "wrong"
    assert culprit["layer"] == "1"
    assert culprit["graph"] == "2 of 2"
    assert culprit["stage"] == "inductor"
    assert culprit["op"] == "aten.atan.default"
    assert culprit["location"].startswith(f"{WORKLOADS}:")
    assert "atan" in culprit["kernel"]
    assert culprit["fix"].splitlines()[0] == ("model[1].forward = torch.compiler.disable(model[1].forward)")


def test_a_correct_form_passes_and_a_crash_is_reported(tmp_path: Path) -> None:
    code, report = verify("build_small", tmp_path / "report.json", "--form", "eager + graph (recorded)")
    assert code == 0
    assert [output["verdict"] for output in report["forms"][0]["outputs"]] == ["same"]

    code, report = verify("build_crash", tmp_path / "crash.json", "--form", "compiled")
    assert code == 0
    assert report["forms"][0]["failure"].startswith("crashed: ")


def test_a_wrong_vendor_operator_is_named(tmp_path: Path) -> None:
    code, report = verify("build_vendor", tmp_path / "report.json", "--form", "vendor ops")

    assert code == 1
    culprit = report["forms"][0]["culprit"]
    assert "verify_workloads.half" in f"{culprit['op']} {culprit['detail']}"


def test_wrong_usage_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("build_small", tmp_path / "x.json", "--form", "fast")[0] == 2
    assert "unknown form 'fast'" in capsys.readouterr().err
    assert run(["verify", f"{WORKLOADS}:build_small", "--scales", "a"]) == 2
    assert run(["verify", str(WORKLOADS)]) == 2


def test_the_page_plots_the_error_by_layer() -> None:
    error = TensorError(relative_l2=0.5, largest=1.0)
    report = VerifyReport(
        name="work.py:build",
        machine="CPU",
        reference="float64",
        notes=("eager draws random numbers",),
        forms=(
            FormCheck(
                form="compiled",
                outputs=(
                    OutputCheck(path="result", dtype="float32", verdict=Accuracy.WRONG, error=error, difference=error),
                ),
                layers=(
                    LayerError(layer="layers.0", eager=1e-7, candidate=2e-7),
                    LayerError(layer="layers.1", eager=0.0),
                ),
                culprit=Culprit(layer="layers.1", op="aten.atan.default", fix="model = torch.compile(model)"),
            ),
            FormCheck(form="compiled by region", failure="timed out"),
        ),
    )
    page = result_page(report)

    assert "Error by layer" in page
    assert "candidate 2.0e-07" in page
    assert "aten.atan.default" in page
    assert "Not compared: timed out" in page
    assert "wrong" in str(report)


@pytest.mark.skipif("VERIFY_FULL" not in os.environ, reason="takes minutes; VERIFY_FULL=1 runs it")
def test_twelve_layers_are_bisected_in_three_minutes(tmp_path: Path) -> None:
    _, report = verify("build_wrong", tmp_path / "report.json", "--form", "compiled", "--bisect")

    culprit = report["forms"][0]["culprit"]
    assert (culprit["layer"], culprit["op"]) == ("layers.7.activation", "aten.atan.default")
    assert culprit["seconds"] < 180


@pytest.mark.skipif("VERIFY_FULL" not in os.environ, reason="takes a minute; VERIFY_FULL=1 runs it")
def test_a_setting_that_makes_the_model_wrong_is_found(tmp_path: Path) -> None:
    _, report = verify("build_wrong_pass", tmp_path / "report.json", "--form", "compiled", "--bisect")

    culprit = report["forms"][0]["culprit"]
    assert culprit["setting"] == "inductor.post_grad_custom_post_pass=None"
    assert culprit["fix"] == 'model = torch.compile(model, options={"post_grad_custom_post_pass": None})'


@pytest.mark.gpu
def test_twelve_layers_are_bisected_in_one_minute_on_a_gpu(tmp_path: Path) -> None:
    _, report = verify("build_wrong_on_gpu", tmp_path / "report.json", "--form", "compiled", "--bisect")

    culprit = report["forms"][0]["culprit"]
    assert (culprit["layer"], culprit["op"]) == ("layers.7.activation", "aten.atan.default")
    assert culprit["seconds"] < 60
