"""Messages about graph breaks, recompiles, compiles, vendor operators, lint findings and dry runs."""

import io
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.report.test_dryrun import RECORD
from tests.support import ROOT, check_golden, installed_torch

torch: Any = pytest.importorskip("torch")
# Torch's names of breaks and guards, and the columns of an expression, differ in other releases.
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        not installed_torch().startswith("2.13") or sys.version_info < (3, 11), reason="needs torch 2.13"
    ),
]

from tests.golden import observe_sample as sample  # noqa: E402

from rocsolid.api.observe import record_compiles  # noqa: E402
from rocsolid.errors import RocsolidError  # noqa: E402
from rocsolid.lint.options import Options  # noqa: E402
from rocsolid.lint.project import lint  # noqa: E402
from rocsolid.observe.break_fix import with_fixes  # noqa: E402
from rocsolid.observe.breaks import find_breaks  # noqa: E402
from rocsolid.ops.audit_op import audit_op  # noqa: E402
from rocsolid.ops.patch_calls import patch_calls  # noqa: E402
from rocsolid.ops.vendor_op import vendor_op  # noqa: E402
from rocsolid.report.compiles_page import breaks_html, compiles_html  # noqa: E402
from rocsolid.report.compiles_text import breaks_text, compiles_text  # noqa: E402
from rocsolid.report.dryrun_text import dryrun_text  # noqa: E402
from rocsolid.report.lint_text import lint_text  # noqa: E402
from rocsolid.report.terminal import Terminal  # noqa: E402

TIMES = {r"\d+\.\d+ s": "<time>", r"torch 2\.\d+\.\d+\S*": "torch <version>"}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(ROOT)  # locations are relative to it
    torch._dynamo.reset()
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()


def y() -> Any:
    return torch.arange(6.0).reshape(2, 3) - 2


@pytest.mark.parametrize(
    "name",
    [
        "item",
        "printing",
        "branch",
        "nonzero",
        "unsupported_call",
        "printing_in_a_loop",
        "calls_a_loop",
        "without_fake",
        "no_break",
    ],
)
def test_breaks(name: str) -> None:
    report = find_breaks(getattr(sample, name), (y(),), backend="eager")

    check_golden(f"observe/breaks_{name}", f"{report}\n")


def test_breaks_command() -> None:
    report = with_fixes(find_breaks(sample.item, (y(),), backend="eager"), sample.item, (y(),), {})

    check_golden("observe/breaks_command", breaks_text(report, Terminal()), replace=TIMES)
    short = replace(report, breaks=tuple(replace(b, torch_message="(torch's message)") for b in report.breaks))
    check_golden("observe/breaks_page", _visible(breaks_html(short)), replace=TIMES)
    assert "1 compiled graph ·" in breaks_html(replace(short, graphs=short.graphs[:1]))


@pytest.mark.parametrize(
    ("name", "function", "act"),
    [
        ("shape", sample.scaled, sample.call_with_shapes),
        ("number", sample.scaled, sample.call_with_numbers),
        ("module_attribute", sample.Counter(), sample.call_twice),
    ],
)
def test_recompiles(name: str, function: Any, act: Callable[[Any], None]) -> None:
    with record_compiles() as recorder:
        act(torch.compile(function, backend="eager"))
    (recompile,) = [graph.recompile for graph in recorder.graphs if graph.recompile]

    check_golden(f"observe/recompile_{name}", f"{recompile}\n\nin the log:\n{recorder.log}\n", replace=TIMES)


def test_compiles_command() -> None:
    with record_compiles() as recorder:
        compiled = torch.compile(sample.item, backend="eager")
        compiled(y())
        compiled(y().double())

    log = recorder.log
    check_golden("observe/compiles_command", compiles_text(log, Terminal()), replace=_PHASES)
    short = replace(log, breaks=tuple(replace(b, torch_message="(torch's message)") for b in log.breaks))
    check_golden("observe/compiles_page", _visible(compiles_html(short)), replace=_PHASES)


_PHASES = {
    **TIMES,
    r"(  time +).*(\n {13}.*)*": r"\1<phases>",
    r"(?m)^(time\n).*": r"\1<phases>",
}


