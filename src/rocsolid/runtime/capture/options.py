"""What a user may say about a capture, checked as soon as it is said."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocsolid.errors import UnknownNameError, UsageError
from rocsolid.model.bucket import Bucket
from rocsolid.model.capture_rule import Runtime
from rocsolid.numerics import Tolerance

_OUTPUTS = ("clone", "alias", "out")
_ON_ERROR = ("eager", "raise")
_POOLS = ("auto", "shared", "per-graph")
_UNPAD = ("auto", "never")
_BACKENDS = ("auto", "device", "record", "eager")


@dataclass(frozen=True, kw_only=True)
class Verify:
    """When a replay is compared with eager."""

    rounds: int = 2  # before the first result is handed out
    calls: int | None = None  # and then every so many calls
    ignore: tuple[str, ...] = ()  # results that are not compared, such as 'result[1]'


def every(calls: int, *, rounds: int = 2, ignore: Sequence[str] = ()) -> Verify:
    """Compare a replay with eager before the first result is handed out, and again every so many calls.

    Args:
        calls: how many replays lie between two comparisons.
        rounds: comparisons before the first result, each with inputs of its own.
        ignore: results that are not compared, by their path: `result[1]`.

    Example:
        >>> import rocsolid as rs
        >>> rs.every(1000).calls
        1000

    """
    if calls < 1:
        msg = f"every({calls}): a replay is compared every 1, 2 or more calls"
        raise UsageError(msg)
    return Verify(rounds=rounds, calls=calls, ignore=tuple(ignore))


@dataclass(frozen=True, kw_only=True)
class Options:
    """Everything but the function."""

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
    pieces: tuple[Any, ...] = ()
    backward: bool = False
    keep_graph: bool = False
    plays: str = ""

    def __post_init__(self) -> None:
        _one_of("outputs", self.outputs, _OUTPUTS)
        _one_of("on_error", self.on_error, _ON_ERROR)
        _one_of("pool", self.pool, _POOLS)
        _one_of("unpad", self.unpad, _UNPAD)
        _one_of("backend", self.backend, _BACKENDS)
        if self.plays:
            _one_of("plays", self.plays, tuple(runtime.value for runtime in Runtime))
        if self.plays and self.backend != "record":
            msg = f"plays={self.plays!r} goes with backend='record' alone: a device has rules of its own"
            raise UsageError(msg)
        if self.max_graphs < 0 or self.warmups < 1:
            msg = f"max_graphs={self.max_graphs} must be at least 0, and warmups={self.warmups} at least 1"
            raise UsageError(msg)
        if self.backward and (self.pieces or self.buckets or self.outputs == "out"):
            msg = "backward=True goes with neither buckets, pieces nor outputs='out'"
            raise UsageError(msg)

    @property
    def tolerance(self) -> Tolerance:
        """How much a replay may differ from eager."""
        return Tolerance(rtol=self.rtol, atol=self.atol, ignore=self.verify.ignore)


def verify_of(given: object) -> Verify:
    """What `verify=` means: 'first', 'off', or `rs.every(n)`."""
    if isinstance(given, Verify):
        return given
    _one_of("verify", str(given), ("first", "off"))
    return Verify() if given == "first" else Verify(rounds=0)


def buckets_of(given: Mapping[str, Bucket | Sequence[Bucket]] | None) -> dict[str, tuple[Bucket, ...]]:
    """Buckets by argument, one or several for each."""
    return {
        name: (buckets,) if isinstance(buckets, Bucket) else tuple(buckets) for name, buckets in (given or {}).items()
    }


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UnknownNameError(name, value, known)
