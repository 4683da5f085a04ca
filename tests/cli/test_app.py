"""Wrong input, crash reports, the doctor, completion, colours and widths of the command line."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import ROOT, clean_environ, make_env, run_cli, run_python

from rocsolid.cli import main
from rocsolid.cli.app import COMMANDS
from rocsolid.model.redact import HIDDEN
from rocsolid.report.doctor import doctor_text, mask_text, mask_value

# For every command: the arguments before a file.
TAKES_FILE = {
    "probe": ["--diff"],
    "ledger": ["merge"],
    "env": ["--plan"],
    "run": ["--plan"],
    "optimize": [],
    "compiles": ["--torch-trace"],
    "breaks": [],
    "profile": [],
    "trace": [],
    "compare": ["README.md"],
    "lint": ["--config"],
    "tune": ["--space"],
    "ab": ["--a", "safe", "--b", "fast"],
    "dryrun": [],
    "verify": [],
    "prove": ["--only", "no-such-claim", "--journal"],
    "report": [],
}
NO_FILE = {"cache", "settings", "explain", "doctor", "completion"}


def wrong_files(folder: Path) -> Iterator[Path]:
    """Missing, a folder, empty, binary, JSON of another program, not readable."""
    (folder / "empty").write_bytes(b"")
    (folder / "binary.json").write_bytes(bytes(range(256)) * 8)
    (folder / "other.json").write_text('{"schema": "somebody/else/9", "x": [1, 2, {"y": null}]}')
    (folder / "deep.json").write_text("[" * 5000)
    (folder / "null.toml").write_text("\0\0\0")
    yield from (folder / "missing.json", folder, folder / "empty", folder / "binary.json", folder / "other.json")
    yield from (folder / "deep.json", folder / "null.toml", Path("/proc/self/mem"), folder / "empty/below")


def run_main(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and the stderr of a command that runs in this process."""
    try:
        code = main(argv)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, capsys.readouterr().err


def test_every_command_is_tested_with_wrong_files() -> None:
    assert {*TAKES_FILE, *NO_FILE} == set(COMMANDS)


@pytest.mark.torch
@pytest.mark.parametrize("command", TAKES_FILE)
def test_wrong_file_is_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCSOLID_LEDGER", str(tmp_path / "ledger.db"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    workload = ["work.py:build"] if command == "tune" else ["x.py"] if command == "run" else []
    for file in wrong_files(tmp_path):
        if command in ("lint", "ledger", "tune") and file.name == "empty":
            continue  # valid: an empty TOML file, an empty ledger
        argv = [command, *TAKES_FILE[command], str(file), *workload]
        code, err = run_main(argv, capsys)
        lines = [line for line in err.splitlines() if line.startswith("rocsolid")]
        assert (code, len(lines)) in ((2, 1), (3, 1)), (argv, code, err)
        assert "unexpected" not in err, (argv, err)
        assert "Traceback" not in err, (argv, err)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("args", [["--no-such-option"], ["--output"], ["--output", "pdf"], ["a", "b", "c", "--zzz"]])
