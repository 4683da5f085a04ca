"""The commands probe, explain, settings, report and ledger as a user runs them."""

import json
from pathlib import Path

import pytest
from tests.support import clean_environ, run_cli, run_python

from rocsolid.cli.app import COMMANDS


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_examples_and_does_not_import_torch(command: str) -> None:
    script = (
        "import sys\nfrom rocsolid.cli import main\n"
        f"try:\n    main({[*command.split(), '--help']!r})\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    ran = run_python("-c", script)

    assert ran.code == 0, ran.err
    assert "Examples:" in ran.out
    assert f"rocsolid {command}".strip() in ran.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["prob"], "rocsolid: error: unknown command 'prob'; did you mean 'probe' or 'prove'?"),
        (
            ["explain", "CFG0001"],
            "rocsolid: error: unknown name 'CFG0001'; did you mean",
        ),
        (
            ["settings", "inductor.max_autotun"],
            "rocsolid: error: unknown setting 'inductor.max_autotun'; did you mean 'inductor.max_autotune'",
        ),
        (["probe", "--profile", "saef"], "rocsolid: error: unknown profile 'saef'; did you mean 'safe'?"),
        (["probe", "--diff", "no-such.json"], "rocsolid: error: cannot read no-such.json: No such file or directory"),
        (["report", "no-such.json"], "rocsolid: error: cannot read no-such.json: No such file or directory"),
        (["ledger", "show", "nothing:1"], "rocsolid: error: unknown image 'nothing:1'"),
        (["ledger", "merge", "no-such.db"], "rocsolid: error: cannot read no-such.db: No such file or directory"),
        (["probe", "--output", "pdf"], "rocsolid probe: error: argument --output: invalid choice: 'pdf'"),
        (["probe", "--out", "/proc/no/where"], "rocsolid: error: cannot write /proc/no/where: "),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, args: list[str], message: str) -> None:
    ran = run_cli(*args, env=clean_environ(ROCSOLID_LEDGER=str(tmp_path / "l.db")))

    assert ran.code == 2
    assert ran.err.startswith(message)
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[1, 2]", "was not written by rocsolid"),
        (
            '{"schema": "rocsolid/ledger/1"}',
            "has the schema rocsolid/ledger/1, which cannot be rendered; supported: rocsolid/probe/1",
        ),
        ('{"schema": "rocsolid/probe/1", "profile": "safe"}', "environment"),
        ('{"schema": "rocsolid/probe/1", "profile": 3, "findings": [], "environment": {}}', "expected str, found 3"),
    ],
)
def test_report_refuses_a_broken_file(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    ran = run_cli("report", str(file))

    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert message in ran.err
    assert file.read_text() == content


def test_report_refuses_a_binary_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")

    assert run_cli("report", str(tmp_path / "x.json")).err.endswith("not a text file\n")


def test_version_and_no_command() -> None:
    assert run_cli("--version").out.startswith("rocsolid 0.")
    bare = run_cli()
    assert (bare.code, bare.out.splitlines()[0]) == (2, "usage: rocsolid [-h] [--version] COMMAND ...")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CFG001", "CFG001 setting-changed-by-variable"),
        ("setting-changed-by-variable", "CFG001"),
        ("inductor.group_fusion", "No code reads it in any release"),
        ("TORCHINDUCTOR_FX_GRAPH_CACHE", "forces the value"),
        ("safe", "`inductor.max_autotune` = False"),
        ("hip-graph-replay-corruption", "ROCm 7.2.0 to 7.2.3"),
        ("problems", "hipblaslt-handle-in-capture"),
        ("rules", "KNO001"),
        ("profiles", "balanced"),
        ("hipEventQuery", "HIP 6.4.3: in every mode it runs"),
        ("torch.cuda.synchronize", "hipErrorStreamCaptureUnsupported, 900"),
        ("906", "Error 906 during a capture"),
        ("hipErrorStreamCaptureImplicit", "`hipMemcpy` to the host, on the default stream"),
        ("calls", "hipStreamAddCallback"),
        ("late-launch", "The launch call began after the device had become idle"),
        ("blocking-copy", "Reported by rule TRC002"),
    ],
)
def test_explains_everything_that_has_a_name(name: str, text: str) -> None:
    ran = run_cli("explain", name)

    assert ran.code == 0, ran.err
    assert text in ran.out


