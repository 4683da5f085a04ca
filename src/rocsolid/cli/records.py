"""Saved results: how each is read, and who shows it."""

from collections.abc import Mapping

from rocsolid.cli import render
from rocsolid.errors import InputError
from rocsolid.model.capture_report import CAPTURE_SCHEMA, CaptureReport
from rocsolid.model.codec import decode, loads
from rocsolid.model.compile_log import BREAKS_SCHEMA, COMPILES_SCHEMA, BreakReport, CompileLog
from rocsolid.model.dryrun import DRYRUN_SCHEMA, DryRunRecord
from rocsolid.model.lint import LINT_SCHEMA, LintRecord
from rocsolid.model.optimize_report import OPTIMIZE_SCHEMA, OptimizeReport
from rocsolid.model.saved_probe import PROBE_SCHEMA, ProbeRecord
from rocsolid.model.study import AB_SCHEMA, STUDY_SCHEMA, ABResult, Study
from rocsolid.model.trace import TRACE_SCHEMA, TraceReport

KINDS: Mapping[str, type] = {
    PROBE_SCHEMA: ProbeRecord,
    COMPILES_SCHEMA: CompileLog,
    BREAKS_SCHEMA: BreakReport,
    TRACE_SCHEMA: TraceReport,
    CAPTURE_SCHEMA: CaptureReport,
    OPTIMIZE_SCHEMA: OptimizeReport,
    LINT_SCHEMA: LintRecord,
    STUDY_SCHEMA: Study,
    AB_SCHEMA: ABResult,
    DRYRUN_SCHEMA: DryRunRecord,
}
Record = (
    ProbeRecord
    | CompileLog
    | BreakReport
    | TraceReport
    | CaptureReport
    | OptimizeReport
    | LintRecord
    | Study
    | ABResult
    | DryRunRecord
)


def read_record(text: str, name: str) -> Record:
    """Any saved result; raises InputError for anything else."""
    data = loads(text, name)
    kind = KINDS.get(data["schema"])
    if kind is None:
        msg = f"{name} holds {data['schema']}, which cannot be rendered; what can is {', '.join(KINDS)}"
        raise InputError(msg)
    record: Record = decode(kind, data, name)
    return record


def read_probe(text: str, name: str) -> ProbeRecord:
    """A saved probe; raises InputError for anything else."""
    data = loads(text, name)
    if data["schema"] != PROBE_SCHEMA:
        msg = f"{name} holds {data['schema']}, and a probe is {PROBE_SCHEMA}"
        raise InputError(msg)
    return decode(ProbeRecord, data, name)


def render_any(record: Record, form: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """Any saved result in one of the forms."""
    if isinstance(record, CompileLog):
        return render.render_compiles(record, form, code=verbose, to_file=to_file)
    if isinstance(record, BreakReport):
        return render.render_breaks(record, form, to_file=to_file)
    if isinstance(record, TraceReport):
        return render.render_trace(record, form, verbose=verbose, to_file=to_file)
    if isinstance(record, LintRecord):
        return render.render_lint(record, form, verbose=verbose, to_file=to_file)
    if isinstance(record, OptimizeReport):
        return render.render_optimize(record, form)
    if isinstance(record, Study):
        return render.render_study(record, form, verbose=verbose, to_file=to_file)
    if isinstance(record, DryRunRecord):
        return render.render_dryrun(record, form, verbose=verbose, to_file=to_file)
    if isinstance(record, ABResult):
        return render.render_ab(record, form, to_file=to_file)
    if isinstance(record, CaptureReport):
        return render.render_capture(record, form)
    return render.render(record, form, verbose=verbose, to_file=to_file)
