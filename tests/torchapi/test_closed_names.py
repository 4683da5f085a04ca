"""Without one of torch's private names, a feature works less well, and the user's call works as before.

Each scenario is run once to find the names that it uses. Then each of these names is closed, and the scenario runs again.
"""

import ast
import logging
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from tests.support import SOURCE, Ran, clean_environ, run_python

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import rocsolid as rs  # noqa: E402
from rocsolid import new_torch  # noqa: E402
from rocsolid.errors import UnsupportedTorchError  # noqa: E402
from rocsolid.model.probed_name import ProbedName  # noqa: E402
from rocsolid.observe.breaks import find_breaks  # noqa: E402
from rocsolid.ops.audit_op import audit_op  # noqa: E402
from rocsolid.torchapi import dispatch, private_api  # noqa: E402
from rocsolid.torchapi.name_probes import load_all_names  # noqa: E402
from rocsolid.torchapi.private_api import PrivateName, close_names, reopen_names  # noqa: E402

NAMES = load_all_names()
NEEDED = {"torch._ops.OpOverload._schema"}  # an operator without its schema cannot be made


@pytest.fixture(autouse=True)
def _reopened() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    reopen_names()
    torch._dynamo.reset()


def double(x: Any) -> Any:
    return x * 2 + 1


def capture() -> None:
    captured = rs.capture(double, backend="record")
    for number in range(3):
        x = torch.full((2,), float(number))
        assert torch.equal(captured(x), double(x))
    with torch.inference_mode():
        x = torch.ones(2, 2)
        assert torch.equal(captured(x), double(x))
    module = rs.capture(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), backend="record")
    with torch.no_grad():
        for _ in range(2):
            assert module(torch.ones(1, 2)).shape == (1, 2)


def compile_and_guard() -> None:
    with rs.guard(deadline_s=60), rs.apply(rs.resolve("safe"), ignore_platform=True):
        compiled = rs.compile(double, deadline_s=60, backend="eager")
        assert torch.equal(compiled(torch.ones(2)), double(torch.ones(2)))
        torch._inductor.config.max_autotune  # noqa: B018 - reading a setting must work
        torch.compile(double, mode="reduce-overhead")


def observe() -> None:
    def broken(x: Any) -> Any:
        torch._dynamo.graph_break()
        return x + 1

    with rs.record_compiles() as recorder:
        report = find_breaks(broken, (torch.ones(2),), backend="eager")
    assert recorder.log is not None
    assert report.function == "broken"


def operators() -> None:
    name = f"closed::double{random.getrandbits(60)}"
    operator = rs.vendor_op(name, double, schema="(Tensor x) -> Tensor", fake=torch.empty_like)
    assert torch.equal(operator(torch.ones(2)), double(torch.ones(2)))
    assert audit_op(name).findings is not None


SCENARIOS: dict[str, Callable[[], None]] = {f.__name__: f for f in (capture, compile_and_guard, observe, operators)}


@cache
def used_names(scenario: str) -> tuple[str, ...]:
    """The names that a scenario looks up."""
    used = set()
    originals = {method: getattr(PrivateName, method) for method in ("_resolve", "of")}

    def recording(method: str) -> Any:
        def call(name: PrivateName, *args: Any) -> Any:
            used.add(str(name))
            return originals[method](name, *args)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for method in originals:
            patch.setattr(PrivateName, method, recording(method))
        torch._dynamo.reset()
        SCENARIOS[scenario]()
    return tuple(sorted(used))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_with_any_one_name_closed_the_users_call_works(scenario: str) -> None:
    names = used_names(scenario)
    failures = {}
    for name in names:
        torch._dynamo.reset()
        reopen_names()
        close_names([name])
        try:
            SCENARIOS[scenario]()
        except UnsupportedTorchError as error:
            if scenario != "operators" or name not in NEEDED:
                failures[name] = f"needs torch: {error}"
        except Exception as error:  # noqa: BLE001 - collected for one report
            failures[name] = f"{type(error).__name__}: {error}"

    assert len(names) > 3
    assert failures == {}


