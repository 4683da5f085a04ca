"""Protect a program that you can edit, one that you cannot, and a single compile.

python examples/protect_a_script.py

On ROCm, the guard refuses settings that can hang, crash or give wrong results; on CUDA and the CPU it changes nothing.
A compile deadline works on every platform.
"""

import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import rocsolid as rs

logging.getLogger("rocsolid").setLevel(logging.CRITICAL)  # a compile that exceeds its deadline logs long stacks


# 1. Which settings of this process are hazards? Check in the thread that compiles.
serious = [finding for finding in rs.check(rs.probe()) if finding.severity.name != "INFO"]
print(f"{len(serious)} findings above severity INFO")

# 2. A program that you can edit: unsafe settings are refused inside the block and restored at the end.
with rs.guard() as guard:
    double = torch.compile(lambda x: x * 2, backend="eager")
    print("guarded:", double(torch.ones(2)).tolist(), "· refused:", len(guard.interventions))


# 3. A compile that may take too long: after the deadline, the function falls back to eager.
def never_ends(graph: Any, inputs: Any) -> Any:
    """A backend that hangs, as autotuning sometimes does."""
    time.sleep(60)
    raise AssertionError(graph, inputs)


@rs.compile(deadline_s=1, backend=never_ends)
def scale(x: torch.Tensor) -> torch.Tensor:
    """Multiply by three."""
    return x * 3


start = time.monotonic()
print("after the deadline:", scale(torch.ones(2)).tolist())
assert time.monotonic() - start < 30

# 4. A program that you cannot edit: `rocsolid run` starts it. Exit code, signals and arguments are passed through.
script = Path(tempfile.mkdtemp()) / "other_program.py"
script.write_text("import sys, torch\nprint('other program:', torch.ones(2).sum().item(), sys.argv[1:])\nsys.exit(7)\n")
command = [sys.executable, "-m", "rocsolid", "run", "--deadline", "300", str(script), "--port", "8000"]
finished = subprocess.run(command, capture_output=True, text=True, check=False)
print(finished.stdout.strip(), "· exit code", finished.returncode)
assert finished.returncode == 7, finished.stderr
