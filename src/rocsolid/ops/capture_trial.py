"""Tries an operator in a device graph: captured once, replayed with other values, held against a plain call."""

from collections.abc import Callable
from typing import Any, Final

_WARMUPS: Final = 3


def captured_and_replayed(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool | None, str]:
    """Whether a replay gives what a call gives, and why not; None where no argument lies on a device."""
    import torch

    if not any(isinstance(a, torch.Tensor) and a.is_cuda for a in args):
        return None, ""
    slots = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(_WARMUPS):
                function(*slots)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                made = function(*slots)
    except RuntimeError as failed:
        return False, f"the capture fails: {str(failed).strip().partition(chr(10))[0]}"
    fresh = tuple(_fresh(a) for a in args)
    for slot, value in zip(slots, fresh, strict=True):
        if isinstance(slot, torch.Tensor):
            slot.copy_(value)
    graph.replay()
    torch.cuda.synchronize()
    with torch.no_grad():
        wanted = function(*(a.clone() if isinstance(a, torch.Tensor) else a for a in fresh))
    if all(_close(m, w) for m, w in zip(_tensors(made), _tensors(wanted), strict=True)):
        return True, ""
    return False, "a replay with other values gives another answer than a call"


def _fresh(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return torch.randn(value.shape, device=value.device, dtype=torch.float32).to(value.dtype)
    return value


def _tensors(value: object) -> list[Any]:
    import torch

    items = value if isinstance(value, (tuple, list)) else (value,)
    return [item for item in items if isinstance(item, torch.Tensor)]


def _close(made: Any, wanted: Any) -> bool:
    """Equal up to the order in which a kernel may add."""
    from rocsolid.numerics import error_limit, relative_error

    return relative_error(made, wanted) <= error_limit(wanted)
