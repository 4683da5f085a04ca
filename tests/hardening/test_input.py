"""Bad input is a sentence with the file, exit code 2, and never a traceback (D9, D10, D13, D14, D15, D16)."""

import gzip
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support import SOURCE, clean_environ

from rocsolid.cli.app import run
from rocsolid.errors import InputError
from rocsolid.model.codec import read_text
from rocsolid.model.plan import Plan
from rocsolid.probe.ledger import Ledger
from rocsolid.tune.store import open_store, read_studies

ENTRY = "CREATE TABLE entry (image, digest, recorded_at, source, document)"
ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS document, i AS recorded_at FROM n"
)


def ledger_file(tmp_path: Path, *statements: str) -> Path:
    file = tmp_path / "ledger.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute(f"PRAGMA application_id = {0x526F4C64}")
        database.execute("PRAGMA user_version = 1")
        for statement in statements:
            database.execute(statement)
        database.commit()
    return file


@pytest.mark.parametrize(
    "statements",
    [
        (),
        ("CREATE TABLE entry (image TEXT)",),
        (ENTRY, "INSERT INTO entry VALUES ('a', 'b', 'c', 'd', NULL)"),
        (ENTRY, "INSERT INTO entry VALUES ('a', 'b', 'c', 'd', 5)"),
        (ENTRY, "INSERT INTO entry VALUES ('a', 'b', 'c', 'd', x'ff')"),
        (ENTRY, "INSERT INTO entry VALUES ('a', 'b', 'c', 'd', CAST(x'ff' AS TEXT))"),
        (ENTRY, f"INSERT INTO entry VALUES ('a', 'b', 'c', 'd', '{'[' * 100_000}')"),
        (ENTRY, f"INSERT INTO entry VALUES ('a', 'b', 'c', 'd', '{'[' * 300}{']' * 300}')"),
        (f"CREATE VIEW entry AS {ENDLESS}",),
    ],
)
def test_d14_ledgers(tmp_path: Path, statements: tuple[str, ...]) -> None:
    file = ledger_file(tmp_path, *statements)
    with pytest.raises(InputError, match=str(file)):
        Ledger(file).entries()


