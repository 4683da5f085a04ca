"""Reads torch's config modules from their source, without importing torch.

Importing the compiler's config modules takes seconds and runs all start-up files of a container.
The config files consist of plain assignments. They are executed here statement by statement, with a stub instead of torch and with
given environment variables, and the variables that each statement reads are recorded. A run without variables gives the defaults of
the release; a second run with the user's variables shows which values they change.

If a statement needs the real torch, its names get the value `UNREADABLE`; nothing is guessed.
All values were compared with the imported modules on torch 2.11 and 2.13: every value that was read is right.
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

# Config modules by the short name that setting ids use, with their files.
CONFIG_FILES: Final[Mapping[str, str]] = {
    "inductor": "_inductor/config.py",
    "dynamo": "_dynamo/config.py",
    "functorch": "_functorch/config.py",
    "compiler": "compiler/config.py",
    "fx": "fx/experimental/_config.py",
}

_PLAIN_TYPES = (bool, int, float, str, list, set, tuple, dict, type(None))


class Unreadable:
    """The value of an entry that cannot be read without importing torch."""

    def __repr__(self) -> str:
        return "UNREADABLE"


UNREADABLE: Final = Unreadable()


@dataclass(frozen=True, kw_only=True)
class SourceEntry:
    """One entry of a config module, evaluated from its source under given variables."""

    value: object
    variables: tuple[str, ...] = ()  # environment variables that change the default
    forcing_variables: tuple[str, ...] = ()  # environment variables that take precedence over any assignment
    forced: bool = False  # one of the forcing variables is set
    alias: str = ""  # the entry that this one refers to, as `module.name`


@dataclass(frozen=True, kw_only=True)
class Build:
    """The version information that the config files read from torch."""

    version: str = ""
    hip: str | None = None
    cuda: str | None = None


@dataclass(frozen=True)
class _Statement:
    code: CodeType | None  # None for a class, whose statements are run one by one
    names: tuple[str, ...]
    body: tuple["_Statement", ...] = ()
    parent_class: str = ""  # for a class: the class whose entries it inherits


@dataclass(frozen=True, kw_only=True)
class _ConfigCall:
    """The arguments of a `Config(...)` call in the source."""

    default: object = UNREADABLE
    env_name_default: str | list[str] | None = None
    env_name_force: str | list[str] | None = None
    alias: str | None = None


@dataclass(frozen=True)
class ConfigSource:
    """A parsed config module that can be run under any environment."""

    statements: tuple[_Statement, ...]

    @classmethod
    def parse(cls, text: str, name: str = "config.py") -> "ConfigSource":
        """Parse a config module; raises SyntaxError when the text is not Python."""
        return cls(tuple(_statements(ast.parse(text).body, name)))

    def entries(self, variables: Mapping[str, str], build: Build) -> dict[str, SourceEntry]:
        """Run the module with these environment variables and return every entry by name."""
        return _Execution(variables, build).entries(self.statements)


def read_configs(torch_dir: Path, variables: Iterable[Mapping[str, str]], build: Build) -> list[dict[str, SourceEntry]]:
    """Evaluate all config modules once per environment; keys are setting ids such as `inductor.triton.cudagraphs`.

    A module that is missing or not valid Python is left out. Aliases are followed across modules.
    """
    sources: dict[str, ConfigSource] = {}
    for owner, file in CONFIG_FILES.items():
        try:
            text = (torch_dir / file).read_text(encoding="utf-8")
            sources[owner] = ConfigSource.parse(text, file)
        except (OSError, SyntaxError, ValueError):
            continue
    results = []
    for environment in variables:
        entries = {
            f"{owner}.{name}": entry
            for owner, source in sources.items()
            for name, entry in source.entries(environment, build).items()
        }
        results.append({name: _resolve_alias(entry, entries) for name, entry in entries.items()})
    return results


def alias_id(alias: str) -> str:
    """Convert an alias in torch to a setting id: `torch.compiler.config.x` to `compiler.x`."""
    for owner, file in CONFIG_FILES.items():
        module = "torch." + file.removesuffix(".py").replace("/", ".") + "."
        if alias.startswith(module):
            return f"{owner}.{alias.removeprefix(module)}"
    return ""


def _resolve_alias(entry: SourceEntry, entries: Mapping[str, SourceEntry]) -> SourceEntry:
    if not entry.alias:
        return entry
    target = entries.get(alias_id(entry.alias))
    return entry if target is None else replace(target, alias=entry.alias)


def _statements(body: Iterable[ast.stmt], name: str) -> Iterator[_Statement]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not any(isinstance(b, ast.Attribute) for b in node.bases):
            # A nested config. A class with a dotted base is an enum or similar, not a setting.
            parent_class = next(filter(None, map(_parent_class, node.decorator_list)), "")
            yield _Statement(None, (node.name,), tuple(_statements(node.body, name)), parent_class)
        else:
            tree = ast.Module([node], [])
            # Do not evaluate annotations: they may name torch classes that the stub does not have.
            flags = __future__.annotations.compiler_flag
            yield _Statement(compile(tree, name, "exec", flags, dont_inherit=True), _assigned_names(node))


def _parent_class(decorator: ast.expr) -> str:
    """Return the class in `@inherit_fields_from(parent)`, whose entries the decorated class inherits."""
    match decorator:
        case ast.Call(func=ast.Name(id="inherit_fields_from"), args=[ast.Name(id=parent)]):
            return parent
    return ""


def _assigned_names(node: ast.stmt) -> tuple[str, ...]:
    """Return the names that a statement assigns."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return ()
    return tuple(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


class _RecordingEnviron(dict[str, str]):
    """An environment that records which names were read."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self.names_read: dict[str, None] = {}

    def get(self, key: str, default: Any = None) -> Any:
        self.names_read[key] = None
        return super().get(key, default)

    def __getitem__(self, key: str) -> str:
        self.names_read[key] = None
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.names_read[str(key)] = None
        return super().__contains__(key)


@dataclass
class _Scope:
    """The names of a module or class body, and for each name the environment variables that its statement read."""

    values: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    nested: dict[str, "_Scope | None"] = field(
        default_factory=dict
    )  # all names in source order; a scope for a nested class


class _Execution:
    """One execution of a config module under one environment."""

    def __init__(self, variables: Mapping[str, str], build: Build) -> None:
        self.variables = _RecordingEnviron(variables)
        self.build = build
        self.scopes: dict[str, _Scope] = {}
        self.globals: dict[str, Any] = {
            "__name__": "config",
            "__builtins__": {**vars(builtins), "__import__": self._import},
        }

    def entries(self, statements: Iterable[_Statement]) -> dict[str, SourceEntry]:
        module = _Scope(values=self.globals)
        self._execute(statements, module, self.globals)
        return dict(self._entries(module, ""))

    def _execute(self, statements: Iterable[_Statement], scope: _Scope, names: dict[str, Any]) -> None:
        for statement in statements:
            if statement.code is None:
                self._execute_class(statement, scope, names)
                continue
            self.variables.names_read.clear()
            try:
                exec(statement.code, self.globals, names)  # noqa: S102 - torch's own source, run with stubs
            except Exception:  # noqa: BLE001 - any failure means that the value cannot be read without torch
                names.update(dict.fromkeys(statement.names, UNREADABLE))
            read = tuple(self.variables.names_read)
            for name in statement.names:
                scope.nested[name] = None
                scope.variables[name] = read

    def _execute_class(self, statement: _Statement, scope: _Scope, names: dict[str, Any]) -> None:
        (name,) = statement.names
        inner = _Scope()
        if parent := self.scopes.get(statement.parent_class):
            inner = _Scope(dict(parent.values), dict(parent.variables), dict(parent.nested))
        self._execute(statement.body, inner, inner.values)
        self.scopes[name] = inner
        names[name] = type(name, (), dict(inner.values))
        scope.nested[name] = inner

    def _entries(self, scope: _Scope, prefix: str) -> Iterator[tuple[str, SourceEntry]]:
        for name, inner in scope.nested.items():
            if name.startswith("__") or name not in scope.values:
                continue
            if inner is not None:
                yield from self._entries(inner, f"{prefix}{name}.")
                continue
            value = scope.values[name]
            if isinstance(value, _ConfigCall):
                yield prefix + name, self._declared(value, scope.variables[name])
            elif value is UNREADABLE or isinstance(value, _PLAIN_TYPES):
                yield prefix + name, SourceEntry(value=value, variables=scope.variables[name])

    def _declared(self, declared: _ConfigCall, read: tuple[str, ...]) -> SourceEntry:
        default_names, forcing_names = _as_tuple(declared.env_name_default), _as_tuple(declared.env_name_force)
        value = declared.default
        for name in default_names:
            if name in self.variables:
                value = _parse(self.variables[name])
                break
        set_forcing = [name for name in forcing_names if name in self.variables]
        if set_forcing:
            value = _parse(self.variables[set_forcing[0]])
        return SourceEntry(
            value=value,
            variables=(*read, *default_names),
            forcing_variables=forcing_names,
            forced=bool(set_forcing),
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


def _config(default: object = UNREADABLE, **declared: Any) -> _ConfigCall:
    supported = {k: v for k, v in declared.items() if k in {"env_name_default", "env_name_force", "alias"}}
    return _ConfigCall(default=default, **supported)


def _cores() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _as_tuple(value: str | list[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def _parse(value: str) -> bool | str:
    return {"1": True, "0": False}.get(value, value)
