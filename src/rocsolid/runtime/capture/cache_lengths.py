"""Dynamic caches of transformers with `buckets=` for their length: a call runs with a static cache of a bucket's size.

A dynamic cache is longer after each call, so no graph fits the next one. Here its keys and values are copied into a static cache, the
call is captured with that, and the caller's cache gets tensors of the new length, as in eager. The first call of each kind and size runs
in eager with the caller's cache; a replay with the static cache is compared with it.
"""

import sys
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from rocsolid.model.bucket import Bucket
from rocsolid.model.capture_report import Reason
from rocsolid.numerics import PADDING_SCALE, Tolerance, compare
from rocsolid.runtime.capture.call import Call, CannotCapture, Parameters, spec_of
from rocsolid.runtime.capture.entry import Entry
from rocsolid.runtime.capture.state_snapshot import RngSnapshot
from rocsolid.torchapi.graphs.batched_copy import foreach_copy
from rocsolid.torchapi.pytree import Leaf, constant_key, flatten, holds_tensors, is_cache, open_outside_caches

_LENGTH_DIM: Final = 2  # of keys and values
_MAX_STATIC: Final = 8  # caches that are kept
_MAX_FIRST_CALLS: Final = 16  # with other shapes each time, before it is given up

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Calls:
    """How a captured function calls its function."""

    in_eager: Callable[[Arguments], Any]
    count: Callable[[Reason], None]  # counts a call in eager
    warm: Callable[[Arguments], tuple[Entry | None, Call]]  # captures a call and counts it; returns its graph
    captured: Callable[[Arguments], Any]
    frozen: bool  # nothing new is captured


@dataclass(kw_only=True)
class _Kind:
    """Calls whose other arguments have the same shapes."""

    tokens: int = 0  # that such a call adds
    sizes: set[int] = field(default_factory=set)  # those with a graph that was compared with eager
    refusal: CannotCapture | None = None


