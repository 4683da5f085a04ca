"""`rs.Bucket`: sizes that a changing dimension is padded to, so that few graphs serve many lengths."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass

from rocsolid.errors import UnknownNameError, UsageError

_TOO_LONG = ("eager", "grow")


@dataclass(frozen=True)
class Bucket:
    """The sizes that one dimension of one argument is padded to, and the padding value.

    `too_long` decides what happens to a length beyond the largest size: with "eager" the call runs in eager, with "grow" the
    dimension is padded to the next multiple of the largest size.

    Example:
        >>> Bucket(dim=1, sizes=[64, 128, 256], pad=0).fit(100)
        128

    """

    dim: int
    sizes: Sequence[int]
    pad: float = 0
    _: KW_ONLY
    too_long: str = "eager"

    def __post_init__(self) -> None:
        sizes = tuple(sorted(set(self.sizes)))
        if not sizes or sizes[0] < 1 or not all(isinstance(size, int) for size in sizes):
            msg = f"rs.Bucket(sizes={list(self.sizes)}): sizes must be integers of at least 1"
            raise UsageError(msg)
        if self.too_long not in _TOO_LONG:
            raise UnknownNameError(kind="too_long", name=self.too_long, known=_TOO_LONG, is_argument=True)
        object.__setattr__(self, "sizes", sizes)

    def fit(self, length: int) -> int | None:
        """The size that a length is padded to; None for an empty dimension or beyond the largest size."""
        if length < 1:
            return None
        if length <= self.sizes[-1]:
            return self.sizes[bisect_left(self.sizes, length)]
        return -(-length // self.sizes[-1]) * self.sizes[-1] if self.too_long == "grow" else None

    @classmethod
    def powers_of_two(
        cls, largest: int, *, smallest: int = 1, dim: int = 0, pad: float = 0, too_long: str = "eager"
    ) -> "Bucket":
        """Return sizes that double from `smallest` on, and `largest` itself.

        Example:
            >>> Bucket.powers_of_two(100, smallest=16).sizes
            (16, 32, 64, 100)

        """
        size, sizes = smallest, []
        while 0 < size < largest:
            sizes.append(size)
            size *= 2
        return cls(dim, (*sizes, largest), pad, too_long=too_long)

    @classmethod
    def multiples_of(
        cls, step: int, largest: int, *, dim: int = 0, pad: float = 0, too_long: str = "eager"
    ) -> "Bucket":
        """Return every multiple of `step` below `largest`, and `largest` itself.

        Example:
            >>> Bucket.multiples_of(64, 200).sizes
            (64, 128, 192, 200)

        """
        if step < 1:
            msg = f"rs.Bucket.multiples_of({step}, ...): the step must be at least 1"
            raise UsageError(msg)
        return cls(dim, (*range(step, largest, step), largest), pad, too_long=too_long)

    @classmethod
    def from_lengths(
        cls, sample: Iterable[int], count: int, *, dim: int = 0, pad: float = 0, too_long: str = "eager"
    ) -> "Bucket":
        """Return the `count` sizes that need the least padding for a sample of lengths.

        The largest length of the sample is always one of them.
        """
        lengths = sorted(length for length in sample if length > 0)
        if not lengths or count < 1:
            msg = "rs.Bucket.from_lengths needs at least one positive length and count >= 1"
            raise UsageError(msg)
        return cls(dim, _sizes_with_least_padding(lengths, count), pad, too_long=too_long)


def _sizes_with_least_padding(lengths: list[int], count: int) -> tuple[int, ...]:
    """Find the exact optimum, by dynamic programming over the distinct lengths.

    `least[j]` is the least total padding of all lengths up to `distinct[j]`, if `distinct[j]` is a bucket size. Each round
    allows one more bucket.
    """
    distinct = sorted(set(lengths))
    counts = [0]  # counts[i]: how many lengths of the sample are smaller than distinct[i]
    sums = [0]  # sums[i]: the sum of these lengths
    position = 0
    for size in distinct:
        while position < len(lengths) and lengths[position] <= size:
            position += 1
        counts.append(position)
        sums.append(sums[-1] + size * (position - counts[-2]))

    def padding(first: int, last: int) -> int:
        """Return the padding when distinct lengths `first` to `last` are all padded to the last one."""
        return distinct[last] * (counts[last + 1] - counts[first]) - (sums[last + 1] - sums[first])

    total = len(distinct)
    least = [padding(0, last) for last in range(total)]
    chosen: list[list[int]] = [[last] for last in range(total)]
    for _ in range(min(count, total) - 1):
        candidates = [  # (padding, index of the bucket before)
            min(((least[cut] + padding(cut + 1, last), cut) for cut in range(last)), default=(least[last], -1))
            for last in range(total)
        ]
        better = [cost < least[last] for last, (cost, _cut) in enumerate(candidates)]
        chosen = [
            [*chosen[cut], last] if better[last] else chosen[last] for last, (_cost, cut) in enumerate(candidates)
        ]
        least = [min(cost, least[last]) for last, (cost, _cut) in enumerate(candidates)]
    return tuple(distinct[index] for index in chosen[-1])
