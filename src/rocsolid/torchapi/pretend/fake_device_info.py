"""Lets torch say that it was built for a chip that is not here: its versions, and the properties of that chip.

Two use it. A dry run, in a process of its own, goes on from there to a device that tensors can be traced on (`pretend`). A
program that pretends for development stays on the CPU: `torch.cuda.is_available()` goes on answering no, and only who asks what
torch was built for, or what the chip is like, hears of it. Nothing here happens unless a `StandIn` is put up.
"""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from rocsolid.errors import UsageError
from rocsolid.model.chip import Chip
from rocsolid.model.platform import Platform
from rocsolid.model.pretended_chip import Pretence
from rocsolid.torchapi.import_hooks import when_imported
from rocsolid.torchapi.patch import Swap

# Read the vendor while they are imported, and never again.
_READS_ONCE: Final = ("torch._inductor.config", "torch._inductor.runtime.hints")
_UNASKED_BYTES: Final = 48 << 10  # what a block on a chip of NVIDIA's has unless it asks for more
_up: "list[StandIn]" = []


def versions(pretence: Pretence) -> dict[str, str | None]:
    """What `torch.version` says of the build."""
    return {"hip": pretence.hip or None, "cuda": pretence.cuda or None, "rocm": pretence.rocm or None}


def properties(chip: Chip) -> SimpleNamespace:
    """What the runtime tells of the chip."""
    return SimpleNamespace(
        name=chip.product,
        major=chip.capability[0],
        minor=chip.capability[1],
        gcnArchName=chip.runtime_name,
        total_memory=chip.memory_gib << 30,
        multi_processor_count=chip.compute_units,
        regs_per_multiprocessor=chip.registers_per_unit,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        warp_size=chip.wavefront_size,
        clock_rate=2_100_000,
        memory_clock_rate=1_300_000,
        memory_bus_width=8192,
        shared_memory_per_block=chip.lds_bytes if chip.platform is Platform.ROCM else _UNASKED_BYTES,
        shared_memory_per_block_optin=chip.lds_bytes,
        shared_memory_per_multiprocessor=chip.lds_bytes_per_unit,
        L2_cache_size=4 << 20,
        uuid="pretended",
        is_integrated=0,
        is_multi_gpu_board=0,
    )


def standing_in() -> Pretence | None:
    """What this process pretends to have, if anything."""
    return _up[-1].pretence if _up else None


class StandIn:
    """Put up with `keep()`, as soon as torch is there, and taken down with `undo()`."""

    def __init__(self, pretence: Pretence) -> None:
        self.pretence = pretence
        self.late = tuple(name for name in _READS_ONCE if name in sys.modules)  # keep what they read before
        self._undo: list[Callable[[], None]] = []

    def keep(self) -> "StandIn":
        """Until `undo`, or for the life of the process."""
        if _up:
            msg = f"this process pretends to have {_up[-1].pretence.label} already"
            raise UsageError(msg)
        _up.append(self)
        self._undo.append(lambda: _up.remove(self))
        self._undo.append(when_imported("torch", self._claim))
        return self

    def undo(self) -> None:
        """Everything as it was."""
        undos, self._undo = self._undo, []
        for undo in reversed(undos):
            undo()

    def _claim(self, torch: ModuleType) -> None:
        chip = self.pretence.chip
        seen = properties(chip)
        answers: dict[str, Callable[..., Any]] = {
            "get_device_properties": lambda *_, **__: seen,
            "get_device_capability": lambda *_, **__: chip.capability,
            "get_device_name": lambda *_, **__: chip.product,
        }
        said = versions(self.pretence)
        swaps = [
            Swap(torch.version, name, _always(text)) for name, text in said.items() if hasattr(torch.version, name)
        ]
        swaps += [Swap(torch.cuda, name, _always(answer)) for name, answer in answers.items()]
        self._undo += [swap.undo for swap in swaps]


def _always(value: object) -> Callable[[object], object]:
    return lambda _: value
