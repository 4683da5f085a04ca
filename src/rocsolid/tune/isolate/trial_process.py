"""The code that runs in a trial's process: report the phase, send heartbeats, and send the result."""

import faulthandler
import importlib
import importlib.util
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_HEARTBEAT_S: Final = 0.5
_MAX_INLINE_BYTES: Final = 32 * 1024  # a larger result goes through a file, so that nothing blocks on a full pipe
_EXIT_SUPERVISOR_LOST: Final = 97  # exit code when the supervisor has ended


class WrongResultError(Exception):
    """The variant's results differ from those of eager; the trial ends as a WrongResult."""


class Reporter:
    """Sends events from a trial's function to the supervisor, and receives requests."""

    def __init__(self, folder: Path, events_fd: int, requests_fd: int) -> None:
        self.folder = folder
        self._events_fd, self._requests_fd = events_fd, requests_fd
        self._lock = threading.Lock()
        threading.Thread(target=self._send_heartbeats, name="rocsolid-heartbeat", daemon=True).start()

    def phase(self, name: str) -> None:
        """Enter a new phase, which has its own deadline."""
        self.send({"t": "phase", "name": name})

    def serve(self, handle: Callable[[dict[str, Any]], Any]) -> None:
        """Handle requests until a request to close arrives. Each one runs in phase `measure`; between them the phase is `idle`."""
        self.phase("idle")
        self.send({"t": "ready"})
        with os.fdopen(os.dup(self._requests_fd), encoding="utf-8") as requests:
            for line in requests:
                request = json.loads(line)
                if request["t"] == "close":
                    return
                self.phase("measure")
                reply = handle(request)
                self.phase("idle")
                self.send({"t": "reply", "value": reply})

    def send(self, event: dict[str, Any]) -> None:
        """Send one line to the supervisor."""
        unsent = memoryview(json.dumps(event).encode() + b"\n")
        with self._lock:
            while unsent:
                unsent = unsent[os.write(self._events_fd, unsent) :]

    def send_result(self, value: object) -> None:
        """Send the result; through a file when it is large."""
        text = json.dumps(value)
        if len(text) <= _MAX_INLINE_BYTES:
            self.send({"t": "result", "value": value})
            return
        file = self.folder / "result.json"
        partial = file.with_suffix(".part")
        with partial.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(file)
        self.send({"t": "result", "file": str(file)})

    def _send_heartbeats(self) -> None:
        while True:
            try:
                self.send({"t": "heartbeat"})
            except OSError:  # the supervisor is gone
                os._exit(_EXIT_SUPERVISOR_LOST)
            time.sleep(_HEARTBEAT_S)


def import_target(target: str) -> Callable[..., Any]:
    """Import and return the function that `module:function` or `file.py:function` names."""
    location, _, name = target.rpartition(":")
    if location.endswith(".py"):
        spec = importlib.util.spec_from_file_location("rocsolid_trial", location)
        if spec is None or spec.loader is None:
            raise ImportError(location)
        module = importlib.util.module_from_spec(spec)
        sys.modules["rocsolid_trial"] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(location)
    function: Callable[..., Any] = getattr(module, name)
    return function


def main() -> None:
    """Run the function that spec.json names, and exit without teardown, because teardown may hang."""
    file, events_fd, requests_fd = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    sys.argv[1:] = []
    for fd in (events_fd, requests_fd):  # programs that the trial starts must not inherit our pipes
        os.set_inheritable(fd, False)
    spec = json.loads(file.read_text(encoding="utf-8"))
    stacks = (file.parent / "stacks.txt").open("w", encoding="utf-8")
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True, chain=False)
    reporter = Reporter(file.parent, events_fd, requests_fd)
    code = 0
    try:
        reporter.send_result(import_target(spec["target"])(reporter, **spec["params"]))
    except BaseException as error:  # noqa: BLE001 - whatever it raises, even SystemExit, is the result
        traceback.print_exc()
        reporter.send({"t": "error", "type": type(error).__name__, "message": str(error)[:4000]})
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
