"""The call graph of a project: which functions compiled or captured code calls, and through which calls.

A region is code that `torch.compile` traces or that a graph capture records. It starts at a function that is compiled or captured,
and includes every function that this one calls, directly or through others.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from rocsolid.lint.deferred_files import DeferredFiles
from rocsolid.lint.facts import ClassFacts, FileFacts, FileSymbols, FunctionFacts, PassedFunction
from rocsolid.lint.regions import SCOPE_MARK, Wrapper
from rocsolid.model.source import Region

# Calls into these packages are not followed: torch.compile treats their functions as single operations or does not trace them.
_EXTERNAL_PACKAGES: Final = (
    "torch", "numpy", "logging", "warnings", "triton", "typing", "functools", "importlib", "inspect",
)  # fmt: skip
_MAX_CHAIN_LENGTH: Final = 24
_MAX_DEPTH: Final = 16  # levels of re-exports and assignments
_MAX_BASES: Final = 64


@dataclass(frozen=True)
class FunctionRef:
    """A function, by its file and its dotted name in it."""

    file: str
    name: str


@dataclass(frozen=True)
class CallPath:
    """The calls from the start of a region to a function."""

    region: Region
    chain: tuple[str, ...]

    @property
    def direct(self) -> bool:
        """Whether the function itself is compiled or captured."""
        return len(self.chain) == 1


class CallGraph:
    """The functions in compiled or captured regions.

    Names are resolved only in functions that a region calls, so the symbols of most files are never decoded.
    """

    def __init__(
        self,
        files: Mapping[str, FileFacts],
        deferred: DeferredFiles,
        starts: AbstractSet[str] | None = None,
        tests: AbstractSet[str] = frozenset(),
    ) -> None:
        """`starts` are the files in which regions may start; None: all. Regions that start in `tests` end in them."""
        self.files = dict(files)
        self.deferred = deferred
        self.starting_files = [(file, facts) for file, facts in files.items() if starts is None or file in starts]
        self.starts = {file for file, _ in self.starting_files}
        self.tests = tests
        # What is passed to other functions, by their names, with the file that passes it.
        self.passed: dict[str, list[tuple[str, PassedFunction]]] = {}
        for file, facts in self.starting_files:
            self._add_passed(file, facts)
        self.modules = {facts.module: file for file, facts in reversed(list(files.items()))}
        self.packages = {module.partition(".")[0] for module in self.modules}
        self.paths: dict[tuple[Region, FunctionRef], CallPath] = {}
        # Functions with torch.compiler.disable that compiled code calls.
        self.disabled_callees: dict[FunctionRef, CallPath] = {}

    def find_reachable_functions(self) -> None:
        """Follow the calls from the start of every region, and store the path to each function in `paths`."""
        # What a test passes to the product chooses other branches than the product does, so regions of tests are followed last,
        # and only within the tests.
        product = [file for file in self.starting_files if file[0] not in self.tests]
        tests = [file for file in self.starting_files if file[0] in self.tests]
        self._follow(self._region_starts(product), frozenset())
        self._follow(self._region_starts(tests), self.tests)

    def _follow(self, starts: Iterable[tuple[FunctionRef, CallPath]], within: AbstractSet[str]) -> None:
        """Store the paths of all functions that are reached; only of those in the files `within`, if there are any."""
        queue = deque(starts)
        while queue:
            function_ref, path = queue.popleft()
            if within and function_ref.file not in within:
                continue
            key = (path.region, function_ref)
            if key in self.paths or len(path.chain) > _MAX_CHAIN_LENGTH:
                continue
            function = self._function(function_ref)
            if function is None:
                continue
            if path.region is Region.COMPILED and function.not_traced:
                if function.dynamo_disabled:
                    self.disabled_callees.setdefault(function_ref, path)
                continue
            self.paths[key] = path
            for call in function.calls:
                runs = call.runs_when_compiled if path.region is Region.COMPILED else call.runs_when_captured
                if runs:
                    for callee in self.callees(function_ref, call.name):
                        queue.append((callee, CallPath(path.region, (*path.chain, self._label(callee)))))

    def _region_starts(self, files: Sequence[tuple[str, FileFacts]]) -> Iterator[tuple[FunctionRef, CallPath]]:
        for file, facts in files:
            for start in facts.region_starts:
                for function_ref in self._targets(file, start.scope, start.target):
                    yield function_ref, CallPath(start.region, (self._label(function_ref),))
        for file, facts in files:
            for wrapper in facts.wrappers:
                yield from self._passed_to_wrapper(file, wrapper)
            yield from self._called_in_captures(file, facts)

    def _passed_to_wrapper(self, file: str, wrapper: Wrapper) -> Iterator[tuple[FunctionRef, CallPath]]:
        """Yield the functions that are passed to a function that compiles or captures its argument.

        An argument that is itself a parameter is followed to the callers. A model counts only if it is the only class that
        the project passes there.
        """
        models: dict[FunctionRef, CallPath] = {}
        seen = {(file, wrapper.function, wrapper.position)}
        queue: deque[tuple[FunctionRef, int, tuple[str, ...]]] = deque()
        queue.append((FunctionRef(file, wrapper.function), wrapper.position, ()))
        while queue:
            receiver, position, inner_chain = queue.popleft()
            chain = (self._label(receiver), *inner_chain)
            for passing_file, argument in self._passed_to(_called_name(receiver)):
                caller = FunctionRef(passing_file, argument.scope)
                if position != self._position(receiver, argument) or receiver not in self.callees(
                    caller, argument.receiver
                ):
                    continue
                parameter = self._parameter_position(caller, argument.argument)
                if parameter is not None:
                    key = (passing_file, argument.scope, parameter)
                    if key not in seen and len(chain) < _MAX_DEPTH:
                        queue.append((caller, parameter, chain))
                    seen.add(key)
                    continue
                for function_ref in self._targets(passing_file, argument.scope, argument.argument):
                    path = CallPath(wrapper.region, (*chain, self._label(function_ref)))
                    if self._is_object(caller, argument.argument):
                        models.setdefault(function_ref, path)
                    else:
                        yield function_ref, path
        if len(models) == 1:
            yield from models.items()

    def _passed_to(self, name: str) -> list[tuple[str, PassedFunction]]:
        """Return what is passed to functions of that name, in the order of the files that pass it."""
        for file in self.deferred.that_use(name):
            self._symbols(file)
        return sorted(self.passed.get(name, ()), key=lambda passed: passed[0])

    def _add_passed(self, file: str, facts: FileFacts) -> None:
        for argument in facts.passed_functions:
            self.passed.setdefault(argument.receiver.rpartition(".")[2], []).append((file, argument))

    def _position(self, receiver: FunctionRef, argument: PassedFunction) -> int:
        """Return the position at which a function gets an argument, without `self`."""
        params = self._params(receiver)
        return params.index(argument.keyword) if argument.keyword in params else argument.position

    def _parameter_position(self, function_ref: FunctionRef, name: str) -> int | None:
        """Return the position of a parameter that the function has under this name and does not assign; else None."""
        function, params = self._function(function_ref), self._params(function_ref)
        return params.index(name) if function and name in params and name not in function.bindings else None

    def _params(self, function_ref: FunctionRef) -> tuple[str, ...]:
        function = self._function(function_ref)
        params = function.params if function else ()
        return params[1:] if params[:1] in (("self",), ("cls",)) else params

    def _is_object(self, caller: FunctionRef, argument: str) -> bool:
        return argument.endswith("()") or self._assigned_expression(caller, argument).endswith("()")

    def _called_in_captures(self, file: str, facts: FileFacts) -> Iterator[tuple[FunctionRef, CallPath]]:
        if not facts.may_capture:
            return
        for name, function in self._symbols(file).functions.items():
            for call in function.calls:
                if call.in_capture_block:
                    caller = FunctionRef(file, name)
                    for callee in self.callees(caller, call.name):
                        start = f"capture in {self._label(caller)}"
                        yield callee, CallPath(Region.CAPTURED, (start, self._label(callee)))

    def _targets(self, file: str, scope: str, target: str) -> Iterator[FunctionRef]:
        """Yield the functions that a `RegionStart.target` refers to."""
        if target.startswith(SCOPE_MARK):
            name = target.removeprefix(SCOPE_MARK)
            if name in self._symbols(file).functions:
                yield FunctionRef(file, name)
            else:
                yield from self._method(file, name, "forward", 0)
        else:
            yield from self.callees(FunctionRef(file, scope), target, calls_object=True)

    def _symbols(self, file: str) -> FileSymbols:
        """Return the symbols of a file, which is parsed now if nothing needed it before."""
        if self.files[file].deferred:
            self.files[file] = self.deferred.read(file)
            if file in self.starts:
                self._add_passed(file, self.files[file])
        return self.files[file].symbols

    def _function(self, function_ref: FunctionRef) -> FunctionFacts | None:
        return self._symbols(function_ref.file).functions.get(function_ref.name)

    def _label(self, function_ref: FunctionRef) -> str:
        function = self._function(function_ref)
        return f"{function_ref.name or function_ref.file} ({function_ref.file}:{function.line if function else 1})"

    def callees(
        self, caller: FunctionRef, name: str, *, calls_object: bool = False, depth: int = 0
    ) -> Iterator[FunctionRef]:
        """Yield the functions that may run when `caller` calls `name`.

        If `name` is a class, that is its `__init__`. With `calls_object`, an object of the class is called: its `forward`.
        """
        if depth > _MAX_DEPTH:
            return
        if name.startswith("self."):
            yield from self._called_on_self(caller, name.removeprefix("self."), depth)
            return
        if name.startswith("super()."):
            yield from self._called_on_super(caller, name.removeprefix("super()."), depth)
            return
        first, _, rest = name.partition(".")
        expression = self._assigned_expression(caller, first.removesuffix("()"))
        if expression and expression != name and not name.endswith("()"):
            yield from self._called_on_expression(caller, expression, rest, depth + 1)
            return
        calls_object = calls_object or name.endswith("()")
        yield from self._by_name(caller, name.removesuffix("()"), depth, calls_object=calls_object)

    def _by_name(self, caller: FunctionRef, name: str, depth: int, *, calls_object: bool) -> Iterator[FunctionRef]:
        """Find a function or class by name: in the enclosing functions, in the file, or imported."""
        symbols = self._symbols(caller.file)
        enclosing = caller.name
        while True:
            full_name = f"{enclosing}.{name}" if enclosing else name
            if full_name in symbols.functions and enclosing not in symbols.classes:
                yield FunctionRef(caller.file, full_name)
                return
            if full_name in symbols.classes and enclosing not in symbols.classes:
                yield from self._method(caller.file, full_name, "forward" if calls_object else "__init__", depth)
                return
            if not enclosing:
                break
            enclosing = enclosing.rpartition(".")[0]
        first, _, rest = name.partition(".")
        full_name = ".".join(filter(None, [symbols.aliases.get(first, first), rest]))
        yield from self._by_full_name(full_name, depth, calls_object=calls_object)

    def _by_full_name(self, name: str, depth: int, *, calls_object: bool = False) -> Iterator[FunctionRef]:
        """Find a function or class by its full dotted name, also through re-exports."""
        if depth > _MAX_DEPTH or name.partition(".")[0] not in self.packages:
            return
        if name.startswith(_external_prefixes(self.packages)):
            return
        parts = name.split(".")
        for module_length in range(len(parts), 0, -1):
            file = self.modules.get(".".join(parts[:module_length]))
            if file is None:
                continue
            symbols = self._symbols(file)
            name_in_file = ".".join(parts[module_length:])
            owner, _, method = name_in_file.rpartition(".")
            first, _, rest = name_in_file.partition(".")
            if name_in_file and name_in_file in symbols.functions:
                yield FunctionRef(file, name_in_file)
            elif name_in_file in symbols.classes:
                method = "forward" if calls_object else "__init__"
                yield from self._method(file, name_in_file, method, depth + 1)
            elif owner in symbols.classes:
                yield from self._method(file, owner, method, depth + 1)
            elif name_in_file and (imported := symbols.aliases.get(first, "")) and imported != name:
                re_exported = f"{imported}.{rest}" if rest else imported
                yield from self._by_full_name(re_exported, depth + 1, calls_object=calls_object)
            return

    def _called_on_self(self, caller: FunctionRef, name: str, depth: int) -> Iterator[FunctionRef]:
        """Find the functions that `self.name(...)` may run: a method, or an object stored in an attribute."""
        owner = self._enclosing_class(caller)
        if not owner:
            return
        attribute, _, rest = name.partition(".")
        if not rest and any(True for _ in self._method(caller.file, owner, attribute, depth)):
            yield from self._method(caller.file, owner, attribute, depth)
            return
        for class_file, expression in self._attribute(caller.file, owner, attribute, depth):
            yield from self._called_on_expression(FunctionRef(class_file, ""), expression, rest, depth + 1)

    def _called_on_expression(
        self, caller: FunctionRef, expression: str, method: str, depth: int
    ) -> Iterator[FunctionRef]:
        """Find the functions that may run when the object that `expression` returns is called, or its `method` if one is given."""
        if depth > _MAX_DEPTH:
            return
        if not expression.endswith("()"):  # another name for the object
            name = f"{expression}.{method}" if method else expression
            yield from self.callees(caller, name, calls_object=True, depth=depth + 1)
            return
        name = expression.removesuffix("()")
        if name.rpartition(".")[2].startswith("from_"):  # Model.from_pretrained(...)
            name = name.rpartition(".")[0]
        for class_file, cls in self._classes(caller, name, depth):
            yield from self._method(class_file, cls, method or "forward", depth)
            return

    def _classes(self, scope: FunctionRef, name: str, depth: int) -> Iterator[tuple[str, str]]:
        """Find a class by the name that a file uses for it; yields its file and its name there."""
        if depth > _MAX_DEPTH:
            return
        symbols = self._symbols(scope.file)
        if name in symbols.classes:
            yield scope.file, name
            return
        first, _, rest = name.partition(".")
        full_name = ".".join(filter(None, [symbols.aliases.get(first, first), rest]))
        if full_name.partition(".")[0] not in self.packages:
            return
        parts = full_name.split(".")
        for module_length in range(len(parts) - 1, 0, -1):
            file = self.modules.get(".".join(parts[:module_length]))
            if file is None:
                continue
            name_in_file = ".".join(parts[module_length:])
            if name_in_file in self._symbols(file).classes:
                yield file, name_in_file
            elif self._symbols(file).aliases.get(parts[module_length], "") not in ("", full_name):
                yield from self._classes(FunctionRef(file, ""), name_in_file, depth + 1)
            return

    def _method(self, file: str, cls: str, method: str, depth: int) -> Iterator[FunctionRef]:
        """Find a method of a class or of its bases. Calling an object runs its `forward`, or its `__call__` if it has none."""
        names = ("forward", "__call__") if method in ("forward", "__call__") else (method,)
        for name in names:
            for class_file, owner in self._class_and_bases(file, cls, depth):
                full_name = f"{owner}.{name}"
                if full_name in self._symbols(class_file).functions:
                    yield FunctionRef(class_file, full_name)
                    return

    def _class_and_bases(self, file: str, cls: str, depth: int) -> Iterator[tuple[str, str]]:
        """Yield a class and its bases with their files, nearest first, each once."""
        seen: set[tuple[str, str]] = set()
        queue = deque([(file, cls)])
        while queue and len(seen) < _MAX_BASES:
            class_file, name = queue.popleft()
            if (class_file, name) in seen:
                continue
            seen.add((class_file, name))
            yield class_file, name
            for base in self._class(class_file, name).bases:
                queue.extend(self._classes(FunctionRef(class_file, ""), base, depth + 1))

    def _attribute(self, file: str, cls: str, attribute: str, depth: int) -> Iterator[tuple[str, str]]:
        """Yield the expressions that an attribute is assigned from, each with the file of the class that assigns it."""
        for class_file, owner in self._class_and_bases(file, cls, depth):
            expressions = self._class(class_file, owner).attributes.get(attribute, ())
            if expressions:
                yield from ((class_file, expression) for expression in expressions if expression != f"self.{attribute}")
                return

    def _class(self, file: str, name: str) -> ClassFacts:
        return self._symbols(file).classes[name]

    def _called_on_super(self, caller: FunctionRef, method: str, depth: int) -> Iterator[FunctionRef]:
        owner = self._enclosing_class(caller)
        if owner:
            _, *bases = self._class_and_bases(caller.file, owner, depth)
            for class_file, name in bases:
                if f"{name}.{method}" in self._symbols(class_file).functions:
                    yield FunctionRef(class_file, f"{name}.{method}")
                    return

    def _enclosing_class(self, function_ref: FunctionRef) -> str:
        """Return the name of the class that a function belongs to; empty if it is not a method."""
        symbols = self._symbols(function_ref.file)
        enclosing = function_ref.name.rpartition(".")[0]
        while enclosing and enclosing not in symbols.classes:
            enclosing = enclosing.rpartition(".")[0]
        return enclosing

    def _assigned_expression(self, function_ref: FunctionRef, name: str) -> str:
        """Return the expression that a local name was assigned from, in the function or an enclosing one; empty if unknown."""
        symbols = self._symbols(function_ref.file)
        enclosing = function_ref.name
        while True:
            function = symbols.functions.get(enclosing)
            if function is not None:
                if name in function.bindings:
                    return function.bindings[name]
                if name in function.params:
                    return ""
            if not enclosing:
                return ""
            enclosing = enclosing.rpartition(".")[0]


def _called_name(function_ref: FunctionRef) -> str:
    """Return the last part of the name by which a function is called; for `__init__`, that of its class."""
    owner, _, name = function_ref.name.rpartition(".")
    return owner.rpartition(".")[2] if name == "__init__" else name


def _external_prefixes(packages: set[str]) -> tuple[str, ...]:
    """Return the prefixes of names whose calls are not followed. A project that contains such a package, except torch, is followed."""
    followed = packages - {"torch"}
    return tuple(f"{name}." for name in _EXTERNAL_PACKAGES if name not in followed)
