"""The process between the tuner and a trial: it owns the deadlines, the kill and the verdict.

Why it is a process of its own: it can take in orphans without disturbing the user's program; when the tuner is killed it is
still there to clear up; and it never touches a device, so nothing that a trial does can wedge it.

It is started without site-packages, and speaks JSON lines: events out, requests in. An end of its input is the tuner's death.
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
    POLITE,
    TOKEN,
    become_subreaper,
    descendants,
    die_with_parent,
    end_all,
    kernel_kills,
    memory_bytes,
)
from rocsolid.tune.isolate.classify_exit import judge
from rocsolid.tune.isolate.log import Log

_TICK_S: Final = 0.05
_WEIGH_S: Final = 0.1
_CALM_S: Final = 1.0
_TIMED: Final = ("measure", "idle")  # phases in which whoever looks disturbs
_DUMP_S: Final = 2.0  # how long the stacks may take to be written
_CHUNK: Final = 1 << 16
START: Final = "import sys; {src!r} in sys.path or sys.path.insert(0, {src!r}); from rocsolid.tune.isolate.{module} import main; main()"


class Lines:
    """Whole lines out of a pipe that is read in pieces."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.open = True
        self._held = bytearray()
        os.set_blocking(fd, False)

    def read(self) -> list[dict[str, Any]]:
        """What has arrived; `open` turns false at the end."""
        found = []
        while self.open:
            try:
                piece = os.read(self.fd, _CHUNK)
            except BlockingIOError:
                break
            except OSError:
                piece = b""
            self.open = bool(piece)
            begin = len(self._held)
            self._held += piece
            while (end := self._held.find(b"\n", begin)) >= 0:
                line = bytes(self._held[:end])
                del self._held[: end + 1]
                begin = 0
                try:
                    message = json.loads(line)
                except ValueError:  # something else wrote into our pipe
                    continue
                if isinstance(message, dict):
                    found.append(message)
        return found


