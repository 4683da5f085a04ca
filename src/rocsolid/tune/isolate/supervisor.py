"""The process between the tuner and a trial: it enforces the deadlines, kills the trial and classifies how it ended.

It is a separate process for three reasons. It can be the subreaper of the trial without affecting the user's program. It still cleans
up when the tuner is killed. And it never uses a GPU, so nothing that a trial does can block it.

It runs without site-packages and exchanges JSON lines with the tuner: events on stdout, requests on stdin. When stdin is closed, the
tuner has ended.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from rocsolid.process.process_tree import (
    TERMINATION_SIGNALS,
    TRIAL_VARIABLE,
    become_subreaper,
    child_setup,
    descendants,
    kill_descendants,
    memory_bytes,
    oom_kill_count,
)
from rocsolid.tune.isolate.classify_exit import classify_exit
from rocsolid.tune.isolate.log import Log

_TICK_S: Final = 0.05
_MEMORY_EVERY_S: Final = 0.1
_MEMORY_EVERY_WHILE_TIMED_S: Final = 1.0
# A trial in the phase `idle` is set up and waits for its next turn, while a process of another variant is timed. In both phases,
# reading the memory often would disturb the timing.
_TIMED_PHASES: Final = ("measure", "idle")
_STACKS_S: Final = 2.0  # how long a trial may take to write its stacks
_CHUNK_BYTES: Final = 1 << 16
# The code that starts one of our modules in a new interpreter.
BOOTSTRAP: Final = "import sys; {src!r} in sys.path or sys.path.insert(0, {src!r}); from rocsolid.tune.isolate.{module} import main; main()"


class JsonLines:
    """JSON objects, one per line, from a pipe that is read without blocking."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.open = True
        self._buffer = bytearray()
        os.set_blocking(fd, False)

    def read(self) -> list[dict[str, Any]]:
        """Return the objects that have arrived; `open` becomes False at the end of the pipe."""
        messages = []
        while self.open:
            try:
                chunk = os.read(self.fd, _CHUNK_BYTES)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            self.open = bool(chunk)
            begin = len(self._buffer)
            self._buffer += chunk
            while (end := self._buffer.find(b"\n", begin)) >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                begin = 0
                try:
                    message = json.loads(line)
                except ValueError:  # something else wrote into our pipe
                    continue
                if isinstance(message, dict):
                    messages.append(message)
        return messages


