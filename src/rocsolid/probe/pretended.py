"""Whether this process pretends to have a chip, and what the machine looks like then."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from rocsolid.catalog.chips import parse_pretended_chip
from rocsolid.errors import CannotRunError
from rocsolid.model.environment import Device, TorchBuild
from rocsolid.model.pretended_chip import PretendedChip
from rocsolid.torchapi.pretend.fake_device_info import active_pretended_chip

VARIABLE: Final = (
    "ROCSOLID_RUN_PRETEND"  # set by `rocsolid run --pretend` for the program and all it starts, or by a user
)
_DEVICES: Final = ("dev/kfd", "dev/nvidiactl")


def pretended() -> PretendedChip | None:
    """What was asked for, in this process or by `rocsolid run`; None in every other process."""
    if here := active_pretended_chip():
        return here
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    refuse_beside_a_device()
    return parse_pretended_chip(text)


def refuse_beside_a_device(root: Path = Path("/")) -> None:
    """Where there is a device, torch would be told one thing and meet another."""
    there = next((name for name in _DEVICES if (root / name).exists()), None)
    if there:
        msg = f"pretending is for machines without an accelerator, and this one has one (/{there})"
        raise CannotRunError(msg)


def device_of(given: PretendedChip) -> Device:
    """The chip, as a probe would list it."""
    chip = given.chip
    return Device(
        index=0,
        name=chip.product,
        arch=chip.arch,
        memory_bytes=chip.memory_gib << 30,
        platform=chip.platform,
        driver="pretended",
    )


def build_for(given: PretendedChip, build: TorchBuild) -> TorchBuild:
    """The installed torch, had it been built for the chip."""
    return replace(build, hip=given.hip, cuda=given.cuda)
