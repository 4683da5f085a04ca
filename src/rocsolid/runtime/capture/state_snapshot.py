"""Snapshots of what a function reaches: to restore it after warm-up runs, and to detect at each replay what has changed.

`Snapshot` compares Python values by identity: every attribute, closure variable, global, default and item of a container is still
the same object (or an equal constant), every object and class still has its attributes and its code. Dictionaries have version
numbers, so one comparison covers all attributes of an object. The comparisons are straight-line code for a few values, and C loops
over lists for many.
"""

import ctypes
import random
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, repeat
from operator import is_
from typing import Any, Final, NamedTuple

import torch
from torch.nn.parameter import is_lazy

from rocsolid.runtime.capture.reachable_state import (
    MISSING,
    Content,
    ReachableState,
    Reference,
    WatchedDict,
    identical,
    same_value,
)
from rocsolid.torchapi.graphs.replay_checks import (
    address_comparison,
    dict_version,
    replaced_by_first_compile,
    tensor_check,
    write_count,
)
from rocsolid.torchapi.private_api import method_of_other_threads

_MAX_SAVED_BYTES: Final = 256 * 2**20  # buffers up to this total are saved whether a write to them was seen or not
_MAX_COMPARED_CPU_BYTES: Final = 2**16  # of a CPU tensor; of a larger one only the version counter is compared
_MAX_UNROLLED: Final = 8  # comparisons of one kind
_MAX_VALUES_LENGTH: Final = 80  # of two constants in a message
# Python adds these to a class when they are read.
_IGNORED_KEYS: Final = frozenset({"__annotations__", "__doc__", "__annotations_cache__", "__annotate__"})


class Change(NamedTuple):
    """A value that has changed: its path, and what happened as a phrase."""

    path: str
    text: str


