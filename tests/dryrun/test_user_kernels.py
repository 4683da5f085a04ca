"""Triton kernels of a file: four planted mistakes are found with their lines, and a compiler crash affects one kernel."""

import json
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support import clean_environ, in_ci, run_cli, running, until

from rocsolid.api.dryrun import _chips, dryrun, dryrun_kernels
from rocsolid.dryrun.kernel_signature import parse_signature
from rocsolid.dryrun.request import KernelSignature
from rocsolid.errors import UnknownNameError, UsageError
from rocsolid.model.dryrun import DryRunRecord
from rocsolid.model.finding import Finding, Severity

needs_triton = pytest.mark.skipif(find_spec("triton") is None and not in_ci(), reason="Triton is not installed")
PLANTED = """
import triton
import triton.language as tl


@triton.jit
def greedy(a, b, c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, 4096, BK):
        left = tl.load(a + m[:, None] * 4096 + k[None, :] + start)
        acc += tl.dot(left, tl.load(b + (k[:, None] + start) * 4096 + n[None, :]))
    tl.store(c + m[:, None] * 4096 + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def narrow(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i) * 2)


@triton.jit
def ptx(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(y + i, tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [v], tl.float32, is_pure=True, pack=1))


@triton.jit
def spilling(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(x + i + BLOCK)
    tl.store(y + i, a * tl.sum(b, 0) + b * tl.sum(a, 0))
"""
SIGNATURES = (
    "greedy(a=*bf16, b=*bf16, c=*bf16, BM=128, BN=128, BK=128, num_warps=8, num_stages=3)",
    "narrow(x=*fp32, y=*fp32, BLOCK=32, num_warps=1)",
    "ptx(x=*fp32, y=*fp32, BLOCK=1024)",
    "spilling(x=*fp32, y=*fp32, BLOCK=32768, num_warps=2)",
)
# Where `@triton.jit` stands, by kernel.
LINES = {"greedy": 6, "narrow": 16, "ptx": 22, "spilling": 29}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("kernels") / "planted.py"
    file.write_text(PLANTED)
    return file


@pytest.fixture(scope="module")
def planted(file: Path) -> DryRunRecord:
    return dryrun_kernels(file, signatures=[parse_signature(s) for s in SIGNATURES], cache=file.parent / "cache")


def found(record: DryRunRecord, code: str, kernel: str) -> Finding:
    return next(f for f in record.findings if f.code == code and f.subject == f"gfx942 {kernel}")


@needs_triton
@pytest.mark.parametrize(
    ("code", "kernel", "severity"),
    [
        ("DRY002", "greedy", Severity.CRITICAL),
        ("DRY005", "narrow", Severity.WARNING),
        ("DRY007", "ptx", Severity.CRITICAL),
        ("DRY001", "ptx", Severity.CRITICAL),
        ("DRY003", "spilling", Severity.WARNING),
    ],
)
def test_finds_a_planted_mistake_with_its_line(
    planted: DryRunRecord, file: Path, code: str, kernel: str, severity: Severity
) -> None:
    finding = found(planted, code, kernel)

    assert finding.location == f"{file}:{LINES[kernel]}"
    assert finding.severity is severity


@needs_triton
def test_a_compiler_crash_affects_one_kernel(planted: DryRunRecord) -> None:
    """The kernels after the one with PTX are compiled."""
    run = planted.runs[0]

    assert [kernel.name for kernel in run.kernels] == ["greedy", "narrow", "ptx", "spilling"]
    error = run.kernel("ptx").configs[0].error
    assert error.startswith(("the compiler stopped: ", "CannotRunError: the compiler left the kernel empty"))
    assert run.kernel("ptx").foreign == ('inline assembly "ex2.approx.f32 $0, $1;"',)
    used = run.kernel("spilling").configs[0].resources
    assert used
    assert used.spills > 32
    assert used.scratch_bytes > 0
    dot = run.kernel("greedy").configs[0].resources
    assert dot
    assert dot.matrix_instructions > 0
    assert dot.lds_bytes > dot.lds_limit_bytes == 65536