def test_a_capture_that_cannot_be_recorded_leaves_the_users_calls_alone() -> None:
    """Calls that read a value on the CPU stayed forbidden after a capture that failed where it began."""
    captured = rs.capture(double, backend="record")
    close_names(["torch.utils._python_dispatch.TorchDispatchMode"])
    x = torch.ones(2)

    assert torch.equal(captured(x), double(x))
    assert (x + 1).tolist() == [2.0, 2.0]
    assert "TorchDispatchMode" in captured.report().refusals[0].message


def test_a_cancelled_compile_does_not_raise_where_its_mark_cannot_be_removed() -> None:
    def backend(graph: Any, _: Any) -> Any:
        for _ in range(500):
            time.sleep(0.01)
        return graph

    torch.compile(torch.nn.Identity(), backend="eager")(torch.ones(2))  # imports the compiler

    close_names(["torch._C._dynamo.eval_frame.reset_code"])

    with rs.guard(deadline_s=0.5):
        assert torch.equal(torch.compile(double, backend=backend)(torch.ones(2)), double(torch.ones(2)))
    assert torch.equal(rs.compile(double, backend="eager")(torch.ones(2)), double(torch.ones(2)))


def test_the_schema_of_an_operator_is_also_read_with_torchs_public_function() -> None:
    closed = "torch._ops.OpOverload._schema"
    read = dispatch.schema_of.__wrapped__
    operators = torch.ops.aten.add_.Tensor, torch.ops.aten.split.Tensor, torch.ops.aten.empty.memory_format
    expected = [read(operator) for operator in operators]
    close_names([closed])

    assert [read(operator) for operator in operators] == expected
    with pytest.raises(UnsupportedTorchError, match=r"of torch 2\.0 and later have it, so"):
        read(torch.ops.aten.record_stream.default)  # its public signature has a type that torch does not know


def test_a_closed_name_is_logged_once_with_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    close_names(["torch._C._dynamo.guards.TensorGuards"])

    with caplog.at_level(logging.WARNING, "rocsolid"):
        capture()

    lines = [r.getMessage() for r in caplog.records if "TensorGuards" in r.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("rs.capture: inputs are compared in Python, so a replay costs more CPU time")


def test_comparisons_in_python_notice_what_torchs_guards_notice() -> None:
    from rocsolid.torchapi.graphs.replay_checks import state_check, tensor_check

    close_names(["torch._C._dynamo.guards.TensorGuards", "torch._C._dynamo.guards.GlobalStateGuard"])
    x, y = torch.zeros(2, 3), torch.zeros(4)
    matches, same_state = tensor_check([x, y], {0: {1}}), state_check()

    assert matches(torch.ones(2, 9), torch.ones(4))
    for others in (
        (torch.ones(3, 3), y),
        (x, torch.ones(5)),
        (x, torch.ones(4, dtype=torch.int64)),
        (x, torch.ones(4, requires_grad=True)),
        (x, torch.ones(8)[::2]),
        (x, torch.nn.Parameter(torch.ones(4), requires_grad=False)),
        (x,),
    ):
        assert not matches(*others)
    assert not tensor_check([y, y.clone()])(y, y)
    with torch.no_grad():
        assert not matches(torch.ones(2, 9), torch.ones(4))
        assert not same_state()
    assert same_state()


@pytest.mark.parametrize("seed", range(3))
def test_a_future_torch_starts_with_the_probes_and_one_warning(
    seed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    choice = random.Random(seed)  # noqa: S311 - which names are closed
    failed = {str(name) for name in choice.sample([n for n in NAMES if str(n) not in NEEDED], 12)}
    failed |= {str(n) for n in NAMES if not n.exists()}  # those of later releases than the installed torch
    results = [
        ProbedName(name=str(n), without=n.without, problem="it is gone" if str(n) in failed else "") for n in NAMES
    ]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch, "__version__", ("2.16.0", "2.16.0.dev20261117+cpu", "3.0.0+rocm10.1")[seed])
    probes: list[int] = []

    def probe() -> tuple[list[ProbedName], str]:
        probes.append(1)
        return results, ""

    monkeypatch.setattr(new_torch, "probe_private_names", probe)
    new_torch.check_new_torch.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "rocsolid"):
            for scenario in (capture, compile_and_guard, observe):
                scenario()
            new_torch.check_new_torch.cache_clear()  # another process of the same build
            new_torch.check_new_torch()
    finally:
        new_torch.check_new_torch.cache_clear()

    warned = [r.getMessage() for r in caplog.records if r.name == "rocsolid" and "is newer than" in r.getMessage()]
    others = [r.getMessage() for r in caplog.records if "missing or behaves differently" in r.getMessage()]
    assert len(probes) == 1, "the second process reads the stored result"
    assert len(warned) == 2, "one in each process"
    assert warned[0].startswith(f"torch {torch.__version__} is newer than the releases that rocsolid was tested with")
    assert others == []
    assert private_api._closed == failed


