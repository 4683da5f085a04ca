"""Compares what a replay answers with what eager answers."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rocsolid.runtime.capture.call import spec_of
from rocsolid.runtime.capture.inputs import Buffer
from rocsolid.runtime.capture.tree import Leaf, take_apart, token

_RTOL = {
    torch.float64: 1e-9,
    torch.float32: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.complex128: 1e-9,
    torch.complex64: 1e-5,
}
_UNREPEATABLE = 4.0  # eager may differ from itself by this many tolerances: sums in no fixed order do
_COARSE = 0.13  # eight-bit floats: one step between neighbours


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How much a replay may differ: by element type unless given, and never less than eager differs from itself."""

    rtol: float | None = None
    atol: float | None = None
    ignore: Collection[str] = ()  # paths of results that are not compared, such as one left uninitialised on purpose


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How far two answers are apart."""

    error: float  # the largest difference, relative to the size of eager's answer
    wrong: tuple[str, ...] = ()  # one sentence for each result that differs too much

    @property
    def right(self) -> bool:
        """Whether the answers agree."""
        return not self.wrong


def results_of(value: Any) -> tuple[Leaf, ...]:
    """The tensors and constants of a result, with their paths."""
    return take_apart(value, "result").leaves


def compared(
    eager: Sequence[Leaf],
    got: Sequence[Leaf],
    tolerance: Tolerance,
    noise: Sequence[float] | None = None,
    *,
    scale: float = 1.0,
) -> Verdict:
    """Compare two results leaf by leaf. `noise` is how far eager was from itself on the same input; `scale` widens tolerances."""
    if [leaf.path for leaf in eager] != [leaf.path for leaf in got]:
        return Verdict(error=math.inf, wrong=("the replay's result has another structure than eager's",))
    worst, wrong = 0.0, []
    for number, (one, other) in enumerate(zip(eager, got, strict=True)):
        if one.path in tolerance.ignore:
            continue
        error, allowed, text = _difference(one, other, tolerance)
        allowed *= scale
        if noise is not None:
            if noise[number] > _UNREPEATABLE * max(allowed, _RTOL[torch.float32]):
                text = f"{one.path}: eager itself answers differently each time, by {noise[number]:.1e} of its size"
            else:
                allowed = max(allowed, 4 * noise[number])
        worst = max(worst, error)
        if error > allowed:
            wrong.append(text or f"{one.path} differs from eager by {error:.1e} of its size ({allowed:.1e} is allowed)")
    return Verdict(error=worst, wrong=tuple(wrong))


def noise_between(one: Sequence[Leaf], other: Sequence[Leaf]) -> list[float]:
    """How far two runs of eager on the same input are apart, result by result."""
    loose = Tolerance()
    return [_difference(a, b, loose)[0] for a, b in zip(one, other, strict=True)]


def _difference(one: Leaf, other: Leaf, tolerance: Tolerance) -> tuple[float, float, str]:
    """The error, how much is allowed, and a sentence when it is not a matter of size."""
    a, b = one.value, other.value
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        same = type(a) is type(b) and (a is b or (token(a) is not None and token(a) == token(b)))
        return (0.0, 0.0, "") if same else (math.inf, 0.0, f"{one.path} is {b!r} where eager gives {a!r}")
    if a.shape != b.shape or a.dtype != b.dtype:
        return (
            math.inf,
            0.0,
            f"{one.path} is {b.dtype}{list(b.shape)} where eager gives {a.dtype}{list(a.shape)}".replace("torch.", ""),
        )
    if a.numel() == 0:
        return 0.0, 0.0, ""
    if not (a.is_floating_point() or a.is_complex()):
        wrong = int((a != b).sum())
        text = f"{one.path} differs from eager in {wrong} of {a.numel()} elements, and must be exact" if wrong else ""
        return wrong / a.numel(), 0.0, text
    return _float_difference(one.path, a, b, tolerance)


def _float_difference(path: str, a: Any, b: Any, tolerance: Tolerance) -> tuple[float, float, str]:
    wide = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.detach().to(wide), b.detach().to(wide)
    strange = ~torch.isfinite(x) | ~torch.isfinite(y)
    if bool(strange.any()):
        same = (torch.isnan(x) & torch.isnan(y)) | (x == y)
        if not bool(same[strange].all()):
            many = int((strange & ~same).sum())
            return math.inf, 0.0, f"{path} is not finite, or is, in {many} places where eager is otherwise"
        x, y = torch.where(strange, 0, x), torch.where(strange, 0, y)
    size = float(x.abs().pow(2).mean().sqrt())
    rtol = tolerance.rtol if tolerance.rtol is not None else _RTOL.get(a.dtype, _COARSE)
    apart = (x - y).abs()
    if not bool(apart.any()):
        return 0.0, rtol, ""
    if tolerance.atol is not None:
        over = float((apart - tolerance.atol - rtol * x.abs()).max())
        return (0.0, rtol, "") if over <= 0 else (math.inf if size == 0 else float(apart.max()) / size, 0.0, "")
    # An element is judged by its own size or by that of the whole, whichever is larger: sums that cancel are no error.
    error = float((apart / x.abs().clamp(min=size)).max()) if size else math.inf
    return error, rtol, ""


def fresh_like(tensor: Any, random: Any) -> Any:
    """Other values for an input, of the same kind and layout: its numbers in another order and size. Integers stay as they are.

    Indices, lengths and offsets must fit each other; a made-up one could make a kernel read outside its memory.
    """
    twin = Buffer(spec_of(tensor))
    twin.take(tensor.detach())
    if tensor.is_floating_point() and tensor.numel():
        memory = twin.memory
        shift = int(torch.randint(1, memory.numel() + 1, (1,), generator=random, device=random.device))
        noise = torch.rand(memory.shape, generator=random, device=random.device).to(memory.device)
        values = memory.float().flatten().roll(shift).reshape(memory.shape)
        blank = not bool((values != 0).any())
        memory.copy_(noise - 0.5 if blank else values * (0.5 + noise))
    return twin.tensor.requires_grad_(tensor.requires_grad)
