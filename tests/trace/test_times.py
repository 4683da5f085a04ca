"""Times: exact whatever they look like, and said to be none where they are none."""

from decimal import Decimal
from itertools import product

import pytest

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

import msgspec

from rocsolid.trace.exact_times import durations, nanoseconds

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


def raws(texts: list[str]) -> list[object]:
    return [msgspec.Raw(text.encode()) for text in texts]


@pytest.mark.parametrize(("first", "second"), list(product(GOOD, GOOD + BAD)))
def test_any_two_side_by_side(first: str, second: str) -> None:
    for texts in ([first, second], [second, first], [second], [first] * 3):
        found, good = nanoseconds(raws(texts))  # type: ignore[arg-type]

        assert good.tolist() == [text in GOOD for text in texts]
        for text, ns in zip(texts, found.tolist(), strict=True):
            if text in GOOD:
                assert ns == int(Decimal(text) * 1000)


def test_lengths() -> None:
    found, good = durations([1, 2.5, None, float("nan"), -1, 1e300, 0])

    assert good.tolist() == [True, True, False, False, False, False, True]
    assert found.tolist() == [1000, 2500, 0, 0, 0, 0, 0]
