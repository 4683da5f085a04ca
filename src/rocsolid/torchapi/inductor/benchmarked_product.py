"""Operators that Inductor lowers like a matrix product whose kernel is chosen by benchmarking, whatever the setting for other products is."""

from typing import Any

from rocsolid.torchapi.private_api import private_name

_WITHOUT = "rs.optimize: kernels of the largest matrix products are not benchmarked"
_LOWERINGS = private_name("torch._inductor.lowering", "lowerings", "2.9..", without=_WITHOUT)
_PATCH = private_name("torch._inductor.config", "patch", "2.9..", without=_WITHOUT)


def lower_with_benchmark(operator: Any, like: Any) -> bool:
    """Let Inductor lower an operator like `aten.mm` or `aten.addmm`, under `max_autotune_gemm`; return whether it will."""
    lowerings, patch = _LOWERINGS.find(), _PATCH.find()
    if lowerings is None or patch is None:
        return False

    def lower(*args: Any, **kwargs: Any) -> Any:
        with patch(max_autotune_gemm=True):
            return lowerings[like](*args, **kwargs)

    lowerings[operator] = lower
    return True
