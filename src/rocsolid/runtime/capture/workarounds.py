"""Captures calls that cannot be captured whole: some modules run in eager between graphs, or in another form that can be captured.

A capture that fails names the module that was running. The search puts that module, with all modules of its class, aside and tries
again. It gives up where most of the model would run in eager. What was found is used for every later capture of the function.
"""

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from rocsolid.errors import first_line
from rocsolid.model.capture_report import Reason, Workaround
from rocsolid.runtime.capture.call import CannotCapture
from rocsolid.runtime.capture.capture_once import SetAside
from rocsolid.runtime.capture.diagnosis import drop_frames, innermost_error, running_modules
from rocsolid.runtime.capture.eager_segments import find_eager_modules
from rocsolid.runtime.capture.options import Options
from rocsolid.runtime.capture.reachable_state import collect_reachable

_MAX_TRIES: Final = 8  # captures of one call
_MAX_CHANGES: Final = 4  # of what runs in eager, after a replay in which a module returned something else
_MAX_EAGER_SHARE: Final = 0.5  # of the innermost modules
_VARIANT: Final = "batched_mm"
_LISTS: Final = (torch.nn.ModuleList, torch.nn.ModuleDict)
_MAX_COPIES: Final = 4  # of all weights of the experts: `batched_mm` copies them for every token

Function = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Workarounds:
    """What differs from eager, so that a function can be captured: modules by name, and the failure that each is there for."""

    in_eager: Mapping[str, Workaround] = field(default_factory=dict)
    variants: Mapping[str, Workaround] = field(default_factory=dict)
    reads: Workaround | None = None  # values that Python reads are read again by each replay, and compared
    first: "Workarounds | None" = (
        None  # what to try first for another call: its variants were only too large for this one
    )

    def __bool__(self) -> bool:
        return bool(self.in_eager or self.variants or self.reads)

    def records(self) -> tuple[Workaround, ...]:
        """Return them for the report, one for each class of modules."""
        grouped: dict[tuple[str, str], Workaround] = {}
        for name, single in (*self.in_eager.items(), *self.variants.items()):
            known = grouped.get((single.how, single.kind), replace(single, modules=()))
            grouped[single.how, single.kind] = replace(known, modules=(*known.modules, name))
        return (*grouped.values(), *([self.reads] if self.reads else []))

    def apply(self, function: Function) -> SetAside:
        """Return the modules as they are now: those that run in eager, and the variants of others."""
        modules = dict(collect_reachable(function).named_modules) if self else {}
        variants = {name: capturable_variant(modules[name]) for name in self.variants if name in modules}
        return SetAside(
            modules={name: modules[name] for name in self.in_eager if name in modules},
            variants={name: (modules[name], variant) for name, variant in variants.items() if variant is not None},
            checks_reads=self.reads is not None,
        )

    def extended(self, function: Function, failure: CannotCapture) -> "Workarounds | None":
        """Return what to try after this failure; None if there is nothing."""
        extended = self._with_more_modules(function, failure)
        if extended is None and self.reads is None and failure.reason is Reason.HOST_SYNC:
            return replace(self, reads=_because(failure, how="read"))
        return extended

    def _with_more_modules(self, function: Function, failure: CannotCapture) -> "Workarounds | None":
        """Return what to try with other modules; None if there is nothing, or if most of the model would run in eager."""
        modules = dict(collect_reachable(function).named_modules)
        names = {id(module): name for name, module in modules.items()}
        running = [names[id(module)] for module in running_modules(failure) if id(module) in names]
        failed = running[-1] if running else ""
        if self.variants and (not failed or failed in self.variants):
            because = next(iter(self.variants.values()))
            found = self._with(modules, [(tuple(self.variants), ())], because)
            too_large = isinstance(innermost_error(failure), TooManyTokensError)
            return found and replace(found, variants={}, first=self if too_large else None)
        if not failed:
            return None
        inside = next((name for name in self.in_eager if f"{failed}.".startswith(f"{name}.")), "")
        alike = tuple(name for name, module in modules.items() if type(module) is type(modules[inside or failed]))
        if inside:  # it is not called as a module, or returns other shapes each time: the modules around it
            because = self.in_eager[inside]
            around = {name: _module_around(modules, name) for name in alike}
            groups = (alike, _in_same_place(inside, alike), (inside,))
            candidates = [(tuple(dict.fromkeys(around[name] for name in group)), group) for group in groups]
            return self._with(modules, candidates, because)
        because = _because(failure)
        if all(capturable_variant(modules[name]) is not None for name in alike):
            variants = {name: _named(because, modules[name], how=_VARIANT) for name in alike}
            return replace(self, variants={**self.variants, **variants})
        return self._with(modules, [(alike, ()), (_in_same_place(failed, alike), ()), ((failed,), ())], because)

    def _with(
        self,
        modules: Mapping[str, Any],
        candidates: Sequence[tuple[Sequence[str], Sequence[str]]],
        because: Workaround,
    ) -> "Workarounds | None":
        """Return the first of these (more modules, instead of these modules) with which most of the model is still captured."""
        for more, instead_of in candidates:
            kept = {name: why for name, why in self.in_eager.items() if name not in instead_of}
            added = {name: _named(because, modules[name], how="eager") for name in more if name in modules}
            in_eager = {**added, **kept}
            if all(name in modules and name for name in more) and _share(modules, in_eager) <= _MAX_EAGER_SHARE:
                return replace(self, in_eager=in_eager)
        return None


def _because(failure: CannotCapture, how: str = "eager") -> Workaround:
    problem = failure.message.partition("\n")[0]
    return Workaround(reason=failure.reason, why=problem, location=failure.location, how=how)