class Supervisor:
    """One trial, from its start until the last of its processes has ended."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec, self._limits = spec, spec["limits"]
        self._folder = Path(spec["folder"])
        self._started = self._phase_started = self._last_heartbeat = time.monotonic()
        self._phase = "import"
        self._phases: dict[str, float] = {}
        self._result: dict[str, Any] | None = None
        self._error: dict[str, Any] | None = None
        self._memory_bytes, self._peak_bytes, self._processes, self._max_processes = 0, 0, 1, 1
        self._oom_kills = oom_kill_count()
        self._parent = os.getppid()
        self._log = Log(self._folder / "log.txt", self._limits["log_bytes"])
        self._start()
        self._requests = JsonLines(sys.stdin.fileno())
        threading.Thread(target=self._watch_memory, daemon=True).start()

    def _start(self) -> None:
        events_read, events_write = os.pipe()
        requests_read, self._requests_write = os.pipe()
        variables = {**os.environ, **self._spec["variables"]}
        for name in self._spec["unset"]:
            variables.pop(name, None)
        variables[TRIAL_VARIABLE] = self._spec["trial_id"]
        variables["PYTHONUNBUFFERED"] = "1"
        code = BOOTSTRAP.format(src=self._spec["source"], module="trial_process")
        self._child = subprocess.Popen(  # noqa: S603 - our own interpreter
            [self._spec["python"], "-c", code, str(self._folder / "spec.json"), str(events_write), str(requests_read)],
            stdin=subprocess.DEVNULL,
            stdout=self._log.fd,
            stderr=self._log.fd,
            env=variables,
            start_new_session=True,
            pass_fds=(events_write, requests_read),
            preexec_fn=child_setup(),  # noqa: PLW1509 - this process has one thread so far
        )
        os.close(events_write)
        os.close(requests_read)
        self._events = JsonLines(events_read)

    def run(self) -> dict[str, Any]:
        """Wait until the trial ends or must be ended; returns the fields of its TrialResult."""
        cause = None
        while cause is None and self._child.poll() is None:
            sources = [lines.fd for lines in (self._events, self._requests) if lines.open]
            select.select(sources, [], [], _TICK_S)
            self._read_events()
            cause = self._forward_requests() or self._check_deadlines() or self._check_limits()
        if cause is not None and cause["kind"] != "cancelled":
            self._dump_stacks()
        return self._finish(cause)

    def _read_events(self) -> None:
        for event in self._events.read():
            self._last_heartbeat = time.monotonic()
            match event.get("t"):
                case "phase":
                    self._enter_phase(str(event["name"]))
                case "result":
                    self._result = event
                case "error":
                    self._error = event
                case "ready" | "reply":
                    send(event)

    def _enter_phase(self, phase: str) -> None:
        now = time.monotonic()
        self._phases[self._phase] = self._phases.get(self._phase, 0.0) + now - self._phase_started
        self._phase, self._phase_started = phase, now
        send({"t": "phase", "name": phase})

    def _forward_requests(self) -> dict[str, Any] | None:
        for request in self._requests.read():
            if request.get("t") == "cancel":
                return {"kind": "cancelled", "message": "cancelled by the tuner"}
            try:
                os.write(self._requests_write, json.dumps(request).encode() + b"\n")
            except OSError:  # the trial has just ended; its exit status follows
                break
        if not self._requests.open or os.getppid() != self._parent:
            return {"kind": "cancelled", "message": "the tuner process ended unexpectedly"}
        return None

    def _check_deadlines(self) -> dict[str, Any] | None:
        now = time.monotonic()
        limit = self._limits["phases"].get(self._phase)
        if limit is not None and now - self._phase_started > limit:
            return {"kind": "timed out", "limit_s": limit}
        if now - self._started > self._limits["total_s"]:
            return {"kind": "timed out", "limit_s": self._limits["total_s"]}
        if now - self._last_heartbeat > self._limits["heartbeat_s"]:
            return {"kind": "timed out", "limit_s": self._limits["heartbeat_s"], "silent": True}
        return None

    def _watch_memory(self) -> None:
        """Measure memory and count processes, in a thread: reading a process's memory may block forever if a driver is stuck."""
        while True:
            started = time.monotonic()
            members = descendants(os.getpid())
            self._processes, self._max_processes = len(members), max(self._max_processes, len(members))
            self._memory_bytes = sum(memory_bytes(pid) for pid in members)
            self._peak_bytes = max(self._peak_bytes, self._memory_bytes)
            # Reading a large address space is slow. Spend at most a tenth of the time on it, and less while a trial is timed.
            pause = _MEMORY_EVERY_WHILE_TIMED_S if self._phase in _TIMED_PHASES else _MEMORY_EVERY_S
            time.sleep(max(pause, 10 * (time.monotonic() - started)))

    def _check_limits(self) -> dict[str, Any] | None:
        """Check memory and number of processes, and trim the log."""
        self._log.trim()
        used, processes = self._memory_bytes, self._processes
        max_bytes, max_processes = self._limits["memory_bytes"], self._limits["processes"]
        if max_bytes and used > max_bytes:
            message = f"{processes} processes used {used >> 20} MB, the limit is {max_bytes >> 20} MB"
            return {"kind": "out of memory", "memory": "host", "message": message}
        if processes > max_processes:
            return {"kind": "too many processes", "message": f"{processes} processes, the limit is {max_processes}"}
        return None

    def _dump_stacks(self) -> None:
        """Make the child write the stacks of all its threads; its signal handler is in C and does not need the GIL."""
        stacks = self._folder / "stacks.txt"
        if not stacks.exists():  # the child has not installed its handler yet
            return
        os.kill(self._child.pid, signal.SIGUSR1)
        previous_size, deadline = -1, time.monotonic() + _STACKS_S
        while time.monotonic() < deadline and not _is_stopped(self._child.pid):
            time.sleep(_TICK_S)
            size = stacks.stat().st_size
            if size and size == previous_size:  # written completely
                return
            previous_size = size

    def _finish(self, cause: dict[str, Any] | None) -> dict[str, Any]:
        killed, left = kill_descendants(os.getpid(), keep_status_of=self._child.pid)
        code = self._child.wait() if self._child.pid not in {p.pid for p in left} else None
        self._read_events()
        self._enter_phase(self._phase)
        log_tail = self._log.finish()
        fields = classify_exit(
            cause=cause,
            code=code,
            returned=self._result is not None,
            error=self._error,
            log_tail=log_tail,
            oom_kills=oom_kill_count() - self._oom_kills,
            phase=self._phase,
        )
        if left:
            stuck = ", ".join(f"{p.pid} (state {p.state})" for p in left)
            message = f"{fields['kind']}, and these processes cannot be killed: {stuck}"
            fields = {"kind": "unkillable", "phase": self._phase, "message": message}
        return {"t": "end", **fields, "result": self._result, "cost": self._cost(killed, log_tail)}

    def _cost(self, killed: int, log_tail: str) -> dict[str, Any]:
        stacks = self._folder / "stacks.txt"
        return {
            "seconds": time.monotonic() - self._started,
            "phases": self._phases,
            "peak_bytes": self._peak_bytes,
            "processes": self._max_processes,
            "killed": killed,
            "log": str(self._folder / "log.txt"),
            "log_tail": log_tail[-4000:],
            "stacks": stacks.read_text(errors="replace")[-8000:] if stacks.exists() else "",
            "dropped_bytes": self._log.dropped_bytes,
        }


def _is_stopped(pid: int) -> bool:
    process = descendants(os.getpid()).get(pid)
    return process is None or process.state in ("T", "t")


def send(event: dict[str, Any]) -> None:
    """Send one line to the tuner; does nothing if the tuner has ended."""
    try:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        pass


def main() -> None:
    """Supervise the trial whose spec.json is the first argument."""
    become_subreaper()
    for number in TERMINATION_SIGNALS:  # only the tuner may end this process, not its terminal
        signal.signal(number, signal.SIG_IGN)
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    send(Supervisor(spec).run())
    os._exit(0)