class Snapshot:
    """The Python values that a function reaches, as they were when this object was made."""

    def __init__(self, state: ReachableState, owner: Any = None) -> None:
        """`owner` is a module that holds the captured function itself. It is only referenced weakly: otherwise it were a cycle."""
        self._version_of = dict_version()
        owned = vars(owner) if owner is not None else None
        self._owner = weakref.ref(owner) if owner is not None else None
        self._owner_path = next((watched.path for watched in state.dicts if watched.items is owned), "")
        self._owner_copy: dict[Any, Any] = _without_captured(owned or {})
        dicts = [watched for watched in state.dicts if watched.items is not owned]
        self._empty = [watched for watched in dicts if watched.names is None and _is_empty(watched.items)]
        self._empty_items = [watched.items for watched in self._empty]
        self._dicts = [watched for watched in dicts if watched.names is not None or not _is_empty(watched.items)]
        self._items = [watched.items for watched in self._dicts]
        self._copies = [_watched_items(watched) for watched in self._dicts]
        self._versions = list(map(self._version_of, self._items))
        self._sequences = state.sequences
        self._sequence_items = [sequence for _, sequence in state.sequences]
        self._sequence_copies = [list(sequence) for sequence in self._sequence_items]
        self._attributes = [ref._replace(value=ref.current()) for ref in state.attributes]
        objects = [(path, value) for path, value in state.objects if value is not owner]
        self._object_paths = [path for path, _ in objects]
        self._objects = [value for _, value in objects]
        self._classes = list(map(type, self._objects))
        with_dict = [(path, value) for path, value in objects if hasattr(value, "__dict__")]
        self._holder_paths = [path for path, _ in with_dict]
        self._dict_holders = [value for _, value in with_dict]
        self._held_dicts: list[Any] = list(map(vars, self._dict_holders))
        self._contents = [(content, content.read(content.value)) for content in state.contents if content.watched]
        self.quick_check = self._comparisons().function()  # returns True if nothing has changed; else see `changes`

    def _comparisons(self) -> "_CheckGenerator":
        """Return the comparisons of the quick check.

        A value may be set to an equal constant, and the globals of a script get new values that the function does not use. Then
        only what has changed is compared, and the new version is kept.
        """
        values = [ref.value for ref in self._attributes]
        lengths, items = list(map(len, self._sequence_copies)), list(chain.from_iterable(self._sequence_copies))
        check = _CheckGenerator(
            version_of=self._version_of,
            dicts_equal=partial(_dicts_equal, self._dicts, self._copies, self._versions, self._version_of),
            attributes_equal=partial(_attributes_equal, self._attributes, values),
            sequences_equal=partial(_sequences_equal, self._sequences, self._sequence_copies, items),
        )
        if self._owner is not None:
            check.add_owner(_OwnerCheck(self._owner, self._owner_path, self._owner_copy, self._version_of))
        check.add(
            "(list(map(version_of, dicts)) == versions or dicts_equal())",
            "(version_of(dicts{i}) == versions[{i}] or dicts_equal())",
            dicts=self._items,
            versions=self._versions,
        )
        check.add(
            "(all(map(is_, map(getattr, holders, keys, repeat(MISSING)), values)) or attributes_equal())",
            "(getattr(holders{i}, keys{i}, MISSING) is values[{i}] or attributes_equal())",
            holders=[ref.holder for ref in self._attributes],
            keys=[ref.key for ref in self._attributes],
            values=values,
        )
        check.add("not any(empty)", "not empty{i}", empty=self._empty_items)
        check.add(
            "list(map(type, objects)) == classes",
            "type(objects{i}) is classes{i}",
            objects=self._objects,
            classes=self._classes,
        )
        check.add(
            "all(map(is_, map(vars, holders_of_dicts), held_dicts))",
            "holders_of_dicts{i}.__dict__ is held_dicts{i}",
            holders_of_dicts=self._dict_holders,
            held_dicts=self._held_dicts,
        )
        check.add("list(map(len, sequences)) == lengths", "", sequences=self._sequence_items, lengths=lengths)
        check.add("(all(map(is_, chain.from_iterable(sequences), items)) or sequences_equal())", "", items=items)
        check.add("all(content.read(content.value) == old for content, old in contents)", "", contents=self._contents)
        return check

    def is_unchanged(self) -> bool:
        """Return whether every value is as it was."""
        return self.quick_check() or not self.changes()

    def changes(self) -> list[Change]:
        """Return every change. A constant that was set to an equal value is not a change."""
        changes = [change for watched in self._empty if watched.items for change in _dict_changes(watched, {})]
        versions = map(self._version_of, self._items)
        for watched, copy, old, new in zip(self._dicts, self._copies, self._versions, versions, strict=True):
            if old != new:
                changes += _dict_changes(watched, copy)
        for (path, sequence), items in zip(self._sequences, self._sequence_copies, strict=True):
            changes += _sequence_changes(path, sequence, items)
        changes += [change for ref in self._attributes if (change := _change(ref.path, ref.value, ref.current()))]
        changes += self._object_changes()
        changes += [
            Change(content.path, f"the content of `{content.path}` changed")
            for content, old in self._contents
            if content.read(content.value) != old
        ]
        if self._owner is not None:
            changes += _owner_changes(self._owner(), self._owner_path, self._owner_copy)
        return changes

    def _object_changes(self) -> list[Change]:
        changes = [
            Change(path, f"the class of `{path}` changed from {kind.__name__} to {type(value).__name__}")
            for path, value, kind in zip(self._object_paths, self._objects, self._classes, strict=True)
            if type(value) is not kind
        ]
        return changes + [
            Change(path, f"`{path}.__dict__` was replaced")
            for path, value, attributes in zip(self._holder_paths, self._dict_holders, self._held_dicts, strict=True)
            if vars(value) is not attributes
        ]

    def restore(self) -> None:
        """Restore every value."""
        for watched, copy in zip(
            (*self._empty, *self._dicts), (*repeat({}, len(self._empty)), *self._copies), strict=True
        ):
            _restore_dict(watched, copy)
        for sequence, items in zip(self._sequence_items, self._sequence_copies, strict=True):
            _restore_sequence(sequence, items)
        for ref in self._attributes:
            ref.restore()
        for value, kind in zip(self._objects, self._classes, strict=True):
            if type(value) is not kind:  # not `value.__class__`, which a wrapper may answer for what it wraps
                object.__setattr__(value, "__class__", kind)
        for value, attributes in zip(self._dict_holders, self._held_dicts, strict=True):
            if vars(value) is not attributes:
                object.__setattr__(value, "__dict__", attributes)
        for content, old in self._contents:
            if content.write is not None and content.read(content.value) != old:
                content.write(content.value, old)


