"""Ctrl-C at random moments of a command: exit code 130, no traceback, nothing left running.

    python -m tests.hardening.interrupts --points 200 --seed 1

SIGINT is ignored until rocsolid's main function is called: what comes before is Python's own start.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.support import clean_environ

WORK = "import torch, time\ndef build():\n    return torch.nn.Linear(4, 4).eval(), (torch.ones(2, 4),), {}\n"
# As in a terminal from here on: without a handler of rocsolid, Python raises KeyboardInterrupt wherever it is.
START = """
import signal, sys
from rocsolid.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""
_MAX_END_S = 10.0  # a command that is almost finished may still end by itself


def interrupt(command: list[str], delay_s: float, folder: Path) -> str:
    """Start the command and interrupt it; return what is wrong, or an empty text with how it ended."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited by the child
    child = subprocess.Popen(
        [sys.executable, "-c", START, *command],
        env=clean_environ(), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    signal.signal(signal.SIGINT, handler)
    time.sleep(delay_s)
    handled, sent = _handles_interrupts(child.pid), time.monotonic()
    os.killpg(child.pid, signal.SIGINT)
    try:
        _, err = child.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return "lost: it did not end within 60 s" if handled else ""  # sent before the start of rocsolid, and ignored
    took_s = time.monotonic() - sent
    time.sleep(0.05)
    left = _in_session(child.pid)
    if left:
        return f"left running: {left}"
    if "Traceback" in err:
        return f"traceback after {delay_s:.3f} s:\n{err}"
    if handled and took_s > _MAX_END_S and child.returncode in (0, 1):
        return f"lost: it went on for {took_s:.1f} s"
    return "" if child.returncode in (0, 1, 130) else f"exit code {child.returncode} after {delay_s:.3f} s:\n{err}"


def _handles_interrupts(pid: int) -> bool:
    """Whether the process has a handler for SIGINT."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has ended
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal.SIGINT - 1) & 1)


def _in_session(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def interrupt_at_random(points: int, seed: int, commands: list[list[str]], longest_s: float) -> list[str]:
    """Interrupt the commands at random moments; return what was wrong."""
    rng = random.Random(seed)  # noqa: S311
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "work.py").write_text(WORK)
        found = [interrupt(rng.choice(commands), rng.uniform(0.02, longest_s), Path(folder)) for _ in range(points)]
    wrong = [text for text in found if text]
    sys.stderr.write(
        f"{points} interrupts, seed {seed}: {len(wrong)} wrong {dict(Counter(t.split(' ')[0] for t in wrong))}\n"
    )
    return wrong


COMMANDS = [
    ["probe"],
    ["lint", "."],
    ["breaks", "work.py:build"],
    ["compiles", "work.py:build"],
    ["optimize", "work.py:build"],
]


def main() -> int:
    """Interrupt all commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    wrong = interrupt_at_random(args.points, args.seed, COMMANDS, 5.0)
    sys.stdout.write("\n\n".join(wrong[:10]) + "\n" if wrong else "")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
