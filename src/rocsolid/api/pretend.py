"""Pretend to have a chip."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rocsolid.catalog.chips import parse_pretended_chip
from rocsolid.model.pretended_chip import Pretence
from rocsolid.probe.pretended import require_no_gpu
from rocsolid.torchapi.pretend.fake_device_info import StandIn

_log = logging.getLogger("rocsolid")


@contextmanager
def pretend(chip: str = "gfx942") -> Iterator[Pretence]:
    """Let torch say, for a block, that it was built for a chip that is not here; for tests on a machine without an accelerator.

    `torch.version` and the properties of the device are that chip's, so that probe, profiles, guard and `rs.capture` go the way
    they would go there; `rs.capture` plays the runtime's rules of capture. Tensors stay on the CPU, and
    `torch.cuda.is_available()` stays False. Torch's compiler reads the vendor when it is imported, and never again: where that
    has happened already its own defaults stay, and that is said. Other processes are left alone; `rocsolid run --pretend` takes
    them along.

    Args:
        chip: such as `gfx942`, or `gfx942@7.2.1` with the release of ROCm.

    Example:
        >>> import rocsolid as rs
        >>> with rs.pretend("gfx942@7.2.1"):
        ...     rs.probe(live=False).platform.label
        'ROCm'
        >>> rs.probe(live=False).pretended
        ''

    """
    given = parse_pretended_chip(chip)
    require_no_gpu()
    stand_in = StandIn(given)
    _log.warning("pretending to have %s; everything runs on the CPU", given.label)
    if stand_in.late:
        _log.info("%s was imported before, and keeps what it read of the real build", " and ".join(stand_in.late))
    stand_in.keep()
    try:
        yield given
    finally:
        stand_in.undo()
