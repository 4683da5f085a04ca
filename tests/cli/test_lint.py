"""The command `rocsolid lint`: text, exit codes, formats, baseline, fixes."""

import json
import sys
from pathlib import Path

import pytest
from tests.support import ROOT, Ran, clean_environ, run_cli, run_python

from rocsolid.rules.engine import source_rules

DEAD = "import torch\ntorch._inductor.config.group_fusion = True\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "conf.py").write_text(DEAD)
    (tmp_path / "net.py").write_text(
        "import torch\ndef scale(x):\n    return x.item()\n@torch.compile\ndef step(x):\n    return x / scale(x)\n"
    )
    (tmp_path / "broken.py").write_text("from torch import compile, (:\n")
    return tmp_path


def lint(folder: Path, *args: str) -> Ran:
    """Run in the folder, so that locations are relative."""
    import subprocess

    command = [sys.executable, "-m", "rocsolid", "lint", *args]
    done = subprocess.run(command, cwd=folder, env=clean_environ(), capture_output=True, text=True, check=False)
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def test_text_shows_line_caret_chain_why_and_fix(project: Path) -> None:
    ran = lint(project)

    assert ran.code == 1
    for lines in (
        (
            "conf.py:2:1 WARNING SRC107 dead-setting\n"
            "  `torch._inductor.config.group_fusion = True` has no effect: nothing reads inductor.group_fusion\n"
            "    torch._inductor.config.group_fusion = True\n"
            "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
            "  why  "
        ),
        (
            "net.py:3:12 WARNING SRC123 host-sync-in-compiled-region\n"
            "  Graph break: host sync `x.item()` in a function that compiled code calls\n"
            "    return x.item()\n"
            "           ^^^^^^^^\n"
            "  via  step (net.py:5) → scale (net.py:2)\n"
            "  why  "
        ),
        "\n  fix  Remove the line.\n",
        (
            "\n\nskipped broken.py: line 1: invalid syntax\n\n"
            "2 warnings in 2 files, 8 lines; details: rocsolid explain CODE; 1 file skipped\n"
        ),
    ):
        assert lines in ran.out


@pytest.mark.parametrize("before", [10, 80, 200])
def test_a_long_line_is_scrolled_to_the_marked_expression(tmp_path: Path, before: int) -> None:
    text = "x" * before
    (tmp_path / "m.py").write_text(
        f'import torch\n{text} = 1; torch.compile(m, mode="reduce-overhead", options={{"a": 1}})\n'
    )
    lines = lint(tmp_path, "--select", "mode-with-options").out.splitlines()
    carets = next(line for line in lines if line.strip().startswith("^"))
    code = lines[lines.index(carets) - 1]

    assert len(carets) <= 100
    assert len(code) <= 100
    assert code[carets.index("^") :].startswith('"reduce-overhead"')


def test_a_target_judges_settings_for_its_platform(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "export TORCHINDUCTOR_MAX_AUTOTUNE=1\nexport PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"
    )
    (tmp_path / "m.py").write_text("import torch\ntorch._inductor.config.triton.cudagraphs = True\n")
    without = lint(tmp_path, "--all-files", "--output", "json")
    rocm = lint(tmp_path, "--all-files", "--target", "gfx942@7.2.1", "--output", "json")
    cuda = lint(tmp_path, "--all-files", "--target", "sm_90", "--output", "json")

    def severities(ran: Ran) -> dict[str, str]:
        return {f["subject"]: f["severity"] for f in json.loads(ran.out)["findings"]}

    assert severities(without) == {}
    assert severities(cuda) == {"TORCHINDUCTOR_MAX_AUTOTUNE": "warning"}
    assert severities(rocm) == {
        "inductor.triton.cudagraphs": "critical",
        "TORCHINDUCTOR_MAX_AUTOTUNE": "critical",
        "PYTORCH_CUDA_ALLOC_CONF": "critical",
    }
    assert "values of settings judged for gfx942" in " ".join(lint(tmp_path, "--target", "gfx942").out.split())
    assert "unknown" in lint(tmp_path, "--target", "mi-nothing").err


def test_files_whose_rocm_rules_are_skipped_are_named(tmp_path: Path) -> None:
    (tmp_path / "infer.py").write_text(
        "import torch\nimport tensorrt\nnew = torch.cuda.get_device_capability()[0] >= 9\n"
        "class Engine: pass\ndef build(): tensorrt.Builder()\n"
    )
    (tmp_path / "other.py").write_text("import tensorrt\n")

    assert (
        "ROCm rules skipped in 1 file (infer.py imports tensorrt); show with --confidence anywhere\n"
        in lint(tmp_path).out
    )
    shown = lint(tmp_path, "--confidence", "anywhere").out
    assert "capability-check-assumes-nvidia" in shown
    assert "skipped" not in shown


