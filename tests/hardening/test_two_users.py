"""Two real users: one attacks the cache of the other while it is read and written (D3, D4)."""

import ctypes
import json
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocsolid.measure import user_cache

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to act as two other users; test_kept_files.py swaps folders as one user"
)
VICTIM, ATTACKER, GROUP = 61_001, 61_002, 61_003
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_TRIES = 300


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder of root that both users can enter; pytest's own folders are closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="rocsolid-two-users-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def start(user: int, work: Callable[[], object], output: int = -1) -> int:
    """Run a function as a user who is a member of the group; its result goes to the pipe as JSON. Returns the process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setgroups([GROUP])
        os.setgid(GROUP)
        os.setuid(user)
        os.umask(0o002)
        result = json.dumps(work())
        if output >= 0:
            os.write(output, result.encode())
        code = 0
    finally:
        os._exit(code)


def as_user(user: int, work: Callable[[], object]) -> object:
    """Run a function as a user, and return its result."""
    reading, writing = os.pipe()
    child = start(user, work, writing)
    os.close(writing)
    with os.fdopen(reading) as opened:
        text = opened.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return json.loads(text)


def under_attack(swap: Callable[[], object], victim: Callable[[], object]) -> object:
    """Run the victim while the attacker swaps without a pause."""

    def swap_forever() -> None:
        while True:
            swap()

    attacker = start(ATTACKER, swap_forever)
    time.sleep(0.05)
    try:
        assert os.waitpid(attacker, os.WNOHANG) == (0, 0), "the attack does not work"
        return as_user(VICTIM, victim)
    finally:
        os.kill(attacker, signal.SIGKILL)
        os.waitpid(attacker, 0)


def exchange(first: Path, second: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, bytes(first), _AT_FDCWD, bytes(second), _RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2")


def readings(file: Path) -> list[str]:
    """What the victim reads, each different payload once."""
    found = {user_cache.read(file) for _ in range(_TRIES)}
    return sorted("nothing" if data is None else data.decode() for data in found)


def folder_of(user: int, folder: Path, mode: int) -> Path:
    folder.mkdir()
    os.chown(folder, user, GROUP)
    folder.chmod(mode)
    return folder


def owned_by(user: int, file: Path, payload: bytes) -> None:
    assert as_user(user, lambda: user_cache.write(file, payload)) is True


def test_d3_a_member_of_the_group_swaps_the_cache(shared: Path) -> None:
    """`~/.cache/rocsolid` is writable for the victim's group: the attacker exchanges `native` while the victim reads from it."""
    home = folder_of(VICTIM, shared / "home", 0o755)
    owned_by(VICTIM, home / "rocsolid/native/file", b"ours")
    assert as_user(VICTIM, lambda: readings(home / "rocsolid/native/file")) == ["ours"]
    (home / "rocsolid").chmod(0o775)  # as `mkdir(parents=True)` made it
    (home / "rocsolid/native").chmod(0o755)
    evil = folder_of(ATTACKER, shared / "evil", 0o755)
    owned_by(ATTACKER, evil / "file", b"theirs")
    (evil / "file").chmod(0o644)
    shutil.move(evil, home / "rocsolid/evil")

    found = under_attack(
        lambda: exchange(home / "rocsolid/native", home / "rocsolid/evil"),
        lambda: readings(home / "rocsolid/native/file"),
    )
    assert found == ["nothing"]


def test_d3_new_folders_are_closed_to_the_group(shared: Path) -> None:
    home = folder_of(VICTIM, shared / "home", 0o755)
    owned_by(VICTIM, home / ".cache/rocsolid/native/file", b"ours")
    for folder in (".cache", ".cache/rocsolid", ".cache/rocsolid/native"):
        assert stat.S_IMODE((home / folder).stat().st_mode) == 0o700

    def look() -> str:
        try:
            return str(list((home / ".cache/rocsolid").iterdir()))
        except PermissionError:
            return "refused"

    assert as_user(ATTACKER, look) == "refused"


def test_d3_a_swapped_link_in_a_folder_like_tmp(shared: Path) -> None:
    """In /tmp, only the owner of an entry may rename it: the attacker swaps entries of his own, one of them a link to the victim's folder."""
    tmp = folder_of(0, shared / "tmp", 0o1777)
    owned_by(VICTIM, folder_of(VICTIM, tmp / "ours", 0o700) / "file", b"ours")
    evil = folder_of(ATTACKER, tmp / "evil", 0o777)
    owned_by(ATTACKER, folder_of(ATTACKER, tmp / "spare", 0o700) / "file", b"theirs")
    shutil.move(tmp / "spare/file", evil / "file")
    (evil / "file").chmod(0o644)
    as_user(ATTACKER, lambda: (tmp / "cache").symlink_to("ours"))

    def read_and_write() -> list[str]:
        written = [user_cache.write(tmp / f"cache/new{n}", b"ours") for n in range(_TRIES)]
        return [*readings(tmp / "cache/file"), f"{sum(written)} written"]

    assert under_attack(lambda: exchange(tmp / "cache", evil), read_and_write) == ["nothing", "0 written"]
    assert [file.name for file in (*(tmp / "evil").iterdir(), *(tmp / "cache").iterdir()) if "new" in file.name] == []


def test_d4_a_planted_link_overwrites_nothing(shared: Path) -> None:
    """`artefacts=` is a folder of the attacker that all may write to; every name that a draft may have is a link to the victim's file."""
    precious = folder_of(VICTIM, shared / "home", 0o700) / "precious"
    as_user(VICTIM, lambda: precious.write_text("precious"))
    folder = folder_of(ATTACKER, shared / "artefacts", 0o777)

    def victim() -> list[str]:
        (folder / "plant").write_text(str(os.getpid()))
        while not (folder / "planted").exists():
            time.sleep(0.001)
        written = user_cache.write(folder / "key.bin", b"ours")
        return [str(written), precious.read_text(errors="replace")]

    def plant() -> None:
        if (folder / "plant").exists() and (pid := (folder / "plant").read_text()):
            for name in ("key.bin", f"key.bin.{pid}", f".key.bin.{pid}"):
                (folder / name).symlink_to(precious)
            (folder / "planted").touch()
            time.sleep(60)

    assert under_attack(plant, victim) == ["False", "precious"]
