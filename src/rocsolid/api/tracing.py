"""Where the time goes: profiler files in, answers and advice out."""

from collections.abc import Iterable
from pathlib import Path

from rocsolid.model.codec import decode, loads
from rocsolid.model.trace import TRACE_SCHEMA, Timeline, TraceDifference, TraceFile, TraceRecord
from rocsolid.rules.tracing import judge_traces


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
    answered = tuple(answer_file(Path(file)) for file in files)
    return TraceRecord(files=answered, findings=tuple(judge_traces(answered)))


def trace_with_timelines(files: Iterable[Path]) -> tuple[TraceRecord, dict[str, Timeline]]:
    """As `trace`, with the picture of the first file."""
    from rocsolid.trace.answers import answer
    from rocsolid.trace.read import read_trace
    from rocsolid.trace.timeline import timeline

    answered, pictures = [], {}
    for number, file in enumerate(files):
        columns = read_trace(file)
        answered.append(answer(file, columns))
        if number == 0:
            pictures[str(file)] = timeline(columns)
    found = tuple(answered)
    return TraceRecord(files=found, findings=tuple(judge_traces(found))), pictures


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
    return answer_file(file)


_SAVED = 256 << 20


def answer_file(file: Path) -> TraceFile:
    """Read one file and answer."""
    from rocsolid.trace.answers import answer
    from rocsolid.trace.read import read_trace

    return answer(file, read_trace(file))
