"""The tuner's side of a trial: start it, ask it, wait for its ending."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rocsolid.errors import CannotRunError
from rocsolid.model import trial_result as endings
from rocsolid.model.codec import decode
from rocsolid.model.trial_result import Answered, Crashed, Ending
from rocsolid.process.process_tree import carriers
from rocsolid.tune.isolate.supervisor import START

_KINDS: Final = {
    kind.kind: kind for kind in vars(endings).values() if isinstance(kind, type) and issubclass(kind, Ending)
}
_SOURCE: Final = str(Path(endings.__file__).parents[2])
_LEFT_BEHIND: Final = ("log.txt", "stacks.txt", "answer.json")
_MB: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a trial may take. A phase without a deadline is only bound by the total."""

    phases: Mapping[str, float] = field(
        default_factory=lambda: {
            "import": 180.0,
            "build": 300.0,
            "compile": 600.0,
            "capture": 120.0,
            "verify": 180.0,
            "measure": 120.0,
        }
    )
    total_s: float = 3600.0
    heartbeat_s: float = 60.0
    memory_bytes: int = 0  # of all its processes together; 0 is no limit
    processes: int = 512
    log_bytes: int = 16 * _MB


@dataclass(frozen=True, kw_only=True)
class Errand:
    """What a trial is to do: a function that takes a `Reporter` and the parameters."""

    target: str  # `module:function` or `file.py:function`
    params: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    variables: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = ()
    python: str = sys.executable


class Trial:
    """A trial under way."""

    def __init__(self, errand: Errand, folder: Path, on_phase: Callable[[str], None] | None = None) -> None:
        if not sys.platform.startswith("linux"):
            msg = "trials run in processes of their own, and that needs Linux"
            raise CannotRunError(msg)
        self.token = secrets.token_hex(12)
        self.folder = folder
        self._on_phase = on_phase
        self._ending: Ending | None = None
        self._serves = False
        folder.mkdir(parents=True, exist_ok=True)
        for name in _LEFT_BEHIND:  # by a trial that had this folder before: its last words are not ours
            (folder / name).unlink(missing_ok=True)
        spec = {**asdict(errand), "unset": list(errand.unset), "folder": str(folder), "token": self.token}
        file = folder / "spec.json"
        file.write_text(json.dumps({**spec, "source": _SOURCE}), encoding="utf-8")
        self._nanny = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-I", "-S", "-c", START.format(src=_SOURCE, module="nanny"), str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def ready(self) -> bool:
        """Wait until it serves; False when it ended before. May be asked again."""
        if not self._serves:
            self._serves = self._until("ready") is not None
        return self._serves and self._ending is None

    def ask(self, **request: object) -> object | None:
        """Put a request to a trial that serves; None when it ended instead of answering."""
        self._send({"t": "ask", **request})
        reply = self._until("reply")
        return None if reply is None else reply["value"]

    def close(self) -> Ending:
        """Tell a trial that serves to finish."""
        self._send({"t": "close"})
        return self.wait()

    def cancel(self) -> Ending:
        """End it now."""
        self.call_off()
        return self.wait()

    def call_off(self) -> None:
        """Tell it to end; somebody else may be waiting for that."""
        self._send({"t": "cancel"})

    def wait(self) -> Ending:
        """Until it has ended and every process of it is gone."""
        self._until("")
        if self._ending is None:  # pragma: no cover - `_until` sets it at the end of the stream
            raise AssertionError
        return self._ending

    @property
    def ending(self) -> Ending | None:
        """How it ended, once it has."""
        return self._ending

    def __enter__(self) -> "Trial":
        return self

    def __exit__(self, *_: object) -> None:
        if self._ending is None:
            self.cancel()

    def _send(self, message: Mapping[str, object]) -> None:
        stdin = self._nanny.stdin
        if self._ending is None and stdin is not None:
            try:
                stdin.write(json.dumps(message) + "\n")
                stdin.flush()
            except OSError:  # it has ended; the stream will tell how
                pass

    def _until(self, wanted: str) -> dict[str, Any] | None:
        """The next message of that kind; None when the trial ends first."""
        stdout = self._nanny.stdout
        while self._ending is None and stdout is not None:
            line = stdout.readline()
            message: dict[str, Any] = json.loads(line) if line else {"t": "gone"}
            match message["t"]:
                case "phase" if self._on_phase:
                    self._on_phase(str(message["name"]))
                case "ending":
                    self._ending = _ending(message)
                    self._let_go()
                case "gone":
                    self._ending = self._orphaned()
                    self._let_go()
                case kind if kind == wanted:
                    return message
        return None

    def _orphaned(self) -> Ending:
        """The nanny was killed: clear up in its place, by the mark that every process of the trial carries."""
        give_up = time.monotonic() + 10.0
        while (left := carriers(self.token)) and time.monotonic() < give_up:
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        return Crashed(says="the process that looked after the trial was killed", phase="unknown")

    def _let_go(self) -> None:
        for stream in (self._nanny.stdin, self._nanny.stdout):
            if stream is not None:
                with suppress(OSError):  # what was still to be written has no reader
                    stream.close()
        self._nanny.wait()


def run(errand: Errand, folder: Path, on_phase: Callable[[str], None] | None = None) -> Ending:
    """One trial from start to end; an interrupt ends it and leaves nothing behind."""
    with Trial(errand, folder, on_phase) as trial:
        return trial.wait()


def _ending(message: dict[str, Any]) -> Ending:
    kind = _KINDS[message["kind"]]
    if kind is Answered:
        answer = message["answer"]
        value = json.loads(Path(answer["file"]).read_text(encoding="utf-8")) if "file" in answer else answer["value"]
        message = {**message, "value": value}
    fields = {name: value for name, value in message.items() if name not in ("t", "kind", "answer")}
    return decode(kind, fields, "ending")
