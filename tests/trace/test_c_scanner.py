"""The C scanner reads the same as the Python reader, or leaves the text to it."""

import ctypes
import importlib
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT, clean_environ, run_cli
from tests.trace import data
from tests.trace.data import LAYOUTS, call, copy, host, kernel

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.measure import user_cache
from rocsolid.trace.readers.c_scanner import Scanner
from rocsolid.trace.readers.event_decoder import DECODER
from rocsolid.trace.readers.kineto_columns import KinetoColumnBuilder

# By name, because the attribute `rocsolid.trace` is the function.
building, kineto, bytestream = (
    importlib.import_module(f"rocsolid.trace.readers.{name}") for name in ("c_scanner_build", "kineto", "bytestream")
)

SOURCE = ROOT / "src/rocsolid/trace/readers/scan/scan.c"
PLAIN_EVENTS = [
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main"}},
    host("cpu_op", "aten::mm", "10.5", "4"),
    {
        **host("cpu_op", "aten::convolution", "10.6", "4"),
        "args": {"Input Dims": [[1, 3], []], "Input type": ["c10::Half", ""], "Concrete Inputs": ["", "[2, 2]"]},
    },
    {**host("cpu_op", "aten::slice", "10.6", "4"), "args": {"Input Dims": [[4]], "Concrete Inputs": ["", "1"]}},
    {**call("10.9", "1", 6), "args": {"correlation": 6, "kernel": "Cijk_x", "dtype": "unused here"}},
    host("python_function", "torch/nn/modules/module.py(1): forward", "10.25", "90"),
    call("11.001", "2.25", 7),
    {"ph": "s", "id": 7, "pid": 1, "tid": 1, "ts": "11", "cat": "ac2g", "name": "ac2g"},
    kernel("20.001", "5.123", 7, args={"grid": [3, 1, 1], "block": [64, 1, 1], "registers per thread": 32}),
    copy("30", "1", 8, 4096),
    kernel("40.1", "0", 9, args={"grid": [3, 1, 1], "block": [64, 1, 1]}),
    kernel("40.2", "1", 9, args={"Collective name": "allreduce", "In msg nelems": 64, "dtype": "BFloat16"}),
    kernel("40.3", "1", 9, args={"Collective name": "a" * 3000}),
    {"ph": "i", "name": "[memory]", "ts": "41.5", "pid": 1, "tid": 1, "args": {"Bytes": 512, "Device Type": 1}},
    host("user_annotation", "ProfilerStep#1", "9", "100"),
    host("Trace", "PyTorch Profiler (0)", "0", "200"),
]


def contents(builder: KinetoColumnBuilder) -> dict[str, Any]:
    """All columns of a builder, with strings instead of ids."""
    found = builder.tables()
    strings = {
        "name": list(builder.names),
        "launch_config": list(builder.launch_configs),
        "thread": list(builder.threads),
        "detail": list(builder.details),
    }
    tables = {}
    for table, rows in found.items():
        columns = {column: values.tolist() for column, values in vars(rows).items()}
        tables[table] = {
            column: [strings[column][value] for value in values] if column in strings else values
            for column, values in columns.items()
        }
    counts = builder.events, builder.unusable, builder.unused_events, builder.thread_names
    return {**tables, "counts": counts}


def by_python(text: bytes) -> dict[str, Any]:
    builder = KinetoColumnBuilder()
    builder.add(DECODER.decode(b"[" + text + b"]"))
    return contents(builder)


def by_scanner(library: ctypes.CDLL, text: bytes, following: bytes = b"") -> dict[str, Any] | None:
    """`None` when the scanner leaves the text to Python; `following`: the text that follows in the file."""
    builder = KinetoColumnBuilder()
    scanner = Scanner(library, builder)
    read = scanner.read(text + following, len(text))
    scanner.flush()
    if not read:
        assert contents(builder) == contents(KinetoColumnBuilder())
        return None
    return contents(builder)


