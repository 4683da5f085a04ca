"""Replays a graph beside eager, on inputs it was not captured with, and refuses it when they disagree."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rocsolid.model.capture_report import Reason
from rocsolid.numerics import Comparison, Tolerance, compare, noise_between, result_leaves
from rocsolid.runtime.capture.call import Call, CannotCapture, spec_of
from rocsolid.runtime.capture.entry import Entry
from rocsolid.runtime.capture.inputs import Buffer, PaddedBuffer
from rocsolid.runtime.capture.options import Options
from rocsolid.runtime.capture.state import RandomState, Stage, TensorState
from rocsolid.torchapi.graphs.capture_state import seen_as_capturing, uncompiled
from rocsolid.torchapi.pytree import Leaf

_PADDING_ALLOWANCE = 4.0  # another length means other kernels, which sum in another order
_ANOTHER_WAY_ALLOWANCE = 8.0  # other kernels, which round otherwise


class Checker:
    """The comparisons before a graph's first answer."""

    def __init__(self, function: Callable[..., Any], call: Call, options: Options, stage: Stage) -> None:
        self._function = function
        self._call = call
        self._options = options
        self._stage = stage
        self._random = torch.Generator(device=call.device).manual_seed(0x5EED)

    def check(self, entry: Entry) -> None:
        """As many rounds as asked for; raises CannotCapture that names the result and the error."""
        for number in range(self._options.verify.rounds):
            inputs = [fresh_like(leaf.value, self._random) for leaf in self._call.tensors]
            if number == 0 and self._call.lengths:
                self._check_padding(entry, inputs)
            verdict = self._beside_eager(entry, inputs)
            entry.checks += 1
            entry.error = max(entry.error or 0.0, verdict.error)
            if not verdict.equal:
                raise wrong_result(verdict)

    def _beside_eager(self, entry: Entry, inputs: Sequence[Any]) -> Comparison:
        eager = self._eager(entry, inputs)
        self._stage.reset()
        replayed = result_leaves(entry.replay_on(inputs, self._call.lengths_by_group))
        got = [*replayed, *_state(entry), *_leaves("argument", entry.written, entry.statics)]
        verdict = compare(eager, got, self._options.tolerance)
        if verdict.equal:
            return verdict
        noise = noise_between(eager, self._eager(entry, inputs))
        verdict = compare(eager, got, self._options.tolerance, noise)
        return verdict if verdict.equal else self._beside_eager_as_captured(entry, inputs, eager, got, verdict)

    def _beside_eager_as_captured(
        self, entry: Entry, inputs: Sequence[Any], eager: Sequence[Leaf], got: Sequence[Leaf], verdict: Comparison
    ) -> Comparison:
        """A function that goes another way when it is captured is compared with that way, which must be near the usual one."""
        with seen_as_capturing():
            that_way = self._eager(entry, inputs)
        beside = compare(that_way, got, self._options.tolerance)
        near = compare(eager, got, self._options.tolerance, scale=_ANOTHER_WAY_ALLOWANCE)
        if not (beside.equal and near.equal):
            return verdict
        entry.goes_another_way = True
        return beside

    def _eager(self, entry: Entry, inputs: Sequence[Any]) -> list[Leaf]:
        """Results, state and written arguments of an eager run on padded copies of the inputs."""
        padded = padded_copies(self._call, inputs)
        self._stage.reset()
        args, kwargs = self._call.rebuilt(padded)
        leaves = _copied(result_leaves(self._function(*args, **kwargs)))
        cut = entry.outputs.cut(leaves, self._call.lengths_by_group)
        return [*cut, *_state(entry), *_leaves("argument", entry.written, padded)]

    def _check_padding(self, entry: Entry, inputs: Sequence[Any]) -> None:
        """Without any graph: whether the padded call, cut back, answers like the call itself."""
        lengths = self._call.lengths_by_group
        with uncompiled():
            self._stage.reset()
            args, kwargs = self._call.rebuilt(inputs)
            plain = _copied(result_leaves(self._function(*args, **kwargs)))
            self._stage.reset()
            args, kwargs = self._call.rebuilt(padded_copies(self._call, inputs))
            padded = entry.outputs.cut(_copied(result_leaves(self._function(*args, **kwargs))), lengths)
        own = [number for number, (kind, _) in enumerate(entry.outputs.plan) if kind != "input"]
        allowed = self._options.tolerance
        scale = _PADDING_ALLOWANCE if allowed.rtol is None else 1.0
        verdict = compare([plain[n] for n in own], [padded[n] for n in own], allowed, scale=scale)
        if not verdict.equal:
            detail = (
                f"{'; '.join(verdict.mismatches)} when the input is padded to {[length.size for length in self._call.lengths]}: "
                "padding takes part in it. Pass a mask and use it, or capture without buckets"
            )
            raise CannotCapture(Reason.PADDING, detail)


