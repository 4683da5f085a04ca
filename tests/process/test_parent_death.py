"""A child that hangs does not outlive a parent that is killed."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support import until, with_path

pytestmark = pytest.mark.torch
HANGS = "import os, pathlib, time\ndef hang(*_):\n    pathlib.Path(os.environ['NOTE']).write_text(str(os.getpid()))\n    time.sleep(1000)\n"
RUNS_COMMAND = "import sys\nfrom rocsolid.process.run_command import Command, run_with_deadline\nrun_with_deadline(Command(name='x', command=sys.argv[1:], deadline_s=1000))\n"
SAVES_CALL = "import sys, torch, planted\nclass Call:\n    def __reduce__(self): return planted.hang, ()\ntorch.save({'model': Call()}, sys.argv[1])\n"


@pytest.mark.parametrize("child", ["rocsolid.probe.active_programs", "rocsolid.runtime.compile_in_child"])
def test_hanging_child_dies_with_its_parent(child: str, tmp_path: Path) -> None:
    note, call = tmp_path / "note", tmp_path / "call.pt"
    env = {**with_path(tmp_path), "NOTE": str(note)}
    (tmp_path / "planted.py").write_text(HANGS)
    (tmp_path / "aiter.py").write_text(f"{HANGS}flash_attn_func = hang\n")
    subprocess.run([sys.executable, "-c", SAVES_CALL, str(call)], env=env, check=True)
    wanted = str(call) if child.endswith("child") else "fp8 attention"
    parent = subprocess.Popen([sys.executable, "-c", RUNS_COMMAND, sys.executable, "-m", child, wanted], env=env)
    until(lambda: note.exists() and note.read_text())
    pid = note.read_text()
    assert is_alive(pid)
    parent.kill()
    parent.wait()

    until(lambda: not is_alive(pid))


def is_alive(pid: str) -> bool:
    """Whether the process is alive; a zombie has an empty command line."""
    with suppress(OSError):
        return bool(Path("/proc", pid, "cmdline").read_bytes())
    return False
