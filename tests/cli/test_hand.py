"""The command line in the hand: no traceback for a user's mistake, a report for ours, completion, colours, widths."""

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
from rocsolid.report.doctor import MASK, doctor_text, masked, masked_text

# For every command: how it is given a file, and what it needs besides.
TAKES_FILE = {
    "probe": ["--diff"],
    "ledger": ["merge"],
    "env": ["--plan"],
    "run": ["--plan"],
    "optimize": [],
    "compiles": ["--trace"],
    "breaks": [],
    "profile": [],
    "trace": [],
    "compare": ["README.md"],
    "lint": ["--config"],
    "tune": ["--space"],
    "ab": ["--a", "safe", "--b", "fast"],
    "dryrun": [],
    "report": [],
}
NO_FILE = {"settings", "explain", "doctor", "completion"}


def wrong_files(folder: Path) -> Iterator[Path]:
    """Missing, a folder, empty, binary, foreign JSON, not readable at all."""
    (folder / "empty").write_bytes(b"")
    (folder / "binary.json").write_bytes(bytes(range(256)) * 8)
    (folder / "foreign.json").write_text('{"schema": "somebody/else/9", "x": [1, 2, {"y": null}]}')
    (folder / "deep.json").write_text("[" * 5000)
    (folder / "null.toml").write_text("\0\0\0")
    yield from (folder / "missing.json", folder, folder / "empty", folder / "binary.json", folder / "foreign.json")
    yield from (folder / "deep.json", folder / "null.toml", Path("/proc/self/mem"), folder / "empty/below")


def asked(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """How a command ends in this process, and what it says on stderr."""
    try:
        code = main(argv)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, capsys.readouterr().err


def test_every_command_is_fuzzed() -> None:
    assert {*TAKES_FILE, *NO_FILE} == set(COMMANDS)


@pytest.mark.torch
@pytest.mark.parametrize("command", TAKES_FILE)
def test_a_wrong_file_is_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCSOLID_LEDGER", str(tmp_path / "ledger.db"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    workload = ["work.py:build"] if command == "tune" else ["x.py"] if command == "run" else []
    for file in wrong_files(tmp_path):
        if command in ("lint", "ledger", "tune") and file.name == "empty":
            continue  # an empty TOML file is one, and so is an empty ledger
        argv = [command, *TAKES_FILE[command], str(file), *workload]
        code, err = asked(argv, capsys)
        told = [line for line in err.splitlines() if line.startswith("rocsolid")]
        assert (code, len(told)) in ((2, 1), (3, 1)), (argv, code, err)
        assert "unexpected" not in err, (argv, err)
        assert "Traceback" not in err, (argv, err)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("args", [["--no-such-option"], ["--output"], ["--output", "pdf"], ["a", "b", "c", "--zzz"]])
def test_a_wrong_option_is_one_line(command: str, args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if command == "run" and not args[0].startswith("-"):
        pytest.skip("what comes after a program is the program's")
    code, err = asked([command, *args], capsys)

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
def test_a_wrong_number_is_one_line(argv: list[str], given: str, capsys: pytest.CaptureFixture[str]) -> None:
    if (argv[0], given) == ("optimize", "0"):
        pytest.skip("a budget of nothing measures the model as it is")
    code, err = asked([*argv[:-1], f"{argv[-1]}={given}"], capsys)

    assert (code, err.count("\n")) == (2, 1), err
    assert argv[-1] in err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--env-file", "x.sh"], "--env-file writes what --fix prints; give both"),
        (["--image", "x:1"], "--image names what --record keeps; give both"),
        (["--fix", "--output", "json"], "--fix prints shell and Python lines, and no json"),
        (["--diff", "x.json", "--output", "html"], "--diff is shown as text or json"),
    ],
)
def test_an_option_that_would_be_passed_over_is_refused(
    args: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(["probe", *args], capsys) == (2, f"rocsolid: error: {says}\n")


@pytest.mark.parametrize("command", [["optimize"], ["compiles"], ["breaks"], ["profile"]])
def test_a_command_that_needs_torch_says_so_without_it(command: list[str], tmp_path: Path) -> None:
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


BREAK = "import rocsolid.report.page_index as l\nl.listing = lambda name: {}['token=hf_abcdefghijklmnop']\n"


def test_a_mistake_of_ours_is_a_report_and_one_line(tmp_path: Path) -> None:
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


def test_a_mistake_is_told_even_when_nothing_can_be_written() -> None:
    script = f"{BREAK}from rocsolid.cli import main\nraise SystemExit(main(['explain', 'rules']))\n"
    prelude = "import tempfile\ntempfile.tempdir = '/proc/nowhere'\n"
    ran = run_python("-c", prelude + script)

    assert ran.code == 3
    assert "its report could not be written" in ran.err


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("HF_TOKEN", "hf_abc", MASK),
        ("AWS_SECRET_ACCESS_KEY", "x", MASK),
        ("TORCH_API_KEY", "short", MASK),
        ("TORCHINDUCTOR_CACHE_DIR", "/big/disk/cache", "/big/disk/cache"),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", "1", "1"),
        ("PYTORCH_ALLOC_CONF", "expandable_segments:True", "expandable_segments:True"),
        ("TORCHINDUCTOR_REMOTE", "https://me:pass@cache.example/x", f"https://{MASK}cache.example/x"),
        ("TORCH_X", "ghp_0123456789abcdef", MASK),
        ("TORCH_Y", "a1" * 20, MASK),
    ],
)
def test_nothing_secret_is_shown(name: str, value: str, shown: str) -> None:
    assert masked(name, value) == shown


def test_the_home_folder_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")

    assert masked_text("cache in /home/somebody/.cache") == "cache in ~/.cache"


def test_the_doctor_tells_versions_and_variables() -> None:
    env = make_env(variables={"HF_TOKEN": "hf_secretsecret", "HIP_VISIBLE_DEVICES": "0"})
    text = doctor_text(env, version="1.2.3", extras={"trace": True, "tune": False})

    assert "rocsolid   1.2.3" in text
    assert "a chip (gfx942)" in text
    assert "HIP_VISIBLE_DEVICES=0" in text
    assert "extras     trace yes, tune no" in text
    assert "secretsecret" not in text


def completed(*words: str) -> list[str]:
    """What bash offers for the last word, asked for real."""
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
    assert completed(*words) == offers


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_option_is_in_every_script(shell: str) -> None:
    script = run_cli("completion", shell).out

    assert all(command in script for command in COMMANDS)
    assert "fail-on" in script
    assert "max-choices" in script
    if shell == "bash":
        subprocess.run(["bash", "-n", "-c", script], check=True)


def _on_a_terminal(*args: str, columns: int, **planted: str) -> str:
    """What a command prints on a terminal of this width."""
    import pty

    leader, follower = pty.openpty()
    env = clean_environ(**{"COLUMNS": str(columns), "TERM": "xterm-256color", **planted})
    child = subprocess.Popen([sys.executable, "-m", "rocsolid", *args], stdout=follower, stderr=follower, env=env)
    os.close(follower)
    pieces = []
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(leader)
    child.wait()
    return b"".join(pieces).decode()


def test_colours_are_for_terminals_that_want_them() -> None:
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
    # A word that is longer than the line, such as an address or a path, is left whole.
    long = [
        line for text in texts for line in text.splitlines() if len(line) > columns and not re.search(r"\S{30}", line)
    ]

    assert long == []
