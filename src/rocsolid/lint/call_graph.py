"""The call graph of a project: which functions compiled or captured code calls, and through which calls."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rocsolid.lint.facts import ClassFacts, FileBody, FileFacts, FunctionFacts
from rocsolid.model.source import Region

# Packages that torch.compile treats as single operations or does not trace; the walk does not enter them.
_NOT_ENTERED: Final = ("torch", "numpy", "logging", "warnings", "triton", "typing", "functools", "importlib", "inspect")
_LONGEST_CHAIN: Final = 24
_DEEPEST: Final = 16  # levels of inheritance or re-exports


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
    """The functions that regions reach. Names are resolved only when the walk gets to them, so most of a project is never read."""

    def __init__(self, files: Mapping[str, FileFacts]) -> None:
        self.files = files
        self.modules = {facts.module: file for file, facts in reversed(list(files.items()))}
        self.packages = {module.partition(".")[0] for module in self.modules}
        self.paths: dict[tuple[Region, FunctionRef], CallPath] = {}
        self.disabled_callees: dict[
            FunctionRef, CallPath
        ] = {}  # torch.compiler.disable'd functions that compiled code calls

    def follow_regions(self) -> None:
        """Walk from every entry point through all calls."""
        queue = deque(self._entry_points())
        while queue:
            function_ref, path = queue.popleft()
            key = (path.region, function_ref)
            if key in self.paths or len(path.chain) > _LONGEST_CHAIN:
                continue
            function = self._function(function_ref)
            if function is None:
                continue
            if path.region is Region.COMPILED and function.opaque:
                if function.disabled:
                    self.disabled_callees.setdefault(function_ref, path)
                continue
            self.paths[key] = path
            for call in function.calls:
                passes = call.compiled if path.region is Region.COMPILED else call.captured
                if passes:
                    for callee in self.callees(function_ref, call.name):
                        queue.append((callee, CallPath(path.region, (*path.chain, self._label(callee)))))

    def _entry_points(self) -> Iterator[tuple[FunctionRef, CallPath]]:
        wrapping: dict[str, list[tuple[FunctionRef, Region, int]]] = {}
        for file, facts in self.files.items():
            for root in facts.roots:
                for function_ref in self._targets(file, root.scope, root.target):
                    yield function_ref, CallPath(root.region, (self._label(function_ref),))
            for wrapper in facts.wrappers:
                last = wrapper.function.rpartition(".")[2]
                function_ref = FunctionRef(file, wrapper.function)
                wrapping.setdefault(last, []).append((function_ref, wrapper.region, wrapper.position))
        for file, facts in self.files.items():
            yield from self._wrapped(file, facts, wrapping)
            yield from self._called_in_captures(file, facts)

    def _wrapped(
        self, file: str, facts: FileFacts, wrapping: Mapping[str, list[tuple[FunctionRef, Region, int]]]
    ) -> Iterator[tuple[FunctionRef, CallPath]]:
        """Functions passed to a function that compiles or captures its argument."""
        for passed in facts.passed:
            for wrapper, region, position in wrapping.get(passed.to.rpartition(".")[2], ()):
                if position != passed.position or wrapper not in self.callees(
                    FunctionRef(file, passed.scope), passed.to
                ):
                    continue
                for function_ref in self._targets(file, passed.scope, passed.what):
                    yield function_ref, CallPath(region, (self._label(wrapper), self._label(function_ref)))

    def _called_in_captures(self, file: str, facts: FileFacts) -> Iterator[tuple[FunctionRef, CallPath]]:
        if not facts.captures:
            return
        for name, function in facts.body.functions.items():
            for call in function.calls:
                if call.in_capture:
                    for callee in self.callees(FunctionRef(file, name), call.name):
                        start = f"capture in {self._label(FunctionRef(file, name))}"
                        yield callee, CallPath(Region.CAPTURED, (start, self._label(callee)))

    def _targets(self, file: str, scope: str, target: str) -> Iterator[FunctionRef]:
        if target.startswith("="):
            name = target[1:]
            if name in self.files[file].body.functions:
                yield FunctionRef(file, name)
            else:
                yield from self._method(file, name, "forward", 0)
        else:
            yield from self.callees(FunctionRef(file, scope), target, instance=True)

    def _function(self, function_ref: FunctionRef) -> FunctionFacts | None:
        return self.files[function_ref.file].body.functions.get(function_ref.name)

    def _label(self, function_ref: FunctionRef) -> str:
        function = self._function(function_ref)
        return f"{function_ref.name or function_ref.file} ({function_ref.file}:{function.line if function else 1})"

    def callees(self, at: FunctionRef, name: str, *, instance: bool = False, depth: int = 0) -> Iterator[FunctionRef]:
        """The functions that a call of `name` inside `at` may run; with `instance`, the name is an object that is called."""
        if depth > _DEEPEST:
            return
        if name.startswith("self."):
            yield from self._through_self(at, name[5:], depth)
            return
        if name.startswith("super()."):
            yield from self._through_super(at, name[8:], depth)
            return
        first, _, rest = name.partition(".")
        origin = self._origin_of(at, first.removesuffix("()"))
        if origin and origin != name and not name.endswith("()"):
            yield from self._from_origin(at, origin, rest, depth + 1)
            return
        yield from self._by_name(at, name.removesuffix("()"), depth, origin=name.endswith("()") or instance)

    def _by_name(self, at: FunctionRef, name: str, depth: int, *, origin: bool) -> Iterator[FunctionRef]:
        """A function or class by name: in the enclosing functions, in the file, or imported."""
        body = self.files[at.file].body
        around = at.name
        while True:
            full = f"{around}.{name}" if around else name
            if full in body.functions and around not in body.classes:
                yield FunctionRef(at.file, full)
                return
            if full in body.classes and around not in body.classes:
                yield from self._method(at.file, full, "forward" if origin else "__init__", depth)
                return
            if not around:
                break
            around = around.rpartition(".")[0]
        first, _, rest = name.partition(".")
        yield from self._absolute(".".join(filter(None, [body.aliases.get(first, first), rest])), depth, origin=origin)

    def _absolute(self, name: str, depth: int, *, origin: bool = False) -> Iterator[FunctionRef]:
        """A function or class by its full dotted name, through re-exports."""
        if depth > _DEEPEST or name.partition(".")[0] not in self.packages or name.startswith(_skipped(self.packages)):
            return
        parts = name.split(".")
        for cut in range(len(parts), 0, -1):
            file = self.modules.get(".".join(parts[:cut]))
            if file is None:
                continue
            rest = ".".join(parts[cut:])
            body = self.files[file].body
            if rest in body.functions and rest:
                yield FunctionRef(file, rest)
            elif rest in body.classes:
                yield from self._method(file, rest, "forward" if origin else "__init__", depth + 1)
            elif rest.rpartition(".")[0] in body.classes:
                yield from self._method(file, rest.rpartition(".")[0], rest.rpartition(".")[2], depth + 1)
            elif rest and (meant := body.aliases.get(rest.partition(".")[0], "")) and meant != name:
                tail = rest.partition(".")[2]
                yield from self._absolute(f"{meant}.{tail}" if tail else meant, depth + 1, origin=origin)
            return

    def _through_self(self, at: FunctionRef, name: str, depth: int) -> Iterator[FunctionRef]:
        owner = self._owner(at)
        if not owner:
            return
        attribute, _, rest = name.partition(".")
        if not rest and any(True for _ in self._method(at.file, owner, attribute, depth)):
            yield from self._method(at.file, owner, attribute, depth)
            return
        for file, origin in self._attribute(at.file, owner, attribute, depth):
            yield from self._from_origin(FunctionRef(file, ""), origin, rest, depth + 1)

    def _from_origin(self, at: FunctionRef, origin: str, rest: str, depth: int) -> Iterator[FunctionRef]:
        """The functions that a call of an object, or of its method `rest`, may run, given the expression the object came from."""
        if depth > _DEEPEST:
            return
        if not origin.endswith("()"):  # an alias
            yield from self.callees(at, f"{origin}.{rest}" if rest else origin, instance=True, depth=depth + 1)
            return
        name = origin[:-2]
        if name.rpartition(".")[2].startswith("from_"):  # Model.from_pretrained(...)
            name = name.rpartition(".")[0]
        for file, cls in self._classes(at, name, depth):
            yield from self._method(file, cls, rest or "forward", depth)
            return

    def _classes(self, at: FunctionRef, name: str, depth: int) -> Iterator[tuple[str, str]]:
        """A class by its name in a file."""
        if depth > _DEEPEST:
            return
        body = self.files[at.file].body
        if name in body.classes:
            yield at.file, name
            return
        first, _, rest = name.partition(".")
        full = ".".join(filter(None, [body.aliases.get(first, first), rest]))
        if full.partition(".")[0] not in self.packages:
            return
        parts = full.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            file = self.modules.get(".".join(parts[:cut]))
            if file is None:
                continue
            tail = ".".join(parts[cut:])
            if tail in self.files[file].body.classes:
                yield file, tail
            elif self.files[file].body.aliases.get(parts[cut], "") not in ("", full):
                yield from self._classes(FunctionRef(file, ""), tail, depth + 1)
            return

    def _method(self, file: str, cls: str, method: str, depth: int) -> Iterator[FunctionRef]:
        """A method of a class or of its bases; calling an object runs its `forward`, otherwise its `__call__`."""
        names = ("forward", "__call__") if method in ("forward", "__call__") else (method,)
        for name in names:
            for home, owner in self._lineage(file, cls, depth):
                full = f"{owner}.{name}"
                if full in self.files[home].body.functions:
                    yield FunctionRef(home, full)
                    return

    def _lineage(self, file: str, cls: str, depth: int) -> Iterator[tuple[str, str]]:
        """A class and its bases, nearest first; cycles are cut."""
        seen: set[tuple[str, str]] = set()
        queue = deque([(file, cls)])
        while queue and len(seen) < 4 * _DEEPEST:
            home, name = queue.popleft()
            if (home, name) in seen:
                continue
            seen.add((home, name))
            yield home, name
            for base in self.files[home].body.classes[name].bases:
                queue.extend(self._classes(FunctionRef(home, ""), base, depth + 1))

    def _attribute(self, file: str, cls: str, attribute: str, depth: int) -> Iterator[tuple[str, str]]:
        for home, owner in self._lineage(file, cls, depth):
            origin = self._class(home, owner).attributes.get(attribute, ())
            if origin:
                yield from ((home, by) for by in origin if by != f"self.{attribute}")
                return

    def _class(self, file: str, name: str) -> ClassFacts:
        return self.files[file].body.classes[name]

    def _through_super(self, at: FunctionRef, method: str, depth: int) -> Iterator[FunctionRef]:
        owner = self._owner(at)
        if owner:
            for home, name in list(self._lineage(at.file, owner, depth))[1:]:
                if f"{name}.{method}" in self.files[home].body.functions:
                    yield FunctionRef(home, f"{name}.{method}")
                    return

    def _owner(self, at: FunctionRef) -> str:
        body = self.files[at.file].body
        around = at.name.rpartition(".")[0]
        while around and around not in body.classes:
            around = around.rpartition(".")[0]
        return around

    def _origin_of(self, at: FunctionRef, name: str) -> str:
        """The expression that a local name was assigned from, in the function or an enclosing one; empty if unknown."""
        body: FileBody = self.files[at.file].body
        around = at.name
        while True:
            function = body.functions.get(around)
            if function is not None:
                if name in function.bindings:
                    return function.bindings[name]
                if name in function.params:
                    return ""
            if not around:
                return ""
            around = around.rpartition(".")[0]


def _skipped(packages: set[str]) -> tuple[str, ...]:
    """Prefixes of names that are not entered. The linted project's own packages are entered, except torch."""
    own = {p for p in packages if p != "torch"}
    return tuple(f"{name}." for name in _NOT_ENTERED if name not in own)
