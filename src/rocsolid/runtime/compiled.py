"""`torch.compile` with a plan riding on the function, a deadline, and a budget of recompiles."""

import functools
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FrameType
from typing import Any, Final

from rocsolid.errors import RecompileError
from rocsolid.model.finding import Finding
from rocsolid.model.intervention import Intervention
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.setting import Channel
from rocsolid.runtime.compile_deadline import deadline
from rocsolid.runtime.guard import refusal
from rocsolid.runtime.signature import CallSignature, differences, nearest, parameter_names, signature_of
from rocsolid.torchapi.config import modes
from rocsolid.torchapi.config.scope import scoped
from rocsolid.torchapi.dynamo.compile_hooks import Compile, frames_up, listen
from rocsolid.torchapi.user_frames import user_place

_log = logging.getLogger("rocsolid")
_MARK: Final = "__rocsolid_compiled__"
# Given a model, what torch.compile is called with, and a call's arguments: nothing when all went well, else what went wrong.
Trial = Callable[..., str]


@dataclass(kw_only=True)
class Compiled:
    """What rides on a function that `rs.compile` returned; reach it as `fn.rocsolid`."""

    plan: Plan
    options: Mapping[str, object]  # what was given to torch.compile
    interventions: tuple[Intervention, ...] = ()
    deadline_s: float | None = None
    recompiles: int | None = None
    sealed: bool = False
    calls: list[CallSignature] = field(default_factory=list)  # those that compiled something
    codes: set[CodeType] = field(
        default_factory=set
    )  # what was compiled: the function, and its parts after graph breaks
    used: int = 0  # recompiles so far
    names: tuple[str, ...] = ()  # of the function's parameters

    @property
    def findings(self) -> list[Finding]:
        """Values that were asked for and refused."""
        return [refusal(intervention) for intervention in self.interventions]

    def seal(self) -> None:
        """From now on a compile of this function is an error that names what changed."""
        self.sealed = True

    def check(self, call: FrameType, code: CodeType) -> None:
        """Count a compile; refuse it when the function is sealed or its recompiles are used up."""
        now = signature_of(call.f_locals["args"], call.f_locals["kwargs"], self.names)
        again = code in self.codes
        if self.sealed or (again and self.recompiles is not None and self.used >= self.recompiles):
            raise RecompileError(self._refusal(now))
        self.codes.add(code)
        self.used += again
        if now not in self.calls:
            self.calls.append(now)

    def _refusal(self, now: CallSignature) -> str:
        changed = differences(nearest(self.calls, now), now) if self.calls else ["it was never called before"]
        what = (
            "; ".join(changed)
            if changed
            else "nothing in the arguments changed, so it is the module's or torch's state"
        )
        why = "it is sealed" if self.sealed else f"its budget of {self.recompiles} recompiles is used up"
        return (
            f"the function would be compiled again, and {why}. Compared with the nearest call that was compiled: {what}. "
            "Pad the input, mark the dimension as dynamic, or allow more recompiles"
        )


class _Overseer:
    """Hears of every compile, and takes care of those that run under a function of ours."""

    def begun(self, compile_: Compile) -> AbstractContextManager[object]:
        call = _innermost(compile_.stack)
        if call is None:
            return nullcontext()
        compiled: Compiled = call.f_locals[_MARK]
        compiled.check(call, compile_.code)
        scope = ExitStack()
        scope.enter_context(scoped({d.id: d.value for d in _scoped(compiled.plan)}))
        if compiled.deadline_s is not None:
            scope.enter_context(deadline(compile_, compiled.deadline_s))
        return scope

    def ended(self, compile_: Compile, *, compiled: bool) -> None:
        """Nothing to do: what `begun` entered has been left."""


_overseer: Final = _Overseer()
_listening: list[Callable[[], None]] = []