def test_d13_an_endless_query_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables with millions of pairs instead of a view, which is refused at once."""
    from rocsolid.measure import database

    monkeypatch.setattr(database, "_BASE_LIMIT_S", 0.5)
    file = ledger_file(tmp_path, "CREATE TABLE a (i)")
    started = time.monotonic()
    with pytest.raises(InputError, match="takes longer than"), database.open_database(file, "a ledger") as opened:
        opened.execute(f"SELECT count(*) FROM ({ENDLESS})").fetchone()
    assert time.monotonic() - started < 10


TRIGGER = f"CREATE TRIGGER endless AFTER INSERT ON TABLE_NAME BEGIN SELECT count(*) FROM ({ENDLESS}); END"


def test_d13_triggers_are_not_run(tmp_path: Path) -> None:
    """They would run with the first row that is written."""
    file = ledger_file(tmp_path, ENTRY, TRIGGER.replace("TABLE_NAME", "entry"))
    with pytest.raises(InputError, match="it contains the trigger 'endless'"):
        Ledger(file)
    study = study_file(tmp_path)
    with closing(sqlite3.connect(study)) as database:
        database.execute(TRIGGER.replace("TABLE_NAME", "trials"))
        database.commit()
    with pytest.raises(InputError, match="it contains the trigger 'endless'"):
        open_store(study, "key", "work.py:f")


def test_d16_a_locked_ledger_is_not_called_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.measure import database

    monkeypatch.setattr(database, "_WAIT_FOR_LOCK_S", 0.1)
    file = ledger_file(tmp_path, ENTRY)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="another program is using it"):
            Ledger(file).entries()


def study_file(tmp_path: Path) -> Path:
    file = tmp_path / "study.db"
    open_store(file, "key", "work.py:f").close()
    return file


@pytest.mark.parametrize("record", ["[", "{}", "[" * 100_000, "5", '{"number": 1' + "0" * 5000 + "}", b"\xff"])
def test_d14_studies(tmp_path: Path, record: object) -> None:
    file = study_file(tmp_path)
    with closing(sqlite3.connect(file)) as database:
        database.execute("INSERT INTO trials VALUES (1, 1, 'a', 'o', ?)", (record,))
        database.commit()
    with pytest.raises(InputError, match=str(file)):
        read_studies(file)
    store = open_store(file, "key", "work.py:f")
    with pytest.raises(InputError, match=str(file)):
        store.finished()
    store.close()


@pytest.mark.parametrize("owner", ["../../../tmp/x", 5, "a\0b", "x" * 5000, b"\xff"])
def test_d14_odd_owners_are_no_file_names(tmp_path: Path, owner: object) -> None:
    file = study_file(tmp_path)
    with closing(sqlite3.connect(file)) as database:
        database.execute("INSERT INTO trials VALUES (1, 1, 'a', ?, NULL)", (owner,))
        database.commit()
    store = open_store(file, "key", "work.py:f")
    assert store.running() == []
    store.close()


HEAD = 'schema = "rocsolid/plan/1"\nprofile = "fast"\nplatform = "cpu"\ntorch = "2"\n'


@pytest.mark.parametrize(
    "text",
    [
        "decisions = 5",
        "decisions = [5]",
        f"x = {'[' * 5000}",
        f"x = {'9' * 5000}",
        f"x = {'[' * 200}{']' * 200}",
        "x = \0",
    ],
)
def test_d14_plans(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.toml").write_text(HEAD + text)
    with pytest.raises(InputError, match=r"p\.toml"):
        Plan.load(tmp_path / "p.toml")


@pytest.mark.parametrize(
    "text",
    ["tool = 5", "[tool]\nrocsolid = 5", "[tool.rocsolid]\nlint = [1]", f"tool = {'[' * 5000}", f"x = {'9' * 5000}",
     '[tool.rocsolid.lint]\nbaseline = "/dev/zero"', '[tool.rocsolid.lint.per-file-ignores]\n"a" = 5',
     '[tool.rocsolid.lint]\nbaseline = "a\\u0000b"'],
)  # fmt: skip
def test_d10_d14_projects(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    (tmp_path / "a.py").write_text("x = 1\n")
    assert run(["lint", str(tmp_path), "--jobs", "1"]) == 2
    assert "unexpected" not in capsys.readouterr().err


def a_record(**changed: Any) -> str:
    from tests.report.test_reports import a_record as probe_record

    from rocsolid.report.machine_readable import probe_json

    document = json.loads(probe_json(probe_record()))
    for path, value in changed.items():
        *above, last = path.split("__")
        inner = document
        for name in above:
            inner = inner[name]
        inner[last] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"environment__host__cores": 10**400}, 2),
        ({"environment__host__memory_bytes": 2**70}, 2),
        ({"profile": "\ud800"}, 0),
        ({"environment__settings": {"x": {"value": "\udcff", "default": 10**300, "origin": "default"}}}, 0),
        ({"schema": ["rocsolid/"]}, 2),
        ({"schema": 5}, 2),
    ],
)
def test_d14_records(tmp_path: Path, changed: dict[str, Any], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.json").write_text(a_record(**changed))
    for output in ("text", "json", "html", "sarif", "github"):
        assert run(["report", str(tmp_path / "r.json"), "--output", output, "--out", str(tmp_path / "out")]) == code
    assert "unexpected" not in capsys.readouterr().err


@pytest.mark.parametrize(("times", "sizes"), [((1, 2), (3,)), ((), (3,)), ((1,), ()), ((), ())])
def test_d14_curves_of_uneven_length(times: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    from rocsolid.model.trace import MemoryCurve
    from rocsolid.report.trace_page import _memory

    curve = MemoryCurve(device="0", peak_bytes=3, times_ns=times, allocated_bytes=sizes)
    assert "allocated memory of device 0" in str(_memory(curve))


def test_d14_long_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = str(tmp_path / ("x" * 300))
    plan = ["env", "--plan", name]
    for argv in (["report", name], ["lint", name], ["trace", name], ["ledger", "--ledger", name], plan, ["compare", name, name],
                 ["report", name, "--out", name], ["breaks", f"{name}:f"], ["compiles", "--torch-trace", name]):  # fmt: skip
        assert run(argv) in (2, 3), argv
        assert "unexpected" not in capsys.readouterr().err, argv


@pytest.mark.parametrize("size_limit", [10**9, 1000])
def test_files_are_read_up_to_a_limit(size_limit: int, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x" * 2000)
    if size_limit > 2000:
        assert read_text(tmp_path / "f", max_bytes=size_limit)
    else:
        with pytest.raises(InputError, match="more than 0 MB"):
            read_text(tmp_path / "f", max_bytes=size_limit)


def shell(command: str, cwd: Path | None = None, **env: str) -> tuple[int, str]:
    rocsolid = f"{sys.executable} -m rocsolid"
    done = subprocess.run(
        ["bash", "-c", command.replace("ROCSOLID", rocsolid)],
        env=clean_environ(**env), cwd=cwd, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_d14_odd_places_to_write_to(tmp_path: Path) -> None:
    """Closed and full stdout, ASCII only, a deleted folder, a folder that may not be written."""
    assert shell("ROCSOLID explain CFG001 >&-") == (
        3,
        "rocsolid: error: cannot write the output: Bad file descriptor\n",
    )
    assert shell("ROCSOLID explain CFG001 >/dev/full") == (
        3,
        "rocsolid: error: cannot write the output: No space left on device\n",
    )
    assert shell("ROCSOLID explain CFG001 | head -1")[1] == ""
    assert shell("ROCSOLID explain CFG001 >/dev/null", PYTHONIOENCODING="ascii", LC_ALL="C") == (0, "")
    (tmp_path / "gone").mkdir()
    code, err = shell("rmdir ../gone; ROCSOLID lint", cwd=tmp_path / "gone")
    assert (code, err) == (3, "rocsolid: error: the current folder no longer exists; change to another one\n")


def test_d14_without_a_home() -> None:
    """No HOME, and no entry in the password file."""
    code = """
