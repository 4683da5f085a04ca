"""A plan file is data: it runs no code, by whichever route its values are used (D1), and protection fails closed (D5, D11)."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import SOURCE, clean_environ, installed_torch, run_cli, run_python

from rocsolid.catalog.overrides import OTHER_VARIABLES, PREFIX, variable_of
from rocsolid.catalog.plan_check import check_plan
from rocsolid.catalog.registry import all_settings
from rocsolid.errors import PlanError
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Channel, Value
from rocsolid.runtime.launch.command import launch_environment

WORK = "import torch\ndef build():\n    return torch.nn.Linear(4, 4).eval(), (torch.ones(2, 4),), {}\n"


def a_plan(setting: str, value: str, channel: str, *, why: str = "x", profile: str = "fast") -> str:
    import json

    return (
        f'schema = "rocsolid/plan/1"\nprofile = {json.dumps(profile)}\nplatform = "cpu"\ntorch = "{installed_torch()}"\n'
        f"[[decisions]]\nid = {json.dumps(setting)}\nvalue = {value}\nwhy = {json.dumps(why)}\n"
        f'channel = "{channel}"\nprofile = "fast"\n'
    )


@pytest.mark.torch
@pytest.mark.parametrize(
    ("setting", "value", "channel", "command"),
    [
        ("process.A=1; touch MARK; B", '"x"', "process", ["env"]),
        ("process.CXX", '"./evil"', "process", ["run", "-c", "import torch"]),
        ("process.LD_PRELOAD", '"./evil"', "process", ["ab", "work.py:build", "--a", "form=eager", "--b", "p.toml"]),
        ("inductor.cpp.cxx", '"./evil"', "option", ["optimize", "work.py:build"]),
        ("process.TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS", '"0:cpp.cxx=./evil"', "process", ["run", "-c", "1"]),
        ("process.TRITON_CACHE_DIR", '"evil"', "process", ["tune", "work.py:build", "--trials", "1"]),
    ],
)
def test_d1_a_plan_cannot_name_programs(
    tmp_path: Path, setting: str, value: str, channel: str, command: list[str]
) -> None:
    (tmp_path / "p.toml").write_text(a_plan(setting, value, channel))
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "evil").write_text("#!/bin/sh\ntouch MARK\n")
    (tmp_path / "evil").chmod(0o755)
    option = {"ab": [], "tune": ["--from", "p.toml"]}.get(command[0], ["--plan", "p.toml"])
    ran = subprocess.run(
        [sys.executable, "-m", "rocsolid", command[0], *option, *command[1:]],
        cwd=tmp_path,
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2, ran.stderr
    assert f"p.toml: {setting!r} = '{value[1:-1]}' is refused: " in ran.stderr
    assert not (tmp_path / "MARK").exists()


def test_d1_comments_of_env_cannot_break_out(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = f"x\ntouch {mark}\r\ntouch {mark}\u2028touch {mark}"
    (tmp_path / "p.toml").write_text(a_plan("process.OMP_NUM_THREADS", '"4"', "process", why=text, profile=text))
    command = ("env", "--plan", str(tmp_path / "p.toml"), "--ignore-platform")  # torch may be a build for CUDA or ROCm
    for shell in ("bash", "fish", "docker"):
        ran = run_cli(*command, "--shell", shell)
        assert ran.code == 0, ran.err
        assert [line[:6] for line in ran.out.splitlines() if not line.startswith("#")] in (
            ["export"],
            ["set -g"],
            ["ENV OM"],
        )
    bash = run_cli(*command).out
    subprocess.run(["sh", "-c", f'{bash}\n[ "$OMP_NUM_THREADS" = 4 ]'], check=True)
    assert not mark.exists()


def decided(setting: str, value: Value, channel: Channel = Channel.PROCESS) -> Plan:
    decision = Decision(id=setting, value=value, channel=channel, why="", profile="fast")
    return Plan(profile="fast", platform=Platform.CPU, torch="", decisions=(decision,))


@pytest.mark.parametrize(
    ("setting", "value", "channel", "why"),
    [
        ("process.PATH", "/tmp", Channel.PROCESS, "not a setting of the catalogue"),  # noqa: S108
        ("process.PYTHONSTARTUP", "x", Channel.PROCESS, "not a setting of the catalogue"),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", "1", Channel.PROCESS, "not a setting of the catalogue"),
        ("inductor.max_autotune", 1, Channel.OPTION, "must be of type bool, not int"),
        ("inductor.max_autotune", True, Channel.PROCESS, "its channel is option, not process"),
        ("dynamo.recompile_limit", 10**30, Channel.SCOPE, "must be between"),
        ("process.OMP_NUM_THREADS", "1 $(x)", Channel.PROCESS, "only letters, digits"),
        ("process.TORCH_LOGS", "evil.module", Channel.PROCESS, "names files or programs"),  # torch would import `evil`
        ("process.PYTORCH_TUNABLEOP_FILENAME", "/tmp/x", Channel.PROCESS, "names files or programs"),  # noqa: S108
    ],
)
def test_d1_settings_and_values_are_checked(setting: str, value: Value, channel: Channel, why: str) -> None:
    with pytest.raises(PlanError, match=re.escape(why)):
        check_plan(decided(setting, value, channel))


def test_every_value_of_the_catalogue_is_accepted() -> None:
    for setting in all_settings():
        for value in (*setting.candidates, *(r.value for r in setting.recommendations)):
            check_plan(decided(setting.id, value, setting.channel))


def test_settings_that_name_files_are_marked() -> None:
    """A new setting whose name looks like a path must be marked, or it could be set by a plan."""
    named = [s.id for s in all_settings() if re.search(r"DIR$|PATH|FILE|LIBRARY|CONFIGS|BACKENDS$|cxx", s.name)]
    assert named
    assert all(
        s.names_file for s in all_settings() if s.id in named and s.value_type is str and s.owner.value == "process"
    )


@pytest.mark.torch
def test_d1_a_plan_is_shown_before_it_is_used(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(a_plan("process.OMP_NUM_THREADS", '"4"', "process"))
    ran = run_cli("run", "--plan", str(file), "-c", "print(1)")
    assert ran.code == 0
    assert ran.err == f"rocsolid: the plan {file} sets:\n  process.OMP_NUM_THREADS = '4'\n"


def test_d5_rocsolid_knows_its_own_variables() -> None:
    """Every ROCSOLID_ name in the source is known, so that none of them is taken for a misspelt override."""
    names = set()
    for file in (SOURCE / "rocsolid").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names |= set(re.findall(r"^ROCSOLID_[A-Z_]*[A-Z]$", node.value))
    assert {"ROCSOLID_DEBUG", "ROCSOLID_NATIVE", "ROCSOLID_LEDGER"} <= names
    assert names <= OTHER_VARIABLES | {variable_of(s) for s in all_settings()} | {PREFIX}


@pytest.mark.torch
@pytest.mark.parametrize("name", ["ROCSOLID_NATIVE", "ROCSOLID_DEBUG"])
def test_d5_our_own_variables_do_not_switch_protection_off(name: str) -> None:
    ran = run_cli("run", "-c", "import torch; print('ran')", env=clean_environ(**{name: "0"}))
    assert (ran.code, ran.out, ran.err) == (0, "ran\n", "")
    assert run_cli("env", env=clean_environ(**{name: "1"})).code == 0


@pytest.mark.torch
def test_d5_without_protection_the_program_stops(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(a_plan("process.OMP_NUM_THREADS", '"4"', "process"))
    program = (
        f"import os; os.remove({str(file)!r})\n"
        "for _ in range(2):\n  try: import torch; print('unprotected')\n  except SystemExit as e: print('stopped', e)"
    )
    ran = run_cli("run", "--plan", str(file), "-c", program)
    assert ran.out == "stopped 3\nstopped 3\n"
    assert "stopped, because this process cannot be protected: InputError: cannot read" in ran.err
    file.write_text(a_plan("process.OMP_NUM_THREADS", '"4"', "process"))
    assert run_cli("run", "--plan", str(file), "-c", f"import os; os.remove({str(file)!r}); import torch").code == 3
    file.write_text(a_plan("process.OMP_NUM_THREADS", '"4"', "process"))
    ran = run_cli(
        "run", "--best-effort", "--plan", str(file), "-c", f"import os; os.remove({str(file)!r}); import torch"
    )
    assert ran.code == 0
    assert "runs without rocsolid's protection" in ran.err


def test_d11_isolated_children_are_reported_in_all_spellings() -> None:
    isolated = ["-I -c 1", "-X importtime -I -c 1", "-W ignore -E -c 1", "-Ximporttime -bS -c 1", "-uIc 1", "-qEc1"]
    isolated += ["--check-hash-based-pycs never -S -c 1"]
    harmless = ["-c 1 -I", "-X dev -c 1 -E", "-WI -c 1"]
    code = f"""