def between_brackets(events: list[data.Event], write: Callable[[list[data.Event]], str]) -> bytes:
    text = write(events)
    start = text.index("[", text.index('"traceEvents"') if '"traceEvents"' in text else 0)
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[start + 1 : end - 1].strip().encode()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("following", [b"", b"}", b' ,\n {"ph": "X"', b"]"])
def test_kineto_events_are_read_as_in_python(native: ctypes.CDLL, layout: str, following: bytes) -> None:
    text = between_brackets(PLAIN_EVENTS, LAYOUTS[layout])

    found = by_scanner(native, text, following)
    assert found == by_python(text)
    assert found["device"]["start"] == [20_001, 30_000, 40_100, 40_200, 40_300]
    assert found["device"]["bytes"] == [-1, 4096, -1, -1, -1]
    assert found["device"]["detail"][-2:] == [b'"allreduce"\x0064\0\0"BFloat16"\0\0', b""]
    assert found["ops"]["detail"][2].count(b"\0") == 4
    assert b"1" not in found["ops"]["detail"][2]


UNUSUAL = {
    "a size as text": copy("1", "1", 1, "512"),
    "a device as text": kernel("1", "1", 1, args={"device": "0"}),
    "no device": {**kernel("1", "1", 1), "args": {"correlation": 1}},
    "a process by name": {**host("cpu_op", "a", "1", "1"), "pid": "Spans"},
    "a stream with decimals": kernel("1", "1", 1, args={"stream": 7.5}),
    "null as a stream": kernel("1", "1", 1, args={"stream": None}),
    "no duration": {key: value for key, value in kernel("1", "1", 1).items() if key != "dur"},
    "a negative duration": kernel("1", "-1", 1),
    "a negative time": kernel("-1", "1", 1),
    "a late time": kernel("9000000000000000", "1", 1),
    "the last time": kernel("8999999999999999.999", "1", 1),
    "more decimals": kernel("1.0001", "1", 1),
    "an exponent": kernel("1e3", "1", 1),
    "a huge number": kernel("1", "1", 1, args={"correlation": 10**30}),
    "a number with a sign": kernel("1", "1", 1, args={"correlation": -5}),
    "the largest number": kernel("1", "1", 1, args={"correlation": 2**63 - 1}),
    "an escape in a name": kernel("1", "1", 1, name='a "b"'),
    "a letter beyond ASCII": kernel("1", "1", 1, name="größer"),
    "no category": {key: value for key, value in kernel("1", "1", 1).items() if key != "cat"},
    "a custom category": {**kernel("1", "1", 1), "cat": "mine"},
    "no arguments": {key: value for key, value in kernel("1", "1", 1).items() if key != "args"},
    "null as arguments": {**kernel("1", "1", 1), "args": None},
    "a label for a process": {"ph": "M", "name": "process_labels", "pid": 1, "args": {"labels": ""}},
    "a nested object": kernel("1", "1", 1, args={"more": {"a": [1, {"b": None}], "c": [True, False, -1.5e-3]}}),
    "a long grid": kernel("1", "1", 1, args={"grid": [10**9] * 60}),
}


@pytest.mark.parametrize("what", UNUSUAL)
@pytest.mark.parametrize("how", [{"ensure_ascii": True}, {"ensure_ascii": False}])
def test_unusual_events_are_read_as_in_python_or_left_to_it(native: ctypes.CDLL, what: str, how: Any) -> None:
    text = between_brackets([PLAIN_EVENTS[3], UNUSUAL[what], PLAIN_EVENTS[5]], data.dumped(**how))

    assert by_scanner(native, text) in (None, by_python(text))


@pytest.mark.parametrize(
    "broken",
    [
        '{"ph": "X", "cat": "kernel", "name": null}',
        '{"ph": "X", "cat": "python_function", "args": {"device": [1]}}',
        '{"ph": "X", "ph": "M"}',
        '{"ph": "Q"}',
        '{"ph": ""}',
        '{"ph": "X",}',
        '{"ph": "X"} {"ph": "X"}',
        '{"ph": "X"},',
        '{"ph": "X", "ts": 01}',
        '{"ph": "X", "x": 1.}',
        '{"ph": "X", "x": .5}',
        '{"ph": "X", "x": 1e}',
        '{"ph": "X", "x": NaN}',
        '{"ph": "X", "x": nul}',
        '{"ph": "X", "x": "\\x"}',
        '{"ph": "X", "x": "\\u12g4"}',
        '{"ph": "X", "x": "a\tb"}',
        '{"ph": "X", "x": [1 2]}',
        '{"ph": "X", "x": {1: 2}}',
        '{"ph": "X", "x": ' + "[" * 80 + "]" * 80 + "}",
        '{"ph": "M", "args": 5}',
        '{"ph": "M", "args": {"name": {}}}',
        '["ph"]',
        "",
    ],
)
def test_broken_events_are_left_to_python(native: ctypes.CDLL, broken: str) -> None:
    good = json.dumps(PLAIN_EVENTS[1]).encode()

    assert by_scanner(native, broken.encode()) is None
    assert by_scanner(native, good + b"," + broken.encode()) is None


