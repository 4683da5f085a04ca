"""Finds the schema of a function that is to become an operator: names, types and defaults of what it takes, and what it returns."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from rocsolid.errors import VendorOpError

_KINDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def schema_of(
    name: str,
    function: Callable[..., Any],
    *,
    mutates: Sequence[str] = (),
    others: Sequence[Callable[..., Any] | None] = (),
    example: tuple[Any, ...] | None = None,
) -> str:
    """The schema from annotations, of the function or of those that go with it; otherwise from an example."""
    import torch

    known = _parameters(name, function, others)
    unknown = [n for n in mutates if n not in known]
    if unknown:
        msg = f"{name}: mutates names {', '.join(unknown)}, and the function takes {', '.join(known)}"
        raise VendorOpError(msg)
    said = ""
    for annotated in (function, *others):
        if annotated is None or not _is_annotated(annotated):
            continue
        try:
            return str(torch.library.infer_schema(annotated, mutates_args=tuple(mutates)))
        except ValueError as refused:  # annotated, but not with what torch can use
            said = f" ({str(refused).partition(': ')[2].partition(' The valid types')[0].strip()})"
    if example is None:
        msg = (
            f"{name}: the types of {', '.join(known)} are not known{said}; annotate the function, its reference or its fake, "
            "or give schema='(Tensor x, …) -> Tensor', or an example"
        )
        raise VendorOpError(msg)
    return _from_example(name, known, mutates, example, others, function)


def _parameters(
    name: str, function: Callable[..., Any], others: Sequence[Callable[..., Any] | None]
) -> dict[str, inspect.Parameter]:
    """What the function takes; where it hides that behind *args, what one of the others takes."""
    for candidate in (function, *(o for o in others if o is not None)):
        try:
            found = inspect.signature(candidate).parameters
        except (TypeError, ValueError):
            continue  # a function in C that does not tell
        if not any(p.kind in _KINDS for p in found.values()):
            return dict(found)
    msg = f"{name}: the function does not tell what it takes; give schema='(Tensor x, …) -> Tensor', or a reference that does"
    raise VendorOpError(msg)


def _is_annotated(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    empty = inspect.Parameter.empty
    return signature.return_annotation is not empty and all(
        p.annotation is not empty and p.kind not in _KINDS for p in signature.parameters.values()
    )


def _from_example(
    name: str,
    known: dict[str, inspect.Parameter],
    mutates: Sequence[str],
    example: tuple[Any, ...],
    others: Sequence[Callable[..., Any] | None],
    function: Callable[..., Any],
) -> str:
    import torch

    parts = []
    for number, (key, parameter) in enumerate(known.items()):
        value = example[number] if number < len(example) else parameter.default
        if value is inspect.Parameter.empty:
            msg = f"{name}: the example has {len(example)} values, and the function takes {len(known)}: {', '.join(known)}"
            raise VendorOpError(msg)
        mark = "(a!)".replace("a", chr(97 + list(mutates).index(key))) if key in mutates else ""
        parts.append(f"{_type(name, key, value, mark)} {key}{_default(parameter.default)}")
    run = next((o for o in others if o is not None), function)
    with torch.no_grad():
        made = run(*(v.clone() if isinstance(v, torch.Tensor) else v for v in example))
    if made is None:
        returns = "()"
    elif isinstance(made, torch.Tensor):
        returns = "Tensor"
    elif isinstance(made, (tuple, list)) and all(isinstance(m, torch.Tensor) for m in made):
        returns = "(" + ", ".join("Tensor" for _ in made) + ")"
    else:
        msg = f"{name}: the function returns {type(made).__name__}; an operator returns tensors, or nothing"
        raise VendorOpError(msg)
    return f"({', '.join(parts)}) -> {returns}"


def _type(name: str, key: str, value: object, mark: str) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        return f"Tensor{mark}"
    for kind, word in ((bool, "bool"), (int, "SymInt"), (float, "float"), (str, "str")):
        if isinstance(value, kind):
            return word
    if value is None:
        return "Tensor?"
    if isinstance(value, (list, tuple)) and value:
        inner = _type(name, key, value[0], mark)
        return f"{inner}[]"
    msg = f"{name}: {key} is {type(value).__name__}, which an operator cannot take; wrap the function so that it takes plain values"
    raise VendorOpError(msg)


def _default(default: object) -> str:
    if default is inspect.Parameter.empty:
        return ""
    return f'="{default}"' if isinstance(default, str) else f"={default}"
