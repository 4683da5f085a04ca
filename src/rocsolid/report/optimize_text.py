"""The report of `rocsolid optimize` as text for a terminal."""

from collections.abc import Iterator

from rocsolid.model.form import Form
from rocsolid.model.optimize_report import RATIO_NOTE, FormOutcome, FormResult, OptimizeReport
from rocsolid.report.terminal import Terminal

_COLOURS = {
    FormOutcome.CHOSEN: ("green", "bold"),
    FormOutcome.WRONG: ("red",),
    FormOutcome.FAILED: ("red",),
    FormOutcome.SKIPPED: ("dim",),
}


def optimize_text(report: OptimizeReport, terminal: Terminal, *, workload: str = "") -> str:
    """Return the chosen form, a table of all forms, the noise, and what to do next."""
    headline = f"{report.name}: {report.chosen_label!r} was chosen, because {report.why}"
    lines = [terminal.paint(terminal.wrap(headline, indent="  ", first=""), "bold")]
    lines.append(terminal.wrap(f"{report.machine}, profile {report.profile}", indent="  "))
    width = max(len(result.label) for result in report.forms)
    for result in report.forms:
        lines += _form(result, width, terminal)
    if any(result.timing for result in report.forms):
        lines.append(f"  noise of this run: {report.noise:.1%}")
    if any(result.settings for result in report.forms):
        lines.append(terminal.wrap(RATIO_NOTE, indent="  "))
    lines += [terminal.wrap(note, indent="  ") for note in report.notes()]
    lines += [terminal.wrap(f"next: {line}", indent="      ", first="") for line in _next_steps(report, workload)]
    return "\n".join(lines) + "\n"


def _form(result: FormResult, width: int, terminal: Terminal) -> Iterator[str]:
    marker = "*" if result.outcome is FormOutcome.CHOSEN else " "
    label = terminal.paint(f"{marker} {result.label:<{width}}", *_COLOURS.get(result.outcome, ()))
    yield f"{label}  {result.timing or result.outcome.value}"
    details = [f"{result.against_eager.speedup:.2f} times as fast as eager"] if result.against_eager else []
    details += [f"set-up {result.setup_s:.1f} s"] if result.outcome is not FormOutcome.SKIPPED else []
    if result.relative_error is not None:
        details.append(f"relative error {result.relative_error:.1e}")
    if result.why:
        details.append(result.why)
    if details:
        yield terminal.paint(terminal.wrap(", ".join(details), indent="    "), "dim")


def _next_steps(report: OptimizeReport, workload: str) -> Iterator[str]:
    if not workload:
        return
    if report.chosen is Form.EAGER:
        yield f"rocsolid profile {workload} shows where the time goes"
        yield f"rocsolid tune {workload} also tries compiler settings"
    else:
        freeze = ", freeze=True" if report.settings.get("inductor.freezing") else ""
        yield f"in your program: fast = rs.optimize(model, example_inputs{freeze}), then call fast instead of model"
        yield f"rocsolid tune {workload} also tries compiler settings"
