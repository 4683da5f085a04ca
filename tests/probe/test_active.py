"""Small real computations, in processes that may hang or die."""

from pathlib import Path

import pytest
from tests.support import clean_environ, make_env, run_cli, run_python, with_path

from rocsolid.model.environment import Ending
from rocsolid.model.platform import Platform
from rocsolid.probe import active_checks
from rocsolid.probe.active_checks import run_checks
from rocsolid.probe.active_programs import GROUPS

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _source_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in clean_environ().items():
        monkeypatch.setenv(name, value)


def test_this_machine_computes_and_compiles_rightly() -> None:
    """The whole round, through the command line."""
    ran = run_cli("probe", "--active", "--output", "json", "--fail-on", "never")
    checks = {c["name"]: c for c in ran.json()["environment"]["checks"]}

    assert {f"gemm {d}" for d in ("float64", "float32", "float16", "bfloat16")} <= checks.keys()
    assert {checks[n]["ending"] for n in checks if n.startswith(("gemm", "compile"))} == {"answered"}
    assert checks["fp8 attention"]["ending"] == "skipped"
    assert "running compile" in ran.err
    assert not [f for f in ran.json()["findings"] if f["code"] == "ACT001"]


@pytest.mark.gpu
def test_captures_replay_rightly_in_fresh_processes() -> None:
    env = make_env(Platform.CUDA)
    answers = [a for a in run_checks(env) if a.name.startswith("capture")]

    assert [a.ending for a in answers] == [Ending.ANSWERED] * 3
    assert answers[0].detail == "200 replays equal eager"


AITER = {
    "right": "def flash_attn_func(q, k, v):\n    import torch\n"
    "    q, k, v = (t.float().transpose(1, 2) for t in (q, k, v))\n"
    "    return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)\n",
    "wrong": "def flash_attn_func(q, k, v):\n    return q.float() * 0\n",
    "crashed": "import os\ndef flash_attn_func(q, k, v):\n    os.abort()\n",
    "failed": "def flash_attn_func(q, k, v):\n    raise RuntimeError('no FP8 here')\n",
    "hung": "import time\ndef flash_attn_func(q, k, v):\n    time.sleep(100)\n",
}


@pytest.mark.parametrize("how", AITER)
def test_a_vendor_attention_that_misbehaves_is_told_by_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A planted AITER that is right, wrong, dies, raises or hangs; the probe lives on."""
    (tmp_path / "aiter.py").write_text(AITER[how])
    monkeypatch.setenv("PYTHONPATH", with_path(tmp_path)["PYTHONPATH"])
    monkeypatch.setitem(active_checks._DEADLINES_S, "fp8", 12.0)
    (answer,) = active_checks._run_group("fp8", GROUPS["fp8"])

    assert answer.ending.value == ("answered" if how == "right" else how)
    if how == "failed":
        assert answer.detail == "RuntimeError: no FP8 here"


def test_a_computation_that_takes_the_process_down_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torch whose half-precision product aborts: the rest of the group runs in the next process."""
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
    endings = {a.name: a.ending for a in active_checks._run_group("gemm", GROUPS["gemm"])}

    assert endings == {
        "gemm float64": Ending.ANSWERED,
        "gemm float32": Ending.ANSWERED,
        "gemm float16": Ending.CRASHED,
        "gemm bfloat16": Ending.ANSWERED,
    }


def test_where_replays_are_known_to_corrupt_more_processes_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def group(name: str, names: tuple[str, ...]) -> list[object]:
        from rocsolid.model.environment import Answer

        tried.append(name)
        return [Answer(name=n, ending=Ending.ANSWERED) for n in names]

    monkeypatch.setattr(active_checks, "_run_group", group)
    list(run_checks(make_env(rocm="7.2.1")))
    assert tried.count("capture") == 14
    tried.clear()
    list(run_checks(make_env(rocm="7.1.1")))
    assert tried.count("capture") == 3


def test_the_computations_print_nothing_but_results() -> None:
    ran = run_python("-m", "rocsolid.probe.active_programs", "gemm float32")

    assert ran.out.count("\n") == 1
    assert '"ending": "answered"' in ran.out
