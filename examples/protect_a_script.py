"""Protect a program that you may edit, one that you may not, and one compile.

python examples/protect_a_script.py

On ROCm the guard refuses what can hang, crash or answer wrongly; on CUDA and CPU it leaves every choice alone.
A deadline for compiles holds on every platform.
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

logging.getLogger("rocsolid").setLevel(logging.CRITICAL)  # the stacks of a compile that is called off fill a screen


# 1. What here would hurt? Ask in the thread that compiles.
worst = [finding for finding in rs.check(rs.probe()) if finding.severity.name != "INFO"]
print(f"{len(worst)} findings above a note")

# 2. A program you may edit: everything in the block is made safe, and put back at the end.
with rs.guard() as guard:
    double = torch.compile(lambda x: x * 2, backend="eager")
    print("guarded:", double(torch.ones(2)).tolist(), "· refused:", len(guard.interventions))


# 3. One compile that may take too long: after the deadline the function runs eagerly.
def never_ends(graph: Any, inputs: Any) -> Any:
    """Stand for a search that does not come back."""
    time.sleep(60)
    raise AssertionError(graph, inputs)


@rs.compile(deadline_s=1, backend=never_ends)
def scale(x: torch.Tensor) -> torch.Tensor:
    """Three times as much."""
    return x * 3


begun = time.monotonic()
print("after the deadline:", scale(torch.ones(2)).tolist())
assert time.monotonic() - begun < 30

# 4. A program you may not edit: rocsolid becomes it. Exit code, signals and arguments are the program's own.
script = Path(tempfile.mkdtemp()) / "somebody_elses.py"
script.write_text("import sys, torch\nprint('theirs:', torch.ones(2).sum().item(), sys.argv[1:])\nsys.exit(7)\n")
launched = [sys.executable, "-m", "rocsolid", "run", "--deadline", "300", str(script), "--port", "8000"]
done = subprocess.run(launched, capture_output=True, text=True, check=False)
print(done.stdout.strip(), "· exit code", done.returncode)
assert done.returncode == 7, done.stderr
