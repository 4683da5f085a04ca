"""Damaged files and files that are not traces: complete events are read, broken ones are counted, no traceback."""

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
from rocsolid.trace.analysis.analyze import analyze_trace
from rocsolid.trace.read import read_trace
from rocsolid.trace.readers.bytestream import ByteStream

pytestmark = pytest.mark.usefixtures("reader")

REAL_TRACES = [
    "mi300x_resnet_train_checkpoint.json.gz",
    "mi300x_sglang_decode_hipgraph.json.gz",
    "a100_train_cudagraph.json.gz",
]


def damage_one_kernel(text: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Damage one kernel in the middle of a trace."""
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
    return analyze_trace(file, read_trace(folder / file))


@pytest.mark.parametrize("trace_name", REAL_TRACES)
@pytest.mark.parametrize("damage", IN_ONE_EVENT)
def test_one_broken_event_is_skipped_and_all_others_are_read(tmp_path: Path, trace_name: str, damage: str) -> None:
    text = gzip.decompress(real(trace_name).read_bytes())
    trace = read(tmp_path, damage_one_kernel(text, IN_ONE_EVENT[damage]))
    (truth,) = TRUTH[trace_name]["devices"].values()

    assert trace.skipped_events == 1
    assert trace.devices[0].kernel_count == truth["kernel_count"] - 1
    assert trace.devices[0].copy_bytes == truth["copy_bytes"]
    assert trace.events == TRUTH[trace_name]["events"]
    assert trace.damage == ()


def test_unused_events_are_checked_too(tmp_path: Path) -> None:
    """Python functions are not used, but broken ones are counted."""
    events = [data.host("python_function", f"f{n}", f"{n}.000", "1.000") for n in range(1, 11)]
    text = LAYOUTS["kineto"]([*events, kernel("5.000", "1.000", 1)])
    trace = read(tmp_path, text.replace('"f5"', '"f"5"').encode())

    assert (trace.skipped_events, trace.events, trace.unused_events["python_function"]) == (1, 11, 9)


@pytest.mark.parametrize("trace_name", REAL_TRACES)
def test_a_truncated_file_is_read_up_to_the_end(tmp_path: Path, trace_name: str) -> None:
    text = gzip.decompress(real(trace_name).read_bytes())
    at = [m.start() for m in re.finditer(rb'"cat": "kernel"', text)][100]
    trace = read(tmp_path, text[: at + 40])

    assert trace.devices[0].kernel_count == 100
    assert trace.skipped_events == 1
    assert trace.damage == ("the file is truncated: the list of events does not end",)


@pytest.mark.parametrize("trace_name", REAL_TRACES)
def test_gzip_data_is_read_up_to_the_damage(tmp_path: Path, trace_name: str) -> None:
    raw = real(trace_name).read_bytes()
    whole = TRUTH[trace_name]["events"]
    cut = read(tmp_path, raw[: len(raw) * 9 // 10], "t.json.gz")
    broken = bytearray(raw)
    broken[len(raw) * 9 // 10 : len(raw) * 9 // 10 + 64] = bytes(64)
    damaged = read(tmp_path, bytes(broken), "t.json.gz")

    assert 0.5 * whole < cut.events < whole
    assert cut.damage[0].startswith("the gzip data ends early, after ")
    assert cut.damage[1] == "the file is truncated: the list of events does not end"
    for trace in (cut, damaged):
        assert trace.skipped_events >= 1
        assert trace.events - trace.skipped_events > 0.5 * whole
        assert trace.damage[0].startswith("the gzip data ")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_broken_first_middle_or_last_event_in_every_layout(tmp_path: Path, layout: str) -> None:
    events = [kernel(f"{n}.000", "0.500", n) for n in range(1, 31)]
    text = LAYOUTS[layout](events)
    for number in (1, 15, 30):
        trace = read(tmp_path, re.sub(rf'(\W"ts": ?{number}\.000\b)', r'\1 "', text).encode())

        # When the devices are listed after a broken last event, one of them may be taken for an event.
        extra = int(layout == "events first" and number == 30)
        assert (trace.skipped_events, trace.devices[0].kernel_count) == (1 + extra, 29), number
        assert trace.events == 30 + extra


def test_a_missing_comma_loses_no_event(tmp_path: Path) -> None:
    events = [kernel(f"{n}.000", "0.500", n) for n in range(1, 31)]
    text = LAYOUTS["kineto"](events)
    borders = [m.start() for m in re.finditer(r"\},\n  \{", text)]
    damaged = text[: borders[9] + 1] + text[borders[9] + 2 :]

    assert read(tmp_path, damaged.encode()).devices[0].kernel_count == 30


def test_a_repeated_correlation_id_links_to_the_latest_call(tmp_path: Path) -> None:
    events = [data.call("1.000", "1.000", 7), kernel("3.000", "1.000", 7)]
    events += [data.call("11.000", "1.000", 7), kernel("13.000", "1.000", 7)]
    trace = read(tmp_path, LAYOUTS["kineto"](events).encode())
    (gap,) = trace.devices[0].gaps

    assert gap.cause.value == "late-launch"  # with the first call it would be "queued"
    assert trace.devices[0].launches.launch_count == 2


def test_a_clock_jump_is_reported(tmp_path: Path) -> None:
    events = [kernel(f"{n}.000", "0.500", n) for n in (1, 2, 300_000_000_000)]

    assert (
        "the clock of device 0 probably jumped: one gap of 300000 s"
        in read(tmp_path, LAYOUTS["kineto"](events).encode()).damage[0]
    )


def test_a_trace_without_gpu_work_has_no_devices(tmp_path: Path) -> None:
    trace = read(tmp_path, LAYOUTS["kineto"]([data.host("cpu_op", "aten::mm", "1.000", "1.000")]).encode())

    assert (trace.devices, trace.events) == ((), 1)


def test_an_empty_list_of_events_is_a_trace(tmp_path: Path) -> None:
    assert read(tmp_path, b'{"traceEvents": []}').events == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"<!doctype html><html><body>Sign in</body></html>", "is a web page, not a trace"),
        (b'{"a": 1}', "is not a trace: it has no"),
        (b"{", "is not a trace: it has no"),
        (b"PK\x03\x04", "is a zip archive; unpack it first"),
        (b"\x28\xb5\x2f\xfd123", "is compressed with zstd"),
        (b"hello, world", "is not a supported trace"),
        (packed(b"<html>"), "is a web page"),
        (b"\x1f\x8b\x08\x00garbage", "is empty"),
    ],
)
def test_other_files_are_an_input_error(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.json").write_bytes(content)

    with pytest.raises(InputError, match=message):
        read_trace(tmp_path / "x.json")


def test_a_decompression_bomb_is_stopped(tmp_path: Path) -> None:
    """300 MB of spaces in 300 kB."""
    import zlib

    packer = zlib.compressobj(9, wbits=31)
    parts = [packer.compress(b'{"traceEvents": [')]
    parts += [packer.compress(b" " * (1 << 20)) for _ in range(300)]
    (tmp_path / "bomb.json.gz").write_bytes(b"".join([*parts, packer.flush()]))
    trace = analyze_trace("bomb", read_trace(tmp_path / "bomb.json.gz"))

    assert trace.devices == ()
    assert any("decompresses to more than 400 times its size" in text for text in trace.damage)


@pytest.mark.parametrize("seed", range(4))
def test_random_damage_raises_nothing_but_input_errors(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - no secret
    events = [e for n in range(1, 30) for e in (data.call(f"{n}.000", "0.100", n), kernel(f"{n}.200", "0.500", n))]
    texts = [write(events).encode() for write in LAYOUTS.values()]
    texts.append(
        b'"Kind","Agent_Id","Kernel_Name","Start_Timestamp","End_Timestamp"\n' + b'"K","Agent 4","k",1,2\n' * 30
    )
    fragments = (b'"', b"{", b"}", b"]", b"[", b",", b"nan", b"null", b"-1", b"1e9999", b"\\u12", b"\r", b"9" * 25)
    for _ in range(40):
        text = bytearray(rng.choice(texts))
        for _ in range(rng.choice((1, 5, 50))):
            at = rng.randrange(len(text))
            if rng.random() < 0.5:
                text[at] = rng.randrange(256)
            else:
                text[at : at + rng.choice((0, 0, 40))] = rng.choice(fragments)
        with contextlib.suppress(InputError):
            assert read(tmp_path, bytes(text)).events >= 0


def test_at_most_64_kb_of_text_is_lost_before_broken_gzip_data(tmp_path: Path) -> None:
    """Text is decompressed in large chunks; a chunk that fails is read again in small ones."""
    text = "".join(f"{number * number}," for number in range(400_000)).encode()
    packed = gzip.compress(text)
    middle = len(packed) // 2
    (tmp_path / "t.gz").write_bytes(packed[:middle] + b"\x00" * 64 + packed[middle + 64 :])
    stream = ByteStream(tmp_path / "t.gz", read_ahead=False)
    found = b"".join(stream)
    small = b"".join(ByteStream(tmp_path / "t.gz", read_ahead=False)._decompressed_chunks(1 << 16))

    assert stream.damage.startswith("the gzip data is broken after")
    assert found == small
    assert text.startswith(found[: len(text) // 3])
    assert len(found) > len(text) // 3
