"""Where the time goes: profiler files in, answers and advice out."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rocsolid.model.trace import TraceFile, TraceRecord
from rocsolid.rules.tracing import judge_traces

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
    answered = tuple(_answer(Path(file)) for file in files)
    return TraceRecord(files=answered, findings=tuple(judge_traces(answered)))


def _answer(file: Path) -> TraceFile:
    from rocsolid.trace.read import read_trace

    return answer_from(file, read_trace(file))


def answer_from(file: Path, columns: "Columns") -> TraceFile:
    """The answers from columns that are at hand already."""
    from rocsolid.trace.answers import answer

    return answer(file, columns)


def judged(files: Iterable[TraceFile]) -> TraceRecord:
    """Answers with the advice that follows from them."""
    found = tuple(files)
    return TraceRecord(files=found, findings=tuple(judge_traces(found)))
