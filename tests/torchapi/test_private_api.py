"""Every private torch name that rocsolid uses does what rocsolid needs. Each name has its own test."""

import subprocess
from functools import cache

import pytest
from tests.support import ROOT

from rocsolid.errors import UnsupportedTorchError
from rocsolid.model.probed_name import ProbedName
from rocsolid.model.release import span
from rocsolid.torchapi import name_probes
from rocsolid.torchapi.name_probes import load_all_names, probe
from rocsolid.torchapi.private_api import PrivateName

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
NAMES = load_all_names()


@cache
def results() -> dict[str, ProbedName]:
    """The results of all probes, made in one child process as `rocsolid doctor` does."""
    done = subprocess.run(name_probes.command(), capture_output=True, text=True, check=False, cwd=ROOT)
    rows = name_probes.read_output(done.stdout)
    assert rows is not None, done.stderr[-2000:]
    return {row.name: row for row in rows}


@pytest.mark.parametrize("declared", NAMES, ids=str)
def test_the_private_name_does_what_rocsolid_needs(declared: PrivateName) -> None:
    result = results()[str(declared)]
    if result.skipped:
        pytest.skip(f"{declared}: {result.skipped}")

    assert not result.problem


def test_a_name_of_a_package_that_is_not_installed_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Triton, which builds for CPUs do not need, `rocsolid doctor` said that three names do not work."""
    of_triton = [name for name in NAMES if name.module.startswith("triton.")]
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    assert {name_probes.probe(name).skipped for name in of_triton if name.releases.holds(torch.__version__)} == {
        "triton is not installed"
    }


def test_every_name_has_a_probe_and_says_what_is_lost_without_it() -> None:
    probed = set(name_probes._PROBES)

    assert {str(name) for name in NAMES if not name.text} <= probed <= {str(name) for name in NAMES}
    for name in NAMES:
        feature, _, loss = name.without.partition(": ")
        assert feature.startswith(("rs.", "rocsolid ")), name
        assert loss, name


def test_private_names_are_used_only_in_torchapi() -> None:
    """The attributes of torch's objects that are declared; a module's own attributes may have the same names."""
    attributes = ("_orig_mod", "_torchdynamo_orig_callable", "._schema", "_one_graph", "torch._C.", "._version)")
    found = [
        f"{file.relative_to(ROOT)}: {attribute}"
        for file in sorted((ROOT / "src/rocsolid").rglob("*.py"))
        if "torchapi" not in file.parts and "catalog" not in file.parts
        for attribute in attributes
        if attribute in file.read_text(encoding="utf-8")
    ]

    assert found == ["src/rocsolid/observe/graph_text.py: torch._C."]  # in an example in a docstring


def test_a_name_that_means_something_else_fails_its_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    (declared,) = (name for name in NAMES if str(name) == "torch._foreach_copy_")
    monkeypatch.setattr(torch, "_foreach_copy_", lambda *_: None)

    assert probe(declared).problem == "it exists, and does something else than rocsolid needs"


def test_a_missing_name_raises_an_error_with_the_name_and_its_releases() -> None:
    missing = PrivateName(
        module="torch.utils._config_module",
        name="Nothing.here",
        releases=span("2.6..2.8"),
        without="rs.guard: nothing",
    )

    with pytest.raises(UnsupportedTorchError) as error:
        missing.get()

    assert "has no `torch.utils._config_module.Nothing.here`" in str(error.value)
    assert "present in torch 2.6 to 2.8" in str(error.value)
    assert not missing.exists()
    assert missing.find() is None
