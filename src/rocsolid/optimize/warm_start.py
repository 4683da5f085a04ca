"""Keeps what torch compiled and which form won, so that the next process starts in a fraction of the time.

The artefacts are torch's own, and they are pickles: loading one from somebody else would run their code. So they are kept in files
of this user alone, under a key of model, plan, example and environment. Whatever does not fit is left where it is, with one line,
and the model is compiled as if it were not there.
"""

import datetime as dt
import hashlib
import json
import logging
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from rocsolid.measure import user_cache
from rocsolid.model.plan import Plan
from rocsolid.optimize.dynamo_traces import GRAPH, Traces
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.prewarm import wake_libraries
from rocsolid.torchapi.inductor.compiler_startup import no_pool_ahead, start_compiler
from rocsolid.torchapi.pytree import flatten

_log = logging.getLogger("rocsolid")


def default_folder() -> Path:
    """Where artefacts are kept unless somebody says otherwise."""
    return user_cache.cache_folder("artefacts")


@dataclass
class Kept:
    """What an earlier process found out, and what this one leaves."""

    traces: Traces
    winner: str = ""
    since: str = ""  # the day on which it won among all


def key_of(model: Callable[..., Any], plan: Plan, examples: Sequence[Example] = ()) -> str:
    """What must be the same for artefacts to fit: the model's code and shapes, the plan, the calls, and what runs them."""
    told = hashlib.sha256()
    settings = (f"{d.id}={d.value!r}" for d in plan)
    for part in (*_model(model), *settings, *_calls(examples), *_environment()):
        told.update(part.encode() + b"\0")
    return told.hexdigest()[:32]


def _model(model: Callable[..., Any]) -> Iterator[str]:
    kind = type(model) if isinstance(model, torch.nn.Module) else model
    yield f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', repr(type(model)))}"
    if isinstance(model, torch.nn.Module):
        yield str(model)
        for name, tensor in model.state_dict().items():
            shape = "made by the first call" if is_lazy(tensor) else tuple(tensor.shape)
            yield f"{name} {shape} {tensor.dtype} {tensor.device.type}"


def _calls(examples: Sequence[Example]) -> Iterator[str]:
    yield f"{torch.is_grad_enabled()} {torch.is_inference_mode_enabled()}"
    for example in examples:
        for leaf in flatten((example.args, dict(example.kwargs)), "").leaves:
            value = leaf.value
            if isinstance(value, torch.Tensor):
                yield f"{leaf.path} {tuple(value.shape)} {value.stride()} {value.dtype} {value.device.type}"
            else:
                yield f"{leaf.path} {type(value).__qualname__}"


def _environment() -> Iterator[str]:
    yield from (torch.__version__, platform.python_version(), platform.machine(), sys.platform)
    yield f"{torch.version.hip} {torch.version.cuda}"
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        yield f"{properties.name} {getattr(properties, 'gcnArchName', '')} {properties.major}.{properties.minor}"


@contextmanager
def warm_start(
    model: Callable[..., Any],
    plan: Plan,
    examples: Sequence[Example],
    folder: Path | None = None,
    *,
    traces: bool = False,
) -> Iterator[Kept]:
    """Around compiling and racing: load what fits before, keep what is new after. `traces`: of Dynamo's work too."""
    file = (folder or default_folder()) / f"{key_of(model, plan, examples)}.bin"
    if file.exists():
        wake_libraries(model)
        start_compiler()
    loaded = _load(file)
    kept = Kept(Traces(model, file if traces else None))
    if loaded:
        _read_winner(file, kept)
        if kept.winner in ("", GRAPH):
            kept.traces.load()
        else:
            kept.traces.give_up()  # a form that is called as it was compiled needs all its guards
    before = kept.winner
    with no_pool_ahead() if loaded else nullcontext():
        yield kept
    if not loaded:
        made = torch.compiler.save_cache_artifacts()
        loaded = made is not None and bool(made[0]) and user_cache.write(file, made[0])
    if loaded and kept.winner != before:
        _save_winner(file, kept.winner)
    if loaded and kept.winner == GRAPH:
        kept.traces.keep()


def _read_winner(file: Path, kept: Kept) -> None:
    """Which form won, when that was found out; whatever is wrong with the note, all forms can be tried again."""
    note = file.with_suffix(".json")
    try:
        if not user_cache.untrusted_reason(note):
            found = json.loads(note.read_text(encoding="utf-8"))
            kept.winner, kept.since = str(found["winner"]), str(found["since"])
    except (OSError, ValueError, LookupError, TypeError):
        kept.winner = ""


def _save_winner(file: Path, winner: str) -> None:
    note = file.with_suffix(".json")
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    try:
        note.touch(mode=0o600)
        note.write_text(json.dumps({"winner": winner, "since": today}) + "\n", encoding="utf-8")
    except OSError as refused:
        _log.warning("the winner is not kept: %s", refused)


def _load(file: Path) -> bool:
    payload = user_cache.read(file)
    if payload is None:
        return False
    try:
        why = "" if torch.compiler.load_cache_artifacts(payload) else "torch found nothing in it"
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the model can be compiled without
        why = f"{type(error).__name__}: {error}"
    if why:
        user_cache.warn_ignored(file, why)
    return not why
