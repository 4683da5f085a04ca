"""Streams to capture on, each with the workspaces that the matrix libraries will use in its graphs.

They keep a workspace per handle and stream, and a graph goes on using that of the stream it was captured on. So each captured
function has a stream of its own, for two that replay at once would write into the same workspace; and it lies in memory set aside
for it, because whoever frees all workspaces would otherwise hand it to somebody else under the graph. `mode="reduce-overhead"` frees
them whenever it captures (seen on torch 2.11: a graph made by hand before ended in an illegal memory access).
"""

import contextlib
import ctypes
import threading
import weakref
from typing import Final

import torch

from rocsolid.torchapi.graphs.driver_api import new_stream


class Lane:
    """A stream and the memory of its workspace."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.stream = new_stream(device)
        self._memory = torch.cuda.MemPool()
        # Never destroyed: at its exit torch 2.11 was seen to end a process by that, after captures that had failed.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))
        self._few = torch.zeros(8, 8, device=torch.device("cuda", device), dtype=torch.bfloat16)
        self.lost = False  # the runtime never ended a capture on it

    def make_ready(self) -> None:
        """Let the library have its workspace on the current stream, which is the lane's, before anything else asks for it.

        Where a product is refused, for the sake of determinism, the function will have none either.
        """
        with contextlib.suppress(RuntimeError), torch.no_grad(), torch.cuda.use_mem_pool(self._memory):
            few = self._few
            torch.addmm(few[0], few @ few, few)  # with and without a bias, which go to different libraries


_free: Final[dict[int, list[Lane]]] = {}
_lock: Final = threading.Lock()


def lane_for(user: object, device: int) -> Lane:
    """A lane that is the user's until it dies. There are as many as were ever in use at once."""
    with _lock:
        waiting = _free.setdefault(device, [])
        lane = waiting.pop() if waiting else Lane(device)
    weakref.finalize(user, _give_back, lane, waiting).atexit = False
    return lane


def _give_back(lane: Lane, waiting: list[Lane]) -> None:
    if not lane.lost:
        waiting.append(lane)
