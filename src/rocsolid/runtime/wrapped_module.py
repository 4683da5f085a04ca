"""A module whose calls are handled by another object, and that shares everything else with the module it was made from.

`rs.capture` and `rs.optimize` return such modules. The class of the result is made on the fly, a subclass of the module's own class,
so that `isinstance`, parameters, `state_dict()`, `to()`, `train()`, hooks and methods work as before.
"""

import functools
import inspect
import types
import weakref
from collections.abc import Sequence
from typing import Any, Final

import torch

from rocsolid.errors import UsageError
from rocsolid.runtime.capture.call import call_signature
from rocsolid.runtime.capture.reachable_state import slot_names
from rocsolid.torchapi.graphs.replay_checks import FORWARD_HOOKS, global_forward_hooks


class _ModuleSignature:
    """Gives `inspect.signature(wrapped_module)` the parameters of the module's `forward`."""

    def __get__(self, instance: Any, owner: type) -> inspect.Signature:
        if instance is None:
            msg = "a class has no signature of its own"
            raise AttributeError(msg)
        return call_signature(instance.__rocsolid_function__)


class WrappedModule:
    """The base of `CapturedModule` and `OptimizedModule`. `__rocsolid__` handles the calls; its function is the module inside."""

    __slots__ = ("__rocsolid__",)
    __rocsolid__: Any

    def __init_subclass__(cls) -> None:
        """Do not call the hook of the module's class: no class is registered twice."""

    @property
    def rocsolid(self) -> Any:
        """The object that handles the calls, for modules that have a `report` or another of these methods themselves."""
        return self.__rocsolid__

    @property
    def __rocsolid_function__(self) -> Any:
        return self.__rocsolid__.__rocsolid_function__

    __signature__ = _ModuleSignature()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        return self.__rocsolid__(*args, **kwargs)

    @property
    def __class__(self) -> Any:
        """The class of the module. `torch.nn.utils.parametrize` replaces it; this object then follows."""
        return type(self.__rocsolid_function__)

    @__class__.setter
    def __class__(self, kind: type) -> None:
        self.__rocsolid_function__.__class__ = kind
        _set_class(self, _wrapped_class(kind, *type(self)._rocsolid_wrapper))  # type: ignore[attr-defined]  # noqa: SLF001 - set in `_subclass`

    def _repr_html_(self) -> str:
        html: str = self.__rocsolid__.report()._repr_html_()
        return html


_set_class: Final = vars(object)["__class__"].__set__  # not the property of `WrappedModule`
_classes: Final[weakref.WeakKeyDictionary[type, dict[type, type]]] = weakref.WeakKeyDictionary()


def wrap_module(handler: Any, base: type[WrappedModule], methods: Sequence[str]) -> Any:
    """Return a module that shares everything with the module inside `handler`, but whose calls go to `handler`.

    Methods in `methods` that the module's class has itself are kept. Returns `handler` itself where Python cannot make a subclass of
    the module's class, such as for a scripted module.
    """
    module: Any = handler.__rocsolid_function__
    kind = type(module)
    if isinstance(module, torch.jit.ScriptModule) or any(slot_names(kind)):  # not all attributes are in `__dict__`
        return handler
    try:
        made: Any = object.__new__(_wrapped_class(kind, base, methods))
    except Exception:  # noqa: BLE001 - of a metaclass of the user, such as a registry
        return handler
    object.__setattr__(made, "__rocsolid__", handler)
    object.__setattr__(made, "__dict__", vars(module))
    return made


def _wrapped_class(kind: type, base: type[WrappedModule], methods: Sequence[str]) -> type:
    made = _classes.setdefault(kind, {})
    if base not in made:
        made[base] = _subclass(kind, base, methods)
    return made[base]


def _subclass(kind: Any, base: type[WrappedModule], methods: Sequence[str]) -> type:
    hook_names = tuple(name.attribute for name in FORWARD_HOOKS)

    @functools.wraps(kind.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        inner = self.__rocsolid_function__
        own = vars(inner)
        hooks = (
            *(own.get(name, True) for name in hook_names),
            *global_forward_hooks(),
        )  # eager where they cannot be seen
        # A call does more than `forward`, or this is what an instance's own `forward` has kept, such as that of a hook of accelerate.
        if any(hooks) or kind.__call__ is not torch.nn.Module.__call__ or "forward" in own:
            return kind.forward(self, *args, **kwargs)
        return self.__rocsolid__(*args, **kwargs)

    def new(_: type, *args: Any, **kwargs: Any) -> Any:
        return kind(*args, **kwargs)  # `type(model)(...)` makes a plain model

    kept = {name: inspect.getattr_static(kind, name) for name in methods if hasattr(kind, name)}
    names: dict[str, Any] = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    names["_rocsolid_wrapper"] = base, methods
    return types.new_class(
        kind.__name__, (base, kind), {}, lambda space: space.update(names, forward=forward, __new__=new, **kept)
    )


_SHARDED: Final = ("FullyShardedDataParallel", "FSDPModule")


def refuse_distributed_wrapper(model: Any, function: str, *more: str) -> None:
    """Raise UsageError for a model inside FSDP, DataParallel or one of `more`: its parameters or calls belong to the wrapper."""
    classes = {base.__name__ for base in type(model).__mro__}
    for name in (*_SHARDED, "DataParallel", *more):
        if name in classes:
            inside = (
                "the layers before `fully_shard`" if name == "FSDPModule" else "the model inside, before it is wrapped"
            )
            msg = (
                f"{function} does not support {name}: every rank has to run the same collectives, and parameters move.\n"
                f"fix: call {function} on {inside}, or use torch.compile"
            )
            raise UsageError(msg)


def refuse_sharding(new_class: Any, function: str) -> None:
    """Raise UsageError when `fully_shard` replaces the class of a wrapped module."""
    if any(base.__name__ in _SHARDED for base in new_class.__mro__):
        msg = (
            f"fully_shard cannot be applied to the result of {function}: parameters would move with every call.\n"
            f"fix: call fully_shard on the plain model (`.rocsolid.model`), and use torch.compile"
        )
        raise UsageError(msg)
