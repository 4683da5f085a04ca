"""Modules inside a program that are optimized from their first call, each put in the place of the plain module."""

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rocsolid.model.program_report import ProgramPart, ProgramReport
from rocsolid.optimize.optimized import OptimizedModule

OptimizePart = Callable[[Any], Any]  # returns the module that learns from its first call


@dataclass(frozen=True, kw_only=True)
class _Place:
    """An attribute of the program that holds an optimized module, or a function that calls one."""

    owner: Any
    attribute: str
    plain: Any  # what was there before
    inherited: bool  # it was a method of the owner's class
    placed: Any
    made: Any  # the optimized module

    @property
    def in_use(self) -> bool:
        return getattr(self.owner, self.attribute) is self.placed

    def restore(self) -> None:
        if self.in_use:  # not replaced by the user
            if self.inherited:
                delattr(self.owner, self.attribute)
            else:
                setattr(self.owner, self.attribute, self.plain)
        _handler(self.made).undo()


class Parts:
    """The optimized modules of one program, and the reasons why others were left alone."""

    def __init__(self, program: Any, optimize_part: OptimizePart) -> None:
        self._name = type(program).__name__
        self._optimize_part = optimize_part
        self._places: dict[str, _Place] = {}
        self._left: dict[str, str] = {}

    def optimize(
        self,
        path: str,
        owner: Any,
        attribute: str,
        *,
        module: Any = None,
        call: Callable[[Any], Callable[..., Any]] | None = None,
    ) -> None:
        """Replace `owner.attribute` by a module that is optimized by its first call.

        For a method, `module` does the same as the method, and `call` makes the function that takes its place.
        """
        plain = getattr(owner, attribute)
        if isinstance(plain, OptimizedModule):
            self.leave(path, "is shared with another program, which optimizes it")
            return
        inherited = hasattr(type(owner), attribute) and attribute not in vars(owner)
        made = self._optimize_part(plain if module is None else module)
        placed = made if call is None else call(made)
        setattr(owner, attribute, placed)
        self._places[path] = _Place(
            owner=owner, attribute=attribute, plain=plain, inherited=inherited, placed=placed, made=made
        )

    def leave(self, path: str, why: str) -> None:
        """Note why a part was left alone."""
        self._left[path] = why

    def restore(self, why: str) -> None:
        """Put the plain modules back and free the graphs."""
        for path, place in self._places.items():
            place.restore()
            self._left[path] = why
        self._places.clear()

    def forget(self) -> None:
        """Forget the reasons why parts were left alone."""
        self._left.clear()

    def __bool__(self) -> bool:
        return bool(self._places)

    def explain(self) -> ProgramReport:
        """Return what was optimized, and what was left alone and why."""
        parts = []
        for path, place in self._places.items():
            if not place.in_use:
                parts.append(ProgramPart(name=path, optimized=False, detail="was replaced by another object"))
                continue
            parts.append(_handler(place.made).as_part(path))
        parts += [ProgramPart(name=path, optimized=False, detail=why) for path, why in self._left.items()]
        return ProgramReport(name=self._name, parts=tuple(parts))


def _handler(made: Any) -> Any:
    """Return the object that handles the calls of an optimized module; it is the module itself for a scripted one."""
    return made.rocsolid if isinstance(made, OptimizedModule) else made


def plain_class(program: Any) -> Any:
    """Return the class of a program without the methods that `add_methods` gave it, after undoing an earlier `rs.optimize`."""
    kind = type(program)
    if "_rocsolid_plain_class" not in vars(kind):
        return kind
    program.undo()
    return vars(kind)["_rocsolid_plain_class"]


def add_methods(program: Any, methods: Mapping[str, Callable[..., Any]], **properties: property) -> None:
    """Give one object methods besides those of its class; a method `f(original, *args)` gets the one that it replaces."""
    kind = plain_class(program)

    def replaced(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return method(getattr(super(made, self), name, None), *args, **kwargs)

        call.__name__, call.__doc__ = name, method.__doc__
        if hasattr(kind, name):
            call.__wrapped__ = getattr(kind, name)  # type: ignore[attr-defined]  # for its signature
        return call

    space: dict[str, Any] = {name: replaced(name, method) for name, method in methods.items()}
    space |= {"_rocsolid_plain_class": kind, **properties}
    space |= {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    made: Any = types.new_class(kind.__name__, (kind,), {}, lambda names: names.update(space))
    program.__class__ = made
