"""What the launches of the kernels need to know about a GPU."""

from functools import cache
from typing import NamedTuple

import torch


class Gpu(NamedTuple):
    """Lanes per warp, number of multiprocessors or compute units, and whether it is an RDNA GPU of AMD."""

    lanes: int
    compute_units: int
    is_rdna: bool


@cache
def gpu(device: torch.device) -> Gpu:
    """Return the properties of a GPU; something harmless for another device."""
    if device.type != "cuda":
        return Gpu(32, 1, is_rdna=False)
    properties = torch.cuda.get_device_properties(device)
    is_rdna = getattr(properties, "gcnArchName", "").startswith(("gfx10", "gfx11", "gfx12"))
    return Gpu(int(getattr(properties, "warp_size", 32)), int(properties.multi_processor_count), is_rdna)
