"""What Dynamo traced of a whole model: left by the process in which its graph won, used by those that set up that graph alone.

Torch drops some guards of what it keeps. Here what they stood for is written down beside it, and what is kept is used only where
all of them still stand for the same. In the process itself they are gone, so a form that is not captured is not made from it: a
captured one replays what was captured, whatever becomes of the functions that it was made from.
"""

import base64
import inspect
import json
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch

from rocsolid.errors import first_line
from rocsolid.measure import user_cache
from rocsolid.optimize.unique_code_wrapper import Shell
from rocsolid.torchapi.dynamo.precompile import can_keep_traces, keeping_traces, meanings, take_traces

_log = logging.getLogger("rocsolid")
WHOLE: Final = "compiled"
GRAPH: Final = "compiled, graph"


class Traces:
    """Of one model, in one process."""

    def __init__(self, model: Any, file: Path | None) -> None:
        """Nothing is kept or used without a file."""
        can_be_shelled = isinstance(model, torch.nn.Module) and inspect.ismethod(model.forward)
        self._file = file.with_suffix(".traces") if file and can_be_shelled else None
        self._model = model
        self._shell = Shell(model) if self._file else None
        self._kept: dict[str, bytes] = {}
        self._dropped: list[str] = []

    @property
    def model(self) -> Any:
        """What is to be compiled: the model in a shell of its own while traces are kept or used."""
        return self._shell if self._file else self._model

    @property
    def wanted(self) -> bool:
        """Whether anything is kept or used."""
        return self._file is not None

    def give_up(self) -> None:
        """From now on compile as if there were no traces."""
        self._file = None

    def load(self) -> None:
        """Take what an earlier process left, where it still holds."""
        payload = user_cache.read(self._file) if self._file else None
        if payload is None or self._file is None:
            return
        try:
            said = json.loads(payload)
            kept = {key: base64.b64decode(text) for key, text in said["traces"].items()}
            stood_for = dict(said["guards"])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            user_cache.warn_ignored(self._file, f"{type(error).__name__}: {error}")
            return
        if meanings(self._shell, list(stood_for)) == stood_for:
            self._kept = kept

    @contextmanager
    def around(self, name: str) -> Iterator[bool]:
        """Around setting up a form: Dynamo keeps what it traces of the whole model, or uses what was kept."""
        if self._shell is None or self._file is None or name not in (WHOLE, GRAPH) or not can_keep_traces():
            yield False
            return
        call = self._shell.forward.__func__
        with tempfile.TemporaryDirectory() as folder, keeping_traces(call, Path(folder), self._kept) as dropped:
            yield True
        self._dropped += dropped

    def keep(self) -> None:
        """Leave what was traced for the next process: nothing when all was found, or it is not possible."""
        if self._file is None or not can_keep_traces():
            return
        try:
            traced = take_traces()
        except Exception as error:  # noqa: BLE001 - whatever torch cannot keep, the next process will trace
            _log.info("what Dynamo traced is not kept: %s: %s", type(error).__name__, first_line(error))
            return
        stand_for = meanings(self._shell, self._dropped)
        if traced and stand_for is not None:
            told = {key: base64.b64encode(entry).decode("ascii") for key, entry in traced.items()}
            user_cache.write(self._file, json.dumps({"guards": stand_for, "traces": told}).encode())