def _visible(html: str) -> str:
    """The text of a page, without markup and style; a tag becomes a line break."""
    import html as entities

    body = html.partition("<main>")[2].partition("</main>")[0]
    body = re.sub(r"<style>.*?</style>|<svg.*?</svg>|<ul class=\"legend\">.*?</ul>", "", body, flags=re.DOTALL)
    text = re.sub(r"<(?!/?(b|code|i|span)\b)[^>]*>", "\n", body)
    text = entities.unescape(re.sub(r"<[^>]*>", "", text))
    return "\n".join(line for line in text.splitlines() if line.strip())


def ones() -> tuple[Any, ...]:
    return (torch.ones(4, 8),)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def two_arguments(x: Any, n: Any) -> Any:
    return x + n


def three(x: Any) -> Any:
    return x.numel()


ERRORS: dict[str, Callable[[], object]] = {
    "wrong name": lambda: vendor_op("norm", double, fake=double),
    "name taken": lambda: vendor_op("aten::relu", double, fake=double),
    "no types": lambda: vendor_op("golden::a", lambda x: x, fake=abs),
    "no signature": lambda: vendor_op("golden::b", lambda *a: a[0], fake=lambda *a: a[0]),
    "no fake": lambda: vendor_op("golden::c", double),
    "wrong schema": lambda: vendor_op("golden::d", double, fake=double, schema="(Tensr x) -> Tensor"),
    "wrong mutates": lambda: vendor_op("golden::e", double, fake=double, mutates=("y",)),
    "example is a list": lambda: vendor_op("golden::f", double, fake=double, example=[1]),  # type: ignore[arg-type]
    "example too short": lambda: vendor_op("golden::g", two_arguments, fake=two_arguments, example=ones()),
    "unsupported argument": lambda: vendor_op("golden::h", lambda x: x, fake=abs, example=({},)),
    "unsupported result": lambda: vendor_op("golden::i", three, fake=three, example=ones()),
    "returns its argument": lambda: vendor_op("golden::j", lambda x: x, reference=double, example=ones()),
    "returns a view": lambda: vendor_op("golden::k", lambda x: x.view(-1), reference=double, example=ones()),
    "undeclared mutation": lambda: vendor_op("golden::l", lambda x: x.add_(1) * 2, reference=double, example=ones()),
    "wrong result": lambda: vendor_op("golden::m", lambda x: x * 0, reference=double, example=ones()),
    "wrong dtype of the fake": lambda: vendor_op("golden::n", lambda x: x.double(), reference=double, example=ones()),
    "patch of a missing function": lambda: patch_calls("math", {"math.sqr": abs}).__enter__(),
    "patch of a missing module": lambda: patch_calls("math", {"no_such_vendor.f": abs}).__enter__(),
}


def test_operator_errors() -> None:
    torch.manual_seed(0)
    lines = []
    for name, call in ERRORS.items():
        with pytest.raises(RocsolidError) as error:
            call()
        lines += [f"{name}:", f"  {error.value}", ""]

    check_golden("observe/operator_errors", "\n".join(lines), replace={r"result 0 is [\d.]+": "result 0 is <error>"})


def test_audit() -> None:
    library = torch.library.Library("goldenvendor", "FRAGMENT")
    library.define("mha(Tensor(a!) q, Tensor(b!) k) -> Tensor")
    library.impl("mha", lambda q, k: q + k, "CPU")
    audits = [
        audit_op("goldenvendor::mha"),
        audit_op("goldenvendor::mha", torch.ones(2), torch.ones(2)),
        audit_op("aten::nonzero"),
        audit_op("aten::relu"),
    ]

    check_golden("observe/audit_op", "\n\n".join(map(str, audits)))
    del library


LINTED = """\
import torch


def scale(y):
    return y.max().item()


@torch.compile
def step(x):
    y = torch.relu(x)
    if y.sum().item() > 0:
        y = y * 2
    return y / scale(y)


torch._inductor.config.group_fusion = True  # rocsolid: allow[dead-setting]
"""


def test_lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(LINTED)
    Path("broken.py").write_text("from torch import compile, (:\n")
    record = lint([Path()], Options(), jobs=1, cache=None)

    check_golden("observe/lint", lint_text(record, Terminal()))


def test_dryrun() -> None:
    check_golden("observe/dryrun", dryrun_text(RECORD, Terminal()))
