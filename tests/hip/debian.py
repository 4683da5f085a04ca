"""Unpacks Debian packages into a separate folder. Nothing is installed, no root is needed, no package script runs.

Package lists are checked against the suite's signature where gpgv and Debian's keys are available, and each file against its list.
"""

import hashlib
import lzma
import os
import re
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

SOURCES = Path("/etc/apt")  # where a Debian machine names its package sources
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DEADLINE_S = 60
# Debian 12's Python has no tar filters yet; the packages are checked against Debian's lists.
_FILTER: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}


class Unreachable(Exception):  # noqa: N818 - a state of the network, and the reason for a skip
    """The suites cannot be reached."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """One entry of a package list."""

    name: str
    version: str
    needs: tuple[tuple[str, ...], ...]  # alternatives, of which one is enough
    provides: tuple[str, ...]
    file: str
    sha256: str


@cache
def mirror() -> str:
    """The mirror in DEBIAN_MIRROR, or the one of this machine's own packages (not the one of security updates)."""
    if named := os.environ.get("DEBIAN_MIRROR"):
        return named.rstrip("/")
    for file in (SOURCES / "sources.list", *sorted((SOURCES / "sources.list.d").glob("*"))):
        lines = file.read_text().splitlines() if file.is_file() else []
        for line in lines:
            found = re.match(r"(?:URIs:|deb\b.*?)\s*(https?://\S+/debian)/?(?:\s|$)", line)
            if found:
                return found[1]
    msg = "no Debian mirror is configured here: set DEBIAN_MIRROR"
    raise Unreachable(msg)


def fetch(path: str) -> bytes:
    try:
        with urllib.request.urlopen(f"{mirror()}/{path}", timeout=DEADLINE_S) as response:  # noqa: S310 - a configured mirror
            return bytes(response.read())
    except (urllib.error.URLError, OSError) as error:
        msg = f"cannot download {path}: {error}"
        raise Unreachable(msg) from error


def checked(data: bytes, sha256: str, what: str) -> bytes:
    if hashlib.sha256(data).hexdigest() != sha256:
        msg = f"{what} differs from its checksum in Debian's list"
        raise ValueError(msg)
    return data


def package_list(suite: str) -> dict[str, Package]:
    """The packages of a suite, by name."""
    release = fetch(f"dists/{suite}/InRelease")
    if shutil.which("gpgv") and KEYS.exists():
        command = ["gpgv", "--quiet", "--keyring", str(KEYS), "-"]
        subprocess.run(command, input=release, check=True, capture_output=True)
    wanted = "main/binary-amd64/Packages.xz"
    digest = re.search(rf"^ ([0-9a-f]{{64}}) +\d+ {re.escape(wanted)}$", release.decode(), re.MULTILINE)
    assert digest is not None, f"{suite} lists no {wanted}"
    data = checked(fetch(f"dists/{suite}/{wanted}"), digest[1], f"the list of {suite}")
    return {p.name: p for p in map(_parsed, lzma.decompress(data).decode().split("\n\n")) if p}


def _parsed(entry: str) -> Package | None:
    fields = dict(re.findall(r"^([\w-]+): (.*)$", entry, re.MULTILINE))
    if not fields:
        return None
    needs = ", ".join(fields[key] for key in ("Pre-Depends", "Depends") if key in fields)
    return Package(
        name=fields["Package"],
        version=fields["Version"],
        needs=tuple(tuple(_names(group, "|")) for group in needs.split(",") if group.strip()),
        provides=tuple(_names(fields.get("Provides", ""), ",")),
        file=fields["Filename"],
        sha256=fields["SHA256"],
    )


def _names(text: str, between: str) -> Iterator[str]:
    return (match[0] for part in text.split(between) if (match := re.match(r"[\w.+-]+", part.strip())))


def closure(wanted: Sequence[str], known: Mapping[str, Package]) -> list[Package]:
    """The packages and their dependencies."""
    providers: dict[str, str] = {}
    for package in known.values():
        for name in package.provides:
            providers.setdefault(name, package.name)
    found: dict[str, Package] = {}
    left = list(wanted)
    while left:
        package = known[left.pop()]
        if package.name not in found:
            found[package.name] = package
            for choices in package.needs:
                there = (name if name in known else providers.get(name) for name in choices)
                left += [name for name in there if name][:1]
    return sorted(found.values(), key=lambda package: package.name)


def unpack(packages: Sequence[Package], folder: Path, keep: Path) -> None:
    """Download what is not kept yet, and unpack all."""
    keep.mkdir(parents=True, exist_ok=True)
    for package in packages:
        file = keep / f"{package.name}-{package.sha256[:16]}.deb"
        if not file.exists():
            data = checked(fetch(package.file), package.sha256, package.name)
            partial = file.with_suffix(".part")
            partial.write_bytes(data)
            partial.rename(file)
        with tarfile.open(fileobj=BytesIO(_content(file.read_bytes())), mode="r:*") as content:
            content.extractall(folder, **_FILTER)  # noqa: S202 - checked against Debian's list


def _content(archive: bytes) -> bytes:
    """The member data.tar.* of a package, which is an `ar` archive."""
    position = 8  # after the magic bytes
    while position < len(archive):
        header = archive[position : position + 60]
        name, size = header[:16].decode().strip(), int(header[48:58])
        start = position + 60
        if name.startswith("data.tar"):
            return archive[start : start + size]
        position = start + size + size % 2
    msg = "the package has no data.tar"
    raise ValueError(msg)
