"""Saves compiled code and the name of the fastest form, so that the next process starts in a fraction of the time.

Compiled code is saved as torch's own cache artefacts. These are pickles, and loading a pickle from another user would run that user's
code. So they are stored in files that only this user can access. The file name is a hash of model, plan, examples and environment. A
file that cannot be used is not changed; one line is logged, and the model is compiled as if the file did not exist.
"""

import datetime as dt
import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from rocsolid.measure import user_cache
from rocsolid.model.form import Form
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.setting import Value
from rocsolid.optimize.dynamo_traces import DynamoTraces
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.prewarm import prewarm_libraries
from rocsolid.torchapi.inductor.compiler_startup import preload_compiler
from rocsolid.torchapi.pytree import flatten


def default_folder() -> Path:
    """Return the default folder for artefacts."""
    return user_cache.cache_folder("artefacts")


@dataclass
class SavedRun:
    """What an earlier process saved, and what this one will save."""

    traces: DynamoTraces
    winner: Form | None = None
    settings: Mapping[str, Value] = field(default_factory=dict)  # values that the winner has besides those of the plan
    race_date: str = ""  # when all forms were measured, and the winner was the fastest

    @property
    def uses_traces(self) -> bool:
        """Whether saved traces are of the winner: they lack guards that calls without a graph need, and are made without settings."""
        return self.winner is Form.COMPILED_GRAPH and not self.settings


def key_of(
    model: Callable[..., Any], plan: Plan, examples: Sequence[Example] = (), tried: Iterable[Decision] = ()
) -> str:
    """Return a hash of everything that must be equal for artefacts to be usable: model class and shapes, plan, calls and environment.

    `tried` are the settings that are tried besides the plan: a race without one of them says nothing about it.
    """
    digest = hashlib.sha256()
    settings = (f"{d.id}={d.value!r}" for d in (*plan, *tried))
    for part in (*_describe_model(model), *settings, *_describe_calls(examples), *_describe_environment()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


def _describe_model(model: Callable[..., Any]) -> Iterator[str]:
    code_owner = type(model) if isinstance(model, torch.nn.Module) else model
    yield f"{getattr(code_owner, '__module__', '')}.{getattr(code_owner, '__qualname__', repr(type(model)))}"
    if isinstance(model, torch.nn.Module):
        yield str(model)
        for name, tensor in model.state_dict().items():
            shape = "set by the first call" if is_lazy(tensor) else tuple(tensor.shape)
            yield f"{name} {shape} {tensor.dtype} {tensor.device.type}"


def _describe_calls(examples: Sequence[Example]) -> Iterator[str]:
    yield f"{torch.is_grad_enabled()} {torch.is_inference_mode_enabled()}"
    for example in examples:
        for leaf in flatten((example.args, dict(example.kwargs)), "").leaves:
            value = leaf.value
            if isinstance(value, torch.Tensor):
                yield f"{leaf.path} {tuple(value.shape)} {value.stride()} {value.dtype} {value.device.type}"
            else:
                yield f"{leaf.path} {type(value).__qualname__}"


def _describe_environment() -> Iterator[str]:
    yield from (torch.__version__, platform.python_version(), platform.machine(), sys.platform)
    yield f"{torch.version.hip} {torch.version.cuda}"
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        yield f"{properties.name} {getattr(properties, 'gcnArchName', '')} {properties.major}.{properties.minor}"


def artefact_file(folder: Path | None, key: str) -> Path:
    """Return the file for a key of `key_of`, in this folder or in the default one."""
    return (folder or default_folder()) / f"{key}.bin"


def has_winner(model: Callable[..., Any], file: Path) -> bool:
    """Whether an earlier process has saved which form was the fastest."""
    saved = SavedRun(DynamoTraces(model, None))
    _read_winner(file, saved)
    return saved.winner is not None


@contextmanager
def warm_start(
    model: Callable[..., Any],
    file: Path,
    *,
    traces: bool = False,
) -> Iterator[SavedRun]:
    """Load usable artefacts before the block and save new ones after it; with `traces`, also load and save Dynamo's traces."""
    if os.path.exists(file):  # noqa: PTH110 - Path.exists() raises for a folder that may not be read
        prewarm_libraries(model)
        preload_compiler()
    usable = _load(file)
    saved = SavedRun(DynamoTraces(model, file if traces else None))
    if usable:
        _read_winner(file, saved)
        if saved.winner is None or saved.uses_traces:
            saved.traces.load()
        else:
            # Without a graph, every call needs all guards, and saved traces lack some; and they are without these settings.
            saved.traces.disable()
    previous = (saved.winner, saved.settings)
    yield saved
    if not usable:
        artefacts = torch.compiler.save_cache_artifacts()
        usable = artefacts is not None and bool(artefacts[0]) and user_cache.write(file, artefacts[0])
    if usable and (saved.winner, saved.settings) != previous:
        _save_winner(file, saved)
    if usable and saved.uses_traces:
        saved.traces.save()


def _read_winner(file: Path, saved: SavedRun) -> None:
    """Read which form was the fastest, and when it was measured; if the file cannot be used, all forms are measured again."""
    winner_file = file.with_suffix(".json")
    try:
        document = json.loads(user_cache.read_bytes(winner_file) or b"{}")
        saved.winner, saved.race_date = Form(document["winner"]), str(document["race_date"])
        saved.settings = dict(document["settings"])
    except (ValueError, LookupError, TypeError, RecursionError):
        saved.winner = None


def _save_winner(file: Path, saved: SavedRun) -> None:
    winner_file = file.with_suffix(".json")
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    winner = saved.winner.label if saved.winner else ""
    document = {"winner": winner, "settings": dict(saved.settings), "race_date": today}
    user_cache.write_bytes(winner_file, json.dumps(document).encode() + b"\n")


def _load(file: Path) -> bool:
    payload = user_cache.read(file)
    if payload is None:
        return False
    try:
        why = "" if torch.compiler.load_cache_artifacts(payload) else "torch found no artefacts in it"
    except Exception as error:  # noqa: BLE001 - the model can be compiled without the file
        why = f"{type(error).__name__}: {error}"
    if why:
        user_cache.warn_ignored(file, why)
    return not why
