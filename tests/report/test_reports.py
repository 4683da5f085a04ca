"""Probe reports: text, JSON, SARIF, GitHub annotations, fixes, reference pages."""

import json
import re
from dataclasses import replace

import pytest
from tests.support import make_env

from rocsolid.catalog.profiles import resolve
from rocsolid.cli.records import read_probe
from rocsolid.errors import InputError
from rocsolid.model.environment import Container, Environment, Origin
from rocsolid.model.finding import Finding, Severity
from rocsolid.model.lint import LintRecord
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.platform import Platform
from rocsolid.model.saved_probe import ProbeRecord
from rocsolid.model.setting import Channel
from rocsolid.probe.diff import compare_probes
from rocsolid.report.fix_commands import env_file, fix_text
from rocsolid.report.lint_text import lint_text
from rocsolid.report.machine_readable import github, probe_json, sarif
from rocsolid.report.probe_page import probe_html
from rocsolid.report.probe_text import difference_text, images_markdown, probe_text
from rocsolid.report.reference_pages import problem_page, rule_page, setting_page
from rocsolid.report.shell_variables import variables_text
from rocsolid.report.terminal import Terminal, page_text, terminal_of
from rocsolid.rules.engine import all_rules, check_environment

VARIABLE = "TORCHINDUCTOR_MAX_AUTOTUNE"


def harmful_env() -> Environment:
    return make_env(
        rocm="7.1.1",
        moved={"inductor.max_autotune": (True, False, Origin.VARIABLE, VARIABLE)},
        variables={VARIABLE: "1", "HIP_LAUNCH_BLOCKING": "1"},
        container=Container(engine="docker"),
    )


def a_record(env: Environment | None = None) -> ProbeRecord:
    snapshot = env or harmful_env()
    return ProbeRecord(
        environment=snapshot, findings=tuple(check_environment(snapshot, resolve("safe", snapshot))), profile="safe"
    )


@pytest.mark.parametrize(("count", "words"), [(1, "finding hidden: it depends"), (2, "findings hidden: they depend")])
def test_lint_counts_hidden_findings_in_good_english(count: int, words: str) -> None:
    text = lint_text(LintRecord(findings=(), below_confidence=count), Terminal())

    assert f"{count} less certain {words} on where and how the code runs" in " ".join(text.split())


def test_text_shows_the_worst_finding_first_with_its_fix() -> None:
    text = probe_text(a_record(), Terminal(width=100))
    lines = text.splitlines()

    assert lines[0] == "torch 2.13.0 on ROCm · ROCm 7.1.1 · a chip (gfx942) · Python"
    first = next(i for i, line in enumerate(lines) if line.startswith("CRITICAL CFG001"))
    assert lines[first] == "CRITICAL CFG001 inductor.max_autotune"
    assert lines[first + 1].strip().startswith(f"Environment variable {VARIABLE} sets `inductor.max_autotune` to True")
    assert any(line.startswith(f"  fix      unset {VARIABLE}") for line in lines)
    assert all(len(line) <= 100 for line in lines if "http" not in line)
    assert "\033" not in text


def test_notes_are_short_without_verbose() -> None:
    record = a_record()
    notes = sum(f.severity is Severity.INFO for f in record.findings)
    brief, full = (probe_text(record, Terminal(), verbose=v) for v in (False, True))

    assert notes > 0
    assert len(full) > len(brief)
    assert "-v shows INFO findings in full" in brief
    assert "-v shows" not in full


def test_text_without_findings() -> None:
    record = ProbeRecord(environment=make_env(), findings=(), profile="safe")

    assert "no findings" in probe_text(record, Terminal())


def test_colour_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert not terminal_of().colour  # a pipe
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert terminal_of().colour
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal_of().colour
    assert Terminal(colour=True).paint("x", "red") == "\033[31mx\033[0m"


def test_json_can_be_read_back() -> None:
    record = a_record()

    assert read_probe(probe_json(record), "x") == record
    assert json.loads(probe_json(record))["schema"] == "rocsolid/probe/1"


def test_refuses_json_with_another_schema() -> None:
    with pytest.raises(
        InputError, match="x is not a saved probe: its schema is rocsolid/other/1, not rocsolid/probe/1"
    ):
        read_probe('{"schema": "rocsolid/other/1"}', "x")


def test_sarif_has_the_fields_of_code_scanning() -> None:
    record = a_record()
    (run,) = json.loads(sarif(record.findings))["runs"]
    rules = [r["id"] for r in run["tool"]["driver"]["rules"]]

    assert len(run["results"]) == len(record.findings)
    for result, finding in zip(run["results"], record.findings, strict=True):
        assert rules[result["ruleIndex"]] == result["ruleId"] == finding.code
        assert result["message"]["text"]
        assert result["locations"]
    assert run["results"][0]["level"] == "error"


