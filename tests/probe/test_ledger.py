"""The ledger of container images: record, compare and merge entries; other files are not changed."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.support import Ran, clean_environ, make_env, run_cli

from rocsolid.api.images import record_probe
from rocsolid.errors import InputError, UnknownNameError
from rocsolid.model.environment import Container
from rocsolid.model.saved_probe import ImageEntry, ProbeRecord
from rocsolid.probe.ledger import Ledger, default_file


def record(torch: str = "2.13.0", **fields: Any) -> ProbeRecord:
    return ProbeRecord(environment=make_env(torch=torch, **fields), findings=(), profile="safe")


def test_records_a_probe_under_its_image(tmp_path: Path) -> None:
    file = tmp_path / "deep/ledger.db"
    entry = record_probe(record(), image="rocm/pytorch:7", file=file)

    assert Ledger(file).find("rocm/pytorch:7") == entry
    assert entry.record == record()


@pytest.mark.parametrize(
    ("named", "container", "image"),
    [
        ("mine:1", Container(engine="podman", image="theirs:2"), "mine:1"),
        ("", Container(engine="podman", image="theirs:2", image_id="abc"), "theirs:2"),
        ("", Container(engine="docker"), "fingerprint:1234"),
        ("", None, "fingerprint:1234"),
    ],
)
def test_names_the_entry_by_what_is_known(tmp_path: Path, named: str, container: Container | None, image: str) -> None:
    entry = record_probe(record(container=container, image_fingerprint="1234"), image=named, file=tmp_path / "l.db")

    assert entry.image == image
    assert entry.digest == (container.image_id if container and container.image_id else "1234")


def test_lists_claims_until_the_image_is_probed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db")
    claims = ledger.entries()

    assert [e.source for e in claims] == ["claim"] * 3
    record_probe(record(), image=claims[0].image, file=ledger.file)
    assert [e.source for e in Ledger(ledger.file).entries()] == ["probe", "claim", "claim"]


def test_merging_twice_adds_nothing(tmp_path: Path) -> None:
    mine, theirs = Ledger(tmp_path / "mine.db"), Ledger(tmp_path / "theirs.db")
    record_probe(record(), image="a:1", file=mine.file)
    record_probe(record(), image="a:1", file=theirs.file)
    record_probe(record(), image="b:1", file=theirs.file)

    assert mine.merge(theirs) == 1
    assert mine.merge(theirs) == 0
    assert [e.image for e in mine.entries() if e.source != "claim"] == ["a:1", "b:1"]


def test_unknown_image_suggests_similar_ones(tmp_path: Path) -> None:
    record_probe(record(), image="rocm/pytorch:7.2", file=tmp_path / "l.db")

    with pytest.raises(UnknownNameError, match=r"did you mean 'rocm/pytorch:7\.2'"):
        Ledger(tmp_path / "l.db").find("rocm/pytorch:7.1")


def half_written(file: Path) -> None:
    record_probe(record(), image="a:1", file=file)
    file.write_bytes(file.read_bytes()[:5000])


def of_another_program(file: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE entry (x)")


def from_the_future(file: Path) -> None:
    record_probe(record(), image="a:1", file=file)
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda file: file.write_text("<html>"), "it is not a SQLite database"),
        (half_written, "is not a ledger, or it is damaged"),
        (of_another_program, "it is the database of another program"),
        (from_the_future, "it has format 99, and this rocsolid reads formats up to 1"),
        (lambda file: file.mkdir(), "Is a directory"),
    ],
    ids=["text", "half-written", "another program", "newer", "folder"],
)
def test_refuses_other_files_without_changing_them(tmp_path: Path, make: object, message: str) -> None:
    file = tmp_path / "l.db"
    make(file)  # type: ignore[operator]
    before = file.read_bytes() if file.is_file() else b""

    with pytest.raises(InputError) as error:
        record_probe(record(), image="b:1", file=file)

    assert message in str(error.value)
    assert str(error.value).endswith("the file was not changed")
    assert (file.read_bytes() if file.is_file() else b"") == before


def test_ledger_path_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCSOLID_LEDGER", "/x/y.db")
    assert default_file() == Path("/x/y.db")
    monkeypatch.delenv("ROCSOLID_LEDGER")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_file() == Path("/data/rocsolid/ledger.db")


def ledger(tmp_path: Path, *args: str, **planted: str) -> Ran:
    return run_cli("ledger", "--ledger", str(tmp_path / "l.db"), *args, env=clean_environ(**planted))


def test_command_lists_shows_compares_exports_and_merges(tmp_path: Path) -> None:
    record_probe(record(), image="a:1", file=tmp_path / "l.db")
    record_probe(record(torch="2.12.0"), image="b:1", file=tmp_path / "other.db")

    merged = ledger(tmp_path, "merge", str(tmp_path / "other.db"))
    assert merged.err == f"1 new entry from {tmp_path / 'other.db'}\n"
    listed = ledger(tmp_path)
    assert listed.out.startswith("a:1\n  torch 2.13.0, ROCm 7.1.1; no findings; 2026-11-15 probe\n")
    assert "rocm/sgl-dev:v0.5.8-rocm700-mi30x-20260129" in listed.out
    assert "torch: 2.13.0 → 2.12.0" in ledger(tmp_path, "diff", "a:1", "b:1").out
    assert ledger(tmp_path, "export").out.startswith("| Image | Torch | ROCm | Findings | Recorded |\n| --- |")
    assert "torch 2.12.0 on ROCm" in ledger(tmp_path, "show", "b:1").out
    claimed = ledger(tmp_path, "diff", "a:1", "rocm/sgl-dev:v0.5.8-rocm700-mi30x-20260129")
    assert (claimed.code, claimed.err.count("\n")) == (2, 1)
    assert ledger(tmp_path, "list", "--output", "json").json()["schema"] == "rocsolid/ledger/1"


ENGINE = """#!/bin/sh
# A fake container tool: runs the command here instead of in an image.
case "$1" in
  version) echo 5.0 ;;
  image) echo '["registry/it@sha256:feed"] sha256:beef' ;;
  run)
    while [ "$1" != "-c" ]; do
      case "$1" in --volume) export PYTHONPATH="${2%%:*}" ;; broken:1) echo "no such image" >&2; exit 125 ;; esac
      shift
    done
    exec sh -c "$2" ;;
