"""`rs.pretend`: make torch report a chip that is not present."""

from collections.abc import Iterator
from contextlib import contextmanager

from rocsolid.catalog.chips import parse_pretended_chip
from rocsolid.errors import require_type
from rocsolid.model.log import log as _log
from rocsolid.model.pretended_chip import PretendedChip
from rocsolid.probe.pretended import require_no_gpu
from rocsolid.torchapi.pretend.fake_device_info import FakeDeviceInfo


@contextmanager
def pretend(chip: str = "gfx942") -> Iterator[PretendedChip]:
    """Inside the block, make torch report a build for a GPU that is not present; for tests on a machine without a GPU.

    Experimental: it may change in any release.

    `torch.version` and the device properties are those of the chip, so probe, profiles, guard and `rs.capture` behave as on a machine
    with that chip; `rs.capture` simulates the capture rules of its runtime. Tensors stay on the CPU, and `torch.cuda.is_available()` stays
    False. Torch's compiler reads the vendor once, at import: if it is imported already, its own defaults stay those of the real build,
    and a message is logged. Only this process is affected; `rocsolid run --pretend` also covers child processes.

    Args:
        chip: for example `gfx942`, or `gfx942@7.2.1` with a ROCm release.

    Example:
        >>> import rocsolid as rs
        >>> with rs.pretend("gfx942@7.2.1"):
        ...     rs.probe(live=False).platform.label
        'ROCm'
        >>> rs.probe(live=False).pretended
        ''

    """
    require_type("rs.pretend: chip", chip, str, "a chip, such as 'gfx942'")
    pretended = parse_pretended_chip(chip)
    require_no_gpu()
    fake = FakeDeviceInfo(pretended)
    _log.warning("torch now reports a simulated %s; everything runs on the CPU", pretended.label)
    if fake.imported_before:
        _log.info(
            "already imported before rs.pretend(): %s; torch's compiler keeps the defaults of the real build",
            " and ".join(fake.imported_before),
        )
    fake.keep()
    try:
        yield pretended
    finally:
        fake.undo()
