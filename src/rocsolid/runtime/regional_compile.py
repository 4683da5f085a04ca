"""Regional compilation: compiles the repeated layers of a model once, or the step of its loop, instead of the whole model."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

_MIN_LAYERS = 3  # with fewer repetitions, compiling only the layer saves little time


@dataclass(frozen=True)
class RepeatedStep:
    """A part of a model that one call of the model runs several times, such as the step of a denoiser."""

    module: Any
    calls: int


@contextmanager
def counting_calls(model: Any) -> Iterator["Counter[str]"]:
    """Count how often each part of a model is called inside the block, by its name."""
    counts: Counter[str] = Counter()
    parts = dict(model.named_modules()) if isinstance(model, torch.nn.Module) else {}
    # A hook would make torch compile a part again that the user has compiled.
    if any(type(part).__module__.startswith(("torch._", "torch.jit")) for part in parts.values()):
        parts = {}
    hooks = [
        part.register_forward_pre_hook(lambda *_, name=name: counts.update((name,)))
        for name, part in parts.items()
        if name
    ]
    try:
        yield counts
    finally:
        for hook in hooks:
            hook.remove()


def repeated_step(model: Any, counts: "Counter[str]", model_calls: int) -> RepeatedStep | None:
    """Return the outermost part that is called at least three times in each call of the model; None if there is none.

    A part without children, such as an activation function that many layers share, is too small.
    """
    for name, part in model.named_modules() if counts else ():  # parents come before their children
        calls = counts[name] // max(1, model_calls)
        if calls >= _MIN_LAYERS and _has_children(part):
            return RepeatedStep(part, calls)
    return None


def repeated_layers(model: Any) -> list[Any]:
    """Return the layers of the longest ModuleList or Sequential whose modules all have the same type; empty if there is none."""
    if not isinstance(model, torch.nn.Module):
        return []
    lists = [
        list(module)
        for module in model.modules()
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)) and len(module) >= _MIN_LAYERS
    ]
    same_type = [layers for layers in lists if len({type(layer) for layer in layers}) == 1 and _has_children(layers[0])]
    return max(same_type, key=len, default=[])


def _has_children(layer: Any) -> bool:
    return next(layer.children(), None) is not None


def compile_states(function: Any) -> list[Any]:
    """Return the states (`fn.rocsolid`) of a function from `rs.compile`, or of the compiled layers of a `RegionalModel`."""
    if isinstance(function, RegionalModel):
        return function.compile_states
    state = vars(function).get("rocsolid") if hasattr(function, "__dict__") else None
    return [] if state is None else [state]


class RegionalModel:
    """A callable that runs the model with compiled layers. Outside such a call the model is unchanged.

    All layers have the same code, so torch compiles it once.
    """

    def __init__(self, model: Any, compile_layer: Callable[[Any], Any], layers: Sequence[Any] | None = None) -> None:
        """Compile `layers`, or else the repeated layers of the model."""
        self._model = model
        compiled = repeated_layers(model) if layers is None else layers
        self._layers = [(vars(layer), compile_layer(layer.forward)) for layer in compiled]
        states = self.compile_states
        for (
            state
        ) in states:  # all layers have the same code: after a cancelled compile, the next one would take as long
            state.fall_back_together.extend(states)

    @property
    def compile_states(self) -> list[Any]:
        """The state of each compiled layer."""
        return [state for _, compiled in self._layers for state in compile_states(compiled)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model with the compiled layers in place."""
        # A layer has this instance attribute only if the user patched it.
        previous_forwards = [attributes.get("forward") for attributes, _ in self._layers]
        for attributes, compiled in self._layers:
            attributes["forward"] = compiled
        try:
            return self._model(*args, **kwargs)
        finally:
            for (attributes, _), forward in zip(self._layers, previous_forwards, strict=True):
                if forward is None:
                    del attributes["forward"]
                else:
                    attributes["forward"] = forward
