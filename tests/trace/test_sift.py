"""Events told apart by category are the same events as those told apart by phase."""

import json
from typing import Any

import pytest
from tests.trace.data import call, host, kernel

pytest.importorskip("msgspec")
np = pytest.importorskip("numpy")

from rocsolid.trace.event_columns import Gatherer
from rocsolid.trace.skip_python_events import PLAIN, Sieve

FUNCTION = host("python_function", "train.py(10): step", "1.000", "90.000")
FLOWS: list[dict[str, Any]] = [{"ph": phase, "cat": "ac2g", "name": "ac2g", "id": 1, "ts": 2.5} for phase in "sff"]
USUAL: list[dict[str, Any]] = [
    FUNCTION,
    host("cpu_op", "aten::mm", "1.500", "8.000", 7),
    call("2.000", "1.000", 1),
    *FLOWS,
    kernel("10.000", "5.000", 1, name="first"),
    {**kernel("11.000", "5.000", 2, name="Memcpy HtoD"), "cat": "gpu_memcpy"},
    FUNCTION,
    kernel("12.000", "5.000", 3, name="third"),
    {**kernel("13.000", "5.000", 4), "dur": None},
]
UNUSUAL: dict[str, dict[str, Any]] = {
    "a moment of a known category": {"ph": "i", "cat": "cpu_op", "name": "x", "ts": 1.5},
    "a function that only begins": {**FUNCTION, "ph": "B"},
    "a category of somebody's own": {**FUNCTION, "cat": "mine"},
    "a name without a category": {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "main"}},
}


def text_of(*events: dict[str, Any]) -> bytes:
    """The data hold times as text, to be written without quotes."""
    numbers = [{**e, **{key: float(e[key]) for key in ("ts", "dur") if e.get(key) is not None}} for e in events]
    return json.dumps(numbers).encode()


def gathered(text: bytes, *, sieve: Sieve | None) -> tuple[Any, ...]:
    gatherer = Gatherer()
    kept, functions = sieve.decode(text) if sieve else (PLAIN.decode(text), 0)
    gatherer.take(kept)
    if functions:
        gatherer.leave("python_function", functions)
    tables = {
        f"{name}.{column}": values.tolist()
        for name, table in gatherer.tables().items()
        for column, values in vars(table).items()
    }
    names = [list(gatherer.names)[number] for number in tables["device.name"]]
    for words in ("device.name", "calls.name", "ops.name", "notes.name"):  # numbered in the order of being met
        tables.pop(words)
    return tables, names, gatherer.events, gatherer.unusable, gatherer.set_aside, gatherer.thread_names


@pytest.mark.parametrize("more", [None, *UNUSUAL])
def test_by_category_and_by_phase_agree(more: str | None) -> None:
    text = text_of(*USUAL, *([UNUSUAL[more]] if more else []))
    sieve = Sieve()
    sieve.functions = True
    seen, expected = gathered(text, sieve=sieve), gathered(text, sieve=None)

    assert seen == expected
    assert expected[1] == ["first", "Memcpy HtoD", "third"]
    assert (expected[3], expected[4]["phase f"], expected[4]["python_function"]) == (1, 2, 2)


def test_functions_are_left_out_once_some_were_seen() -> None:
    sieve, text = Sieve(), text_of(*USUAL)

    assert (len(sieve.decode(text)[0]), sieve.functions) == (len(USUAL), True)
    kept, functions = sieve.decode(text)
    assert (len(kept), functions) == (len(USUAL) - 2, 2)