import os, subprocess, sys
for text in {[*isolated, *harmless]!r}:
    words = [sys.executable, *text.split()]
    subprocess.run(words, stderr=subprocess.DEVNULL)
os.waitpid(os.posix_spawn(words[0], [words[0], "-Ic", "1"], os.environ), 0)
"""
    reported = [line.partition(f"{sys.executable} ")[2] for line in run_cli("run", "-c", code).err.splitlines()]
    assert reported == [" ".join(text.split()[:3]) for text in [*isolated, "-Ic 1"]]


def test_d11_empty_entries_of_the_path_are_kept() -> None:
    path = launch_environment({"PYTHONPATH": f"a{os.pathsep}{os.pathsep}b"})["PYTHONPATH"]
    assert path.split(os.pathsep)[1:] == ["a", "", "b"]
    assert os.pathsep not in launch_environment({})["PYTHONPATH"]


@pytest.mark.torch
def test_d11_an_unwritable_report_is_a_sentence(tmp_path: Path) -> None:
    ran = run_cli("run", "--report", str(tmp_path), "-c", "import torch")
    assert ran.code == 2
    assert f"cannot write {tmp_path}: it is a folder" in ran.err
    folder = tmp_path / "gone"
    folder.mkdir()
    program = f"import torch, os; os.rmdir({str(folder)!r}); print('ran')"
    ran = run_cli("run", "--report", str(folder / "r.jsonl"), "-c", program)
    assert (ran.code, ran.out) == (0, "ran\n")
    assert ran.err == f"rocsolid: cannot write the report {folder / 'r.jsonl'}: No such file or directory\n"
    assert run_python("-c", "pass").code == 0
