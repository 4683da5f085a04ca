"""Tables that grow: nothing is lost or cut off on the way."""

import numpy as np
import pytest

from rocsolid.trace import columns
from rocsolid.trace.columns import Growing, HostEvents


def some(count: int, correlation: int, dtype: type[np.signedinteger] = np.int64) -> HostEvents:
    numbers = np.arange(count, dtype=np.int64)
    return HostEvents(
        start=numbers,
        end=numbers + 2**50,
        name=numbers.astype(np.int32),
        thread=numbers.astype(np.int32),
        correlation=np.full(count, correlation, dtype=dtype),
        external=np.full(count, -1, dtype=dtype),
    )


def test_numbers_take_four_bytes_until_one_needs_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_PARTS", 2)
    growing = Growing(HostEvents)
    for part in (some(3, 7), some(2, 2**31 - 1), some(4, 2**31), some(1, 2**62)):
        growing.add(part)
    table = growing.whole()

    assert table.correlation.tolist() == [7] * 3 + [2**31 - 1] * 2 + [2**31] * 4 + [2**62]
    assert table.external.tolist() == [-1] * 10
    assert table.start.tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 3, 0]
    assert table.end.tolist() == [n + 2**50 for n in table.start.tolist()]
    assert table.external.dtype == np.int32  # as it began
    assert table.correlation.dtype == table.start.dtype == np.int64


def test_a_table_goes_on_from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_PARTS", 1)
    growing = Growing(HostEvents, some(3, 5, np.int32))
    growing.add(some(2, 2**40))
    table = growing.whole()

    assert table.correlation.tolist() == [5, 5, 5, 2**40, 2**40]
    assert table.name.tolist() == [0, 1, 2, 0, 1]
    assert len(Growing(HostEvents).whole()) == 0
