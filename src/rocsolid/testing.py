"""A fixture for tests on machines without an accelerator: `pytest_plugins = ["rocsolid.testing"]` in a conftest.py.

It is no plugin that pytest finds by itself: a test suite that does not ask for it is left alone.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from rocsolid.api.pretend import pretend
from rocsolid.model.pretended_chip import PretendedChip


@pytest.fixture
def pretend_chip() -> Iterator[Callable[[str], PretendedChip]]:
    """Call it with a chip, such as `gfx942` or `gfx942@7.2.1`, to pretend to have it until the test ends or another is named."""
    with ExitStack() as stack:

        def choose(chip: str) -> PretendedChip:
            stack.close()
            return stack.enter_context(pretend(chip))

        yield choose
