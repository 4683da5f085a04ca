"""Where the time goes: profiler files in, answers and advice out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rocsolid.model.codec import decode, loads
from rocsolid.model.compile_log import CompileLog
from rocsolid.model.finding import Finding, worst_first
from rocsolid.model.trace import TRACE_SCHEMA, TraceDifference, TraceFile, TraceRecord
from rocsolid.model.trace_view import Flame, Timeline
from rocsolid.rules.trace_rules import check_traces

if TYPE_CHECKING:
    from rocsolid.trace.columns import Columns


def trace(*files: str | Path) -> TraceRecord:
    """Read profiler files and say where the device's time goes.

    Args:
        files: traces of torch's profiler (JSON, plain or gzip) or of rocprofv3 (JSON, CSV, .db).

    Example:
        >>> import rocsolid as rs, tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "t.json"
        >>> kernel = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 0, "ts": 1.5, "dur": 2.25}'
        >>> _ = file.write_text('{"traceEvents": [%s]}' % kernel)
        >>> rs.trace(file).files[0].devices[0].kernel_time_ns
        2250

    """
    return read_traces([Path(file) for file in files]).record


@dataclass(frozen=True, kw_only=True)
class Read:
    """The answers about some files, and the picture of the first where it was asked for."""

    record: TraceRecord
    timelines: Mapping[str, Timeline] = field(default_factory=dict)


def read_traces(
    files: Sequence[Path],
    *,
    picture: bool = False,
    stacks: bool = False,
    perfetto: Path | None = None,
    parquet: Path | None = None,
    torch_trace: Path | None = None,
) -> Read:
    """Read files one after another; a picture, Perfetto's and Parquet's files are made of the first.

    A file of rocprofv3 that holds counters and no work becomes part of the file that holds the work, where there is one.

    Args:
        files: the traces.
        picture: also make the timeline of the first, and the flame view where it holds Python functions.
        stacks: look for the lines of Python that launched the hottest kernels, in a second pass.
        perfetto: where to write a trace for Perfetto.
        parquet: the folder for Parquet files.
        torch_trace: what TORCH_TRACE wrote in the same run; compiled regions get their function and line from it.

    """
    from rocsolid.trace.read import need_extra

    need_extra()
    from rocsolid.trace.analysis import answer
    from rocsolid.trace.read import read_trace

    log = _compile_log(torch_trace) if torch_trace else None
    answered: list[TraceFile] = []
    pictures: dict[str, Timeline] = {}
    for number, file in enumerate(files):
        columns = read_trace(file)
        answers = answer(file, columns)
        drawn = picture and number == 0
        flame = None
        if stacks or drawn:
            answers, flame = _second_pass(file, columns, answers, flame=drawn)
        if log and torch_trace:
            from rocsolid.trace.compiled_regions import with_compiles

            answers = with_compiles(answers, log, str(torch_trace))
        answered.append(answers)
        if number == 0:
            _extras(columns, answers, perfetto=perfetto, parquet=parquet)
        if drawn:
            from rocsolid.trace.timeline import timeline

            pictures[str(file)] = replace(timeline(columns), flame=flame)
    from rocsolid.trace.counters import joined

    found = joined(answered)
    findings = [*check_traces(found), *(_compile_findings(found, log) if log else ())]
    return Read(record=TraceRecord(files=found, findings=tuple(worst_first(findings))), timelines=pictures)


def _compile_log(folder: Path, rank: int | None = None) -> CompileLog:
    from rocsolid.observe.torch_trace_files import read_trace

    return read_trace(folder, rank=rank)


def _compile_findings(files: Sequence[TraceFile], log: CompileLog) -> Iterator[Finding]:
    """Breaks and recompiles of functions that a trace shows at work."""
    from rocsolid.observe.findings import break_findings, recompile_findings
    from rocsolid.trace.compiled_regions import graphs_shown

    for file in files:
        yield from break_findings(file.compiles.breaks if file.compiles else ())
        yield from recompile_findings(graphs_shown(file, log))


def _second_pass(file: Path, columns: "Columns", answers: TraceFile, *, flame: bool) -> tuple[TraceFile, Flame | None]:
    """What only the Python functions of a trace tell: the line behind each hot kernel, and the host's stacks."""
    from rocsolid.trace.flame import FlameBuilder
    from rocsolid.trace.launch_stacks import places
    from rocsolid.trace.python_frames import has_frames, read_frames

    if not has_frames(columns):
        return answers, None
    looking, builder = places(columns, answers), FlameBuilder()
    for frames in read_frames(file):
        looking.take(frames)
        if flame:
            builder.take(frames)
    return looking.answers(answers), builder.flame(columns) if flame else None


