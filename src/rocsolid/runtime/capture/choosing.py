"""Which backend captures a call."""

from typing import Any

import torch

from rocsolid.errors import CaptureError
from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture.backend import Backend
from rocsolid.runtime.capture.call import Call, CannotCapture
from rocsolid.runtime.capture.options import Options
from rocsolid.runtime.capture.record import RecordBackend


def backend_for(call: Call, options: Options, made: dict[object, Backend]) -> Backend | None:
    """The backend that was asked for, or that fits the call's tensors; None when there is nothing to capture on.

    `made` keeps the backends of one function: its graphs may share memory with each other, and with no other function's.
    """
    if options.backend == "eager":
        return None
    if options.backend == "record":
        return RecordBackend()
    if call.device.type != "cuda":
        if options.backend == "device":
            msg = "backend='device' was asked for, and none of the call's tensors is on a device"
            raise CaptureError(msg)
        return None
    _refuse_mixed_places(call)
    if call.device not in made:
        made[call.device] = _device_backend(call.device, options)
    return made[call.device]


def _refuse_mixed_places(call: Call) -> None:
    devices = {leaf.value.device for leaf in call.tensors if leaf.value.device.type == "cuda"}
    if len(devices) > 1:
        where = ", ".join(f"{leaf.path!r} on {leaf.value.device}" for leaf in call.tensors)
        raise CannotCapture(
            Reason.ARGUMENT, f"the call's tensors are on several devices, and a graph belongs to one: {where}"
        )
    for leaf in call.tensors:
        if leaf.value.device.type == "cpu" and leaf.value.dim() == 0:
            detail = (
                f"argument {leaf.path!r} is a single number on the host, whose value would be baked into the graph: pass it as a "
                "tensor on the device, or as a Python number"
            )
            raise CannotCapture(Reason.ARGUMENT, detail)


def _device_backend(device: Any, options: Options) -> Backend:
    from rocsolid.runtime.capture.device import DeviceBackend

    shared = options.pool == "shared" or (options.pool == "auto" and torch.version.hip is None)
    return DeviceBackend(device, shared=shared, keep=options.keep_graph)
