"""Files of TORCH_TRACE and TORCH_COMPILE_DEBUG: read into the same log that a live recorder builds."""

from pathlib import Path

import pytest
from tests.support import clean_environ, installed_torch, run_cli, run_python

from rocsolid.errors import InputError
from rocsolid.model.compile_log import CacheResult, CompileLog, GraphKind
from rocsolid.model.release import compare
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
    """The files of a program that was run with TORCH_TRACE and TORCH_COMPILE_DEBUG."""
    run_folder = tmp_path_factory.mktemp("run")
    (run_folder / "script.py").write_text(SCRIPT)
    env = clean_environ(
        TORCH_TRACE=str(run_folder / "trace"),
        TORCH_COMPILE_DEBUG="1",
        TORCH_COMPILE_DEBUG_DIR=str(run_folder / "debug"),
        TORCHINDUCTOR_CACHE_DIR=str(run_folder / "cache"),  # torch writes nothing for a graph that comes from the cache
    )
    ran = run_python(str(run_folder / "script.py"), env=env)
    assert ran.code == 0, ran.err
    return run_folder


@pytest.fixture(scope="module")
def trace(folder: Path) -> CompileLog:
    return read_trace(folder / "trace")


@pytest.mark.torch
def test_a_trace_lists_every_graph(trace: CompileLog, folder: Path) -> None:
    kinds = [(g.function, g.kind) for g in trace.graphs]

    assert kinds == [
        ("loss", GraphKind.FORWARD),
        ("loss", GraphKind.BACKWARD),
        ("loss (resumed at line 10)", GraphKind.FORWARD),
        ("loss (resumed at line 10)", GraphKind.BACKWARD),
        ("loss", GraphKind.INFERENCE),
        ("loss (resumed at line 10)", GraphKind.INFERENCE),
        ("loss", GraphKind.INFERENCE),
        ("loss (resumed at line 10)", GraphKind.INFERENCE),
    ]
    first = trace.graphs[0]
    assert first.location == f"{folder}/script.py:8"
    assert trace.graphs[2].called_from == f"{folder}/script.py:15"
    assert first.cache is CacheResult.MISS
    assert first.operators["aten.mm"] == 1
    assert {k.kind for k in first.kernels} == {"cpp", "extern"}
    assert next(k for k in first.kernels if k.kind == "cpp").locations == (f"{folder}/script.py:9",)
    assert sum(first.phases.values()) == pytest.approx(first.seconds)
    assert 0 < first.seconds <= trace.seconds
    assert trace.torch.startswith("2.") or compare(installed_torch(), "2.12") < 0  # older releases do not write it
    assert trace.source == "trace"


@pytest.mark.torch
def test_a_trace_lists_breaks_and_recompiles(trace: CompileLog, folder: Path) -> None:
    (broke,) = trace.breaks
    (again, _) = [g.recompile for g in trace.graphs if g.recompile]

    assert (broke.id, broke.location, broke.count) == ("GB0025", f"{folder}/script.py:10", 3)
    assert broke.code.text.strip() == "torch._dynamo.graph_break()"
    assert broke.code.start < broke.code.end
    assert again is not None
    assert again.change.endswith(".dtype changed from float32 to float64")
    assert "dtype mismatch" in again.guard


@pytest.mark.torch
def test_a_truncated_trace_is_read_up_to_its_end(folder: Path, tmp_path: Path) -> None:
    (whole,) = (folder / "trace").glob("*.log")
    text = whole.read_bytes()
    (tmp_path / "half.log").write_bytes(text[: len(text) // 3])

    assert 0 < len(read_trace(tmp_path).graphs) < 8


@pytest.mark.torch
def test_a_debug_folder_lists_graphs_and_kernels(folder: Path) -> None:
    log = read_debug(folder / "debug")

    assert log.source == "debug"
    kinds = [g.kind.value for g in log.graphs]
    assert kinds == ["forward", "backward"] * 2 + ["inference"] * 4
    first = log.graphs[0]
    assert first.kind is GraphKind.FORWARD
    assert first.operators["aten.mm"] == 1
    assert first.launches == 2
    assert first.nodes_before_fusion >= 2
    assert next(k for k in first.kernels if k.kind == "cpp").locations == (f"{folder}/script.py:9",)


@pytest.mark.torch
def test_the_command_reads_a_trace_and_a_debug_folder(folder: Path) -> None:
    shown = run_cli("compiles", "--torch-trace", str(folder / "trace"))

    assert shown.code == 0, shown.err
    assert shown.out.startswith("8 compiled graphs · ")
    assert "graph break (3 times): " in shown.out
    assert run_cli("compiles", "--torch-trace", str(folder / "trace"), "--fail-on", "warning").code == 1
    code = run_cli("compiles", "--torch-debug", str(folder / "debug"), "--code")
    assert "extern_kernels.mm" not in code.out.splitlines()[0]
    assert "kernel(" in code.out


def test_refuses_files_without_a_compile(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("nothing of the kind\n")

    with pytest.raises(InputError, match="contains no trace of a compile"):
        read_trace(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        read_trace(tmp_path / "nowhere")
    with pytest.raises(InputError, match="contains no compiled graph"):
        read_debug(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        read_debug(tmp_path / "x.log")


def test_parses_a_printed_graph() -> None:
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
    assert graph.locations["matmul"] == "/m.py:3"
    assert graph.locations["sum_1"] == "/m.py:4"