class _CheckGenerator:
    """Generates the quick check as one expression: for a few values straight-line code, which is three times as fast as a loop."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        """The comparisons may use these functions by these names."""
        self._names: dict[str, Any] = {
            "MISSING": MISSING,
            "is_": is_,
            "repeat": repeat,
            "chain": chain,
            **functions,
        }
        self._terms: list[str] = []

    def add(self, loop: str, single: str, **columns: Sequence[Any]) -> None:
        """Add a comparison of all rows: `loop` names the columns, `single` names the values of row {i}, as in `objects{i}`."""
        rows = list(zip(*columns.values(), strict=True))
        self._names.update(columns)
        if len(rows) > _MAX_UNROLLED or not single:
            self._terms += [loop] if rows else []
            return
        for i, row in enumerate(rows):
            self._names.update({f"{name}{i}": value for name, value in zip(columns, row, strict=True)})
            self._terms.append(single.format(i=i))

    def add_tensors(
        self, tensors: list[Any], same_addresses: Callable[[], bool], same_layouts: Callable[..., bool]
    ) -> None:
        """Add a comparison of tensors."""
        self._names.update(tensors=tensors, same_addresses=same_addresses, same_layouts=same_layouts)
        self._terms += ["same_addresses()", "same_layouts(*tensors)"] if tensors else []

    def add_owner(self, same_owner: Callable[[], bool]) -> None:
        """Add the comparison of the module that holds the captured function."""
        self._names["same_owner"] = same_owner
        self._terms.append("same_owner()")

    def function(self) -> Callable[[], bool]:
        """Compile the expression."""
        # An error: another thread changed a container, or a closure variable was deleted.
        compared = " and ".join(self._terms) or True
        source = f"def check():\n try: return {compared}\n except (RuntimeError, ValueError): return False"
        exec(source, self._names)  # noqa: S102 - made from the constants of this module
        check: Callable[[], bool] = self._names.pop("check")  # otherwise a cycle would keep all objects alive
        return check


class _OwnerCheck:
    """Compares the attributes of the module that holds the captured function, which is not one of them."""

    def __init__(
        self,
        owner: "weakref.ref[Any]",
        path: str,
        copy: dict[Any, Any],
        version_of: Callable[[dict[Any, Any]], object],
    ) -> None:
        self._owner = owner
        self._path = path
        self._copy = copy
        self._version_of = version_of
        self._version = version_of(vars(owner()))

    def __call__(self) -> bool:
        owner = self._owner()
        if owner is None:
            return False
        version = self._version_of(vars(owner))
        if version != self._version:
            if _owner_changes(owner, self._path, self._copy):
                return False
            self._version = version
        return True


def _owner_changes(owner: Any, path: str, copy: dict[Any, Any]) -> list[Change]:
    if owner is None:
        return [Change("", "the module was deleted")]
    return _dict_changes(WatchedDict(path, _without_captured(vars(owner)), is_attributes=True), copy)


def _dicts_equal(
    dicts: Sequence[WatchedDict],
    copies: Sequence[dict[Any, Any]],
    versions: list[object],
    version_of: Callable[[dict[Any, Any]], object],
) -> bool:
    """Compare the dictionaries whose version is not the one in `versions`, which is updated."""
    for index, (watched, old) in enumerate(zip(dicts, versions, strict=True)):
        version = version_of(watched.items)
        if version != old:
            if _dict_changes(watched, copies[index]):
                return False
            versions[index] = version
    return True


def _attributes_equal(attributes: Sequence[Reference], values: list[Any]) -> bool:
    """Compare the attributes whose value is not the object in `values`, which is updated."""
    for index, ref in enumerate(attributes):
        now = ref.current()
        if now is not values[index]:
            if not same_value(ref.value, now):
                return False
            values[index] = now
    return True


def _sequences_equal(sequences: Sequence[tuple[str, Any]], copies: Sequence[list[Any]], items: list[Any]) -> bool:
    """Compare sequences of unchanged lengths; `items`, the items of all of them, is updated."""
    if any(_sequence_changes(path, sequence, copy) for (path, sequence), copy in zip(sequences, copies, strict=True)):
        return False
    items[:] = chain.from_iterable(sequence for _, sequence in sequences)
    return True


def _without_captured(attributes: dict[Any, Any]) -> dict[Any, Any]:
    return {k: v for k, v in attributes.items() if not getattr(type(v), "_rocsolid_captured", False)}


def _is_empty(items: dict[Any, Any]) -> bool:
    """Return whether a dictionary is empty; False for a subclass whose own methods would have to be asked."""
    kind = type(items)
    return kind.__len__ is dict.__len__ and not hasattr(kind, "__bool__") and not items


def _watched_items(watched: WatchedDict) -> dict[Any, Any]:
    """Return the watched values of a dictionary."""
    if watched.names is None:
        return dict(dict.items(watched.items))  # not the methods of a subclass
    return {name: watched.items.get(name, MISSING) for name in watched.names}


def _ignored_keys(watched: WatchedDict) -> frozenset[str]:
    return _IGNORED_KEYS | replaced_by_first_compile() if watched.owner is torch.nn.Module else _IGNORED_KEYS


def _value_now(watched: WatchedDict, value: Any) -> Any:
    """Return a value of a dictionary. A method of `nn.Module` that another thread has patched for itself alone counts as unchanged."""
    return method_of_other_threads(value) if watched.owner is torch.nn.Module else value


def _dict_changes(watched: WatchedDict, copy: dict[Any, Any]) -> list[Change]:
    now = _watched_items(watched)
    if len(now) == len(copy) and all(map(is_, copy, now)) and all(map(is_, copy.values(), now.values())):
        return []
    ignored = _ignored_keys(watched)
    keys = [key for key in now if key not in ignored]
    changes = []
    for key in dict.fromkeys((*copy, *keys)):
        if key not in ignored:
            change = _change(
                watched.entry_path(key), copy.get(key, MISSING), _value_now(watched, now.get(key, MISSING))
            )
            changes += [change] if change else []
    if not changes and watched.names is None and keys != [key for key in copy if key not in ignored]:
        changes.append(Change(watched.path, f"the order of `{watched.path}` changed"))
    return [Change(watched.path, f"{watched.label} changed")] if watched.label and changes else changes


def _sequence_changes(path: str, sequence: Any, copy: list[Any]) -> list[Change]:
    now = list(sequence)
    if len(now) != len(copy):
        return [Change(path, f"the length of `{path}` changed from {len(copy)} to {len(now)}")]
    if identical(copy, now):
        return []
    if isinstance(sequence, set):
        same = set(map(id, copy)) == set(map(id, now))
        return [] if same else [Change(path, f"the items of `{path}` changed")]
    if isinstance(sequence, dict):
        return [Change(path, f"the order of `{path}` changed")]
    pairs = enumerate(zip(copy, now, strict=True))
    return [change for index, (old, new) in pairs if (change := _change(f"{path}[{index}]", old, new))]


def _change(path: str, before: Any, now: Any) -> Change | None:
    """Return how a value has changed; None when it has not."""
    if same_value(before, now):
        return None
    name = _kind_and_path(path, now if before is MISSING else before)
    if now is MISSING:
        return Change(path, f"{name} was deleted")
    if before is MISSING:
        return Change(path, f"{name} was added")
    if _is_constant(before) and _is_constant(now):
        before_text, now_text = repr(before), repr(now)
        if len(before_text) + len(now_text) <= _MAX_VALUES_LENGTH:
            return Change(path, f"`{path}` changed from {before_text} to {now_text}")
    return Change(path, f"{name} was replaced")


def _is_constant(value: Any) -> bool:
    return isinstance(value, (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device))


def _kind_and_path(path: str, value: Any) -> str:
    if isinstance(value, torch.nn.Parameter):
        return f"parameter `{path}`"
    if isinstance(value, torch.Tensor):
        return f"tensor `{path}`"
    return f"module `{path}`" if isinstance(value, torch.nn.Module) else f"`{path}`"


def _restore_dict(watched: WatchedDict, copy: dict[Any, Any]) -> None:
    items = watched.items
    if watched.owner is not None:
        for name in ({*items} | {*copy}) - _ignored_keys(watched):
            if _value_now(watched, items.get(name, MISSING)) is not copy.get(name, MISSING):
                _set_or_delete(watched.owner, name, copy.get(name, MISSING))
    elif watched.names is not None:
        for name, value in copy.items():
            if items.get(name, MISSING) is not value:
                items.pop(name, None) if value is MISSING else items.__setitem__(name, value)
    elif list(dict.keys(items)) != list(copy) or any(dict.get(items, key) is not copy[key] for key in copy):
        kind = OrderedDict if isinstance(items, OrderedDict) else dict  # not the methods of a subclass
        kind.clear(items)
        for key, value in copy.items():
            kind.__setitem__(items, key, value)


def _set_or_delete(owner: Any, name: str, value: Any) -> None:
    if value is MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


def _restore_sequence(sequence: Any, copy: list[Any]) -> None:
    if isinstance(sequence, dict) or (len(sequence) == len(copy) and all(map(is_, sequence, copy))):
        return
    kind: Any = next(kind for kind in (list, deque, set) if isinstance(sequence, kind))  # not the methods of a subclass
    kind.clear(sequence)
    kind.update(sequence, copy) if kind is set else kind.extend(sequence, copy)


class CapturedState(Snapshot):
    """The state that a graph was captured with: the Python values, and where each tensor is."""

    def __init__(self, state: ReachableState, device: Any, owner: Any = None) -> None:
        self.generators = tuple(state.generators)
        self._tensors = list({id(ref.value): ref for ref in state.tensors}.values())
        self._tensor_list = [ref.value for ref in self._tensors]
        self._addresses = [tensor.data_ptr() for tensor in self._tensor_list]
        self._layouts = list(map(_layout, self._tensor_list))
        self._same_layouts = tensor_check(self._tensor_list)
        super().__init__(_with_cpu_values(state) if device.type == "cuda" else state, owner)

    def _comparisons(self) -> "_CheckGenerator":
        check = super()._comparisons()
        check.add_tensors(self._tensor_list, _address_check(self._tensor_list), self._same_layouts)
        return check

    @property
    def object_ids(self) -> frozenset[int]:
        """The ids of the objects of the state."""
        return frozenset(map(id, self._objects))

    @property
    def tensors(self) -> list[Any]:
        """The tensors of the state."""
        return self._tensor_list

    def changes(self) -> list[Change]:
        """Return every change."""
        changes = super().changes()
        for ref, address, layout in zip(self._tensors, self._addresses, self._layouts, strict=True):
            name = _kind_and_path(ref.path, ref.value)
            if ref.value.data_ptr() != address:
                changes.append(Change(ref.path, f"{name} moved to a new address"))
            elif _layout(ref.value) != layout:
                changes.append(Change(ref.path, f"shape, strides, dtype or requires_grad of {name} changed"))
        if not changes and self._tensor_list and not self._same_layouts(*self._tensor_list):
            changes.append(Change("", "a tensor that the function reaches changed"))
        return changes


def _layout(tensor: Any) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad


def _address_check(tensors: list[Any]) -> Callable[[], bool]:
    """Return a function that tells whether every tensor still has its present address."""
    address = torch.Tensor.data_ptr
    addresses = list(map(address, tensors))
    on_gpu = tensors and all(tensor.device.type == "cuda" for tensor in tensors)
    equal = address_comparison() if on_gpu else None
    if equal is not None:
        compare, indices = equal, list(range(len(tensors)))
        return lambda: bool(compare(tensors, addresses, indices))
    return lambda: list(map(address, tensors)) == addresses


def _with_cpu_values(state: ReachableState) -> ReachableState:
    """Return the state with the values of CPU tensors, which a graph on a GPU contains as constants."""
    values = [Content(ref.path, ref.value, _cpu_value, None) for ref in state.tensors if ref.value.device.type == "cpu"]
    return ReachableState(**{**vars(state), "contents": [*state.contents, *values]})


def _cpu_value(tensor: Any) -> Any:
    version = write_count(tensor)
    if tensor.layout is not torch.strided or tensor.untyped_storage().nbytes() > _MAX_COMPARED_CPU_BYTES:
        return version
    return version, ctypes.string_at(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())


class WriteDetector:
    """Detects which of some tensors are written to in place. A tensor made in inference mode always counts as written."""

    def __init__(self, tensors: Iterable[tuple[str, Any]]) -> None:
        self._before = [(path, tensor, write_count(tensor)) for path, tensor in tensors]

    def written(self) -> list[tuple[str, Any]]:
        """Return the tensors that were written to since this object was made."""
        return [
            (path, tensor) for path, tensor, before in self._before if before is None or write_count(tensor) != before
        ]


class ValueDetector:
    """Detects which of some tensors have other values, however they were written: by copies, or by sums if these are too large."""

    def __init__(self, tensors: Sequence[tuple[str, Any]]) -> None:
        self._tensors = list(tensors)
        size = sum(_size_in_bytes(tensor) for _, tensor in self._tensors)
        self._read = torch.clone if size <= _MAX_SAVED_BYTES else _sums
        with torch.no_grad():
            self._before = [self._read(tensor.detach()) for _, tensor in self._tensors]

    def written(self) -> list[tuple[str, Any]]:
        """Return the tensors whose values have changed since this object was made."""
        with torch.no_grad():
            pairs = zip(self._tensors, self._before, strict=True)
            return [
                (path, tensor) for (path, tensor), old in pairs if _has_other_values(self._read(tensor.detach()), old)
            ]


def _has_other_values(now: Any, before: Any) -> bool:
    """Return whether values differ. A tensor that was moved or cast has new memory, which `LayoutSnapshot` detects."""
    is_moved = now.device != before.device or now.dtype != before.dtype
    return not is_moved and not torch.equal(now, before)


def _sums(tensor: Any) -> Any:
    total = tensor.sum(dtype=torch.float64 if tensor.is_floating_point() else None)
    return torch.stack([total.double(), torch.linalg.vector_norm(tensor.float()).double()])


class TensorSnapshot:
    """Copies of some tensors' values, to be restored later."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        self.copies: dict[Any, tuple[Any, Any]] = {}
        with torch.no_grad():
            for tensor in tensors:
                if tensor not in self.copies:
                    part = without_repeats(tensor.detach())
                    self.copies[tensor] = (part, part.clone())

    def restore(self) -> None:
        """Restore the values, without raising the version counters that autograd checks."""
        for part, saved in self.copies.values():
            write_back(part, saved)

    def updated(self, other: "TensorSnapshot") -> "TensorSnapshot":
        """Return a snapshot of the tensors of both. The other's values are restored last: tensors may share memory."""
        both = TensorSnapshot(())
        both.copies = {tensor: copy for tensor, copy in self.copies.items() if tensor not in other.copies}
        both.copies |= other.copies
        return both


