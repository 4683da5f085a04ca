"""What the launches of the kernels need to know about a GPU."""

from functools import cache
from typing import NamedTuple

import torch


class Gpu(NamedTuple):
    """Lanes per warp, number of multiprocessors or compute units, and what else decides how a kernel is launched."""

    lanes: int
    compute_units: int
    is_rdna: bool
    has_pdl: bool = False  # programmatic dependent launch: NVIDIA from Hopper on
    shared_bytes: int = 65536  # shared memory of a program
    name: str = ""


@cache
def gpu(device: torch.device) -> Gpu:
    """Return the properties of a GPU; something harmless for another device."""
    if device.type != "cuda":
        return Gpu(32, 1, is_rdna=False)
    properties = torch.cuda.get_device_properties(device)
    is_amd = torch.version.hip is not None
    arch = properties.gcnArchName.partition(":")[0] if is_amd else ""
    return Gpu(
        int(getattr(properties, "warp_size", 32)),
        int(properties.multi_processor_count),
        is_rdna=arch.startswith(("gfx10", "gfx11", "gfx12")),
        has_pdl=not is_amd and properties.major >= 9,  # noqa: PLR2004 - Hopper
        shared_bytes=int(getattr(properties, "shared_memory_per_block_optin", 0) or properties.shared_memory_per_block),
        name=arch or str(properties.name),
    )
