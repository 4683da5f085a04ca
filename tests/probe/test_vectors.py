"""Where a setting's value comes from: each way of moving one, planted for real in a child interpreter."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import clean_environ, installed_torch, run_cli, run_python, with_path

from rocsolid.model.release import compare
from rocsolid.probe.packages import torch_folder

pytestmark = pytest.mark.torch

ASSIGN = "import torch._inductor.config as c\nc.max_autotune = True\n"


def probed(*args: str, env: dict[str, str]) -> dict[str, Any]:
    """The JSON of a probe in those surroundings."""
    ran = run_cli("probe", "--output", "json", "--fail-on", "never", *args, env=env)
    assert ran.code == 0, ran.err
    data: dict[str, Any] = ran.json()
    return data


def seen(data: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = data["environment"]["settings"][name]
    return found


def finding(data: dict[str, Any], subject: str) -> dict[str, Any]:
    (found,) = [f for f in data["findings"] if f["subject"] == subject]
    assert isinstance(found, dict)
    return found


def test_a_variable_that_moves_a_default() -> None:
    data = probed(env=clean_environ(TORCHINDUCTOR_MAX_AUTOTUNE="1"))
    setting = seen(data, "inductor.max_autotune")

    assert (setting["value"], setting["upstream"]) == (True, False)
    assert (setting["origin"], setting["by"]) == ("variable", "TORCHINDUCTOR_MAX_AUTOTUNE")
    assert finding(data, "inductor.max_autotune")["code"] == "CFG001"


def test_a_variable_that_forces() -> None:
    data = probed(env=clean_environ(TORCHINDUCTOR_FX_GRAPH_CACHE="0"))

    assert seen(data, "inductor.fx_graph_cache")["origin"] == "forced"
    assert finding(data, "inductor.fx_graph_cache")["code"] == "CFG002"


def test_an_entry_and_its_alias_are_one_finding() -> None:
    data = probed(env=clean_environ(TORCH_COMPILE_FORCE_DISABLE_CACHES="1"))
    codes = [f["subject"] for f in data["findings"] if f["code"] == "CFG002"]

    assert codes == ["inductor.force_disable_caches"]
    assert seen(data, "compiler.force_disable_caches")["origin"] == "forced"


def test_an_override_variable() -> None:
    given = {"TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS": ">=0:max_autotune=True,max_fusion_size=7"}
    data = probed(env=clean_environ(**given))

    assert seen(data, "inductor.max_autotune")["origin"] == "override"
    assert seen(data, "inductor.max_fusion_size")["value"] == 7
    assert finding(data, "inductor.max_autotune")["code"] == "CFG003"
    assert finding(data, "inductor.max_fusion_size")["severity"] == "warning"


def test_sitecustomize_is_named_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(ASSIGN)
    data = probed("--live", env=with_path(tmp_path))
    setting = seen(data, "inductor.max_autotune")

    assert (setting["value"], setting["origin"]) == (True, "startup")
    assert setting["by"] == f"{tmp_path}/sitecustomize.py:2"
    assert finding(data, "inductor.max_autotune")["code"] == "CFG004"
    assert any(hook["kind"] == "sitecustomize" for hook in data["environment"]["hooks"])


def test_the_static_route_lists_start_up_files_and_says_what_it_cannot_see(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("")
    data = probed(env=with_path(tmp_path))

    assert [h["place"] for h in data["environment"]["hooks"] if h["kind"] == "sitecustomize"] == [
        f"{tmp_path}/sitecustomize.py"
    ]
    assert any("--live" in gap for gap in data["environment"]["gaps"])


def test_a_pth_file_is_named_by_the_line_it_runs(tmp_path: Path) -> None:
    """In a virtual environment of its own, which borrows torch through the same file."""
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
    assert (setting["origin"], setting["by"]) == ("startup", f"{site}/planted.py:2")
    assert any(
        hook["kind"] == "pth" and hook["says"] == "import planted" for hook in ran.json()["environment"]["hooks"]
    )


def test_a_library_is_named_when_its_import_is_watched(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text("import torch._dynamo.config as c\nc.recompile_limit = 1024\n")
    data = probed("--live", "--import", "greedy", env=with_path(tmp_path))
    setting = seen(data, "dynamo.recompile_limit")

    assert (setting["value"], setting["upstream"], setting["origin"]) == (1024, 8, "library")
    assert setting["by"] == f"{tmp_path}/greedy.py:2 (import greedy)"
    assert finding(data, "dynamo.recompile_limit")["code"] == "CFG005"
    assert [
        f["code"] for f in data["findings"] if "recompile_limit" in f["subject"] or "cache_size" in f["subject"]
    ] == ["CFG005"]


def test_a_library_that_cannot_be_imported_is_a_gap_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('no')\n")
    data = probed("--live", "--import", "broken", env=with_path(tmp_path))

    assert "import broken failed: RuntimeError: no" in data["environment"]["gaps"]


EDIT = {
    "_inductor/config.py": ('max_autotune = os.environ.get("TORCHINDUCTOR_MAX_AUTOTUNE") == "1"', "max_autotune = True")
}


@pytest.mark.parametrize(
    ("record", "integrity"),
    [("stale", "changed"), ("none", "different"), ("honest", "recorded")],
    ids=["edited after installation", "record blanked", "a build of its own"],
)
def test_a_patched_config_file(shadow_torch: Callable[..., Path], record: str, integrity: str) -> None:
    folder = shadow_torch(edits=EDIT, record=record)
    data = probed(env=with_path(folder))
    setting = seen(data, "inductor.max_autotune")
    files = {f["owner"]: f["integrity"] for f in data["environment"]["torch"]["files"]}

    assert files["inductor"] == integrity
    assert files["dynamo"] == "released"
    assert (setting["value"], setting["upstream"], setting["origin"]) == (True, False, "patched")
    assert finding(data, "inductor.max_autotune")["cause"] == "CFG006:_inductor/config.py"
    assert finding(data, "_inductor/config.py")["severity"] == "warning"


def test_a_patched_config_file_in_a_torch_that_is_really_imported(tmp_path: Path) -> None:
    """A whole torch of links, one file of which is edited: what the live route sees agrees with the static one."""
    real = torch_folder()
    assert real
    subprocess.run(["cp", "-rs", str(real), str(tmp_path / "torch")], check=True)
    config = tmp_path / "torch/_inductor/config.py"
    text = config.read_text()
    config.unlink()
    config.write_text(text.replace(*EDIT["_inductor/config.py"]))
    for info in real.parent.glob("torch-*.dist-info"):
        subprocess.run(["cp", "-r", str(info), str(tmp_path)], check=True)

    data = probed("--live", env=with_path(tmp_path))

    assert seen(data, "inductor.max_autotune")["origin"] == "patched"
    assert data["environment"]["torch"]["folder"] == str(tmp_path / "torch")


def in_process(code: str, **variables: str) -> dict[str, Any]:
    """Run code in a child that probes itself and prints settings and findings."""
    script = textwrap.dedent(code) + textwrap.dedent(
        """
        import json
        from rocsolid.model.codec import encode
        def show(env):
            import rocsolid as rs
            print(json.dumps({"settings": encode(env.settings), "findings": encode(rs.check(env)), "route": env.route.value}))
        show(ENV())
        """
    )
    ran = run_python("-c", script, env=clean_environ(**variables))
    assert ran.code == 0, ran.err
    data: dict[str, Any] = ran.json()
    return data


@pytest.mark.skipif(compare(installed_torch(), "2.12") < 0, reason="assignments hold for the whole process before 2.12")
def test_an_assignment_in_this_process() -> None:
    data = in_process(
        """
        import rocsolid as rs
        import torch._inductor.config as c
        c.max_autotune = True
        ENV = rs.probe
        """
    )
    setting = data["settings"]["inductor.max_autotune"]

    assert data["route"] == "process"
    assert (setting["value"], setting["origin"], setting["elsewhere"]) == (True, "assigned", False)
    codes = {f["code"] for f in data["findings"] if f["subject"] == "inductor.max_autotune"}
    assert codes == {"CFG008", "CFG009"}  # it was assigned, and new threads will not see it


def test_a_default_overwritten_in_this_process() -> None:
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
def test_another_threads_value_is_seen_from_this_one() -> None:
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

    assert (setting["value"], setting["origin"], setting["elsewhere"]) == (False, "elsewhere", True)
    assert {f["code"] for f in data["findings"] if f["subject"] == "inductor.max_autotune"} == {"CFG009"}


@pytest.mark.skipif(compare(installed_torch(), "2.12") < 0, reason="assignments hold for the whole process before 2.12")
def test_what_a_guide_cures_here_and_not_in_a_worker_thread() -> None:
    """The container sets the variable, the program assigns False: this thread is fixed, every new one is not."""
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

    assert (setting["value"], setting["elsewhere"], setting["where"]) == (False, True, "every new thread")
    assert {f["code"] for f in data["findings"] if f["subject"] == "inductor.max_autotune"} == {"CFG009"}


def test_nothing_is_imported_for_a_process_that_has_not_imported_it() -> None:
    script = "import sys, rocsolid as rs; env = rs.probe(); print(env.route.value, 'torch' in sys.modules)"

    assert run_python("-c", script).out.split() == ["static", "False"]


@pytest.mark.parametrize("platform", ["cpu", "cuda", "rocm"])
def test_an_untouched_torch_raises_no_alarm_about_settings(shadow_torch: Callable[..., Path], platform: str) -> None:
    """The doctor that cries wolf is not read."""
    folder = shadow_torch(hip="7.1.0" if platform == "rocm" else "", cuda="13.0" if platform == "cuda" else "")
    data = probed(env=with_path(folder))
    alarms = [
        f["message"] for f in data["findings"] if f["code"].startswith(("CFG", "ENV")) and f["severity"] != "info"
    ]

    assert data["environment"]["platform"] == platform
    assert alarms == []
    assert [n for n, s in data["environment"]["settings"].items() if s["origin"] != "upstream"] == []


@pytest.mark.parametrize(("hip", "severity"), [("7.2.53211", "critical"), ("", "warning")], ids=["ROCm", "elsewhere"])
def test_the_environment_of_the_public_rocm_images(shadow_torch: Callable[..., Path], hip: str, severity: str) -> None:
    """Both variables of the public Dockerfiles are found, named, graded by platform, and fixed."""
    variables = {"TORCHINDUCTOR_MAX_AUTOTUNE": "1", "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE": "1"}
    data = probed(env=with_path(shadow_torch(hip=hip), **variables))

    for setting, variable in (
        ("inductor.max_autotune", "TORCHINDUCTOR_MAX_AUTOTUNE"),
        ("inductor.max_autotune_pointwise", "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE"),
    ):
        found = finding(data, setting)
        assert found["severity"] == severity
        assert found["message"].startswith(f"Environment variable {variable} sets `{setting}` to True")
        assert found["fix"].startswith(f"unset {variable}")
        assert found["fix_commands"]["unset"] == [variable]
