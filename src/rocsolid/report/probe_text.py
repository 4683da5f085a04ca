"""Probes, findings and differences as text for a terminal."""

from collections.abc import Iterable, Iterator, Sequence

from rocsolid.model.environment import Environment, Route
from rocsolid.model.evidence import Evidence
from rocsolid.model.finding import Finding, Severity
from rocsolid.model.saved_probe import Change, Difference, ImageEntry, ProbeRecord
from rocsolid.report.terminal import Terminal

_ROUTES = {
    Route.STATIC: "read from torch's source, nothing imported",
    Route.LIVE: "read in a fresh interpreter",
    Route.PROCESS: "read in this process",
}


_LONGEST_VALUE = 80


def probe_text(record: ProbeRecord, terminal: Terminal, *, verbose: bool = False) -> str:
    """The whole answer: what hurts, then what was seen."""
    env = record.environment
    shown = [f for f in record.findings if verbose or f.severity > Severity.INFO]
    notes = [f for f in record.findings if f not in shown]
    blocks = [headline(env, terminal), *(finding_text(f, terminal) for f in shown)]
    if notes:
        blocks.append("\n".join(_note(f, terminal) for f in notes))
    blocks += [facts_text(env, terminal), tally(record.findings, terminal, hidden=len(notes))]
    return "\n\n".join(blocks) + "\n"


def headline(env: Environment, terminal: Terminal) -> str:
    """One line that says what was looked at, and how."""
    torch = f"torch {env.torch_version}" if env.torch else "no torch"
    rocm = f" · ROCm {env.rocm_version}" if env.rocm_version else ""
    devices = ", ".join(_count(f"{d.name} ({d.arch})" for d in env.devices)) or "no accelerator"
    line = f"{torch} on {env.platform.label}{rocm} · {devices} · Python {env.python}"
    if env.pretended:
        line = f"PRETENDED ({env.pretended}), not this machine: {line}"
    return terminal.paint(line, "bold") + terminal.paint(f"\nsettings {_ROUTES[env.route]}", "dim")


def finding_text(finding: Finding, terminal: Terminal) -> str:
    """One finding in full: seen, why, fix, check, evidence."""
    head = f"{terminal.severity(finding.severity)} {terminal.paint(finding.code, 'bold')} {finding.subject}"
    place = f"  {terminal.paint(finding.location, 'dim')}" if finding.location else ""
    rows = [("", finding.message), ("why", finding.why), ("fix", finding.fix), ("check", finding.check)]
    rows += [("cause", finding.cause)] if finding.cause else []
    rows += [("see", _evidence(e)) for e in finding.evidence]
    body = [terminal.wrap(text, indent=" " * 9, first=f"  {label:<6} ") for label, text in rows if text]
    return "\n".join([head + place, *body])


def _note(finding: Finding, terminal: Terminal) -> str:
    first = f"{terminal.severity(finding.severity)} {terminal.paint(finding.code, 'bold')} "
    return terminal.wrap(finding.message, indent=" " * 16, first=first)


def facts_text(env: Environment, terminal: Terminal) -> str:
    """What was seen, in a dozen lines."""
    rows = [(label, text) for label, text in facts(env) if text]
    width = max(len(label) for label, _ in rows)
    return "\n".join(
        terminal.wrap(text, indent=" " * (width + 4), first=f"  {terminal.paint(f'{label:<{width}}', 'dim')}  ")
        for label, text in rows
    )


def facts(env: Environment) -> Iterator[tuple[str, str]]:
    """Label and text of each fact worth a line; text and HTML show the same."""
    moved = [name for name, observed in env.settings.items() if observed.moved]
    yield "machine", f"{env.host.system}, {env.host.cores} cores, {_size(env.host.memory_bytes)}"
    yield "devices", ", ".join(_count(f"{d.name} {d.arch} {_size(d.memory_bytes)}" for d in env.devices))
    yield "driver", env.driver
    if env.container:
        yield "container", " ".join(filter(None, (env.container.engine, env.container.image)))
    yield "content id", env.content_id
    if env.torch:
        hip = f", HIP {env.torch.hip}" if env.torch.hip else f", CUDA {env.torch.cuda}" if env.torch.cuda else ""
        yield "torch", f"{env.torch.version}{hip}, {_files(env)}"
    yield "packages", ", ".join(f"{name} {version}" for name, version in env.packages.items() if name != "torch")
    yield "compiler", env.host.compiler or "none"
    yield "settings", f"{len(env.settings)} read, {len(moved)} moved" + (f": {', '.join(moved[:8])}" if moved else "")
    yield "variables", ", ".join(f"{name}={_short(value)}" for name, value in env.variables.items())
    yield "start-up", ", ".join(f"{h.kind} {h.place}" for h in env.hooks)
    yield "caches", ", ".join(f"{c.name} {c.folder} ({_size(c.free_bytes)} free)" for c in env.caches)
    yield "asked", ", ".join(f"{t.name} {t.ending.value} in {t.seconds:.1f} s" for t in env.tools)
    yield "computed", ", ".join(f"{c.name} {c.ending.value}" for c in env.checks)
    yield "not known", "; ".join(env.gaps)


