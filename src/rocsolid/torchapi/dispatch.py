"""Torch's dispatch mode, and the properties of an operator that its schema declares."""

from functools import cache
from typing import Any

from rocsolid.torchapi.private_api import private_name

_MODE = private_name("torch.utils._python_dispatch", "TorchDispatchMode", "2.0..")

DispatchMode: Any = _MODE.get()  # this module is only imported where torch is in use


@cache
def _schema(operation: Any) -> Any:
    return operation._schema


@cache
def is_view(operation: Any) -> bool:
    """Return whether an operator only returns views: its results share memory with an argument, and nothing is written."""
    import torch

    if torch.Tag.inplace_view in operation.tags:
        return True
    schema = _schema(operation)
    infos = [result.alias_info for result in schema.returns]
    return bool(infos) and all(info is not None and not info.is_write for info in infos)


@cache
def writes_in_place(operation: Any) -> bool:
    """Return whether an operator writes to an argument."""
    return any(a.alias_info is not None and a.alias_info.is_write for a in _schema(operation).arguments)


@cache
def only_allocates(operation: Any) -> bool:
    """Return whether an operator only allocates memory, so that a replay can skip it."""
    name = operation.name().partition(".")[0]
    return name in (
        "aten::empty",
        "aten::empty_strided",
        "aten::empty_like",
        "aten::new_empty",
        "aten::new_empty_strided",
    )
