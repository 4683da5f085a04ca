"""Buckets: the sizes that a changing dimension is padded to."""

import random
from itertools import combinations

import pytest

from rocsolid.errors import UsageError
from rocsolid.model.bucket import Bucket


def test_powers_and_multiples_end_with_the_largest_size() -> None:
    assert Bucket.powers_of_two(100, smallest=16).sizes == (16, 32, 64, 100)
    assert Bucket.powers_of_two(64, smallest=16).sizes == (16, 32, 64)
    assert Bucket.powers_of_two(8).sizes == (1, 2, 4, 8)
    assert Bucket.multiples_of(64, 200).sizes == (64, 128, 192, 200)
    assert Bucket.multiples_of(64, 128).sizes == (64, 128)
    assert (Bucket.powers_of_two(8, dim=1, pad=3, too_long="grow").dim, Bucket.multiples_of(2, 4, pad=3).pad) == (1, 3)


def waste(sizes: tuple[int, ...], lengths: list[int]) -> int:
    return sum(min(size for size in sizes if size >= length) - length for length in lengths)


@pytest.mark.parametrize("seed", range(20))
def test_from_lengths_pads_as_little_as_possible(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - not used for security
    lengths = [rng.randint(1, 12) for _ in range(rng.randint(1, 30))]
    count = rng.randint(1, 5)
    chosen = tuple(Bucket.from_lengths(lengths, count).sizes)
    distinct = sorted(set(lengths))
    every = (
        (*some, distinct[-1]) for many in range(min(count, len(distinct))) for some in combinations(distinct[:-1], many)
    )

    assert len(chosen) <= count
    assert waste(chosen, lengths) == min(waste(sizes, lengths) for sizes in every)


def test_refuses_empty_samples_and_counts() -> None:
    for sample, count in (([], 3), ([0, -1], 3), ([5], 0)):
        with pytest.raises(UsageError):
            Bucket.from_lengths(sample, count)
    with pytest.raises(UsageError):
        Bucket.multiples_of(0, 10)
