"""A workload of several ranks as one trial: the trial's process is rank 0, and starts the others as torchrun would.

Up to the measurement all ranks do the same by themselves. How often a call is timed is rank 0's decision, so from then on the
others make a call whenever they are told to: a byte on a pipe, a few microseconds that every variant pays alike.
"""

import faulthandler
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rocsolid.tune.isolate.trial_process import Reporter

_CALL, _CHECK = b"c", b"v"
_SOURCE: Final = str(Path(__file__).parents[2])
_START: Final = (
    "import sys; {src!r} in sys.path or sys.path.insert(0, {src!r}); from rocsolid.tune.multi_rank import main; main()"
)
_LAST_WORDS_S: Final = 3.0  # what a rank that dies takes with it must not speak before it


class Others:
    """The ranks beside rank 0; of one rank there are none, and every method does nothing."""

    def __init__(self, reporter: Reporter, ranks: int, wish: Mapping[str, Any]) -> None:
        self._reporter = reporter
        self._over = False
        self._files = [reporter.folder / f"rank-{rank}.json" for rank in range(1, ranks)]
        self._processes: list[subprocess.Popen[bytes]] = []
        if ranks == 1:
            return
        for name, value in _variables(ranks).items():
            os.environ[name] = value
        _be(0)
        for rank, file in enumerate(self._files, 1):
            file.unlink(missing_ok=True)
            told = json.dumps({"rank": rank, "file": str(file), "wish": dict(wish)})
            process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-c", _START.format(src=_SOURCE), told], stdin=subprocess.PIPE, bufsize=0
            )
            self._processes.append(process)
            threading.Thread(target=self._watch, args=(rank, process, file), daemon=True).start()

    def call(self) -> None:
        """Rank 0 is about to call."""
        self._tell(_CALL)

    def check(self) -> None:
        """Rank 0 is about to check its answers."""
        self._tell(_CHECK)

    def finish(self) -> int:
        """Let them end; the most device memory that one of them took."""
        self._over = True
        for process in self._processes:
            if process.stdin:
                process.stdin.close()
        for process in self._processes:
            process.wait()
        return max((json.loads(file.read_text(encoding="utf-8"))["peak_bytes"] for file in self._files), default=0)

    def speak_first(self) -> None:
        """Rank 0 has failed; when that is because another did, the other's reason is told, and this does not return."""
        if self._processes:
            threading.Event().wait(_LAST_WORDS_S)

    def _tell(self, what: bytes) -> None:
        for process in self._processes:
            with suppress(OSError):  # it has ended; whoever watches it says why
                os.write(process.stdin.fileno(), what) if process.stdin else None

    def _watch(self, rank: int, process: "subprocess.Popen[bytes]", file: Path) -> None:
        """A rank that ends too early ends the trial, in its own words or by its own signal."""
        code = process.wait()
        if self._over and code == 0:
            return
        sys.stderr.write(f"rank {rank} ended with {code}\n")
        sys.stderr.flush()
        if code < 0:
            faulthandler.disable()  # its stacks would be ours, and walking them beside running threads can crash by itself
            signal.raise_signal(-code)  # to this thread, so that nothing below is done
        said = {"type": "CannotRunError", "says": f"it ended with {code}"}
        with suppress(OSError, ValueError):
            said = json.loads(file.read_text(encoding="utf-8"))
        self._reporter.send({"t": "error", "type": said["type"], "says": f"rank {rank}: {said['says']}"})
        os._exit(1)


def _variables(ranks: int) -> dict[str, str]:
    """What torchrun tells its processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
    }


def _be(rank: int) -> None:
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)


def follow(commands: int, made: Any, check: Callable[[], object]) -> None:
    """Do what rank 0 does, when it does it, until it lets us end."""
    while told := os.read(commands, 1):
        if told == _CALL:
            made.call()
        else:
            check()


def main() -> None:
    """One rank that is not the first."""
    told = json.loads(sys.argv[1])
    sys.argv[1:] = []
    _be(told["rank"])
    file = Path(told["file"])
    code = 0
    try:
        from rocsolid.tune.variant import follow_along

        _leave(file, {"peak_bytes": follow_along(told["wish"], sys.stdin.fileno())})
    except BaseException as error:  # noqa: BLE001 - whatever it raises is the trial's result
        traceback.print_exc()
        _leave(file, {"type": type(error).__name__, "says": str(error)[:4000]})
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _leave(file: Path, words: Mapping[str, Any]) -> None:
    partial = file.with_suffix(".part")
    partial.write_text(json.dumps(words), encoding="utf-8")
    partial.replace(file)
