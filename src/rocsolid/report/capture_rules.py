"""Reference pages about capture rules: one API call, one error code, and the whole table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rocsolid.catalog.capture_errors import meaning_of_code
from rocsolid.catalog.capture_rules import BACKING, CAPTURE_RULES
from rocsolid.catalog.runtime_errors import RUNTIME_ERRORS, runtime_error
from rocsolid.model.capture_rule import Behavior, CaptureMode, CaptureRule, Outcome, Runtime
from rocsolid.model.runtime_error import RuntimeErrorCode
from rocsolid.report.reference_pages import evidence_list

_SHORT = {
    Outcome.RECORDED: "in the graph",
    Outcome.RUNS_NOW: "runs at once",
    Outcome.LEFT_OUT: "**left out**",
    Outcome.UNKNOWN: "not tested",
}


def call_page(rules: Sequence[CaptureRule]) -> str:
    """What every runtime does with a call during a capture, in each situation."""
    first = rules[0]
    lines = [f"# {first.call} during a capture", "", f"CUDA's name: `{first.cuda_call}`."]
    callers = sorted({caller for rule in rules for caller in rule.torch})
    if callers:
        lines[-1] += f" Called from Python by: {', '.join(f'`{caller}`' for caller in callers)}."
    for rule in rules:
        lines += ["", f"## {_title(rule)}", *_by_runtime(rule)]
        if any(behavior.fails or behavior.outcome is Outcome.LEFT_OUT for behavior in _all_behaviors(rule)):
            lines.append(f"- fix: {rule.fix}")
    lines += ["", "## Evidence", *(line for runtime in Runtime for line in evidence_list(BACKING[runtime]))]
    return "\n".join(lines) + "\n"


def _title(rule: CaptureRule) -> str:
    text = rule.situation or "At any time"
    return text[0].upper() + text[1:]


def _all_behaviors(rule: CaptureRule) -> Iterator[Behavior]:
    return (behavior for behaviors in rule.behaviors.values() for behavior in behaviors.values())


def _by_runtime(rule: CaptureRule) -> Iterator[str]:
    """One line for all runtimes that behave the same."""
    same: dict[str, list[str]] = {}
    for runtime in Runtime:
        same.setdefault(_sentence(rule.behaviors[runtime], runtime), []).append(runtime.label)
    return (f"- {' and '.join(labels)}: {sentence}" for sentence, labels in same.items())


def _sentence(behaviors: Mapping[CaptureMode, Behavior], runtime: Runtime) -> str:
    """What happens in each mode; modes with the same behavior are listed together."""
    same: dict[Behavior, list[str]] = {}
    for mode, behavior in behaviors.items():
        same.setdefault(behavior, []).append(mode.value)
    if len(same) == 1:
        return f"in every mode it {_outcome_text(next(iter(same)), runtime)}"
    return "; ".join(f"in {' and '.join(modes)} mode it {_outcome_text(b, runtime)}" for b, modes in same.items())


def _outcome_text(behavior: Behavior, runtime: Runtime) -> str:
    error = runtime_error(behavior.error)
    return behavior.outcome.value + (f" ({error.name(runtime)}, {error.number})" if error else "")


def error_page(error: RuntimeErrorCode) -> str:
    """What an error during a capture means, how to fix it, and which calls fail with it."""
    meaning = meaning_of_code(error.number)
    lines = [f"# Error {error.number} during a capture", "", *_error_lines(error)]
    for runtime in Runtime:
        rules = [r for r in CAPTURE_RULES if any(b.error == error.number for b in r.behaviors[runtime].values())]
        calls = [f"- `{rule.name(runtime)}`" + (f" {rule.situation}" if rule.situation else "") for rule in rules]
        lines += ["", f"## Calls that fail with it on {runtime.label}", *calls] if calls else []
    lines += ["", "## Evidence", *evidence_list(meaning.evidence)]
    return "\n".join(lines) + "\n"


def _error_lines(error: RuntimeErrorCode) -> Iterator[str]:
    meaning = meaning_of_code(error.number)
    yield f"- {_hip_and_cuda(error.hip or 'none', error.cuda)}: *{_hip_and_cuda(error.hip_text or error.text, error.text)}*"
    yield f"- meaning: {meaning.message}"
    yield f"- fix: {meaning.fix}"
    if error.differs:
        yield f"- HIP and CUDA differ: {error.differs}"


def _hip_and_cuda(hip: str, cuda: str) -> str:
    return cuda if hip == cuda else f"HIP: {hip}, CUDA: {cuda}"


def table_page() -> str:
    """The whole table."""
    lines = [
        "# What HIP and CUDA allow during a graph capture",
        "",
        (
            "What happens to a call that is made while a graph is captured on a non-blocking stream (torch's streams are). "
            "`rocsolid explain hipEventQuery` prints one call. "
            '`rs.capture(..., backend="record", simulate="hip-7.2")` applies these rules on a machine without a GPU.'
        ),
        "",
        "- **in the graph**: the call becomes part of the graph",
        "- **runs at once**: it runs once, now, and no replay repeats it",
        "- **left out**: it succeeds without an error, but the graph does not contain it",
        "- a number: it fails with this error, and the capture fails; *end*: the end of the capture reports the error; *kept*: the capture continues",
        "- *not tested*: not tested, and not documented",
        "",
        "Each cell has the three modes in the order global, thread_local, relaxed, or one entry for all of them.",
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
    words = [_short(behavior) for behavior in behaviors]
    return words[0] if len(set(words)) == 1 else ", ".join(words)


def _short(behavior: Behavior) -> str:
    prefix = {Outcome.FAILS_AT_END: "end ", Outcome.CALL_FAILS: "kept, "}.get(behavior.outcome, "")
    return _SHORT.get(behavior.outcome, f"{prefix}{behavior.error}")


def _errors_and_evidence() -> Iterator[str]:
    yield "## Errors"
    yield ""
    yield "The errors that a capture can fail with. `rocsolid explain 906` prints one, with the calls that fail with it."
    yield ""
    for error in RUNTIME_ERRORS:
        yield from (f"### {error.number}", "", *_error_lines(error), "")
    yield "## How this was measured"
    yield ""
    for runtime in Runtime:
        yield from evidence_list(BACKING[runtime])
