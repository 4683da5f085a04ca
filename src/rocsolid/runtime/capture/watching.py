"""Runs a function without capturing, and names the first operation that no capture on a device allows."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture.backend import Suspect
from rocsolid.torchapi.dispatch import DispatchMode
from rocsolid.torchapi.graphs.capture_state import uncompiled
from rocsolid.torchapi.user_frames import user_location


class _Watch(DispatchMode):  # type: ignore[misc]
    """Looks at every operation before it runs, and remembers the one that would not run without waiting for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.suspect: Suspect | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition(".")[0]
        try:
            out = func(*args, **(kwargs or {}))
        except RuntimeError as error:
            if "synchroniz" in str(error):
                self._blame(name, Reason.HOST_READ, "makes the host wait for the device: keep the value on the device")
            raise
        if name in ("aten::_to_copy", "aten::copy_") and _from_pageable(args, out):
            self._blame(
                name,
                Reason.HOST_COPY,
                "copies from host memory that is not pinned: make the tensor on the device beforehand",
            )
        return out

    def _blame(self, operation: str, cause: Reason, fix: str) -> None:
        if self.suspect is None:
            self.suspect = Suspect(operation=operation, place=user_location(), cause=cause, fix=fix)


def _from_pageable(args: Any, out: Any) -> bool:
    given = [arg for arg in args if isinstance(arg, torch.Tensor) and arg.device.type == "cpu" and arg.numel()]
    on_device = isinstance(out, torch.Tensor) and out.device.type == "cuda"
    return on_device and any(not arg.is_pinned() for arg in given)


def first_suspect(body: Callable[[], Any]) -> Suspect | None:
    """The first operation that waits for the device or copies from pageable memory; None when all is well, or otherwise bad."""
    watch = _Watch()
    try:
        with _waiting_is_an_error(), uncompiled(), watch:
            body()
    except Exception:  # noqa: BLE001 - whatever the function raises is what we came for, or was raised before
        return watch.suspect
    finally:
        torch.cuda.synchronize()
    return watch.suspect


@contextmanager
def _waiting_is_an_error() -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    try:
        # The first switch warns that the mode is a prototype, and has been done when a filter makes an error of that.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
