"""Code made for one structure of arguments: it reads the tensors out of a call, or says that the call looks different.

Flattening a nested call in general costs more than replaying a small graph. Reading it by an expression of its own, such as
`kwargs['batch']['ids']`, costs a tenth of a microsecond a tensor.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rocsolid.runtime.capture.call import Call
from rocsolid.torchapi.pytree import constant_key, open_container, registered

Read = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any] | None]
_SINGLETONS = (None, True, False, ...)


def reader(call: Call, static: Sequence[str] = ()) -> Read:
    """A function that gives the tensors of any call of the same structure and constants, and None for other calls."""
    writer = _Writer()
    for argument in call.arguments:
        value = (
            call.args[int(argument.expression[5:-1])] if argument.expression[0] == "a" else call.kwargs[argument.name]
        )
        writer.visit(value, argument.expression, whole=argument.name in static)
    return writer.function(len(call.args), len(call.kwargs))


class _Writer:
    """Writes the function line by line; objects it compares with are handed to it as globals."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: dict[str, Any] = {"constant_key": constant_key}
        self._tensors: dict[int, str] = {}
        self._expressions: list[str] = []
        self._count = 0

    def visit(self, value: Any, expression: str, *, whole: bool = False) -> None:
        """Write what reads and checks one value."""
        import torch

        name = f"v{self._count}"
        self._count += 1
        if isinstance(value, torch.Tensor) and not whole:
            self._tensor(value, name, expression)
            return
        self._lines.append(f"{name} = {expression}")
        inner = None if whole else open_container(value)
        if inner is None:
            self._constant(value, name, whole=whole)
            return
        self._refuse(f"type({name}) is not {self._known(type(value))}")
        if inner.by_flattening:
            flatten = registered(type(value))[0]  # type: ignore[index]
            self._lines.append(f"{name}_, {name}c = {self._known(flatten)}({name})")
            self._refuse(f"len({name}_) != {len(inner.values)} or {name}c != {self._known(flatten(value)[1])}")
            steps = [f"{name}_[{number}]" for number in range(len(inner.values))]
        else:
            if isinstance(value, dict):
                self._refuse(f"tuple({name}) != {self._known(inner.structure)}")
            elif isinstance(value, (list, tuple)):
                self._refuse(f"len({name}) != {len(value)}")
            steps = [name + step for step in inner.steps]
        for child, step in zip(inner.values, steps, strict=True):
            self.visit(child, step)

    def _tensor(self, value: Any, name: str, expression: str) -> None:
        first = self._tensors.get(id(value))
        if first is not None:
            self._refuse(f"{expression} is not {first}")
            return
        self._tensors[id(value)] = name
        self._expressions.append(expression)
        self._lines.append(f"{name} = {expression}")

    def _constant(self, value: Any, name: str, *, whole: bool) -> None:
        import torch

        if whole or isinstance(value, torch.nn.Module) or constant_key(value) is None:
            self._refuse(f"{name} is not {self._known(value)}")
            if whole and hasattr(value, "__dict__"):
                fields = [(field, known) for field, v in vars(value).items() if (known := constant_key(v)) is not None]
                fields_now = f"[(f, k) for f, v in vars({name}).items() if (k := constant_key(v)) is not None]"
                self._refuse(f"{fields_now} != {self._known(fields)}")
        elif any(value is one for one in _SINGLETONS):
            self._refuse(f"{name} is not {value!r}")
        elif type(value) in (int, str):
            self._refuse(f"type({name}) is not {type(value).__name__} or {name} != {value!r}")
        elif type(value) is float:
            self._refuse(f"type({name}) is not float or {name}.hex() != {value.hex()!r}")
        else:
            self._refuse(f"constant_key({name}) != {self._known(constant_key(value))}")

    def _refuse(self, condition: str) -> None:
        self._lines.append(f"if {condition}: return None")

    def _known(self, value: Any) -> str:
        name = f"k{len(self._names)}"
        self._names[name] = value
        return name

    def function(self, positional: int, named: int) -> Read:
        """The function, compiled."""
        head = f"if len(args) != {positional} or len(kwargs) != {named}: return None"
        if self._expressions == [f"args[{number}]" for number in range(positional)] and not named:
            body = [head, "return args"]  # nothing but tensors, as they come
        else:
            names = "".join(f"{name}, " for name in self._tensors.values())
            body = [head, "try:", *(f"    {line}" for line in self._lines), f"    return ({names})"]
            body += ["except (LookupError, AttributeError, TypeError): return None"]
        source = "\n    ".join(["def read(args, kwargs):", *body])
        exec(source, self._names)  # noqa: S102 - written above, from types and lengths alone
        read: Read = self._names["read"]
        return read
