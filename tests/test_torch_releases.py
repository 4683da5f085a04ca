"""The matrix of torch releases, and the comparison of two releases."""

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import compare_torch
import gen_docs
import torch_matrix
from rocsolid.catalog.chips import TRITON_RELEASES
from rocsolid.catalog.support import SUPPORTED_TORCH

REPORT = """<testsuites><testsuite>
<testcase classname="tests.a.test_b" name="test_one"/>
<testcase classname="tests.a.test_b" name="test_two"><failure message="no"/></testcase>
<testcase classname="tests.a.test_b" name="test_three"><error message="no"/></testcase>
<testcase classname="tests.a.test_b" name="test_four"><skipped message="no ROCm or CUDA device"/></testcase>
</testsuite></testsuites>"""


def test_the_matrix_has_every_supported_release_with_its_triton() -> None:
    minors = {release.rpartition(".")[0]: triton for release, triton in torch_matrix.RELEASES.items()}

    assert next(iter(minors)) == SUPPORTED_TORCH.first
    assert list(minors)[-1] == SUPPORTED_TORCH.last
    assert len(minors) == 7
    for minor, triton in TRITON_RELEASES.items():
        assert minors[minor].startswith(triton)


def test_a_report_is_counted_with_the_reasons_of_skips(tmp_path: Path) -> None:
    file = tmp_path / "report.xml"
    file.write_text(REPORT)

    assert torch_matrix.read_report(file) == {
        "passed": 1,
        "skipped": {"no ROCm or CUDA device": 1},
        "failed": ["tests/a/test_b.py::test_three", "tests/a/test_b.py::test_two"],
    }


def test_results_are_kept_one_part_at_a_time_and_finished_ones_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = []

    def run_tests(python: Path, part: str, *_: object) -> dict[str, object]:
        release = python.parents[1].name
        ran.append((release, part))
        failed = ["tests/b/test_c.py::test_d"] if (release, part) == ("2.9.1", "tests/b") else []
        log = python.parents[1] / "log.txt"
        log.parent.mkdir(exist_ok=True)
        log.write_text("a test failed\n")
        return {
            "passed": 3,
            "skipped": {"no GPU": 1},
            "failed": failed,
            "commit": "abc",
            "date": "2026-11-17",
            "seconds": 1,
        }

    monkeypatch.setattr(torch_matrix, "RESULTS", tmp_path / "torch-matrix.json")
    monkeypatch.setattr(torch_matrix, "commit", lambda: "abc")
    monkeypatch.setattr(torch_matrix, "all_parts", lambda: ["tests/a", "tests/b", "tests/test_e.py"])
    monkeypatch.setattr(
        torch_matrix,
        "make_environment",
        lambda release, _: None if release == "2.10.0" else tmp_path / release / "bin/python",
    )
    monkeypatch.setattr(
        torch_matrix,
        "build",
        lambda python: {"build": f"{python.parents[1].name}+cu130", "triton": "3.9.0", "python": "3.11.2"},
    )
    monkeypatch.setattr(torch_matrix, "run_tests", run_tests)

    def matrix(*arguments: str) -> object:
        monkeypatch.setattr("sys.argv", ["torch_matrix.py", *arguments])
        with pytest.raises(SystemExit) as stopped:
            torch_matrix.main()
        return stopped.value.code

    assert matrix("--release", "2.15.0", "--release", "2.10.0", "tests/a", "tests/b") == 0
    assert matrix("--release", "2.15.0") == 0
    assert matrix("--release", "2.9.1", "tests/b", "tests/a/test_f.py") == 1

    assert ran == [
        ("2.15.0", "tests/a"),
        ("2.15.0", "tests/b"),
        ("2.15.0", "tests/test_e.py"),
        ("2.9.1", "tests/b"),
        ("2.9.1", "tests/a/test_f.py"),
    ]
    kept = json.loads((tmp_path / "torch-matrix.json").read_text())["releases"]
    assert {release: list(row["parts"]) for release, row in kept.items()} == {
        "2.15.0": ["tests/a", "tests/b", "tests/test_e.py"],
        "2.9.1": ["tests/b"],  # a file of a part is no whole part
    }
    assert "torch 2.15.0: tests/a: done before for this commit" in capsys.readouterr().out
    page = torch_matrix.matrix_page()
    assert "| 2.15.0+cu130 | 3.9.0 | 3.11.2 | all | 9 | 3 | 0 | 2026-11-17 |" in page
    assert "| 2.9.1+cu130 | 3.9.0 | 3.11.2 | 1 of 3 parts | 3 | 1 | 1 | 2026-11-17 |" in page
    assert "## Not run with 2.9.1\n\n- `tests/a`\n- `tests/test_e.py`\n" in page
    assert "## Failed with 2.9.1\n\n- `tests/b/test_c.py::test_d` at abc\n" in page
    assert "| 2.10.0 | 3.6.0 | | not run yet |" in page


