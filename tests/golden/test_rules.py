"""The texts of every rule that has a test case, as users see them: one file per family in `tests/golden/rules`.

Each finding comes from running the rule on the case that its own test uses. `ROCSOLID_UPDATE=1 pytest tests/golden` writes the files.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.dryrun import test_rules as dryrun_cases
from tests.rules import test_rules as environment_cases
from tests.rules import test_trace_rules as trace_cases
from tests.support import ROOT, check_golden

from rocsolid.lint.options import Options
from rocsolid.lint.project import lint
from rocsolid.model.finding import Finding
from rocsolid.model.intervention import Intervention
from rocsolid.rules.engine import all_rules, source_rules
from rocsolid.rules.observed import graph_break, recompiled
from rocsolid.rules.operators import (
    operator_declares_false_mutation,
    operator_not_graph_safe,
    operator_without_fake,
    operator_without_gradient,
)
from rocsolid.runtime.guard import refusal_finding

CASES = ROOT / "tests/lint/cases"
SOURCE_FAMILIES = {
    "compile": "SRC1",
    "capture": "SRC2",
    "kernels": "SRC3",
    "porting": "SRC4",
    "allow": "SRC9",
}
ENVIRONMENT_FAMILIES = {"config": ("CFG",), "variables": ("ENV",), "machine": ("SYS", "KNO", "ACT")}


def finding_text(finding: Finding) -> str:
    location = f" {finding.location}" if finding.location else ""
    return "\n".join(
        [
            f"{finding.code} {finding.name} [{finding.severity.name}]{location}",
            f"  message: {finding.message}",
            f"  why:     {finding.why}",
            f"  fix:     {finding.fix}",
            f"  check:   {finding.check}",
        ]
    )


def check_golden_texts(name: str, findings: Iterator[Finding]) -> None:
    texts = list(dict.fromkeys(finding_text(finding) for finding in findings))
    check_golden(f"rules/{name}", "\n\n".join(texts))


def source_findings(prefix: str) -> Iterator[Finding]:
    for file in source_rules():
        if file.rule.code.startswith(prefix):
            bad = Path("tests/lint/cases") / file.rule.name / "bad.py"
            found = lint([bad], Options(confidence="anywhere", select=("SRC",)), jobs=1, cache=None).findings
            yield from (finding for finding in found if finding.code == file.rule.code)


@pytest.mark.parametrize("family", SOURCE_FAMILIES)
def test_source_rules(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)

    check_golden_texts(family, source_findings(SOURCE_FAMILIES[family]))


@pytest.mark.parametrize("family", ENVIRONMENT_FAMILIES)
def test_environment_rules(family: str) -> None:
    files = [file for file in all_rules() if file.rule.code.startswith(ENVIRONMENT_FAMILIES[family])]
    check_golden_texts(
        family,
        (
            finding
            for file in files
            for env in environment_cases.CASES[file.rule.code][0]
            for finding in environment_cases.findings_in(file, env)[: 1 if file.rule.code == "KNO001" else None]
        ),
    )


def test_trace_rules() -> None:
    cases = trace_cases.CASES
    check_golden_texts(
        "traces",
        (
            finding
            for code, (traces, _) in cases.items()
            for trace in traces
            for finding in trace_cases.found(trace, code)
        ),
    )


def test_dryrun_rules() -> None:
    cases = dryrun_cases.CASES
    check_golden_texts(
        "dryrun",
        (finding for code, (runs, _) in cases.items() for run, _ in runs for finding in dryrun_cases.CHECKS[code](run)),
    )


def test_runtime_and_operator_rules() -> None:
    """These findings are created outside the rules, so the facts here are written by hand."""
    check_golden_texts("runtime", runtime_findings())


def runtime_findings() -> Iterator[Finding]:
    yield refusal_finding(
        Intervention(
            setting="compile.mode",
            requested="reduce-overhead",
            used="default",
            why="Replays of HIP graphs return wrong results on ROCm 7.2.1.",
            how="mode='reduce-overhead'",
            location="serve.py:12",
        )
    )
    yield graph_break.RULE.found(
        "GB0124",
        location="train.py:41",
        function="step",
        reason="`Tensor.item()` needs the value on the CPU",
        id="GB0124",
        kind="Unsupported Tensor.item() call",
        cost="The call is split into 2 graphs.",
        fix="Keep the value on the GPU",
    )
    yield recompiled.RULE.found(
        "step",
        times="",
        location="train.py:40",
        function="step",
        seconds="2.1",
        reason="the size of `x` changed",
        guard="x.size()[0] == 8",
        fix="torch._dynamo.mark_dynamic(x, 0)",
    )
    yield operator_without_fake.RULE.found("vendor::norm", schema="vendor::norm(Tensor x) -> Tensor")
    yield operator_declares_false_mutation.RULE.found(
        "vendor::norm", arguments="x", how=", but it did not change them when it was run", short="norm"
    )
    yield operator_not_graph_safe.RULE.found("vendor::topk", reason="it returns int to Python")
    yield operator_without_gradient.RULE.found("vendor::norm")
