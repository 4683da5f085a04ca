"""The active checks run in child processes that may hang or crash."""

from pathlib import Path

import pytest
from tests.support import clean_environ, make_env, run_cli, run_python, with_path

from rocsolid.model.environment import CheckStatus
from rocsolid.model.platform import Platform
from rocsolid.probe import active_checks
from rocsolid.probe.active_checks import run_checks
from rocsolid.probe.active_programs import GROUPS

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _source_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in clean_environ().items():
        monkeypatch.setenv(name, value)


def test_active_checks_pass_on_this_machine() -> None:
    """All checks, through the command line."""
    ran = run_cli("probe", "--active", "--output", "json", "--fail-on", "never")
    checks = {c["name"]: c for c in ran.json()["environment"]["active_checks"]}

    assert {f"gemm {d}" for d in ("float64", "float32", "float16", "bfloat16")} <= checks.keys()
    assert {checks[n]["status"] for n in checks if n.startswith(("gemm", "compile"))} == {"ok"}
    assert checks["fp8 attention"]["status"] == "skipped"
    assert " s: running " in ran.err  # A line every 10 s, whichever check runs then.
    assert not [f for f in ran.json()["findings"] if f["code"] == "ACT001"]


@pytest.mark.gpu
def test_capture_check_passes_in_three_processes() -> None:
    env = make_env(Platform.CUDA)
    results = [a for a in run_checks(env) if a.name.startswith("capture")]

    assert [a.status for a in results] == [CheckStatus.OK] * 3
    assert results[0].detail == "200 replays equal eager"


AITER = {
    "ok": "def flash_attn_func(q, k, v):\n    import torch\n"
    "    q, k, v = (t.float().transpose(1, 2) for t in (q, k, v))\n"
    "    return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)\n",
    "wrong": "def flash_attn_func(q, k, v):\n    return q.float() * 0\n",
    "crashed": "import os\ndef flash_attn_func(q, k, v):\n    os.abort()\n",
    "failed": "def flash_attn_func(q, k, v):\n    raise RuntimeError('no FP8 here')\n",
    "hung": "import time\ndef flash_attn_func(q, k, v):\n    time.sleep(100)\n",
}


@pytest.mark.parametrize("status", AITER)
def test_reports_how_a_vendor_attention_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    """A fake AITER returns the right or a wrong result, crashes, raises or hangs; the probe survives."""
    (tmp_path / "aiter.py").write_text(AITER[status])
    monkeypatch.setenv("PYTHONPATH", with_path(tmp_path)["PYTHONPATH"])
    monkeypatch.setitem(active_checks._DEADLINES_S, "fp8", 12.0)
    (result,) = active_checks._run_group("fp8", GROUPS["fp8"])

    assert result.status.value == status
    if status == "failed":
        assert result.detail == "RuntimeError: no FP8 here"


def test_runs_the_remaining_checks_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch whose float16 product aborts: the rest of the group runs in a new process."""
    code = (
        "import torch, os\n"
        "real = torch.Tensor.__matmul__\n"
        "def product(a, b):\n"
        "    if a.dtype is torch.float16: os.abort()\n"
        "    return real(a, b)\n"
        "torch.Tensor.__matmul__ = product\n"
    )
    (tmp_path / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", with_path(tmp_path)["PYTHONPATH"])
    statuses = {a.name: a.status for a in active_checks._run_group("gemm", GROUPS["gemm"])}

    assert statuses == {
        "gemm float64": CheckStatus.OK,
        "gemm float32": CheckStatus.OK,
        "gemm float16": CheckStatus.CRASHED,
        "gemm bfloat16": CheckStatus.OK,
    }


def test_runs_more_captures_where_replays_are_known_to_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def group(name: str, names: tuple[str, ...]) -> list[object]:
        from rocsolid.model.environment import CheckResult

        started.append(name)
        return [CheckResult(name=n, status=CheckStatus.OK) for n in names]

    monkeypatch.setattr(active_checks, "_run_group", group)
    list(run_checks(make_env(rocm="7.2.1")))
    assert started.count("capture") == 14
    started.clear()
    list(run_checks(make_env(rocm="7.1.1")))
    assert started.count("capture") == 3


def test_programs_print_only_results() -> None:
    ran = run_python("-m", "rocsolid.probe.active_programs", "gemm float32")

    assert ran.out.count("\n") == 1
    assert '"status": "ok"' in ran.out
