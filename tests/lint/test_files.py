"""Any file in a folder is linted, or skipped with a reason; never a crash, never a hang."""

import time
from pathlib import Path

import pytest

from rocsolid.errors import InputError
from rocsolid.lint import worker_pool
from rocsolid.lint.check_file import is_relevant, may_match
from rocsolid.lint.files import SourceFile, find_files
from rocsolid.lint.options import Options
from rocsolid.lint.project import lint
from rocsolid.model.lint import LintRecord
from rocsolid.rules.source.porting import cuda_only_import

HAZARD = "import torch\ntorch._inductor.config.group_fusion = True\n"


def lint_folder(folder: Path, jobs: int = 1) -> LintRecord:
    return lint([folder], Options(confidence="anywhere"), jobs=jobs, cache=None)


def reasons(record: LintRecord) -> dict[str, str]:
    return {Path(p.file).name: p.reason for p in record.skipped}


@pytest.mark.parametrize("jobs", [1, 2])
def test_unreadable_files_are_skipped_with_a_reason(tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_MIN_BYTES_FOR_WORKERS", 0)
    (tmp_path / "syntax.py").write_text("def f(:  # torch.compile\n")
    (tmp_path / "tabs.py").write_text("if x:\n\ty\n        torch.compile\n")
    (tmp_path / "encoding.py").write_bytes(b"x = '\xe9'\n")
    (tmp_path / "later.py").write_bytes(b"\n\nx = '\xe9'\n")
    (tmp_path / "declared.py").write_bytes(b"# coding: no-such-codec\nx = '\xe9'\n")
    (tmp_path / "nulls.py").write_bytes(b"x = 1\n\0\0\n")
    (tmp_path / "line.py").write_text("x = '" + "a" * 5_000_000 + "'\n")
    (tmp_path / "deep.py").write_text("torch.compile = " + "(" * 5000 + ")" * 5000)
    (tmp_path / "chain.py").write_text("torch.compile = " + "+".join(["1"] * 100_000))
    (tmp_path / "good.py").write_text(HAZARD)
    record = lint_folder(tmp_path, jobs)

    assert [f.name for f in record.findings] == ["dead-setting"]
    assert record.files == 1
    assert reasons(record) == {
        "syntax.py": "line 1: invalid syntax",
        "tabs.py": "line 3: inconsistent use of tabs and spaces in indentation",
        "encoding.py": "invalid or missing encoding declaration",
        "later.py": "byte 7 is not valid utf-8",
        "declared.py": "unknown encoding: no-such-codec",
        "nulls.py": "the file contains null bytes",
        "line.py": "a line is longer than 1,000,000 bytes",
        "deep.py": "line 1: too many nested parentheses",
        "chain.py": "an expression is nested too deeply for the parser",
    }


def test_a_declared_encoding_is_used(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\n# \xe9\n" + HAZARD.encode())

    assert [f.name for f in lint_folder(tmp_path).findings] == ["dead-setting"]


def test_a_link_that_forms_a_cycle_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/good.py").write_text(HAZARD)
    (tmp_path / "a/loop").symlink_to(tmp_path)
    record = lint_folder(tmp_path)

    assert len(record.findings) == 1
    assert reasons(record) == {"loop": "a link to a folder that is read already"}


def test_cyclic_imports_classes_and_calls_terminate(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from b import B, g\nclass A(B): pass\ndef f(): return g()\n")
    (tmp_path / "b.py").write_text(
        "import torch\nfrom a import A, f\nfrom a import h as h\n"
        "class B(A):\n    def go(self): return self.missing()\n"
        "@torch.compile\ndef g(x):\n    B().go()\n    h()\n    f()\n    return x.item()\n"
    )
    (tmp_path / "c.py").write_text("class C(C): pass\nfrom c import C, d\nd = d\n")

    assert [f.code for f in lint_folder(tmp_path).findings if f.facts["confidence"] == "inside"] == ["SRC123"]


def test_a_crashed_worker_loses_only_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real worker, patched to exit at a certain file."""
    files = []
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.py").write_text(HAZARD)
        files.append(SourceFile(path=tmp_path / f"{name}.py", display_path=f"{name}.py", module=name, package=False))
    crashing_hook = tmp_path / "sitecustomize.py"
    crashing_hook.write_text(
        "import os, pathlib\nread = pathlib.Path.read_bytes\n"
        "def read_bytes(self):\n    if self.name == 'two.py': os._exit(9)\n    return read(self)\n"
        "pathlib.Path.read_bytes = read_bytes\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(worker_pool, "_MIN_BYTES_FOR_WORKERS", 0)
    results = {c.display_path: c.summary for c in worker_pool.check_files(files, jobs=2)}

    assert set(results) == {"one.py", "two.py", "three.py"}
    assert "the parser crashed or did not finish" in results["two.py"]
    assert "dead-setting" not in results["two.py"]
    assert "SRC107" in results["one.py"]
    assert "SRC107" in results["three.py"]


def test_a_hanging_worker_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow.py").write_text(HAZARD)
    (tmp_path / "sitecustomize.py").write_text(
        "import pathlib, time\npathlib.Path.read_bytes = lambda self: time.sleep(60)\n"
    )
    monkeypatch.setattr(worker_pool, "_MIN_BYTES_FOR_WORKERS", 0)
    monkeypatch.setattr(worker_pool, "_MAX_SILENCE_S", 0.5)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    file = SourceFile(path=tmp_path / "slow.py", display_path="slow.py", module="slow", package=False)
    start = time.monotonic()
    (result,) = worker_pool.check_files([file], jobs=2)

    assert "the parser crashed or did not finish" in result.summary
    assert time.monotonic() - start < 20


def test_tool_folders_and_excluded_folders_are_skipped(tmp_path: Path) -> None:
    for folder in ("pkg", ".venv", "site-packages", "generated", "node_modules"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.py").write_text(HAZARD)
    found, _ = find_files([tmp_path], ["generated"])

    assert [f.path.parent.name for f in found] == ["pkg"]


def test_module_names_match_the_imports(tmp_path: Path) -> None:
    (tmp_path / "src/pkg/sub").mkdir(parents=True)
    for file in ("src/pkg/__init__.py", "src/pkg/sub/__init__.py", "src/pkg/sub/m.py", "src/script.py"):
        (tmp_path / file).write_text("")
    found, _ = find_files([tmp_path], [])

    assert {f.path.name + str(f.package): f.module for f in found if f.package is False} == {
        "m.pyFalse": "pkg.sub.m",
        "script.pyFalse": "src.script",
    }
    assert {f.module for f in found if f.package} == {"pkg", "pkg.sub"}


def test_a_missing_path_is_an_error() -> None:
    with pytest.raises(InputError, match="cannot read nowhere: no such file or folder"):
        find_files([Path("nowhere")], [])


def test_finds_variables_in_shell_scripts_and_dockerfiles(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "#!/bin/sh\nexport INDUCTOR_FREEZING=1  # no such name\nTORCH_MINE=1\necho $TORCH_MINE\n"
        'HIP_LAUNCH_BLOCKING=1 python train.py\nMSG="an open quote\nends here"\n'
    )
    (tmp_path / "Dockerfile.rocm").write_text(
        "FROM x\nENV TORCHINDUCTOR_MAX_AUTOTUNE=1 TORCHINDUCTOR_MAX_AUTOTUNES=1\n"
    )
    found = [(Path(f.location).name, f.name) for f in lint_folder(tmp_path).findings]

    assert found == [
        ("Dockerfile.rocm:2", "unread-variable"),
        ("Dockerfile.rocm:2", "harmful-value"),
        ("run.sh:2", "unread-variable"),
        ("run.sh:5", "harmful-value"),
    ]


def test_a_file_that_has_nothing_to_do_with_gpus_is_counted_and_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(HAZARD)
    (tmp_path / "other.py").write_text("def f(:\n\n")
    record = lint_folder(tmp_path)
    assert (record.files, record.lines, record.skipped) == (2, 4, ())


def test_every_package_that_exists_only_for_cuda_makes_a_file_relevant() -> None:
    imports = [f"import {package}".encode() for package in cuda_only_import._PACKAGES]
    assert [line for line in imports if not is_relevant(line) or not may_match(line)] == []


@pytest.mark.parametrize(("folder", "found"), [("ops", 1), ("backend/_kunlunxin", 0), ("metal", 0), ("sm90", 0)])
def test_code_for_another_vendor_is_known_by_its_folder(tmp_path: Path, folder: str, found: int) -> None:
    file = tmp_path / folder / "kernels.py"
    file.parent.mkdir(parents=True)
    file.write_text("import torch\nfast = torch.cuda.get_device_capability() >= (9, 0)\n")
    assert len(lint([tmp_path], Options(select=("SRC403",)), jobs=1, cache=None).findings) == found
