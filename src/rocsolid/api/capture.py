"""Capture under a name for everyone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from rocsolid.api.safety import tried_elsewhere
from rocsolid.catalog.capture_rules import nearest
from rocsolid.catalog.problems import problem
from rocsolid.model.bucket import Bucket
from rocsolid.model.environment import Environment
from rocsolid.model.known_problem import Problem
from rocsolid.probe.pretended import pretended_chip
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.runtime.capture.call import Call
from rocsolid.runtime.capture.captured import Captured
from rocsolid.runtime.capture.care import Care
from rocsolid.runtime.capture.choosing import backend_for
from rocsolid.runtime.capture.options import Options, Verify, buckets_of, verify_of
from rocsolid.runtime.capture.played import Played

_ROUNDS: Final = 2
_TRIAL_DEADLINE_S: Final = 600.0
_ENDS_THE_PROCESS: Final = ("hipblaslt-handle-in-capture", "mi350-repeated-graph-crash")


def capture(  # noqa: PLR0913 - each is one decision, and all have defaults
    fn: Callable[..., Any] | None = None,
    *,
    outputs: str = "clone",
    on_error: str = "eager",
    max_graphs: int = 8,
    memory_budget_bytes: int | None = None,
    pool: str = "auto",
    buckets: Mapping[str, Bucket | Sequence[Bucket]] | None = None,
    unpad: str = "auto",
    static: Sequence[str] = (),
    verify: str | Verify = "first",
    rtol: float | None = None,
    atol: float | None = None,
    generators: Sequence[Any] = (),
    warmups: int = 3,
    backend: str = "auto",
    pieces: Sequence[Any] | None = None,
    backward: bool = False,
    keep_graph: bool = False,
    plays: str = "",
) -> Any:
    """Answer calls of a function by replaying a device graph, with the answer checked against eager.

    The first call of a kind (structure, shapes, types, constants, grad mode and so on) runs eagerly and is captured; later ones
    are replayed. A call that cannot be captured runs eagerly, and the report says why.

    Args:
        fn: any callable or module; left out, a decorator is returned.
        outputs: 'clone' gives the caller tensors of its own; 'alias' the graph's memory, good until the next call; 'out' fills
            the tensors passed as `out=`.
        on_error: 'eager' runs what cannot be captured eagerly; 'raise' raises CaptureError.
        max_graphs: how many graphs are kept; the least recently used is given up for a new one.
        memory_budget_bytes: what all graphs together may hold.
        pool: 'shared' memory for all graphs, 'per-graph', or 'auto': per graph on ROCm, shared on CUDA.
        buckets: sizes to pad a dimension of an argument to, by the argument's name.
        unpad: 'auto' cuts results back where they follow a bucketed length; 'never' leaves them padded.
        static: names of arguments known by identity, which never change.
        verify: 'first' compares replays with eager before the first result is handed out, `rs.every(n)` also every n calls,
            'off' never.
        rtol: how much a replay may differ, relative; by element type when left out.
        atol: how much a replay may differ, absolute.
        generators: random-number generators of your own that the function draws from.
        warmups: runs before the capture.
        backend: 'device', 'record' (a tape on the CPU, for tests without a device), 'eager', or 'auto'.
        pieces: modules, by name, that no graph can hold; they run eagerly between the graphs of the rest.
        backward: capture the backward pass too, so that training steps replay.
        keep_graph: keep what `debug_dump` writes down of a graph on a device, for some memory of the host.
        plays: 'hip-6.4', 'hip-7.2' or 'cuda': the tape refuses what that runtime would refuse; with backend='record'. A process
            that pretends to have a chip plays its runtime by itself, unless a backend is named.

    Example:
        >>> import rocsolid as rs, torch
        >>> double = rs.capture(lambda x: x * 2, backend="record")
        >>> [double(torch.ones(2) * n).tolist() for n in (1, 2)]
        [[2.0, 2.0], [4.0, 4.0]]
        >>> double.report().replays
        1

    """
    given = pretended_chip()
    if given and backend == "auto" and not plays:
        backend, plays = "record", nearest(given.chip.platform, given.release).value
    options = Options(
        outputs=outputs,
        on_error=on_error,
        max_graphs=max_graphs,
        memory_budget_bytes=memory_budget_bytes,
        pool=pool,
        buckets=buckets_of(buckets),
        unpad=unpad,
        static=tuple(static),
        verify=verify_of(verify),
        rtol=rtol,
        atol=atol,
        generators=tuple(generators),
        warmups=warmups,
        backend=backend,
        pieces=tuple(pieces or ()),
        backward=backward,
        keep_graph=keep_graph,
        plays=plays,
    )
    env = quick_environment()
    if problem("hip-graph-replay-corruption").strikes(env):
        options = replace(options, verify=replace(options.verify, rounds=max(_ROUNDS, options.verify.rounds)))
    dies = options.backend != "record" and any(problem(name).strikes(env) for name in _ENDS_THE_PROCESS)
    care = Care(
        trial=_trial if dies else None,  # a tape ends no process
        watchdog=_told(problem("rccl-watchdog-breaks-capture"), env),
    )
    kind = Played if plays else Captured
    if fn is None:
        return partial(kind, options=options, backends=backend_for, care=care)
    return kind(fn, options, backend_for, care)


def _told(known: Problem, env: Environment) -> str:
    return f"{known.title}. {known.fix}" if known.strikes(env) else ""


def _trial(function: Callable[..., Any], call: Call, options: Options) -> str:
    """Capture the call in a child process; nothing when that went well, or cannot be tried."""
    return tried_elsewhere("capturing", {"capture": options}, (function, call.args, call.kwargs), _TRIAL_DEADLINE_S)
