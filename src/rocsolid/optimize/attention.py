"""Compiles a model with another kernel than torch would choose for `scaled_dot_product_attention`.

Which kernel is used is decided while the model is traced. So the choice is a block in the traced function, and a part of the graph.
"""

import functools
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any, Final

from torch.nn.attention import SDPBackend, sdpa_kernel

ATTENTION: Final = "torch.attention"
# By value: the first that accepts the arguments of a call is used.
_OTHERS: Final = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
_KERNELS: Final = {
    "flash": _OTHERS,
    "efficient": (SDPBackend.EFFICIENT_ATTENTION, *_OTHERS),
    "cudnn": (SDPBackend.CUDNN_ATTENTION, *_OTHERS),
}


class ChosenAttention:
    """Wraps functions before they are compiled. Layers with the same code that one object has wrapped are compiled once."""

    def __init__(self, kernel: str) -> None:
        self._kernels = list(dict.fromkeys(_KERNELS[kernel]))
        self._code: Any = None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with the chosen kernel first."""
        # Each bound method is a new object, for which torch 2.9 compiles again: call the function that all objects of a class share.
        called: Callable[..., Any] = function
        owner: tuple[object, ...] = ()
        if isinstance(function, MethodType):
            called, owner = function.__func__, (function.__self__,)

        kernels = self._kernels

        def call(*args: Any, **kwargs: Any) -> Any:
            with sdpa_kernel(kernels, set_priority=True):
                return called(*owner, *args, **kwargs)

        # Dynamo stores compiled code by code object, and limits how much: not one for all models.
        self._code = self._code or call.__code__.replace()
        call.__code__ = self._code
        user_function = getattr(function, "forward", function)
        functools.update_wrapper(call, user_function)
        call.__wrapped__ = function  # type: ignore[attr-defined]
        call.__signature__ = inspect.signature(user_function)  # type: ignore[attr-defined]
        return call
