"""Analyze and compare profiler traces: where the GPU time goes, and what to change."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocsolid.errors import require_type
from rocsolid.model.codec import decode, loads
from rocsolid.model.compile_log import CompileLog
from rocsolid.model.finding import Finding
from rocsolid.model.trace import TRACE_SCHEMA, TraceComparison, TraceFile, TraceReport
from rocsolid.model.trace_view import FlameGraph, Timeline
from rocsolid.rules.recoverable import most_time_first
from rocsolid.rules.trace_rules import check_traces

if TYPE_CHECKING:
    from rocsolid.trace.analysis.link_launches import Origins
    from rocsolid.trace.columns import TraceColumns

_MAX_REPORT_BYTES: Final = 256 << 20
_MAX_FUNCTIONS: Final = 300_000  # with more Python functions, the flame graph is only made with `stacks`


def trace(*files: str | Path) -> TraceReport:
    """Analyze profiler files: GPU time by kernel, idle time by cause, and findings.

    A trace without GPU work gives the time by CPU operator and module (`report.files[0].cpu`).

    Args:
        files: traces of torch.profiler (JSON, plain or gzip) or of rocprofv3 (JSON, CSV, .db).

    Example:
        >>> import rocsolid as rs, tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "t.json"
        >>> kernel = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 0, "ts": 1.5, "dur": 2.25}'
        >>> _ = file.write_text('{"traceEvents": [%s]}' % kernel)
        >>> rs.trace(file).files[0].devices[0].kernel_time_ns
        2250

    """
    for file in files:
        require_type("rs.trace: each file", file, (str, Path), "the path of a trace")
    return analyze_traces([Path(file) for file in files]).report


@dataclass(frozen=True, kw_only=True)
class AnalyzedTraces:
    """The report about some files, and the timelines for the HTML page by file name."""

    report: TraceReport
    timelines: Mapping[str, Timeline] = field(default_factory=dict)


def analyze_traces(
    files: Sequence[Path],
    *,
    timeline: bool = False,
    stacks: bool = False,
    perfetto_file: Path | None = None,
    parquet_folder: Path | None = None,
    torch_trace: Path | None = None,
    capture: Path | None = None,
) -> AnalyzedTraces:
    """Analyze files one after another. The timeline, Perfetto and Parquet files are made from the first file only.

    A rocprofv3 file with counters but no kernels is merged into the file with the kernels, if there is exactly one.

    Args:
        files: the traces.
        timeline: also build the timeline, and the flame graph if the trace contains Python functions (at most 300,000).
        stacks: read the file a second time to find the Python lines and modules that launched the kernels.
        perfetto_file: write a trace for Perfetto to this file.
        parquet_folder: write Parquet files to this folder.
        torch_trace: the TORCH_TRACE folder of the same run, for the function and line of each compiled region.
        capture: a trace of the capture of the graphs that are replayed, or a folder of such traces, for the operators,
            shapes, modules and Python lines of their kernels.

    """
    from rocsolid.trace.read import require_extra

    require_extra()
    from rocsolid.trace.analysis.analyze import analyze_trace
    from rocsolid.trace.analysis.counters import merge_counter_files
    from rocsolid.trace.read import read_trace

    log = _compile_log(torch_trace) if torch_trace else None
    analyzed: list[TraceFile] = []
    timelines: dict[str, Timeline] = {}
    for index, file in enumerate(files):
        columns = read_trace(file)
        origins = None
        if capture:
            columns, origins, result = _with_capture(file, columns, capture)
        else:
            result = analyze_trace(file, columns)
        with_timeline = timeline and index == 0
        flame = None
        few_functions = columns.unused_events.get("python_function", 0) <= _MAX_FUNCTIONS
        if stacks or (few_functions and (with_timeline or result.cpu)):
            result, flame = _add_python_stacks(file, columns, result, flame=with_timeline)
        if log and torch_trace:
            from rocsolid.trace.analysis.compiled_regions import add_compile_log

            result = add_compile_log(result, log, str(torch_trace))
        analyzed.append(result)
        if index == 0:
            _export(columns, result, perfetto_file=perfetto_file, parquet_folder=parquet_folder)
        if with_timeline:
            from rocsolid.trace.export.timeline import build_timeline

            timelines[str(file)] = replace(build_timeline(columns, result, origins), flame=flame)
    merged = merge_counter_files(analyzed)
    findings = [*check_traces(merged), *(_compile_findings(merged, log) if log else ())]
    report = TraceReport(files=merged, findings=tuple(most_time_first(findings)))
    return AnalyzedTraces(report=report, timelines=timelines)


def _with_capture(
    file: Path, columns: "TraceColumns", capture_file: Path
) -> tuple["TraceColumns", "Origins", TraceFile]:
    """Analyze a trace with the operators, shapes, modules and Python lines of the captures of its graphs."""
    import numpy as np

    from rocsolid.trace.analysis.analyze import analyze_trace
    from rocsolid.trace.analysis.capture_origins import add_captures
    from rocsolid.trace.analysis.launch_stacks import capture_launch_times, capture_locations
    from rocsolid.trace.analysis.link_launches import find_origins, link_launches
    from rocsolid.trace.analysis.modules import ModuleTimes, add_modules
    from rocsolid.trace.ranks import trace_files_in
    from rocsolid.trace.read import read_trace
    from rocsolid.trace.readers.python_frames import has_frames, read_frames

    files = trace_files_in(capture_file) if capture_file.is_dir() else [capture_file]
    captures = [read_trace(capture) for capture in files]
    links = link_launches(columns)
    replays = add_captures(columns, links, find_origins(columns, links), captures, str(capture_file))
    result = analyze_trace(file, replays.columns, replays.origins, replays.match)
    for number, (name, capture) in enumerate(zip(files, captures, strict=True)):
        launch = np.where(replays.source == number, replays.launch, -1)
        if not has_frames(capture) or (launch < 0).all():
            continue
        locations = capture_locations(replays.columns, result, capture, launch)
        modules = ModuleTimes(launches=capture_launch_times(replays.columns, capture, launch))
        for frames in read_frames(name):
            locations.add(frames)
            modules.add(frames)
        result = replace(locations.apply(result), modules=add_modules(result.modules, modules.rows()))
    return replays.columns, replays.origins, result


def _compile_log(folder: Path, rank: int | None = None) -> CompileLog:
    from rocsolid.observe.torch_trace_files import read_trace

    return read_trace(folder, rank=rank)


def _compile_findings(files: Sequence[TraceFile], log: CompileLog) -> Iterator[Finding]:
    """Yield findings for the graph breaks and recompiles of the functions that run in the traces."""
    from rocsolid.observe.findings import break_findings, recompile_findings
    from rocsolid.trace.analysis.compiled_regions import graphs_in_trace

    for file in files:
        yield from break_findings(file.compile_log.breaks if file.compile_log else ())
        yield from recompile_findings(graphs_in_trace(file, log))


def _add_python_stacks(
    file: Path, columns: "TraceColumns", result: TraceFile, *, flame: bool
) -> tuple[TraceFile, FlameGraph | None]:
    """Read the Python functions of a trace. Add the lines that launched kernels, and build the flame graph."""
    from rocsolid.trace.analysis.host_activity import operator_times
    from rocsolid.trace.analysis.launch_stacks import launch_locations
    from rocsolid.trace.analysis.modules import ModuleTimes, add_modules
    from rocsolid.trace.export.flame import FlameGraphBuilder, launch_times
    from rocsolid.trace.readers.python_frames import has_frames, read_frames

    if not has_frames(columns):
        return result, None
    locations, builder = launch_locations(columns, result), FlameGraphBuilder()
    modules = ModuleTimes(launches=operator_times(columns) if result.cpu else launch_times(columns))
    for frames in read_frames(file):
        locations.add(frames)
        modules.add(frames)
        if flame:
            builder.add(frames)
    result = replace(locations.apply(result), modules=add_modules(result.modules, modules.rows()))
    return result, builder.build(columns) if flame else None


def _export(
    columns: "TraceColumns", result: TraceFile, *, perfetto_file: Path | None, parquet_folder: Path | None
) -> None:
    if perfetto_file:
        from rocsolid.trace.export.perfetto import write_perfetto

        write_perfetto(perfetto_file, columns, result, tuple(check_traces([result])))
    if parquet_folder:
        from rocsolid.trace.export.parquet import write_parquet

        write_parquet(parquet_folder, columns)


def trace_ranks(
    files: Sequence[Path], *, engine: str = "processes", torch_trace: Path | None = None
) -> tuple[TraceReport, tuple[str, ...]]:
    """Analyze and compare the ranks of a job. Also return an error message for each file that cannot be read.

    Args:
        files: one trace per rank, or one folder that contains them.
        engine: `processes` on this machine, or `ray` for a cluster that has access to the same files.
        torch_trace: the TORCH_TRACE folder of the same job; each rank uses its own log.

    """
    from rocsolid.trace.read import require_extra

    require_extra()
    from rocsolid.trace.ranks import analyze_ranks, compare_ranks, trace_files_in

    all_files = trace_files_in(files[0]) if len(files) == 1 and not files[0].is_file() else files
    traces, errors = analyze_ranks(all_files, engine)
    traces, compile_findings = _add_logs(traces, torch_trace) if torch_trace else (traces, [])
    ranks = compare_ranks(traces)
    findings = most_time_first([*check_traces(traces, ranks), *compile_findings])
    return TraceReport(files=traces, findings=tuple(findings), ranks=ranks), errors


def _add_logs(files: Sequence[TraceFile], folder: Path) -> tuple[tuple[TraceFile, ...], list[Finding]]:
    """Add to each rank its own log. The same graph break or recompile in several ranks is one finding."""
    from rocsolid.trace.analysis.compiled_regions import add_compile_log

    with_logs: list[TraceFile] = []
    findings: dict[tuple[str, str, str], Finding] = {}
    logs: dict[int | None, CompileLog] = {}
    for file in files:
        if file.rank not in logs:
            logs[file.rank] = _compile_log(folder, file.rank)
        with_logs.append(add_compile_log(file, logs[file.rank], str(folder)))
        for finding in _compile_findings(with_logs[-1:], logs[file.rank]):
            findings.setdefault((finding.key, finding.location, finding.message), finding)
    return tuple(with_logs), list(findings.values())


def compare(before: str | Path, after: str | Path, *, stacks: bool = False) -> TraceComparison:
    """Compare two traces, on the busiest device of each. Of traces without GPU work, compare the CPU operators.

    Args:
        before: a trace, or a report that `rocsolid trace --output json` wrote.
        after: the trace or report to compare with `before`.
        stacks: also read the Python functions of both traces, for the time by module.

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

    for file in (before, after):
        require_type("rs.compare: each file", file, (str, Path), "the path of a trace or of a saved report")
    return compare_files(*(_load_or_analyze(Path(file), stacks=stacks) for file in (before, after)))


def _load_or_analyze(file: Path, *, stacks: bool) -> TraceFile:
    """Load a saved report, which contains everything that a comparison needs, or analyze a trace."""
    if file.is_file() and file.stat().st_size < _MAX_REPORT_BYTES:
        with file.open("rb") as source:
            is_report = f'"schema": "{TRACE_SCHEMA}"'.encode() in source.read(200)
        if is_report:
            text = file.read_text(encoding="utf-8")
            return decode(TraceReport, loads(text, str(file)), str(file)).files[0]
    return analyze_traces([file], stacks=stacks).report.files[0]
