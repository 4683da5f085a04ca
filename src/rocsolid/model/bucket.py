"""`rs.Bucket`: sizes that a changing dimension is padded to, so that few graphs serve many lengths."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass

from rocsolid.errors import UnknownNameError, UsageError

_OVER = ("eager", "grow")


@dataclass(frozen=True)
class Bucket:
    """One dimension of one argument: the sizes it is padded to, and the padding value.

    `over` decides about lengths beyond the largest size: "eager" runs them in eager, "grow" pads them to a multiple of the
    largest size.

    Example:
        >>> Bucket(dim=1, sizes=[64, 128, 256], pad=0).fit(100)
        128

    """

    dim: int
    sizes: Sequence[int]
    pad: float = 0
    _: KW_ONLY
    over: str = "eager"

    def __post_init__(self) -> None:
        sizes = tuple(sorted(set(self.sizes)))
        if not sizes or sizes[0] < 1 or not all(isinstance(size, int) for size in sizes):
            msg = f"rs.Bucket(sizes={list(self.sizes)}): sizes must be integers of at least 1"
            raise UsageError(msg)
        if self.over not in _OVER:
            raise UnknownNameError(kind="over", name=self.over, known=_OVER)
        object.__setattr__(self, "sizes", sizes)

    def fit(self, length: int) -> int | None:
        """The size that a length is padded to; None for an empty dimension or beyond the largest size."""
        if length < 1:
            return None
        if length <= self.sizes[-1]:
            return self.sizes[bisect_left(self.sizes, length)]
        return -(-length // self.sizes[-1]) * self.sizes[-1] if self.over == "grow" else None

    @classmethod
    def powers(cls, upto: int, *, least: int = 1, dim: int = 0, pad: float = 0, over: str = "eager") -> "Bucket":
        """Powers of two from `least` up, and `upto` itself: `Bucket.powers(100, least=16)` is 16, 32, 64, 100."""
        size, sizes = least, []
        while 0 < size < upto:
            sizes.append(size)
            size *= 2
        return cls(dim, (*sizes, upto), pad, over=over)

    @classmethod
    def every(cls, step: int, upto: int, *, dim: int = 0, pad: float = 0, over: str = "eager") -> "Bucket":
        """Every multiple of `step`, and `upto` itself: `Bucket.every(64, 200)` is 64, 128, 192, 200."""
        if step < 1:
            msg = f"rs.Bucket.every({step}, ...): the step must be at least 1"
            raise UsageError(msg)
        return cls(dim, (*range(step, upto, step), upto), pad, over=over)

    @classmethod
    def from_lengths(
        cls, sample: Iterable[int], count: int, *, dim: int = 0, pad: float = 0, over: str = "eager"
    ) -> "Bucket":
        """The `count` sizes with the least padding for a sample of lengths; the largest length is always one of them."""
        lengths = sorted(length for length in sample if length > 0)
        if not lengths or count < 1:
            msg = "rs.Bucket.from_lengths needs at least one positive length and count >= 1"
            raise UsageError(msg)
        return cls(dim, _least_waste(lengths, count), pad, over=over)


def _least_waste(lengths: list[int], count: int) -> tuple[int, ...]:
    """The exact optimum, by dynamic programming over the distinct lengths.

    `best[j]` is the least padding when distinct length `j` is the largest bucket so far; each round allows one more bucket.
    """
    distinct = sorted(set(lengths))
    upto = [0]  # how many lengths of the sample are at most the i-th distinct length
    total = [0]  # and their sum
    position = 0
    for size in distinct:
        while position < len(lengths) and lengths[position] <= size:
            position += 1
        upto.append(position)
        total.append(total[-1] + size * (position - upto[-2]))

    def waste(first: int, last: int) -> int:
        return distinct[last] * (upto[last + 1] - upto[first]) - (total[last + 1] - total[first])

    many = len(distinct)
    best = [waste(0, last) for last in range(many)]
    chosen: list[list[int]] = [[last] for last in range(many)]
    for _ in range(min(count, many) - 1):
        step = [
            min(((best[cut] + waste(cut + 1, last), cut) for cut in range(last)), default=(best[last], -1))
            for last in range(many)
        ]
        better = [cost < best[last] for last, (cost, _cut) in enumerate(step)]
        chosen = [[*chosen[cut], last] if better[last] else chosen[last] for last, (_cost, cut) in enumerate(step)]
        best = [min(cost, best[last]) for last, (cost, _cut) in enumerate(step)]
    return tuple(distinct[index] for index in chosen[-1])