@pytest.mark.parametrize(("code", "kept"), [(0, True), (1, True), (2, False), (-9, False)])
def test_a_part_that_cannot_be_run_has_no_result(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    kept: bool,  # noqa: FBT001 - a case
) -> None:
    def run_until(*_: object) -> tuple[int, str]:
        (tmp_path / "report.xml").write_text(REPORT)
        return code, ""

    monkeypatch.setattr(torch_matrix, "commit", lambda: "abc")
    monkeypatch.setattr(torch_matrix, "run_until", run_until)

    assert (torch_matrix.run_tests(tmp_path / "bin/python", "tests/a", None) is not None) is kept


@pytest.fixture
def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], bool]:
    """Runs three parts with the oldest and the newest release, for which this Python stands in; returns whether something failed."""

    def environment(release: str, *_: object) -> Path:
        python = tmp_path / release / "bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        return python

    slow = "import time\n\ndef test_one():\n    assert 1 == 2\n\ndef test_two():\n    time.sleep(300)\n"
    texts = {"quick": "def test_three():\n    pass\n", "slow": slow, "late": "def test_four():\n    pass\n"}
    for name, text in texts.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    monkeypatch.setattr(torch_matrix, "make_environment", environment)
    monkeypatch.setattr(torch_matrix, "CI_PARTS", tuple(str(tmp_path / f"test_{name}.py") for name in texts))
    monkeypatch.setattr(torch_matrix, "LEFT_OUT", ())
    return lambda seconds: torch_matrix.run_ends(tmp_path, time.monotonic() + seconds)


@pytest.mark.usefixtures("ends")
def test_what_fails_in_ci_is_run_once_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = """import pathlib

def test_first():
    first, ran = not pathlib.Path(RAN).exists(), pathlib.Path(RAN).touch()
    assert not first

def test_other():
    pass
"""
    file, ran = tmp_path / "test_flaky.py", tmp_path / "ran"
    file.write_text(test.replace("RAN", repr(str(ran))))
    python = torch_matrix.make_environment("2.15.0", tmp_path)
    assert python is not None
    for again, failed in ((False, 1), (True, 0)):
        ran.unlink(missing_ok=True)
        result = torch_matrix.run_part("2.15.0", python, str(file), 100.0, again=again)
        assert result is not None
        assert (len(result["failed"]), result["passed"]) == (failed, 2 - failed)
    assert "passed when run again: [" in capsys.readouterr().out