def _files(env: Environment) -> str:
    verdicts = {file.integrity.value for file in env.torch.files} if env.torch else set()
    return "config files as released" if verdicts == {"released"} else f"config files: {', '.join(sorted(verdicts))}"


def tally(findings: Sequence[Finding], terminal: Terminal, *, hidden: int = 0) -> str:
    """How many of each, and where to read more."""
    counts = {s: sum(f.severity is s for f in findings) for s in reversed(Severity)}
    words = {Severity.CRITICAL: "critical", Severity.WARNING: "warning", Severity.INFO: "note"}
    said = [f"{n} {words[s]}{'s' if n != 1 and s is not Severity.CRITICAL else ''}" for s, n in counts.items() if n]
    if not said:
        return terminal.paint("nothing found that would hurt", "green", "bold")
    more = "; -v shows the notes in full, `rocsolid explain CODE` tells more" if hidden else ""
    return terminal.paint(", ".join(said), "bold") + more


def difference_text(change: Difference, terminal: Terminal) -> str:
    """What changed between two probes."""
    if change.empty:
        return "no difference\n"
    blocks = []
    for title, changes in (("facts", change.facts), ("settings", change.settings), ("variables", change.variables)):
        if changes:
            blocks.append("\n".join([terminal.paint(title, "bold"), *(_change(c, terminal) for c in changes)]))
    for title, findings in (("no longer found", change.gone), ("newly found", change.new)):
        if findings:
            blocks.append("\n".join([terminal.paint(title, "bold"), *(_note(f, terminal) for f in findings)]))
    return "\n\n".join(blocks) + "\n"


def _change(change: Change, terminal: Terminal) -> str:
    before, after = _value(change.before), _value(change.after)
    return f"  {change.what}: {terminal.paint(before, 'red')} → {terminal.paint(after, 'green')}"


def _value(value: object) -> str:
    if value is None or value == "":
        return "(none)"
    return value if isinstance(value, str) else repr(value)


def images_text(entries: Sequence[ImageEntry], terminal: Terminal) -> str:
    """The ledger, two lines or so an image."""
    blocks = []
    for entry in entries:
        image, torch, rocm, findings, seen = image_row(entry)
        versions = "" if entry.record is None else f"torch {torch}, ROCm {rocm}"
        said = "; ".join(filter(None, (versions, findings, seen)))
        blocks.append(terminal.paint(image, "bold") + "\n" + terminal.wrap(said, indent="  "))
    return "\n".join(blocks) + "\n"


def image_row(entry: ImageEntry) -> tuple[str, str, str, str, str]:
    """Image, torch, ROCm, findings and date of one entry."""
    if entry.record is None:
        return entry.image, "?", "?", entry.says, f"{entry.source}: {', '.join(e.ref for e in entry.evidence)}"
    env = entry.record.environment
    hurting = [f for f in entry.record.findings if f.severity > Severity.INFO]
    said = ", ".join(f"{f.code} {f.subject}" for f in hurting) or "none"
    return (
        entry.image,
        env.torch_version or "none",
        env.rocm_version or "-",
        said,
        f"{entry.recorded_at[:10]} {entry.source}",
    )


def images_markdown(entries: Sequence[ImageEntry]) -> str:
    """The ledger as a Markdown table, to paste into a page."""
    rows = [("Image", "Torch", "ROCm", "Findings", "Seen"), ("---",) * 5, *(image_row(e) for e in entries)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows) + "\n"


def _evidence(evidence: Evidence) -> str:
    return f"{evidence.rank.name.lower()}: {evidence.statement} {evidence.url or evidence.ref}"


def _count(texts: Iterable[str]) -> list[str]:
    """`8 × name` instead of the name eight times."""
    counted: dict[str, int] = {}
    for text in texts:
        counted[text] = counted.get(text, 0) + 1
    return [f"{n} × {text}" if n > 1 else text for text, n in counted.items()]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def _size(number: int | None) -> str:
    if number is None:
        return "?"
    return f"{number / 1024**3:.0f} GB" if number >= 1024**3 else f"{number / 1024**2:.0f} MB"