@needs_triton
def test_without_signatures_every_kernel_is_compiled_as_its_source_suggests(file: Path) -> None:
    """In a folder; the kernel that cannot be called without more information is listed with the reason."""
    folder = file.parent / "project"
    folder.mkdir()
    (folder / "narrow.py").write_text(PLANTED.partition("@triton.jit\ndef ptx")[0])
    (folder / "recorded.py").write_text(
        "import torch\nimport triton\nimport triton.language as tl\n"
        "@triton.jit\ndef recorded(a, b, n, KIND: tl.constexpr):\n    tl.store(a + n, tl.load(b).to(KIND))\n"
        "def test(x=torch.int8):\n    t = torch.ones(8, dtype=x, device='cuda')\n"
        "    recorded[(1,)](t, t, 5, tl.float32, num_warps=2)\n    assert t.sum().item() == 1\n"
    )
    (folder / "broken.py").write_text("import triton\n@triton.jit\ndef other(x, OP):\n    OP.fetch(x.missing)\n")
    env = clean_environ(TRITON_INTERPRET="1")  # would compile nothing
    args = ["--only", "narrow", "--only", "other", "--output", "json", "--cache", str(file.parent / "cache")]
    ran = run_cli("dryrun", "--kernels", str(folder), "--tests", str(folder / "recorded.py"), *args, env=env)
    assert ran.code == 0, ran.err
    (run,) = json.loads(ran.out)["runs"]

    recorded, kernel = run["kernels"]
    assert recorded["signature"] == "recorded: recorded(a=*i8, b=*i8, n=i32, KIND=tl.float32, num_warps=2)"
    assert kernel["signature"] == "inferred: narrow(x=*bf16, y=*bf16, BLOCK=1024)"
    assert kernel["configs"][0]["resources"]["registers"] > 0
    (skipped,) = run["skipped"]
    assert (skipped["name"], skipped["location"].rpartition("/")[2]) == ("other", "broken.py:2")
    assert skipped["reason"].startswith("no signature found that Triton accepts: ")


TUNED = """
import triton
import triton.language as tl


@triton.autotune(
    [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((32, 1), (4096, 1), (1024, 4))], key=["n"]
)
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(x + i + n)
    tl.store(y + i, a * tl.sum(b, 0) + b * tl.sum(a, 0))
"""


@needs_triton
@pytest.mark.parametrize(
    ("option", "blocks"),
    [
        (["--configs", "all"], [32, 4096, 1024]),
        (["--configs", "best"], [1024]),  # the first uses half of the lanes, the second spills
        (["--configs", "first"], [32]),
    ],
)
def test_configs_selects_the_configurations_of_an_autotuned_kernel(
    file: Path, option: list[str], blocks: list[int]
) -> None:
    tuned = file.parent / "tuned.py"
    tuned.write_text(TUNED)
    ran = run_cli("dryrun", "--kernels", str(tuned), *option, "--output", "json", "--cache", str(file.parent / "cache"))
    assert ran.code == 0, ran.err
    (kernel,) = json.loads(ran.out)["runs"][0]["kernels"]

    assert [config["values"]["BLOCK"] for config in kernel["configs"]] == blocks
    assert all(config["resources"] for config in kernel["configs"])


@needs_triton
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (PLANTED, "narrow: unknown argument 'BLOK'; did you mean 'BLOCK'?"),
        ("x = 1", "broken.py: no @triton.jit kernel found"),
        ("import triton\nx = (", "broken.py:2: '(' was never closed"),
    ],
)
def test_a_wrong_file_prints_one_line(file: Path, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "broken.py").write_text(content)
    signature = "narrow(x=*fp32, y=*fp32, BLOK=32, BLOCK=32)"
    cache = ["--cache", str(file.parent / "cache")]
    ran = run_cli("dryrun", "--kernels", str(tmp_path / "broken.py"), "--kernel", signature, *cache)

    assert ran.code == 2
    assert message in ran.err
    assert ran.err.count("\n") == 1


@needs_triton
@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--kernels", "{file}", "--train"], 2, "dryrun --kernels has no option --train"),
        (["{file}:narrow", "--kernel", "narrow()"], 2, "drop --kernel"),
        (["{file}:narrow", "--max-choices", "-1"], 2, "max_choices must be at least 0, not -1"),
        (["--kernels", "{file}", "--deadline", "0"], 2, "argument --deadline: "),
        (["--kernels", "{file}", "--out", "{file}/x"], 2, "planted.py is a file"),
        (
            ["--kernels", "{file}", "--cache", "{file}"],
            3,
            "cannot write compiled kernels to {file}: {file} is not a folder",
        ),
        (["--kernels", "{file}", "--save", "{file}"], 3, "cannot write the files of --save to {file}: File exists"),
    ],
)
def test_wrong_usage_prints_one_line(file: Path, args: list[str], code: int, message: str) -> None:
    given = [arg.format(file=file) for arg in args]
    ran = run_cli("dryrun", *given, env=clean_environ(XDG_CACHE_HOME=str(file.parent)))

    assert ran.code == code, ran.err
    assert message.format(file=file) in ran.err
    assert ran.err.count("\n") == 1


