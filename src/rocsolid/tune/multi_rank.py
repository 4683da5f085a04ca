"""A workload with several ranks as one trial: the trial's process is rank 0 and starts the others as torchrun would.

Every rank builds and checks the variant by itself. During the measurement, rank 0 decides how many calls are made, and sends the
other ranks one byte through a pipe before each call. This takes a few microseconds, the same for every variant.
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

_CALL, _CHECK = b"c", b"v"  # the bytes that rank 0 sends
_SOURCE: Final = str(Path(__file__).parents[2])
_BOOTSTRAP: Final = (
    "import sys; {src!r} in sys.path or sys.path.insert(0, {src!r}); from {module} import {function} as main; main()"
)
_OTHER_RANK_S: Final = 3.0  # how long rank 0 waits for the error of another rank before it reports its own


class OtherRanks:
    """The ranks other than rank 0. With one rank there are none, and every method does nothing.

    `target` is the `module:function` that each of them runs; the function calls `run_rank`.
    """

    def __init__(self, reporter: Reporter, ranks: int, target: str, params: Mapping[str, Any]) -> None:
        self._reporter = reporter
        self._finished = False
        self._files = [reporter.folder / f"rank-{rank}.json" for rank in range(1, ranks)]
        self._processes: list[subprocess.Popen[bytes]] = []
        if ranks == 1:
            return
        for name, value in _torchrun_variables(ranks).items():
            os.environ[name] = value
        _set_rank(0)
        module, _, function = target.partition(":")
        code = _BOOTSTRAP.format(src=_SOURCE, module=module, function=function)
        for rank, file in enumerate(self._files, 1):
            file.unlink(missing_ok=True)
            spec = json.dumps({"rank": rank, "file": str(file), "params": dict(params)})
            process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-c", code, spec], stdin=subprocess.PIPE, bufsize=0
            )
            self._processes.append(process)
            threading.Thread(target=self._watch, args=(rank, process, file), daemon=True).start()

    def call(self) -> None:
        """Make the other ranks call the workload once; rank 0 calls it at the same time."""
        self._send(_CALL)

    def check(self) -> None:
        """Make the other ranks check their results; rank 0 checks its own at the same time."""
        self._send(_CHECK)

    def finish(self) -> int:
        """Wait until they have ended; returns the largest peak device memory of any of them, in bytes."""
        self._finished = True
        for process in self._processes:
            if process.stdin:
                process.stdin.close()
        for process in self._processes:
            process.wait()
        return max((json.loads(file.read_text(encoding="utf-8"))["peak_bytes"] for file in self._files), default=0)

    def wait_for_their_error(self) -> None:
        """Call this when rank 0 has failed. If another rank failed first, its error is reported, and this does not return."""
        if self._processes:
            threading.Event().wait(_OTHER_RANK_S)

    def _send(self, command: bytes) -> None:
        for process in self._processes:
            with suppress(OSError):  # it has ended; `_watch` reports why
                os.write(process.stdin.fileno(), command) if process.stdin else None

    def _watch(self, rank: int, process: "subprocess.Popen[bytes]", file: Path) -> None:
        """End the trial when a rank ends too early, with that rank's exception or signal."""
        code = process.wait()
        if self._finished and code == 0:
            return
        sys.stderr.write(f"rank {rank} ended with exit status {code}\n")
        sys.stderr.flush()
        if code < 0:
            faulthandler.disable()  # it would print the stacks of rank 0, and reading stacks while other threads run can crash
            signal.raise_signal(-code)  # ends the process, so nothing below runs
        error = {"type": "CannotRunError", "message": f"exit status {code}"}
        with suppress(OSError, ValueError):
            error = json.loads(file.read_text(encoding="utf-8"))
        message = f"rank {rank}: {error['message']}"
        self._reporter.send({"t": "error", "type": error["type"], "message": message})
        os._exit(1)


def _torchrun_variables(ranks: int) -> dict[str, str]:
    """The environment variables that torchrun sets."""
    with socket.socket() as probe:  # the kernel chooses a free port
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
    }


def _set_rank(rank: int) -> None:
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)


def follow_rank_0(commands: int, call: Callable[[], object], check: Callable[[], object]) -> None:
    """Call and check whenever rank 0 does. `commands` is the file descriptor of the pipe; it ends when rank 0 closes it."""
    while command := os.read(commands, 1):
        if command == _CALL:
            call()
        else:
            check()


def run_rank(body: Callable[[Mapping[str, Any], int], int]) -> None:
    """The main program of a rank other than 0.

    `body` takes the parameters and the file descriptor of the pipe with rank 0's commands. It returns the peak device memory in bytes.
    """
    spec = json.loads(sys.argv[1])
    sys.argv[1:] = []
    _set_rank(spec["rank"])
    file = Path(spec["file"])
    code = 0
    try:
        _write(file, {"peak_bytes": body(spec["params"], sys.stdin.fileno())})
    except BaseException as error:  # noqa: BLE001 - whatever it raises is the trial's result
        traceback.print_exc()
        _write(file, {"type": type(error).__name__, "message": str(error)[:4000]})
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _write(file: Path, data: Mapping[str, Any]) -> None:
    partial = file.with_suffix(".part")
    partial.write_text(json.dumps(data), encoding="utf-8")
    partial.replace(file)
