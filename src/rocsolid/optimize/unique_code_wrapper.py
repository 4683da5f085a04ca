"""Wraps a model in a module with its own code object.

Dynamo stores compiled code by the code object of the function, which all models of a class share. With its own code object, what
Dynamo stores belongs to this model only.
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
        self.training = model.training  # of the wrapper only: submodules of the model may differ
        forward = types.FunctionType(_call.__code__.replace(), _call.__globals__, "forward")
        forward.__module__ = __name__
        forward.__signature__ = _with_self(inspect.signature(model.forward))  # type: ignore[attr-defined]
        self.forward = types.MethodType(forward, self)


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.model(*args, **kwargs)


def _with_self(signature: inspect.Signature) -> inspect.Signature:
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    return signature.replace(parameters=[first, *signature.parameters.values()])
