"""Background threads end before the interpreter does, however the program ends."""

import sys
import textwrap
from contextlib import ExitStack

import pytest
from tests.support import Ran, run_python

from rocsolid.runtime.background_thread import considerate_thread


def program_with_thread(work: str, then: str = "") -> Ran:
    """Run a program that ends while a background thread does this work."""
    program = textwrap.dedent("""
        import threading, time
        from rocsolid.runtime.background_thread import run_in_background
        started = threading.Event()
        def work():
            {work}
        run_in_background(work, "test")
        started.wait()
        {then}
    """)
    return run_python("-c", program.format(work=textwrap.indent(textwrap.dedent(work), " " * 4).strip(), then=then))


TORCH = """
import torch
small = torch.randn(256, 256)
started.set()
while True:
    small = torch.tanh(small @ small)
"""
SWALLOWED = """
started.set()
for _ in range(2):
    try:
        time.sleep(0.05)
        while True:
            time.sleep(0.01)
    except BaseException:
        pass
print("left")
"""
IN_FINALIZER = """
class Last:
    def __del__(self):
        if not started.is_set():
            started.set()
            while True:
                time.sleep(0.01)
Last()
while True:
    time.sleep(0.01)
"""


@pytest.mark.torch
@pytest.mark.parametrize(("then", "code"), [("", 0), ("raise SystemExit(3)", 3)])
def test_a_program_exits_cleanly_while_a_thread_calls_torch(then: str, code: int) -> None:
    pytest.importorskip("torch")
    ran = program_with_thread(TORCH, then)
    assert (ran.code, ran.err) == (code, "")


def test_a_thread_that_swallows_the_exception_gets_it_again() -> None:
    ran = program_with_thread(SWALLOWED)
    assert (ran.code, ran.out, ran.err) == (0, "left\n", "")


def test_nothing_is_printed_if_the_exception_is_raised_in_a_finalizer() -> None:
    ran = program_with_thread(IN_FINALIZER)
    assert (ran.code, ran.err) == (0, "")


def test_a_stuck_thread_is_abandoned_after_a_timeout() -> None:
    """A thread in native code that does not return cannot be ended; the program exits after a while."""
    ran = program_with_thread(
        "started.set(); time.sleep(600)", "import rocsolid.runtime.background_thread as b; b._STOP_TIMEOUT_S = 0.5"
    )
    assert (ran.code, ran.err) == (0, "")


def test_after_an_exception_is_cancelled_a_profile_function_can_be_set() -> None:
    code = """
import sys, threading
from rocsolid.runtime.background_thread import raise_in_thread
raise_in_thread(threading.get_ident(), None)
sys.setprofile(lambda *_: None)
(lambda: 1)()
"""
    ran = run_python("-c", code, timeout=60)
    assert ran.code == 0, ran.err


LOGS = """
import logging, signal, threading, time
from rocsolid.runtime.background_thread import raise_in_thread
from rocsolid.runtime.compile_deadline import _SIGNAL, CompileCancelled, _cancel_signal_handler

class Slow(logging.Handler):
    def emit(self, record):
        started.set()
        while not written.is_set():
            time.sleep(0.01)

def work():
    try:
        log.warning("text")
        ended.append("logged")
        for _ in range(500):
            time.sleep(0.01)
    except CompileCancelled:
        ended.append("cancelled")

def cancel_twice(cancel):
    started.wait()
    cancel()
    time.sleep(0.2)
    written.set()
    while "logged" not in ended:
        time.sleep(0.01)
    cancel()

log = logging.getLogger("slow")
log.addHandler(handler := Slow())
for in_main in (False, True):
    started, written, ended = threading.Event(), threading.Event(), []
    if in_main:
        main = threading.main_thread().ident
        other = threading.Thread(target=cancel_twice, args=[lambda: signal.pthread_kill(main, _SIGNAL)])
        other.start()
        with _cancel_signal_handler():
            work()
    else:
        other = threading.Thread(target=work)
        other.start()
        cancel_twice(lambda: raise_in_thread(other.ident, CompileCancelled))
    other.join()
    print(ended, handler.lock.acquire(blocking=False))
    handler.lock.release()
"""


def test_no_exception_is_raised_while_a_thread_writes_to_a_log() -> None:
    """It could leave the handler's lock locked, and then every thread that logs would wait forever."""
    ran = run_python("-c", LOGS)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == ["['logged', 'cancelled'] True"] * 2


def test_request_does_not_wait_long_for_a_considerate_thread() -> None:
    """An operator gives up the interpreter lock, and gets it back after the switch interval: 5 ms without `considerate_thread`."""
    program = textwrap.dedent("""
        import contextlib, sys, threading, time
        from rocsolid.runtime.background_thread import considerate_thread
        def request_s():
            begun = time.perf_counter()
            for _ in range(20):
                time.sleep(0.0005)  # as an operator of that length
            return time.perf_counter() - begun
        def fastest_s(considerate):
            done, started = threading.Event(), threading.Event()
            def work():
                with considerate_thread() if considerate else contextlib.nullcontext():
                    started.set()
                    while not done.is_set():
                        sum(range(100))
            thread = threading.Thread(target=work)
            thread.start()
            started.wait()
            fastest = min(request_s() for _ in range(5))
            done.set()
            thread.join()
            return fastest
        print(fastest_s(False), fastest_s(True), sys.getswitchinterval())
    """)
    plain, considerate, interval = map(float, run_python("-c", program).out.split())
    assert considerate < plain / 2
    assert interval == pytest.approx(0.005)


def test_switch_interval_is_restored_by_the_last_considerate_thread() -> None:
    def nested() -> list[float]:
        before = sys.getswitchinterval()
        first, second = ExitStack(), ExitStack()
        first.enter_context(considerate_thread())
        second.enter_context(considerate_thread())
        first.close()
        seen = [sys.getswitchinterval()]
        second.close()
        return [before, *seen, sys.getswitchinterval()]

    before, between, after = nested()
    assert between < before
    assert after == before
