"""Loads single names of Python files without importing the files: only the statements that a name needs are executed.

A kernel of a large project then loads in milliseconds, without the packages that the rest of its file imports.
"""

import ast
import builtins
import contextlib
import copy
import importlib
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocsolid.torchapi.pretend.triton_driver import replace_source

_IMPORT: Final = "__rocsolid_import__"
# Projects wrap these imports in modules of their own, which look for a GPU. A plain import is executed as written.
_TRITON_NAMES: Final = {
    "triton": "triton",
    "tl": "triton.language",
    "libdevice": "triton.language.extra.libdevice",
    "tldevice": "triton.language.extra.libdevice",
}


@dataclass(frozen=True, kw_only=True)
class FoundKernel:
    """A function with `@triton.jit` in a file."""

    file: Path
    node: ast.FunctionDef

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    @property
    def line(self) -> int:
        """The line of its first decorator, as in a code object."""
        return min(decorator.lineno for decorator in self.node.decorator_list)


def find_kernels(tree: ast.Module, file: Path) -> Iterator[FoundKernel]:
    """Yield the functions with `@triton.jit` at the top level of a file, also inside `if` and `try`."""
    for node in _top_level(tree.body):
        if isinstance(node, ast.FunctionDef) and any(_is_jit(decorator) for decorator in node.decorator_list):
            yield FoundKernel(file=file, node=node)


def _is_jit(decorator: ast.expr) -> bool:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(function) in ("triton.jit", "triton.runtime.jit.jit")


def _top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody"):
            if isinstance(node, (ast.If, ast.Try, ast.With)):
                yield from _top_level(getattr(node, field, []))
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                yield from _top_level(handler.body)


class Loader:
    """The files that were loaded so far, by path."""

    def __init__(self) -> None:
        self._modules: dict[Path, LazyModule] = {}

    def module(self, file: Path) -> "LazyModule":
        """The names of a file, which are loaded when they are read."""
        file = file.resolve()
        if file not in self._modules:
            self._modules[file] = LazyModule(self, file)
        return self._modules[file]

    def find(self, name: str, importing: Path) -> Path | None:
        """The file of a module that belongs to the same project as the importing file; None if it does not."""
        parts = name.split(".")
        for folder in _import_roots(importing, parts[0]):
            for file in (folder.joinpath(*parts).with_suffix(".py"), folder.joinpath(*parts, "__init__.py")):
                if file.is_file():
                    return file
        return None


def _import_roots(importing: Path, package: str) -> Iterator[Path]:
    """The folders that contain the package of a file; packages inside it may lack `__init__.py`."""
    parents = list(importing.parents)
    outermost = max((number for number, folder in enumerate(parents) if (folder / "__init__.py").exists()), default=-1)
    roots = parents[outermost + 1 :]
    yield from roots[:1]
    yield from (root for root in roots if importing.is_relative_to(root / package))


class NotLoadedError(KeyError, ImportError):
    """A name whose statements fail. Python and Triton look it up only in passing, and expect a KeyError."""

    __str__ = ImportError.__str__


