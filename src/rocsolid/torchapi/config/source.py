"""Reads torch's config modules from their source, without importing torch.

Importing the compiler's configuration costs seconds and runs whatever a container has planted on the way.
The files themselves are plain assignments, so we run them statement by statement against a stand-in for torch
and an environment of our choosing, and note which variables each statement asks for. Run once with no variables
and once with the user's, the two answers say what was shipped and what the environment made of it.

What a statement cannot do here (call into the real torch, say) leaves its names `UNREADABLE`, never guessed.
Compared entry by entry with the live module on torch 2.11 and 2.13: nothing read is wrong.
"""

import __future__

import ast
import builtins
import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any, Final

# The modules by the short name that setting ids use, and the files they live in.
CONFIG_FILES: Final[Mapping[str, str]] = {
    "inductor": "_inductor/config.py",
    "dynamo": "_dynamo/config.py",
    "functorch": "_functorch/config.py",
    "compiler": "compiler/config.py",
    "fx": "fx/experimental/_config.py",
}

_PLAIN_TYPES = (bool, int, float, str, list, set, tuple, dict, type(None))


class Unreadable:
    """The value of an entry whose source needs more than this reader offers."""

    def __repr__(self) -> str:
        return "UNREADABLE"


UNREADABLE: Final = Unreadable()


@dataclass(frozen=True, kw_only=True)
class SourceEntry:
    """One entry of a config module, as its source and the given variables make it."""

    value: object
    asked: tuple[str, ...] = ()  # variables that move the default
    forcing: tuple[str, ...] = ()  # variables that beat any assignment
    forced: bool = False  # one of the forcing variables is set
    alias: str = ""  # the entry this one stands for, as `module.name`


@dataclass(frozen=True, kw_only=True)
class Build:
    """What the source may ask of torch itself."""

    version: str = ""
    hip: str | None = None
    cuda: str | None = None


@dataclass(frozen=True)
class _Statement:
    code: CodeType | None  # None for a class, whose body is run piece by piece
    names: tuple[str, ...]
    body: tuple["_Statement", ...] = ()
    inherits: str = ""


@dataclass(frozen=True, kw_only=True)
class _Declared:
    """What `Config(...)` leaves behind."""

    default: object = UNREADABLE
    env_name_default: str | list[str] | None = None
    env_name_force: str | list[str] | None = None
    alias: str | None = None


@dataclass(frozen=True)
class ConfigSource:
    """A config module, parsed and ready to be run under any environment."""

    statements: tuple[_Statement, ...]

    @classmethod
    def parse(cls, text: str, name: str = "config.py") -> "ConfigSource":
        """Parse a config module's text; raises SyntaxError when it is no Python."""
        return cls(tuple(_statements(ast.parse(text).body, name)))

    def entries(self, variables: Mapping[str, str], build: Build) -> dict[str, SourceEntry]:
        """Run the module under `variables` and return every entry by name."""
        return _Run(variables, build).entries(self.statements)


def read_configs(torch_dir: Path, variables: Iterable[Mapping[str, str]], build: Build) -> list[dict[str, SourceEntry]]:
    """Evaluate all config modules once per environment; keys read `inductor.triton.cudagraphs`.

    A module that is missing or is not Python is left out; aliases are followed across modules.
    """
    sources: dict[str, ConfigSource] = {}
    for owner, file in CONFIG_FILES.items():
        try:
            text = (torch_dir / file).read_text(encoding="utf-8")
            sources[owner] = ConfigSource.parse(text, file)
        except (OSError, SyntaxError, ValueError):
            continue
    answers = []
    for environment in variables:
        found = {
            f"{owner}.{name}": entry
            for owner, source in sources.items()
            for name, entry in source.entries(environment, build).items()
        }
        answers.append({name: _follow(entry, found) for name, entry in found.items()})
    return answers


def alias_id(alias: str) -> str:
    """The setting id for a dotted alias of torch's: `torch.compiler.config.x` is `compiler.x`."""
    for owner, file in CONFIG_FILES.items():
        module = "torch." + file.removesuffix(".py").replace("/", ".") + "."
        if alias.startswith(module):
            return f"{owner}.{alias.removeprefix(module)}"
    return ""


def _follow(entry: SourceEntry, found: Mapping[str, SourceEntry]) -> SourceEntry:
    if not entry.alias:
        return entry
    target = found.get(alias_id(entry.alias))
    return entry if target is None else replace(target, alias=entry.alias)


def _statements(body: Iterable[ast.stmt], name: str) -> Iterator[_Statement]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not any(isinstance(b, ast.Attribute) for b in node.bases):
            # A sub-config. A class with a dotted base is an enum or the like, and not a setting.
            inherits = next(filter(None, map(_inherits, node.decorator_list)), "")
            yield _Statement(None, (node.name,), tuple(_statements(node.body, name)), inherits)
        else:
            tree = ast.Module([node], [])
            # Annotations may name classes of torch that are not there: keep them as text.
            flags = __future__.annotations.compiler_flag
            yield _Statement(compile(tree, name, "exec", flags, dont_inherit=True), _stored(node))


def _inherits(decorator: ast.expr) -> str:
    """The class named by `@inherit_fields_from(parent)`, whose entries the decorated one has too."""
    match decorator:
        case ast.Call(func=ast.Name(id="inherit_fields_from"), args=[ast.Name(id=parent)]):
            return parent
    return ""


