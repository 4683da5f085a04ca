"""The input signature of a call as text, and how two calls differ."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class CallSignature:
    """Every argument by its path, with shape, dtype, device or value; and the torch state."""

    parts: Mapping[str, str]


def signature_of(args: Sequence[object], kwargs: Mapping[str, object], names: Sequence[str] = ()) -> CallSignature:
    """The signature of a call: its arguments, by name where names are known, and the torch state that compiled code depends on."""
    import torch

    parts = dict(_walk_all(args, kwargs, names))
    parts["grad mode"] = "on" if torch.is_grad_enabled() else "off"
    parts["inference mode"] = "on" if torch.is_inference_mode_enabled() else "off"
    parts["autocast"] = "on" if torch.is_autocast_enabled() else "off"
    return CallSignature(parts=parts)


def differences(before: CallSignature, now: CallSignature) -> list[str]:
    """What changed, one line each: `argument 'x': float32[8, 64] before, float32[8, 65] now`."""
    found = []
    for path in dict.fromkeys((*before.parts, *now.parts)):
        one, other = before.parts.get(path, "not passed"), now.parts.get(path, "not passed")
        if one != other:
            found.append(f"{path}: {one} before, {other} now")
    return found


def nearest(known: Sequence[CallSignature], now: CallSignature) -> CallSignature:
    """The most similar earlier call: the fewest differences; of several, the last."""
    return min(reversed(known), key=lambda earlier: len(differences(earlier, now)))


def parameter_names(function: Callable[..., object]) -> tuple[str, ...]:
    """The names of positional parameters; empty where Python cannot tell them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def _walk_all(args: Sequence[object], kwargs: Mapping[str, object], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for number, value in enumerate(args):
        name = repr(names[number]) if number < len(names) else str(number)
        yield from _walk(f"argument {name}", value)
    for name, value in kwargs.items():
        yield from _walk(f"argument {name!r}", value)


def _walk(path: str, value: object) -> Iterator[tuple[str, str]]:
    import torch

    if isinstance(value, torch.Tensor):
        yield path, _tensor(value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _walk(f"{path}[{key!r}]", inner)
    elif isinstance(value, (list, tuple)):
        yield path, f"{type(value).__name__} of {len(value)}"
        for number, inner in enumerate(value):
            yield from _walk(f"{path}[{number}]", inner)
    elif isinstance(value, torch.nn.Module):
        yield path, f"{type(value).__name__} in {'train' if value.training else 'eval'} mode"
    else:
        text = repr(value)
        yield path, text if len(text) <= 60 else f"{type(value).__name__}"  # noqa: PLR2004 - a line's worth


def _tensor(tensor: "torch.Tensor") -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    stride = "" if tensor.is_contiguous() else f" stride {list(tensor.stride())}"
    grad = " requires_grad" if tensor.requires_grad else ""
    device = "" if tensor.device.type == "cpu" else f" on {tensor.device}"
    return f"{dtype}{list(tensor.shape)}{stride}{grad}{device}"