class LazyModule(dict[str, Any]):
    """The globals of a file. A missing name is loaded by executing the statements that assign it."""

    def __init__(self, loader: Loader, file: Path) -> None:
        super().__init__(__name__=_module_name(file), __file__=str(file), __builtins__=builtins)
        self[_IMPORT] = self._import
        self._loader = loader
        self._file = file
        self._statements: dict[str, list[ast.stmt]] = {}
        self._started: set[int] = set()
        self._failed: dict[int, Exception] = {}
        self._reasons: dict[str, Exception] = {}
        self._star_imports: list[ast.ImportFrom] = []
        for statement in ast.parse(file.read_text(encoding="utf-8"), str(file)).body:
            for node in ast.walk(statement):
                if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                    self._star_imports.append(node)
            for name in _assigned(statement):
                self._statements.setdefault(name, []).append(statement)

    def __missing__(self, name: str) -> Any:
        try:
            return self._load(name)
        except KeyError:
            raise
        except Exception as error:  # the project's own code
            self._reasons[name] = error
            msg = f"{type(error).__name__}: {error}"
            raise NotLoadedError(msg) from error

    def _load(self, name: str) -> Any:
        for statement in self._statements.get(name, ()):
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                self._run(_only(statement, name))  # the other names of the line may be missing
            else:
                self._execute(statement, name)
        if not dict.__contains__(self, name):
            self._load_star(name)
        if not dict.__contains__(self, name):
            raise KeyError(name)
        return dict.__getitem__(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        """As `dict.get`, and loads the name."""
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or name in self._statements

    def triton_import(self, name: str) -> str:
        """The module that `from triton.… import NAME` binds to a name; empty if the file binds it in another way or more than once."""
        statements = self._statements.get(name, [])
        statement = statements[0] if len(statements) == 1 else None
        if not isinstance(statement, ast.ImportFrom) or not (statement.module or "").startswith("triton."):
            return ""
        return next(f"{statement.module}.{a.name}" for a in statement.names if (a.asname or a.name) == name)

    def kernel(self, found: FoundKernel) -> Any:
        """Return the kernel with its decorators, without those outer ones and those defaults that cannot be evaluated."""
        error: Exception = ImportError(found.name)
        decorators = found.node.decorator_list
        plain: list[ast.expr] = [
            default if isinstance(default, ast.Constant) else ast.Constant(None) for default in found.node.args.defaults
        ]
        for number in range(len(decorators) + 1):
            try:
                if number:
                    node = copy.deepcopy(found.node)
                    node.decorator_list = node.decorator_list[number - 1 :]
                    node.args.defaults = plain
                    self._run(node)
                value = self[found.name]
            except Exception as failure:  # noqa: BLE001 - the project's own code
                error = self._reasons.get(getattr(failure, "name", None) or "", failure)
                continue
            if (function := jit_function(value)) is not None:
                if number:  # Triton evaluates the defaults again, from the source
                    self._replace_defaults(function, found.node, plain)
                return value
        raise error

    def _replace_defaults(self, function: Any, node: ast.FunctionDef, plain: Sequence[ast.expr]) -> None:
        source, text = function.src, self._file.read_text(encoding="utf-8")
        for default, replaced in zip(node.args.defaults, plain, strict=True):
            if default is not replaced:
                source = source.replace(f"= {ast.get_source_segment(text, default)}", "= None", 1)
        if source != function.src:
            replace_source(function, source)

    def _execute(self, statement: ast.stmt, name: str) -> None:
        """Execute a statement once. Of a block that fails, execute only what binds the name."""
        if id(statement) in self._started:
            if id(statement) in self._failed:
                self._execute_part(statement, name, self._failed[id(statement)])
            return
        self._started.add(id(statement))
        try:
            self._run(statement)
        except Exception as error:  # noqa: BLE001 - the project's own code
            self._failed[id(statement)] = error
            self._execute_part(statement, name, error)

    def _execute_part(self, block: ast.stmt, name: str, error: Exception) -> None:
        for statement in _top_level([block]):
            if (
                statement is not block
                and not isinstance(statement, (ast.If, ast.Try, ast.With))
                and name in _assigned(statement)
            ):
                with contextlib.suppress(Exception):
                    self._run(statement)
        if not dict.__contains__(self, name):
            raise error

    def _run(self, statement: ast.stmt) -> None:
        tree = _ReplaceImports().visit(ast.Module(body=[statement], type_ignores=[]))
        code = compile(ast.fix_missing_locations(tree), str(self._file), "exec")
        exec(code, self)  # noqa: S102 - the user's file, as an import would

    def _load_star(self, name: str) -> None:
        for node in self._star_imports:
            try:
                self[name] = self._import("." * node.level + (node.module or ""), name)
            except ImportError:
                continue
            return

    def _import(self, module: str, name: str = "") -> Any:
        """Return what `from module import name` or `import module` gives."""
        if name == "HAS_TRITON":
            return True
        file = self._relative(module) if module.startswith(".") else self._loader.find(module, self._file)
        if name in _TRITON_NAMES and module.partition(".")[0] != "triton":
            if file is not None and (written := self._loader.module(file).triton_import(name)):
                return importlib.import_module(written)
            return importlib.import_module(_TRITON_NAMES[name])
        if file is None:
            imported = importlib.import_module(module)
            return _attribute(imported, module, name) if name else imported
        lazy = self._loader.module(file)
        if not name:
            return _Namespace(lazy)
        if name in lazy:
            return lazy[name]
        submodule = file.parent / f"{name}.py"
        package = file.parent / name / "__init__.py"
        for candidate in (submodule, package):
            if file.name == "__init__.py" and candidate.is_file():
                return _Namespace(self._loader.module(candidate))
        try:
            return lazy[name]
        except KeyError:
            msg = f"cannot import name {name!r} from {file}"
            raise ImportError(msg) from None

    def _relative(self, module: str) -> Path:
        level = len(module) - len(module.lstrip("."))
        folder = self._file.parent
        for _ in range(level - 1):
            folder = folder.parent
        parts = [part for part in module.lstrip(".").split(".") if part]
        for file in (
            folder.joinpath(*parts).with_suffix(".py") if parts else folder / "__init__.py",
            folder.joinpath(*parts, "__init__.py"),
        ):
            if file.is_file():
                return file
        msg = f"no module {module} next to {self._file}"
        raise ImportError(msg)


class _Namespace(types.ModuleType):
    """A file as an object with attributes."""

    def __init__(self, lazy: LazyModule) -> None:
        super().__init__(lazy["__name__"])
        self.__dict__["_lazy"] = lazy

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self.__dict__["_lazy"][name]
        except KeyError:
            raise AttributeError(name) from None


class _ReplaceImports(ast.NodeTransformer):
    """Replaces import statements by calls of the loader."""

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        statements = []
        for alias in node.names:
            target = alias.asname or alias.name.partition(".")[0]
            module = alias.name if alias.asname else target
            statements.append(self._assignment(node, target, [module]))
        return statements

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt] | ast.stmt:
        module = "." * node.level + (node.module or "")
        names = [alias for alias in node.names if alias.name != "*"]
        if node.module == "__future__" or not names:
            return ast.copy_location(ast.Pass(), node)
        return [self._assignment(node, alias.asname or alias.name, [module, alias.name]) for alias in names]

    @staticmethod
    def _assignment(node: ast.stmt, target: str, args: list[str]) -> ast.stmt:
        call = ast.Call(
            func=ast.Name(id=_IMPORT, ctx=ast.Load()), args=[ast.Constant(value=arg) for arg in args], keywords=[]
        )
        return ast.copy_location(ast.Assign(targets=[ast.Name(id=target, ctx=ast.Store())], value=call), node)


