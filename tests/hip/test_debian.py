"""The packages of the HIP rig: dependencies are found, and a file that differs from its list is refused."""

import io
import tarfile
from pathlib import Path

import pytest
from tests.hip import debian
from tests.hip.debian import Package, checked, closure, unpack

LIST = """Package: runtime
Version: 7.2.4-1
Depends: libc6 (>= 2.43), missing | compiler (= 2), virtual
Filename: pool/r.deb
SHA256: 00

Package: libc6
Version: 2.43
Pre-Depends: runtime
Filename: pool/c.deb
SHA256: 01

Package: compiler
Version: 2
Filename: pool/k.deb
SHA256: 02

Package: real
Version: 1
Provides: virtual (= 1), other
Filename: pool/v.deb
SHA256: 03

Package: unwanted
Version: 1
Filename: pool/u.deb
SHA256: 04
"""


def test_all_dependencies_are_found() -> None:
    known = {p.name: p for p in map(debian._parsed, LIST.split("\n\n")) if p}

    assert [package.name for package in closure(["runtime"], known)] == ["compiler", "libc6", "real", "runtime"]
    assert known["runtime"].version == "7.2.4-1"


def test_a_file_that_differs_from_its_list_is_refused() -> None:
    with pytest.raises(ValueError, match="the runtime differs from its checksum in Debian's list"):
        checked(b"something else", "00", "the runtime")


def test_a_package_is_downloaded_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz") as files:
        about = tarfile.TarInfo("./usr/lib/a.so")
        about.size = 3
        files.addfile(about, io.BytesIO(b"abc"))
    data = content.getvalue()
    archive = b"!<arch>\n" + _member("debian-binary", b"2.0") + _member("data.tar.xz", data)
    fetched: list[str] = []

    def fetch(path: str) -> bytes:
        fetched.append(path)
        return archive

    monkeypatch.setattr(debian, "fetch", fetch)
    monkeypatch.setattr(debian, "checked", lambda data, *_: data)
    package = Package(name="a", version="1", needs=(), provides=(), file="pool/a.deb", sha256="5" * 64)
    for folder in ("one", "two"):
        unpack([package], tmp_path / folder, tmp_path / "kept")
        assert (tmp_path / folder / "usr/lib/a.so").read_bytes() == b"abc"

    assert fetched == ["pool/a.deb"]


def _member(name: str, data: bytes) -> bytes:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
    return header + data + b"\n" * (len(data) % 2)


@pytest.mark.parametrize(
    "text",
    [
        "Types: deb\nURIs: http://one.example/debian/\nSuites: sid\n",
        "# deb http://none.example/debian sid main\ndeb [signed-by=/k.gpg] http://one.example/debian sid main\n",
        "deb http://two.example/debian-security sid main\ndeb http://one.example/debian sid main\n",
    ],
)
def test_packages_come_from_the_machines_own_mirror(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEBIAN_MIRROR", raising=False)
    monkeypatch.setattr(debian, "SOURCES", tmp_path)
    debian.mirror.cache_clear()
    with pytest.raises(debian.Unreachable, match="DEBIAN_MIRROR"):
        debian.mirror()
    (tmp_path / "sources.list").write_text(text)
    assert debian.mirror() == "http://one.example/debian"
    debian.mirror.cache_clear()
