"""A model in a shell whose code is its own, so that what Dynamo keeps for the code is kept for this model alone.

Dynamo files what it compiled under the code of the function, which all models of a class share.
"""

import inspect
import types
from typing import Any

import torch


class Shell(torch.nn.Module):  # type: ignore[misc]
    """Calls the model."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.training = model.training  # of the shell alone: the parts of a model may differ
        plain = types.FunctionType(_call.__code__.replace(), _call.__globals__, "forward")
        plain.__module__ = __name__
        plain.__signature__ = _with_self(inspect.signature(model.forward))  # type: ignore[attr-defined]
        self.forward = types.MethodType(plain, self)


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.model(*args, **kwargs)


def _with_self(signature: inspect.Signature) -> inspect.Signature:
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    return signature.replace(parameters=[first, *signature.parameters.values()])