def _named(because: Workaround, module: Any, *, how: str) -> Workaround:
    return replace(because, kind=type(module).__name__, how=how)


def _module_around(modules: Mapping[str, Any], name: str) -> str:
    """Return the name of the module that calls this one; a list of modules is not called."""
    outer = name.rpartition(".")[0]
    while outer and outer in modules and type(modules[outer]).forward is torch.nn.Module.forward:
        outer = outer.rpartition(".")[0]
    return outer


def _in_same_place(name: str, others: Sequence[str]) -> tuple[str, ...]:
    """Return the names that differ only in numbers, such as those of the same module in each layer."""
    return tuple(other for other in others if re.sub(r"\d+", "", other) == re.sub(r"\d+", "", name))


def _share(modules: Mapping[str, Any], in_eager: Mapping[str, Any]) -> float:
    """Return how many of the innermost modules would run in eager. There, a list of equal modules, such as experts, counts as one."""
    prefixes = tuple(f"{name}." for name in in_eager)
    counts = {
        f"{name}.": len(module)
        for name, module in modules.items()
        if f"{name}.".startswith(prefixes) and isinstance(module, _LISTS) and len({*map(type, module.children())}) == 1
    }
    whole = eager = 0.0
    for name, module in modules.items():
        if not any(module.children()):
            weight = 1 / math.prod(count for prefix, count in counts.items() if name.startswith(prefix))
            whole += weight
            eager += weight * f"{name}.".startswith(prefixes)
    return eager / whole if whole else 0.0


class WorkaroundSearch:
    """Finds workarounds for one captured function, and remembers them."""

    def __init__(self, function: Function, options: Options) -> None:
        self._given = () if options.eager_modules == "auto" else options.eager_modules
        find_eager_modules(function, self._given)  # raises for a wrong name
        # A form that nothing compares with eager is only used where the user has asked for it.
        self._searches = options.eager_modules == "auto" and not options.backward and options.verify.rounds > 0
        self._known = Workarounds()
        self._in_vain: set[str] = set()  # failures for which nothing was found
        self._changes = 0
        self.original: CannotCapture | None = None  # the failure for which the first workaround was found

    def capture(
        self,
        function: Function,
        attempt: Callable[..., Any],
        is_compiled: Callable[[], bool],
        failure: CannotCapture | None = None,
    ) -> Any:
        """Return the result of the first attempt that succeeds. Otherwise raise the first failure, which names the original operation.

        `failure` is that of an attempt without workarounds, if there was one. Nothing is searched for a function of which the last
        attempt has seen that it is compiled: its modules are not called one by one.
        """
        if not self._searches:
            if failure is not None:
                raise failure
            modules = find_eager_modules(function, self._given)
            named = {name: _named(Workaround(), module, how="eager") for name, module in modules.items()}
            return attempt(SetAside(modules=modules), Workarounds(in_eager=named).records())
        failures = [] if failure is None else [failure]
        workarounds: Workarounds | None = self._known
        if failure is not None:
            workarounds = self._extended(self._known, function, failures, is_compiled)
        while workarounds is not None and len(failures) < _MAX_TRIES:
            try:
                found = attempt(workarounds.apply(function), workarounds.records())
            except CannotCapture as why:
                failures.append(why)
                workarounds = self._extended(workarounds, function, failures, is_compiled)
            except Exception as error:  # noqa: BLE001 - the user did not ask for segments, so they must not end a call
                problem = f"a capture in segments failed with {type(error).__name__}: {first_line(error)}"
                failures.append(CannotCapture(Reason.ERROR, problem))
                break
            else:
                self._known = workarounds.first or workarounds
                return found
        self._in_vain.add(failures[0].message)
        raise self.original or failures[0]

    def _extended(
        self,
        workarounds: Workarounds,
        function: Function,
        failures: Sequence[CannotCapture],
        is_compiled: Callable[[], bool],
    ) -> Workarounds | None:
        """Return what to try after the last of these failures; None to give up."""
        if failures[0].message in self._in_vain or is_compiled():
            return None
        extended = workarounds.extended(function, failures[-1])
        if extended is not None:
            self.original = self.original or failures[0]
            drop_frames(failures[-1])  # they keep the tensors of the failed capture alive
        return extended

    def change(self, function: Function, failure: CannotCapture) -> bool:
        """Change what runs in eager after a replay in which a module returned something else. Returns whether to capture again."""
        if not self._searches or self._changes == _MAX_CHANGES:
            return False
        self._changes += 1
        extended = self._known.extended(function, failure)
        if extended is None:
            return False
        self._known = extended
        return True


def capturable_variant(module: Any) -> Callable[..., Any] | None:
    """Return another form of a module's `forward` that computes the same without a wait for the GPU; None if none is known.

    Experts of transformers have several implementations. `batched_mm` is the one that needs no sizes on the CPU: it copies the weights of
    the chosen experts for every token.
    """
    library = sys.modules.get("transformers.integrations.moe")
    chosen = getattr(getattr(module, "config", None), "_experts_implementation", None)
    if library is None or chosen is None or chosen == _VARIANT or not hasattr(module, "is_transposed"):
        return None
    batched = library.ALL_EXPERTS_FUNCTIONS.get(_VARIANT)

    def forward(hidden_states: Any, top_k_index: Any, *args: Any, **kwargs: Any) -> Any:
        if top_k_index.numel() > _MAX_COPIES * module.num_experts:
            raise TooManyTokensError
        return batched(module, hidden_states, top_k_index, *args, **kwargs)

    return forward if batched is not None else None


class TooManyTokensError(Exception):
    """A variant would copy too many weights."""
