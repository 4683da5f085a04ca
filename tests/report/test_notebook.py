"""Results are shown as tables and plots in a real Jupyter kernel."""

from typing import Any

import pytest

pytestmark = pytest.mark.torch
nbclient: Any = pytest.importorskip("nbclient")
nbformat: Any = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

SETUP = """
import warnings; warnings.simplefilter("ignore")
import torch, rocsolid as rs
model = torch.nn.Linear(4, 4).eval()
x = torch.randn(2, 4)
"""
CELLS = {
    "captured": "f = rs.capture(model, backend='record')\nwith torch.no_grad(): f(x); f(x)\nf",
    "capture report": "f.report()",
    "optimized": "with torch.no_grad(): fast = rs.optimize(model, (x,), budget_s=0)\nfast",
    "breaks": "rs.breaks(lambda t: t * t.sum().item(), x)",
    "environment": "rs.probe()",
    "plan": "rs.resolve('safe', rs.probe())",
}


def test_a_kernel_shows_results_as_html() -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in (SETUP, *CELLS.values())]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    for name, cell in zip(CELLS, book.cells[1:], strict=True):
        shown = [out["data"] for out in cell.outputs if out.output_type == "execute_result"]
        assert shown, name
        assert "text/html" in shown[0], name
        assert "object at 0x" not in shown[0]["text/plain"], name
    optimized = next(out["data"]["text/html"] for out in book.cells[3].outputs if out.output_type == "execute_result")
    assert "<iframe srcdoc=" in optimized
    assert "sandbox=" in optimized


def test_findings_guards_and_recorders_have_a_readable_repr() -> None:
    import rocsolid as rs
    from rocsolid.model.finding import Finding, Severity
    from rocsolid.runtime.guard import Guard

    finding = Finding(
        code="CFG001", name="x", severity=Severity.WARNING, subject="a", message="m", why="w", fix="f", check="c"
    )
    assert repr(finding) == "<Finding WARNING CFG001 a: m>"
    assert "CFG001" in finding._repr_html_()
    assert repr(Guard(None)).startswith("<Guard not active: guard: 0 compiles")
    assert "<pre>guard: 0 compiles" in Guard(None)._repr_html_()
    assert repr(rs.record_compiles()) == "<CompileRecorder 0 compiled graphs, 0 graph breaks>"
