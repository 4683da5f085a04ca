"""Recompiles: the failed guard, the argument with its old and new value, the line; and the fix avoids the recompile."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch: Any = pytest.importorskip("torch")

from rocsolid.api.observe import record_compiles  # noqa: E402
from rocsolid.catalog.recompiles import RECOMPILE_CAUSES, find_recompile_cause  # noqa: E402
from rocsolid.model.compile_log import Recompile  # noqa: E402
from rocsolid.model.release import compare  # noqa: E402
from rocsolid.observe.findings import recompile_findings  # noqa: E402
from rocsolid.observe.recompile_message import recompile_from_reason  # noqa: E402
from rocsolid.report.compiles_page import compiles_html  # noqa: E402
from rocsolid.report.compiles_text import compiles_text  # noqa: E402
from rocsolid.report.terminal import Terminal  # noqa: E402

SCALE = 2


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def added(x: Any, *more: Any) -> Any:
    for other in more:
        x = x + (len(other) if isinstance(other, (str, list)) else other if other is not None else 0)
    return x * 2


def scaled(x: Any) -> Any:
    return x * SCALE


def scaled_by(x: Any, scale: Any) -> Any:
    return x * scale


def applied(x: Any, f: Any) -> Any:
    return f(x)


class Counting(torch.nn.Module):  # type: ignore[misc]
    """Counts its calls in a Python int or in a buffer."""

    def __init__(self, *, buffer: bool) -> None:
        super().__init__()
        self.count: Any = 0
        if buffer:
            del self.count
            self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x: Any) -> Any:
        self.count += 1
        return x * self.count


def set_scale(value: int) -> int:
    global SCALE  # noqa: PLW0603 - the guard is on a global
    SCALE = value
    return value


def in_modes(f: Any, *modes: Any) -> None:
    x = torch.ones(2, 3, requires_grad=True)
    for mode in modes:
        with mode():
            f(x)


def one() -> Any:
    return torch.ones(2, 3)


def plus(x: Any) -> Any:
    return x + 1


def autocast() -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16)


NAMES_THE_AUTOCAST_DEVICE = compare(torch.__version__, "2.10") >= 0


@dataclass(frozen=True)
class Case:
    """One reason for a recompile, and calls that avoid it."""

    cause: str
    change: str
    again: Callable[[Any], object]
    fixed: Callable[[Any], object]
    function: Callable[..., Any] = added
    fixed_function: Callable[..., Any] | None = None


def dynamic(f: Any, *sizes: int) -> None:
    for size in sizes:
        x = torch.ones(size, 3)
        torch._dynamo.mark_dynamic(x, 0)
        f(x)


CASES = {
    "size": Case(
        "size changed",
        "x.size(0) changed from 2 to 5",
        lambda f: [f(torch.ones(n, 3)) for n in (2, 5)],
        lambda f: dynamic(f, 2, 5, 7),
    ),
    "size one": Case(
        "0 or 1",
        "x.size(0) changed from 2 to 1",
        lambda f: [f(torch.ones(n, 3)) for n in (2, 1)],
        lambda f: [f(torch.ones(2, 3)) for _ in "ab"],
    ),
    "dtype": Case(
        "dtype",
        "x.dtype changed from float32 to float64",
        lambda f: [f(one()), f(one().double())],
        lambda f: [f(one()), f(one().double().float())],
    ),
    "rank": Case(
        "dimensions",
        "x.dim() changed from 2 to 3",
        lambda f: [f(one()), f(torch.ones(2, 1, 3))],
        lambda f: [f(x.reshape(-1, 3)) for x in (one(), torch.ones(2, 1, 3))],
    ),
    "stride": Case(
        "stride",
        "x.stride(0) changed from 3 to 6",
        lambda f: [f(torch.ones(3, 3)), f(torch.ones(3, 6)[:, ::2])],
        lambda f: [f(torch.ones(3, 3)), f(torch.ones(3, 6)[:, ::2].contiguous())],
    ),
    "requires_grad": Case(
        "requires_grad",
        "x.requires_grad changed from False to True",
        lambda f: [f(one()), f(one().requires_grad_())],
        lambda f: [f(one()), f(one().requires_grad_().detach())],
    ),
    "grad mode": Case(
        "no_grad",
        "grad_mode changed",
        lambda f: in_modes(f, torch.enable_grad, torch.no_grad),
        lambda f: in_modes(f, torch.no_grad, torch.no_grad),
    ),
    "autocast": Case(
        "autocast",
        "autocast(cpu)_enabled changed" if NAMES_THE_AUTOCAST_DEVICE else "autocast changed",
        lambda f: in_modes(f, autocast, torch.enable_grad),
        lambda f: in_modes(f, autocast, autocast),
    ),
    "float": Case(
        "float",
        "more[0] changed from 1.5 to 4.5",
        lambda f: [f(one(), n * 1.5) for n in (1, 3)],
        lambda f: [f(one(), torch.tensor(n * 1.5)) for n in (1, 3)],
    ),
    "int": Case(
        "int",
        "more[0] changed from 2 to 3",
        lambda f: [f(one(), n) for n in (2, 3)],
        lambda f: [f(one(), torch.tensor(n)) for n in (2, 3)],
    ),
    "string": Case(
        "string",
        "more[0] changed from 'ab' to 'abc'",
        lambda f: [f(one(), t) for t in ("ab", "abc")],
        lambda f: [f(one(), "ab") for _ in "ab"],
    ),
    "none": Case(
        "None",
        "more[0] changed from None to Tensor",
        lambda f: [f(one(), None), f(one(), one())],
        lambda f: [f(one(), torch.zeros(2, 3)), f(one(), one())],
    ),
    "length": Case(
        "length",
        "len(more[0]) changed from 1 to 2",
        lambda f: [f(one(), [1]), f(one(), [1, 2])],
        lambda f: [f(one(), torch.tensor([1, 0, 0])), f(one(), torch.tensor([1, 2, 0]))],
    ),
    "same tensor": Case(
        "same tensor",
        "more[0] is x changed from True to False",
        lambda f: [f(x := one(), x), f(one(), one())],
        lambda f: [f(x := one(), x.clone()), f(one(), one())],
    ),
    "parameter": Case(
        "Parameter",
        "type(more[0]) changed to Parameter",
        lambda f: [f(one(), one()), f(one(), torch.nn.Parameter(one()))],
        lambda f: [f(one(), one()), f(one(), torch.nn.Parameter(one()).data)],
    ),
    "global": Case(
        "global",
        "SCALE changed from 2 to 3",
        lambda f: [f(one()), set_scale(3), f(one()), set_scale(2)],
        lambda f: [f(one(), torch.tensor(2)), f(one(), torch.tensor(3))],
        scaled,
        scaled_by,
    ),
    "callable": Case(
        "function or object",
        "f changed",
        lambda f: [f(one(), lambda x: x + 1), f(one(), lambda x: x + 2)],
        lambda f: [f(one(), plus), f(one(), plus)],
        applied,
    ),
    "counter": Case(
        "attribute of the module",
        "self.count changed from 0 to 1",
        lambda f: [f(one()), f(one())],
        lambda f: [f(one()), f(one())],
        Counting(buffer=False),
        Counting(buffer=True),
    ),
}


def recompiles(act: Callable[[Any], object], function: Any) -> tuple[list[Recompile], int]:
    with record_compiles() as recorder:
        act(torch.compile(function, backend="eager"))
    return [g.recompile for g in recorder.graphs if g.recompile], len(recorder.graphs)


@pytest.mark.parametrize("name", CASES)
def test_reports_cause_change_and_line_and_the_fix_avoids_the_recompile(name: str) -> None:
    case = CASES[name]
    found, graphs = recompiles(case.again, case.function)

    assert graphs == 2
    assert len(found) == 1
    assert case.cause in found[0].cause
    assert found[0].change == case.change
    assert found[0].previous_compile_id.endswith("/0")
    assert found[0].location.startswith(__file__)
    assert found[0].code.text
    torch._dynamo.reset()
    assert recompiles(case.fixed, case.fixed_function or case.function)[1] == 1


def test_an_unknown_guard_gets_the_general_cause() -> None:
    assert find_recompile_cause("something(new) failed") is RECOMPILE_CAUSES[-1]
    assert recompile_from_reason("no colon in it").guard == "no colon in it"


def test_a_recompile_becomes_a_finding_with_its_guard() -> None:
    with record_compiles() as recorder:
        compiled = torch.compile(added, backend="eager")
        compiled(torch.ones(2, 3))
        compiled(torch.ones(2, 3).double())
    (finding,) = recompile_findings(recorder.graphs)

    assert "graph 2 (inference) of added: " in str(recorder.log)
    assert "recompile: x.dtype changed from float32 to float64" in str(recorder.log)
    assert finding.code == "BRK002"
    assert "dtype mismatch. expected Float, actual Double" in finding.message
    assert finding.location.startswith(__file__)


def test_recompiles_are_grouped_by_cause() -> None:
    with record_compiles() as recorder:
        compiled = torch.compile(scaled_by, backend="eager", dynamic=False)
        for scale in (0.5, 1.5, 2.5, 3.5):
            compiled(torch.ones(2), scale)
        compiled(torch.ones(2).double(), 0.5)
    log = recorder.log
    by_argument = {group.first.argument: group for group in log.recompiles}

    assert len([graph for graph in log.graphs if graph.recompile]) == 4
    assert by_argument.keys() == {"scale", "x.dtype"}
    assert by_argument["scale"].graphs == (2, 3, 4)
    assert by_argument["scale"].change == "scale took 4 values: 0.5, 1.5, 2.5, 3.5"
    text = compiles_text(log, Terminal())
    assert text.count("fix: pass it as a tensor: `torch.tensor(value)`") == 1
    assert "3 recompiles of scaled_by (" in text
    assert "recompile: scale changed from 1.5 to 2.5" in text
    assert [finding.message.partition(" (")[0] for finding in recompile_findings(log.graphs)].count(
        "scaled_by was recompiled 3 times"
    ) == 1
    assert compiles_html(log).count("torch.tensor(value)") == 1
    assert "3 recompiles of scaled_by (" in str(log)


def test_sizes_that_are_compiled_each_time_are_to_be_padded() -> None:
    """`dynamic=True` does not help where an operation needs the size."""
    with record_compiles() as recorder:
        compiled = torch.compile(added, backend="eager", dynamic=False)
        for size in (3, 4, 5):
            compiled(torch.ones(2, size))
    (group,) = recorder.log.recompiles

    assert group.change == "x.size(1) took 3 values: 3, 4, 5"
    assert "pad to a few sizes" in group.first.fix
    assert "example (not your code)" not in str(group)


def test_time_of_a_recompile_contains_its_backward_graph() -> None:
    with record_compiles() as recorder:
        compiled = torch.compile(added)
        for dtype in (torch.float32, torch.float64):
            compiled(torch.ones(2, 3, dtype=dtype, requires_grad=True)).sum().backward()
    log = recorder.log
    again = [graph for graph in log.graphs if graph.compile_id == log.graphs[-1].compile_id]

    assert [graph.kind.value for graph in again] == ["forward", "backward"]
    assert log.recompiles[0].seconds == pytest.approx(sum(graph.seconds for graph in again))
