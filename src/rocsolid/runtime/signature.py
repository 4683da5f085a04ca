"""The input signature of a call as text, and how two calls differ."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_MAX_VALUE_LENGTH = 60  # of a value's repr; a longer one is replaced by its type


@dataclass(frozen=True, kw_only=True)
class CallSignature:
    """The arguments of a call and the torch state, as text."""

    parts: Mapping[str, str]  # the path of an argument or the name of a torch state -> shape, dtype, device or value


def signature_of(args: Sequence[object], kwargs: Mapping[str, object], names: Sequence[str] = ()) -> CallSignature:
    """Return the signature of a call: its arguments, by name where known, and the torch state that compiled code depends on."""
    import torch

    parts = dict(_argument_parts(args, kwargs, names))
    parts["grad mode"] = "on" if torch.is_grad_enabled() else "off"
    parts["inference mode"] = "on" if torch.is_inference_mode_enabled() else "off"
    parts["autocast"] = "on" if torch.is_autocast_enabled() else "off"
    return CallSignature(parts=parts)


def differences(before: CallSignature, now: CallSignature) -> list[str]:
    """Return one line for each difference: `argument 'x' was float32[8, 64], is now float32[8, 65]`."""
    lines = []
    for path in dict.fromkeys((*before.parts, *now.parts)):
        old, new = before.parts.get(path, "not passed"), now.parts.get(path, "not passed")
        if old != new:
            lines.append(f"{path} was {old}, is now {new}")
    return lines


def nearest(known: Sequence[CallSignature], now: CallSignature) -> CallSignature:
    """Return the earlier call with the fewest differences; of several, the last."""
    return min(reversed(known), key=lambda earlier: len(differences(earlier, now)))


def parameter_names(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names of the positional parameters; empty where Python cannot tell them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def _argument_parts(
    args: Sequence[object], kwargs: Mapping[str, object], names: Sequence[str]
) -> Iterator[tuple[str, str]]:
    for position, value in enumerate(args):
        name = repr(names[position]) if position < len(names) else str(position)
        yield from _parts_of(f"argument {name}", value)
    for name, value in kwargs.items():
        yield from _parts_of(f"argument {name!r}", value)


def _parts_of(path: str, value: object) -> Iterator[tuple[str, str]]:
    import torch

    if isinstance(value, torch.Tensor):
        yield path, _tensor_text(value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _parts_of(f"{path}[{key!r}]", inner)
    elif isinstance(value, (list, tuple)):
        yield path, f"{type(value).__name__} of {len(value)}"
        for index, inner in enumerate(value):
            yield from _parts_of(f"{path}[{index}]", inner)
    elif isinstance(value, torch.nn.Module):
        yield path, f"{type(value).__name__} in {'train' if value.training else 'eval'} mode"
    else:
        text = repr(value)
        yield path, text if len(text) <= _MAX_VALUE_LENGTH else f"{type(value).__name__}"


def _tensor_text(tensor: "torch.Tensor") -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    stride = "" if tensor.is_contiguous() else f" stride {list(tensor.stride())}"
    grad = " requires_grad" if tensor.requires_grad else ""
    device = "" if tensor.device.type == "cpu" else f" on {tensor.device}"
    return f"{dtype}{list(tensor.shape)}{stride}{grad}{device}"