import os, pwd
def unknown(number): raise KeyError(f"getpwuid(): uid not found: {number}")
pwd.getpwuid = unknown
os.environ.pop("HOME", None)
from rocsolid.cli import main
raise SystemExit(main())
"""
    for argv in (["probe", "--fail-on", "never"], ["doctor"], ["ledger"], ["settings", "--here"]):
        ran = subprocess.run(
            [sys.executable, "-c", code, *argv],
            env=clean_environ(),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode in (0, 2), (argv, ran.stderr)
        assert "unexpected" not in ran.stderr, (argv, ran.stderr)


def test_d9_odd_entries_do_not_stop_a_lint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tree").mkdir()
    tree = tmp_path / "tree"
    (tree / "good.py").write_text("import torch\n")
    (tree / "loop.py").symlink_to("loop.py")
    (tree / "folder").symlink_to("folder")
    (tmp_path / "outside.py").write_text("import torch\n")
    (tree / "link.py").symlink_to(tmp_path / "outside.py")
    (tree / "up").symlink_to(tmp_path)
    Path(os.fsdecode(os.fsencode(tree) + b"/bad\xff.py")).write_text("x = 1\n")
    (tree / "a\nb.py").write_text("import torch\n")
    os.mkfifo(tree / "pipe.py")
    assert run(["lint", str(tree), "--jobs", "1", "--output", "json", "--no-cache"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["files"] == 1
    reasons = {Path(s["file"]).name: s["reason"] for s in found["skipped"]}
    assert reasons["link.py"] == reasons["up"] == "a link out of the folder"
    assert reasons["bad\\xff.py"] == "its name is not UTF-8"
    assert reasons["a\\nb.py"] == "its name contains control characters"


def test_d10_a_linted_project_writes_nowhere_else(tmp_path: Path) -> None:
    for number, plant in enumerate(("db", "folder", "ignore")):
        tree, outside = tmp_path / f"tree{number}", tmp_path / f"outside{number}"
        tree.mkdir()
        outside.mkdir()
        (tree / "pyproject.toml").write_text("")
        (tree / "a.py").write_text("x = 1\n")
        if plant == "folder":
            (tree / ".rocsolid").symlink_to(outside)
        else:
            (tree / ".rocsolid").mkdir()
            name = "lint.db" if plant == "db" else ".gitignore"
            (tree / ".rocsolid" / name).symlink_to(outside / "created")
        assert run(["lint", str(tree), "--jobs", "1"]) == 0
        assert list(outside.iterdir()) == []


def test_d10_a_cache_in_the_linted_project_is_not_used(tmp_path: Path) -> None:
    """Its trigger would run for ever with the first row that is stored."""
    tree = tmp_path / "tree"
    (tree / ".rocsolid").mkdir(parents=True)
    (tree / "pyproject.toml").write_text("")
    (tree / "a.py").write_text("x = 1\n")
    with closing(sqlite3.connect(tree / ".rocsolid/lint.db")) as database:
        database.execute("CREATE TABLE facts (key TEXT PRIMARY KEY, summary TEXT, symbols TEXT) WITHOUT ROWID")
        database.execute(TRIGGER.replace("TABLE_NAME", "facts"))
        database.commit()
    before = (tree / ".rocsolid/lint.db").read_bytes()
    ran = subprocess.run(
        [sys.executable, "-m", "rocsolid", "lint", str(tree)],
        env=clean_environ(XDG_CACHE_HOME=str(tmp_path / "cache")), capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert (tree / ".rocsolid/lint.db").read_bytes() == before


def test_d6_a_fix_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    """The limit on the size of a file stands in for a full disk."""
    from rocsolid.cli.output import write_file

    file = tmp_path / "a.py"
    file.write_text("before")
    file.chmod(0o640)
    program = f"""