def _extras(columns: "Columns", answers: TraceFile, *, perfetto: Path | None, parquet: Path | None) -> None:
    if perfetto:
        from rocsolid.trace.perfetto import write_perfetto

        write_perfetto(perfetto, columns, answers, tuple(check_traces([answers])))
    if parquet:
        from rocsolid.trace.parquet import write_parquet

        write_parquet(parquet, columns)


def trace_ranks(
    files: Sequence[Path], *, engine: str = "processes", torch_trace: Path | None = None
) -> tuple[TraceRecord, tuple[str, ...]]:
    """Read the ranks of a job side by side; also what could not be read, a line each.

    Args:
        files: one trace for each rank, or one folder that holds them.
        engine: `processes` of this machine, or `ray` for a cluster that sees the same files.
        torch_trace: what TORCH_TRACE wrote in the same job; each rank is joined to its own log.

    """
    from rocsolid.trace.read import need_extra

    need_extra()
    from rocsolid.trace.ranks import answer_all, files_in, side_by_side

    all_files = files_in(files[0]) if len(files) == 1 and not files[0].is_file() else files
    found, refused = answer_all(all_files, engine)
    found, compile_findings = _with_logs(found, torch_trace) if torch_trace else (found, [])
    ranks = side_by_side(found)
    findings = worst_first([*check_traces(found, ranks), *compile_findings])
    return TraceRecord(files=found, findings=tuple(findings), ranks=ranks), refused


def _with_logs(files: Sequence[TraceFile], folder: Path) -> tuple[tuple[TraceFile, ...], list[Finding]]:
    """Each rank with its own log; the same break or recompile in several ranks is one finding."""
    from rocsolid.trace.compiled_regions import with_compiles

    told: list[TraceFile] = []
    findings: dict[tuple[str, str, str], Finding] = {}
    logs: dict[int | None, CompileLog] = {}
    for file in files:
        if file.rank not in logs:
            logs[file.rank] = _compile_log(folder, file.rank)
        told.append(with_compiles(file, logs[file.rank], str(folder)))
        for finding in _compile_findings(told[-1:], logs[file.rank]):
            findings.setdefault((finding.key, finding.location, finding.message), finding)
    return tuple(told), list(findings.values())


def compare(before: str | Path, after: str | Path) -> TraceDifference:
    """Two profiled runs side by side, on the busiest device of each.

    Args:
        before: a trace, or answers that `rocsolid trace --output json` wrote.
        after: another.

    Example:
        >>> import rocsolid as rs, tempfile, pathlib
        >>> kernel = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 0, "ts": 1.5, "dur": %s}'
        >>> files = [pathlib.Path(tempfile.mkdtemp()) / name for name in ("a.json", "b.json")]
        >>> for file, time in zip(files, (8, 2)):
        ...     _ = file.write_text('{"traceEvents": [%s]}' % (kernel % time))
        >>> rs.compare(*files).kernels[0].change.value
        'faster'

    """
    from rocsolid.trace.compare import compare as compare_files

    return compare_files(_saved_or_read(Path(before)), _saved_or_read(Path(after)))


def _saved_or_read(file: Path) -> TraceFile:
    """Saved answers hold all that a comparison needs."""
    if file.is_file() and file.stat().st_size < _SAVED:
        with file.open("rb") as source:
            ours = f'"schema": "{TRACE_SCHEMA}"'.encode() in source.read(200)
        if ours:
            text = file.read_text(encoding="utf-8")
            return decode(TraceRecord, loads(text, str(file)), str(file)).files[0]
    return read_traces([file]).record.files[0]


_SAVED = 256 << 20
