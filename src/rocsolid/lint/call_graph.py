"""The graph of calls across a project: which functions a compiled or captured region leads into, and by which way."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rocsolid.lint.facts import Body, Class, Facts, Function
from rocsolid.model.source import Region

# What torch.compile takes as one operation, or never enters; user code does not lead into it.
_NOT_ENTERED: Final = ("torch", "numpy", "logging", "warnings", "triton", "typing", "functools", "importlib", "inspect")
_LONGEST_CHAIN: Final = 24
_DEEPEST: Final = 16  # of inheritance, of re-exports


@dataclass(frozen=True)
class Place:
    """A function of a file."""

    file: str
    name: str


@dataclass(frozen=True)
class Way:
    """How a region leads to a function: its beginning, and the calls in between."""

    region: Region
    chain: tuple[str, ...]

    @property
    def direct(self) -> bool:
        """The function is itself what is compiled or captured."""
        return len(self.chain) == 1


class Graph:
    """Names of a project, resolved when a region leads to them; most of a project is never looked at."""

    def __init__(self, files: Mapping[str, Facts]) -> None:
        self.files = files
        self.modules = {facts.module: file for file, facts in reversed(list(files.items()))}
        self.packages = {module.partition(".")[0] for module in self.modules}
        self.ways: dict[tuple[Region, Place], Way] = {}
        self.touched: dict[Place, Way] = {}  # switched off for the compiler, and called from what it compiles

    def explore(self) -> None:
        """Follow every region to its ends."""
        queue = deque(self._beginnings())
        while queue:
            place, way = queue.popleft()
            key = (way.region, place)
            if key in self.ways or len(way.chain) > _LONGEST_CHAIN:
                continue
            function = self._function(place)
            if function is None:
                continue
            if way.region is Region.COMPILED and function.opaque:
                if function.disabled:
                    self.touched.setdefault(place, way)
                continue
            self.ways[key] = way
            for call in function.calls:
                passes = call.compiled if way.region is Region.COMPILED else call.captured
                if passes:
                    for callee in self.callees(place, call.name):
                        queue.append((callee, Way(way.region, (*way.chain, self._label(callee)))))

    def _beginnings(self) -> Iterator[tuple[Place, Way]]:
        wrapping: dict[str, list[tuple[Place, Region, int]]] = {}
        for file, facts in self.files.items():
            for root in facts.roots:
                for place in self._targets(file, root.scope, root.target):
                    yield place, Way(root.region, (self._label(place),))
            for wrapper in facts.wrappers:
                last = wrapper.function.rpartition(".")[2]
                place = Place(file, wrapper.function)
                wrapping.setdefault(last, []).append((place, wrapper.region, wrapper.position))
        for file, facts in self.files.items():
            yield from self._wrapped(file, facts, wrapping)
            yield from self._called_in_captures(file, facts)

    def _wrapped(
        self, file: str, facts: Facts, wrapping: Mapping[str, list[tuple[Place, Region, int]]]
    ) -> Iterator[tuple[Place, Way]]:
        """Functions handed to a function that compiles or captures what it is given."""
        for passed in facts.passed:
            for wrapper, region, position in wrapping.get(passed.to.rpartition(".")[2], ()):
                if position != passed.position or wrapper not in self.callees(Place(file, passed.scope), passed.to):
                    continue
                for place in self._targets(file, passed.scope, passed.what):
                    yield place, Way(region, (self._label(wrapper), self._label(place)))

    def _called_in_captures(self, file: str, facts: Facts) -> Iterator[tuple[Place, Way]]:
        if not facts.captures:
            return
        for name, function in facts.body.functions.items():
            for call in function.calls:
                if call.in_capture:
                    for callee in self.callees(Place(file, name), call.name):
                        start = f"capture in {self._label(Place(file, name))}"
                        yield callee, Way(Region.CAPTURED, (start, self._label(callee)))

    def _targets(self, file: str, scope: str, target: str) -> Iterator[Place]:
        if target.startswith("="):
            name = target[1:]
            if name in self.files[file].body.functions:
                yield Place(file, name)
            else:
                yield from self._method(file, name, "forward", 0)
        else:
            yield from self.callees(Place(file, scope), target, instance=True)

    def _function(self, place: Place) -> Function | None:
        return self.files[place.file].body.functions.get(place.name)

    def _label(self, place: Place) -> str:
        function = self._function(place)
        return f"{place.name or place.file} ({place.file}:{function.line if function else 1})"

    def callees(self, at: Place, name: str, *, instance: bool = False, depth: int = 0) -> Iterator[Place]:
        """The functions a call of `name` in `at` leads to; `instance`: the name is an object that will be called."""
        if depth > _DEEPEST:
            return
        if name.startswith("self."):
            yield from self._through_self(at, name[5:], depth)
            return
        if name.startswith("super()."):
            yield from self._through_super(at, name[8:], depth)
            return
        first, _, rest = name.partition(".")
        made = self._bound(at, first.removesuffix("()"))
        if made and made != name and not name.endswith("()"):
            yield from self._made(at, made, rest, depth + 1)
            return
        yield from self._by_name(at, name.removesuffix("()"), depth, made=name.endswith("()") or instance)

    def _by_name(self, at: Place, name: str, depth: int, *, made: bool) -> Iterator[Place]:
        """A function or class by name: in the functions around, in the file, or imported."""
        body = self.files[at.file].body
        around = at.name
        while True:
            full = f"{around}.{name}" if around else name
            if full in body.functions and around not in body.classes:
                yield Place(at.file, full)
                return
            if full in body.classes and around not in body.classes:
                yield from self._method(at.file, full, "forward" if made else "__init__", depth)
                return
            if not around:
                break
            around = around.rpartition(".")[0]
        first, _, rest = name.partition(".")
        yield from self._absolute(".".join(filter(None, [body.aliases.get(first, first), rest])), depth, made=made)

    def _absolute(self, name: str, depth: int, *, made: bool = False) -> Iterator[Place]:
        """A name by its full path, through re-exports."""
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
                yield Place(file, rest)
            elif rest in body.classes:
                yield from self._method(file, rest, "forward" if made else "__init__", depth + 1)
            elif rest.rpartition(".")[0] in body.classes:
                yield from self._method(file, rest.rpartition(".")[0], rest.rpartition(".")[2], depth + 1)
            elif rest and (meant := body.aliases.get(rest.partition(".")[0], "")) and meant != name:
                tail = rest.partition(".")[2]
                yield from self._absolute(f"{meant}.{tail}" if tail else meant, depth + 1, made=made)
            return

    def _through_self(self, at: Place, name: str, depth: int) -> Iterator[Place]:
        owner = self._owner(at)
        if not owner:
            return
        attribute, _, rest = name.partition(".")
        if not rest and any(True for _ in self._method(at.file, owner, attribute, depth)):
            yield from self._method(at.file, owner, attribute, depth)
            return
        for file, made in self._attribute(at.file, owner, attribute, depth):
            yield from self._made(Place(file, ""), made, rest, depth + 1)

    def _made(self, at: Place, made: str, rest: str, depth: int) -> Iterator[Place]:
        """What calling an object, or a method of it, leads to, given what made the object."""
        if depth > _DEEPEST:
            return
        if not made.endswith("()"):  # another name for something
            yield from self.callees(at, f"{made}.{rest}" if rest else made, instance=True, depth=depth + 1)
            return
        name = made[:-2]
        if name.rpartition(".")[2].startswith("from_"):  # Model.from_pretrained(...)
            name = name.rpartition(".")[0]
        for file, cls in self._classes(at, name, depth):
            yield from self._method(file, cls, rest or "forward", depth)
            return

    def _classes(self, at: Place, name: str, depth: int) -> Iterator[tuple[str, str]]:
        """A class by the name a file has for it."""
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
                yield from self._classes(Place(file, ""), tail, depth + 1)
            return

    def _method(self, file: str, cls: str, method: str, depth: int) -> Iterator[Place]:
        """A method of a class or of what it inherits from; calling an object is its `forward`, else its `__call__`."""
        names = ("forward", "__call__") if method in ("forward", "__call__") else (method,)
        for name in names:
            for home, owner in self._lineage(file, cls, depth):
                full = f"{owner}.{name}"
                if full in self.files[home].body.functions:
                    yield Place(home, full)
                    return

    def _lineage(self, file: str, cls: str, depth: int) -> Iterator[tuple[str, str]]:
        """A class and what it inherits from, nearest first; a cycle ends where it closes."""
        seen: set[tuple[str, str]] = set()
        queue = deque([(file, cls)])
        while queue and len(seen) < 4 * _DEEPEST:
            home, name = queue.popleft()
            if (home, name) in seen:
                continue
            seen.add((home, name))
            yield home, name
            for base in self.files[home].body.classes[name].bases:
                queue.extend(self._classes(Place(home, ""), base, depth + 1))

    def _attribute(self, file: str, cls: str, attribute: str, depth: int) -> Iterator[tuple[str, str]]:
        for home, owner in self._lineage(file, cls, depth):
            made = self._class(home, owner).attributes.get(attribute, ())
            if made:
                yield from ((home, by) for by in made if by != f"self.{attribute}")
                return

    def _class(self, file: str, name: str) -> Class:
        return self.files[file].body.classes[name]

    def _through_super(self, at: Place, method: str, depth: int) -> Iterator[Place]:
        owner = self._owner(at)
        if owner:
            for home, name in list(self._lineage(at.file, owner, depth))[1:]:
                if f"{name}.{method}" in self.files[home].body.functions:
                    yield Place(home, f"{name}.{method}")
                    return

    def _owner(self, at: Place) -> str:
        body = self.files[at.file].body
        around = at.name.rpartition(".")[0]
        while around and around not in body.classes:
            around = around.rpartition(".")[0]
        return around

    def _bound(self, at: Place, name: str) -> str:
        """What a local name was made by, in the function or in those around it."""
        body: Body = self.files[at.file].body
        around = at.name
        while True:
            function = body.functions.get(around)
            if function is not None:
                if name in function.binds:
                    return function.binds[name]
                if name in function.params:
                    return ""
            if not around:
                return ""
            around = around.rpartition(".")[0]


def _skipped(packages: set[str]) -> tuple[str, ...]:
    """What is not entered, by the beginning of its name; a project's own packages are, unless it is torch."""
    own = {p for p in packages if p != "torch"}
    return tuple(f"{name}." for name in _NOT_ENTERED if name not in own)
