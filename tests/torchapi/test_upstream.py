"""The table of official torch releases."""

import hashlib

import pytest

from rocsolid.catalog.support import SUPPORTED_TORCH
from rocsolid.probe.packages import torch_folder
from rocsolid.torchapi.config.source import CONFIG_FILES, UNREADABLE, Build, read_configs
from rocsolid.torchapi.config.upstream import known_releases, release_of, to_json_value, upstream


def test_every_supported_minor_release_is_in_the_table() -> None:
    minors = {release.rpartition(".")[0] for release in known_releases()}

    assert minors == {f"2.{n}" for n in range(9, 16)}
    assert all(SUPPORTED_TORCH.holds(release) for release in known_releases())


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("2.13.0+cpu", "2.13.0"),
        ("2.13.0+rocm7.2", "2.13.0"),
        ("2.14.0a0+git", ""),
        ("2.14.0.dev20260101", ""),
        ("", ""),
    ],
)
def test_only_official_versions_have_a_release(version: str, release: str) -> None:
    assert release_of(version) == release


def test_defaults_change_between_releases_and_for_rocm() -> None:
    old, new = upstream("2.10.0"), upstream("2.11.0")
    assert old
    assert new

    assert old.default("inductor.precompilation_timeout_seconds", hip=False) == 3600
    assert new.default("inductor.precompilation_timeout_seconds", hip=False) == 300
    assert new.default("inductor.layout_optimization", hip=False) is True
    assert new.default("inductor.layout_optimization", hip=True) is False
    assert "inductor.compile_worker_wait_timeout" not in new.values


def test_an_unknown_release_has_no_entry() -> None:
    assert upstream("2.3.0") is None


@pytest.mark.torch
def test_the_installed_torch_matches_the_table() -> None:
    import torch

    folder = torch_folder()
    table = upstream(torch.__version__)
    assert folder
    assert table
    digests = {o: hashlib.sha256((folder / f).read_bytes()).hexdigest() for o, f in CONFIG_FILES.items()}
    (read,) = read_configs(folder, [{}], Build(version=torch.__version__))

    assert digests == table.digests
    assert {n: to_json_value(read[n].value) for n in table.values if read[n].value is not UNREADABLE} == table.values