esac
"""


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_scan_probes_an_image_from_outside(tmp_path: Path, name: str) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / name).write_text(ENGINE)
    (tools / name).chmod(0o755)
    path = f"{tools}:/usr/bin:/bin"
    done = ledger(tmp_path, "scan", "it:1", "--engine", name, PATH=path)

    assert done.code == 0, done.err
    assert done.err.splitlines()[-1] == "recorded as it:1@sha256:feed"
    entry = Ledger(tmp_path / "l.db").find("it:1")
    assert (entry.source, entry.digest) == ("scan", "sha256:feed")
    assert entry.record is not None
    broken = ledger(tmp_path, "scan", "broken:1", "--engine", name, PATH=path)
    assert broken.code == 3
    assert broken.err.splitlines()[-1] == f"rocsolid: error: {name} could not probe broken:1 (failed): no such image"


def test_scan_without_a_container_tool_names_the_alternative(tmp_path: Path) -> None:
    done = ledger(tmp_path, "scan", "it:1", PATH=str(tmp_path))

    assert done.code == 3
    assert "scanning an image needs docker, podman or apptainer, installed and running" in done.err
    assert "rocsolid probe --record --image NAME" in done.err


def test_entry_key_has_the_digest() -> None:
    assert ImageEntry(image="a", source="claim").key == "a"
    assert ImageEntry(image="a", digest="sha256:1", source="claim").key == "a@sha256:1"
