"""The inside of a trial: it says in which phase it is, gives signs of life, and hands its answer over."""

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

_BEAT_S: Final = 0.5
_LARGE: Final = 32 * 1024  # an answer beyond this goes through a file, so that nobody waits for a reader
_LAST_WORDS: Final = 97


class WrongAnswerError(Exception):
    """What was computed is not what eager computes; the trial ends as a wrong result."""


class Reporter:
    """What a trial's function is given."""

    def __init__(self, folder: Path, reporting: int, hearing: int) -> None:
        self.folder = folder
        self._out, self._in = reporting, hearing
        self._lock = threading.Lock()
        self._phase = "import"
        threading.Thread(target=self._beat, name="rocsolid-heartbeat", daemon=True).start()

    def phase(self, name: str) -> None:
        """A new phase begins, with a deadline of its own."""
        self._phase = name
        self.send({"t": "phase", "name": name})

    def serve(self, answer: Callable[[dict[str, Any]], Any]) -> None:
        """Stay, and answer requests until told to close; each runs as phase `measure`."""
        self.phase("idle")
        self.send({"t": "ready"})
        with os.fdopen(os.dup(self._in), encoding="utf-8") as requests:
            for line in requests:
                request = json.loads(line)
                if request["t"] == "close":
                    return
                self.phase("measure")
                reply = answer(request)
                self.phase("idle")
                self.send({"t": "reply", "value": reply})

    def send(self, message: dict[str, Any]) -> None:
        """One line to the nanny."""
        left = memoryview(json.dumps(message).encode() + b"\n")
        with self._lock:
            while left:
                left = left[os.write(self._out, left) :]

    def hand_over(self, value: object) -> None:
        """The answer; through a file when it is large."""
        text = json.dumps(value)
        if len(text) <= _LARGE:
            self.send({"t": "answer", "value": value})
            return
        file = self.folder / "answer.json"
        partial = file.with_suffix(".part")
        with partial.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(file)
        self.send({"t": "answer", "file": str(file)})

    def _beat(self) -> None:
        while True:
            try:
                self.send({"t": "beat"})
            except OSError:  # nobody looks after us any more
                os._exit(_LAST_WORDS)
            time.sleep(_BEAT_S)


def function_of(target: str) -> Callable[..., Any]:
    """`module:function` or `file.py:function`."""
    place, _, name = target.rpartition(":")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location("rocsolid_trial", place)
        if spec is None or spec.loader is None:
            raise ImportError(place)
        module = importlib.util.module_from_spec(spec)
        sys.modules["rocsolid_trial"] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    function: Callable[..., Any] = getattr(module, name)
    return function


def main() -> None:
    """Run the function that the trial's file names; leave without tearing anything down, because that may hang."""
    file, reporting, hearing = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    sys.argv[1:] = []
    for fd in (reporting, hearing):  # programs that the trial starts must not hold our pipes
        os.set_inheritable(fd, False)
    spec = json.loads(file.read_text(encoding="utf-8"))
    stacks = (file.parent / "stacks.txt").open("w", encoding="utf-8")
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True, chain=False)
    reporter = Reporter(file.parent, reporting, hearing)
    code = 0
    try:
        reporter.hand_over(function_of(spec["target"])(reporter, **spec["params"]))
    except BaseException as error:  # noqa: BLE001 - SystemExit too: whatever it raises is the result
        traceback.print_exc()
        reporter.send({"t": "error", "type": type(error).__name__, "says": str(error)[:4000]})
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
