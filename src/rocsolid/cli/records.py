"""Read any saved JSON result, and render it."""

from collections.abc import Mapping

from rocsolid.cli import render
from rocsolid.errors import InputError
from rocsolid.model.capture_report import CAPTURE_SCHEMA, CaptureReport
from rocsolid.model.codec import decode, loads
from rocsolid.model.compile_log import BREAKS_SCHEMA, COMPILES_SCHEMA, BreakReport, CompileLog
from rocsolid.model.dryrun import DRYRUN_SCHEMA, DryRunRecord
from rocsolid.model.lint import LINT_SCHEMA, LintRecord
from rocsolid.model.optimize_report import OPTIMIZE_SCHEMA, OptimizeReport
from rocsolid.model.proof import PROVE_SCHEMA, ProofRecord
from rocsolid.model.saved_probe import PROBE_SCHEMA, ProbeRecord
from rocsolid.model.study import AB_SCHEMA, STUDY_SCHEMA, ABResult, Study
from rocsolid.model.trace import TRACE_SCHEMA, TraceReport
from rocsolid.model.verify_report import VERIFY_SCHEMA, VerifyReport

RECORD_TYPES: Mapping[str, type] = {
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
    VERIFY_SCHEMA: VerifyReport,
    PROVE_SCHEMA: ProofRecord,
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
    | VerifyReport
    | ProofRecord
)


def read_record(text: str, name: str) -> Record:
    """Parse any result that rocsolid saved; raises InputError if the text is not one."""
    data = loads(text, name)
    record_type = RECORD_TYPES.get(str(data["schema"]))
    if record_type is None:
        msg = f"{name} has the schema {data['schema']}, which cannot be rendered; supported: {', '.join(RECORD_TYPES)}"
        raise InputError(msg)
    record: Record = decode(record_type, data, name)
    return record


def read_probe(text: str, name: str) -> ProbeRecord:
    """Parse a saved probe; raises InputError if the text is not one."""
    data = loads(text, name)
    if data["schema"] != PROBE_SCHEMA:
        msg = f"{name} is not a saved probe: its schema is {data['schema']}, not {PROBE_SCHEMA}"
        raise InputError(msg)
    return decode(ProbeRecord, data, name)


def render_any(record: Record, output: str, *, verbose: bool = False, to_file: bool = False) -> str:
    """Render any saved result in one of its output formats."""
    if isinstance(record, CompileLog):
        return render.render_compiles(record, output, code=verbose, to_file=to_file)
    if isinstance(record, BreakReport):
        return render.render_breaks(record, output, to_file=to_file)
    if isinstance(record, TraceReport):
        return render.render_trace(record, output, verbose=verbose, to_file=to_file)
    if isinstance(record, LintRecord):
        return render.render_lint(record, output, verbose=verbose, to_file=to_file)
    if isinstance(record, (VerifyReport, CaptureReport, ProofRecord)):
        return render.render_report(record, output)
    if isinstance(record, OptimizeReport):
        return render.render_optimize(record, output, to_file=to_file)
    if isinstance(record, Study):
        return render.render_study(record, output, verbose=verbose, to_file=to_file)
    if isinstance(record, DryRunRecord):
        return render.render_dryrun(record, output, verbose=verbose, to_file=to_file)
    if isinstance(record, ABResult):
        return render.render_ab(record, output, to_file=to_file)
    return render.render(record, output, verbose=verbose, to_file=to_file)
