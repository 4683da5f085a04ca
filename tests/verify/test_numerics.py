"""Measures, limits and verdicts."""

import ast
import re
from dataclasses import asdict
from typing import Any

import pytest
import torch
from tests.support import ROOT

import rocsolid as rs
from rocsolid.model.verify_report import Accuracy
from rocsolid.numerics import ErrorTable, Tolerance, judge, limits_for, measure_error, result_leaves

pytestmark = pytest.mark.torch
SOURCE = ROOT / "src/rocsolid"


def test_exactly_one_module_defines_a_tolerance() -> None:
    """Numbers that look like a tolerance, and torch's comparisons, are only in numerics.py."""
    compares = re.compile(r"\b(allclose|isclose|assert_close)\(")
    names = re.compile(r"(^|_)(rtol|atol|tolerance|error_limit|max_error|error_ratio)$", re.IGNORECASE)
    found = []
    for file in SOURCE.rglob("*.py"):
        if file.name == "numerics.py":
            continue
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and compares.search(ast.unparse(node.func) + "("):
                found.append(f"{file}:{getattr(node, 'lineno', 0)}")
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            number = isinstance(value, ast.Constant) and isinstance(value.value, float)
            if number and any(names.search(ast.unparse(target)) for target in targets):
                found.append(f"{file}:{getattr(node, 'lineno', 0)}")
            if (
                isinstance(node, ast.keyword)
                and node.arg
                and names.search(node.arg)
                and isinstance(node.value, ast.Constant)
            ):
                found.append(f"{file}:{node.value.lineno}")

    assert not [place for place in found if "rules/" not in place and "catalog/" not in place]


def test_the_table_in_the_docs_is_the_table_in_the_code() -> None:
    page = (ROOT / "docs/how-to/verify.md").read_text()
    rows = {
        line.split("|")[1].strip(): [float(cell) for cell in line.split("|")[2:-1]]
        for line in page.splitlines()
        if re.match(r"\| (float|bfloat)\d", line)
    }

    for name, numbers in rows.items():
        limits = asdict(limits_for(getattr(torch, {"float8": "float8_e4m3fn"}.get(name, name))))
        columns = ("strict", "rounding", "compiled", "wrong_l2", "wrong_element", "wrong_scale")
        assert numbers == [limits[column] for column in columns], name
    assert len(rows) == 5


def test_measures_of_a_known_difference() -> None:
    want = torch.tensor([3.0, 4.0, 0.0, 0.0])
    error = measure_error(torch.tensor([3.0, 4.0, 0.0, 0.5]), want)

    assert error.relative_l2 == pytest.approx(0.1)
    assert error.largest == pytest.approx(0.5 / 2.5)
    assert error.steps == pytest.approx(0.5 / (torch.finfo(torch.float32).eps * 4))
    assert error.scale == 0
    assert error.cosine == pytest.approx(5 / 25.25**0.5)
    assert (error.mismatched, error.special, error.elements) == (1, 0, 4)


def test_nan_and_inf_must_be_at_the_same_places() -> None:
    nan, inf = float("nan"), float("inf")
    same = measure_error(torch.tensor([nan, inf, 1.0]), torch.tensor([nan, inf, 1.0]))
    other = measure_error(torch.tensor([nan, -inf, 1.0]), torch.tensor([nan, inf, nan]))

    assert (same.special, same.mismatched) == (0, 0)
    assert other.special == 2


def verdict(got: Any, eager: Any, reference: Any = None, **tolerance: Any) -> Accuracy:
    table = ErrorTable(Tolerance(**tolerance))
    table.add(result_leaves(got), result_leaves(eager), result_leaves(reference) if reference is not None else None)
    return Accuracy.worst([check.verdict for check in table.checks()])


