"""Runs that are over: TORCH_TRACE and TORCH_COMPILE_DEBUG, read as the live log would have been."""

from pathlib import Path

import pytest
from tests.support import clean_environ, run_cli, run_python

from rocsolid.errors import InputError
from rocsolid.model.compile_log import Cache, CompileLog, GraphKind
from rocsolid.observe.debug_files import read_debug
from rocsolid.observe.graph_text import read_graph
from rocsolid.observe.torch_trace_files import read_trace

SCRIPT = """\
import random

import torch

number = random.SystemRandom().random()


def loss(x, w):
    y = torch.tanh(x @ w * number)
    torch._dynamo.graph_break()
    return y.sum()


compiled = torch.compile(loss)
compiled(torch.ones(3, 4), torch.ones(4, 5, requires_grad=True)).backward()
torch._dynamo.reset()
compiled(torch.ones(3, 4), torch.ones(4, 5))
compiled(torch.ones(3, 4).double(), torch.ones(4, 5).double())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that was run with everything written down."""
    made = tmp_path_factory.mktemp("run")
    (made / "script.py").write_text(SCRIPT)
    env = clean_environ(
        TORCH_TRACE=str(made / "trace"),
        TORCH_COMPILE_DEBUG="1",
        TORCH_COMPILE_DEBUG_DIR=str(made / "debug"),
        TORCHINDUCTOR_CACHE_DIR=str(made / "cache"),  # nothing is written of a graph that is found compiled
    )
    ran = run_python(str(made / "script.py"), env=env)
    assert ran.code == 0, ran.err
    return made


@pytest.fixture(scope="module")
def trace(folder: Path) -> CompileLog:
    return read_trace(folder / "trace")


@pytest.mark.torch
def test_a_trace_tells_every_graph(trace: CompileLog, folder: Path) -> None:
    kinds = [(g.function, g.kind) for g in trace.graphs]

    assert kinds == [
        ("loss", GraphKind.FORWARD),
        ("loss", GraphKind.BACKWARD),
        ("loss (from line 10 on)", GraphKind.FORWARD),
        ("loss (from line 10 on)", GraphKind.BACKWARD),
        ("loss", GraphKind.INFERENCE),
        ("loss (from line 10 on)", GraphKind.INFERENCE),
        ("loss", GraphKind.INFERENCE),
        ("loss (from line 10 on)", GraphKind.INFERENCE),
    ]
    first = trace.graphs[0]
    assert first.place == f"{folder}/script.py:8"
    assert trace.graphs[2].called_from == f"{folder}/script.py:15"
    assert first.cache is Cache.MISS
    assert first.operators["aten.mm"] == 1
    assert {k.kind for k in first.kernels} == {"cpp", "extern"}
    assert next(k for k in first.kernels if k.kind == "cpp").places == (f"{folder}/script.py:9",)
    assert sum(first.phases.values()) == pytest.approx(first.seconds)
    assert 0 < first.seconds <= trace.seconds
    assert trace.torch.startswith("2.")
    assert trace.source == "trace"


@pytest.mark.torch
def test_a_trace_tells_breaks_and_recompiles(trace: CompileLog, folder: Path) -> None:
    (broke,) = trace.breaks
    (again, _) = [g.recompile for g in trace.graphs if g.recompile]

    assert (broke.id, broke.place, broke.times) == ("GB0025", f"{folder}/script.py:10", 3)
    assert broke.cause == "`torch._dynamo.graph_break()` requests the break"
    assert again is not None
    assert "dtype mismatch" in again.guard


@pytest.mark.torch
def test_a_trace_that_was_cut_off_is_read_up_to_there(folder: Path, tmp_path: Path) -> None:
    (whole,) = (folder / "trace").glob("*.log")
    text = whole.read_bytes()
    (tmp_path / "half.log").write_bytes(text[: len(text) // 3])

    assert 0 < len(read_trace(tmp_path).graphs) < 8


@pytest.mark.torch
def test_a_debug_folder_tells_graphs_and_programs(folder: Path) -> None:
    log = read_debug(folder / "debug")

    assert log.source == "debug"
    kinds = [g.kind.value for g in log.graphs]
    assert kinds == ["forward", "backward"] * 2 + ["inference"] * 4
    first = log.graphs[0]
    assert first.kind is GraphKind.FORWARD
    assert first.operators["aten.mm"] == 1
    assert first.launches == 2
    assert first.nodes_before_fusion >= 2
    assert next(k for k in first.kernels if k.kind == "cpp").places == (f"{folder}/script.py:9",)


@pytest.mark.torch
def test_the_command_reads_both(folder: Path) -> None:
    shown = run_cli("compiles", "--trace", str(folder / "trace"))

    assert shown.code == 0, shown.err
    assert shown.out.startswith("8 graphs · ")
    assert "BREAK " in shown.out
    assert run_cli("compiles", "--trace", str(folder / "trace"), "--fail-on", "break").code == 1
    code = run_cli("compiles", "--debug", str(folder / "debug"), "--code")
    assert "extern_kernels.mm" not in code.out.splitlines()[0]
    assert "kernel(" in code.out


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("nothing of the kind\n")

    with pytest.raises(InputError, match="holds no trace of a compile"):
        read_trace(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        read_trace(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no graph"):
        read_debug(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        read_debug(tmp_path / "x.log")


def test_a_printed_graph_is_read() -> None:
    graph = read_graph(
        """
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[3, 4][4, 1]cpu", s0: "Sym(s0)"):
        l_x_ = L_x_

         # File: /m.py:3 in f, code: y = x @ w
        matmul: "f32[3]" = torch.ops.aten.mm.default(l_x_, l_x_);  l_x_ = None
        add_1: "f32[3]" = matmul + 1;  matmul = None

         # File: /m.py:4 in f, code: y.sum()
        split = torch.functional.split(add_1, 2)
        getitem: "f32[3]" = split[0];  split = None
        sum_1: "f32[]" = getitem.sum()
        return (sum_1,)
"""
    )

    assert graph.inputs == 2
    assert graph.nodes == 8
    assert graph.operators == {"aten.mm": 1, "add": 1, "split": 1, "sum": 1}
    assert graph.places["matmul"] == "/m.py:3"
    assert graph.places["sum_1"] == "/m.py:4"
