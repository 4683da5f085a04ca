"""While torch.fx traces, it replaces methods of `nn.Module` for all threads, and calls of other threads fail. Here only for its own.

Inductor traces with torch.fx in several phases. A model that another thread calls meanwhile would raise "module is not installed as a
submodule", and compiled code "Detected that you are using FX to symbolically trace a dynamo-optimized function".
"""

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rocsolid.torchapi.private_api import FOR_OTHER_THREADS, AttributePatch, private_name

_WITHOUT = "rs.optimize(progressive=True): a call can fail while the model is traced in the background"
_PATCH_METHOD = private_name("torch.fx._symbolic_trace", "_Patcher.patch_method", "2.0..", without=_WITHOUT)
# From 2.14 on, torch has such a flag for each thread.
_FLAG = private_name("torch.fx._symbolic_trace", "_is_fx_tracing_flag", "2.0..2.13", without=_WITHOUT)
_lock = threading.Lock()
_patches: list[AttributePatch | None] = []  # one for each thread that needs it; only the first is a patch


class _InThisThread:
    """A flag that is true in one thread."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def __bool__(self) -> bool:
        return threading.get_ident() == self._thread


@contextmanager
def traces_in_one_thread() -> Iterator[None]:
    """In this block, a trace of torch.fx affects only the thread that traces."""
    with _lock:
        _patches.append(_PATCH_METHOD.patch(_for_one_thread) if not _patches else None)
    try:
        yield
    finally:
        with _lock:
            patch = _patches.pop() if len(_patches) > 1 else _patches.pop(0)
            if patch is not None:
                patch.undo()


def _for_one_thread(patch_method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(patch_method)
    def patch(patcher: Any, cls: type, name: str, new_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        thread, original = threading.get_ident(), getattr(cls, name)

        def in_one_thread(*args: Any, **kwargs: Any) -> Any:
            return (new_fn if threading.get_ident() == thread else original)(*args, **kwargs)

        functools.update_wrapper(in_one_thread, new_fn)
        setattr(in_one_thread, FOR_OTHER_THREADS, original)
        if _FLAG.find() is True:  # set back by torch at the end of the trace
            setattr(sys.modules[_FLAG.module], _FLAG.attribute, _InThisThread())
        return patch_method(patcher, cls, name, in_one_thread, *args, **kwargs)

    return patch