def test_all_phases_that_the_scanner_knows_are_known_to_python(native: ctypes.CDLL) -> None:
    """Both have a list of phases."""
    read = ""
    for phase in filter(str.isprintable, map(chr, range(32, 127))):
        text = json.dumps({"ph": phase, "ts": 1, "dur": 1}).encode()
        found = by_scanner(native, text)
        if found is not None:
            assert found == by_python(text)
            read += phase
    assert {*"XsftMi"} <= {*read}


def test_invalid_utf8_is_left_to_python(native: ctypes.CDLL) -> None:
    assert by_scanner(native, b'{"ph": "X", "name": "\xff\xfe"}') is None
    assert by_scanner(native, b'{"ph": "X", "name": "a\0b"}') is None


def test_randomly_damaged_text_is_read_as_in_python_or_left_to_it(native: ctypes.CDLL) -> None:
    """Change random bytes: what the scanner reads, Python reads with the same result."""
    rng = random.Random(11)  # noqa: S311 - no secret
    fragments = [
        b'"',
        b"\\",
        b"null",
        b"1e3",
        b"-0",
        b"NaN",
        b"{",
        b"}",
        b"[",
        b",",
        b":",
        b"99999999999999999999",
        b" ",
        b"\x01",
    ]
    texts = [between_brackets(PLAIN_EVENTS * 2, LAYOUTS[layout]) for layout in ("kineto", "compact", "indent 4")]
    read = 0
    for _ in range(3000):
        text = bytearray(rng.choice(texts))
        for _ in range(rng.randint(1, 3)):
            at, new = rng.randrange(len(text)), rng.choice([*fragments, bytes([rng.randrange(256)])])
            text[at : at + rng.choice([0, 1, len(new)])] = new
        found = by_scanner(native, bytes(text))
        if found is not None:
            assert found == by_python(bytes(text)), bytes(text)
            read += 1
    assert read > 300