def test_explain_profile_gives_each_value_with_its_reason() -> None:
    lines = run_cli("explain", "fast").out.splitlines()
    values = [line for line in lines if line.startswith("- ") and " = " in line]

    assert len(values) > 20
    assert all(": " in line for line in values)
    assert any("; from safe)" in line for line in values)


def test_settings_lists_all_and_shows_one() -> None:
    assert "`inductor.max_autotune`: Benchmark several kernels" in run_cli("settings").out
    one = run_cli("settings", "inductor.freezing", "--output", "json").json()
    assert one["settings"][0]["name"] == "freezing"


@pytest.mark.torch
def test_settings_here_shows_changed_values() -> None:
    env = clean_environ(TORCHINDUCTOR_FREEZING="1")

    assert run_cli("settings", "--values", env=env).out == (
        "inductor.freezing = True   (default: False; set by: environment variable TORCHINDUCTOR_FREEZING)\n"
    )
    assert run_cli("settings", "--values", "inductor.freezing").out == "inductor.freezing = False\n"
    assert run_cli("settings", "--values").out == "every setting has the default of the installed torch\n"
    unknown = run_cli("settings", "--values", "inductor.freezin")
    assert (unknown.code, "did you mean 'inductor.freezing'" in unknown.err) == (2, True)


@pytest.mark.torch
def test_exit_codes_follow_fail_on() -> None:
    env = clean_environ(TORCHINDUCTOR_FREEZING="1")  # a warning

    assert run_cli("probe", env=env).code == 0
    assert run_cli("probe", "--fail-on", "warning", env=env).code == 1
    assert run_cli("probe", "--fail-on", "never", env=env).code == 0
    known = ("--allow", "KNO001")  # known problems of CUDA and ROCm builds
    assert run_cli("probe", "--fail-on", "warning", *known).code == 0


@pytest.mark.torch
def test_probe_saves_compares_and_renders(tmp_path: Path) -> None:
    before, page = tmp_path / "before.json", tmp_path / "deep/page.html"
    assert run_cli("probe", "--output", "json", "--out", str(before)).code == 0
    moved = run_cli("probe", "--diff", str(before), env=clean_environ(TORCHINDUCTOR_FREEZING="1"))
    assert "inductor.freezing: False → True" in moved.out
    assert "TORCHINDUCTOR_FREEZING: (not set) → 1" in moved.out
    assert "newly found" in moved.out
    rendered = run_cli("report", str(before), "--output", "html", "--out", str(page))
    assert rendered.err == f"wrote {page}\n"
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(run_cli("report", str(before), "--output", "sarif").out)["version"] == "2.1.0"


@pytest.mark.torch
def test_probe_fix_prints_and_writes_on_request(tmp_path: Path) -> None:
    file = tmp_path / "fix.sh"
    ran = run_cli("probe", "--fix", "--env-file", str(file), env=clean_environ(TORCHINDUCTOR_MAX_AUTOTUNE="1"))

    assert "unset TORCHINDUCTOR_MAX_AUTOTUNE" in ran.out
    assert "unset TORCHINDUCTOR_MAX_AUTOTUNE" in file.read_text()


@pytest.mark.torch
def test_probe_records_under_its_image(tmp_path: Path) -> None:
    env = clean_environ(ROCSOLID_LEDGER=str(tmp_path / "l.db"))
    ran = run_cli("probe", "--record", "--image", "mine:1", env=env)

    assert ran.err.startswith("recorded as mine:1@")
    assert "mine:1" in run_cli("ledger", env=env).out


def test_closed_pipe_is_not_an_error() -> None:
    import subprocess
    import sys

    command = f"{sys.executable} -m rocsolid explain problems | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], env=clean_environ(), capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