def without_repeats(tensor: Any) -> Any:
    """Return a view of a tensor without the dimensions that repeat the same memory (those of `expand`)."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def write_back(tensor: Any, saved: Any) -> None:
    """Copy saved values into a tensor, without raising the version counter that autograd checks."""
    # Torch allows writes to a tensor made in inference mode only in that mode.
    with torch.inference_mode(tensor.is_inference() or torch.is_inference_mode_enabled()), torch.no_grad():
        tensor.data.copy_(saved)


def tensors_to_save(state: ReachableState, written: Sequence[tuple[str, Any]]) -> list[Any]:
    """Return the tensors that a run may change: `written` and `small_tensors`.

    Kernels from outside torch do not raise version counters, so not every write is detected.
    """
    return [*(tensor for _, tensor in written), *small_tensors(state)]


def small_tensors(state: ReachableState) -> list[Any]:
    """Return the tensors that are not parameters, the smallest first, as many as can be saved without knowing what is written."""
    tensors = [
        t for t in (ref.value for ref in state.tensors) if not isinstance(t, torch.nn.Parameter) and not is_lazy(t)
    ]
    tensors.sort(key=_size_in_bytes)
    totals = accumulate(map(_size_in_bytes, tensors))
    return [tensor for tensor, total in zip(tensors, totals, strict=True) if total <= _MAX_SAVED_BYTES]


def _size_in_bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


class RngSnapshot:
    """The state of every random number generator that a run may draw from."""

    def __init__(self, device: Any, generators: Sequence[Any]) -> None:
        defaults = [torch.default_generator]
        if device.type == "cuda":
            defaults.append(torch.cuda.default_generators[device.index or 0])
        self._generators = list({id(g): g for g in (*defaults, *generators)}.values())
        self._saved = [generator.get_state() for generator in self._generators]

    def restore(self) -> None:
        """Restore the state of every generator."""
        for generator, saved in zip(self._generators, self._saved, strict=True):
            generator.set_state(saved)

    def advanced(self) -> bool:
        """Return whether any generator was drawn from since the snapshot."""
        return any(
            not torch.equal(generator.get_state(), saved)
            for generator, saved in zip(self._generators, self._saved, strict=True)
        )


class HostRngSnapshot:
    """The state of Python's and numpy's global random number generators, from which no replay draws."""

    def __init__(self) -> None:
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random if numpy is not None else None
        self._python_state = random.getstate()
        self._numpy_state = repr(self._numpy.get_state(legacy=False)) if self._numpy is not None else ""

    def drawn_from(self) -> str:
        """Return the name of the module whose generator was drawn from since the snapshot; empty when none was."""
        if random.getstate() != self._python_state:
            return "random"
        if self._numpy is not None and repr(self._numpy.get_state(legacy=False)) != self._numpy_state:
            return "numpy.random"
        return ""


@dataclass(frozen=True, kw_only=True)
class InitialState:
    """The state from which every warm-up, capture and verification run starts: tensors, random numbers, written arguments."""

    tensors: TensorSnapshot
    rng: RngSnapshot
    inputs: TensorSnapshot

    def restore(self) -> None:
        """Restore all of it."""
        self.tensors.restore()
        self.rng.restore()
        self.inputs.restore()


class LayoutSnapshot:
    """The address, shape, strides and requires_grad of every tensor that a function reaches."""

    def __init__(self, state: ReachableState) -> None:
        unique = {id(ref.value): ref for ref in state.tensors if not is_lazy(ref.value)}
        self._saved = [(ref.path, ref.value, ref.value.detach(), ref.value.requires_grad) for ref in unique.values()]

    def changed_paths(self) -> list[str]:
        """Return the paths of the tensors that were moved, resized or reshaped in place."""
        return [path for path, tensor, alias, grad in self._saved if _was_reshaped(tensor, alias, requires_grad=grad)]

    def restore(self) -> None:
        """Restore all of it."""
        for _, tensor, alias, requires_grad in self._saved:
            if _was_reshaped(tensor, alias, requires_grad=requires_grad):
                tensor.data = alias
                tensor.requires_grad_(requires_grad)


def _was_reshaped(tensor: Any, alias: Any, *, requires_grad: bool) -> bool:
    same = tensor.data_ptr() == alias.data_ptr() and tensor.shape == alias.shape and tensor.stride() == alias.stride()
    return not same or (tensor.is_leaf and tensor.requires_grad != requires_grad)


@contextmanager
def restoring(snapshot: Snapshot, layouts: LayoutSnapshot, initial: InitialState) -> Iterator[None]:
    """Restore Python values, tensors and random numbers at the end of the block, whatever runs inside."""
    try:
        yield
    finally:
        snapshot.restore()
        layouts.restore()
        initial.restore()


@contextmanager
def fresh_autocast_cache() -> Iterator[None]:
    """Autocast casts every weight again inside the block, and none of these casts is used after it.

    Autocast caches cast weights until its outermost block ends. A graph must not read a cast from before the capture, which would
    be freed or become stale. Code outside the graph must not read a cast that only a replay updates.
    """
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()
