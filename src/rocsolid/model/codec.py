"""Convert the project's dataclasses to JSON and back.

Every document has a `schema` field, such as `rocsolid/probe/1`. Reading any other document raises InputError; its
message names the file and the problem.
"""

import json
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum, IntEnum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from rocsolid.errors import InputError
from rocsolid.model.redact import redact_all

T = TypeVar("T")
_MAX_DEPTH = 100  # our own documents have about ten levels
_MAX_INTEGER = 2**63  # what other programs can hold


def encode(value: object) -> Any:
    """Return plain JSON data for any dataclass of the project; a value that JSON cannot hold becomes its `str`."""
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, type):
        return value.__name__
    if is_dataclass(value):
        return {f.name: encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((encode(v) for v in value), key=str)
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    return str(value)


def decode(cls: type[T], data: Any, where: str = "document") -> T:
    """Return the object that `encode` turned into `data`.

    A value of the wrong type raises InputError with its path, which starts with `where`.
    """
    decoded = _decode(cls, data, where)
    return typing.cast("T", decoded)


def dumps(schema: str, **parts: object) -> str:
    """Return a JSON document whose first field is the schema. Secrets in its strings are hidden."""
    return json.dumps({"schema": schema, **redact_all(encode(parts))}, indent=2) + "\n"


def read_text(file: str | Path, *, max_bytes: int = 256 << 20) -> str:
    """Return the text of a file of unknown origin; raises InputError with the reason when it cannot be read or is too large."""
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(max_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        msg = f"cannot read {file}: {getattr(error, 'strerror', None) or error}"
        raise InputError(msg) from error
    if len(data) > max_bytes:
        msg = f"cannot read {file}: it has more than {max_bytes >> 20} MB"
        raise InputError(msg)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        msg = f"cannot read {file}: not a text file"
        raise InputError(msg) from error


def parse_json(text: str | bytes, name: str) -> Any:
    """Parse JSON of unknown origin; raises InputError with the place. `name` is the file's name in that error."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError, TypeError) as broken:  # RecursionError: very deeply nested brackets
        msg = f"{name} is not JSON: {broken}"
        raise InputError(msg) from broken
    if _depth(data) > _MAX_DEPTH:
        msg = f"{name} is nested more than {_MAX_DEPTH} levels deep"
        raise InputError(msg)
    return data


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Parse TOML of unknown origin; raises InputError with the place. `name` is the file's name in that error."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError, OverflowError) as broken:  # also an integer with thousands of digits
        msg = f"{name} is not valid TOML: {broken}"
        raise InputError(msg) from broken
    if _depth(data) > _MAX_DEPTH:
        msg = f"{name} is nested more than {_MAX_DEPTH} levels deep"
        raise InputError(msg)
    return data


def _depth(data: Any) -> int:
    level, depth = [data], 0
    while level and depth <= _MAX_DEPTH:
        depth += 1
        level = [
            child
            for item in level
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
    return depth


def loads(text: str, name: str) -> dict[str, Any]:
    """Parse a JSON document that rocsolid wrote; raises InputError. `name` is the file's name in that error."""
    data = parse_json(text, name)
    if not isinstance(data, dict) or not str(data.get("schema", "")).startswith("rocsolid/"):
        msg = f"{name} was not written by rocsolid: it is JSON without a schema 'rocsolid/...'"
        raise InputError(msg)
    return data


@cache
def _field_types(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _decode(cls: Any, data: Any, where: str) -> Any:
    origin, args = typing.get_origin(cls), typing.get_args(cls)
    if cls is object or cls is Any:
        return data
    if origin in (types.UnionType, typing.Union):
        return _decode_union(args, data, where)
    if origin is tuple:
        return tuple(_decode(args[0], item, f"{where}[{i}]") for i, item in enumerate(_require_list(data, where)))
    if origin is frozenset:
        return frozenset(_decode(args[0], item, where) for item in _require_list(data, where))
    if origin is not None and issubclass(origin, Mapping):
        return {k: _decode(args[1], v, f"{where}.{k}") for k, v in _require_dict(data, where).items()}
    if is_dataclass(cls):
        return _decode_dataclass(cls, data, where)
    if isinstance(cls, type) and issubclass(cls, Enum):
        return _decode_enum(cls, data, where)
    return _decode_plain(cls, data, where)


def _decode_plain(cls: Any, data: Any, where: str) -> Any:
    if isinstance(data, int) and abs(data) >= _MAX_INTEGER:
        msg = f"{where}: expected a number of at most 64 bits, found one of {data.bit_length()} bits"
        raise InputError(msg)
    if cls is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if type(data) is not cls:
        raise InputError(_mismatch(where, data, cls.__name__))
    return data


def _decode_union(args: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in args:
        return None
    members = [a for a in args if a is not type(None)]
    for cls in members:
        if not isinstance(cls, type) or is_dataclass(cls) or len(members) == 1:
            return _decode(cls, data, where)
        if type(data) is cls:
            return _decode(cls, data, where)
    raise InputError(_mismatch(where, data, " or ".join(getattr(a, "__name__", str(a)) for a in args)))


def _decode_dataclass(cls: Any, data: Any, where: str) -> Any:
    values_in_file, field_types = _require_dict(data, where), _field_types(cls)
    known = {f.name for f in fields(cls) if f.init}
    # A newer rocsolid may have added fields: unknown ones are ignored.
    values = {k: _decode(field_types[k], v, f"{where}.{k}") for k, v in values_in_file.items() if k in known}
    required = [f.name for f in fields(cls) if f.init and f.default is MISSING and f.default_factory is MISSING]
    if missing := [name for name in required if name not in values]:
        msg = f"{where}: missing {'field' if len(missing) == 1 else 'fields'} {', '.join(missing)}"
        raise InputError(msg)
    return cls(**values)


def _decode_enum(cls: type[Enum], data: Any, where: str) -> Enum:
    try:
        return cls[str(data).upper()] if issubclass(cls, IntEnum) else cls(data)
    except (KeyError, ValueError) as unknown:
        known = ", ".join(str(encode(member)) for member in cls)
        raise InputError(_mismatch(where, data, f"one of {known}")) from unknown


def _require_list(data: Any, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise InputError(_mismatch(where, data, "a list"))
    return data


def _require_dict(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InputError(_mismatch(where, data, "an object"))
    return data


def _mismatch(where: str, data: Any, expected: str) -> str:
    try:
        found = json.dumps(data, default=str)
    except (ValueError, RecursionError):  # a number of thousands of digits, or very deep
        found = type(data).__name__
    return f"{where}: expected {expected}, found {found[:60]}"
