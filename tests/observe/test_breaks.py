"""Graph breaks: torch's id, the user's line with a caret, cause and fix; and the fix removes the break."""

import io
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

from tests.observe.corpus import CASES, IDS_IN_OTHER_RELEASES, MORE, WITHOUT_CARET, Case, an_input  # noqa: E402
from tests.support import installed_torch  # noqa: E402

from rocsolid.model.compile_log import BreakReport  # noqa: E402
from rocsolid.observe.break_message import break_id, known_ids, parse_message  # noqa: E402
from rocsolid.observe.breaks import find_breaks  # noqa: E402

STATEMENTS = {"GB0142", "GB8977", "GB0003"}  # with, class, def: the whole line breaks the graph


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def breaks(function: Any, *args: Any) -> BreakReport:
    return find_breaks(function, args, backend="eager")


def test_the_corpus_covers_thirty_ids_of_torchs_registry() -> None:
    ids = {case.id for case in CASES}

    assert len(ids) == len(CASES) >= 30
    if known_ids():
        assert len(ids & set(known_ids().values())) >= 25
        assert ids <= set(known_ids().values()) or not installed_torch().startswith("2.13")


@pytest.mark.parametrize("case", [*CASES, *MORE], ids=lambda case: f"{case.id}-{case.broken.__name__}")
def test_reports_id_line_caret_and_cause(case: Case) -> None:
    release = installed_torch()
    if known_ids() and case.id not in known_ids().values():
        pytest.skip(f"torch {release} has no {case.id}")
    minor = release.rpartition(".")[0]
    expected = IDS_IN_OTHER_RELEASES.get(minor, {}).get(case.broken.__name__, case.id)
    if not expected:
        pytest.skip(f"torch {release} does not break the graph here, or does not name the cause")
    report = breaks(case.broken, an_input())

    assert report.breaks, "no break was found"
    found = report.breaks[0]
    assert found.id == expected
    assert found.location == f"{__file__.replace('test_breaks', 'corpus')}:{case.line}"
    assert case.cause in f"{found.cause} {found.effect}" or expected != case.id
    assert found.fix
    assert "breaks here" in found.code.text
    if case.id not in STATEMENTS and case.broken.__name__ not in WITHOUT_CARET.get(minor, ()):
        assert 0 <= found.code.start < found.code.end <= len(found.code.text)


@pytest.mark.parametrize("case", [*CASES, *MORE], ids=lambda case: f"{case.id}-{case.fixed.__name__}")
def test_the_fix_removes_the_break(case: Case) -> None:
    import torch

    fixed = breaks(case.fixed, an_input(), *case.more)

    assert fixed.breaks == ()
    assert len(fixed.graphs) == 1
    if case.same:
        torch.testing.assert_close(case.fixed(an_input(), *case.more), case.broken(an_input()))


def test_prints_the_break_with_the_users_line_and_a_caret() -> None:
    report = breaks(CASES[0].broken, an_input())

    assert len(report.graphs) == 2
    lines = str(report).splitlines()
    assert lines[0].startswith("graph break: ")
    assert lines[1].endswith("corpus.py:52   if x.sum() > 0:  # breaks here")
    assert lines[2][lines[1].index("x.sum()") :] == "^^^^^^^^^^^"
    assert lines[3].startswith("fix: ")
    assert lines[-1] == "branch: 1 graph break, 2 compiled graphs"
    assert str(breaks(CASES[0].fixed, an_input())) == "branch_fixed: no graph break, 1 compiled graph"


def test_accepts_a_compiled_function_or_module() -> None:
    import torch

    compiled = torch.compile(CASES[0].broken, fullgraph=True)

    assert [b.id for b in breaks(compiled, an_input()).breaks] == ["GB0170"]
    module = torch.compile(torch.nn.Linear(3, 3))
    assert breaks(module, an_input()).function == "Linear"


def test_errors_of_the_function_are_raised() -> None:
    def failing(x: Any) -> Any:
        raise KeyError(x.shape[0])

    with pytest.raises(KeyError, match="2"):
        breaks(failing, an_input())


def test_a_repeated_break_is_listed_once_with_a_count() -> None:
    def helper(x: Any) -> Any:
        import torch

        torch._dynamo.graph_break()
        return x + 1

    def twice(x: Any) -> Any:
        return helper(helper(x))

    report = breaks(twice, an_input())

    assert len(report.breaks) == 1
    assert report.breaks[0].count >= 2


def test_a_break_in_the_loop_of_a_helper_is_listed_once() -> None:
    def helper(x: Any) -> Any:
        for _ in range(3):
            x = x + 1
            print(x)  # noqa: T201
        return x

    def outer(x: Any) -> Any:
        return helper(x * 2) + 1

    if "GB7000" not in known_ids().values():
        pytest.skip(f"torch {installed_torch()} has no id for a break in a loop")
    (found,) = breaks(outer, an_input()).breaks

    assert (found.id, found.count, found.in_loop, found.function) == ("GB7000", 2, True, "helper")
    assert found.code.text.strip().startswith("print(x)")
    assert found.effect == (
        "torch cannot resume inside a loop, so nothing of helper is compiled, and breaks after this line are not known yet: "
        "fix it and run again"
    )


def test_a_training_step_lists_only_what_the_user_can_change() -> None:
    """The step calls torch's optimizer, Python's `inspect` and rocsolid's recorder, which Dynamo traces as well."""
    import torch

    model = torch.nn.Linear(3, 3)
    compiled = torch.compile(CASES[0].broken, backend="eager")
    opt = torch.optim.AdamW(model.parameters())

    def step(x: Any) -> Any:
        opt.zero_grad()
        loss = compiled(model(x)).sum()
        loss.backward()
        opt.step()
        return loss

    whole = find_breaks(step, (an_input(),), backend="inductor")
    causes = {found.code.text.strip(): found.cause for found in whole.breaks}
    as_is = find_breaks(step, (an_input(),), as_is=True)

    assert {found.location.rpartition(":")[0] for found in whole.breaks} <= {
        __file__,
        CASES[0].broken.__code__.co_filename,
    }
    assert {frame.location.rpartition(":")[0] for frame in whole.uncompiled} == {__file__}
    assert causes["opt.step()"].startswith("an optimizer inside the compiled function")
    assert causes["opt.zero_grad()"].startswith("an optimizer inside the compiled function")
    assert [found.id for found in as_is.breaks] == ["GB0170"]


def test_parses_the_parts_of_torchs_message() -> None:
    message = parse_message(
        "Attempted thing\n  Explanation: Dynamo cannot\n  Hint: do this.\n  Hint: or that.\n\n"
        "  Developer debug context: module: time\n\n For more details about this graph break, please visit: https://x/gb/gb0007.html"
    )

    assert (message.explanation, message.hints, message.context) == (
        "Dynamo cannot",
        ("do this.", "or that."),
        "module: time",
    )
    assert break_id("nothing torch knows", "see https://x/gb/gb0007.html") == "GB0007"
    assert break_id("nothing torch knows") == ""
