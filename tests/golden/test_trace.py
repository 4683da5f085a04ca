"""Golden messages of `rocsolid trace`, `compare` and `profile`.

Findings are left out with `--allow`; their text belongs to the rules.
"""

import gzip
import importlib.util
import re
import sqlite3
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from tests.support import check_golden
from tests.trace.data import LAYOUTS, Event, call, copy, host, kernel

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.cli.app import run
from rocsolid.model.trace import CompileLogMatch
from rocsolid.report.trace_text import compile_log_notes

TRACE_RULES = (
    "launch-bound",
    "sync-inside-step",
    "unfused-elementwise",
    "gemm-bound",
    "data-loader-wait",
    "exposed-communication",
    "pageable-copies",
    "trace-incomplete",
    "gaps-inside-replay",
    "uneven-step-times",
    "many-tiny-copies",
    "rank-straggler",
    "implausible-trace",
)
Cli = Callable[..., str]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in an empty folder; returns the command, its output and its exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROCSOLID_NATIVE", "0")
    monkeypatch.setenv("COLUMNS", "100")

    def call_cli(*args: str) -> str:
        code = run(list(args))
        printed = capsys.readouterr()
        command = " ".join(args)
        for rule in TRACE_RULES:
            command = command.replace(f" --allow {rule}", "")
        out = printed.out.rstrip()
        if command.startswith("trace") and code == 0 and "--help" not in args:
            out = out.rpartition("\n\n")[0]  # without the number of findings
        parts = [f"$ rocsolid {command}", printed.err.rstrip(), out, f"exit code {code}"]
        return "\n".join(filter(None, parts))

    return call_cli


def without_findings(*args: str) -> list[str]:
    return [*args, *(word for rule in TRACE_RULES for word in ("--allow", rule))]


def train_trace() -> str:
    """Two steps: a GEMM, a graph replay, a sync, a copy, a collective, compiled regions and Python functions."""
    events: list[Event] = [
        host("user_annotation", "ProfilerStep#1", "0.000", "500.000"),
        host("user_annotation", "ProfilerStep#2", "500.000", "480.000"),
        host("python_function", "train.py(10): step", "1.000", "900.000"),
        host("cpu_op", "Torch-Compiled Region: 0/0", "2.000", "90.000", external=50),
        host("cpu_op", "Torch-Compiled Region: 1/0", "100.000", "90.000", external=51),
        host("cpu_op", "aten::mm", "3.000", "20.000", external=1),
        call("5.000", "4.000", 1),
        kernel("12.000", "40.000", 1, name="Cijk_Alik_Bljk_BBS_BH", args={"grid": [64, 1, 1], "block": [256, 1, 1]}),
        call("60.000", "3.000", 2, "hipGraphLaunch"),
        kernel("70.000", "12.000", 2, name="triton_poi_fused_add_0"),
        kernel("84.000", "9.000", 2, name="attn_fwd"),
        call("90.000", "20.000", 9, "hipStreamSynchronize"),
        call("130.000", "4.000", 3),
        kernel("140.000", "2.000", 3, name="triton_poi_fused_mul_1"),
        call("150.000", "5.000", 4, "hipMemcpyAsync"),
        copy("160.000", "10.000", 4, 1_000_000),
        kernel("165.000", "30.000", 6, name="ncclDevKernel_Generic_1(x)", args={"stream": 3}),
        {**kernel("200.000", "1.000", 7, name="Memset (Device)"), "cat": "gpu_memset"},
        {
            "ph": "i",
            "name": "[memory]",
            "ts": "41.5",
            "pid": 1,
            "tid": 1,
            "args": {"Bytes": 512, "Total Allocated": 4_000_000, "Device Id": 0, "Device Type": 1},
        },
    ]
    return LAYOUTS["kineto"](events)


