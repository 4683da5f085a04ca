"""Limits on how much of our code one `rs.capture` involves: files per call, modules per import; and a clean exit."""

import pytest
from tests.support import run_python

pytestmark = pytest.mark.torch
COUNT_FILES = """
import sys, torch, rocsolid as rs

def files(call):
    seen = set()
    def profile(frame, event, _):
        if event == "call" and "/rocsolid/" in frame.f_code.co_filename:
            seen.add(frame.f_code.co_filename.rpartition("/rocsolid/")[2])
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return sorted(seen)

x = torch.ones(2, 4)
for function in (lambda x: x * 2 + 1, torch.nn.Linear(4, 4)):
    with torch.no_grad():
        fast = rs.capture(function, backend="record")
        first = files(lambda: fast(x))
        fast(x)
        replay = files(lambda: fast(x))
    assert fast.report().replays == 2
    assert len(first) <= 20, (len(first), first)
    assert len(replay) <= 6, (len(replay), replay)
"""
COUNT_MODULES = """
import sys, rocsolid as rs
rs.capture
rs.capture(lambda x: x, backend="record")
ours = sorted(name for name in sys.modules if name.partition(".")[0] == "rocsolid")
assert len(ours) <= 80, (len(ours), ours)
"""
EXIT = """
import ctypes, sys, torch, rocsolid as rs
fast = rs.capture(lambda x: x * 2, backend="record")
for _ in range(3):
    fast(torch.ones(2))
# Keep both modules alive until the interpreter clears them, the later one first, as an extension module may.
for module in (torch, sys.modules[type(fast).__module__]):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
torch.kept = fast
del fast
"""


def test_a_first_call_enters_at_most_20_files_and_a_replay_6() -> None:
    ran = run_python("-c", COUNT_FILES)
    assert ran.code == 0, ran.err


def test_capture_imports_at_most_80_modules() -> None:
    ran = run_python("-c", COUNT_MODULES)
    assert ran.code == 0, ran.err


def test_a_captured_function_that_is_alive_at_exit_prints_nothing() -> None:
    ran = run_python("-c", EXIT)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
