"""The messages of `rs.capture`, produced on the record backend."""

import ctypes
import logging
import random
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.support import ROOT, check_golden

import rocsolid as rs
from rocsolid.errors import RocsolidError

pytest.importorskip("torch")
import torch
from tests.golden import capture_functions as functions

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _no_grad(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(ROOT)  # paths in messages are relative to the working directory
    torch.manual_seed(0)
    with torch.no_grad():
        yield


class Messages:
    """Collects log lines and exceptions under headings."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self._text: list[str] = []

    def add(self, heading: str, text: str) -> None:
        self._text.append(f"== {heading}\n{text}\n")

    def logged(self, heading: str, action: Callable[[], Any]) -> None:
        """Run an action and add what it logs."""
        self._caplog.clear()
        with self._caplog.at_level(logging.WARNING, "rocsolid"):
            action()
        lines = [r.getMessage() for r in self._caplog.records if r.name == "rocsolid"]
        self.add(heading, "\n".join(lines) or "(nothing is logged)")

    def raised(self, heading: str, action: Callable[[], Any]) -> None:
        """Run an action and add the error it raises."""
        with pytest.raises(RocsolidError) as error:
            action()
        self.add(heading, f"{type(error.value).__name__}: {error.value}")

    def check(self, name: str) -> None:
        check_golden(
            f"capture/{name}", "\n".join(self._text), replace={r"\d\.\de[-+]\d\d": "N.Ne-NN", r"\d+ ms": "N ms"}
        )


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Messages:
    return Messages(caplog)


def captured(function: Any, **options: Any) -> Any:
    return rs.capture(function, backend="record", **options)


def twice(function: Any, *args: Any) -> None:
    for _ in range(2):
        function(*args)


def test_refused_operations(messages: Messages) -> None:
    for function in (
        functions.reads_a_value,
        functions.branches_on_a_value,
        functions.indexes_with_a_mask,
        functions.creates_a_tensor,
        functions.copies_to_the_cpu,
        functions.prints,
        functions.sets_the_seed,
        functions.raises_in_the_capture,
        functions.returns_an_object,
        functions.compiles_every_time,
    ):
        messages.logged(function.__name__, partial(twice, captured(function, eager_modules=()), torch.ones(3)))
    messages.raised('on_error="raise"', lambda: captured(functions.reads_a_value, on_error="raise")(torch.ones(3)))
    messages.logged("a side effect in Python", lambda: twice(captured(functions.Counter()), torch.ones(3)))
    messages.check("refused_operations")


def test_refused_arguments(messages: Messages) -> None:
    x = torch.ones(4)

    def add(x: Any, other: Any) -> Any:  # noqa: ARG001
        return x + 1

    messages.logged("an object", lambda: captured(add)(x, {"config": functions.Config()}))
    messages.logged("a sparse tensor", lambda: captured(add)(x, x.to_sparse()))
    messages.logged("a conjugate view", lambda: captured(add)(x, torch.ones(2, dtype=torch.complex64).conj()))
    messages.logged("a meta tensor", lambda: captured(add)(x, torch.ones(2, device="meta")))

    def write(x: Any, other: Any) -> Any:  # noqa: ARG001
        return x.add_(1)

    messages.logged("written and shared memory", lambda: captured(write)(x[:3], x[1:]))
    with torch.enable_grad():
        messages.logged("a result that requires grad", lambda: captured(torch.nn.Linear(4, 4))(x))
    messages.logged("nothing to capture", lambda: captured(lambda x: x)(x))
    messages.logged("max_graphs=0", lambda: captured(add, max_graphs=0)(x, 1))
    messages.logged("memory budget", lambda: captured(add, memory_budget_bytes=8)(x, 1))
    messages.check("refused_arguments")


def test_refused_buckets(messages: Messages) -> None:
    def bucketed(function: Any, *lengths: int, **options: Any) -> None:
        g = captured(function, **{"buckets": {"x": rs.Bucket(dim=0, sizes=[16])}, **options})
        for length in lengths:
            g(torch.randn(length))

    messages.logged("padding changes the result", lambda: bucketed(functions.sums_over_padding, 10))
    messages.logged("a length that cannot be inferred", lambda: bucketed(lambda x: x[::3] * 2, 10))
    messages.logged("longer than the largest bucket", lambda: bucketed(lambda x: x * 2, 20))
    messages.logged("an empty input", lambda: bucketed(lambda x: x * 2, 0))
    wrong_name = {"tokens": rs.Bucket(dim=0, sizes=[16])}
    messages.logged("an unknown name", lambda: bucketed(lambda x: x * 2, 10, buckets=wrong_name))
    wrong_dim = {"x": rs.Bucket(dim=2, sizes=[16])}
    messages.logged("a wrong dimension", lambda: bucketed(lambda x: x * 2, 10, buckets=wrong_dim))
    messages.logged("another structure", lambda: bucketed(lambda x: [x * 2] * (1 + len(x) // 16), 10))
    messages.logged(
        "another number of dimensions", lambda: bucketed(lambda x: x * 2 if len(x) < 16 else x[None] * 2, 10)
    )
    different = {"x": rs.Bucket(dim=0, sizes=[16]), "y": rs.Bucket(dim=0, sizes=[32])}
    both = captured(lambda x, y: x.sum() + y.sum(), buckets=different)
    messages.logged("different sizes for one length", lambda: both(torch.ones(10), torch.ones(10)))
    messages.raised("sizes", lambda: rs.Bucket(dim=0, sizes=[0, 4]))
    messages.raised("over", lambda: rs.Bucket(dim=0, sizes=[4], too_long="cut"))
    messages.raised("every", lambda: rs.Bucket.multiples_of(0, 4))
    messages.raised("from_lengths", lambda: rs.Bucket.from_lengths([], 2))
    messages.check("refused_buckets")


def test_verification(messages: Messages, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.runtime.capture import entry

    def constant_from_an_input(x: Any) -> Any:
        return {"fine": x + 1, "scaled": x * ctypes.c_float.from_address(x.data_ptr()).value}

    messages.logged("wrong results", lambda: twice(captured(constant_from_an_input), torch.randn(3)))
    messages.logged("not deterministic", lambda: twice(captured(functions.differs_every_time), torch.randn(3)))

    double = captured(lambda x: x * 2, verify=rs.every(2))
    twice(double, torch.randn(3))
    plain = entry.Entry.replay_on
    monkeypatch.setattr(entry.Entry, "replay_on", lambda *args: plain(*args) + 1)
    messages.logged("the periodic check", lambda: double(torch.randn(3)))
    messages.check("verification")


def test_invalidation(messages: Messages) -> None:
    x = torch.ones(2, 4)

    def change(heading: str, change: Callable[[Any], Any], model: Any = None, *, frozen: bool = False) -> None:
        model = model or torch.nn.Linear(4, 4).eval()
        g = captured(model)
        twice(g, x)
        if frozen:
            g.freeze()
        change(model)
        messages.logged(heading, lambda: g(x))

    def move(model: Any) -> None:
        model.weight.data = model.weight.data * 2

    change("a parameter that moved", move)
    change("frozen", move, frozen=True)
    change("a parameter that was replaced", lambda m: setattr(m, "weight", torch.nn.Parameter(torch.ones(4, 4))))
    sequence = torch.nn.Sequential(torch.nn.Linear(4, 4))
    change("a module that was replaced", lambda m: m.__setitem__(0, torch.nn.Linear(4, 4)), sequence)
    change("a hook", lambda m: m.register_forward_hook(lambda *_: None))
    scale = {"value": 2.0}
    change("a constant", lambda _: scale.update(value=3.0), lambda x: x * scale["value"])
    change("a deleted value", lambda _: scale.pop("value"), lambda x: x * scale.get("value", 1.0))
    processor = functions.Processor()
    change("an object in an attribute", lambda m: setattr(m, "processor", functions.Processor()), processor.owner())
    change("a number in an object", lambda m: setattr(m.processor, "factor", 5.0), processor.owner())
    change("another class", lambda m: setattr(m.processor, "__class__", functions.OtherProcessor), processor.owner())
    table = [1.0, 2.0]
    change("a longer list", lambda _: table.append(3.0), lambda x: x * table[0])
    weight = torch.ones(4, 4)
    change("other strides", lambda _: weight.t_(), lambda x: x @ weight)
    relu = torch.nn.functional.relu
    change("a patched function", lambda _: setattr(torch.nn.functional, "relu", torch.tanh), functions.calls_relu)
    torch.nn.functional.relu = relu
    messages.check("invalidation")


def test_refused_state(messages: Messages) -> None:
    x = torch.ones(3)
    seen: list[Any] = []
    numbers = iter(range(99))
    generator = (n for n in range(99))
    words = deque(range(200_000))
    messages.logged("an argument that is changed", lambda: captured(lambda x, seen: seen.append(x) or x * 2)(x, seen))
    advancing = captured(lambda x: x * next(numbers))
    advancing(x)  # a first call may advance an iterator while it sets something up
    messages.logged("an iterator", lambda: advancing(x))
    messages.logged("a generator", lambda: captured(lambda x: x * next(generator))(x))
    messages.logged("too many items", lambda: captured(lambda x: x * words[0])(x))
    messages.logged("Python's random numbers", lambda: captured(lambda x: x * random.random())(x))  # noqa: S311 - the case
    kept = [torch.zeros(3)]
    messages.logged("a list that is kept", lambda: captured(lambda x: [kept[0].add_(x), kept][1])(x))
    messages.logged("a transform", lambda: torch.vmap(captured(lambda x: x * 2))(x))
    holder = functions.Processor()
    changing = captured(lambda x: x * holder.factor)

    def change_every_time() -> None:
        for number in range(30):
            holder.factor = float(number)
            changing(x)

    messages.logged("a value that always changes", change_every_time)
    messages.check("refused_state")


def test_outputs(messages: Messages) -> None:
    double = captured(lambda x: x * 2, outputs="alias")
    twice(double, torch.ones(2))
    stale = double(torch.ones(2))
    fresh = double(torch.ones(2))
    messages.raised("a stale output", lambda: stale + fresh)
    filled = captured(lambda x: {"y": x * 2}, outputs="out")
    messages.raised("without out=", lambda: filled(torch.ones(2)))
    messages.raised("another structure", lambda: filled(torch.ones(2), out=[torch.ones(2)]))
    messages.raised("another shape", lambda: filled(torch.ones(2), out={"y": torch.ones(3)}))
    messages.raised("inputs() without a graph", lambda: captured(functions.reads_a_value).inputs(torch.ones(3)))
    model: Any = torch.nn.Linear(2, 2)
    model.forward = captured(model.forward)
    twice(model, torch.ones(2, 2))
    method = model.forward
    del model
    messages.raised("a method of a deleted module", lambda: method(torch.ones(2, 2)))
    messages.check("outputs")


def test_training(messages: Messages) -> None:
    model = torch.nn.Linear(4, 1)
    x = torch.ones(2, 4)
    with torch.enable_grad():
        step = captured(model, backward=True)
        step(x)
        late = step(x).sum()
        last = step(x).sum()
        messages.raised("a late backward", late.backward)
        step.close()
        messages.raised("a backward after close", last.backward)
    messages.check("training")


def test_options(messages: Messages) -> None:
    wrong: list[dict[str, Any]] = [
        {"outputs": "copy"},
        {"verify": "always"},
        {"simulate": "hip-7", "backend": "record"},
        {"simulate": "cuda"},
        {"max_graphs": -1},
        {"warmups": 0},
        {"backward": True, "outputs": "alias"},
        {"backward": True, "buckets": {"x": rs.Bucket(dim=0, sizes=[4])}},
        {"backward": True, "eager_modules": ["0"]},
        {"eager_modules": ["rooter"]},
        {"eager_modules": "router"},
    ]
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    for options in wrong:
        heading = ", ".join(f"{name}={value!r}" for name, value in options.items())
        messages.raised(heading, partial(rs.capture, model, **options))
    messages.raised("rs.every(0)", lambda: rs.every(0))
    messages.raised('backend="device" without a GPU', lambda: rs.capture(model, backend="device")(torch.ones(4)))
    messages.check("options")


def test_eager_modules(messages: Messages) -> None:
    class Rows(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.count = torch.tensor([2])

        def forward(self, x: Any) -> Any:
            return x[: int(self.count)]

    rows = Rows()
    g = captured(torch.nn.Sequential(torch.nn.ReLU(), rows, torch.nn.ReLU()), eager_modules=["1"])
    twice(g, torch.ones(4, 4))
    rows.count.fill_(3)
    messages.logged("another shape", lambda: g(torch.ones(4, 4)))

    class Waits(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return functions.reads_a_value(x)

    found = captured(torch.nn.Sequential(torch.nn.ReLU(), Waits(), torch.nn.ReLU()))
    messages.logged("a module that waits", lambda: found(torch.ones(3)))
    messages.add("explain", str(found.explain(torch.ones(3))))
    messages.add("report", str(found.report()))
    reads = captured(functions.branches_on_a_value)
    messages.logged("a value that is read again", lambda: reads(torch.ones(3)))

    def other_values() -> None:
        for number in range(8):
            reads(torch.ones(3) * (-1) ** number)

    messages.logged("a value that differs in most calls", other_values)
    messages.check("eager_modules")


def test_simulated_runtime(messages: Messages) -> None:
    for function in (
        functions.synchronizes,
        functions.queries_its_event,
        functions.forks,
        functions.waits_for_an_old_event,
        functions.uses_another_stream,
        functions.synchronizes_in_a_thread,
    ):
        for runtime in ("hip-7.2", "cuda"):
            simulated = captured(function, simulate=runtime)
            messages.logged(f"{function.__name__}, {runtime}", partial(simulated, torch.ones(3)))
    messages.check("simulated_runtime")


def test_runtime_errors(messages: Messages) -> None:
    from rocsolid.catalog.runtime_errors import RUNTIME_ERRORS
    from rocsolid.runtime.capture.backends.record import RecordBackend
    from rocsolid.runtime.capture.diagnosis import explain_failure

    for error in RUNTIME_ERRORS:
        failure = explain_failure(RuntimeError(f"CUDA error: {error.text}"), RecordBackend(), lambda: None)
        messages.add(f"{error.number}", failure.message)
    messages.check("runtime_errors")


def test_reports(messages: Messages) -> None:
    g = captured(functions.reads_a_value)
    messages.logged("most calls run in eager", lambda: [g(torch.ones(3)) for _ in range(101)] and None)
    messages.add("report of a refused call", str(g.report()))

    def scaled(x: Any, scale: float = 2.0) -> Any:
        return x * scale

    h = captured(scaled, max_graphs=2)
    messages.add("explain, before the first call", str(h.explain(torch.ones(3))))
    twice(h, torch.ones(3))
    messages.add("explain, same signature", str(h.explain(torch.ones(3))))
    messages.add("explain, another shape", str(h.explain(torch.ones(4), scale=3.0)))
    messages.add("explain, a refused call", str(g.explain(torch.ones(3))))
    h.freeze()
    messages.add("explain, frozen", str(h.explain(torch.ones(4))))
    h(torch.ones(4))
    messages.add("report", str(h.report()))
    messages.check("reports")
