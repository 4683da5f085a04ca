"""Trials that misbehave in every way. Each function takes the reporter and parameters."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any

from rocsolid.tune.isolate.trial_process import Reporter, WrongResultError

_IGNORE_SIGTERM = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(1)"


def good(reporter: Reporter, x: int) -> Any:
    reporter.phase("compile")
    reporter.phase("measure")
    return {"y": x + 1}


def raises(reporter: Reporter) -> Any:
    reporter.phase("compile")
    msg = "no such lowering\nand much more"
    raise RuntimeError(msg)


def calls_sys_exit(reporter: Reporter) -> Any:
    reporter.phase("build")
    sys.exit(1)


def exits(_: Reporter, code: int) -> Any:
    os._exit(code)


def hangs_in_python(reporter: Reporter) -> Any:
    reporter.phase("compile")
    while True:
        time.sleep(0.01)


def hangs_with_the_gil_held(reporter: Reporter) -> Any:
    reporter.phase("compile")
    re.match(r"(a+)+$", "a" * 60 + "b")  # backtracks for years, in C


def ignores_termination_signals(reporter: Reporter) -> Any:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    reporter.phase("compile")
    while True:
        time.sleep(1)


def stops_itself(reporter: Reporter) -> Any:
    reporter.phase("compile")
    os.kill(os.getpid(), signal.SIGSTOP)


def segfaults(reporter: Reporter) -> Any:
    reporter.phase("capture")
    ctypes.string_at(0)


def faults_on_the_gpu(reporter: Reporter) -> Any:
    reporter.phase("measure")
    os.write(2, b"Memory access fault by GPU node-1 (Agent handle: 0x5) on address 0x7f. Reason: Unknown.\n")
    os.abort()


def eats_memory(reporter: Reporter) -> Any:
    reporter.phase("compile")
    held = []
    while True:
        held.append(b"x" * (32 << 20))
        time.sleep(0.02)


def eats_memory_in_a_grandchild(reporter: Reporter) -> Any:
    reporter.phase("compile")
    eat = "import time\nheld = []\nwhile True:\n    held.append(b'x' * (32 << 20)); time.sleep(0.02)"
    subprocess.run([sys.executable, "-c", eat], check=False)


def raises_text(reporter: Reporter, phase: str, text: str) -> Any:
    reporter.phase(phase)
    raise RuntimeError(text)


def has_wrong_results(reporter: Reporter) -> Any:
    reporter.phase("verify")
    msg = "wrong on input set 1: result: relative error 1.4e-01 against the reference, rounding explains 2.1e-07"
    raise WrongResultError(msg)


def starts_daemons(reporter: Reporter, *, outlive: bool) -> Any:
    """A child, a child in its own session, a daemon by double fork, and a daemon started by a program."""
    subprocess.Popen([sys.executable, "-c", _IGNORE_SIGTERM])
    subprocess.Popen([sys.executable, "-c", _IGNORE_SIGTERM], start_new_session=True)
    _daemon(lambda: time.sleep(1000))
    again = f"import os\nif os.fork(): os._exit(0)\nos.setsid()\n{_IGNORE_SIGTERM}"
    subprocess.Popen([sys.executable, "-c", again]).wait()
    reporter.phase("compile")
    while not outlive:
        time.sleep(1)
    return "done"


def starts_hidden_daemon(reporter: Reporter) -> Any:
    """A daemon in its own session with an empty environment."""
    _daemon(lambda: os.execve(sys.executable, [sys.executable, "-c", _IGNORE_SIGTERM], {"PATH": "/usr/bin"}))  # noqa: S606 - the environment must be empty
    reporter.phase("compile")
    return 1


def forks_without_end(reporter: Reporter) -> Any:
    reporter.phase("compile")
    while True:
        if os.fork() == 0:
            time.sleep(1000)
            os._exit(0)
        time.sleep(0.002)


def terminates_its_worker(_: Reporter) -> Any:
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    worker.terminate()
    return worker.wait(10)


def floods_output(_: Reporter, megabytes: int) -> Any:
    line = b"x" * 1023 + b"\n"
    for _number in range(megabytes):
        os.write(1, line * 1024)
    os.write(1, b"the last line\n")
    return 1


def returns_large_result(_: Reporter, count: int) -> Any:
    return list(range(count))


def crashes_after_the_result(reporter: Reporter) -> Any:
    reporter.send_result(1)
    ctypes.string_at(0)


def compiles_then_hangs(reporter: Reporter) -> Any:
    """Start Inductor's pool of compile workers, then hang."""
    import torch
    import torch._inductor.config
    from torch._inductor.async_compile import AsyncCompile

    reporter.phase("compile")
    torch._inductor.config.compile_threads = 2
    AsyncCompile.warm_pool()
    AsyncCompile.wait_pool_ready()
    reporter.phase("capture")
    while True:
        time.sleep(1)


def serves(reporter: Reporter) -> Any:
    def handle(request: dict[str, Any]) -> Any:
        if request.get("hang"):
            time.sleep(1000)
        return {"twice": request["n"] * 2}

    reporter.serve(handle)
    return "closed"


def _daemon(body: Any) -> None:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        body()
    os.waitpid(pid, 0)
