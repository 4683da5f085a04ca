"""Graph breaks get a fix of the user's own line, applied and checked; what cannot be checked stays an example."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from tests.support import installed_torch  # noqa: E402

from rocsolid.model.compile_log import CHECKED_FIX, BreakReport  # noqa: E402
from rocsolid.observe.break_fix import rewrite, with_fixes  # noqa: E402
from rocsolid.observe.break_message import known_ids  # noqa: E402
from rocsolid.observe.breaks import find_breaks  # noqa: E402

HEAD = "import copy\nimport logging\nimport math\n\nimport torch\n\nlogger = logging.getLogger(__name__)\n\n\n"
# By function: its body, and how the changed lines read afterwards.
CASES = {
    "branch": (
        "if hidden.sum() > 0:\n    out = hidden * 2\nelse:\n    out = hidden - 1\nreturn out",
        "out = torch.where(hidden.sum() > 0, hidden * 2, hidden - 1)",
    ),
    "one_sided": (
        "if hidden.sum() > 0 and hidden.max() < 9:\n    hidden = hidden + 1\nreturn hidden",
        "hidden = torch.where((hidden.sum() > 0) & (hidden.max() < 9), hidden + 1, hidden)",
    ),
    "returned": (
        "if hidden.sum().item() > 0:\n    return hidden * 2\nreturn hidden",
        "return torch.where(hidden.sum() > 0, hidden * 2, hidden)",
    ),
    "ternary": (
        "out = hidden * 2 if hidden.mean() > 0 else hidden\nreturn out",
        "out = torch.where(hidden.mean() > 0, hidden * 2, hidden)",
    ),
    "item": ("width = hidden.abs().max().item()\nreturn hidden / width", "width = hidden.abs().max()"),
    "number": ("width = float(hidden.max() + 1)\nreturn hidden / width", "width = (hidden.max() + 1)"),
    "list_sum": ("total = sum(hidden.tolist())\nreturn hidden / total", "total = hidden.sum()"),
    "root": ("return hidden / math.sqrt(hidden.max())", "return hidden / torch.sqrt(hidden.max())"),
    "same": (
        "out = hidden * 2 if torch.equal(hidden, other) else hidden\nreturn out",
        "out = torch.where((hidden == other).all(), hidden * 2, hidden)",
    ),
    "masked": ("keep = hidden > 0\nreturn hidden[keep].sum()", "return torch.where(keep, hidden, 0).sum()"),
    "selected": (
        "return torch.masked_select(hidden, hidden > 0).sum()",
        "return torch.where(hidden > 0, hidden, 0).sum()",
    ),
    "both": (
        "ok = (hidden > -9).all() and (other > -9).all()\nreturn hidden * ok",
        "ok = ((hidden > -9).all()) & ((other > -9).all())",
    ),
    "clamped": (
        (
            "for _ in range(2):\n    hidden = hidden * 2\n    if hidden.abs().max().item() > 3.0:\n        hidden = hidden.clamp(-3.0, 3.0)\n"
            "print('first')\nhidden = hidden + 1\nprint('second')\nreturn hidden"
        ),
        "hidden = torch.where(hidden.abs().max() > 3.0, hidden.clamp(-3.0, 3.0), hidden)",
    ),
    "checked": ("if torch.isnan(hidden).any():\n    print('nan')\nreturn hidden * 2", "pass"),
    "printed": ("print('max', hidden.max())\nreturn hidden * 2", "pass"),
    "logged": ("logger.warning('slow %s', hidden.shape)\nreturn hidden * 2", "pass"),
    "broken": ("torch._dynamo.graph_break()\nreturn hidden * 2", "pass"),
}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    file = tmp_path_factory.mktemp("fix") / "sample.py"
    functions = [
        f"def {name}(hidden, other):\n" + "".join(f"    {line}\n" for line in body.splitlines())
        for name, (body, _) in CASES.items()
    ]
    later = "def later(hidden, other):\n    flag = hidden.sum().item()\n    if flag > 0:\n        print(flag)\n    return hidden, flag\n"
    in_loop = "def in_loop(hidden, other):\n    for _ in range(2):\n        flag = hidden.sum().item()\n        if flag > 0:\n            print(flag)\n    return hidden, flag\n"
    file.write_text(HEAD + "\n\n".join([*functions, later, in_loop]))
    spec = importlib.util.spec_from_file_location("rocsolid_fix_sample", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fixed(sample: ModuleType, name: str) -> BreakReport:
    function = getattr(sample, name)
    args = (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 3.0]))
    return with_fixes(find_breaks(function, args, backend="eager"), function, args, {})


@pytest.mark.parametrize("name", CASES)
def test_the_users_line_is_rewritten_and_checked(sample: ModuleType, name: str) -> None:
    if name == "clamped" and "GB7000" not in known_ids().values():
        pytest.skip(f"torch {installed_torch()} has no id for a break in a loop")
    code = getattr(sample, name).__code__
    report = fixed(sample, name)

    fix = report.breaks[0].line_fix
    assert fix is not None, report.breaks[0]
    assert fix.after == CASES[name][1]
    assert CHECKED_FIX in str(report.breaks[0])
    assert getattr(sample, name).__code__ is code  # the function of the user is as before


@pytest.mark.parametrize("name", ["later", "in_loop"])
def test_a_rewrite_that_moves_the_break_stays_an_example(sample: ModuleType, name: str) -> None:
    """As in Longformer: without `.item()` the break comes at the `if`, and the result is a tensor."""
    report = fixed(sample, name)

    assert report.breaks[0].line_fix is None
    assert "example (not your code):" in str(report.breaks[0])


def test_a_line_without_a_rewrite_has_none() -> None:
    assert list(rewrite("import torch\n\ndef f(x):\n    return x.nonzero()\n", 4)) == []
    assert list(rewrite("def f(x):\n    return x.item()\n", 2)) == []  # torch is not imported


def test_arguments_that_cannot_be_copied_get_no_checked_fix(sample: ModuleType) -> None:
    class Once:
        def __deepcopy__(self, _: object) -> None:
            raise TypeError

    args = (torch.ones(3), Once())
    report = find_breaks(sample.item, args, backend="eager")

    assert with_fixes(report, sample.item, args, {}).breaks[0].line_fix is None


def test_the_source_file_is_not_written(sample: ModuleType) -> None:
    assert sample.__file__
    assert Path(sample.__file__).read_text().startswith(HEAD)
