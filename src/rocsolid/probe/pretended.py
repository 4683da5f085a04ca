"""The pretended chip of this process (see `rs.pretend`), and what the probe reports for it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from rocsolid.catalog.chips import parse_pretended_chip
from rocsolid.errors import CannotRunError
from rocsolid.model.environment import Device, TorchBuild
from rocsolid.model.pretended_chip import PretendedChip
from rocsolid.torchapi.pretend.fake_device_info import active_pretended_chip

# Set by `rocsolid run --pretend` for the program and its child processes, or by the user.
VARIABLE: Final = "ROCSOLID_RUN_PRETEND"
_GPU_DEVICE_FILES: Final = ("dev/kfd", "dev/nvidiactl")
_targets: list[PretendedChip] = []  # of `simulate_target`, the innermost last


def pretended_chip() -> PretendedChip | None:
    """The chip of `rs.pretend`, `rocsolid run --pretend` or `--target` in this process; None if none is active."""
    if chip := _targets[-1] if _targets else active_pretended_chip():
        return chip
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    require_no_gpu()
    return parse_pretended_chip(text)


@contextmanager
def simulate_target(text: str) -> Iterator[PretendedChip]:
    """Probe as on a machine with this chip, such as `gfx942@7.2.1`. torch is not simulated, so that a real GPU is no problem."""
    chip = parse_pretended_chip(text)
    _targets.append(chip)
    try:
        yield chip
    finally:
        _targets.remove(chip)


def require_no_gpu(root: Path = Path("/")) -> None:
    """Raise CannotRunError on a machine with a GPU: torch would find that GPU and not the pretended one."""
    device_file = next((name for name in _GPU_DEVICE_FILES if (root / name).exists()), None)
    if device_file:
        msg = f"--pretend and rs.pretend work only on a machine without a GPU; this machine has one (/{device_file})"
        raise CannotRunError(msg)


def pretended_device(pretended: PretendedChip) -> Device:
    """The pretended chip as a device of the probe."""
    chip = pretended.chip
    return Device(
        index=0,
        name=chip.product,
        arch=chip.arch,
        memory_bytes=chip.memory_gib << 30,
        platform=chip.platform,
        driver="pretended",
    )


def pretended_build(pretended: PretendedChip, build: TorchBuild) -> TorchBuild:
    """The installed torch, but with the HIP or CUDA version of the pretended chip."""
    return replace(build, hip=pretended.hip, cuda=pretended.cuda)
