"""`GrowingTable` keeps all rows and widens columns when a number does not fit."""

import numpy as np
import pytest

from rocsolid.trace import columns
from rocsolid.trace.columns import GrowingTable, HostEvents


def some(count: int, correlation: int, dtype: type[np.signedinteger] = np.int64) -> HostEvents:
    numbers = np.arange(count, dtype=np.int64)
    return HostEvents(
        start=numbers,
        end=numbers + 2**50,
        name=numbers.astype(np.int32),
        thread=numbers.astype(np.int32),
        correlation=np.full(count, correlation, dtype=dtype),
        external=np.full(count, -1, dtype=dtype),
        detail=np.zeros(count, dtype=np.int32),
    )


def test_columns_have_4_bytes_per_number_until_one_needs_8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_PENDING_PARTS", 2)
    growing = GrowingTable(HostEvents)
    for part in (some(3, 7), some(2, 2**31 - 1), some(4, 2**31), some(1, 2**62)):
        growing.add(part)
    table = growing.finish()

    assert table.correlation.tolist() == [7] * 3 + [2**31 - 1] * 2 + [2**31] * 4 + [2**62]
    assert table.external.tolist() == [-1] * 10
    assert table.start.tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 3, 0]
    assert table.end.tolist() == [n + 2**50 for n in table.start.tolist()]
    assert table.external.dtype == np.int32  # not widened
    assert table.correlation.dtype == table.start.dtype == np.int64


def test_a_table_can_start_with_the_rows_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_PENDING_PARTS", 1)
    growing = GrowingTable(HostEvents, some(3, 5, np.int32))
    growing.add(some(2, 2**40))
    table = growing.finish()

    assert table.correlation.tolist() == [5, 5, 5, 2**40, 2**40]
    assert table.name.tolist() == [0, 1, 2, 0, 1]
    assert len(GrowingTable(HostEvents).finish()) == 0