def _only(statement: ast.Import | ast.ImportFrom, name: str) -> ast.stmt:
    """The part of an import statement that binds a name."""
    aliases = [a for a in statement.names if (a.asname or a.name.partition(".")[0]) == name]
    if isinstance(statement, ast.Import):
        return ast.copy_location(ast.Import(names=aliases), statement)
    return ast.copy_location(ast.ImportFrom(module=statement.module, names=aliases, level=statement.level), statement)


def jit_function(value: Any) -> Any:
    """The `JITFunction` inside autotuners and heuristics; None if it is no kernel."""
    from triton.runtime.jit import JITFunction

    while not isinstance(value, JITFunction):
        inner = getattr(value, "fn", None)
        if inner is None or isinstance(value, (type, types.FunctionType, types.ModuleType)):
            return None
        value = inner
    return value


def _attribute(module: Any, name: str, attribute: str) -> Any:
    try:
        return getattr(module, attribute)
    except AttributeError:
        return importlib.import_module(f"{name}.{attribute}")


def _assigned(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a top-level statement binds."""
    for node in _top_level([statement]):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0]
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.With)):
            for child in ast.walk(node):
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                    yield child.id


def _module_name(file: Path) -> str:
    parts = [file.stem] if file.stem != "__init__" else []
    folder = file.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts) or file.stem
