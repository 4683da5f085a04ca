"""Captures an operator in a CUDA graph, replays it with other values, and compares the result with a plain call."""

from collections.abc import Callable
from typing import Any, Final

_WARMUPS: Final = 3


def replay_matches(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool | None, str]:
    """Return whether a replay returns the same as a call, and otherwise why not; None if no argument is on a GPU."""
    import torch

    if not any(isinstance(a, torch.Tensor) and a.is_cuda for a in args):
        return None, ""
    static_inputs = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(_WARMUPS):
                function(*static_inputs)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                replayed = function(*static_inputs)
    except RuntimeError as error:
        return False, f"capture failed: {str(error).strip().partition(chr(10))[0]}"
    new_inputs = tuple(_randomised(a) for a in args)
    for static, value in zip(static_inputs, new_inputs, strict=True):
        if isinstance(static, torch.Tensor):
            static.copy_(value)
    graph.replay()
    torch.cuda.synchronize()
    with torch.no_grad():
        expected = function(*(a.clone() if isinstance(a, torch.Tensor) else a for a in new_inputs))
    if all(_close(r, e) for r, e in zip(_tensors(replayed), _tensors(expected), strict=True)):
        return True, ""
    return False, "a replay with new inputs returns wrong results"


def _randomised(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return torch.randn(value.shape, device=value.device, dtype=torch.float32).to(value.dtype)
    return value


def _tensors(value: object) -> list[Any]:
    import torch

    items = value if isinstance(value, (tuple, list)) else (value,)
    return [item for item in items if isinstance(item, torch.Tensor)]


def _close(replayed: Any, expected: Any) -> bool:
    """Return whether two results are equal up to rounding; a kernel may sum in any order."""
    from rocsolid.numerics import error_limit, relative_error

    return relative_error(replayed, expected) <= error_limit(expected)
