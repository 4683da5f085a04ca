"""The replay fast path: from a call to its graph with as little Python as possible.

Flattening a nested call costs more than replaying a small graph. So for each form of a call (the same arguments, passed the same
way) we generate code that reads the tensors, such as `kwargs['batch']['ids']`, which takes a tenth of a microsecond per tensor.
Torch's C++ guards then compare shapes, strides, dtypes and torch state.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from rocsolid.model.bucket import Bucket
from rocsolid.runtime.capture.call import Call, CallTensors
from rocsolid.runtime.capture.entry import Entry
from rocsolid.torchapi.graphs.replay_checks import function_modes, state_check, tensor_check
from rocsolid.torchapi.pytree import ContainerSpec, constant_key, is_cache, is_part, open_container, registered

NO_LENGTHS: Final[Mapping[int, int]] = {}
_MAX_LITERAL: Final = 2**63  # Python refuses to print integers with thousands of digits
_SINGLETONS: Final = (None, True, False, ...)

Read = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any] | None]


class FastPath:
    """Maps calls of the same form to their entry; with buckets, to the entry for their lengths."""

    def __init__(
        self, call: Call, entry: Entry, static: Sequence[str], buckets: Mapping[str, Sequence[Bucket]]
    ) -> None:
        tensors = [leaf.value for leaf in call.tensors]
        free_dims: dict[int, set[int]] = {}
        for dim in call.bucketed:
            free_dims.setdefault(dim.tensor, set()).add(dim.dim)
        self.read = make_reader(call, static)
        self.matches = tensor_check(tensors, free_dims)
        self.same_torch_state = state_check()
        self.function_modes = function_modes()
        self.mode_count = len(self.function_modes)
        self.inference_mode = torch.is_inference_mode_enabled()
        self.entry: Entry | None = None if call.bucketed else entry
        # A caller that has them from `inputs()` may pass the static inputs themselves, which then need no copy; not with buckets.
        self.static_inputs: Sequence[Any] | None = None
        self.lend_inputs()
        self._dims: list[tuple[int, int, Bucket]] = []
        self._entries: dict[tuple[Any, ...], Entry] = {}
        if call.bucketed:
            used_buckets = [bucket for leaf in call.tensors for bucket in buckets.get(leaf.path, ())]
            self._dims = [(x.tensor, x.dim, bucket) for x, bucket in zip(call.bucketed, used_buckets, strict=True)]
            self.add(call, entry)

    def lend_inputs(self) -> None:
        """From now on, calls may pass the static inputs of the entry, if `inputs()` has returned them."""
        if self.entry is not None and self.entry.stats.buffers_lent:
            self.static_inputs = self.entry.static_inputs

    def add(self, call: Call, entry: Entry) -> None:
        """Use this entry for calls with these bucket sizes."""
        self._entries[_size_key([dim.size for dim in call.bucketed], [dim.length for dim in call.bucketed])] = entry

    def uses(self, entry: Entry) -> bool:
        """Return whether this fast path may lead to the entry."""
        return self.entry is entry or (self.entry is None and entry in self._entries.values())

    def remove(self, entry: Entry) -> bool:
        """Stop using this entry. Returns whether any entry is left."""
        if self.entry is not None:
            return self.entry is not entry
        self._entries = {sizes: other for sizes, other in self._entries.items() if other is not entry}
        return bool(self._entries)

    def find_by_length(self, tensors: Sequence[Any]) -> tuple[Entry | None, Mapping[int, int]]:
        """Return the entry for tensors that match, and their bucketed lengths.

        Dimensions of equal length form a group, numbered in order of first occurrence; the lengths are by group number.
        """
        lengths = [tensors[index].shape[dim] for index, dim, _ in self._dims]
        sizes = [bucket.fit(length) for length, (_, _, bucket) in zip(lengths, self._dims, strict=True)]
        if None in sizes:
            return None, NO_LENGTHS
        entry = self._entries.get(_size_key(sizes, lengths))
        if entry is None:
            return None, NO_LENGTHS
        groups: dict[int, int] = {}
        for length in lengths:
            groups.setdefault(length, len(groups))
        return entry, {group: length for length, group in groups.items()}


def _size_key(sizes: Sequence[int | None], lengths: Sequence[int]) -> tuple[Any, ...]:
    """Return a key that consists of the bucket sizes and, for each dimension, the first dimension that has the same length."""
    return (*sizes, *(lengths.index(length) for length in lengths))


def make_reader(call: Call, static: Sequence[str] = ()) -> Read:
    """Return a function that reads the tensors of a call with the same structure and constants, and returns None for others."""
    tensors = [leaf.value for leaf in call.tensors]
    # The call may have changed the caches among its arguments since its key was made.
    args, kwargs = call.rebuild(tensors) if call.parts else (call.args, call.kwargs)
    generator = _ReaderGenerator(tensors)
    for argument in call.arguments:
        value = argument.value(args, kwargs)
        generator.visit(value, argument.expression, by_identity=argument.name in static)
    return generator.function(len(call.args), len(call.kwargs), call.parts[call.own_parts :])


class _ReaderGenerator:
    """Generates the source of the reader line by line. Objects to compare with become globals of the function."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._inputs = set(map(id, inputs))
        self._lines: list[str] = []
        self._globals: dict[str, Any] = {
            "constant_key": constant_key,
            "CallTensors": CallTensors,
            "Tensor": torch.Tensor,
        }
        self._parts: list[str] = []  # variable names of the parts of caches
        self._tensors: dict[int, str] = {}  # variable names by id()
        self._expressions: list[str] = []  # one per tensor
        self._variables = 0  # how many variables the generated code has so far

    def visit(self, value: Any, expression: str, *, by_identity: bool = False, in_cache: bool = False) -> None:
        """Add the lines that read and check one value. With `by_identity` the object is compared, not what it contains."""
        name = f"v{self._variables}"
        self._variables += 1
        spec = None if by_identity else open_container(value)
        if isinstance(value, torch.Tensor) and id(value) in self._inputs and not by_identity:
            self._tensor(value, name, expression)
            return
        self._lines.append(f"{name} = {expression}")
        if not by_identity and is_cache(value):
            self._cache(value, name)
        elif spec is not None:
            self._container(value, spec, name, in_cache=in_cache)
        elif isinstance(value, torch.Tensor) and not by_identity:
            self._host_number(value, name)
        else:
            self._constant(value, name, by_identity=by_identity)

    def _container(self, value: Any, spec: ContainerSpec, name: str, *, in_cache: bool) -> None:
        self._reject_if(f"type({name}) is not {self._global(type(value))}")
        if in_cache and is_part(value):
            self._parts.append(name)
        if spec.by_flattening:
            flatten = registered(type(value))[0]  # type: ignore[index]
            self._lines.append(f"{name}_, {name}c = {self._global(flatten)}({name})")
            context = flatten(value)[1]
            try:
                hash(context)
                self._reject_if(f"len({name}_) != {len(spec.values)} or {name}c != {self._global(context)}")
            except TypeError:  # it may be changed in place
                self._reject_if(f"len({name}_) != {len(spec.values)} or repr({name}c) != {repr(context)!r}")
            children = [f"{name}_[{index}]" for index in range(len(spec.values))]
        else:
            if isinstance(value, dict):
                self._reject_if(f"tuple({name}) != {self._global(spec.structure)}")
            elif isinstance(value, (list, tuple)):
                self._reject_if(f"len({name}) != {len(value)}")
            children = [name + step for step in spec.steps]
            if isinstance(value, dict):
                children = [f"{name}[{self._global(key)}]" for key in value]
            elif dataclasses.is_dataclass(value) and hasattr(value, "__dict__"):
                self._reject_if(f"len({name}.__dict__) != {len(vars(value))}")
        for child_value, child in zip(spec.values, children, strict=True):
            self.visit(child_value, child, in_cache=in_cache)

    def _cache(self, value: Any, name: str) -> None:
        self._parts.append(name)
        self._reject_if(f"type({name}) is not {self._global(type(value))}")
        self._lines.append(f"{name}d = {name}.__dict__")
        self._reject_if(f"tuple({name}d) != {self._global(tuple(vars(value)))}")
        for attribute, child in vars(value).items():
            self.visit(child, f"{name}d[{attribute!r}]", in_cache=True)

    def _host_number(self, value: Any, name: str) -> None:
        self._reject_if(f"type({name}) is not Tensor or {name}.dim() or {name}.device.type != 'cpu'")
        number = self._global(constant_key(value.item()))
        self._reject_if(f"{name}.dtype is not {self._global(value.dtype)} or constant_key({name}.item()) != {number}")

    def _tensor(self, value: Any, name: str, expression: str) -> None:
        first = self._tensors.get(id(value))
        if first is not None:
            self._reject_if(f"{expression} is not {first}")
            return
        self._tensors[id(value)] = name
        self._expressions.append(expression)
        self._lines.append(f"{name} = {expression}")

    def _constant(self, value: Any, name: str, *, by_identity: bool) -> None:
        if by_identity or isinstance(value, torch.nn.Module) or constant_key(value) is None:
            self._reject_if(f"{name} is not {self._global(value)}")
            if by_identity and hasattr(value, "__dict__"):
                fields = [(field, key) for field, v in vars(value).items() if (key := constant_key(v)) is not None]
                fields_now = f"[(f, k) for f, v in vars({name}).items() if (k := constant_key(v)) is not None]"
                self._reject_if(f"{fields_now} != {self._global(fields)}")
        elif any(value is singleton for singleton in _SINGLETONS):
            self._reject_if(f"{name} is not {value!r}")
        elif type(value) is str or (type(value) is int and abs(value) < _MAX_LITERAL):
            self._reject_if(f"type({name}) is not {type(value).__name__} or {name} != {value!r}")
        elif type(value) is float:
            self._reject_if(f"type({name}) is not float or {name}.hex() != {value.hex()!r}")
        else:
            self._reject_if(f"constant_key({name}) != {self._global(constant_key(value))}")

    def _reject_if(self, condition: str) -> None:
        self._lines.append(f"if {condition}: return None")

    def _global(self, value: Any) -> str:
        name = f"k{len(self._globals)}"
        self._globals[name] = value
        return name

    def function(self, positional: int, keywords: int, static_parts: tuple[Any, ...]) -> Read:
        """Compile the lines and return the function. `static_parts` are those of the caches of `static=`."""
        length_check = f"if len(args) != {positional} or len(kwargs) != {keywords}: return None"
        if self._expressions == [f"args[{position}]" for position in range(positional)] and not keywords:
            body = [length_check, "return args"]  # only tensors, in order
        else:
            result = f"({''.join(f'{name}, ' for name in self._tensors.values())})"
            if self._parts or static_parts:
                own = f"({''.join(f'{name}, ' for name in self._parts)})"
                self._lines.append(f"parts = {own} + {self._global(static_parts)}")
                self._reject_if(f"len(set(map(id, parts))) != {len(self._parts) + len(static_parts)}")
                result = f"CallTensors.of({result}, parts)"
            body = [length_check, "try:", *(f"    {line}" for line in self._lines), f"    return {result}"]
            body += ["except (LookupError, AttributeError, TypeError): return None"]
        source = "\n    ".join(["def read(args, kwargs):", *body])
        exec(source, self._globals)  # noqa: S102 - generated above from types, lengths and reprs of constants
        read: Read = self._globals["read"]
        return read
