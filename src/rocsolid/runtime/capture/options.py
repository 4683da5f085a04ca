"""The options of `rs.capture`, checked when they are given."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocsolid.errors import UnknownNameError, UsageError, require_type
from rocsolid.model.bucket import Bucket
from rocsolid.model.capture_report import CheckFailure
from rocsolid.numerics import Tolerance

_OUTPUTS = ("clone", "alias", "out")
_ON_ERROR = ("eager", "raise")
_POOLS = ("auto", "shared", "per-graph")
_UNPAD = ("auto", "never")
_MANY_CALLS = 1000  # from here on, `rs.every` limits the time that comparisons take
_MAX_OVERHEAD = 0.001
_TRACE_FOLDER = "rocsolid-captures"
_BACKENDS = ("auto", "device", "record", "eager")


@dataclass(frozen=True, kw_only=True)
class Verify:
    """When a replay is compared with eager."""

    rounds: int = 2  # comparisons before the first result of a replay is returned
    calls: int | None = None  # compare again after every `calls` calls; None: never
    max_overhead: float | None = None  # the share of the time that these comparisons may take; None: any
    in_background: bool = False  # compare in another thread, where a call can be repeated
    ignore: tuple[str, ...] = ()  # paths of results that are not compared, such as 'result[1]'
    save_failures: str = ""  # folder for the inputs and results of a failed check; empty: not saved
    on_failure: Callable[[CheckFailure], object] | None = None


def every(
    calls: int,
    *,
    rounds: int = 2,
    max_overhead: float | None = None,
    in_background: bool = False,
    ignore: Sequence[str] = (),
    save_failures: str | Path = "",
    on_failure: Callable[[CheckFailure], object] | None = None,
) -> Verify:
    """Compare a replay with eager before the first result is returned, and again every `calls` calls.

    Args:
        calls: the number of calls from one comparison to the next.
        rounds: comparisons before the first result, each with different inputs.
        max_overhead: the largest share of the time that comparisons may take; where it would be exceeded, the next one comes later.
            By default 0.001 from 1000 calls on, and no limit for fewer calls.
        in_background: return the result of the replay at once, and run eager in another thread, on the same stream. The function must
            allow that. A call that writes to something, draws random numbers or runs under autocast is compared at once in any case.
        ignore: results that are not compared, by their path: `result[1]`.
        save_failures: folder in which the inputs, eager's results and the replay's results of a failed check are saved.
        on_failure: called with a `CheckFailure` after a failed check. The graph is invalidated, and the call returns eager's result
            (with `in_background`, the result of the replay was returned by then).

    Example:
        >>> import rocsolid as rs
        >>> rs.every(1000).calls
        1000

    """
    require_type("rs.every: calls", calls, int, "a whole number")
    if calls < 1:
        msg = f"rs.every({calls}): the number of calls must be at least 1"
        raise UsageError(msg)
    if max_overhead is None and calls >= _MANY_CALLS:
        max_overhead = _MAX_OVERHEAD
    if max_overhead is not None and not max_overhead > 0:
        msg = f"rs.every: max_overhead={max_overhead} must be more than 0"
        raise UsageError(msg)
    return Verify(
        rounds=rounds,
        calls=calls,
        max_overhead=max_overhead,
        in_background=in_background,
        ignore=tuple(ignore),
        save_failures=str(save_failures),
        on_failure=on_failure,
    )


@dataclass(frozen=True, kw_only=True)
class Options:
    """All options of `rs.capture` except the function."""

    outputs: str = "clone"
    on_error: str = "eager"
    max_graphs: int = 8
    memory_budget_bytes: int | None = None
    pool: str = "auto"
    buckets: Mapping[str, tuple[Bucket, ...]] = field(default_factory=dict)
    unpad: str = "auto"
    static: tuple[str, ...] = ()
    verify: Verify = Verify()
    rtol: float | None = None
    atol: float | None = None
    generators: tuple[Any, ...] = ()
    warmups: int = 3
    backend: str = "auto"
    eager_modules: tuple[Any, ...] | str = "auto"
    backward: bool = False
    keep_graph: bool = False
    annotate: str = ""  # the folder for traces of captures; empty: none are written
    simulate: str = ""
    undo_writes: Callable[[], None] | None = None  # see `Captured.with_undo`
    tolerance: Tolerance = field(init=False)  # how much a replay may differ from eager

    def __post_init__(self) -> None:
        tolerance = Tolerance(rtol=self.rtol, atol=self.atol, ignore=self.verify.ignore)
        object.__setattr__(self, "tolerance", tolerance)
        _require_one_of("outputs", self.outputs, _OUTPUTS)
        _require_one_of("on_error", self.on_error, _ON_ERROR)
        _require_one_of("pool", self.pool, _POOLS)
        _require_one_of("unpad", self.unpad, _UNPAD)
        _require_one_of("backend", self.backend, _BACKENDS)
        if self.simulate:
            from rocsolid.model.capture_rule import Runtime

            _require_one_of("simulate", self.simulate, tuple(runtime.value for runtime in Runtime))
        if self.simulate and self.backend != "record":
            msg = f'simulate={self.simulate!r} requires backend="record" (got backend={self.backend!r})'
            raise UsageError(msg)
        if self.max_graphs < 0:
            msg = f"max_graphs={self.max_graphs} must be at least 0"
            raise UsageError(msg)
        if self.warmups < 1:
            msg = f"warmups={self.warmups} must be at least 1"
            raise UsageError(msg)
        if self.backward:
            self._check_backward()

    def _check_backward(self) -> None:
        if self.outputs != "clone":
            msg = f'backward=True requires outputs="clone" (got outputs={self.outputs!r}): autograd keeps the results'
            raise UsageError(msg)
        for name, given in (("buckets", self.buckets), ("eager_modules", self.eager_modules)):
            if given and given != "auto":
                msg = f"backward=True does not support {name}="
                raise UsageError(msg)


def parse_verify(given: object) -> Verify:
    """Convert the value of `verify=`: 'first', 'off', or `rs.every(n)`."""
    if isinstance(given, Verify):
        return given
    _require_one_of("verify", str(given), ("first", "off"))
    return Verify() if given == "first" else Verify(rounds=0)


def parse_annotate(given: object) -> str:
    """Convert the value of `annotate=`: False, True for the default folder, or a folder."""
    require_type("rs.capture: annotate", given, (bool, str, Path), "True, or a folder for the traces of captures")
    if isinstance(given, bool):
        return _TRACE_FOLDER if given else ""
    return str(given)


def parse_eager_modules(given: object) -> tuple[Any, ...] | str:
    """Convert the value of `eager_modules=`: 'auto', or names of modules."""
    if given == "auto":
        return "auto"
    require_type("rs.capture: eager_modules", given, (list, tuple), "'auto', or a list of modules or their names")
    return tuple(given)  # type: ignore[arg-type]


def parse_buckets(given: Mapping[str, Bucket | Sequence[Bucket]] | None) -> dict[str, tuple[Bucket, ...]]:
    """Return a tuple of buckets for each argument; one bucket may be given without a list."""
    return {
        name: (buckets,) if isinstance(buckets, Bucket) else tuple(buckets) for name, buckets in (given or {}).items()
    }


def _require_one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UnknownNameError(name, value, known, is_argument=True)
