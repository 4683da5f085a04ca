"""Helpers of the tests: hand-made environments, and child processes with a clean or prepared environment."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocsolid.model.environment import Device, Environment, Origin, ProbeMode, SettingValue, TorchBuild
from rocsolid.model.platform import Platform

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
# Names that would change what torch does; a test that wants one plants it.
_MOVING = (
    "_TORCHINDUCTOR_",
    "TORCH",
    "PYTORCH",
    "TRITON",
    "INDUCTOR",
    "HIP_",
    "HSA_",
    "ROCR_",
    "AMD",
    "MIOPEN",
    "PYTHON",
    "ROCSOLID",
)
_MOVING_ALONE = ("CI",)  # functorch looks at it


def in_ci() -> bool:
    """Whether a missing tool is a failure instead of a skip."""
    return os.environ.get("ROCSOLID_CI") == "1"


def chromium() -> str:
    """The path of the browser; empty if there is none, or nothing that controls it."""
    if importlib.util.find_spec("playwright") is None:
        return ""
    return shutil.which("chromium") or shutil.which("google-chrome") or ""


def has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists()


def clean_environ(**planted: str) -> dict[str, str]:
    """The environment of this process without variables that change settings, plus those of the test."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(_MOVING) and name not in _MOVING_ALONE
    }
    return {**kept, "PYTHONPATH": str(SOURCE), **planted}


@dataclass(frozen=True, kw_only=True)
class Ran:
    """The exit code and output of a child process."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Parse the output as JSON."""
        return json.loads(self.out)


def run_python(
    *args: str, env: Mapping[str, str] | None = None, python: str = sys.executable, timeout: float = 240
) -> Ran:
    """Run a fresh interpreter in a clean environment, or in the given one."""
    done = subprocess.run(
        [python, *args],
        env=dict(clean_environ() if env is None else env),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def run_cli(*args: str, env: Mapping[str, str] | None = None, timeout: float = 240) -> Ran:
    """Run the command line as a user would."""
    return run_python("-m", "rocsolid", *args, env=env, timeout=timeout)


def running(words: str) -> list[str]:
    """Command lines of running processes that contain these words."""
    commands = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it may have ended since; of one that is dead and not yet waited for nothing is read
            commands.append(file.read_bytes().decode(errors="replace").replace("\0", " "))
    return [command for command in commands if words in command]


def until(holds: Callable[[], object], patience_s: float = 30.0) -> None:
    """Wait until the condition holds; fail after the timeout."""
    give_up = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def scaled_cpu_seconds(measure: Callable[[], float], repeats: int = 5) -> float:
    """The least CPU seconds of a few runs, scaled to the machine that the limits were set on.

    Other programs slow a core down; a reference load measures by how much. A faster core is not scaled.
    """
    return min(measure() / max(1.0, _reference_load_s() / _REFERENCE_LOAD_S) for _ in range(repeats))


_REFERENCE_LOAD_S = 0.012  # on an idle core of the machine that the limits were set on
_LINES = "\n".join(
    f"def f{n}(a, b=({n}, 'x')):\n    return [a + i * {n} for i in b if i in {{1: 2}}]" for n in range(300)
)


def _reference_load_s() -> float:
    """The least of three runs: a slow reference run would make any work look quick."""
    times = []
    for _ in range(3):
        begun = time.process_time()
        compile(_LINES, "reference load", "exec")
        times.append(time.process_time() - begun)
    return min(times)


def make_env(
    platform: Platform = Platform.ROCM,
    *,
    torch: str = "2.13.0",
    rocm: str = "7.1.1",
    arch: str = "gfx942",
    moved: Mapping[str, tuple[object, object, Origin, str]] | None = None,
    **fields: Any,
) -> Environment:
    """A hand-made environment; `moved` maps a setting id to value, default, origin and what set it."""
    device = Device(index=0, name="a chip", arch=arch, memory_bytes=1, platform=platform)
    given: dict[str, Any] = {
        "taken_at": "2026-11-15T00:00:00+00:00",
        "probe_mode": ProbeMode.STATIC,
        "platform": platform,
        "rocm_version": rocm if platform is Platform.ROCM else "",
        "torch": TorchBuild(version=torch, hip="7.1" if platform is Platform.ROCM else "", folder="/torch"),
        "devices": () if platform is Platform.CPU else (device,),
        "settings": {
            name: SettingValue(value=value, default=default, origin=origin, set_by=by)
            for name, (value, default, origin, by) in (moved or {}).items()
        },
    }
    return Environment(**{**given, **fields})


def installed_torch() -> str:
    """The release of the installed torch, such as 2.13.0."""
    from rocsolid.probe.packages import installed
    from rocsolid.torchapi.config.upstream import release_of

    return release_of(installed()["torch"][0])


def needs_torch(first: str, why: str) -> None:
    """Skip the test if the installed torch is older."""
    import pytest

    from rocsolid.model.release import compare

    if compare(installed_torch(), first) < 0:
        pytest.skip(f"needs torch ≥ {first}: {why}")


def record_row(file: str, text: str) -> str:
    import base64
    import hashlib

    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{file},sha256={digest},{len(text.encode())}"


def with_path(folder: Path, **planted: str) -> dict[str, str]:
    """A clean environment in which `folder` comes first on the path."""
    return clean_environ(PYTHONPATH=f"{folder}{os.pathsep}{SOURCE}", **planted)


def check_golden(name: str, text: str, *, replace: Mapping[str, str] | None = None) -> None:
    """Compare a message with `tests/golden/<name>.txt`; `ROCSOLID_UPDATE=1 pytest` writes the files.

    Paths of this checkout become `<repo>`; `replace` maps regular expressions to what stands for them, such as a time.
    """
    import re

    shown = text.replace(str(ROOT), "<repo>")
    for pattern, stand_in in (replace or {}).items():
        shown = re.sub(pattern, stand_in, shown)
    shown = "\n".join(line.rstrip() for line in shown.strip("\n").splitlines()) + "\n"
    file = ROOT / "tests/golden" / f"{name}.txt"
    if os.environ.get("ROCSOLID_UPDATE") == "1":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(shown)
    assert file.exists(), f"{file} is missing: ROCSOLID_UPDATE=1 pytest writes it"
    assert shown == file.read_text()


def replace_forms(monkeypatch: Any, functions: Mapping[Any, Any]) -> list[Any]:
    """Make `rs.optimize` use these functions as the forms of every model; return a list that gets each form when it is made."""
    from rocsolid.optimize import optimized

    made: list[Any] = []

    def maker(form: Any, function: Any) -> Any:
        def make() -> Any:
            made.append(form)
            return function

        return make

    def forms(*_: Any, **__: Any) -> dict[Any, Any]:
        return {form: maker(form, function) for form, function in functions.items()}

    monkeypatch.setattr(optimized, "available_forms", forms)
    return made
