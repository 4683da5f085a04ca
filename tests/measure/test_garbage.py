"""The collector is off inside, and afterwards as it was."""

import gc
from collections.abc import Callable

import pytest

from rocsolid.measure.gc_pause import gc_paused


def fails() -> None:
    with gc_paused():
        assert not gc.isenabled()
        raise LookupError


@pytest.mark.parametrize("before", [gc.enable, gc.disable])
def test_the_collector_is_as_it_was(before: Callable[[], None]) -> None:
    before()
    try:
        was = gc.isenabled()
        with pytest.raises(LookupError):
            fails()
        assert gc.isenabled() is was
    finally:
        gc.enable()