def test_exit_codes_follow_fail_on_and_confidence(project: Path) -> None:
    assert lint(project, "--fail-on", "critical").code == 0
    assert lint(project, "--fail-on", "never").code == 0
    assert lint(project, "--confidence", "inside", "--ignore", "dead-setting").code == 0
    assert lint(project, "--select", "SRC4").code == 0
    (project / "pyproject.toml").write_text('[tool.rocsolid.lint]\nfail-on = "never"\n')
    assert lint(project).code == 0
    assert lint(project, "--fail-on", "warning").code == 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--select", "SRC999"), "unknown rule 'SRC999'"),
        (("nowhere",), "cannot read nowhere: no such file or folder"),
        (("--jobs", "0"), "--jobs must be at least 1, not 0"),
        (("--baseline", "none.json"), "create one with --write-baseline FILE"),
        (("--confidence", "sure"), "invalid choice: 'sure'"),
    ],
)
def test_wrong_usage_prints_one_line_and_exits_with_two(project: Path, args: tuple[str, ...], says: str) -> None:
    ran = lint(project, *args)

    assert (ran.code, ran.err.count("\n"), ran.out) == (2, 1, "")
    assert says in ran.err


def test_saved_json_renders_in_every_format(project: Path) -> None:
    saved = project / "lint.json"
    assert lint(project, "--output", "json", "--out", str(saved)).code == 1
    data = json.loads(saved.read_text())
    again = run_cli("report", str(saved), "--output", "json")
    page = run_cli("report", str(saved), "--output", "html").out

    assert data["schema"] == "rocsolid/lint/1"
    assert [f["code"] for f in data["findings"]] == ["SRC107", "SRC123"]
    assert data["skipped"] == [{"file": "broken.py", "reason": "line 1: invalid syntax"}]
    assert again.json() == data
    assert page.startswith("<!doctype html>")
    assert "host-sync-in-compiled-region" in page
    assert "net.py:3" in run_cli("report", str(saved)).out


def test_sarif_has_columns_flows_ranks_and_fingerprints(project: Path) -> None:
    run = json.loads(lint(project, "--output", "sarif").out)["runs"][0]
    first, second = run["results"]
    place = second["locations"][0]["physicalLocation"]
    flow = second["codeFlows"][0]["threadFlows"][0]["locations"]

    assert {r["id"] for r in run["tool"]["driver"]["rules"]} == {"SRC107", "SRC123"}
    assert place == {"artifactLocation": {"uri": "net.py"}, "region": {"startLine": 3, "startColumn": 12}}
    assert [s["location"]["physicalLocation"]["region"]["startLine"] for s in flow] == [5, 2]
    assert (first["rank"], second["rank"]) == (90.0, 60.0)
    assert first["partialFingerprints"] != second["partialFingerprints"]


def test_github_annotations_name_file_line_and_column(project: Path) -> None:
    lines = lint(project, "--output", "github").out.splitlines()

    assert lines[0].startswith("::warning file=conf.py,line=2,col=1,title=SRC107 inductor.group_fusion::")
    assert len(lines) == 2


def test_a_baseline_is_written_and_used(project: Path) -> None:
    assert lint(project, "--write-baseline", "known.json").code == 0
    assert lint(project, "--baseline", "known.json").code == 0
    (project / "more.py").write_text(DEAD)
    ran = lint(project, "--baseline", "known.json")

    assert ran.code == 1
    assert ran.out.startswith("more.py:2:1 ")
    assert "2 findings in the baseline" in ran.out


def test_diff_shows_the_fixes_and_fix_applies_them(project: Path) -> None:
    pytest.importorskip("libcst")
    before = (project / "conf.py").read_text()
    shown = lint(project, "--diff")

    assert "-torch._inductor.config.group_fusion = True\n" in shown.out
    assert shown.err == "1 finding can be fixed in 1 file\n"
    assert (project / "conf.py").read_text() == before
    fixed = lint(project, "--fix")
    assert "SRC107" not in fixed.out
    assert (project / "conf.py").read_text() == "import torch\n"


def test_needs_no_torch_and_imports_no_user_code(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(f"raise SystemExit('run')\n{DEAD}")
    script = (
        "import sys, rocsolid as rs\n"
        f"found = rs.lint({str(tmp_path)!r}, cache=False).findings\n"
        "assert [f.code for f in found] == ['SRC107']\n"
        "assert not {'torch', 'numpy', 'libcst', 'm'} & set(sys.modules)\n"
    )

    assert run_python("-c", script).code == 0


def test_explain_shows_source_rules() -> None:
    assert "host-sync-in-captured-region" in run_cli("explain", "SRC201").out


def test_the_pre_commit_hook_runs_an_existing_command() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()

    assert "id: rocsolid-lint" in text
    assert "entry: rocsolid lint" in text
    assert "pass_filenames: false" in text


def test_our_own_source_is_clean() -> None:
    """Our own source follows the rules, or has allow comments with a reason."""
    ran = run_cli("lint", "--no-cache", "--fail-on", "info", str(ROOT / "src"))

    assert ran.code == 0, ran.out
    assert len(source_rules()) > 50