def compiled_with(
    plan: Plan,
    model: Any,
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    deadline_s: float | None = None,
    recompiles: int | None = None,
    trial: Trial | None = None,
    **kwargs: Any,
) -> Any:
    """`torch.compile`, with the plan's options on the function and the rest of the plan around each compile of it."""
    import torch

    given: dict[str, Any] = dict(kwargs)
    to_inductor = kwargs.get("backend", "inductor") == "inductor"
    if (
        to_inductor and mode is None and options is None
    ):  # a tuned plan may carry a mode; what the caller says comes first
        mode = _argument(plan, "compile.mode", given)
    if (dynamic := _argument(plan, "compile.dynamic", given)) is not None:
        given["dynamic"] = dynamic
    refused: Sequence[Intervention] = ()
    if to_inductor:
        given["options"], refused = choose_options(plan, mode, options, dynamic=given.get("dynamic"))
    else:  # another backend takes other options; the plan has nothing to say to it
        given["mode"], given["options"] = mode, dict(options) if options else None
    for intervention in refused:
        _log.warning("%s", intervention)
    state = Compiled(
        plan=plan,
        options=dict(given["options"] or {}),
        interventions=tuple(refused),
        deadline_s=deadline_s,
        recompiles=recompiles,
        names=parameter_names(getattr(model, "forward", model)),
    )
    inner = torch.compile(model, **given)
    return _marked(inner, state, partial(trial, model, given) if trial else None, model)


def choose_options(
    plan: Plan, mode: str | None, options: Mapping[str, object] | None, *, dynamic: bool | None = None
) -> tuple[dict[str, object], Sequence[Intervention]]:
    """Options for one call: the plan's advice below what the caller asks for, what the plan insists on above it."""
    decisions = {d.name: d for d in plan if d.channel is Channel.OPTION}
    named = modes.expand(mode, dynamic=dynamic) if mode else {}
    given = {name.replace("-", "_"): value for name, value in (options or {}).items()}
    asked = {**named, **given}
    chosen: dict[str, object] = {name: d.value for name, d in decisions.items()}
    refused = []
    for name, value in asked.items():
        decision = decisions.get(name)
        if decision and decision.guard and decision.value != value:
            refused.append(_refused(decision, value, f"options[{name!r}]" if name in given else f"mode={mode!r}"))
        else:
            chosen[name] = value
    extra = {"guard_filter_fn", "use_aoti"}  # torch.compile takes these out of the options itself
    known = modes.accepted(set(chosen))
    return {name: value for name, value in chosen.items() if name in known | extra or name in given}, refused


def _argument(plan: Plan, name: str, given: Mapping[str, Any]) -> Any:
    """What the plan says of an argument of torch.compile that the caller did not give."""
    decision = plan.get(name)
    return decision.value if decision and decision.name not in given else None


def _refused(decision: Decision, asked: object, how: str) -> Intervention:
    return Intervention(
        setting=decision.id,
        asked=asked,
        got=decision.value,
        why=decision.why,
        how=how,
        place=user_place(sys._getframe(2)),  # noqa: SLF001 - the caller's line
    )


def _scoped(plan: Plan) -> Iterator[Decision]:
    return (d for d in plan if d.channel is Channel.SCOPE)


def _marked(inner: Any, state: Compiled, trial: Callable[..., str] | None, model: Any) -> Any:
    """Let a compile find out which function of ours it runs under: by a mark in the stack, which costs one Python call."""
    import torch

    if not _listening:
        _listening.append(listen(_overseer))
    if isinstance(inner, torch.nn.Module):
        forward = _tried(inner.forward, trial, model) if trial else inner.forward
        vars(inner)["forward"] = _marking(forward, state)
        vars(inner)["rocsolid"] = state
        return inner
    wrapped = functools.wraps(inner)(_marking(_tried(inner, trial, model) if trial else inner, state))
    vars(wrapped)["rocsolid"] = state
    return wrapped


def _marking(inner: Callable[..., Any], __rocsolid_compiled__: Compiled) -> Callable[..., Any]:
    def call(
        *args: Any,
        __rocsolid_compiled__: Compiled = __rocsolid_compiled__,  # noqa: ARG001 - found in the frame
        **kwargs: Any,
    ) -> Any:
        return inner(*args, **kwargs)

    return call


def _tried(inner: Callable[..., Any], trial: Callable[..., str], model: Any) -> Callable[..., Any]:
    """Before the first call, let the trial say whether compiling it ends well; if not, run eagerly from then on."""
    target: Callable[..., Any] | None = None

    def first(*args: Any, **kwargs: Any) -> Any:
        nonlocal target
        if target is None:
            verdict = trial(args, kwargs)
            if verdict:
                _log.error("%s", verdict)
            target = model if verdict else inner
        return target(*args, **kwargs)

    return first


def _innermost(frame: FrameType | None) -> FrameType | None:
    """The innermost call of a function of ours in a stack."""
    return next((f for f in frames_up(frame) if f.f_code.co_name == "call" and _MARK in f.f_code.co_varnames), None)
