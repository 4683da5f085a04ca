"""The log of a trial stays small, and its end is never lost."""

import os
from pathlib import Path

import pytest

from rocsolid.tune.isolate import log as module
from rocsolid.tune.isolate.log import Log, free_beginning

MB = 1 << 20
FLOOD = (b"x" * 1023 + b"\n") * 1024


def disk_bytes(log: Log) -> int:
    """Disk space of the file."""
    return 512 * os.fstat(log.fd).st_blocks


def test_output_written_during_a_trim_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, fstat = Log(tmp_path / "log.txt", MB), os.fstat
    os.write(log.fd, FLOOD * 3)

    def write_too(fd: int) -> os.stat_result:
        found = fstat(fd)
        os.write(fd, b"meanwhile\n")
        return found

    monkeypatch.setattr(os, "fstat", write_too)
    log.trim()
    monkeypatch.undo()

    assert disk_bytes(log) < MB
    assert log.finish().endswith("x\nmeanwhile\n")


@pytest.mark.parametrize("frees", [True, False])
def test_flood_stays_below_the_limit_and_keeps_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, frees: bool
) -> None:
    """Also on a file system that cannot free the beginning of a file."""
    if not frees:
        monkeypatch.setattr(module, "free_beginning", lambda *_: False)
    log = Log(tmp_path / "log.txt", 2 * MB)
    for _ in range(10):
        os.write(log.fd, FLOOD)
        log.trim()
        assert disk_bytes(log) <= 2 * MB
    os.write(log.fd, b"the last line\n")
    tail = log.finish()
    text = (tmp_path / "log.txt").read_text()

    assert tail.endswith("x\nthe last line\n")
    assert text.startswith("[")
    assert "\0" not in text
    assert len(text) < 2 * MB
    assert 8 * MB < log.dropped_bytes < 10 * MB


def test_short_log_is_not_changed(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.txt", MB)
    os.write(log.fd, b"one line\n")
    log.trim()

    assert log.finish() == "one line\n"
    assert log.dropped_bytes == 0


def test_limit_below_the_size_of_the_tail(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.txt", 100)
    os.write(log.fd, b"y" * 200)
    log.trim()

    assert log.finish().endswith("y" * 200)


def test_free_beginning_fails_for_a_pipe() -> None:
    reading, writing = os.pipe()
    assert not free_beginning(writing, 4096)
    os.close(reading)
    os.close(writing)