@needs_triton
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_no_process_is_left_when_the_command_is_killed(tmp_path: Path, number: int, code: int) -> None:
    file = tmp_path / "sleepy.py"
    slow = f"import time\ndef slow():\n    open({str(tmp_path / 'loaded')!r}, 'w').close()\n    time.sleep(1000)\nLIMIT = slow()\n"
    file.write_text(f"import triton\n{slow}@triton.jit\ndef sleepy(x):\n    x + LIMIT\n")
    command = [sys.executable, "-m", "rocsolid", "dryrun", "--kernels", str(file), "--cache", str(tmp_path / "cache")]
    env = clean_environ(TMPDIR=str(tmp_path))  # identifies the child process by its files
    parent = subprocess.Popen(command, env=env, stderr=subprocess.PIPE)
    until((tmp_path / "loaded").exists)
    parent.send_signal(number)
    parent.communicate(timeout=30)

    assert parent.returncode == code
    until(lambda: not running(str(tmp_path)))


def test_duplicate_targets_are_compiled_once() -> None:
    assert [chip.arch for chip in _chips(["gfx942", "gfx950", "gfx942"])] == ["gfx942", "gfx950"]
    with pytest.raises(UsageError, match="name at least one chip: gfx90a, gfx942"):
        _chips([])


def test_parses_a_signature() -> None:
    assert parse_signature(SIGNATURES[1]) == KernelSignature(
        name="narrow", types={"x": "*fp32", "y": "*fp32"}, constants={"BLOCK": 32}, options={"num_warps": 1}
    )
    for text, message in (
        ("narrow", "write a kernel signature as name"),
        ("narrow(x)", "'x' is not argument=type"),
        ("narrow(x=*float)", "is neither a type such as"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_signature(text)


LIBRARIES = """
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice as both
from triton.language.extra.cuda import libdevice
from wrapped import libdevice as through_a_module


@triton.jit
def portable(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, both.tanh(tl.load(x + i)))


@triton.jit
def called(v):
    return libdevice.tanh(v)


@triton.jit
def imported(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, called(tl.load(x + i)))


@triton.jit
def wrapped(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, through_a_module.tanh(tl.load(x + i)))


def build():
    def function(x):
        y = torch.empty_like(x)
        imported[(1,)](x, y, BLOCK=1024)
        return y + 1

    return function, (torch.ones(1024),), {}
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "wrapped.py").write_text("from triton.language.extra.cuda import libdevice\n")
    (folder / "libraries.py").write_text(LIBRARIES)
    return folder / "libraries.py"


@pytest.mark.torch
@needs_triton
def test_a_kernel_uses_the_device_library_that_its_file_imports(libraries: Path) -> None:
    signatures = [
        parse_signature(f"{name}(x=*fp32, y=*fp32, BLOCK=1024)") for name in ("portable", "imported", "wrapped")
    ]
    record = dryrun_kernels(libraries, "gfx942", signatures=signatures, only=["portable", "imported", "wrapped"])
    kernels = {kernel.name: kernel for kernel in record.runs[0].kernels}

    assert not kernels["portable"].configs[0].error
    for name in ("imported", "wrapped"):
        assert "__nv_tanhf" in kernels[name].configs[0].error
        assert "device library extra.cuda.libdevice" in found(record, "DRY007", name).message


@pytest.mark.torch
@needs_triton
def test_a_kernel_in_a_graph_that_imports_the_other_library_is_reported(libraries: Path) -> None:
    record = dryrun(f"{libraries}:build", "gfx942")

    assert not record.runs[0].kernels[0].configs[0].error  # Inductor's generated file has a libdevice of its own
    message = " ".join(f.message for f in record.findings if f.code == "DRY007")
    assert "extra.cuda.libdevice (replaced by torch.compile; a launch outside it fails)" in message


def test_two_workloads_are_an_error() -> None:
    ran = run_cli("dryrun", "a.py:b", "c.py:d")

    assert ran.code == 2
    assert "unrecognized arguments: c.py:d" in ran.err


def test_an_unknown_target_is_an_error() -> None:
    with pytest.raises(UnknownNameError, match="unknown target 'mi300x'"):
        dryrun_kernels("x.py", "mi300x")