def test_a_tested_torch_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_torch, "probe_private_names", lambda: pytest.fail("probed"))
    new_torch.check_new_torch.cache_clear()

    new_torch.check_new_torch()


FUTURE = "2.16.0.dev20261117"
NEWER_TORCH = f"""
from rocsolid.torchapi.import_hooks import when_imported

def change(torch):
    torch.__version__ = torch.torch_version.TorchVersion({FUTURE!r})

when_imported("torch", change)
"""
FIRST_USE = """
import sys, torch
import rocsolid as rs

def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

x = torch.ones(2)
if sys.argv[1] == "vendor_op":
    operator = rs.vendor_op("future::double", double, fake=torch.empty_like)
    captured = rs.capture(double, backend="record")
    print(operator(x).tolist(), captured(x).tolist(), captured(x).tolist())
elif sys.argv[1] == "audit_op":
    print(rs.audit_op("aten::relu").ok)
else:
    print(len(rs.profile(double, x).files))
"""


@pytest.fixture(scope="module")
def use_on_a_newer_torch(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ran]:
    """Run a program in a process in which torch says that it is a release that does not exist yet."""
    folder = tmp_path_factory.mktemp("newer")
    (folder / "sitecustomize.py").write_text(NEWER_TORCH)
    paths = os.pathsep.join((str(folder), str(SOURCE)))
    env = clean_environ(XDG_CACHE_HOME=str(folder / "cache"), PYTHONPATH=paths)
    return lambda what: run_python("-c", FIRST_USE, what, env=env, timeout=400)


def test_a_torch_that_does_not_exist_yet_is_probed_once_and_works(use_on_a_newer_torch: Callable[[str], Ran]) -> None:
    first = use_on_a_newer_torch("vendor_op")

    assert first.out.splitlines() == ["[2.0, 2.0] [2.0, 2.0] [2.0, 2.0]"], first.err
    (warning,) = (line for line in first.err.splitlines() if "is newer than" in line)
    assert warning.startswith(f"torch {FUTURE} is newer than the releases that rocsolid was tested with")
    assert "the process that probes torch" not in warning
    for other in ("audit_op", "profile"):
        started = time.monotonic()
        ran = use_on_a_newer_torch(other)
        assert ran.out.splitlines() in (["True"], ["1"]), ran.err
        assert [line for line in ran.err.splitlines() if "is newer than" in line] == [warning], other
        assert time.monotonic() - started < 60, "the stored results are read"


def test_no_private_name_is_looked_up_while_a_module_is_imported() -> None:
    """It would be looked up before a new torch is probed."""
    lookups = ("find", "get", "exists", "patch", "put", "is_closed")
    early = []
    for file in sorted((SOURCE / "rocsolid").rglob("*.py")):
        waiting: list[ast.AST] = [*ast.parse(file.read_text(encoding="utf-8")).body]
        while waiting:
            node = waiting.pop()
            if isinstance(node, (ast.FunctionDef, ast.Lambda)):
                continue
            waiting += ast.iter_child_nodes(node)
            call = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
            if call and call.attr in lookups and isinstance(call.value, ast.Name) and call.value.id.isupper():
                early.append(f"{file.relative_to(SOURCE)}: {ast.unparse(node)}")

    assert [found for found in early if "/catalog/" not in found] == []