def test_the_reference_decides_where_eager_and_the_candidate_differ() -> None:
    torch.manual_seed(0)
    exact = torch.randn(1000, dtype=torch.float64)
    noise = torch.randn(2, 1000, dtype=torch.float64)

    def off(amount: float, number: int = 0) -> Any:
        return (exact + amount * noise[number]).float()

    assert verdict(off(1e-3), off(1.05e-3, 1), exact) is Accuracy.AS_ACCURATE
    assert verdict(off(1.5e-3), off(1e-3, 1), exact) is Accuracy.LESS_ACCURATE
    assert verdict(off(1.5e-3), off(1e-3, 1), exact, ratio=2.0) is Accuracy.AS_ACCURATE
    assert verdict(off(1e-2), off(1e-3, 1), exact) is Accuracy.WRONG
    assert verdict(off(1e-3), off(1e-3, 1)) is Accuracy.AS_ACCURATE  # no reference: within 1 % of eager
    assert verdict(off(1e-1), off(1e-3, 1)) is Accuracy.WRONG
    assert verdict(off(1e-1), off(1e-3, 1), exact, limit=0.5) is Accuracy.SAME
    assert verdict(off(1e-2), off(1e-3, 1), exact, atol=0.1) is Accuracy.SAME


def test_eager_that_overflows_is_no_excuse_and_no_model() -> None:
    exact = torch.tensor([1.0, 2.0, 70000.0], dtype=torch.float64)
    eager = exact.half()

    assert bool(eager.isinf()[2])
    assert verdict(exact.half(), eager, exact) is Accuracy.SAME
    assert verdict(torch.tensor([1.0, 2.0, 65504.0]).half(), eager, exact).passes
    assert verdict(torch.tensor([float("inf"), 2.0, float("inf")]).half(), eager, exact) is Accuracy.WRONG
    assert verdict(torch.tensor([5.0, 2.0, float("inf")]).half(), eager, exact) is Accuracy.WRONG


def test_integers_are_exact_unless_they_select_equal_scores() -> None:
    scores = torch.tensor([[1.0, 1.0 + 1e-7, 0.0]])

    assert verdict(torch.tensor([1]), torch.tensor([2])) is Accuracy.WRONG
    assert verdict((scores, torch.tensor([0])), (scores, scores.argmax(-1))) is Accuracy.SAME
    assert verdict((scores, torch.tensor([2])), (scores, scores.argmax(-1))) is Accuracy.WRONG
    paths = {"result[1]": "result[0]"}
    assert verdict((scores, torch.tensor([0])), (scores, torch.tensor([1])), selects=paths) is Accuracy.SAME


def test_structure_shape_and_dtype_must_be_equal() -> None:
    x = torch.ones(2)

    assert verdict((x, x), x) is Accuracy.WRONG
    assert verdict(x[:1], x) is Accuracy.WRONG
    assert verdict(x.double(), x) is Accuracy.WRONG
    assert verdict({"a": x, "b": 1}, {"a": x, "b": 2}) is Accuracy.WRONG


def test_a_float64_model_has_no_wider_reference_but_strict_limits() -> None:
    difference = measure_error(torch.tensor([1.0 + 1e-7], dtype=torch.float64), torch.ones(1, dtype=torch.float64))

    assert judge(torch.float64, difference, error=None, eager_error=None)[0] is Accuracy.AS_ACCURATE
    assert limits_for(torch.float64).compiled == 1e-6


def test_eager_that_differs_from_itself_is_reported_first() -> None:
    calls: list[int] = []

    def unstable(x: Any) -> Any:
        calls.append(1)
        return x * (1 + 1e-4 * (len(calls) % 3))

    report = rs.verify(lambda x: x * 1.0001, unstable, torch.ones(8), culprit=False)

    assert report.notes[0].startswith("eager is not deterministic: two runs with the same inputs and seed differ by")
    assert "the limits are widened by that" in report.notes[0]
    assert not report.wrong


def test_random_numbers_are_noted_and_the_same_for_both() -> None:
    def model(x: Any) -> Any:
        return torch.nn.functional.dropout(x, 0.5)

    report = rs.verify(lambda x: model(x), model, torch.ones(64))  # noqa: PLW0108 - another function

    assert report.verdict is Accuracy.SAME
    assert report.notes == (
        "eager draws random numbers (is dropout left on?); eager and candidate run with the same seed",
    )


def test_a_report_survives_json_and_lists_both_errors() -> None:
    from rocsolid.cli.records import read_record

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 8)).eval()
    other = torch.nn.Sequential(model[0], torch.nn.GELU(approximate="tanh"), model[2])
    report = rs.verify(other, model, torch.randn(4, 8))

    assert read_record(report.json(), "report") == report
    assert {layer.layer for layer in report.forms[0].layers} == {"0", "1", "2"}
    assert all(layer.candidate is not None for layer in report.forms[0].layers)
    assert "eager's" in str(report)