class Nanny:
    """One trial from its start to the last of its processes."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec, self._limits = spec, spec["limits"]
        self._folder = Path(spec["folder"])
        self._begun = self._phase_begun = self._heard = time.monotonic()
        self._phase = "import"
        self._phases: dict[str, float] = {}
        self._answer: dict[str, Any] | None = None
        self._error: dict[str, Any] | None = None
        self._held_bytes, self._peak_bytes, self._members, self._most = 0, 0, 1, 1
        self._kills = kernel_kills()
        self._parent = os.getppid()
        self._log = Log(self._folder / "log.txt", self._limits["log_bytes"])
        self._start()
        self._requests = Lines(sys.stdin.fileno())
        threading.Thread(target=self._weigh_on, daemon=True).start()

    def _start(self) -> None:
        reports, reporting = os.pipe()
        hearing, self._ask = os.pipe()
        variables = {**os.environ, **self._spec["variables"]}
        for name in self._spec["unset"]:
            variables.pop(name, None)
        variables[TOKEN] = self._spec["token"]
        variables["PYTHONUNBUFFERED"] = "1"
        source = START.format(src=self._spec["source"], module="child")
        self._child = subprocess.Popen(  # noqa: S603 - our own interpreter
            [self._spec["python"], "-c", source, str(self._folder / "spec.json"), str(reporting), str(hearing)],
            stdin=subprocess.DEVNULL,
            stdout=self._log.fd,
            stderr=self._log.fd,
            env=variables,
            start_new_session=True,
            pass_fds=(reporting, hearing),
            preexec_fn=die_with_parent(),  # noqa: PLW1509 - this process has one thread so far
        )
        os.close(reporting)
        os.close(hearing)
        self._reports = Lines(reports)

    def watch(self) -> dict[str, Any]:
        """Until it ends or must be ended; returns the ending as data."""
        cause = None
        while cause is None and self._child.poll() is None:
            sources = [lines.fd for lines in (self._reports, self._requests) if lines.open]
            select.select(sources, [], [], _TICK_S)
            self._hear()
            cause = self._pass_on() or self._overdue() or self._overgrown()
        if cause is not None and cause["kind"] != "cancelled":
            self._dump_stacks()
        return self._close(cause)

    def _hear(self) -> None:
        for message in self._reports.read():
            self._heard = time.monotonic()
            match message.get("t"):
                case "phase":
                    self._enter(str(message["name"]))
                case "answer":
                    self._answer = message
                case "error":
                    self._error = message
                case "ready" | "reply":
                    tell(message)

    def _enter(self, phase: str) -> None:
        now = time.monotonic()
        self._phases[self._phase] = self._phases.get(self._phase, 0.0) + now - self._phase_begun
        self._phase, self._phase_begun = phase, now
        tell({"t": "phase", "name": phase})

    def _pass_on(self) -> dict[str, Any] | None:
        for request in self._requests.read():
            if request.get("t") == "cancel":
                return {"kind": "cancelled", "says": "called off"}
            try:
                os.write(self._ask, json.dumps(request).encode() + b"\n")
            except OSError:  # it has just gone; the exit will tell
                break
        if not self._requests.open or os.getppid() != self._parent:
            return {"kind": "cancelled", "says": "the tuner went away"}
        return None

    def _overdue(self) -> dict[str, Any] | None:
        now = time.monotonic()
        limit = self._limits["phases"].get(self._phase)
        if limit is not None and now - self._phase_begun > limit:
            return {"kind": "timed out", "limit_s": limit}
        if now - self._begun > self._limits["total_s"]:
            return {"kind": "timed out", "limit_s": self._limits["total_s"]}
        if now - self._heard > self._limits["heartbeat_s"]:
            return {"kind": "timed out", "limit_s": self._limits["heartbeat_s"], "silent": True}
        return None

    def _weigh_on(self) -> None:
        """In a thread, since asking what a process holds waits for locks that a driver may never let go of."""
        while True:
            begun = time.monotonic()
            members = descendants(os.getpid())
            self._members, self._most = len(members), max(self._most, len(members))
            self._held_bytes = sum(memory_bytes(pid) for pid in members)
            self._peak_bytes = max(self._peak_bytes, self._held_bytes)
            # Looking at a process with a large address space is slow; never spend more than a tenth of the time on it, and
            # hardly any while it is timed, or while others are.
            pause = _CALM_S if self._phase in _TIMED else _WEIGH_S
            time.sleep(max(pause, 10 * (time.monotonic() - begun)))

    def _overgrown(self) -> dict[str, Any] | None:
        """Memory, number of processes, length of the log."""
        self._log.shorten()
        held, members = self._held_bytes, self._members
        most_bytes, most = self._limits["memory_bytes"], self._limits["processes"]
        if most_bytes and held > most_bytes:
            says = f"{held >> 20} MB in {members} processes, and {most_bytes >> 20} MB are allowed"
            return {"kind": "out of memory", "memory": "host", "says": says}
        if members > most:
            return {"kind": "too many processes", "says": f"{members} processes, and {most} are allowed"}
        return None

    def _dump_stacks(self) -> None:
        """Ask the child for the stacks of all its threads; its handler is in C and needs no interpreter lock."""
        stacks = self._folder / "stacks.txt"
        if not stacks.exists():  # it has not come so far
            return
        os.kill(self._child.pid, signal.SIGUSR1)
        size, until = -1, time.monotonic() + _DUMP_S
        while time.monotonic() < until and _stopped(self._child.pid) is False:
            time.sleep(_TICK_S)
            grown = stacks.stat().st_size
            if grown and grown == size:
                return
            size = grown

    def _close(self, cause: dict[str, Any] | None) -> dict[str, Any]:
        killed, left = end_all(os.getpid(), keep=self._child.pid)
        code = self._child.wait() if self._child.pid not in {p.pid for p in left} else None
        self._hear()
        self._enter(self._phase)
        tail = self._log.end()
        ending = judge(
            cause=cause,
            code=code,
            answer=self._answer,
            error=self._error,
            tail=tail,
            kernel_kills=kernel_kills() - self._kills,
            phase=self._phase,
        )
        if left:
            stuck = ", ".join(f"{p.pid} in state {p.state}" for p in left)
            ending = {"kind": "unkillable", "phase": self._phase, "says": f"{ending['kind']}, and {stuck}"}
        return {"t": "ending", **ending, "answer": self._answer, "account": self._account(killed, tail)}

    def _account(self, killed: int, tail: str) -> dict[str, Any]:
        stacks = self._folder / "stacks.txt"
        return {
            "seconds": time.monotonic() - self._begun,
            "phases": self._phases,
            "peak_bytes": self._peak_bytes,
            "processes": self._most,
            "killed": killed,
            "log": str(self._folder / "log.txt"),
            "log_tail": tail[-4000:],
            "stacks": stacks.read_text(errors="replace")[-8000:] if stacks.exists() else "",
            "dropped_bytes": self._log.dropped_bytes,
        }


def _stopped(pid: int) -> bool:
    member = descendants(os.getpid()).get(pid)
    return member is None or member.state in ("T", "t")


def tell(message: dict[str, Any]) -> None:
    """One line to the tuner, if it still listens."""
    try:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        pass


def main() -> None:
    """Look after the trial whose folder is given."""
    become_subreaper()
    for number in POLITE:  # the tuner tells us; its terminal does not
        signal.signal(number, signal.SIG_IGN)
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    tell(Nanny(spec).watch())
    os._exit(0)