import pathlib, resource, signal
from rocsolid.cli.output import write_file
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try: write_file(pathlib.Path({str(file)!r}), bytes(100_000))
except OSError: print("refused")
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], env=clean_environ(), capture_output=True, text=True, check=True
    )
    assert ran.stdout == "refused\n"
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]
    write_file(file, b"after")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("after", 0o640)


def test_d6_lint_fix_on_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("libcst")
    file = tmp_path / "a.py"
    text = "import torch\ntorch._inductor.config.group_fusion = True\n" + "x = 1\n" * 1000
    file.write_text(text)
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "
        "from rocsolid.cli import main; raise SystemExit(main())"
    )
    ran = subprocess.run(
        [sys.executable, "-B", "-c", program, "lint", "--fix", "--no-cache", str(file)],
        env=clean_environ(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, file.read_text()) == (3, text), ran.stderr
    assert ran.stderr == f"rocsolid: error: cannot write {file}: File too large; it was not changed\n"
    assert list(tmp_path.iterdir()) == [file]


def test_d8_file_names_inject_no_command() -> None:
    from dataclasses import replace

    from tests.report.test_reports import a_record as probe_record

    from rocsolid.report.machine_readable import github

    finding = replace(probe_record().findings[0], location="a\n::set-output name=pwn::yes\n,x.py:3")
    text = github([finding])
    assert text.count("\n") == 1
    assert text.startswith("::error file=a%0A%3A%3Aset-output name=pwn%3A%3Ayes%0A%2Cx.py,line=3,title=")


def test_d16_escapes_in_names_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.json").write_text(a_record(profile="\x1b]0;owned\x07\x1b[2J\u202e"))
    assert run(["report", str(tmp_path / "r.json")]) == 0
    assert run(["report", "\x1b[31mx"]) == 2
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "\u202e" not in shown.out
    assert "\\x1b[31mx" in shown.err


@pytest.mark.torch
@pytest.mark.parametrize("where", ["file", "build", "call"])
def test_d15_a_workload_that_exits_has_failed(tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    def exits(place: str) -> str:
        return "raise SystemExit(0)" if where == place else "pass"

    (tmp_path / "w.py").write_text(
        f"import torch\n{exits('file')}\ndef call(x):\n    {exits('call')}\n    return x\n"
        f"def build():\n    {exits('build')}\n    return call, (torch.ones(1),), {{}}\n"
    )
    for command in (["breaks", "--quick"], ["compiles", "--fail-on", "info"], ["optimize"]):
        assert run([*command, f"{tmp_path / 'w.py'}:build"]) in (2, 3), command
        assert "called sys.exit(0)" in capsys.readouterr().err, command


def test_d13_a_packed_table_is_read_in_pieces(tmp_path: Path) -> None:
    pytest.importorskip("msgspec")
    line = b'"KERNEL","Agent 1",1,1,1,"k",1,1,1,2\n'
    head = b'"Kind","Agent_Id","Queue_Id","Thread_Id","Dispatch_Id","Kernel_Name","Kernel_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    with gzip.open(tmp_path / "x_kernel_trace.csv.gz", "wb", compresslevel=9) as packed:
        packed.write(head)
        for _ in range(5):
            packed.write(line * 60_000)  # 11 MB
    program = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (3 << 30,) * 2); from rocsolid.cli import main; raise SystemExit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", program, "trace", str(tmp_path / "x_kernel_trace.csv.gz")],
        env=clean_environ(OPENBLAS_NUM_THREADS="1"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-500:]
    assert "times its size; reading stopped" in ran.stdout


def test_linted_source_is_not_imported_by_workers(tmp_path: Path) -> None:
    """Enough source for worker processes, which `python -m` would give the current folder as the first place to import from."""
    tree, mark, script = tmp_path / "tree", tmp_path / "mark", tmp_path / "rocsolid-script"
    (tree / "rocsolid").mkdir(parents=True)
    for name in ("rocsolid/__init__", "json", "typing", "dataclasses", "contextlib", "runpy", "importlib", "warnings"):
        (tree / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write(__name__)\n")
    for number in range(3):
        (tree / f"large{number}.py").write_text("x = 1  # some text to make the file large\n" * 5_000)
    script.write_text("import sys\nfrom rocsolid.cli import main\nsys.exit(main())\n")  # as pip installs it
    ran = subprocess.run(
        [sys.executable, script, "lint", "--jobs", "2", "--no-cache"],
        cwd=tree, env=clean_environ(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert not mark.exists(), mark.read_text()


def test_a_variable_whose_name_is_not_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Found by the fuzzer: half of a surrogate pair cannot be encoded."""
    file = tmp_path / "odd.py"
    file.write_text('import os, torch\nos.environ["TORCHINDUCTOR_\\ud800"] = "1"\n')
    assert run(["lint", str(file), "--confidence", "anywhere", "--no-cache"]) in (0, 1)
    assert "TORCHINDUCTOR_" in capsys.readouterr().out


def test_an_image_is_no_option_of_the_container_tool(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ledger", "scan", "--", "-v/:/host"]) == 2
    assert "'-v/:/host' is not the name of an image" in capsys.readouterr().err


def test_only_processes_that_run_a_workload_import_from_the_current_folder() -> None:
    """`python -m` does; `module_command` does not. `gpu_cases.py` runs the tests of a checkout."""
    users = {f.name for f in (SOURCE / "rocsolid").rglob("*.py") if re.search(r'sys\.executable, "-m"', f.read_text())}
    assert users == {"compile_in_child.py", "gpu_cases.py", "profile.py", "runner.py"}