def _stored(node: ast.stmt) -> tuple[str, ...]:
    """Names the statement binds at its own level."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return ()
    return tuple(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


class _Asked(dict[str, str]):
    """An environment that remembers which names it was asked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self.names: dict[str, None] = {}

    def get(self, key: str, default: Any = None) -> Any:
        self.names[key] = None
        return super().get(key, default)

    def __getitem__(self, key: str) -> str:
        self.names[key] = None
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.names[str(key)] = None
        return super().__contains__(key)


@dataclass
class _Space:
    """The names of a module or class body, and what each of them asked the environment for."""

    values: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, tuple[str, ...]] = field(default_factory=dict)
    order: dict[str, "_Space | None"] = field(default_factory=dict)


class _Run:
    """One execution of a config module under one environment."""

    def __init__(self, variables: Mapping[str, str], build: Build) -> None:
        self.variables = _Asked(variables)
        self.build = build
        self.spaces: dict[str, _Space] = {}
        self.globals: dict[str, Any] = {
            "__name__": "config",
            "__builtins__": {**vars(builtins), "__import__": self._import},
        }

    def entries(self, statements: Iterable[_Statement]) -> dict[str, SourceEntry]:
        module = _Space(values=self.globals)
        self._execute(statements, module, self.globals)
        return dict(self._entries(module, ""))

    def _execute(self, statements: Iterable[_Statement], space: _Space, names: dict[str, Any]) -> None:
        for statement in statements:
            if statement.code is None:
                self._execute_class(statement, space, names)
                continue
            self.variables.names.clear()
            try:
                exec(statement.code, self.globals, names)  # noqa: S102 - torch's own source, under stand-ins
            except Exception:  # noqa: BLE001 - any failure means the same thing, "not readable here"
                names.update(dict.fromkeys(statement.names, UNREADABLE))
            asked = tuple(self.variables.names)
            for name in statement.names:
                space.order[name] = None
                space.asked[name] = asked

    def _execute_class(self, statement: _Statement, space: _Space, names: dict[str, Any]) -> None:
        (name,) = statement.names
        inner = _Space()
        if parent := self.spaces.get(statement.inherits):
            inner = _Space(dict(parent.values), dict(parent.asked), dict(parent.order))
        self._execute(statement.body, inner, inner.values)
        self.spaces[name] = inner
        names[name] = type(name, (), dict(inner.values))
        space.order[name] = inner

    def _entries(self, space: _Space, prefix: str) -> Iterator[tuple[str, SourceEntry]]:
        for name, inner in space.order.items():
            if name.startswith("__") or name not in space.values:
                continue
            if inner is not None:
                yield from self._entries(inner, f"{prefix}{name}.")
                continue
            value = space.values[name]
            if isinstance(value, _Declared):
                yield prefix + name, self._declared(value, space.asked[name])
            elif value is UNREADABLE or isinstance(value, _PLAIN_TYPES):
                yield prefix + name, SourceEntry(value=value, asked=space.asked[name])

    def _declared(self, declared: _Declared, asked: tuple[str, ...]) -> SourceEntry:
        moving, forcing = _names(declared.env_name_default), _names(declared.env_name_force)
        value = declared.default
        for name in moving:
            if name in self.variables:
                value = _flag(self.variables[name])
                break
        forced = [name for name in forcing if name in self.variables]
        if forced:
            value = _flag(self.variables[forced[0]])
        return SourceEntry(
            value=value,
            asked=(*asked, *moving),
            forcing=forcing,
            forced=bool(forced),
            alias=declared.alias or "",
        )

    def _import(
        self,
        name: str,
        _globals: Mapping[str, object] | None = None,
        _locals: Mapping[str, object] | None = None,
        fromlist: tuple[str, ...] | None = (),
        _level: int = 0,
    ) -> ModuleType:
        if name == "torch" or name.startswith("torch."):
            return self._torch()
        if name == "os":
            return self._os()
        if name.partition(".")[0] not in sys.stdlib_module_names:
            raise ImportError(name)
        module = importlib.import_module(name)
        return module if fromlist else importlib.import_module(name.partition(".")[0])

    def _torch(self) -> ModuleType:
        torch = ModuleType("torch")
        version = ModuleType("torch.version")
        vars(version).update(hip=self.build.hip, cuda=self.build.cuda, xpu=None, __version__=self.build.version)
        vars(torch).update(
            version=version,
            __version__=self.build.version,
            _utils=SimpleNamespace(cpu_count=_cores),
            is_fbcode=lambda: False,
            Config=_config,
            get_tristate_env=self._tristate,
            inherit_fields_from=lambda _parent: lambda child: child,
            install_config_module=lambda _module: None,
        )
        return torch

    def _os(self) -> ModuleType:
        module = ModuleType("os")
        vars(module).update(vars(os))
        vars(module).update(environ=self.variables, getenv=self.variables.get)
        return module

    def _tristate(self, name: str, default: object = None) -> object:
        value = self.variables.get(name)
        return {"1": True, "0": False}.get(value, default) if value is not None else default


def _config(default: object = UNREADABLE, **declared: Any) -> _Declared:
    known = {k: v for k, v in declared.items() if k in {"env_name_default", "env_name_force", "alias"}}
    return _Declared(default=default, **known)


def _cores() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _names(value: str | list[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def _flag(value: str) -> bool | str:
    return {"1": True, "0": False}.get(value, value)
