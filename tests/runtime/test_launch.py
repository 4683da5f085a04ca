"""`rocsolid run` and `rocsolid env` with an unmodified program and its child processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support import Ran, clean_environ, run_cli, run_python, scaled_cpu_seconds, with_path

from rocsolid.probe.packages import torch_folder

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def rocm_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed torch as symbolic links, and with the version file of a ROCm build."""
    installed = torch_folder()
    assert installed
    folder = tmp_path_factory.mktemp("rocm")
    subprocess.run(["cp", "-rs", str(installed), str(folder / "torch")], check=True)
    for libraries in ("torch.libs", "nvidia"):  # torch's libraries look for them next to torch
        if (installed.parent / libraries).exists():
            (folder / libraries).symlink_to(installed.parent / libraries)
    version = folder / "torch/version.py"
    text = version.read_text()
    version.unlink()
    version.write_text(text + "\nhip = '7.1.0'\nrocm = '7.1.1'\n")
    return folder


def run(folder: Path, *args: str, **variables: str) -> Ran:
    return run_cli("run", *args, env=with_path(folder, **variables))


UNSAFE = """
import sys
import torch
from concurrent.futures import ThreadPoolExecutor

def f(x):
    return torch.nn.functional.gelu(x @ x) + 1

def own_backend(graph, inputs):
    return graph.forward

functions = [
    torch.compile(f, mode="max-autotune"),
    torch.compile(f, options={"max_autotune": True, "epilogue_fusion": False}),
    torch.compile(f, backend=own_backend),
]
x = torch.arange(16.0).reshape(4, 4) / 16
with ThreadPoolExecutor(2) as pool:
    print([round(float(job.result().sum()), 4) for job in [pool.submit(function, x) for function in functions]], sys.argv[1:])
"""


def test_a_program_runs_unmodified_with_the_same_results(tmp_path: Path, rocm_torch: Path) -> None:
    """The program uses options, max-autotune, its own backend and a thread pool."""
    (tmp_path / "program.py").write_text(UNSAFE)
    program = str(tmp_path / "program.py")
    unprotected = run_python(program, "a", "--b", env=with_path(rocm_torch))
    guarded = run(rocm_torch, program, "a", "--b", TORCHINDUCTOR_MAX_AUTOTUNE="1", HIP_LAUNCH_BLOCKING="1")

    assert unprotected.code == guarded.code == 0, guarded.err
    assert guarded.out == unprotected.out
    assert "['a', '--b']" in guarded.out
    lines = guarded.err.splitlines()
    assert any(line.endswith("changes by profile safe:") for line in lines)
    assert any("TORCHINDUCTOR_MAX_AUTOTUNE=1 removed from the environment" in line for line in lines)
    assert any("HIP_LAUNCH_BLOCKING=1 removed" in line for line in lines)
    assert "inductor.max_autotune: True refused, False used (requested by mode='max-autotune')" in guarded.err
    assert "inductor.max_autotune: True refused, False used (requested by options['max_autotune'])" in guarded.err
    assert any(f"{program}:13   torch.compile(f, mode=" in line for line in lines)
    assert any(f"{program}:14   torch.compile(f, options=" in line for line in lines)


CHILDREN = """
import multiprocessing, subprocess, sys, torch
CODE = "import torch, torch._inductor.config as c; c.max_autotune = True; print('child', c.max_autotune, flush=True)"

def work():
    import torch._inductor.config as c
    c.max_autotune = True
    print("spawned", c.max_autotune, flush=True)

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
    loader = torch.utils.data.DataLoader(list(range(2)), num_workers=1, collate_fn=lambda b: __import__("os").environ.get("ROCSOLID_RUN_PACKAGE_FOLDER", ""))
    print("loader", bool(next(iter(loader))), flush=True)
    subprocess.run([sys.executable, "-c", CODE])
    subprocess.run([sys.executable, "-I", "-c", "print('isolated', flush=True)"])
"""


def test_every_python_child_process_is_protected_or_reported(tmp_path: Path, rocm_torch: Path) -> None:
    (tmp_path / "program.py").write_text(CHILDREN)
    report = tmp_path / "run.jsonl"
    ran = run(rocm_torch, "--report", str(report), str(tmp_path / "program.py"))

    assert ran.out.splitlines() == ["spawned False", "loader True", "child False", "isolated"], ran.err
    assert "a Python process started with -I runs without rocsolid's protection" in ran.err
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert len({line["pid"] for line in lines}) >= 3
    assert {c["setting"] for line in lines for c in line["changes"]} == {"inductor.max_autotune"}


def test_torchrun_workers_are_protected(tmp_path: Path, rocm_torch: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch._inductor.config as c\nc.max_autotune = True\nprint('rank', c.max_autotune)\n"
    )
    ran = run(
        rocm_torch,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--master-port=0",
        "--standalone",
        str(tmp_path / "program.py"),
    )

    assert ran.out.count("rank False") == 2, ran.err


def test_modules_code_exit_codes_and_arguments_are_passed_through(tmp_path: Path, rocm_torch: Path) -> None:
    (tmp_path / "thing.py").write_text("import sys\nprint(__name__, sys.argv[1:])\nsys.exit(9)\n")
    module = run_cli("run", "-m", "thing", "--profile", "x", env=with_path(tmp_path))
    code = run(rocm_torch, "-c", "import sys; print(sys.argv); sys.exit(3)", "-v")

    assert (module.code, module.out) == (9, "__main__ ['--profile', 'x']\n")
    assert (code.code, code.out) == (3, "['-c', '-v']\n")