def test_trace_text(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(train_trace())

    check_golden("trace/torch-profiler", cli(*without_findings("trace", "trace.json", "--stacks")))


def test_trace_of_a_capture(cli: Cli, tmp_path: Path) -> None:
    recorded = [call(f"{100 + 20 * n}.000", "2.000", 100 + n) for n in range(3)]
    events = [
        call("5.000", "2.000", 1),
        kernel("10.000", "10.000", 1),
        call("90.000", "1.000", 90, "hipStreamBeginCapture"),
        *recorded,
        call("200.000", "1.000", 91, "hipStreamEndCapture"),
    ]
    (tmp_path / "capture.json").write_text(LAYOUTS["kineto"](events))

    check_golden("trace/capture", cli(*without_findings("trace", "capture.json")))


def test_trace_without_gpu_work(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "cpu.json").write_text(LAYOUTS["kineto"]([host("cpu_op", "aten::mm", "1.000", "1.000")]))

    check_golden("trace/no-gpu-work", cli("trace", "cpu.json") + "\n\n" + cli("compare", "cpu.json", "cpu.json"))


KERNELS = (
    '"Kind","Agent_Id","Queue_Id","Stream_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    '"KERNEL_DISPATCH","Agent 4",1,2,"attn_fwd",1,1000,1400\n'
    '"KERNEL_DISPATCH","Agent 4",1,2,"rms_norm",2,1500,1600\n'
)
COUNTERS = '"Dispatch_Id","Agent_Id","Kernel_Name","Counter_Name","Counter_Value"\n'
AGENTS = (
    '"Node_Id","Agent_Type","Cu_Count","Max_Waves_Per_Cu","Name","Product_Name"\n4,"GPU",{units},32,"gfx942",{name}\n'
)


def write_run(folder: Path, *, units: int = 304, name: str = '"AMD Instinct MI300X"') -> None:
    counted = {"attn_fwd": {"OccupancyPercent": 35, "FETCH_SIZE": 200, "WRITE_SIZE": 100}, "rms_norm": {"SQ_WAVES": 64}}
    rows = [
        f'{n},4,"{kernel_name}","{counter}",{value}\n'
        for n, (kernel_name, counters) in enumerate(counted.items(), 1)
        for counter, value in counters.items()
    ]
    (folder / "7_kernel_trace.csv").write_text(KERNELS)
    (folder / "7_counter_collection.csv").write_text(COUNTERS + "".join(rows))
    (folder / "7_agent_info.csv").write_text(AGENTS.format(units=units, name=name))


def test_trace_text_of_rocprofv3(cli: Cli, tmp_path: Path) -> None:
    write_run(tmp_path)

    check_golden("trace/rocprofv3", cli(*without_findings("trace", "7_kernel_trace.csv")))


def test_unknown_hardware(cli: Cli, tmp_path: Path) -> None:
    """A GPU that is not in the catalogue, a partition, no name of the GPU, and no times."""

    def utilization() -> str:
        text = cli(*without_findings("trace", "7_counter_collection.csv"))
        return text[text.index("GPU utilization") : text.index("\n\nhardware counters")]

    write_run(tmp_path, name='"AMD Radeon Graphics"')
    texts = [utilization()]
    write_run(tmp_path, units=38)
    texts.append(utilization())
    (tmp_path / "7_agent_info.csv").unlink()
    texts.append(utilization())
    (tmp_path / "7_kernel_trace.csv").unlink()
    texts.append(utilization())

    check_golden("trace/unknown-hardware", "\n\n".join(texts))


def test_ranks(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    (tmp_path / "ranks").mkdir()
    for rank, compute in enumerate(("80.000", "99.000")):
        events = [
            kernel("10.000", compute, 1),
            kernel("200.000", "50.000", 2, name="ncclDevKernel_Generic_1(x)", args={"stream": 3}),
        ]
        text = LAYOUTS["kineto"](events).replace(
            '"schemaVersion": 1', f'"schemaVersion": 1, "distributedInfo": {{"rank": {rank}}}'
        )
        (tmp_path / f"ranks/{rank}.json").write_text(text)
    (tmp_path / "ranks/notes.json").write_text("{}")
    text = cli(*without_findings("trace", "ranks", "--ranks"))

    check_golden("trace/ranks", text[: text.index("ranks/0.json ·")] + text[text.index("\nranks\n") + 1 :])


def test_compare(cli: Cli, tmp_path: Path) -> None:
    def write(file: str, *kernels: tuple[str, str, str]) -> None:
        events: list[Event] = []
        for n, (name, operator, length) in enumerate(kernels):
            start = 1000 + n * 100
            events += [
                host("cpu_op", operator, f"{start}.000", "5.000", external=n),
                call(f"{start + 1}.000", "1.000", n),
                kernel(f"{start + 10}.000", length, n, name=name, args={"External id": n}),
            ]
        (tmp_path / file).write_text(LAYOUTS["kineto"](events))

    same = ("triton_poi_fused_0", "aten::relu", "5.000")
    old = ("cos_kernel", "aten::cos", "1.000")
    write("before.json", ("Cijk_x", "aten::mm", "10.000"), same, old, ("sin_kernel", "aten::sin", "9.000"))
    write("after.json", ("sgemm_x", "aten::mm", "8.000"), same, ("sin_kernel", "aten::sin", "3.000"))

    check_golden("trace/compare", cli("compare", "before.json", "after.json"))


def test_input_errors(cli: Cli, tmp_path: Path) -> None:
    """Files that are not traces, and options that exclude each other."""
    contents = {
        "empty.json": b"",
        "page.json": b"<!doctype html>",
        "archive.json": b"PK\x03\x04",
        "trace.json.zst": b"\x28\xb5\x2f\xfd123",
        "notes.txt": b"hello, world",
        "config.json": b'{"a": 1}',
        "other.csv": b'"Start_Timestamp","End_Timestamp","A"\n1,2,3\n',
        "broken.db": b"SQLite format 3\0" + b"garbage" * 1000,
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("create table t (a)")
    database.close()
    (tmp_path / "folder").mkdir()
    texts = [cli("trace", name) for name in (*contents, "other.db", "missing.json", "folder")]
    texts += [
        cli("trace", "folder", "--ranks"),
        cli("trace", "missing", "--ranks"),
        cli("trace", "folder", "--ranks", "--stacks"),
        cli("trace", "config.json", "notes.txt", "--ranks"),
    ]

    check_golden("trace/input-errors", "\n\n".join(texts))


def test_damaged_files(cli: Cli, tmp_path: Path) -> None:
    """The messages about damage on stderr and in the report."""
    text = LAYOUTS["kineto"]([kernel(f"{n}.000", "0.500", n) for n in range(1, 31)])
    packed = gzip.compress("".join(f"{text}{n * n}" for n in range(2000)).encode(), mtime=0)
    middle = len(packed) // 2
    far = LAYOUTS["kineto"]([kernel(f"{n}.000", "0.500", n) for n in (1, 2, 300_000_000_000)])
    contents = {
        "truncated.json": text[:-300].encode(),
        "broken-event.json": text.replace('"ts": 7.000', '"ts": "7.000', 1).encode(),
        "truncated.json.gz": gzip.compress(text.encode(), mtime=0)[:-20],
        "damaged.json.gz": packed[:middle] + bytes(64) + packed[middle + 64 :],
        "clock.json": far.encode(),
        "long-event.json": text[:-300].encode() + b"x" * (18 << 20),
        "9_results.json": b'{"rocprofiler-sdk-tool": [{"buffer_records": {"kernel_dispatch": [{"start_timestamp": 1',
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    texts = []
    for name in contents:
        printed = cli(*without_findings("trace", name))
        shown = [line for line in printed.splitlines() if line.startswith(("$", "rocsolid:", "damaged:", name))]
        texts.append("\n".join([*shown, printed.splitlines()[-1]]))

    check_golden(
        "trace/damaged-files",
        "\n\n".join(texts),
        replace={
            r"after [\d,]+ decompressed bytes": "after N decompressed bytes",
            r"\(Error[^)\n]*(\)|(?=\n))": "(message of the gzip library)",  # the line may be wrapped before the ")"
        },
    )


def test_missing_packages(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trace.json").write_text(train_trace())
    find = importlib.util.find_spec

    def without_msgspec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "msgspec" else find(name, package)

    for package in ("pyarrow", "ray"):
        monkeypatch.setitem(__import__("sys").modules, package, None)
    texts = [
        cli("trace", "trace.json", "--parquet", "out"),
        cli("trace", "trace.json", "--engine", "ray"),
    ]
    monkeypatch.setattr(importlib.util, "find_spec", without_msgspec)
    texts += [cli("trace", "trace.json"), cli("profile", "w.py:build")]
    monkeypatch.setattr(importlib.util, "find_spec", find)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "w.py").write_text("def build():\n    return (lambda: None), (), {}\n")
    texts.append(cli("profile", "w.py:build", "--rocprof"))

    check_golden("trace/missing-packages", "\n\n".join(texts))


@pytest.mark.torch
def test_profile(cli: Cli, tmp_path: Path) -> None:
    """Usage errors, and the line about the overhead of the profiler."""
    (tmp_path / "w.py").write_text(
        "def build():\n    return (lambda: None), (), {}\n\ndef broken():\n    raise RuntimeError('no such weights')\n"
    )
    texts = [
        cli("profile"),
        cli("profile", "w.py:build", "--steps", "0"),
        cli("profile", "w.py:broken"),
        cli("profile", "w.py:build", "--steps", "1", "--output", "json", "--out", "report.json"),
    ]

    progress = r"\d of \d, \d+ s.*\n"  # shown where a step takes over ten seconds, on a busy machine
    replaced = {progress: "", r"[\d.]+ ms": "N ms", r"\([+-]\d+%\)": "(+N%)"}
    check_golden("trace/profile", "\n\n".join(texts), replace=replaced)


@pytest.mark.parametrize("command", ["trace", "profile", "compare"])
def test_help(cli: Cli, command: str) -> None:
    """Without the options that all commands share."""
    shared = {r"(?s)  --(allow|output|out|fail-on) .*?(?=\n  -|\n\n)": "", r"(?s)usage:.*?\n\n": "", r"\n\n+": "\n\n"}
    check_golden(f"trace/help-{command}", cli(command, "--help"), replace=shared)


def test_notes_about_a_compile_log() -> None:
    matches = [
        CompileLogMatch(
            source="logs", torch="2.13", matched_regions=0, unmatched_regions=("Torch-Compiled Region: 7/0",)
        ),
        CompileLogMatch(
            source="logs", torch="2.13", matched_regions=2, unmatched_regions=("Torch-Compiled Region: 7/0",)
        ),
        CompileLogMatch(source="logs", torch="2.13", matched_regions=0, other_breaks=3),
    ]
    text = "\n".join(note for match in matches for note in compile_log_notes(match))

    assert re.search("another run", text)
    check_golden("trace/compile-log", text)
