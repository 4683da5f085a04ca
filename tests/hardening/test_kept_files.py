"""Files that are loaded in the next process: nobody else can have written them, also not in between (D3, D4, D16)."""

import os
import platform
import stat
import sys
import time
from pathlib import Path

import pytest
from tests.support import run_python

from rocsolid.measure import user_cache

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another user")


def test_folders_and_files_are_for_this_user_alone(tmp_path: Path) -> None:
    old = os.umask(0o002)
    try:
        assert user_cache.write(tmp_path / "rocsolid/native/file", b"payload")
    finally:
        os.umask(old)
    for path in (tmp_path / "rocsolid", tmp_path / "rocsolid/native"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "rocsolid/native/file").stat().st_mode) == 0o600
    assert user_cache.read(tmp_path / "rocsolid/native/file") == b"payload"


def test_d3_every_folder_above_is_checked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The victim's folder and file are fine, but others may rename the folder."""
    file = tmp_path / "a/b/c/file"
    assert user_cache.write(file, b"payload")
    for folder in (tmp_path / "a", tmp_path / "a/b"):
        folder.chmod(0o777)
        assert user_cache.read(file) is None
        assert f"other users may write to {folder}" in caplog.messages[-1]
        folder.chmod(0o1777)  # sticky: others cannot rename what is not theirs
        assert user_cache.read(file) == b"payload"
        folder.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(tmp_path / "a", 12345, -1)
        assert user_cache.read(file) is None
        assert f"{tmp_path / 'a'} belongs to another user" in caplog.messages[-1]


def test_d3_swapping_folders_while_they_are_read(tmp_path: Path) -> None:
    """The folder is swapped with one that others may write after it was checked, right before the file in it is opened."""
    good, evil, spare = tmp_path / "native", tmp_path / "evil", tmp_path / "spare"
    assert user_cache.write(good / "file", b"ours")
    assert user_cache.write(evil / "file", b"theirs")
    evil.chmod(0o777)
    swaps = [(good, spare), (evil, good)]

    def swap(event: str, args: tuple[object, ...]) -> None:
        if event == "open" and swaps and os.path.basename(str(args[0])) == "file":  # noqa: PTH119
            for source, target in [swaps.pop(0), swaps.pop(0)]:
                os.rename(source, target)  # noqa: PTH104

    sys.addaudithook(swap)  # does nothing after the swap
    assert user_cache.read(good / "file") == b"ours"
    assert not swaps
    assert user_cache.read(good / "file") is None


@as_root
def test_d3_a_library_of_another_user_is_not_loaded(tmp_path: Path) -> None:
    library = tmp_path / "native/x.so"
    assert user_cache.write_bytes(
        library, Path(f"/lib/{platform.machine()}-linux-gnu/libm.so.6").read_bytes(), mode=0o700
    )
    assert user_cache.load_library(library).cos is not None
    os.chown(library, 12345, -1)
    with pytest.raises(user_cache.UntrustedError, match="belongs to another user"):
        user_cache.load_library(library)


def test_d4_a_planted_link_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In a folder of everybody nothing is written; in our own, the name of a draft cannot be guessed and is never opened twice."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / f"key.bin.{os.getpid()}").symlink_to(victim)
    (shared / "key.bin").symlink_to(victim)
    assert not user_cache.write(shared / "key.bin", b"payload")
    assert f"other users may write to {shared}" in caplog.messages[-1]
    shared.chmod(0o700)
    assert user_cache.write(shared / "key.bin", b"payload")
    assert victim.read_text() == "precious"
    assert user_cache.read(shared / "key.bin") == b"payload"
    (shared / "link").symlink_to(shared / "key.bin")
    assert user_cache.read(shared / "link") is None


@as_root
def test_d4_a_link_of_another_user_on_the_way_is_refused(tmp_path: Path) -> None:
    user_cache.write(tmp_path / "real/file", b"payload")
    (tmp_path / "link").symlink_to("real")
    assert user_cache.read(tmp_path / "link/file") == b"payload"
    os.chown(tmp_path / "link", 12345, -1, follow_symlinks=False)
    assert user_cache.read(tmp_path / "link/file") is None


def test_d16_what_is_not_a_file_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    started = time.monotonic()
    for name in ("fifo", "folder"):
        assert user_cache.read(tmp_path / name) is None
        assert "is not a regular file" in caplog.messages[-1]
    assert time.monotonic() - started < 5


@pytest.mark.torch
def test_d16_optimize_survives_odd_cache_files(tmp_path: Path) -> None:
    """A pipe, a folder and an unreadable file instead of the saved artefacts: compiled as if there were none."""
    program = """
import os, sys, torch, pathlib, rocsolid as rs
from rocsolid.optimize.warm_start import key_of, warm_start
from rocsolid.optimize.example_inputs import Example
model, folder = torch.nn.Linear(2, 2), pathlib.Path(sys.argv[1])
plan, examples = rs.resolve("safe"), [Example(args=(torch.ones(1, 2),), kwargs={})]
file = folder / f"{key_of(model, plan, examples)}.bin"
for make in (os.mkfifo, os.mkdir):
    make(file)
    with warm_start(model, file) as saved:
        print(saved.winner)
    os.unlink(file) if make is os.mkfifo else os.rmdir(file)
"""
    ran = run_python("-c", program, str(tmp_path), timeout=120)
    assert (ran.code, ran.out) == (0, "None\nNone\n"), ran.err


def test_d16_a_full_disk_leaves_no_drafts(tmp_path: Path) -> None:
    """The limit on the size of a file stands in for a full disk: the write fails in the middle."""
    program = f"""
import pathlib, resource, signal
from rocsolid.measure import user_cache
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
assert not user_cache.write(pathlib.Path({str(tmp_path)!r}) / "file", bytes(100_000))
"""
    assert run_python("-c", program).code == 0
    assert list(tmp_path.iterdir()) == []


def test_d7_the_ledger_is_for_this_user_alone(tmp_path: Path) -> None:
    from rocsolid.catalog.images import IMAGES
    from rocsolid.probe.ledger import Ledger

    old = os.umask(0o002)
    try:
        Ledger(tmp_path / "data/ledger.db").add([IMAGES[0]])
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "data/ledger.db").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
