"""A trial, as the tuner uses it: start it, send requests to it, wait for its result."""

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
from rocsolid.model import trial_result
from rocsolid.model.codec import decode
from rocsolid.model.redact import redact_all
from rocsolid.model.trial_result import Crashed, Returned, TrialResult
from rocsolid.process.process_tree import processes_of_trial
from rocsolid.tune.isolate.supervisor import BOOTSTRAP

_RESULT_TYPES: Final = {
    kind.kind: kind for kind in vars(trial_result).values() if isinstance(kind, type) and issubclass(kind, TrialResult)
}
_SOURCE: Final = str(Path(trial_result.__file__).parents[2])
_TRIAL_FILES: Final = ("log.txt", "stacks.txt", "result.json")
_CLEAN_UP_S: Final = 10.0  # how long to kill the processes of a trial whose supervisor was killed
_MB: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a trial may use. A phase that is not listed is limited by `total_s` only."""

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
    memory_bytes: int = 0  # host memory of all its processes together; 0 is no limit
    processes: int = 512  # maximum number at the same time
    log_bytes: int = 16 * _MB


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """What a trial runs: a function that takes a `Reporter` and the parameters."""

    target: str  # `module:function` or `file.py:function`
    params: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    variables: Mapping[str, str] = field(default_factory=dict)  # environment variables of its processes
    unset: Sequence[str] = ()  # environment variables that its processes must not have
    python: str = sys.executable


class Trial:
    """A running trial."""

    def __init__(self, spec: TrialSpec, folder: Path, on_phase: Callable[[str], None] | None = None) -> None:
        if not sys.platform.startswith("linux"):
            msg = "rocsolid tune and rocsolid ab need Linux: they isolate trials with Linux process control"
            raise CannotRunError(msg)
        self.trial_id = secrets.token_hex(12)
        self.folder = folder
        self._on_phase = on_phase
        self._result: TrialResult | None = None
        self._accepts_requests = False
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # its output may contain secrets
        for name in _TRIAL_FILES:  # of an earlier trial in this folder
            (folder / name).unlink(missing_ok=True)
        data = {**asdict(spec), "unset": list(spec.unset), "folder": str(folder), "trial_id": self.trial_id}
        file = folder / "spec.json"
        file.write_text(json.dumps({**data, "source": _SOURCE}), encoding="utf-8")
        self._supervisor = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-I", "-S", "-c", BOOTSTRAP.format(src=_SOURCE, module="supervisor"), str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def ready(self) -> bool:
        """Wait until it accepts requests; returns False when it ended before that. May be called again."""
        if not self._accepts_requests:
            self._accepts_requests = self._wait_for("ready") is not None
        return self._accepts_requests and self._result is None

    def request(self, **request: object) -> object | None:
        """Send a request and return the reply, or None when the trial ended instead."""
        self._send({"t": "request", **request})
        reply = self._wait_for("reply")
        return None if reply is None else reply["value"]

    def close(self) -> TrialResult:
        """Make a trial that accepts requests finish; returns its result."""
        self._send({"t": "close"})
        return self.wait()

    def cancel(self) -> TrialResult:
        """End it now."""
        self.request_cancel()
        return self.wait()

    def request_cancel(self) -> None:
        """Make it end, but do not wait for it; another thread may be waiting for the result."""
        self._send({"t": "cancel"})

    def wait(self) -> TrialResult:
        """Wait until it has ended and all its processes are gone."""
        self._wait_for("")
        if self._result is None:  # pragma: no cover - `_wait_for` sets it at the end of the stream
            raise AssertionError
        return self._result

    @property
    def result(self) -> TrialResult | None:
        """How it ended; None while it runs."""
        return self._result

    def __enter__(self) -> "Trial":
        return self

    def __exit__(self, *_: object) -> None:
        if self._result is None:
            self.cancel()

    def _send(self, message: Mapping[str, object]) -> None:
        stdin = self._supervisor.stdin
        if self._result is None and stdin is not None:
            try:
                stdin.write(json.dumps(message) + "\n")
                stdin.flush()
            except OSError:  # the supervisor has ended; its output holds the result
                pass

    def _wait_for(self, event_type: str) -> dict[str, Any] | None:
        """Return the next event of that type, or None when the trial ends first."""
        stdout = self._supervisor.stdout
        while self._result is None and stdout is not None:
            line = stdout.readline()
            event: dict[str, Any] = json.loads(line) if line else {"t": "supervisor died"}
            match event["t"]:
                case "phase" if self._on_phase:
                    self._on_phase(str(event["name"]))
                case "end":
                    self._result = _read_result(event)
                    self._close_streams()
                case "supervisor died":
                    self._result = self._clean_up()
                    self._close_streams()
                case kind if kind == event_type:
                    return event
        return None

    def _clean_up(self) -> TrialResult:
        """Kill the processes of the trial, which are found by the trial id in their environment. Called if the supervisor was killed."""
        deadline = time.monotonic() + _CLEAN_UP_S
        while (left := processes_of_trial(self.trial_id)) and time.monotonic() < deadline:
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        return Crashed(message="the supervisor of the trial was killed", phase="unknown")

    def _close_streams(self) -> None:
        for stream in (self._supervisor.stdin, self._supervisor.stdout):
            if stream is not None:
                with suppress(OSError):  # closing flushes requests that nothing reads any more
                    stream.close()
        self._supervisor.wait()


def run(spec: TrialSpec, folder: Path, on_phase: Callable[[str], None] | None = None) -> TrialResult:
    """Run one trial to its end. Ctrl-C ends it and leaves no process behind."""
    with Trial(spec, folder, on_phase) as trial:
        return trial.wait()


def _read_result(event: dict[str, Any]) -> TrialResult:
    kind = _RESULT_TYPES[event["kind"]]
    if kind is Returned:
        sent = event["result"]
        value = json.loads(Path(sent["file"]).read_text(encoding="utf-8")) if "file" in sent else sent["value"]
        event = {**event, "value": value}
    fields = {name: value for name, value in event.items() if name not in ("t", "kind", "result")}
    # What the workload printed is kept in the study, and shown on its page.
    shown = {name: redact_all(fields[name]) for name in ("message", "cost") if name in fields}
    return decode(kind, {**fields, **shown}, "trial result")