def test_sarif_and_annotations_have_the_location() -> None:
    finding = replace(a_record().findings[0], location="src/a,b.py:12")
    (run,) = json.loads(sarif([finding]))["runs"]
    location = run["results"][0]["locations"][0]["physicalLocation"]

    assert location == {"artifactLocation": {"uri": "src/a,b.py"}, "region": {"startLine": 12}}
    assert "{" not in run["tool"]["driver"]["rules"][0]["fullDescription"]["text"]
    assert github([finding]).startswith("::error file=src/a%2Cb.py,line=12,title=CFG001 inductor.max_autotune::")


def test_annotations_are_one_line_each() -> None:
    findings = a_record().findings
    text = github(findings)

    assert len(text.splitlines()) == len(findings)
    assert text.startswith("::error title=CFG001 inductor.max_autotune::Environment variable")
    assert "%0AFix: unset" in text


def test_fix_text_has_commands() -> None:
    text = fix_text(a_record().findings)

    assert f"unset {VARIABLE}" in text
    assert "unset HIP_LAUNCH_BLOCKING" in text
    assert "import torch._inductor.config as inductor_config" not in text
    assert "# do by hand" in text
    assert fix_text(()) == "# nothing to fix\n"
    python = fix_text(a_record(make_env(moved={"inductor.max_autotune": (True, False, Origin.ASSIGNED, "")})).findings)
    assert "import torch._inductor.config as inductor_config\ninductor_config.max_autotune = False" in python


def test_env_file_can_be_sourced() -> None:
    import subprocess

    script = env_file(a_record().findings) + f'echo "[${{{VARIABLE}-gone}}]"\n'
    done = subprocess.run(["sh", "-c", script], env={VARIABLE: "1"}, capture_output=True, text=True, check=True)

    assert done.stdout == "[gone]\n"


def test_difference_lists_what_changed() -> None:
    before, after = a_record(), a_record(make_env(torch="2.14.0", rocm="7.1.1"))
    text = difference_text(compare_probes(before, after), Terminal())

    assert "torch: 2.13.0 → 2.14.0" in text
    assert "inductor.max_autotune: True → (not set)" in text
    assert f"{VARIABLE}: 1 → (not set)" in text
    assert "no longer found" in text
    assert difference_text(compare_probes(before, before), Terminal()) == "no difference\n"


def test_ledger_as_a_markdown_table() -> None:
    from rocsolid.catalog.images import IMAGES

    lines = images_markdown(IMAGES).splitlines()

    assert lines[0] == "| Image | Torch | ROCm | Findings | Recorded |"
    assert len(lines) == 5
    assert all(line.count("|") == 6 for line in lines)


def test_every_declaration_has_a_page() -> None:
    from rocsolid.catalog.problems import all_problems
    from rocsolid.catalog.registry import all_settings

    pages = [
        *(setting_page(s) for s in all_settings()),
        *(problem_page(p) for p in all_problems()),
        *(rule_page(r) for r in all_rules()),
    ]

    assert all(page.startswith("# ") and len(page) > 100 for page in pages)
    assert all("None" not in page.splitlines()[0] for page in pages)


def test_terminal_page_has_no_markup() -> None:
    marked = "See [the page](../x.md) and [the issue](https://e.org/1).\n\n- *message*: 2 * 3 * 4\n"
    text = page_text(marked, Terminal())

    assert text == "See the page and the issue <https://e.org/1>.\n\n- message: 2 * 3 * 4\n"


def test_rule_page_names_the_placeholders() -> None:
    pages = {file.rule.code: rule_page(file) for file in all_rules()}

    assert "Environment variable ‹set by› sets `‹subject›` to ‹value›" in pages["CFG001"]
    assert not [code for code, page in pages.items() if re.search(r"\{\w+[:}!]", page.partition("## Messages")[2])]


def test_terminal_page_has_bold_headings_and_coloured_code() -> None:
    text = page_text("# Title\n\n- **bold** `code` and words\n\n    code line\n", Terminal(colour=True))

    assert text == "\033[1mTitle\033[0m\n\n- bold `code` and words\n\n\033[36m    code line\033[0m\n"


def test_finding_as_one_line() -> None:
    finding: Finding = a_record().findings[0]

    assert str(finding).startswith("CRITICAL CFG001 inductor.max_autotune: Environment variable")


@pytest.mark.parametrize(("torch", "reads"), [("2.10.0", False), ("2.11.0", True), ("", True)])
def test_a_variable_that_this_torch_does_not_read_is_not_exported(torch: str, reads: bool) -> None:  # noqa: FBT001 - a case
    decision = Decision(
        id="dynamo.automatic_dynamic_shapes", value=False, channel=Channel.SCOPE, why="", profile="safe"
    )
    plan = Plan(profile="safe", platform=Platform.CPU, torch=torch, decisions=(decision,))

    assert ("export TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES=0" in variables_text(plan, "bash")) is reads


def test_a_long_headline_is_wrapped_in_a_terminal_and_one_line_in_html() -> None:
    record = a_record()
    device = replace(record.environment.devices[0], name="a chip with " + "a long name " * 9)
    record = replace(record, environment=replace(record.environment, devices=(device,)))

    assert max(map(len, probe_text(record, Terminal(width=80)).splitlines())) <= 80
    assert "a chip with " + "a long name " * 9 in probe_html(record)
