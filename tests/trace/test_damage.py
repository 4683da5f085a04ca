"""Damaged and foreign files: what can be read is read, what cannot is counted and said; never a traceback."""

import contextlib
import gzip
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.trace import data
from tests.trace.data import LAYOUTS, TRUTH, kernel, packed, real

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.errors import InputError
from rocsolid.model.trace import TraceFile
from rocsolid.trace.analysis import answer
from rocsolid.trace.bytestream import ByteStream
from rocsolid.trace.read import read_trace

pytestmark = pytest.mark.usefixtures("reader")

VICTIMS = [
    "mi300x_resnet_train_checkpoint.json.gz",
    "mi300x_sglang_decode_hipgraph.json.gz",
    "a100_train_cudagraph.json.gz",
]


def spoil(text: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Change one kernel in the middle of a trace."""
    starts = [m.start() for m in re.finditer(rb'"cat": "kernel"', text)]
    at = starts[len(starts) // 2]
    end = text.index(b'"args"', at)
    changed = change(text[at:end])
    assert changed != text[at:end]
    return text[:at] + changed + text[end:]


def name(new: bytes) -> Callable[[bytes], bytes]:
    return lambda event: re.sub(rb'"name": "(.)', lambda m: b'"name": "' + m.group(1) + new, event)


def length(new: bytes) -> Callable[[bytes], bytes]:
    return lambda event: re.sub(rb'"dur": [\d.]+', b'"dur": ' + new, event)


IN_ONE_EVENT = {
    "quote": name(b'"'),
    "control character": name(b"\x01"),
    "bad UTF-8": name(b"\xff\xfe"),
    "bad escape": name(b"\\q"),
    "NaN": length(b"NaN"),
    "nan": length(b"nan"),
    "infinity": length(b"inf"),
    "null": length(b"null"),
    "text": length(b'"long"'),
    "negative": length(b"-5.0"),
    "missing": lambda event: re.sub(rb'"dur": [\d.]+,?', b'"end": 1,', event),
    "huge": length(b"1e300"),
    "newline": name(b"\n"),
}


def read(folder: Path, content: bytes, file: str = "t.json") -> TraceFile:
    (folder / file).write_bytes(content)
    return answer(file, read_trace(folder / file))


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("damage", IN_ONE_EVENT)
def test_one_broken_event_is_lost_alone(tmp_path: Path, victim: str, damage: str) -> None:
    text = gzip.decompress(real(victim).read_bytes())
    trace = read(tmp_path, spoil(text, IN_ONE_EVENT[damage]))
    (truth,) = TRUTH[victim]["devices"].values()

    assert trace.skipped_events == 1
    assert trace.devices[0].kernel_count == truth["kernel_count"] - 1
    assert trace.devices[0].copy_bytes == truth["copy_bytes"]
    assert trace.events == TRUTH[victim]["events"]
    assert trace.damage == ()


def test_what_is_set_aside_is_checked_too(tmp_path: Path) -> None:
    """Python functions have no part in the answers, and still none of them is lost without a word."""
    events = [data.host("python_function", f"f{n}", f"{n}.000", "1.000") for n in range(1, 11)]
    text = LAYOUTS["kineto"]([*events, kernel("5.000", "1.000", 1)])
    trace = read(tmp_path, text.replace('"f5"', '"f"5"').encode())

    assert (trace.skipped_events, trace.events, trace.set_aside["python_function"]) == (1, 11, 9)


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_file_cut_in_the_middle_of_an_event_gives_its_beginning(tmp_path: Path, victim: str) -> None:
    text = gzip.decompress(real(victim).read_bytes())
    at = [m.start() for m in re.finditer(rb'"cat": "kernel"', text)][100]
    trace = read(tmp_path, text[: at + 40])

    assert trace.devices[0].kernel_count == 100
    assert trace.skipped_events == 1
    assert trace.damage == ("the list of events has no end: the file was cut off",)


@pytest.mark.parametrize("victim", VICTIMS)
def test_gzip_that_ends_early_or_is_broken_gives_its_beginning(tmp_path: Path, victim: str) -> None:
    raw = real(victim).read_bytes()
    whole = TRUTH[victim]["events"]
    cut = read(tmp_path, raw[: len(raw) * 9 // 10], "t.json.gz")
    broken = bytearray(raw)
    broken[len(raw) * 9 // 10 : len(raw) * 9 // 10 + 64] = bytes(64)
    spoilt = read(tmp_path, bytes(broken), "t.json.gz")

    assert 0.5 * whole < cut.events < whole
    assert cut.damage[0].startswith("the gzip data end early, after ")
    assert cut.damage[1] == "the list of events has no end: the file was cut off"
    for trace in (cut, spoilt):
        assert trace.skipped_events >= 1
        assert trace.events - trace.skipped_events > 0.5 * whole
        assert trace.damage[0].startswith("the gzip data ")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_survives_a_broken_first_middle_and_last_event(tmp_path: Path, layout: str) -> None:
    events = [kernel(f"{n}.000", "0.500", n) for n in range(1, 31)]
    text = LAYOUTS[layout](events)
    for number in (1, 15, 30):
        trace = read(tmp_path, re.sub(rf'(\W"ts": ?{number}\.000\b)', r'\1 "', text).encode())

        # Where devices are listed behind a broken last event, one of them may be taken for an event.
        extra = int(layout == "events first" and number == 30)
        assert (trace.skipped_events, trace.devices[0].kernel_count) == (1 + extra, 29), number
        assert trace.events == 30 + extra


def test_a_missing_comma_costs_nothing_else(tmp_path: Path) -> None:
    events = [kernel(f"{n}.000", "0.500", n) for n in range(1, 31)]
    text = LAYOUTS["kineto"](events)
    borders = [m.start() for m in re.finditer(r"\},\n  \{", text)]
    spoilt = text[: borders[9] + 1] + text[borders[9] + 2 :]

    assert read(tmp_path, spoilt.encode()).devices[0].kernel_count == 30


def test_ids_used_twice_link_to_the_call_before(tmp_path: Path) -> None:
    events = [data.call("1.000", "1.000", 7), kernel("3.000", "1.000", 7)]
    events += [data.call("11.000", "1.000", 7), kernel("13.000", "1.000", 7)]
    trace = read(tmp_path, LAYOUTS["kineto"](events).encode())
    (gap,) = trace.devices[0].gaps

    assert gap.cause.value == "host-late"  # the first call would make it "queued"
    assert trace.devices[0].launches.launch_count == 2


def test_a_clock_that_jumps_is_said(tmp_path: Path) -> None:
    events = [kernel(f"{n}.000", "0.500", n) for n in (1, 2, 300_000_000_000)]

    assert "the clock of device 0 jumps by 300000 s" in read(tmp_path, LAYOUTS["kineto"](events).encode()).damage[0]


def test_a_trace_without_device_has_no_devices(tmp_path: Path) -> None:
    trace = read(tmp_path, LAYOUTS["kineto"]([data.host("cpu_op", "aten::mm", "1.000", "1.000")]).encode())

    assert (trace.devices, trace.events) == ((), 1)


def test_an_empty_list_of_events_is_a_trace(tmp_path: Path) -> None:
    assert read(tmp_path, b'{"traceEvents": []}').events == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"<!doctype html><html><body>Sign in</body></html>", "is a web page, not a trace"),
        (b'{"a": 1}', "holds no list of trace events"),
        (b"{", "holds no list of trace events"),
        (b"PK\x03\x04", "is a zip archive; unpack it first"),
        (b"\x28\xb5\x2f\xfd123", "is packed with zstd"),
        (b"hello, world", "is no trace that we know"),
        (packed(b"<html>"), "is a web page"),
        (b"\x1f\x8b\x08\x00garbage", "is empty"),
    ],
)
def test_foreign_files_are_refused_in_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "x.json").write_bytes(content)

    with pytest.raises(InputError, match=says):
        read_trace(tmp_path / "x.json")


def test_a_bomb_is_given_up(tmp_path: Path) -> None:
    """300 MB of spaces in 300 kB: no memory, no time, one line."""
    import zlib

    packer = zlib.compressobj(9, wbits=31)
    parts = [packer.compress(b'{"traceEvents": [')]
    parts += [packer.compress(b" " * (1 << 20)) for _ in range(300)]
    (tmp_path / "bomb.json.gz").write_bytes(b"".join([*parts, packer.flush()]))
    trace = answer("bomb", read_trace(tmp_path / "bomb.json.gz"))

    assert trace.devices == ()
    assert any("unpack to more than 400 times their size" in text for text in trace.damage)


@pytest.mark.parametrize("seed", range(4))
def test_damage_at_random_never_raises_anything_but_a_clear_refusal(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    events = [e for n in range(1, 30) for e in (data.call(f"{n}.000", "0.100", n), kernel(f"{n}.200", "0.500", n))]
    texts = [write(events).encode() for write in LAYOUTS.values()]
    texts.append(
        b'"Kind","Agent_Id","Kernel_Name","Start_Timestamp","End_Timestamp"\n' + b'"K","Agent 4","k",1,2\n' * 30
    )
    splinters = (b'"', b"{", b"}", b"]", b"[", b",", b"nan", b"null", b"-1", b"1e9999", b"\\u12", b"\r", b"9" * 25)
    for _ in range(40):
        text = bytearray(chance.choice(texts))
        for _ in range(chance.choice((1, 5, 50))):
            at = chance.randrange(len(text))
            if chance.random() < 0.5:
                text[at] = chance.randrange(256)
            else:
                text[at : at + chance.choice((0, 0, 40))] = chance.choice(splinters)
        with contextlib.suppress(InputError):
            assert read(tmp_path, bytes(text)).events >= 0


def test_no_more_than_a_small_bit_is_lost_before_broken_gzip_data(tmp_path: Path) -> None:
    """Text is unpacked in large pieces; where one fails, it is read once more in small ones."""
    text = "".join(f"{number * number}," for number in range(400_000)).encode()
    packed = gzip.compress(text)
    middle = len(packed) // 2
    (tmp_path / "t.gz").write_bytes(packed[:middle] + b"\x00" * 64 + packed[middle + 64 :])
    stream = ByteStream(tmp_path / "t.gz", alone=True)
    found = b"".join(stream)
    small = b"".join(ByteStream(tmp_path / "t.gz", alone=True)._unpacked_bits(1 << 16))

    assert stream.damage.startswith("the gzip data are broken after")
    assert found == small
    assert text.startswith(found[: len(text) // 3])
    assert len(found) > len(text) // 3