def test_tracebacks_are_unchanged(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import torch\ndef f():\n    raise ValueError('mine')\nf()\n")
    unprotected = run_python(str(tmp_path / "broken.py"))
    guarded = run_cli("run", str(tmp_path / "broken.py"))

    assert (guarded.code, guarded.err) == (unprotected.code, unprotected.err)


def test_signals_reach_the_program(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "rocsolid", "run", str(tmp_path / "waits.py")],
        env=clean_environ(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)

    assert process.wait(10) == -signal.SIGTERM
    process.stdout.close()


def test_the_users_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos.environ['MINE'] = __name__\n")
    ran = run_cli(
        "run",
        "-c",
        "import os, sitecustomize; print(os.environ['MINE'], sitecustomize.__file__)",
        env=with_path(tmp_path),
    )

    assert ran.out.split() == ["sitecustomize", str(tmp_path / "sitecustomize.py")]


def test_on_the_cpu_nothing_is_changed() -> None:
    code = "import os, torch, torch._inductor.config as c; c.max_autotune = True; print(c.max_autotune, os.environ['CUDA_LAUNCH_BLOCKING'])"
    ran = run_cli("run", "-c", code, env=clean_environ(CUDA_LAUNCH_BLOCKING="1", TORCHINDUCTOR_MAX_AUTOTUNE="1"))

    assert ran.out == "True 1\n"
    assert ran.err == ""


def test_a_deadline_holds_for_compiles_of_the_program() -> None:
    code = (
        "import torch, time\n"
        "def slow(graph, inputs): time.sleep(60)\n"
        "print(torch.compile(lambda x: x * 2, backend=slow)(torch.ones(1)).tolist())\n"
    )
    started = time.monotonic()
    ran = run_cli("run", "--deadline", "2", "-c", code)

    assert ran.out == "[2.0]\n", ran.err
    assert "compile cancelled after its deadline of 2 s" in ran.err
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "rocsolid"),
        (
            ["--deadline", "soon", "x.py"],
            "rocsolid: error: run: --deadline: 'soon' is not a time; write 90s, 10m or 2h",
        ),
        (["--profile", "saef", "x.py"], "rocsolid: error: unknown profile 'saef'; did you mean 'safe'?"),
        (["--plan", "/no/where", "x.py"], "rocsolid: error: cannot read /no/where: No such file or directory"),
        (["--nonsense", "x.py"], "rocsolid: error: run: unknown option --nonsense"),
        (["-m"], "rocsolid: error: run: no program given"),
        (
            ["--report", "train.py"],
            "rocsolid: error: run: no program given: --report took 'train.py' as its value; add a script",
        ),
        (["--profile"], "rocsolid: error: run: --profile needs a value"),
    ],
)
def test_bad_usage_is_one_line(args: list[str], message: str) -> None:
    ran = run_cli("run", *args)

    assert ran.code == 2
    assert ran.err.startswith(message)


def test_a_plan_and_an_override_are_used(tmp_path: Path, rocm_torch: Path) -> None:
    saved = run_python(
        "-c",
        f"import torch, rocsolid as rs; rs.resolve('safe').save({str(tmp_path / 'plan.toml')!r})",
        env=with_path(rocm_torch),
    )
    assert saved.code == 0, saved.err
    code = "import torch, torch._inductor.config as c; print(c.max_autotune, c.max_fusion_size)"
    ran = run(rocm_torch, "--plan", str(tmp_path / "plan.toml"), "-c", code, ROCSOLID_INDUCTOR_MAX_FUSION_SIZE="12")
    on_cpu = run_cli("run", "--plan", str(tmp_path / "plan.toml"), "-c", code)

    assert ran.out == "False 12\n", ran.err
    assert "this process cannot be protected: PlanError: the plan was made for ROCm" in on_cpu.err
    assert (on_cpu.code, on_cpu.out) == (3, "")


def test_start_up_takes_at_most_60_ms_more() -> None:
    """The wall time is compared with that of `python -c pass`."""

    def seconds(*command: str) -> float:
        def once() -> float:
            started = time.perf_counter()
            subprocess.run([sys.executable, *command], env=clean_environ(), check=True)
            return time.perf_counter() - started

        return scaled_cpu_seconds(once, repeats=15)

    assert seconds("-m", "rocsolid", "run", "-c", "pass") - seconds("-c", "pass") <= 0.060


def test_env_prints_the_variables_for_every_shell(rocm_torch: Path) -> None:
    bash = run_cli("env", "--profile", "debug", env=with_path(rocm_torch))
    fish = run_cli("env", "--profile", "debug", "--shell", "fish", env=with_path(rocm_torch))
    docker = run_cli("env", "--profile", "debug", "--shell", "docker", env=with_path(rocm_torch))
    data = run_cli("env", "--profile", "debug", "--shell", "json", env=with_path(rocm_torch)).json()

    assert bash.out.startswith("# profile debug for torch ")
    assert "\nexport HIP_LAUNCH_BLOCKING=1\n" in bash.out
    assert "\nunset PYTORCH_ALLOC_CONF\n" in bash.out
    assert "\nset -gx HIP_LAUNCH_BLOCKING 1\n" in fish.out
    assert "\nENV HIP_LAUNCH_BLOCKING=1\n" in docker.out
    assert {"name", "value", "why", "evidence"} == set(data["variables"][0])
    script = bash.out + 'echo "${HIP_LAUNCH_BLOCKING}${PYTORCH_ALLOC_CONF-gone}"'
    completed = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PYTORCH_ALLOC_CONF": "x"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout == "1gone\n"