def test_at_the_deadline_failures_count_and_the_rest_is_listed(
    ends: Callable[[float], bool], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(8) is True

    out = capsys.readouterr().out
    lines = re.findall(r"matrix: torch (\S+): \S+/(\S+): (.*?)(?: in \d+ s)?\n", out)
    for release in ("2.15.0", "2.9.1"):
        assert [(part, text) for of, part, text in lines if of == release] == [
            ("test_quick.py", "1 passed, 0 skipped, 0 failed"),
            ("test_slow.py", "0 passed, 0 skipped, 1 failed until no time was left"),
            ("test_late.py", "NOT RUN, no time is left"),
        ]
    assert out.count("E       assert 1 == 2") == 2


def test_no_time_at_all_is_no_failure(ends: Callable[[float], bool], capsys: pytest.CaptureFixture[str]) -> None:
    assert ends(0) is False
    assert capsys.readouterr().out.count("NOT RUN, no time is left") == 6


def test_releases_that_cannot_be_installed_are_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message = "ERROR: No matching distribution found for torch==2.15.0"
    monkeypatch.setattr(torch_matrix, "is_reachable", lambda _: False)
    monkeypatch.setattr(torch_matrix, "FREE_BYTES", 0)
    monkeypatch.setattr(torch_matrix, "run_until", lambda *_: (2, f"WARNING: Retrying\n{message}\nmake: *** Error 1\n"))

    assert torch_matrix.run_ends(tmp_path, None) is False

    second, first = sorted(capsys.readouterr().out.splitlines(), reverse=True)
    monkeypatch.setattr(torch_matrix, "FREE_BYTES", float("inf"))
    assert torch_matrix.make_environment("2.15.0", tmp_path) is None
    assert "NOT RUN, less than inf GB are free" in capsys.readouterr().out
    assert first == f"matrix: torch 2.15.0: NOT RUN, it cannot be installed here ({message})"
    assert second.startswith("matrix: torch 2.9.1: NOT RUN")


def test_what_ci_leaves_out_exists() -> None:
    for test in torch_matrix.LEFT_OUT:
        file, _, name = test.partition("::")
        assert any(file.startswith(f"{part}/") for part in torch_matrix.CI_PARTS)
        assert f"def {name}" in (torch_matrix.ROOT / file).read_text()


def test_the_parts_are_all_tests() -> None:
    parts = torch_matrix.all_parts()

    assert {"tests/torchapi", "tests/runtime", "tests/test_torch_releases.py"} <= {*parts}
    for file in (torch_matrix.ROOT / "tests").rglob("test_*.py"):
        name = str(file.relative_to(torch_matrix.ROOT))
        assert sum(name == part or name.startswith(f"{part}/") for part in parts) == 1


def plant(folder: Path, version: str, config: str, public: str = "", stub: str = "") -> Path:
    for owner in ("_inductor", "_dynamo", "_functorch", "_C", "compiler", "fx/experimental"):
        (folder / owner).mkdir(parents=True)
    (folder / "compiler/__init__.py").write_text(f"__all__ = ['compile', {public}]\n")
    (folder / "_inductor/hidden.py").write_text(f"__all__ = ['not_public_{version[-3]}']\n")
    (folder / "_C/__init__.pyi").write_text(stub)
    (folder / "version.py").write_text(f"__version__ = '{version}'\n")
    (folder / "_inductor/config.py").write_text("import os\nimport torch\n" + config)
    (folder / "_inductor/__init__.py").write_text(
        "def list_mode_options(mode=None, dynamic=None):\n"
        f"    return {{'reduce-overhead': {{'triton.cudagraphs': True, 'since': '{version}'}}}}\n"
    )
    return folder


def test_the_comparison_names_what_the_catalogue_lacks(tmp_path: Path) -> None:
    settings = "kept = 1\nchanged = 1\ngone = True\nmax_autotune = False\n"
    stub = "def _storage_Use_Count(storage): ...\ndef _len_torch_dispatch_stack() -> int: ...\n"
    old = plant(tmp_path / "old", "2.98.0", settings, "'old_name'", stub)
    new = plant(
        tmp_path / "new",
        "2.99.0",
        "kept = 1\nchanged = 2\nbrand_new = os.environ.get('TORCHINDUCTOR_BRAND_NEW') == '1'\n"
        "numerics = 'default'\nmax_autotune = bool(torch.version.hip)\n",
        "'precompile'",
        stub.partition("\n")[2],
    )

    lines = list(compare_torch.differences(compare_torch.read(old), compare_torch.read(new)))

    assert lines[0] == "torch 2.98.0 -> 2.99.0"
    assert "  * inductor.brand_new = False" in lines
    assert "    inductor.numerics = 'default'" in lines
    assert "  inductor.gone" in lines
    assert "  inductor.changed: 1 -> 2" in lines
    assert "  inductor.max_autotune: False, on ROCm False -> True" in lines
    assert "  * TORCHINDUCTOR_BRAND_NEW" in lines
    assert any(line.startswith("  reduce-overhead: ") for line in lines)
    new_names, removed = lines.index("\nnew public names (1)"), lines.index("\nremoved public names (1)")
    assert lines[new_names + 1] == "  torch.compiler.precompile"
    assert lines[removed + 1] == "  torch.compiler.old_name"
    gone = [line for line in lines if line.startswith("  torch._C.")]
    assert [line.partition(":")[0] for line in gone] == ["  torch._C._storage_Use_Count"]


def test_a_block_of_a_page_is_written_between_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "README.md"
    begin, end = "<!-- begin numbers: written by scripts/gen_docs.py -->", "<!-- end numbers -->"
    page.write_text(f"# Title\n{begin}\nabout 130\n{end}\nBy hand.\n")
    monkeypatch.setattr(gen_docs, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(gen_docs, "BLOCKS", {"README.md": {"numbers": lambda: "165 names"}})

    ((file, text),) = gen_docs.pages_with_blocks()

    assert (file, text) == (page, f"# Title\n{begin}\n165 names\n{end}\nBy hand.\n")
    page.write_text("# Title\nabout 130\n")
    with pytest.raises(SystemExit, match="has no block 'numbers'"):
        list(gen_docs.pages_with_blocks())


def test_the_readme_says_what_the_matrix_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = {"passed": 3000, "skipped": {"no GPU": 2}, "failed": [], "date": "2026-11-18"}
    rows = {
        "2.9.1": {"build": "2.9.1+cpu", "triton": "3.5.1", "python": "3.11.7", "parts": {"tests/a": part}},
        "2.15.0": {
            "build": "2.15.0+cu132",
            "triton": "3.9.0",
            "python": "3.11.7",
            "parts": {"tests/a": part, "tests/b": {**part, "failed": ["tests/b/test_c.py::test_d"]}},
        },
    }
    results = tmp_path / "torch-matrix.json"
    results.write_text(json.dumps({"releases": rows}))
    monkeypatch.setattr(torch_matrix, "RESULTS", results)
    monkeypatch.setattr(torch_matrix, "all_parts", lambda: ["tests/a", "tests/b"])

    line, table = torch_matrix.releases_line(), torch_matrix.releases_table()

    assert "every test that ran passed with 2.9.1;" in line
    assert "tests failed with 2.15.0 (1);" in line
    assert "some parts were not run with 2.9.1." in line
    assert (
        "| 2.9.1 | 3,000 passed, 2 skipped, 0 failed (1 of 2 parts, 2.9.1+cpu, Triton 3.5.1, Python 3.11.7, 2026-11-18) |"
        in table
    )
    assert (
        "| 2.15.0 | 6,000 passed, 4 skipped, 1 failed (2.15.0+cu132, Triton 3.9.0, Python 3.11.7, 2026-11-18) |"
        in table
    )
    assert "| 2.12.1 | not run for this table yet | not run |" in table
