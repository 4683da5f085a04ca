"""The origin of a setting's value: each way to change one, tried in a child interpreter."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import clean_environ, installed_torch, needs_torch, run_cli, run_python, with_path

from rocsolid.model.release import compare
from rocsolid.probe.packages import torch_folder

pytestmark = pytest.mark.torch

ASSIGN = "import torch._inductor.config as c\nc.max_autotune = True\n"


def run_probe(*args: str, env: dict[str, str]) -> dict[str, Any]:
    """The JSON of a probe in that environment."""
    ran = run_cli("probe", "--output", "json", "--fail-on", "never", *args, env=env)
    assert ran.code == 0, ran.err
    data: dict[str, Any] = ran.json()
    return data


def setting_in(data: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = data["environment"]["settings"][name]
    return found


def finding(data: dict[str, Any], subject: str) -> dict[str, Any]:
    (found,) = [f for f in data["findings"] if f["subject"] == subject]
    assert isinstance(found, dict)
    return found


def test_variable_that_changes_a_default() -> None:
    data = run_probe(env=clean_environ(TORCHINDUCTOR_MAX_AUTOTUNE="1"))
    setting = setting_in(data, "inductor.max_autotune")

    assert (setting["value"], setting["default"]) == (True, False)
    assert (setting["origin"], setting["set_by"]) == ("variable", "TORCHINDUCTOR_MAX_AUTOTUNE")
    assert finding(data, "inductor.max_autotune")["code"] == "CFG001"


def test_variable_that_forces_a_value() -> None:
    data = run_probe(env=clean_environ(TORCHINDUCTOR_FX_GRAPH_CACHE="0"))

    assert setting_in(data, "inductor.fx_graph_cache")["origin"] == "forced"
    assert finding(data, "inductor.fx_graph_cache")["code"] == "CFG002"


def test_setting_and_its_alias_give_one_finding() -> None:
    data = run_probe(env=clean_environ(TORCH_COMPILE_FORCE_DISABLE_CACHES="1"))
    codes = [f["subject"] for f in data["findings"] if f["code"] == "CFG002"]

    assert codes == ["inductor.force_disable_caches"]
    assert setting_in(data, "compiler.force_disable_caches")["origin"] == "forced"


def test_override_variable() -> None:
    needs_torch("2.11", "older ones do not read the variable")
    given = {"TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS": ">=0:max_autotune=True,max_fusion_size=7"}
    data = run_probe(env=clean_environ(**given))

    assert setting_in(data, "inductor.max_autotune")["origin"] == "override"
    assert setting_in(data, "inductor.max_fusion_size")["value"] == 7
    assert finding(data, "inductor.max_autotune")["code"] == "CFG003"
    assert finding(data, "inductor.max_fusion_size")["severity"] == "warning"


def test_sitecustomize_is_reported_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(ASSIGN)
    data = run_probe("--live", env=with_path(tmp_path))
    setting = setting_in(data, "inductor.max_autotune")

    assert (setting["value"], setting["origin"]) == (True, "startup")
    assert setting["set_by"] == f"{tmp_path}/sitecustomize.py:2"
    assert finding(data, "inductor.max_autotune")["code"] == "CFG004"
    assert any(hook["kind"] == "sitecustomize" for hook in data["environment"]["startup_hooks"])


def test_static_probe_lists_startup_files_and_what_it_cannot_see(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("")
    data = run_probe(env=with_path(tmp_path))

    assert [h["file"] for h in data["environment"]["startup_hooks"] if h["kind"] == "sitecustomize"] == [
        f"{tmp_path}/sitecustomize.py"
    ]
    assert any("--live" in text for text in data["environment"]["unknowns"])


def test_pth_file_is_reported_with_the_line_it_runs(tmp_path: Path) -> None:
    """In a new virtual environment, whose .pth file also adds the folder of torch."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    torch = torch_folder()
    assert torch
    (site / "planted.py").write_text(ASSIGN)
    (site / "planted.pth").write_text(f"{torch.parent}\nimport planted\n")

    ran = run_python("-m", "rocsolid", "probe", "--live", "--output", "json", "--fail-on", "never",
                     python=str(python), env=clean_environ())  # fmt: skip

    setting = ran.json()["environment"]["settings"]["inductor.max_autotune"]
    assert (setting["origin"], setting["set_by"]) == ("startup", f"{site}/planted.py:2")
    assert any(
        hook["kind"] == "pth" and hook["code"] == "import planted"
        for hook in ran.json()["environment"]["startup_hooks"]
    )


