"""A trial's output takes little room, and its end is kept whenever it is written."""

import os
from pathlib import Path

import pytest

from rocsolid.tune.isolate import log as module
from rocsolid.tune.isolate.log import Log, free_beginning

MB = 1 << 20
FLOOD = (b"x" * 1023 + b"\n") * 1024


def room(log: Log) -> int:
    """Bytes that the file takes on disk."""
    return 512 * os.fstat(log.fd).st_blocks


def test_what_is_written_while_it_is_shortened_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, asked = Log(tmp_path / "log.txt", MB), os.fstat
    os.write(log.fd, FLOOD * 3)

    def and_writes(fd: int) -> os.stat_result:
        found = asked(fd)
        os.write(fd, b"meanwhile\n")
        return found

    monkeypatch.setattr(os, "fstat", and_writes)
    log.shorten()
    monkeypatch.undo()

    assert room(log) < MB
    assert log.end().endswith("x\nmeanwhile\n")


@pytest.mark.parametrize("frees", [True, False])
def test_a_flood_takes_little_room_and_leaves_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, frees: bool
) -> None:
    """Also where the file system cannot free the beginning of a file."""
    if not frees:
        monkeypatch.setattr(module, "free_beginning", lambda *_: False)
    log = Log(tmp_path / "log.txt", 2 * MB)
    for _ in range(10):
        os.write(log.fd, FLOOD)
        log.shorten()
        assert room(log) <= 2 * MB
    os.write(log.fd, b"the last line\n")
    told = log.end()
    text = (tmp_path / "log.txt").read_text()

    assert told.endswith("x\nthe last line\n")
    assert text.startswith("[")
    assert "\0" not in text
    assert len(text) < 2 * MB
    assert 8 * MB < log.dropped_bytes < 10 * MB


def test_a_short_log_is_left_as_it_is(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.txt", MB)
    os.write(log.fd, b"one line\n")
    log.shorten()

    assert log.end() == "one line\n"
    assert log.dropped_bytes == 0


def test_a_limit_below_what_is_kept(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.txt", 100)
    os.write(log.fd, b"y" * 200)
    log.shorten()

    assert log.end().endswith("y" * 200)


def test_a_pipe_has_no_beginning_to_free() -> None:
    reading, writing = os.pipe()
    assert not free_beginning(writing, 4096)
    os.close(reading)
    os.close(writing)
