"""Wraps a model in a module with its own code object.

Dynamo stores compiled code by the code object of the function, and all models of one class share that code object. A wrapper with its
own code object keeps the compiled code of one model separate from that of the others.
"""

import inspect
import types
from typing import Any

import torch


class UniqueCodeWrapper(torch.nn.Module):  # type: ignore[misc]
    """A module that only calls the model, with a `forward` whose code object is unique."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.__qualname__ = type(model).__qualname__  # named in messages
        self.training = model.training  # not `self.train()`, which would also change the submodules of the model
        forward = types.FunctionType(_call.__code__.replace(), _call.__globals__, "forward")
        forward.__module__ = __name__
        forward.__signature__ = _with_self(inspect.signature(model.forward))  # type: ignore[attr-defined]
        self.forward = types.MethodType(forward, self)


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.model(*args, **kwargs)


def _with_self(signature: inspect.Signature) -> inspect.Signature:
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    return signature.replace(parameters=[first, *signature.parameters.values()])
