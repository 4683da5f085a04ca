"""Explains why a capture failed: which operation, on which line of the user's code, and what to write instead."""

import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Final

import torch

from rocsolid.catalog.capture_errors import error_in, meaning_of
from rocsolid.errors import first_line
from rocsolid.model.capture_report import Reason
from rocsolid.model.code_line import CodeLine, underline
from rocsolid.runtime.capture.backends.base import Backend
from rocsolid.runtime.capture.call import CannotCapture
from rocsolid.runtime.capture.capture_once import NOTHING_ASIDE, SetAside
from rocsolid.runtime.capture.eager_segments import ReadsIn
from rocsolid.torchapi.dispatch import OperatorMode
from rocsolid.torchapi.graphs.capture_state import (
    COMPILE_FIX,
    COMPILE_PROBLEM,
    is_refused_compile,
    is_sync_error,
    uncompiled,
)
from rocsolid.torchapi.user_frames import traceback_code_line, user_code_line

_MAX_EXPRESSION_LENGTH = 60
# What a user writes for an operator that has another name in Python.
_PYTHON_NAMES: Final = {"aten::_local_scalar_dense": ("item", "tolist", "float", "int", "bool")}


def refuse_operation(
    reason: Reason,
    operation: str,
    why: str,
    fix: str,
    code: CodeLine | None,
    notes: Sequence[str] = (),
    *,
    subject: str = "",
    module: Any = None,
) -> CannotCapture:
    """Return a refusal that begins with the user's expression, or with the operation where the expression is not known.

    `subject` is text to put before the expression, such as "work inside ".
    """
    names = _PYTHON_NAMES.get(operation, (operation.rpartition(".")[2].rpartition("::")[2],))
    if code and code.text and code.start == code.end:  # Python 3.10, or an expression of several lines
        start, end = underline(code.text, *names)
        code = replace(code, start=start, end=end)
    expression = code.text[code.start : code.end] if code else ""
    if not expression or len(expression) > _MAX_EXPRESSION_LENGTH:
        python_name = f"Tensor.{names[0]}()" if operation in _PYTHON_NAMES else operation
        return CannotCapture(reason, f"{subject}`{python_name}` {why}", fix=fix, code=code, notes=notes, module=module)
    notes = notes if any(name in expression for name in names) else [f"operator: {operation}", *notes]
    return CannotCapture(reason, f"{subject}`{expression}` {why}", fix=fix, code=code, notes=notes, module=module)


def explain_failure(
    error: Exception, backend: Backend, body: Callable[[], Any], aside: SetAside = NOTHING_ASIDE
) -> CannotCapture:
    """Return the refusal for an exception during a capture.

    The last error often only reports that something failed before, so the first error of the chain is used. On a GPU the function
    is run again without a capture, with torch set to raise an error at every host sync, to find the operation. The modules that run
    in eager may wait, and so may reads between two graphs.
    """
    if is_refused_compile(error):
        code = traceback_code_line(innermost_error(error).__traceback__)
        return CannotCapture(Reason.COMPILE, COMPILE_PROBLEM, fix=COMPILE_FIX, code=code)
    first = innermost_error(error)
    sync = find_sync(body, aside) if backend.uses_gpu else None
    if sync is not None:
        return refuse_operation(sync.reason, sync.operation, sync.why, sync.fix, sync.code, module=sync.module)
    code = traceback_code_line(first.__traceback__)
    meaning = meaning_of(str(first)) or meaning_of(str(error))
    if meaning is None:
        return CannotCapture(
            Reason.ERROR, f"the capture failed with {type(first).__name__}: {first_line(first)}", code=code
        )
    known = error_in(str(first)) or error_in(str(error))
    more = f"\nmore: rocsolid explain {known.number}" if known and known.number in meaning.codes else ""
    problem, notes = f"the capture failed: {meaning.message}", [f"error: {first_line(first)}"]
    return CannotCapture(meaning.cause, problem, fix=f"{meaning.fix}{more}", code=code, notes=notes)


def innermost_error(error: BaseException) -> BaseException:
    """Return the first error of a chain of exceptions."""
    seen = {id(error)}
    while True:
        inner = error.__cause__ or error.__context__
        if inner is None or id(inner) in seen:
            return error
        seen.add(id(inner))
        error = inner