def wrong_result(verdict: Comparison) -> CannotCapture:
    """The refusal for a graph that does not answer as eager does."""
    detail = (
        f"the graph does not answer as eager does: {'; '.join(verdict.mismatches)}. A value was baked in (a Python number, a value "
        "read on the host), a buffer is stale, or the platform replays wrongly"
    )
    return CannotCapture(Reason.WRONG_RESULT, detail)


def recheck(
    function: Callable[..., Any], entry: Entry, call: Call, tolerance: Tolerance, generators: Sequence[Any]
) -> tuple[Any, Comparison]:
    """Answer a call eagerly, and say whether the graph would have answered the same."""
    before = Stage(
        tensors=TensorState([tensor for _, tensor in entry.state]),
        random=RandomState(call.device, generators),
        inputs=TensorState([]),
    )
    tensors = [leaf.value for leaf in call.tensors]
    lengths = call.lengths_by_group
    got = [*result_leaves(entry.replay_on(tensors, lengths)), *_state(entry)]
    got += _leaves("argument", entry.written, entry.statics)
    that_way = _as_captured(function, entry, call, before) if entry.goes_another_way else None
    before.reset()
    # At the padded size, so that a compiled function meets no length it was not compiled for.
    given = padded_copies(call, tensors) if call.lengths else tensors
    args, kwargs = call.rebuilt(given)
    result = function(*args, **kwargs)
    leaves = entry.outputs.cut(result_leaves(result), lengths)
    eager = [*leaves, *_state(entry), *_leaves("argument", entry.written, given)]
    verdict = compare(that_way or eager, got, tolerance)
    if call.lengths:
        result = _cut_back(entry, leaves, tensors, given)
    entry.checks += 1
    entry.error = max(entry.error or 0.0, verdict.error)
    return result, verdict


def _as_captured(function: Callable[..., Any], entry: Entry, call: Call, before: Stage) -> list[Leaf]:
    """What eager answers when it is told that it is being captured."""
    before.reset()
    given = padded_copies(call, [leaf.value for leaf in call.tensors])
    args, kwargs = call.rebuilt(given)
    with seen_as_capturing():
        leaves = _copied(result_leaves(function(*args, **kwargs)))
    return [
        *entry.outputs.cut(leaves, call.lengths_by_group),
        *_state(entry),
        *_leaves("argument", entry.written, given),
    ]


def _cut_back(entry: Entry, leaves: Sequence[Leaf], tensors: Sequence[Any], padded: Sequence[Any]) -> Any:
    """The result of a padded call as the caller is to get it, written arguments included."""
    with torch.no_grad():
        for number in entry.written:
            target = tensors[number]
            target.copy_(padded[number][tuple(slice(0, size) for size in target.shape)])
    owned = [leaf.value.clone() for leaf, (kind, _) in zip(leaves, entry.outputs.plan, strict=True) if kind == "owned"]
    return entry.outputs.put_together(owned, tensors)


def padded_copies(call: Call, tensors: Sequence[Any]) -> list[Any]:
    """Copies of a call's tensors as the graph's buffers would hold them."""
    made = []
    for number, (tensor, spec) in enumerate(zip(tensors, call.specs, strict=True)):
        lengths = [length for length in call.lengths if length.tensor == number]
        buffer = PaddedBuffer(spec, lengths) if lengths else Buffer(spec)
        with torch.no_grad():
            buffer.take(tensor)
        made.append(buffer.tensor.requires_grad_(tensor.requires_grad))
    return made


def _copied(leaves: Sequence[Leaf]) -> list[Leaf]:
    return [
        Leaf(leaf.path, leaf.value.detach().clone()) if isinstance(leaf.value, torch.Tensor) else leaf
        for leaf in leaves
    ]


def _state(entry: Entry) -> list[Leaf]:
    return [Leaf(f"what is left in {path}", tensor.detach().clone()) for path, tensor in entry.state]


def _leaves(what: str, numbers: Sequence[int], tensors: Sequence[Any]) -> list[Leaf]:
    return [Leaf(f"{what} {number}", tensors[number].detach().clone()) for number in numbers]


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
