"""The wheel installs next to another torch without changing it, is small, and has no dependency that could replace torch."""

import hashlib
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from tests.support import ROOT, clean_environ, record_row, run_python, scaled_cpu_seconds

FOREIGN = {"torch": "2.9.1+rocm6.4", "triton": "3.5.1+rocm6.4.gitabc", "numpy": "1.26.4"}
THE_USERS = {"torch", "triton", "pytorch-triton-rocm", "torchvision", "torchaudio"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that is built from it."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, env=clean_environ(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def next_to_another_torch(built: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """An environment with somebody's ROCm torch, into which rocsolid was installed; with every file as it was before."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name, version in FOREIGN.items():
        plant(site, name, version)
    before = digests(site)
    python = str(folder / "bin/python")
    (wheel,) = built.glob("*.whl")
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--quiet", str(wheel)]
    done = subprocess.run(command, env=clean_environ(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, before


def plant(site: Path, name: str, version: str) -> None:
    """A distribution that is small and well formed."""
    info = f"{name}-{version}.dist-info"
    hip = "hip = '6.4.43482'\ncuda = None\ngit_version = 'abc'\n"
    files = {
        f"{name}/__init__.py": f"__version__ = {version!r}\n",
        f"{name}/version.py": f"__version__ = {version!r}\n{hip}",
        f"{name}/lib/lib{name}.so": "a binary, of a kind\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/INSTALLER": "pip\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
    }
    for file, text in files.items():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(text)
    rows = [record_row(file, text) for file, text in files.items()]
    (site / info / "RECORD").write_text("\n".join([*rows, f"{info}/RECORD,,"]) + "\n")


def digests(site: Path) -> dict[str, str]:
    """Every file of the three, with its content and its age."""
    files = [
        file for name in FOREIGN for file in site.glob(f"{name}*/**/*") if file.is_file() and file.suffix != ".pyc"
    ]
    return {
        str(file.relative_to(site)): f"{hashlib.sha256(file.read_bytes()).hexdigest()} {file.stat().st_mtime_ns}"
        for file in files
    }


def test_installing_does_not_change_another_torch(next_to_another_torch: tuple[Path, dict[str, str]]) -> None:
    folder, before = next_to_another_torch
    (site,) = folder.glob("lib/python*/site-packages")

    assert len(before) == 3 * 7
    assert digests(site) == before
    assert {file.name.partition("-")[0] for file in site.glob("*.dist-info")} <= {*FOREIGN, "rocsolid", "tomli"}


def test_installed_package_runs_and_finds_that_torch(next_to_another_torch: tuple[Path, dict[str, str]]) -> None:
    folder, before = next_to_another_torch
    env = {name: value for name, value in clean_environ().items() if name != "PYTHONPATH"}
    command = str(folder / "bin/rocsolid")
    version = subprocess.run([command, "--version"], env=env, capture_output=True, text=True, check=True)
    told = subprocess.run([command, "doctor"], env=env, capture_output=True, text=True, check=False)
    (site,) = folder.glob("lib/python*/site-packages")

    assert version.stdout.startswith("rocsolid 0.")
    assert "torch      2.9.1+rocm6.4, HIP 6.4.43482" in told.stdout, told.stderr
    assert digests(site) == before


def test_the_installed_package_is_imported_in_less_than_50_ms(
    next_to_another_torch: tuple[Path, dict[str, str]],
) -> None:
    python = str(next_to_another_torch[0] / "bin/python")
    env = {name: value for name, value in clean_environ().items() if name != "PYTHONPATH"}
    script = "import time; a = time.process_time(); import rocsolid; print(time.process_time() - a)"

    assert scaled_cpu_seconds(lambda: float(run_python("-c", script, python=python, env=env).out)) < 0.05


def test_prove_writes_a_bundle_from_the_installed_wheel(
    next_to_another_torch: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, _ = next_to_another_torch
    env = {name: value for name, value in clean_environ(TMPDIR=str(tmp_path)).items() if name != "PYTHONPATH"}
    for command in (["rocsolid", "prove", "--bundle", "prove.pyz"], ["python", "prove.pyz", "--list"]):
        command[0] = str(folder / "bin" / command[0])
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_wheel_is_small_and_complete(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    (sdist,) = built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened, tarfile.open(sdist) as packed:
        names, source = opened.namelist(), packed.getnames()
    here = {str(file.relative_to(ROOT / "src")) for file in (ROOT / "src/rocsolid").rglob("*") if file.is_file()}

    assert wheel.stat().st_size < 1_600_000
    assert {name for name in here if "__pycache__" not in name} <= set(names)
    assert not [name for name in names if not name.startswith("rocsolid")]
    for needed in ("README.md", "ARCHITECTURE.md", "examples/README.md", "docs/index.md", "tests/conftest.py"):
        assert any(name.endswith(f"/{needed}") for name in source), needed


def test_no_requirement_installs_torch(built: Path) -> None:
    """Neither what the wheel asks for, nor what that asks for, as far as it is installed here."""
    (wheel,) = built.glob("*.whl")
    text = zipfile.ZipFile(wheel).read(f"{wheel.name.rpartition('-py3')[0]}.dist-info/METADATA").decode()
    wanted = re.findall(r"^Requires-Dist: ([\w.\-]+)", text, re.MULTILINE)
    assert "numpy" in wanted  # without a version: the trace extra takes whichever is there
    assert not re.findall(r"^Requires-Dist: numpy[^;\s]*[<>=]", text, re.MULTILINE)
    seen: set[str] = set()
    waiting = [name for name in wanted if name != "rocsolid"]
    while waiting:
        name = waiting.pop().lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        waiting += [re.split(r"[^\w.\-]", need)[0] for need in needs if "extra ==" not in need]

    assert not seen & THE_USERS