def test_import_option_finds_what_a_library_assigns(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text("import torch._dynamo.config as c\nc.recompile_limit = 1024\n")
    data = run_probe("--live", "--import", "greedy", env=with_path(tmp_path))
    setting = setting_in(data, "dynamo.recompile_limit")

    assert (setting["value"], setting["default"], setting["origin"]) == (1024, 8, "library")
    assert setting["set_by"] == f"{tmp_path}/greedy.py:2 (import greedy)"
    assert finding(data, "dynamo.recompile_limit")["code"] == "CFG005"
    assert [
        f["code"] for f in data["findings"] if "recompile_limit" in f["subject"] or "cache_size" in f["subject"]
    ] == ["CFG005"]


def test_library_that_cannot_be_imported_is_listed_as_unknown(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('no')\n")
    data = run_probe("--live", "--import", "broken", env=with_path(tmp_path))

    assert "import broken failed: RuntimeError: no" in data["environment"]["unknowns"]


EDIT = {
    "_inductor/config.py": ('max_autotune = os.environ.get("TORCHINDUCTOR_MAX_AUTOTUNE") == "1"', "max_autotune = True")
}


@pytest.mark.parametrize(
    ("record", "integrity"),
    [("stale", "differs-from-wheel"), ("none", "differs-from-release"), ("honest", "recorded")],
    ids=["edited after installation", "record blanked", "a build of its own"],
)
def test_edited_config_file(shadow_torch: Callable[..., Path], record: str, integrity: str) -> None:
    folder = shadow_torch(edits=EDIT, record=record)
    data = run_probe(env=with_path(folder))
    setting = setting_in(data, "inductor.max_autotune")
    files = {f["owner"]: f["integrity"] for f in data["environment"]["torch"]["files"]}

    assert files["inductor"] == integrity
    assert files["dynamo"] == "released"
    assert (setting["value"], setting["default"], setting["origin"]) == (True, False, "patched")
    assert finding(data, "inductor.max_autotune")["cause"] == "CFG006:_inductor/config.py"
    assert finding(data, "_inductor/config.py")["severity"] == "warning"


def test_live_probe_sees_an_edited_config_file(tmp_path: Path) -> None:
    """A torch made of symlinks with one edited file: the live probe reports the same as the static one."""
    real = torch_folder()
    assert real
    subprocess.run(["cp", "-rs", str(real), str(tmp_path / "torch")], check=True)
    config = tmp_path / "torch/_inductor/config.py"
    text = config.read_text()
    config.unlink()
    config.write_text(text.replace(*EDIT["_inductor/config.py"]))
    for info in real.parent.glob("torch-*.dist-info"):
        subprocess.run(["cp", "-r", str(info), str(tmp_path)], check=True)

    data = run_probe("--live", env=with_path(tmp_path))

    assert setting_in(data, "inductor.max_autotune")["origin"] == "patched"
    assert data["environment"]["torch"]["folder"] == str(tmp_path / "torch")


def in_process(code: str, **variables: str) -> dict[str, Any]:
    """Run code in a child process that probes itself and prints settings and findings."""
    script = textwrap.dedent(code) + textwrap.dedent(
        """
        import json
        from rocsolid.model.codec import encode
        def show(env):
            import rocsolid as rs
            print(json.dumps({"settings": encode(env.settings), "findings": encode(rs.check(env)), "probe_mode": env.probe_mode.value}))
        show(ENV())
        """
    )
    ran = run_python("-c", script, env=clean_environ(**variables))
    assert ran.code == 0, ran.err
    data: dict[str, Any] = ran.json()
    return data


@pytest.mark.skipif(compare(installed_torch(), "2.12") < 0, reason="assignments hold for the whole process before 2.12")
def test_assignment_in_this_process() -> None:
    data = in_process(
        """
        import rocsolid as rs
        import torch._inductor.config as c
        c.max_autotune = True
        ENV = rs.probe
        """
    )
    setting = data["settings"]["inductor.max_autotune"]

    assert data["probe_mode"] == "this-process"
    assert (setting["value"], setting["origin"], setting["other_thread_value"]) == (True, "assigned", False)
    codes = {f["code"] for f in data["findings"] if f["subject"] == "inductor.max_autotune"}
    assert codes == {"CFG008", "CFG009"}  # it was assigned, and new threads will not see it


def test_default_overwritten_in_this_process() -> None:
    data = in_process(
        """
        import rocsolid as rs
        import torch._inductor.config as c
        c._config["max_autotune"].default = True
        ENV = rs.probe
        """
    )

    assert data["settings"]["inductor.max_autotune"]["origin"] == "mutated"


@pytest.mark.skipif(compare(installed_torch(), "2.12") < 0, reason="assignments hold for the whole process before 2.12")
def test_value_of_another_thread_is_reported() -> None:
    data = in_process(
        """
        import threading
        import rocsolid as rs
        import torch._inductor.config as c
        ready, done = threading.Event(), threading.Event()
        def other():
            c.max_autotune = True
            ready.set()
            done.wait()
        threading.Thread(target=other, daemon=True).start()
        ready.wait()
        ENV = rs.probe
        """
    )
    setting = data["settings"]["inductor.max_autotune"]

    assert (setting["value"], setting["origin"], setting["other_thread_value"]) == (False, "other-thread", True)
    assert {f["code"] for f in data["findings"] if f["subject"] == "inductor.max_autotune"} == {"CFG009"}


@pytest.mark.skipif(compare(installed_torch(), "2.12") < 0, reason="assignments hold for the whole process before 2.12")
def test_assignment_does_not_reach_worker_threads() -> None:
    """The container sets the variable, the program assigns False: this thread is fixed, new threads are not."""
    data = in_process(
        """
        import rocsolid as rs
        import torch._inductor.config as c
        c.max_autotune = False
        ENV = rs.probe
        """,
        TORCHINDUCTOR_MAX_AUTOTUNE="1",
    )
    setting = data["settings"]["inductor.max_autotune"]

    assert (setting["value"], setting["other_thread_value"], setting["other_threads"]) == (
        False,
        True,
        "every new thread",
    )
    assert {f["code"] for f in data["findings"] if f["subject"] == "inductor.max_autotune"} == {"CFG009"}


def test_probe_does_not_import_torch() -> None:
    script = "import sys, rocsolid as rs; env = rs.probe(); print(env.probe_mode.value, 'torch' in sys.modules)"

    assert run_python("-c", script).out.split() == ["static", "False"]


@pytest.mark.parametrize("platform", ["cpu", "cuda", "rocm"])
def test_unchanged_torch_has_no_findings_about_settings(shadow_torch: Callable[..., Path], platform: str) -> None:
    """False alarms would make people ignore the findings."""
    folder = shadow_torch(hip="7.1.0" if platform == "rocm" else "", cuda="13.0" if platform == "cuda" else "")
    data = run_probe(env=with_path(folder))
    findings = [
        f["message"] for f in data["findings"] if f["code"].startswith(("CFG", "ENV")) and f["severity"] != "info"
    ]

    assert data["environment"]["platform"] == platform
    assert findings == []
    assert [n for n, s in data["environment"]["settings"].items() if s["origin"] != "default"] == []


@pytest.mark.parametrize(("hip", "severity"), [("7.2.53211", "critical"), ("", "warning")], ids=["ROCm", "elsewhere"])
def test_variables_of_the_public_rocm_images(shadow_torch: Callable[..., Path], hip: str, severity: str) -> None:
    """Both variables of the public Dockerfiles are found, with the severity of the platform and the fix."""
    variables = {"TORCHINDUCTOR_MAX_AUTOTUNE": "1", "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE": "1"}
    data = run_probe(env=with_path(shadow_torch(hip=hip), **variables))

    for setting, variable in (
        ("inductor.max_autotune", "TORCHINDUCTOR_MAX_AUTOTUNE"),
        ("inductor.max_autotune_pointwise", "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE"),
    ):
        found = finding(data, setting)
        assert found["severity"] == severity
        assert found["message"].startswith(f"Environment variable {variable} sets `{setting}` to True")
        assert found["fix"].startswith(f"unset {variable}")
        assert found["fix_commands"]["unset"] == [variable]