def functions(count: int) -> list[data.Event]:
    """Python functions of two kinds and flow events, each with different values."""
    arrow = {"ph": "s", "id": 7, "pid": 1, "tid": 1, "ts": "11", "cat": "ac2g", "name": "ac2g"}
    return [
        event
        for n in range(count)
        for event in (
            {**host("python_function", f"f{n}", f"{n}.5", str(n)), "args": {"Python id": n, "Python parent id": None}},
            {**host("python_function", f'a "{n}" é', str(n), "1.25"), "args": {"Python id": n, "shape": [n, [n, -n]]}},
            {**arrow, "id": n, "ts": str(n)},
        )
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_events_that_match_a_template_are_counted(native: ctypes.CDLL, layout: str) -> None:
    text = between_brackets([*functions(40), *PLAIN_EVENTS, *functions(10)], LAYOUTS[layout])

    found = by_scanner(native, text)
    assert found == by_python(text)
    assert found["counts"][2]["python_function"] == 101
    assert found["counts"][2]["phase s"] == 51


@pytest.mark.parametrize("old", ['"Python id": 25', '"ts": 25.5', '"name": "f25"', '"dur": 1.25'])
@pytest.mark.parametrize("new", ["025", "2.", "-", "1e", '"a\tb"', '"\\q"', '"open', "", "{}}", "NaN"])
def test_a_broken_event_among_many_similar_ones_is_found(native: ctypes.CDLL, old: str, new: str) -> None:
    text = between_brackets(functions(30), LAYOUTS["kineto"]).decode()
    key = old.partition(": ")[0]
    assert old in text
    broken = text.replace(old, f"{key}: {new}", 1)

    assert by_scanner(native, broken.encode()) is None


def test_events_without_a_template_are_read_too(native: ctypes.CDLL) -> None:
    """More kinds of events than there are templates, and one that is too long for a template."""
    shapes = [{**host("python_function", "f", "1", "1"), f"key{n % 300}": n} for n in range(900)]
    long = {**host("python_function", "f", "1", "1"), "list": list(range(500))}
    text = between_brackets([*shapes, long, long, *shapes], LAYOUTS["kineto"])

    assert by_scanner(native, text) == by_python(text)


def test_rows_stay_in_the_order_of_the_file(
    tmp_path: Path, native: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some chunks are read by Python, between chunks that the scanner reads."""
    monkeypatch.setattr(bytestream, "CHUNK_BYTES", 2000)
    monkeypatch.setattr(kineto, "_DETECTION_BYTES", 500)
    unusual = {n for n in range(400) if n % 37 == 0}
    events = [kernel(str(n), "0.5", n, args={"stream": "7"} if n in unusual else {}) for n in range(400)]
    file = tmp_path / "t.json"
    file.write_text(data.kineto_text(events))
    monkeypatch.setattr(kineto, "c_library", lambda: native)

    assert kineto.read_kineto(file).device.correlation.tolist() == list(range(400))


def test_after_8_failures_the_scanner_is_not_used(native: ctypes.CDLL) -> None:
    scanner = Scanner(native, KinetoColumnBuilder())
    unusual = json.dumps(UNUSUAL["a size as text"]).encode()
    for _ in range(7):
        assert not scanner.read(unusual, len(unusual))
    assert not scanner.failing
    assert not scanner.read(unusual, len(unusual))
    assert scanner.failing


def test_many_names_have_different_ids(native: ctypes.CDLL) -> None:
    """More names than the string table first has room for, in several texts."""
    builder = KinetoColumnBuilder()
    scanner = Scanner(native, builder)
    for batch in range(5):
        numbers = range(batch * 1000, batch * 1000 + 3000)
        text = ",".join(
            json.dumps({**host("cpu_op", f"op {n}", "1", "1"), "ts": n, "dur": 1}) for n in numbers
        ).encode()
        assert scanner.read(text, len(text))
    scanner.flush()

    assert contents(builder)["ops"]["name"] == [f"op {n}" for b in range(5) for n in range(b * 1000, b * 1000 + 3000)]


def test_the_scanner_does_not_read_beyond_the_end(tmp_path: Path) -> None:
    """Truncated and damaged texts in blocks of exactly their size, with the compiler's address sanitizer."""
    driver = tmp_path / "driver.c"
    driver.write_text(
        f'#include "{SOURCE}"\n'
        r"""
#include <stdio.h>
int main(int count, char **given) {
    static char whole_text[1 << 16];
    FILE *file = fopen(given[count - 1], "rb");
    size_t size = fread(whole_text, 1, sizeof whole_text, file);
    fclose(file);
    uint64_t chance = 88172645463325252u;
    scanner *s = scanner_new();
    scanner_add_category(s, "kernel", DEVICE, 0);
    scanner_add_category(s, "cpu_op", OPS, 0);
    for (int n = 0; n < 40000; n++) {
        chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
        size_t length = 1 + chance % size;
        char *text_here = malloc(length + 1);
        memcpy(text_here, whole_text, length);
        text_here[length] = 0;
        if (n % 3) text_here[(chance >> 20) % length] = (char)(chance >> 40);
        scanner_read(s, text_here, n % 5 ? length : (chance >> 30) % (length + 1), length);
        free(text_here);
        if (n % 11 == 0) scanner_clear(s);
    }
    scanner_free(s);
    puts("done");
}
"""
    )
    seed = tmp_path / "seed.txt"
    seed.write_bytes(between_brackets(PLAIN_EVENTS * 3, LAYOUTS["kineto"]))
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler
    flags = ["-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    built = subprocess.run(
        [compiler, *flags, str(driver), "-o", str(tmp_path / "driver")], capture_output=True, text=True, check=False
    )
    if "cannot find" in built.stderr and "asan" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([str(tmp_path / "driver"), str(seed)], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr


def test_the_scanner_takes_at_most_half_the_time(native: ctypes.CDLL) -> None:
    """It takes a quarter on an idle core."""
    text = between_brackets(PLAIN_EVENTS * 500, LAYOUTS["kineto"])

    def share() -> float:
        times = [time.process_time()]
        for read in (
            lambda: Scanner(native, KinetoColumnBuilder()).read(text, len(text)),
            lambda: KinetoColumnBuilder().add(DECODER.decode(b"[" + text + b"]")),
        ):
            read()
            times.append(time.process_time())
        return (times[1] - times[0]) / (times[2] - times[1])

    assert min(share() for _ in range(5)) < 0.5


@pytest.fixture
def library_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of the cached library, in a folder of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ROCSOLID_NATIVE", raising=False)
    building.c_library.cache_clear()
    yield building.library_file()
    building.c_library.cache_clear()


def test_the_library_is_built_once_for_large_files(
    tmp_path: Path, library_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, packed = tmp_path / "small.json", tmp_path / "packed.json.gz"
    small.write_bytes(b" " * 1000)
    packed.write_bytes(b" " * 100)
    building.build_if_worthwhile([small, tmp_path / "missing.json"])
    assert not library_file.exists()
    assert building.c_library() is None

    monkeypatch.setattr(building, "_MIN_TEXT_BYTES", 2000)
    building.build_if_worthwhile([small, packed])  # the text of a gzip file is estimated
    assert library_file.exists()
    assert library_file.parent.stat().st_mode & 0o077 == 0
    built = library_file.stat().st_mtime_ns
    building.build_if_worthwhile([small, packed])
    assert library_file.stat().st_mtime_ns == built
    building.c_library.cache_clear()
    assert building.c_library() is not None
    assert list(library_file.parent.iterdir()) == [library_file]


def test_without_a_compiler_or_when_disabled_python_reads(
    library_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(building, "_MIN_TEXT_BYTES", 0)
    file = tmp_path / "t.json"
    file.write_text("{}")
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        building.build_if_worthwhile([file])
    assert not library_file.exists()
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    broken.chmod(0o755)
    with monkeypatch.context() as without:
        without.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        building.build_if_worthwhile([file])
    assert not library_file.exists()
    monkeypatch.setenv("ROCSOLID_NATIVE", "0")
    building.build_if_worthwhile([file])
    assert not library_file.exists()
    assert building.c_library() is None


def test_without_a_home_or_cache_folder_python_reads(
    tmp_path: Path, library_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> Path:
        msg = "Could not determine home directory."
        raise RuntimeError(msg)

    def closed(_file: Path) -> str:
        raise PermissionError

    monkeypatch.setattr(building, "_MIN_TEXT_BYTES", 0)
    (tmp_path / "no-folder").write_text("")
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_CACHE_HOME", str(tmp_path / "no-folder"))
        building.build_if_worthwhile([tmp_path / "no-folder"])
        assert building.c_library() is None
    building.c_library.cache_clear()
    with monkeypatch.context() as homeless:
        homeless.delenv("XDG_CACHE_HOME")
        homeless.setattr(Path, "home", nowhere)
        homeless.setattr(tempfile, "tempdir", str(tmp_path / "no-folder"))
        building.build_if_worthwhile([tmp_path / "no-folder"])
        assert building.c_library() is None
    building.c_library.cache_clear()
    assert building.build(library_file)
    monkeypatch.setattr(user_cache, "open_trusted", closed)
    assert building.c_library() is None


def test_a_library_that_others_can_write_is_not_loaded(library_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert building.build(library_file)
    library_file.chmod(0o777)
    with caplog.at_level("WARNING", "rocsolid"):
        assert building.c_library() is None
    assert f"other users may write to {library_file}" in caplog.text

    library_file.chmod(0o700)
    library_file.write_bytes(b"no library")
    building.c_library.cache_clear()
    assert building.c_library() is None


def test_ranks_use_the_scanner(tmp_path: Path, library_file: Path) -> None:
    """With the command, in child processes, with the library in the user's cache folder."""
    assert building.build(library_file)
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(3):
        (folder / f"{rank}.json").write_text(data.kineto_text(PLAIN_EVENTS * 50))
    variables = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "LD_DEBUG": "libs"}  # writes the loaded libraries to stderr
    environments = [clean_environ(**variables, ROCSOLID_NATIVE=native) for native in ("1", "0")]
    with_scanner, without = [
        run_cli("trace", str(folder), "--ranks", "--output", "json", env=environment) for environment in environments
    ]

    assert with_scanner.code == without.code == 0
    assert with_scanner.out == without.out
    assert "/proc/self/fd/" in with_scanner.err
    assert library_file.name not in without.err


@pytest.mark.parametrize("with_scanner", [True, False])
def test_the_size_limit_for_two_processes_is_higher_with_the_scanner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_scanner: Any
) -> None:
    parallel = importlib.import_module("rocsolid.trace.readers.parallel")
    file = tmp_path / "t.json"
    file.write_text(data.kineto_text(PLAIN_EVENTS))
    split: list[Path] = []
    monkeypatch.setattr(parallel, "_halves", split.append)
    monkeypatch.setattr(parallel, "_MIN_BYTES", 0)
    monkeypatch.setattr(parallel, "c_library", lambda: object() if with_scanner else None)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    parallel.read_in_parallel(file)

    assert split == ([] if with_scanner else [file])
