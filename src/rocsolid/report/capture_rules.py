"""Reference pages about capture rules: one API call, one error code, and the whole table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rocsolid.catalog.capture_errors import meaning_of_code
from rocsolid.catalog.capture_rules import CAPTURE_RULES, EVIDENCE_BY_RUNTIME
from rocsolid.catalog.runtime_errors import RUNTIME_ERRORS, runtime_error
from rocsolid.model.capture_rule import Behavior, CaptureMode, CaptureRule, Outcome, Runtime
from rocsolid.model.runtime_error import RuntimeErrorCode
from rocsolid.report.reference_pages import evidence_list

_ENTRY_WITHOUT_ERROR = {
    Outcome.RECORDED: "in the graph",
    Outcome.RUNS_NOW: "runs immediately",
    Outcome.LEFT_OUT: "**left out**",
    Outcome.UNKNOWN: "not tested",
}


def call_page(rules: Sequence[CaptureRule]) -> str:
    """Return the page of a call: what every runtime does with it during a capture, in each situation."""
    first = rules[0]
    lines = [f"# {first.call} during a capture", "", f"CUDA's name: `{first.cuda_call}`."]
    callers = sorted({caller for rule in rules for caller in rule.torch_callers})
    if callers:
        lines[-1] += f" Called from Python by: {', '.join(f'`{caller}`' for caller in callers)}."
    for rule in rules:
        lines += ["", f"## {_heading(rule)}", *_by_runtime(rule)]
        if any(behavior.fails or behavior.outcome is Outcome.LEFT_OUT for behavior in _all_behaviors(rule)):
            lines.append(f"- fix: {rule.fix}")
    lines += ["", "## Evidence", *(line for runtime in Runtime for line in evidence_list(EVIDENCE_BY_RUNTIME[runtime]))]
    return "\n".join(lines) + "\n"


def _heading(rule: CaptureRule) -> str:
    return f"{rule.call} {rule.situation or 'from the capturing thread'}"


def _all_behaviors(rule: CaptureRule) -> Iterator[Behavior]:
    return (behavior for behaviors in rule.behaviors.values() for behavior in behaviors.values())


def _by_runtime(rule: CaptureRule) -> Iterator[str]:
    """Yield one line for all runtimes that behave the same."""
    labels_by_sentence: dict[str, list[str]] = {}
    for runtime in Runtime:
        labels_by_sentence.setdefault(_sentence(rule.behaviors[runtime], runtime), []).append(runtime.label)
    return (f"- {' and '.join(labels)}: {sentence}" for sentence, labels in labels_by_sentence.items())


def _sentence(behaviors: Mapping[CaptureMode, Behavior], runtime: Runtime) -> str:
    """Return what happens in each mode; modes with the same behavior are listed together."""
    modes_by_behavior: dict[Behavior, list[str]] = {}
    for mode, behavior in behaviors.items():
        modes_by_behavior.setdefault(behavior, []).append(mode.value)
    if len(modes_by_behavior) == 1:
        return f"in every mode it {_outcome_text(next(iter(modes_by_behavior)), runtime)}"
    return "; ".join(
        f"in {' and '.join(modes)} mode it {_outcome_text(behavior, runtime)}"
        for behavior, modes in modes_by_behavior.items()
    )


def _outcome_text(behavior: Behavior, runtime: Runtime) -> str:
    error = runtime_error(behavior.error)
    return behavior.outcome.value + (f" ({error.name(runtime)}, {error.number})" if error else "")


def error_page(error: RuntimeErrorCode) -> str:
    """Return the page of an error: what it means, how to fix it, and which calls fail with it."""
    meaning = meaning_of_code(error.number)
    lines = [f"# Error {error.number} during a capture", "", *_error_lines(error)]
    for runtime in Runtime:
        rules = [r for r in CAPTURE_RULES if any(b.error == error.number for b in r.behaviors[runtime].values())]
        calls = [f"- `{rule.name(runtime)}`" + (f" {rule.situation}" if rule.situation else "") for rule in rules]
        lines += ["", f"## Calls that fail with this error on {runtime.label}", *calls] if calls else []
    lines += ["", "## Evidence", *evidence_list(meaning.evidence)]
    return "\n".join(lines) + "\n"


def _error_lines(error: RuntimeErrorCode) -> Iterator[str]:
    meaning = meaning_of_code(error.number)
    yield f"- {_hip_and_cuda(error.hip or 'none', error.cuda)}: *{_hip_and_cuda(error.hip_text or error.text, error.text)}*"
    yield f"- meaning: {meaning.message}"
    yield f"- fix: {meaning.fix}"
    if error.difference:
        yield f"- HIP and CUDA differ: {error.difference}"


def _hip_and_cuda(hip: str, cuda: str) -> str:
    return cuda if hip == cuda else f"HIP: {hip}, CUDA: {cuda}"


def table_page() -> str:
    """Return the page with the whole table."""
    lines = [
        "# What HIP and CUDA allow during a graph capture",
        "",
        (
            "This table shows what happens to a call during a graph capture on a non-blocking stream, the kind that torch creates. "
            "`rocsolid explain hipEventQuery` prints the rows of one call. "
            '`rs.capture(..., backend="record", simulate="hip-7.2")` applies these rules on a machine without a GPU.'
        ),
        "",
        "- **in the graph**: the call becomes part of the graph",
        "- **runs immediately**: it runs once, during the capture, and no replay repeats it",
        "- **left out**: it succeeds without an error, but the graph does not contain it",
        "- a number: the call fails with this error, and the capture fails",
        "- a number and *at the end*: the call succeeds, but ending the capture fails with this error",
        "- a number and *capture continues*: the call fails with this error, and the capture is not affected",
        "- *not tested*: neither tested nor documented",
        "",
        "A cell has three entries, for the modes global, thread_local and relaxed in this order, or one entry for all three.",
        "`torch.cuda.graph` captures in global mode by default, `rs.capture` in thread_local mode.",
        "",
        f"| call | situation | {' | '.join(runtime.label for runtime in Runtime)} |",
        f"|---|---|{'---|' * len(Runtime)}",
    ]
    for rule in CAPTURE_RULES:
        cells = " | ".join(_cell(rule.behaviors[runtime].values()) for runtime in Runtime)
        lines.append(f"| {rule.call} | {rule.situation} | {cells} |")
    lines += ["", *_errors_and_evidence()]
    return "\n".join(lines) + "\n"


def _cell(behaviors: Iterable[Behavior]) -> str:
    entries = [_cell_entry(behavior) for behavior in behaviors]
    return entries[0] if len(set(entries)) == 1 else ", ".join(entries)


def _cell_entry(behavior: Behavior) -> str:
    suffix = {Outcome.FAILS_AT_END: " at the end", Outcome.CALL_FAILS: " (capture continues)"}.get(behavior.outcome, "")
    return _ENTRY_WITHOUT_ERROR.get(behavior.outcome, f"{behavior.error}{suffix}")


def _errors_and_evidence() -> Iterator[str]:
    yield "## Errors"
    yield ""
    yield "A capture can fail with these errors. `rocsolid explain 906` prints one of them, with the calls that fail with it."
    yield ""
    for error in RUNTIME_ERRORS:
        yield from (f"### {error.number}", "", *_error_lines(error), "")
    yield "## How this was measured"
    yield ""
    for runtime in Runtime:
        yield from evidence_list(EVIDENCE_BY_RUNTIME[runtime])