def running_modules(failure: CannotCapture) -> list[Any]:
    """Return the modules that were running when a capture failed, the innermost last."""
    if failure.module is not None:
        return [failure.module]
    # A failure without a cause was raised where it happened; another one explains the first error of a chain.
    first = failure if failure.__cause__ is None else innermost_error(failure.__cause__)
    return _modules_in(frame for frame, _ in traceback.walk_tb(first.__traceback__))


def _modules_in(frames: Iterable[FrameType]) -> list[Any]:
    """Return the modules whose methods run in these frames."""
    methods = (frame for frame in frames if frame.f_code.co_argcount)
    values = (frame.f_locals.get(frame.f_code.co_varnames[0]) for frame in methods)
    return [value for value in values if isinstance(value, torch.nn.Module)]


def current_module() -> Any:
    """Return the innermost module that is running; None if there is none."""
    return next(iter(_modules_in(frame for frame, _ in traceback.walk_stack(None))), None)


def drop_frames(error: BaseException) -> None:
    """Forget where an error and its causes were raised: the frames keep tensors alive."""
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        current.__traceback__ = None
        current = current.__cause__ or current.__context__


@dataclass(frozen=True, kw_only=True)
class HostSync:
    """An operation that waits for the GPU or copies from pageable memory."""

    operation: str
    reason: Reason
    why: str
    fix: str
    code: CodeLine | None
    module: Any  # the innermost one that was running


class _SyncDetector(OperatorMode):
    """Remembers the first operator that waits for the GPU or copies from pageable memory."""

    def __init__(self) -> None:
        super().__init__()
        self.first_sync: HostSync | None = None
        self._is_paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Allow operators to wait inside the block."""
        self._is_paused, was_paused = True, self._is_paused
        try:
            with _sync_mode("default"):
                yield
        finally:
            self._is_paused = was_paused

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator; where it waits, remember it."""
        if self._is_paused:
            return func(*args, **kwargs)
        name = func.name().partition(".")[0]
        try:
            out = func(*args, **kwargs)
        except RuntimeError as error:
            if is_sync_error(error):
                why = "waits for the GPU, which is not possible during a capture"
                fix = "keep the value on the GPU, e.g. torch.where(condition, a, b)"
                self._remember(name, Reason.HOST_SYNC, why, fix)
            raise
        if name in ("aten::_to_copy", "aten::copy_") and _copies_from_pageable(args, out):
            why = "copies from CPU memory that is not pinned"
            fix = "create the tensor on the GPU before the capture"
            self._remember(name, Reason.HOST_COPY, why, fix)
        return out

    def _remember(self, operation: str, reason: Reason, why: str, fix: str) -> None:
        if self.first_sync is None:
            code, module = user_code_line(), current_module()
            self.first_sync = HostSync(operation=operation, reason=reason, why=why, fix=fix, code=code, module=module)


def _copies_from_pageable(args: Any, out: Any) -> bool:
    cpu_tensors = [arg for arg in args if isinstance(arg, torch.Tensor) and arg.device.type == "cpu" and arg.numel()]
    copied_to_gpu = isinstance(out, torch.Tensor) and out.device.type == "cuda"
    return copied_to_gpu and any(not tensor.is_pinned() for tensor in cpu_tensors)


def find_sync(body: Callable[[], Any], aside: SetAside) -> HostSync | None:
    """Run a function without capturing, and return its first host sync; None when there is none, or when it fails before."""
    detector = _SyncDetector()
    reads = ReadsIn(detector.paused) if aside.checks_reads else nullcontext()
    try:
        with _sync_mode("error"), uncompiled(), aside.modules_in(detector.paused), reads, detector:
            body()
    except Exception:  # noqa: BLE001 - the error of the sync, or the function's own, which the caller reports
        return detector.first_sync
    finally:
        torch.cuda.synchronize()
    return detector.first_sync


@contextmanager
def _sync_mode(mode: str) -> Iterator[None]:
    previous_mode = torch.cuda.get_sync_debug_mode()
    try:
        _set_sync_mode(mode)
        yield
    finally:
        _set_sync_mode(previous_mode)


def _set_sync_mode(mode: str | int) -> None:
    # Torch warns that the mode is a prototype. Where warnings are errors, this call would raise.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(mode)
