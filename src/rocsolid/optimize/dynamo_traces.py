"""Saves Dynamo's traces of a whole model for later processes, if the captured form of the compiled model was the fastest.

Torch drops some guards from saved traces. So descriptions of the objects that these guards checked are saved too, and saved traces are
used only if all descriptions still match. This is checked once per process. Therefore only the captured form uses saved traces: a
graph replays what was captured, even if a Python function is replaced later.
"""

import base64
import inspect
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rocsolid.errors import first_line
from rocsolid.measure import user_cache
from rocsolid.model.form import Form
from rocsolid.model.log import log as _log
from rocsolid.optimize.unique_code_wrapper import UniqueCodeWrapper
from rocsolid.torchapi.dynamo.precompile import can_save_traces, describe_guarded, saving_traces, take_traces


class DynamoTraces:
    """The Dynamo traces of one model: loaded from an earlier process, and saved for later ones."""

    def __init__(self, model: Any, file: Path | None) -> None:
        """Without a file, no traces are saved or used."""
        can_be_wrapped = isinstance(model, torch.nn.Module) and inspect.ismethod(model.forward)
        # Torch refuses to save guards on objects of nested classes, after it has compiled the model: decided here, it compiles once.
        keeps_traces = file and can_be_wrapped and not _has_nested_class(model)
        self._file = file.with_suffix(".traces") if file and keeps_traces else None
        self._model = model
        self._wrapper = UniqueCodeWrapper(model) if self._file else None
        self._saved: dict[str, bytes] = {}
        self._dropped_guards: list[str] = []

    @property
    def model(self) -> Any:
        """The callable to compile: the wrapped model while traces are enabled, otherwise the model."""
        return self._wrapper if self._file else self._model

    @property
    def enabled(self) -> bool:
        """Whether traces are saved and used."""
        return self._file is not None

    def disable(self) -> None:
        """From now on, compile without traces."""
        self._file = None

    def load(self) -> None:
        """Load the traces of an earlier process, if the described objects are still the same."""
        payload = user_cache.read(self._file) if self._file else None
        if payload is None or self._file is None:
            return
        try:
            document = json.loads(payload)
            saved = {key: base64.b64decode(text) for key, text in document["traces"].items()}
            descriptions = dict(document["guards"])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            user_cache.warn_ignored(self._file, f"{type(error).__name__}: {error}")
            return
        if describe_guarded(self._wrapper, list(descriptions)) == descriptions:
            self._saved = saved

    @contextmanager
    def tracing(self, form: Form) -> Iterator[bool]:
        """Inside the block, in which a form is prepared, Dynamo saves and uses traces of the whole model; yields whether it does."""
        compiles_whole_model = form in (Form.COMPILED, Form.COMPILED_GRAPH)
        if self._wrapper is None or self._file is None or not compiles_whole_model or not can_save_traces():
            yield False
            return
        call = self._wrapper.forward.__func__
        with tempfile.TemporaryDirectory() as folder, saving_traces(call, Path(folder), self._saved) as dropped:
            yield True
        self._dropped_guards += dropped

    def save(self) -> None:
        """Save the new traces for the next process, if there are any and they can be saved."""
        if self._file is None or not can_save_traces():
            return
        try:
            new_traces = take_traces()
        except Exception as error:  # noqa: BLE001 - without saved traces, the next process traces the model again
            _log.info("Dynamo traces are not saved: %s: %s", type(error).__name__, first_line(error))
            return
        descriptions = describe_guarded(self._wrapper, self._dropped_guards)
        if new_traces and descriptions is not None:
            encoded = {key: base64.b64encode(entry).decode("ascii") for key, entry in new_traces.items()}
            user_cache.write(self._file, json.dumps({"guards": descriptions, "traces": encoded}).encode())


def _has_nested_class(model: torch.nn.Module) -> bool:
    """Whether a part of the model, or an object that a part refers to, has a class that is defined in a function or in a class."""
    values = [value for part in model.modules() for value in (part, *vars(part).values())]
    items = [
        item
        for value in values
        if isinstance(value, (dict, list, tuple))
        for item in (value.values() if isinstance(value, dict) else value)
    ]
    return any(type(x).__qualname__ != type(x).__name__ and not isinstance(x, tuple) for x in (*values, *items))
