"""Work beside a program is over before the interpreter is, however the program ends."""

import textwrap

import pytest
from tests.support import Ran, run_python


def at_the_end_of(work: str, then: str = "") -> Ran:
    """A program that ends while a thread of ours is at this work."""
    begin = textwrap.dedent("""
        import threading, time
        from rocsolid.runtime.background_thread import beside
        started = threading.Event()
        def work():
            {work}
        beside(work, "test")
        started.wait()
        {then}
    """)
    return run_python("-c", begin.format(work=textwrap.indent(textwrap.dedent(work), " " * 4).strip(), then=then))


TORCH = """
import torch
few = torch.randn(256, 256)
started.set()
while True:
    few = torch.tanh(few @ few)
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
LOST = """
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
def test_a_program_ends_as_it_means_to_while_a_thread_calls_torch(then: str, code: int) -> None:
    pytest.importorskip("torch")
    ran = at_the_end_of(TORCH, then)
    assert (ran.code, ran.err) == (code, "")


def test_work_that_swallows_the_end_is_told_again() -> None:
    ran = at_the_end_of(SWALLOWED)
    assert (ran.code, ran.out, ran.err) == (0, "left\n", "")


def test_nothing_is_said_where_the_end_comes_in_a_finalizer() -> None:
    ran = at_the_end_of(LOST)
    assert (ran.code, ran.err) == (0, "")


def test_work_that_is_stuck_does_not_keep_the_program() -> None:
    """In native code that does not come back the thread cannot be ended; the program goes after a while."""
    ran = at_the_end_of(
        "started.set(); time.sleep(600)", "import rocsolid.runtime.background_thread as b; b._GRACE_S = 0.5"
    )
    assert (ran.code, ran.err) == (0, "")
