"""Graph breaks: the right id, the right line, the right words; and the fix removes them."""

import io
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

from tests.observe.corpus import CASES, MORE, Case, an_input  # noqa: E402

from rocsolid.model.compile_log import BreakReport  # noqa: E402
from rocsolid.observe.break_message import _ids, break_id, parts_of  # noqa: E402
from rocsolid.observe.breaks import find_breaks  # noqa: E402


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def breaks(function: Any, *args: Any) -> BreakReport:
    return find_breaks(function, args, backend="eager")


def test_the_corpus_covers_thirty_ids_of_torchs_register() -> None:
    ids = {case.id for case in CASES}

    assert len(ids) == len(CASES) >= 30
    if _ids():
        assert ids <= set(_ids().values())


@pytest.mark.parametrize("case", [*CASES, *MORE], ids=lambda case: f"{case.id}-{case.broken.__name__}")
def test_a_break_has_its_id_its_line_and_its_cause(case: Case) -> None:
    if _ids() and case.id not in _ids().values():
        pytest.skip(f"this torch has no {case.id}")
    report = breaks(case.broken, an_input())

    assert report.breaks, "no break was found"
    found = report.breaks[0]
    assert found.id == case.id
    assert found.place == f"{__file__.replace('test_breaks', 'corpus')}:{case.line}"
    assert case.cause in found.cause
    assert found.fix
    assert "breaks here" in found.line


@pytest.mark.parametrize("case", [*CASES, *MORE], ids=lambda case: f"{case.id}-{case.fixed.__name__}")
def test_the_cure_removes_the_break(case: Case) -> None:
    import torch

    fixed = breaks(case.fixed, an_input(), *case.more)

    assert fixed.breaks == ()
    assert len(fixed.graphs) == 1
    if case.same:
        torch.testing.assert_close(case.fixed(an_input(), *case.more), case.broken(an_input()))


def test_a_report_tells_graphs_and_breaks_in_a_few_lines() -> None:
    report = breaks(CASES[0].broken, an_input())

    assert len(report.graphs) == 2
    assert str(report).splitlines()[0] == "branch: 1 graph break, 2 graphs"
    assert "fix: `torch.where(condition, a, b)` computes both branches" in str(report)
    assert str(breaks(CASES[0].fixed, an_input())) == "branch_fixed: no graph break, 1 graph"


def test_a_compiled_function_is_taken_out_of_its_wrapping() -> None:
    import torch

    compiled = torch.compile(CASES[0].broken, fullgraph=True)

    assert [b.id for b in breaks(compiled, an_input()).breaks] == ["GB0170"]
    module = torch.compile(torch.nn.Linear(3, 3))
    assert breaks(module, an_input()).function == "Linear"


def test_what_the_function_raises_is_raised() -> None:
    def failing(x: Any) -> Any:
        raise KeyError(x.shape[0])

    with pytest.raises(KeyError, match="2"):
        breaks(failing, an_input())


def test_a_break_met_again_is_counted_not_repeated() -> None:
    def helper(x: Any) -> Any:
        import torch

        torch._dynamo.graph_break()
        return x + 1

    def twice(x: Any) -> Any:
        return helper(helper(x))

    report = breaks(twice, an_input())

    assert len(report.breaks) == 1
    assert report.breaks[0].times >= 2


def test_torchs_message_is_taken_apart() -> None:
    said = parts_of(
        "Attempted thing\n  Explanation: Dynamo cannot\n  Hint: do this.\n  Hint: or that.\n\n"
        "  Developer debug context: module: time\n\n For more details about this graph break, please visit: https://x/gb/gb0007.html"
    )

    assert (said.explanation, said.hints, said.context) == ("Dynamo cannot", ("do this.", "or that."), "module: time")
    assert break_id("nothing torch knows", "see https://x/gb/gb0007.html") == "GB0007"
    assert break_id("nothing torch knows") == ""
