"""Every example runs unchanged, is short, and the CI files work."""

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT, clean_environ, run_python

EXAMPLES = ROOT / "examples"
# What each is given, and a line that it must print.
RUN = {
    "capture_a_denoiser": ((), "2 graphs, 5 replays"),
    "protect_a_script": ((), "after the deadline: [3.0, 3.0]"),
    "train_a_step": ((), "1 graph, 59 replays"),
    "tune_and_ship": (("60", "6", "eager"), "fastest: "),
    "wrap_a_vendor_op": ((), "rejected: example::writes_x writes to its argument 'x'"),
}
SERVED = "serve_with_fastapi"
COMFYUI = "comfyui_node"  # tests/programs/test_comfyui.py runs it in ComfyUI


def test_every_example_is_listed_and_short() -> None:
    files = sorted(file.stem for file in EXAMPLES.glob("*.py"))
    listed = (EXAMPLES / "README.md").read_text()

    assert files == sorted([*RUN, SERVED, COMFYUI])
    assert all(f"]({name}.py)" in listed for name in files)
    for file in (*EXAMPLES.glob("*.py"), *EXAMPLES.glob("ci/*")):
        assert len(file.read_text().splitlines()) < (150 if file.stem == COMFYUI else 120), file  # two nodes to copy


@pytest.mark.torch
@pytest.mark.parametrize("name", RUN)
def test_an_example_runs(name: str) -> None:
    args, says = RUN[name]
    env = clean_environ(OMP_NUM_THREADS="1")  # models this small only wait for other threads
    ran = run_python(str(EXAMPLES / f"{name}.py"), *args, env=env)

    assert ran.code == 0, ran.err
    assert says in ran.out


@pytest.mark.torch
def test_server_warms_up_freezes_serves_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("fastapi", reason="the server's example needs fastapi: pip install 'rocsolid[test]'")
    spec = importlib.util.spec_from_file_location(SERVED, EXAMPLES / f"{SERVED}.py")
    assert spec
    assert spec.loader
    server = importlib.util.module_from_spec(spec)
    sys.modules[SERVED] = server
    try:
        spec.loader.exec_module(server)
        asyncio.run(_visit(server.app))
    finally:
        del sys.modules[SERVED]

    assert ", frozen" in capsys.readouterr().out


async def _visit(app: Any) -> None:
    async with app.router.lifespan_context(app):
        for length in (3, 8, 7, 8, 33):
            code, vector = await _ask(app, "POST", "/embed", {"ids": [1] * length})
            assert (code, len(json.loads(vector))) == (200, 16)
        assert (await _ask(app, "POST", "/embed", {"ids": [1000]}))[0] == 422
        assert (await _ask(app, "GET", "/health"))[0] == 200
        metrics = (await _ask(app, "GET", "/metrics"))[1].decode()

    assert (
        'rocsolid_replays_total{function="embed"} 3\n' in metrics
    )  # the first padded call was compared with eager once more
    assert (
        'rocsolid_graphs{function="embed"} 3\n' in metrics
    )  # the fourth request was longer than any bucket, and nothing was captured for it


async def _ask(app: Any, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
    """One request, as a server hands it to the application."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(body).encode() if body else b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


GOOD = "import torch\n\n\n@torch.compile\ndef f(x):\n    return x * 2\n"
BAD = "import torch\n\n\n@torch.compile\ndef f(x):\n    return x * x.max().item()\n"


def project(folder: Path, source: str) -> dict[str, str]:
    """A project of one file under git, with `rocsolid` on its path; returns its environment."""
    (folder / "src").mkdir()
    (folder / "src/net.py").write_text(source)
    (folder / "bin").mkdir()
    command = folder / "bin/rocsolid"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rocsolid "$@"\n')
    command.chmod(0o755)
    env = clean_environ()
    return {**env, "PATH": f"{folder / 'bin'}:{env['PATH']}", "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(folder)}


def shell(command: str, folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-ec", command], cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("source", "code", "says"), [(GOOD, 0, "1 file changed"), (BAD, 1, "SRC123")])
def test_pre_commit_hook_stops_a_commit(tmp_path: Path, source: str, code: int, says: str) -> None:
    """What the example and our own hook declare is set as git's hook, and a commit is made for real."""
    yaml = pytest.importorskip("yaml")
    (hook,) = yaml.safe_load((EXAMPLES / "ci/pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    (ours,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {key: hook[key] for key in ("id", "entry", "types_or", "pass_filenames")} == {
        key: ours[key] for key in ("id", "entry", "types_or", "pass_filenames")
    }
    env = project(tmp_path, source)
    assert shell("git init -q . && git add src", tmp_path, env).returncode == 0
    git_hook = tmp_path / ".git/hooks/pre-commit"
    git_hook.write_text(f"#!/bin/sh\nexec {hook['entry']} {' '.join(hook['args'])}\n")
    git_hook.chmod(0o755)
    committed = shell("git -c user.name=me -c user.email=me@localhost commit -m first", tmp_path, env)

    assert committed.returncode == code, committed.stderr
    assert says in committed.stdout + committed.stderr


@pytest.mark.torch
def test_workflow_commands_run(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((EXAMPLES / "ci/github-actions.yml").read_text())
    steps = {step["name"]: step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "name" in step}
    assert set(workflow["jobs"]) == {"lint", "capture"}
    env = project(tmp_path, BAD)
    (tmp_path / "work.py").write_text(
        "import torch\n\ndef build():\n    return lambda x: x * x.max().item(), (torch.ones(2),), {}\n"
    )
    lint = shell(steps["Lint, with annotations"], tmp_path, env)
    breaks = shell(steps["Graph breaks"], tmp_path, env)

    assert (lint.returncode, breaks.returncode) == (1, 1), lint.stderr + breaks.stderr
    assert "::warning file=src/net.py,line=6" in lint.stdout
    assert "::warning file=work.py,line=4" in breaks.stdout


@pytest.mark.parametrize(
    ("inputs", "code", "says"),
    [
        ({}, 1, "::warning file=src/net.py,line=6"),
        ({"arguments": "src --all-files", "fail-on": "critical", "sarif": "out.sarif"}, 0, "::warning file=src/net.py"),
        ({"command": "probe", "fail-on": "never"}, 0, ""),
        ({"command": "lint; touch hacked"}, 2, "::error::rocsolid: command must be lint or probe"),
        ({"arguments": "src; touch hacked"}, 2, ""),
        ({"arguments": "$(touch hacked)"}, 2, ""),
    ],
)
def test_github_action(tmp_path: Path, inputs: dict[str, str], code: int, says: str) -> None:
    """The action's step runs in bash as on GitHub, with its inputs as variables."""
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    values = {name: inputs.get(name, declared["default"]) for name, declared in action["inputs"].items()}
    install, check = action["runs"]["steps"]
    assert "${{" not in install["run"] + check["run"]
    variables = {name: values[text.strip("${} ").removeprefix("inputs.")] for name, text in check["env"].items()}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", check["run"]]
    env = {**project(tmp_path, BAD), **variables}
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert (ran.returncode, says in ran.stdout) == (code, True), ran.stdout + ran.stderr
    assert not list(tmp_path.rglob("hacked"))
    assert (tmp_path / "out.sarif").exists() == bool(values["sarif"])
