"""Timestamps of all formats are converted exactly, and invalid ones are marked."""

from decimal import Decimal
from itertools import product

import pytest

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

import msgspec

from rocsolid.trace.readers.exact_times import parse_durations, parse_timestamps

GOOD = [
    "0.000",
    "1.5",
    "-3.250",
    "3743411222894.405",
    "6869181218039.954",
    "1661203463029566",
    "1712195495505582.988",
    "1e3",
]
BAD = ["null", '"7"', "", "1.2.3", "4909-914", "1e300", "1e9999999", "-", "99999999999999999999"]


def to_raw(texts: list[str]) -> list[object]:
    return [msgspec.Raw(text.encode()) for text in texts]


@pytest.mark.parametrize(("first", "second"), list(product(GOOD, GOOD + BAD)))
def test_any_two_timestamps_in_one_batch(first: str, second: str) -> None:
    for texts in ([first, second], [second, first], [second], [first] * 3):
        found, good = parse_timestamps(to_raw(texts))  # type: ignore[arg-type]

        assert good.tolist() == [text in GOOD for text in texts]
        for text, ns in zip(texts, found.tolist(), strict=True):
            if text in GOOD:
                assert ns == int(Decimal(text) * 1000)


def test_durations() -> None:
    found, good = parse_durations([1, 2.5, None, float("nan"), -1, 1e300, 0])

    assert good.tolist() == [True, True, False, False, False, False, True]
    assert found.tolist() == [1000, 2500, 0, 0, 0, 0, 0]