def test_wrong_option_is_one_line(command: str, args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if command == "run" and not args[0].startswith("-"):
        pytest.skip("arguments after a program belong to the program")
    code, err = run_main([command, *args], capsys)

    assert (code, err.count("\n")) == (2, 1), err
    assert f"rocsolid {command} --help" in err


@pytest.mark.parametrize("given", ["-3", "0", "soon", "", "nan", "1e9x"])
@pytest.mark.parametrize(
    "argv",
    [
        ["compiles", "w.py:f", "--deadline"],
        ["dryrun", "w.py:f", "--deadline"],
        ["ledger", "scan", "x:1", "--deadline"],
        ["optimize", "w.py:f", "--budget"],
        ["compiles", "w.py:f", "--calls"],
        ["profile", "w.py:f", "--steps"],
    ],
    ids=lambda argv: f"{argv[0]}{argv[-1]}",
)
def test_wrong_number_is_one_line(argv: list[str], given: str, capsys: pytest.CaptureFixture[str]) -> None:
    if (argv[0], given) == ("optimize", "0"):
        pytest.skip("a budget of 0 is allowed")
    code, err = run_main([*argv[:-1], f"{argv[-1]}={given}"], capsys)

    assert (code, err.count("\n")) == (2, 1), err
    assert argv[-1] in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--env-file", "x.sh"], "--env-file requires --fix"),
        (["--image", "x:1"], "--image requires --record"),
        (["--fix", "--output", "json"], "--fix cannot be combined with --output json"),
        (["--diff", "x.json", "--output", "html"], "--diff supports --output text and json only"),
    ],
)
def test_refuses_an_option_without_effect(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["probe", *args], capsys) == (2, f"rocsolid: error: {message}\n")


@pytest.mark.parametrize("command", [["optimize"], ["compiles"], ["breaks"], ["profile"]])
def test_command_that_needs_torch_names_it(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def build():\n    return print, (), {}\n")
    script = (
        "import sys; sys.modules['torch'] = None\nfrom rocsolid.cli import main\n"
        f"sys.exit(main({[*command, f'{tmp_path}/work.py:build']!r}))"
    )
    env = clean_environ(HOME=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )

    assert done.returncode == 3, done.stderr
    assert "torch" in done.stderr.splitlines()[-1]
    assert "unexpected" not in done.stderr
    assert "Traceback" not in done.stderr


BREAK = "import rocsolid.report.page_index as l\nl.list_names = lambda name: {}['token=hf_abcdefghijklmnop']\n"


def test_unexpected_error_writes_a_crash_report_and_one_line(tmp_path: Path) -> None:
    env = clean_environ(TMPDIR=str(tmp_path), HOME=str(tmp_path))
    script = f"{BREAK}from rocsolid.cli import main\nraise SystemExit(main(['explain', 'rules']))\n"
    ran = run_python("-c", script, env=env)

    assert (ran.code, ran.err.count("\n")) == (3, 1)
    assert ran.err.startswith("rocsolid: error: unexpected KeyError: ")
    (file,) = tmp_path.glob("rocsolid-crashes-*/crash-*.txt")
    report = file.read_text()
    assert str(file) in ran.err
    assert "$ rocsolid explain rules" in report
    assert "in <lambda>" in report
    assert "\ntorch " in report
    assert "hf_abcdefghijklmnop" not in report
    assert file.stat().st_mode & 0o077 == 0
    assert str(file) in run_cli("doctor", env=env).out
    raised = run_python("-c", script, env={**env, "ROCSOLID_DEBUG": "1"})
    assert "Traceback" in raised.err


def test_unexpected_error_without_a_writable_folder() -> None:
    script = f"{BREAK}from rocsolid.cli import main\nraise SystemExit(main(['explain', 'rules']))\n"
    prelude = "import tempfile\ntempfile.tempdir = '/proc/nowhere'\n"
    ran = run_python("-c", prelude + script)

    assert ran.code == 3
    assert "the crash report could not be written" in ran.err


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("HF_TOKEN", "hf_abc", HIDDEN),
        ("AWS_SECRET_ACCESS_KEY", "x", HIDDEN),
        ("TORCH_API_KEY", "short", HIDDEN),
        ("TORCHINDUCTOR_CACHE_DIR", "/big/disk/cache", "/big/disk/cache"),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", "1", "1"),
        ("PYTORCH_ALLOC_CONF", "expandable_segments:True", "expandable_segments:True"),
        ("TORCHINDUCTOR_REMOTE", "https://me:pass@cache.example/x", "https://cache.example/x"),
        ("TORCH_X", "ghp_0123456789abcdef", HIDDEN),
        ("TORCH_Y", "a1" * 20, HIDDEN),
    ],
)
def test_masks_secrets(name: str, value: str, shown: str) -> None:
    assert mask_value(name, value) == shown


