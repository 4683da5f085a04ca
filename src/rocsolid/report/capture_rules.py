"""Pages about the runtimes' rules of capture: one call, one error, and the whole table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rocsolid.catalog.capture_errors import meaning_of_code
from rocsolid.catalog.capture_rules import BACKING, CAPTURE_RULES
from rocsolid.catalog.runtime_errors import RUNTIME_ERRORS, runtime_error
from rocsolid.model.capture_rule import Answer, CaptureMode, CaptureRule, Outcome, Runtime
from rocsolid.model.runtime_error import RuntimeErrorCode
from rocsolid.report.reference_pages import evidence_list

_SHORT = {
    Outcome.RECORDED: "in the graph",
    Outcome.DONE: "done at once",
    Outcome.LEFT_OUT: "**left out**",
    Outcome.UNKNOWN: "not known",
}


def call_page(rules: Sequence[CaptureRule]) -> str:
    """What every runtime does with a call during a capture, in each situation."""
    first = rules[0]
    lines = [f"# {first.call} during a capture", "", f"CUDA's name: `{first.cuda_call}`."]
    callers = sorted({caller for rule in rules for caller in rule.torch})
    if callers:
        lines[-1] += f" Seen from Python: {', '.join(f'`{caller}`' for caller in callers)}."
    for rule in rules:
        lines += ["", f"## {_titled(rule)}", *_by_runtime(rule)]
        if any(answer.fails or answer.outcome is Outcome.LEFT_OUT for answer in _all_answers(rule)):
            lines.append(f"- instead: {rule.fix}")
    lines += ["", "## Evidence", *(line for runtime in Runtime for line in evidence_list(BACKING[runtime]))]
    return "\n".join(lines) + "\n"


def _titled(rule: CaptureRule) -> str:
    said = rule.situation or "At any time"
    return said[0].upper() + said[1:]


def _all_answers(rule: CaptureRule) -> Iterator[Answer]:
    return (answer for answers in rule.answers.values() for answer in answers.values())


def _by_runtime(rule: CaptureRule) -> Iterator[str]:
    """Runtimes that say the same are told together."""
    alike: dict[str, list[str]] = {}
    for runtime in Runtime:
        alike.setdefault(_sentence(rule.answers[runtime], runtime), []).append(runtime.label)
    return (f"- {' and '.join(labels)}: {sentence}" for sentence, labels in alike.items())


def _sentence(answers: Mapping[CaptureMode, Answer], runtime: Runtime) -> str:
    """So are modes."""
    alike: dict[Answer, list[str]] = {}
    for mode, answer in answers.items():
        alike.setdefault(answer, []).append(mode.value)
    if len(alike) == 1:
        return f"in every mode it {_said(next(iter(alike)), runtime)}"
    return "; ".join(f"in {' and '.join(modes)} mode it {_said(answer, runtime)}" for answer, modes in alike.items())


def _said(answer: Answer, runtime: Runtime) -> str:
    error = runtime_error(answer.error)
    return answer.outcome.value + (f" ({error.name(runtime)}, {error.number})" if error else "")


def error_page(error: RuntimeErrorCode) -> str:
    """What an error in a capture means, what to do, and which calls are answered with it."""
    meaning = meaning_of_code(error.number)
    lines = [f"# Error {error.number} in a capture", "", *_error_lines(error)]
    for runtime in Runtime:
        calls = [rule for rule in CAPTURE_RULES if any(a.error == error.number for a in rule.answers[runtime].values())]
        said = [f"- `{rule.name(runtime)}`" + (f" {rule.situation}" if rule.situation else "") for rule in calls]
        lines += ["", f"## What {runtime.label} answers with it", *said] if said else []
    lines += ["", "## Evidence", *evidence_list(meaning.evidence)]
    return "\n".join(lines) + "\n"


def _error_lines(error: RuntimeErrorCode) -> Iterator[str]:
    meaning = meaning_of_code(error.number)
    yield f"- {_either(error.hip or 'none', error.cuda)}: *{_either(error.hip_text or error.text, error.text)}*"
    yield f"- it means: {meaning.says}"
    yield f"- the fix: {meaning.fix}"
    if error.differs:
        yield f"- where they differ: {error.differs}"


def _either(hip: str, cuda: str) -> str:
    return cuda if hip == cuda else f"HIP: {hip}, CUDA: {cuda}"


def table_page() -> str:
    """The whole table."""
    lines = [
        "# What runtimes allow during a capture",
        "",
        (
            "What becomes of a call that is made while a graph is captured on a non-blocking stream, as torch's streams are. "
            "`rocsolid explain hipEventQuery` prints one call. "
            '`rs.capture(..., plays="hip-7.2")` plays these rules on a machine without a GPU.'
        ),
        "",
        "- **in the graph**: the call becomes part of the graph",
        "- **done at once**: it is done once, now, and no replay repeats it",
        "- **left out**: it succeeds without a word, and the graph does not hold it",
        "- a number: it is refused with this error, and the capture is lost; *end* means that the end of the capture reports it, *kept* that the capture goes on",
        "- *not known*: not tried, and no document says",
        "",
        "Each cell has the three modes in the order global, thread_local, relaxed, or one answer for all of them.",
        "`torch.cuda.graph` captures in global mode unless told otherwise, `rs.capture` in thread_local mode.",
        "",
        f"| call | situation | {' | '.join(runtime.label for runtime in Runtime)} |",
        f"|---|---|{'---|' * len(Runtime)}",
    ]
    for rule in CAPTURE_RULES:
        cells = " | ".join(_cell(rule.answers[runtime].values()) for runtime in Runtime)
        lines.append(f"| {rule.call} | {rule.situation} | {cells} |")
    lines += ["", *_background()]
    return "\n".join(lines) + "\n"


def _cell(answers: Iterable[Answer]) -> str:
    said = [_briefly(answer) for answer in answers]
    return said[0] if len(set(said)) == 1 else ", ".join(said)


def _briefly(answer: Answer) -> str:
    before = {Outcome.UNENDED: "end ", Outcome.REJECTED: "kept, "}.get(answer.outcome, "")
    return _SHORT.get(answer.outcome, f"{before}{answer.error}")


def _background() -> Iterator[str]:
    yield "## Errors"
    yield ""
    yield "A failed capture is explained by these. `rocsolid explain 906` prints one, with the calls that are answered with it."
    yield ""
    for error in RUNTIME_ERRORS:
        yield from (f"### {error.number}", "", *_error_lines(error), "")
    yield "## Where the answers come from"
    yield ""
    for runtime in Runtime:
        yield from evidence_list(BACKING[runtime])
