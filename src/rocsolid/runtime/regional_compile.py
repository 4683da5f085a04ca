"""Compiles the layers that repeat, once for all of them, in place of the whole model."""

from collections.abc import Callable
from typing import Any

import torch

_FEW = 3  # fewer repetitions than this are not worth it


def repeated_regions(model: Any) -> list[Any]:
    """The layers of the longest list of alike modules; none when there is no such list."""
    if not isinstance(model, torch.nn.Module):
        return []
    lists = [
        list(module)
        for module in model.modules()
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)) and len(module) >= _FEW
    ]
    alike = [layers for layers in lists if len({type(layer) for layer in layers}) == 1 and _has_inside(layers[0])]
    return max(alike, key=len, default=[])


def _has_inside(layer: Any) -> bool:
    return next(layer.children(), None) is not None


class Regional:
    """The model with its repeated layers compiled, while it is called through this; by itself it stays as it was.

    The layers share their code, so torch compiles it once.
    """

    def __init__(self, model: Any, compile_one: Callable[[Any], Any]) -> None:
        self._model = model
        self._layers = [(vars(layer), compile_one(layer.forward)) for layer in repeated_regions(model)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        own = [inner.get("forward") for inner, _ in self._layers]  # of a layer that somebody has patched
        for inner, compiled in self._layers:
            inner["forward"] = compiled
        try:
            return self._model(*args, **kwargs)
        finally:
            for (inner, _), before in zip(self._layers, own, strict=True):
                if before is None:
                    del inner["forward"]
                else:
                    inner["forward"] = before