def test_masks_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")

    assert mask_text("cache in /home/somebody/.cache") == "cache in ~/.cache"


def test_doctor_lists_versions_and_variables() -> None:
    env = make_env(variables={"HF_TOKEN": "hf_secretsecret", "HIP_VISIBLE_DEVICES": "0"})
    text = doctor_text(env, version="1.2.3", extras={"trace": True, "tune": False})

    assert "rocsolid   1.2.3" in text
    assert "a chip (gfx942)" in text
    assert "HIP_VISIBLE_DEVICES=0" in text
    assert "extras     trace yes, tune no" in text
    assert "secretsecret" not in text


def completions(*words: str) -> list[str]:
    """The completions that bash offers for the last word."""
    script = 'eval "$1"; shift; COMP_WORDS=(rocsolid "$@"); COMP_CWORD=$#; _rocsolid; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", run_cli("completion", "bash").out, *words],
        capture_output=True,
        text=True,
        check=True,
        env=clean_environ(),
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (("co",), ["compiles", "compare", "completion"]),
        (("probe", "--fa"), ["--fail-on"]),
        (("probe", "--fail-on", "c"), ["critical"]),
        (("tune", "w.py:f", "--profile", ""), ["safe", "balanced", "fast", "debug"]),
        (("explain", "CFG00"), [f"CFG00{n}" for n in range(1, 10)]),
        (("settings", "inductor.freez"), ["inductor.freezing"]),
        (("ledger", "s"), ["show", "scan"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("trace", "some"), []),
    ],
)
def test_bash_completes(words: tuple[str, ...], offers: list[str]) -> None:
    assert completions(*words) == offers


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_contain_every_option(shell: str) -> None:
    script = run_cli("completion", shell).out

    assert all(command in script for command in COMMANDS)
    assert "fail-on" in script
    assert "max-choices" in script
    if shell == "bash":
        subprocess.run(["bash", "-n", "-c", script], check=True)


def _on_a_terminal(*args: str, columns: int, **planted: str) -> str:
    """The output of a command on a terminal of this width."""
    import pty

    leader, follower = pty.openpty()
    env = clean_environ(**{"COLUMNS": str(columns), "TERM": "xterm-256color", **planted})
    child = subprocess.Popen([sys.executable, "-m", "rocsolid", *args], stdout=follower, stderr=follower, env=env)
    os.close(follower)
    chunks = []
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(leader)
    child.wait()
    return b"".join(chunks).decode()


def test_colours_only_on_terminals_that_support_them() -> None:
    assert "\033[" in _on_a_terminal("explain", "CFG001", columns=80)
    assert "\033[" not in _on_a_terminal("explain", "CFG001", columns=80, NO_COLOR="1")
    assert "\033[" not in _on_a_terminal("explain", "CFG001", columns=80, TERM="dumb")
    assert "\033[" not in run_cli("explain", "CFG001").out


@pytest.mark.parametrize("columns", [80, 200])
def test_text_fits_the_terminal(columns: int, tmp_path: Path) -> None:
    made = run_python(str(ROOT / "scripts/make_trace.py"), "dense", "1", str(tmp_path / "t.json"))
    assert made.code == 0, made.err
    env = {"COLUMNS": str(columns)}
    texts = [
        run_cli("explain", "safe", env=clean_environ(**env)).out,
        run_cli("settings", env=clean_environ(**env)).out,
        run_cli("trace", str(tmp_path / "t.json"), env=clean_environ(**env)).out,
        run_cli("lint", str(ROOT / "tests/lint/cases/mode-hard-coded"), "--no-cache", env=clean_environ(**env)).out,
    ]
    # A word that is longer than the line, such as a URL or a path, is not broken.
    long = [
        line for text in texts for line in text.splitlines() if len(line) > columns and not re.search(r"\S{30}", line)
    ]

    assert long == []
