"""Decoding by category gives the same events as decoding by phase."""

import json
from typing import Any

import pytest
from tests.trace.data import call, host, kernel

pytest.importorskip("msgspec")
np = pytest.importorskip("numpy")

from rocsolid.trace.readers.event_decoder import DECODER, EventDecoder
from rocsolid.trace.readers.kineto_columns import KinetoColumnBuilder

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
    "an instant event with a known category": {"ph": "i", "cat": "cpu_op", "name": "x", "ts": 1.5},
    "a function with phase B": {**FUNCTION, "ph": "B"},
    "a custom category": {**FUNCTION, "cat": "mine"},
    "a metadata event without a category": {
        "ph": "M",
        "name": "thread_name",
        "pid": 1,
        "tid": 2,
        "args": {"name": "main"},
    },
}


def text_of(*events: dict[str, Any]) -> bytes:
    """JSON with the times, which are text in the data, as numbers."""
    numbers = [{**e, **{key: float(e[key]) for key in ("ts", "dur") if e.get(key) is not None}} for e in events]
    return json.dumps(numbers).encode()


def gathered(text: bytes, *, decoder: EventDecoder | None) -> tuple[Any, ...]:
    builder = KinetoColumnBuilder()
    kept, functions = decoder.decode(text) if decoder else (DECODER.decode(text), 0)
    builder.add(kept)
    if functions:
        builder.add_unused("python_function", functions)
    tables = {
        f"{name}.{column}": values.tolist()
        for name, table in builder.tables().items()
        for column, values in vars(table).items()
    }
    names = [list(builder.names)[number] for number in tables["device.name"]]
    for words in ("device.name", "calls.name", "ops.name", "annotations.name"):  # ids depend on the order of events
        tables.pop(words)
    return tables, names, builder.events, builder.unusable, builder.unused_events, builder.thread_names


@pytest.mark.parametrize("more", [None, *UNUSUAL])
def test_both_decoders_give_the_same_columns(more: str | None) -> None:
    text = text_of(*USUAL, *([UNUSUAL[more]] if more else []))
    decoder = EventDecoder()
    decoder.has_functions = True
    seen, expected = gathered(text, decoder=decoder), gathered(text, decoder=None)

    assert seen == expected
    assert expected[1] == ["first", "Memcpy HtoD", "third"]
    unusable = 2 if more == "a function with phase B" else 1  # it has no end
    assert (expected[3], expected[4]["phase f"], expected[4]["python_function"]) == (unusable, 2, 2)


def test_python_functions_are_left_out_after_the_first_were_seen() -> None:
    decoder, text = EventDecoder(), text_of(*USUAL)

    assert (len(decoder.decode(text)[0]), decoder.has_functions) == (len(USUAL), True)
    kept, functions = decoder.decode(text)
    assert (len(kept), functions) == (len(USUAL) - 2, 2)
