"""Says why a capture failed: which operation, at which line, and what to write instead."""

import traceback
from collections.abc import Callable
from typing import Any

from rocsolid.catalog.capture_errors import error_in, meaning_of
from rocsolid.errors import first_line
from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture.backend import Backend
from rocsolid.runtime.capture.call import CannotCapture
from rocsolid.torchapi.graphs.capture_state import is_refused_compile, refused_compile
from rocsolid.torchapi.user_frames import innermost_user_location, user_expression


def explained(error: Exception, backend: Backend, body: Callable[[], Any]) -> CannotCapture:
    """The refusal that stands for an error in a capture.

    What the runtime reports last is often only that something went wrong before, so the first error of the chain counts. The
    operation is found by running the body again without capturing, with every wait for the device made an error.
    """
    if is_refused_compile(error):
        return CannotCapture(
            Reason.COMPILE, refused_compile(), innermost_user_location(traceback.walk_tb(error.__traceback__))
        )
    first = _first(error)
    meaning = meaning_of(str(first)) or meaning_of(str(error))
    suspect = backend.watched(body)
    place = suspect.place if suspect else innermost_user_location(traceback.walk_tb(first.__traceback__))
    where = f" at {place}" if place else ""
    if suspect is not None:
        return CannotCapture(suspect.cause, f"{suspect.operation}{where} {suspect.fix}", place)
    written = user_expression(first.__traceback__)
    what = f"{written}{where}: " if written else ""
    if meaning is not None:
        where = "" if what else where
        code = error_in(str(first)) or error_in(str(error))
        more = f"; `rocsolid explain {code.number}` tells more" if code and code.number in meaning.codes else ""
        detail = f"{what}{meaning.says}{where}; {meaning.fix} ({first_line(first)}){more}"
        return CannotCapture(meaning.cause, detail, place)
    return CannotCapture(Reason.ERROR, f"{what}the capture failed: {type(first).__name__}: {first_line(first)}", place)


def _first(error: BaseException) -> BaseException:
    """The innermost error of a chain."""
    seen = {id(error)}
    while True:
        inner = error.__cause__ or error.__context__
        if inner is None or id(inner) in seen:
            return error
        seen.add(id(inner))
        error = inner
