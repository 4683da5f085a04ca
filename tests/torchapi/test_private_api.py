"""Every private torch name that rocsolid uses does what rocsolid needs. Each name has its own test."""

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

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


def test_every_private_name_of_torch_is_declared_before_it_is_used() -> None:
    """Private names occur only where they are declared; everything else uses the declaration."""
    uses = [use for file in sorted((ROOT / "src/rocsolid").rglob("*.py")) for use in private_uses(file)]

    assert uses == []


def test_the_search_for_private_names_finds_every_way_to_use_one(tmp_path: Path) -> None:
    file = tmp_path / "torchapi/use.py"
    file.parent.mkdir()
    file.write_text(
        "import torch, sys, torch._inductor.fx_utils as config\n"
        "from torch._dynamo import reset\n"
        "from triton.runtime import _x\n"
        "torch._C._thing()\n"
        "module._parameters\n"
        "getattr(module, '_buffers')\n"
        "sys.modules['torch._dynamo.eval_frame']\n"
        "sys._getframe(), self._own, Pair._make(x)\n"
        "NAME = private_name('torch._C', '_other')\n"
        "_MODULE = 'torch._C'\n"
    )

    assert [use.partition(": ")[2] for use in private_uses(file)] == [
        "torch._inductor.fx_utils",
        "torch._dynamo.reset",
        "triton.runtime._x",
        "torch._C",
        "torch._C._thing",
        "_parameters",
        "_buffers",
        "torch._dynamo.eval_frame",
    ]


# Files with words of the user's source or of traces, which are compared with text and never looked up in torch.
WORDS = ("catalog", "lint", "rules", "trace", "report", "source.py", "break_fix.py", "kernels.py")
# A probe may use any name: if one is gone, the probe fails in a process of its own, and says so.
PROBES = ("name_probes.py", "tiny_dry_run.py")
OF_OTHERS = ("integrations", "completion.py")  # names of other libraries, and of argparse
ALLOWED = {
    "_dot_": "in the names that Dynamo begins with __import_: the same probe sees it",
    "_dynamo": "the folder of torch's registry of graph breaks; without the file there is none",
    "_graph": "in the name of an event",
    "_grid_": "in our own names",
    "_initializing": "of importlib",
    "torch.utils._config_module": "the module of many declared names",
    "torch._dynamo": "whether it is imported, and the name of its logger",
    "torch._inductor": "the name of its logger",
    "torch._inductor.config": "whether it is imported",
    "torch._inductor.runtime.hints": "whether it is imported",
}
_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}


def private_uses(file: Path) -> list[str]:
    """Every private name of torch or Triton in a file that is not part of a declaration, with its line."""
    if file.name in PROBES:
        return []
    tree = ast.parse(file.read_text(encoding="utf-8"))
    declared = {node for top in tree.body if declares(top) for node in ast.walk(top)}
    nodes = [node for node in ast.walk(tree) if node not in declared]
    own, aliases = names_defined_in(tree), {name: full for node in nodes for name, full in imported(node)}
    found = [
        (getattr(node, "lineno", 0), full) for node in nodes for _, full in imported(node) if has_private_part(full)
    ]
    whole = [node for node in nodes if isinstance(node, ast.Attribute)]
    found += [use for node in whole for use in attribute_uses(node, own, aliases)]
    if not set(file.parts) & set(WORDS):
        constants = [(n.lineno, n.value) for n in nodes if isinstance(n, ast.Constant)]
        in_torchapi = "torchapi" in file.parts
        found += [
            (line, text)
            for line, text in constants
            if isinstance(text, str) and names_private(text, own, in_torchapi=in_torchapi)
        ]
    if set(file.parts) & set(OF_OTHERS):
        found = [(line, name) for line, name in found if name.startswith(("torch.", "triton."))]
    unique = dict.fromkeys(sorted((line, name) for line, name in found if name not in ALLOWED))
    return [f"{file.name}:{line}: {name}" for line, name in unique]


def declares(statement: ast.stmt) -> bool:
    """Whether a statement of a module declares private names, or is a constant with the module of some."""
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    if any(isinstance(call.func, ast.Name) and call.func.id == "private_name" for call in calls):
        return True
    value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
    modules = {name.module for name in NAMES}
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(isinstance(v, ast.Constant) and v.value in modules for v in values)


def is_private(name: str) -> bool:
    return re.fullmatch(r"_+[A-Za-z]\w*", name) is not None and not re.fullmatch(r"__\w+__", name)


def has_private_part(dotted: str) -> bool:
    return dotted.startswith(("torch.", "triton.")) and any(map(is_private, dotted.split(".")))


def names_private(text: str, own: Collection[str], *, in_torchapi: bool) -> bool:
    """Whether a text is a private name: of torch with its module, or, where torch is used, one alone."""
    if re.fullmatch(r"(torch|triton)(\.\w+)+", text):
        return has_private_part(text)
    attributes = {part for name in NAMES for part in name.name.split(".")}
    return (
        (in_torchapi or text in attributes)
        and is_private(text)
        and text not in {*own, *_NAMED_TUPLES}
        and "rocsolid" not in text
    )


def names_defined_in(tree: ast.Module) -> set[str]:
    own = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    own |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    stored = (n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    own |= {n.attr for n in stored if isinstance(n.value, ast.Name) and n.value.id in ("self", "cls")}
    return own


def imported(node: ast.AST) -> list[tuple[str, str]]:
    """The names that an import binds, with what they stand for."""
    if isinstance(node, ast.Import):
        return [
            (a.asname or a.name.partition(".")[0], a.name if a.asname else a.name.partition(".")[0]) for a in node.names
        ] + [("", a.name) for a in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [(a.asname or a.name, f"{node.module}.{a.name}") for a in node.names]
    return []


def attribute_uses(node: ast.Attribute, own: Collection[str], aliases: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """A private attribute of torch, or of an object that is not this file's own."""
    if not is_private(node.attr) or node.attr in _NAMED_TUPLES or "rocsolid" in node.attr:
        return
    root: ast.expr = node
    parts: list[str] = []
    while isinstance(root, ast.Attribute):
        parts.append(root.attr)
        root = root.value
    name = aliases.get(root.id, root.id) if isinstance(root, ast.Name) else ""
    if name.partition(".")[0] in ("torch", "triton"):
        yield node.lineno, ".".join([name, *reversed(parts)])
    elif name.partition(".")[0] not in {*sys.stdlib_module_names, "self", "cls"} and node.attr not in own:
        yield node.lineno, node.attr


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
