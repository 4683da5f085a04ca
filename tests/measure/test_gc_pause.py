"""The garbage collector is off inside the block, and restored afterwards."""

import gc
from collections.abc import Callable

import pytest

from rocsolid.measure.gc_pause import gc_paused


def fails() -> None:
    with gc_paused():
        assert not gc.isenabled()
        raise LookupError


@pytest.mark.parametrize("before", [gc.enable, gc.disable])
def test_gc_state_is_restored(before: Callable[[], None]) -> None:
    before()
    try:
        was = gc.isenabled()
        with pytest.raises(LookupError):
            fails()
        assert gc.isenabled() is was
    finally:
        gc.enable()
