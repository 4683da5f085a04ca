"""Mutate every kind of file and argument that rocsolid reads; report what ends in anything but a result or a sentence.

    python -m tests.hardening.fuzz --inputs 100000 --arguments 5000 --seed 1

An input fails if a reader raises anything but a RocsolidError, takes longer than 10 s, or needs more than 500 MB.
The failing input is kept, and named with its seed.
"""

import argparse
import contextlib
import gzip
import io
import json
import logging
import os
import random
import resource
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.report.records import make

from rocsolid.cli.app import COMMANDS, build_parser, run
from rocsolid.cli.records import RECORD_TYPES
from rocsolid.errors import RocsolidError
from rocsolid.model.codec import dumps, encode

MAX_S, MAX_GROWTH_KB = 10.0, 500_000
EXIT_CODES: Final = (0, 1, 2, 3, 124, 130)
_WORDS: Final = (
    b"", b"\0", b"\xff", b"\xed\xa0\x80", b"null", b"true", b"NaN", b"-1", b"0", b"1e999", b"9" * 40, b"9" * 5000, b"[" * 50,
    b"[" * 5000, b"]", b"{", b"}", b'"', b"'", b",", b":", b"\n", b"\r", b"\\u0000", b"\\ud800", b"<script>", b"\x1b[2J", b"%s%n",
    b"../../../etc/passwd", b"/dev/zero", b"a" * 300, b"\xe2\x80\xae", b"1_0", b"0x10", b'"""', b"inf", b"2026-01-01",
)  # fmt: skip
_VALUES: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 0.0, -0.5, 1e308, 2**63, 10**50, "", "\ud800", "\x1b[31m", "x" * 1000, [], [[]], {}, {"": None}, "\0", ["a"] * 3,
    float("nan"), float("inf"), -float("inf"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of file: valid examples, and what reads it."""

    name: str
    suffix: str
    seeds: Sequence[bytes]
    read: Callable[[Path, random.Random], object]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change a few places."""
    if rng.random() < 0.4 and data[:1] in (b"{", b"["):
        with contextlib.suppress(ValueError):
            return _mutate_json(json.loads(data), rng)
    text = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(7):
            case 0:
                text[at:at] = rng.choice(_WORDS)
            case 1:
                text[at : at + rng.randrange(1, 20)] = rng.choice(_WORDS)
            case 2:
                del text[at : at + rng.choice((1, 4, 50, 1000))]
            case 3 if text:
                text[at % len(text)] = rng.randrange(256)
            case 4 if text:
                text[at % len(text)] ^= 1 << rng.randrange(8)
            case 5:
                other = rng.randrange(len(text) + 1)
                text[at:at] = text[other : other + rng.choice((10, 200))]
            case 6:
                del text[at:]
    return bytes(text)


def _mutate_json(document: Any, rng: random.Random) -> bytes:
    places: list[tuple[Any, Any]] = []
    stack = [document]
    while stack:
        item = stack.pop()
        pairs = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        for key, value in pairs:
            places.append((item, key))
            stack.append(value)
    for _ in range(rng.choice((1, 1, 2, 5))):
        if places:
            holder, key = rng.choice(places)
            with contextlib.suppress(KeyError, IndexError):
                if rng.random() < 0.15:
                    del holder[key]
                else:
                    holder[key] = rng.choice(_VALUES)
    return json.dumps(document).encode()


def kinds(folder: Path) -> Iterator[Kind]:
    """Every kind of file."""
    records = [_record(schema, cls, variant) for schema, cls in RECORD_TYPES.items() for variant in range(4)]
    yield Kind(name="record", suffix=".json", seeds=records, read=_report)
    yield Kind(name="plan", suffix=".toml", seeds=[_plan()], read=_read_plan)
    yield Kind(name="project", suffix=".toml", seeds=[_PROJECT], read=_read_project)
    yield Kind(name="space", suffix=".toml", seeds=[_SPACE], read=_read_space)
    yield Kind(name="baseline", suffix=".json", seeds=[_BASELINE], read=_read_baseline)
    yield Kind(name="ledger", suffix=".db", seeds=[_ledger(folder)], read=_read_ledger)
    yield Kind(name="study", suffix=".db", seeds=[_study(folder)], read=_read_study)
    yield Kind(name="source", suffix=".py", seeds=[_SOURCE], read=_lint)
    traces = [*_kineto(), *_rocprof(folder)]
    yield Kind(name="trace", suffix=".json", seeds=traces, read=_read_trace)
    yield Kind(name="torch trace", suffix=".log", seeds=[_TORCH_TRACE], read=_read_torch_trace)


def _record(schema: str, cls: type, variant: int) -> bytes:
    made = encode(make(cls, lambda path: path.rpartition(".")[2], variant=variant, sparse=variant // 2))
    return dumps(schema, **made).encode()


def _report(file: Path, rng: random.Random) -> object:
    from rocsolid.cli.report import run as report

    output = rng.choice(("text", "text", "json", "html", "sarif", "github"))
    return report(argparse.Namespace(file=file, verbose=rng.random() < 0.5, output=output, out=None))


_PROJECT: Final = (
    b'[project]\nname = "x"\n[tool.rocsolid.lint]\nselect = ["SRC2"]\nignore = ["SRC213"]\nexclude = ["a*"]\n'
    b'confidence = "inside"\nfail-on = "never"\nbaseline = "b.json"\n[tool.rocsolid.lint.per-file-ignores]\n"x.py" = ["SRC201"]\n'
)
_SPACE: Final = (
    b'exclude = ["inductor.freezing"]\n[set]\nform = "compiled"\n[vary]\ninductor.freezing = [true, false]\n'
)
_BASELINE: Final = b'{"schema": "rocsolid/lint-baseline/1", "findings": [\n["a.py", "SRC201", "abc", 1],\n["b.py", "SRC202", "abd", 2]\n]}\n'
_SOURCE: Final = b"""import torch, os
os.environ["TORCHINDUCTOR_MAX_AUTOTUNE"] = "1"
@torch.compile(mode="max-autotune")
def f(x, y=(1, 2)):  # rocsolid: allow[host-sync-in-compiled-region] test
    if x.sum().item() > 0:
        return [g(x[i]) for i in range(3) if i in {1: 2}]
    return f"{x!r}"
def g(x):
    s = torch.cuda.Stream()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        return x.cpu().numpy()
"""
_TORCH_TRACE: Final = b"""V1117 10:00:00.000000 1 torch/_dynamo/convert_frame.py:1000] {"dynamo_start": {"stack": []}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}
V1117 10:00:00.100000 1 torch/_dynamo/utils.py:1] {"chromium_event": {}, "frame_id": 0, "frame_compile_id": 0, "has_payload": "abc"}
\t{"name": "dynamo", "ts": 1.0, "args": {}, "ph": "B", "cat": "dynamo_timed", "tid": 0, "pid": 0}
V1117 10:00:00.200000 1 torch/_dynamo/utils.py:1] {"compilation_metrics": {"compile_id": "0/0", "co_name": "f", "entire_frame_compile_time_s": 0.5}, "frame_id": 0, "frame_compile_id": 0}
"""


def _plan() -> bytes:
    from tests.support import make_env

    from rocsolid.catalog.profiles import resolve
    from rocsolid.model.plan_toml import to_toml

    return to_toml(encode(resolve("fast", make_env()))).encode()


def _read_plan(file: Path, rng: random.Random) -> object:
    from rocsolid.catalog.plan_check import check_plan
    from rocsolid.model.plan import Plan
    from rocsolid.report.shell_variables import variables_text

    return variables_text(check_plan(Plan.load(file)), rng.choice(("bash", "fish", "docker", "json")))


def _read_project(file: Path, rng: random.Random) -> object:
    from rocsolid.lint.options import read_options
    from rocsolid.rules.source.capture import host_sync_in_captured_region

    return read_options(file).includes(host_sync_in_captured_region.RULE, rng.choice(("a.py", "x.py")))


def _read_space(file: Path, rng: random.Random) -> object:
    from rocsolid.tune.space import read_restrictions

    del rng
    return read_restrictions(file)


def _read_baseline(file: Path, rng: random.Random) -> object:
    from rocsolid.lint.baseline import read_baseline

    del rng
    return read_baseline(file)


def _ledger(folder: Path) -> bytes:
    from rocsolid.catalog.images import IMAGES
    from rocsolid.probe.ledger import Ledger

    file = folder / "seed-ledger.db"
    Ledger(file).add(list(IMAGES[:2]))
    return file.read_bytes()


def _read_ledger(file: Path, rng: random.Random) -> object:
    from rocsolid.probe.ledger import Ledger
    from rocsolid.report.probe_text import images_markdown, images_text
    from rocsolid.report.terminal import Terminal

    entries = Ledger(file).entries()
    return images_text(entries, Terminal()) if rng.random() < 0.5 else images_markdown(entries)


def _study(folder: Path) -> bytes:
    from rocsolid.model.study import TrialRecord
    from rocsolid.tune.store import open_store

    file = folder / "seed-study.db"
    store = open_store(file, "key", "work.py:f")
    store.close()
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode=DELETE")
        for number in (1, 2):
            record = json.dumps(encode(make(TrialRecord, lambda path: path, variant=number)))
            database.execute("INSERT INTO trials VALUES (1, ?, ?, 'o', ?)", (number, f"n{number}", record))
        database.commit()
    return file.read_bytes()


def _read_study(file: Path, rng: random.Random) -> object:
    from rocsolid.tune.store import read_studies

    del rng
    return read_studies(file)


def _lint(file: Path, rng: random.Random) -> object:
    from rocsolid.api.lint import run_lint
    from rocsolid.lint.options import Options

    options = Options(confidence=rng.choice(("inside", "anywhere")))
    return run_lint([file], options, root=file.parent, jobs=1, cache=False)


def _kineto() -> Iterator[bytes]:
    from tests.trace.data import LAYOUTS, call, copy, host, kernel

    events = [kernel("1.000", "2.000", 1), kernel("5.500", "1.250", 2), call("0.500", "0.200", 1), call("4", "0.3", 2)]
    events += [copy("8", "1", 3, 4096), host("cpu_op", "aten::mm", "0.1", "3")]
    for name in ("kineto", *[name for name in LAYOUTS if name != "kineto"][:2]):
        text = LAYOUTS[name](events).encode()
        yield from (text, gzip.compress(text, mtime=0))


def _rocprof(folder: Path) -> Iterator[bytes]:
    from tests.trace.test_rocprof import COMMON, DIRECT

    file = folder / "seed-rocpd.db"
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.executescript(COMMON + DIRECT)
    yield file.read_bytes()
    yield (
        b'"Kind","Agent_Id","Queue_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp","Grid_Size_X"\n'
        b'"KERNEL_DISPATCH","Agent 1",1,"k",1,100,200,64\n"KERNEL_DISPATCH","Agent 1",1,"k2",2,300,450,64\n'
    )


def _read_trace(file: Path, rng: random.Random) -> object:
    from rocsolid.trace.analysis.analyze import analyze_trace
    from rocsolid.trace.read import read_trace

    del rng
    return analyze_trace(file, read_trace(file, single_process=True))


def _read_torch_trace(file: Path, rng: random.Random) -> object:
    from rocsolid.observe.torch_trace_files import read_trace

    del rng
    return read_trace(file)


def fuzz_inputs(count: int, seed: int, folder: Path, only: str = "") -> list[str]:
    """Read mutated files; return what failed."""
    failures: list[str] = []
    all_kinds = [kind for kind in kinds(folder) if only in kind.name]
    slowest, peak_kb = 0.0, 0
    for number in range(count):
        if number % 10_000 == 0 and number:
            sys.stderr.write(f"{number:,} inputs: {len(failures)} failed\n")
        kind = all_kinds[number % len(all_kinds)]
        rng = random.Random(f"{seed} {number}")  # noqa: S311
        data = mutate(rng.choice(kind.seeds), rng)
        file = folder / f"input{kind.suffix}"
        file.write_bytes(data)
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started, failure = time.process_time(), ""
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                kind.read(file, rng)
        except RocsolidError as refused:
            if not str(refused).strip():
                failure = "an empty message"
        except BaseException:  # noqa: BLE001 - that is what is looked for
            failure = traceback.format_exc()
        took = time.process_time() - started
        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
        slowest, peak_kb = max(slowest, took), max(peak_kb, grown_kb)
        if took > MAX_S or grown_kb > MAX_GROWTH_KB:
            failure += f"took {took:.1f} s and {grown_kb / 1000:.0f} MB"
        if failure:
            kept = folder / f"failure-{kind.name.replace(' ', '-')}-{number}{kind.suffix}"
            kept.write_bytes(data)
            failures.append(f"{kept}\n{failure}")
    sys.stderr.write(
        f"{count:,} inputs of {len(all_kinds)} kinds, seed {seed}: {len(failures)} failed; "
        f"slowest {slowest:.2f} s of CPU, largest growth {peak_kb / 1000:.0f} MB\n"
    )
    return failures


# Not started: they run programs, servers or minutes of work. Their arguments are parsed, and refused for a missing file.
# The others start programs that take minutes.
_HARMLESS: Final = tuple(
    name for name in COMMANDS if name not in ("run", "doctor", "profile", "dryrun", "optimize", "ab", "tune", "prove")
)


def fuzz_arguments(count: int, seed: int, folder: Path) -> list[str]:
    """Run the command line with random arguments; return what failed."""
    failures: list[str] = []
    words = [
        "",
        "-",
        "--",
        "x",
        "-1",
        "0",
        "nan",
        "1e9",
        "9" * 50,
        "\ud800",
        "\x1b[2J",
        "a\nb",
        "%s",
        "'",
        '"',
        "*",
        "x" * 300,
    ]
    words += [
        "/dev/null",
        "/nowhere/x.json",
        ".",
        "..",
        "x:1",
        "work.py:build",
        "text",
        "json",
        "html",
        "never",
        "=",
        "--x=y",
        "CFG001",
    ]
    options = {name: _options(name) for name in COMMANDS}
    project = folder / "project"  # so that `..` is a folder of ours, and not all temporary files of the machine
    project.mkdir(exist_ok=True)
    os.chdir(project)
    slowest = 0.0
    for number in range(count):
        rng = random.Random(f"arguments {seed} {number}")  # noqa: S311
        name = rng.choice(list(COMMANDS)) if rng.random() < 0.97 else rng.choice(words)
        argv = [name]
        more = options.get(name) or ["--x"]
        argv += [rng.choice(more if rng.random() < 0.5 else words) for _ in range(rng.randrange(5))]
        if name not in _HARMLESS:
            argv = (
                [*argv, rng.choice(("--no-such-option", "--help"))]
                if name != "run"
                else ["run", "--no-such-option", *argv[1:]]
            )
        argv = [word for word in argv if word not in ("--live", "--active", "--import", "scan")]
        output, failure = io.StringIO(), ""
        started = time.process_time()
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                code = run(argv)
            if code not in EXIT_CODES:
                failure = f"exit code {code}"
            elif "Traceback" in output.getvalue() or "this is a bug" in output.getvalue():
                failure = output.getvalue()
        except BaseException:  # noqa: BLE001 - that is what is looked for
            failure = traceback.format_exc()
        took = time.process_time() - started
        slowest = max(slowest, took)
        if failure or took > MAX_S:
            failures.append(f"{argv!r}\n{failure or f'took {took:.1f} s'}")
    sys.stderr.write(f"{count:,} argument lists, seed {seed}: {len(failures)} failed; slowest {slowest:.2f} s of CPU\n")
    return failures


def _options(command: str) -> list[str]:
    parser = build_parser(command)
    (subparsers,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [text for action in subparsers.choices[command]._actions for text in action.option_strings] + [
        "list",
        "show",
        "export",
    ]


def main() -> int:
    """Run both, and print what failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--arguments", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    os.environ["ROCSOLID_DEBUG"] = "1"  # an unexpected error is raised instead of written to a crash report
    folder = (args.folder or Path(tempfile.mkdtemp(prefix="rocsolid-fuzz-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["ROCSOLID_LEDGER"] = str(folder / "ledger.db")
    failures = fuzz_arguments(args.arguments, args.seed, folder)
    failures += fuzz_inputs(args.inputs, args.seed, folder, args.only)
    sys.stdout.write("\n\n".join(failures[:20]) + "\n" if failures else "")
    return int(bool(failures))


if __name__ == "__main__":
    raise SystemExit(main())