class CacheLengths:
    """The dynamic caches of one captured function, and the static ones in their place."""

    def __init__(self, buckets: Mapping[str, Sequence[Bucket]], parameters: Parameters, tolerance: Tolerance) -> None:
        self._buckets = buckets
        self._parameters = parameters
        self._tolerance = tolerance
        self._kinds: dict[Hashable, _Kind] = {}
        self._static: dict[Hashable, tuple[Any, int]] = {}  # caches, and how many tokens were in them

    def find(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return the name of the argument with a dynamic cache that was used before, and that `buckets=` names; empty if there is none."""
        for name, _, value in self._parameters.bind(args, kwargs):
            if name in self._buckets and _is_dynamic(value) and holds_tensors(_dynamic_part(value)):
                return name
        return ""

    def call(self, calls: Calls, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function. Raises CannotCapture, with nothing done, if the call has to run in eager."""
        passed = {key: (expression, value) for key, expression, value in self._parameters.bind(args, kwargs)}
        outer = passed[name][1]
        cache = _dynamic_part(outer)
        length = cache.layers[0].keys.shape[_LENGTH_DIM]
        mask = _mask_name(outer)
        kind = self._kind(name, args, kwargs)
        before = [(layer.keys, layer.values) for layer in cache.layers]
        size = self._size(name, length + kind.tokens) if kind.tokens else 0

        def with_static(size: int) -> tuple[Any, Arguments]:
            static = self._filled(before, size, length)
            given = {key: value for key, (_, value) in passed.items()}
            given[name] = _with_cache(outer, static)
            if isinstance(given.get(mask), torch.Tensor):
                given[mask] = _padded(given[mask], length + kind.tokens, size)
            return given[name], _replaced(args, kwargs, passed, given)

        if size not in kind.sizes and calls.frozen:
            calls.count(Reason.FROZEN)
            return calls.in_eager((args, kwargs))
        if size not in kind.sizes:
            given_mask = passed.get(mask, ("", None))[1]
            return self._first_call(calls, name, kind, outer, (args, kwargs), with_static, given_mask)
        static, arguments = with_static(size)
        result = calls.captured(arguments)
        copies = _keys_and_values(_dynamic_part(static), length + kind.tokens)
        for layer, keys, values in zip(cache.layers, copies[::2], copies[1::2], strict=True):
            layer.keys, layer.values = keys, values
        return _replace_in_result(result, static, outer)

    def has_graph(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Return whether such a call was compared with eager. Raises CannotCapture if it has to run in eager."""
        kind = self._kind(name, args, kwargs)
        passed = {key: value for key, _, value in self._parameters.bind(args, kwargs)}
        length = _dynamic_part(passed[name]).layers[0].keys.shape[_LENGTH_DIM]
        return bool(kind.tokens) and self._size(name, length + kind.tokens) in kind.sizes

    def _kind(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Kind:
        """Return what is known about calls with such arguments. Raises CannotCapture if they have to run in eager."""
        others = {key: value for key, _, value in self._parameters.bind(args, kwargs)}
        outer = others.pop(name)
        mask, cache = _mask_name(outer), _dynamic_part(outer)
        _refuse_other_layers(name, cache)
        layers = [(tensor.shape[:_LENGTH_DIM], tensor.shape[-1], tensor.dtype) for tensor in _tensors(cache)]
        key: list[Hashable] = [tuple(layers), torch.is_grad_enabled(), torch.is_inference_mode_enabled()]
        for path, value in others.items():
            for leaf in flatten(value, path, open_outside_caches).leaves:
                if isinstance(leaf.value, torch.Tensor):
                    spec = spec_of(leaf.value)
                    is_mask = leaf.path == mask
                    key.append((leaf.path, (spec.shape[:-1], spec.dtype) if is_mask else spec))
                else:
                    key.append((leaf.path, constant_key(leaf.value)))
        found = self._kinds.get(tuple(key))
        if found is None:
            if len(self._kinds) >= _MAX_FIRST_CALLS and not any(kind.sizes for kind in self._kinds.values()):
                problem = "each call has other shapes, so no graph can be used again"
                raise CannotCapture(
                    Reason.BUCKET, problem, fix="pass arguments whose shapes do not depend on the length"
                )
            found = self._kinds[tuple(key)] = _Kind()
        if found.refusal is not None:
            raise found.refusal
        return found

    def _size(self, name: str, length: int) -> int:
        bucket = self._buckets[name][0]
        size = bucket.fit(length)
        if size is None:
            raise CannotCapture(
                Reason.BUCKET,
                f"the cache `{name}` will have length {length}, which exceeds the largest bucket, {bucket.sizes[-1]}",
                fix='add a larger size, or use rs.Bucket(..., too_long="grow")',
            )
        return size

    def _first_call(
        self,
        calls: Calls,
        name: str,
        kind: _Kind,
        outer: Any,
        call: Arguments,
        with_static: Callable[[int], tuple[Any, Arguments]],
        mask: Any,
    ) -> Any:
        """Run the call in eager, and compare a replay with a static cache with it. Returns eager's result."""
        cache = _dynamic_part(outer)
        device = cache.layers[0].keys.device
        length = cache.layers[0].keys.shape[_LENGTH_DIM]
        rng = RngSnapshot(device, ())
        mask_before = mask.clone() if isinstance(mask, torch.Tensor) else None
        result = calls.in_eager(call)
        lengths = {tensor.shape[_LENGTH_DIM] for tensor in _tensors(cache)}
        why = ""
        if rng.advanced():
            why = "draws random numbers"
        elif len(lengths) != 1 or length >= max(lengths):
            why = "does not add the same number of tokens to each layer"
        elif mask_before is not None and not torch.equal(mask_before, mask):  # it gets a longer one with a static cache
            why = "writes to its attention mask"
        kind.tokens = max(lengths) - length
        size = self._buckets[name][0].fit(max(lengths))
        if why or size is None:  # too long: the next call of this kind may be shorter
            kind.refusal = _refusal(name, f"the function {why}") if why else None
            calls.count(Reason.FIRST_CALL)
            return result
        entry, static_call = calls.warm(with_static(size)[1])
        if entry is None or entry.written_state:
            written = ", ".join(f"`{path}`" for path, _ in entry.written_state) if entry else ""
            why = f"writes to {written}" if written else "is not captured with a static cache"
            kind.refusal = _refusal(name, f"the function {why}")
            return result
        replayed = entry.replay_on([leaf.value for leaf in static_call.tensors], static_call.lengths_by_group)
        now = {leaf.path: tensor for leaf, tensor in zip(static_call.tensors, entry.static_inputs, strict=True)}
        path = name if cache is outer else f"{name}.self_attention_cache"
        names = [
            f"{path}.layers[{number}].{part}" for number in range(len(cache.layers)) for part in ("keys", "values")
        ]
        got = [*_leaves(replayed.value), *(Leaf(each, now[each][:, :, : max(lengths)]) for each in names)]
        want = [*_leaves(result), *map(Leaf, names, _tensors(cache))]
        scale = PADDING_SCALE if self._tolerance.rtol is None else 1.0
        comparison = compare(want, got, self._tolerance, scale=scale)
        if comparison.equal:
            kind.sizes.add(size)
        else:
            changed = f"a static cache of {size} tokens changes the result: {'; '.join(comparison.mismatches)}"
            kind.refusal = CannotCapture(Reason.PADDING, changed, fix="capture without buckets=")
        return result

    def _filled(self, tensors: Sequence[tuple[Any, Any]], size: int, length: int) -> Any:
        """Return a static cache of this size that contains these keys and values."""
        device = tensors[0][0].device
        # Each thread and stream has its own: the keys of another one's call may still be read.
        stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
        layers = ((keys.shape[:2], keys.shape[-1], keys.dtype, keys.device) for keys, _ in tensors)
        key = (size, threading.get_ident(), stream, *layers)
        static, used = self._static.pop(key, (None, 0))
        if static is None:
            with torch.inference_mode(mode=False):
                static = _static_cache(tensors, size)
        if len(self._static) >= _MAX_STATIC:
            self._static.pop(next(iter(self._static)), None)
        with torch.no_grad():
            targets = [tensor[:, :, :length] for tensor in _tensors(static)]
            foreach_copy()(targets, [tensor for pair in tensors for tensor in pair])
            if used > length:
                for tensor in _tensors(static):
                    tensor[:, :, length:used].zero_()
            for layer in static.layers:
                layer.cumulative_length.fill_(length)
        self._static[key] = static, size
        return static


def _library() -> Any:
    return sys.modules["transformers.cache_utils"]


def _is_dynamic(value: Any) -> bool:
    if not is_cache(value) or "transformers.cache_utils" not in sys.modules:
        return False
    library = _library()
    if type(value) is library.EncoderDecoderCache:
        return type(value.self_attention_cache) is library.DynamicCache
    return type(value) is library.DynamicCache


def _dynamic_part(outer: Any) -> Any:
    """Return the cache that grows; that of an encoder-decoder is inside another one."""
    return getattr(outer, "self_attention_cache", outer)


def _mask_name(outer: Any) -> str:
    """Return the name of the argument that is as long as the cache."""
    return "decoder_attention_mask" if hasattr(outer, "self_attention_cache") else "attention_mask"


def _with_cache(outer: Any, cache: Any) -> Any:
    """Return the same cache with another one in place of the part that grows."""
    if not hasattr(outer, "self_attention_cache"):
        return cache
    copied = object.__new__(type(outer))
    vars(copied).update({**vars(outer), "self_attention_cache": cache})
    return copied


def _refuse_other_layers(name: str, cache: Any) -> None:
    library = _library()
    if not hasattr(library.StaticLayer(max_cache_len=1), "cumulative_length"):
        problem = (
            f"buckets= for the cache `{name}` needs transformers 5.17 or later: earlier static caches keep no length"
        )
        raise CannotCapture(Reason.BUCKET, problem, fix="upgrade transformers, or pass a StaticCache")
    layers = cache.layers
    others = {type(layer).__name__ for layer in layers if type(layer) is not library.DynamicLayer}
    if others or cache.offloading:
        what = f"layers of another kind: {', '.join(sorted(others))}" if others else "layers that are offloaded"
        raise CannotCapture(
            Reason.BUCKET, f"the cache `{name}` has {what}, for which there is no static one", fix="pass a StaticCache"
        )
    lengths = {layer.get_seq_length() for layer in layers}
    if len(lengths) != 1:
        raise CannotCapture(Reason.BUCKET, f"the layers of the cache `{name}` have different lengths")


def _refusal(name: str, why: str) -> CannotCapture:
    problem = f"the cache `{name}` cannot be padded to a bucket, because {why}"
    return CannotCapture(Reason.BUCKET, problem, fix="pass a StaticCache")


def _static_cache(tensors: Sequence[tuple[Any, Any]], size: int) -> Any:
    library = _library()
    layers = [library.StaticLayer(max_cache_len=size) for _ in tensors]
    for layer, (keys, values) in zip(layers, tensors, strict=True):
        layer.lazy_initialization(keys, values)
    static = object.__new__(library.StaticCache)
    library.Cache.__init__(static, layers=layers)
    return static


def _tensors(cache: Any) -> Sequence[Any]:
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def _keys_and_values(static: Any, length: int) -> list[Any]:
    """Return copies of the keys and values up to a length."""
    parts = [tensor[:, :, :length] for tensor in _tensors(static)]
    made = [torch.empty(part.shape, dtype=part.dtype, device=part.device) for part in parts]
    with torch.no_grad():
        foreach_copy()(made, parts)
    return made


def _padded(mask: Any, length: int, size: int) -> Any:
    """Return a mask with the size of the static cache. Later tokens are hidden by the causal mask, so their part is 1."""
    if mask.dim() != 2 or mask.shape[-1] != length:  # noqa: PLR2004 - rows and tokens
        return mask
    return torch.nn.functional.pad(mask, (0, size - length), value=1)


def _replaced(
    args: Sequence[Any], kwargs: Mapping[str, Any], passed: Mapping[str, tuple[str, Any]], given: Mapping[str, Any]
) -> Arguments:
    """Return the arguments with other values, passed in the same way."""
    by_expression = {expression: given[name] for name, (expression, _) in passed.items()}
    positional = tuple(by_expression[f"args[{position}]"] for position in range(len(args)))
    return positional, {name: given[name] for name in kwargs}


def _leaves(result: Any) -> list[Leaf]:
    leaves = flatten(result, "result", open_outside_caches).leaves
    return [leaf for leaf in leaves if isinstance(leaf.value, torch.Tensor) or constant_key(leaf.value) is not None]


def _replace_in_result(result: Any, static: Any, cache: Any) -> Any:
    flat = flatten(result, "result", open_outside_caches)
    return flat.unflatten([cache if leaf.value is static else leaf.value for leaf in flat.leaves])
