"""Infers the schema of a function that becomes an operator: names, types and defaults of its arguments, and its results."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from rocsolid.errors import VendorOpError

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def infer_schema(
    name: str,
    function: Callable[..., Any],
    *,
    mutates: Sequence[str] = (),
    others: Sequence[Callable[..., Any] | None] = (),
    example: tuple[Any, ...] | None = None,
) -> str:
    """The schema from the annotations of the function, its reference or its fake; otherwise from an example."""
    import torch

    parameters = _parameters(name, function, others)
    unknown = [n for n in mutates if n not in parameters]
    if unknown:
        msg = f"{name}: mutates={tuple(mutates)!r} contains {', '.join(unknown)}, which is not an argument; the arguments are {', '.join(parameters)}"
        raise VendorOpError(msg)
    reason = ""
    for annotated in (function, *others):
        if annotated is None or not _is_annotated(annotated):
            continue
        try:
            return str(torch.library.infer_schema(annotated, mutates_args=tuple(mutates)))
        except ValueError as error:  # annotated, but not with types that torch accepts
            reason = f" ({str(error).partition(': ')[2].partition(' The valid types')[0].strip()})"
        except AttributeError:  # up to torch 2.9, for the annotation `Any`
            refused = next((n for n, p in parameters.items() if p.annotation is Any), "")
            reason = f" (Parameter {refused} has unsupported type typing.Any.)" if refused else ""
    if example is None:
        msg = (
            f"{name}: the types of {', '.join(parameters)} are unknown{reason}; annotate the function, its reference "
            "or its fake, or pass schema='(Tensor x, ...) -> Tensor' or example=(...)"
        )
        raise VendorOpError(msg)
    return _from_example(name, parameters, mutates, example, others, function)


def _parameters(
    name: str, function: Callable[..., Any], others: Sequence[Callable[..., Any] | None]
) -> dict[str, inspect.Parameter]:
    """The parameters of the function; if it has *args or **kwargs, those of its reference or fake."""
    for callable_ in (function, *(o for o in others if o is not None)):
        try:
            found = inspect.signature(callable_).parameters
        except (TypeError, ValueError):
            continue  # a C function without a signature
        if not any(p.kind in _VARIADIC for p in found.values()):
            return dict(found)
    msg = f"{name}: the function has no signature; pass schema='(Tensor x, ...) -> Tensor', or a reference with a signature"
    raise VendorOpError(msg)


def _is_annotated(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    empty = inspect.Parameter.empty
    return signature.return_annotation is not empty and all(
        p.annotation is not empty and p.kind not in _VARIADIC for p in signature.parameters.values()
    )


def _from_example(
    name: str,
    parameters: dict[str, inspect.Parameter],
    mutates: Sequence[str],
    example: tuple[Any, ...],
    others: Sequence[Callable[..., Any] | None],
    function: Callable[..., Any],
) -> str:
    import torch

    parts = []
    for index, (key, parameter) in enumerate(parameters.items()):
        value = example[index] if index < len(example) else parameter.default
        if value is inspect.Parameter.empty:
            msg = f"{name}: the example has {len(example)} value{'' if len(example) == 1 else 's'}, but the function takes {len(parameters)}: {', '.join(parameters)}"
            raise VendorOpError(msg)
        mutation = "(a!)".replace("a", chr(97 + list(mutates).index(key))) if key in mutates else ""
        parts.append(f"{_type(name, key, value, mutation)} {key}{_default(parameter.default)}")
    function_to_run = next((o for o in others if o is not None), function)
    with torch.no_grad():
        result = function_to_run(*(v.clone() if isinstance(v, torch.Tensor) else v for v in example))
    if result is None:
        returns = "()"
    elif isinstance(result, torch.Tensor):
        returns = "Tensor"
    elif isinstance(result, (tuple, list)) and all(isinstance(r, torch.Tensor) for r in result):
        returns = "(" + ", ".join("Tensor" for _ in result) + ")"
    else:
        msg = f"{name}: the function returns {type(result).__name__}; an operator must return tensors or None"
        raise VendorOpError(msg)
    return f"({', '.join(parts)}) -> {returns}"


def _type(name: str, key: str, value: object, mutation: str) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        return f"Tensor{mutation}"
    for kind, type_name in ((bool, "bool"), (int, "SymInt"), (float, "float"), (str, "str")):
        if isinstance(value, kind):
            return type_name
    if value is None:
        return "Tensor?"
    if isinstance(value, (list, tuple)) and value:
        inner = _type(name, key, value[0], mutation)
        return f"{inner}[]"
    msg = f"{name}: an operator cannot take {key} of type {type(value).__name__}; wrap the function so that it takes tensors and numbers"
    raise VendorOpError(msg)


def _default(default: object) -> str:
    if default is inspect.Parameter.empty:
        return ""
    return f'="{default}"' if isinstance(default, str) else f"={default}"
