"""Fixtures, and which tests are skipped on which machine."""

import importlib.util
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support import chromium, has_gpu, in_ci, installed_torch, record_row

pytest_plugins = ["rocsolid.testing"]


def pytest_configure() -> None:
    """Restore Ctrl-C: a run started in the background ignores it, and every program that a test starts inherits that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run; in CI only a missing GPU is a reason to skip."""
    has_torch = importlib.util.find_spec("torch") is not None
    for item in items:
        if item.get_closest_marker("torch") and not has_torch and not in_ci():
            item.add_marker(pytest.mark.skip(reason="torch is not installed"))
        if item.get_closest_marker("browser") and not chromium() and not in_ci():
            item.add_marker(pytest.mark.skip(reason="Chromium or playwright is not installed"))
        if item.get_closest_marker("gpu") and not has_gpu():
            item.add_marker(pytest.mark.skip(reason="no ROCm or CUDA device"))


@pytest.fixture
def shadow_torch(tmp_path: Path) -> Callable[..., Path]:
    """A folder with a torch that has only the files that a static probe reads; put it on PYTHONPATH.

    Its config files are those of the installed torch, edited as a test asks; its RECORD is honest, stale or empty.
    """

    def make(
        *, hip: str = "", cuda: str = "", edits: Mapping[str, tuple[str, str]] | None = None, record: str = "none"
    ) -> Path:
        from rocsolid.probe.packages import torch_folder
        from rocsolid.torchapi.config.source import CONFIG_FILES

        real = torch_folder()
        assert real is not None
        folder = tmp_path / "shadow"
        torch = folder / "torch"
        rows = []
        for file in CONFIG_FILES.values():
            target = torch / file
            target.parent.mkdir(parents=True, exist_ok=True)
            text = (real / file).read_text()
            before = record_row(f"torch/{file}", text)
            for where, (old, new) in (edits or {}).items():
                if where == file:
                    assert old in text
                    text = text.replace(old, new)
            target.write_text(text)
            rows.append(
                {"honest": record_row(f"torch/{file}", text), "stale": before, "none": f"torch/{file},,"}[record]
            )
        version = installed_torch() + ("+rocm7.2" if hip else "+cu130" if cuda else "")
        lines = [
            f"__version__ = {version!r}",
            f"hip = {hip or None!r}",
            f"cuda = {cuda or None!r}",
            "git_version = 'abc'",
        ]
        (torch / "version.py").write_text("\n".join(lines) + "\n")
        (torch / "__init__.py").write_text("raise ImportError('this torch is a shadow: it must not be imported')\n")
        info = folder / f"torch-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Name: torch\n")
        (info / "RECORD").write_text("\n".join(rows) + "\n")
        return folder

    return make
