"""Text for a terminal: probes, findings, differences between probes, and the ledger."""

from collections.abc import Iterable, Iterator, Sequence

from rocsolid.model.environment import Environment, Origin, ProbeMode, SettingValue
from rocsolid.model.evidence import Evidence
from rocsolid.model.finding import Finding, Severity
from rocsolid.model.saved_probe import ImageEntry, ProbeDifference, ProbeRecord, ValueChange
from rocsolid.report.terminal import Terminal

_HOW_SETTINGS_WERE_READ = {
    ProbeMode.STATIC: "read from torch's source, torch was not imported",
    ProbeMode.LIVE: "read in a fresh interpreter",
    ProbeMode.THIS_PROCESS: "read in this process",
}
_ORIGIN_TEXTS = {
    Origin.DEFAULT: "",
    Origin.VARIABLE: "environment variable",
    Origin.FORCED: "environment variable",
    Origin.OVERRIDE: "environment variable",
    Origin.STARTUP: "start-up file",
    Origin.LIBRARY: "library",
    Origin.PATCHED: "edited config file of torch",
    Origin.ASSIGNED: "code in this process",
    Origin.MUTATED: "code in this process (changed the default)",
    Origin.OTHER_THREAD: "another thread of this process",
}
_MAX_VALUE_LENGTH = 80
_MAX_SETTINGS_LISTED = 8
_LABEL_WIDTH = len("evidence")


def probe_text(record: ProbeRecord, terminal: Terminal, *, verbose: bool = False) -> str:
    """The findings, worst first, then the facts about the machine."""
    env = record.environment
    in_full = [f for f in record.findings if verbose or f.severity > Severity.INFO]
    shortened = [f for f in record.findings if f not in in_full]
    blocks = [headline(env, terminal), *(finding_text(f, terminal) for f in in_full)]
    if shortened:
        blocks.append("\n".join(_one_line(f, terminal) for f in shortened))
    blocks += [facts_text(env, terminal), summary_line(record.findings, terminal, hidden=len(shortened))]
    return "\n\n".join(blocks) + "\n"


def headline(env: Environment, terminal: Terminal) -> str:
    """What was probed, and how the settings were read."""
    torch = f"torch {env.torch_version}" if env.torch else "no torch"
    rocm = f" · ROCm {env.rocm_version}" if env.rocm_version else ""
    devices = ", ".join(_count(f"{d.name} ({d.arch})" for d in env.devices)) or "no GPU"
    line = terminal.wrap(
        f"{torch} on {env.platform.label}{rocm} · {devices} · Python {env.python}", indent="  ", first=""
    )
    if env.pretended:
        line = f"PRETENDED CHIP ({env.pretended}): not the real hardware of this machine\n{line}"
    return terminal.paint(line, "bold") + terminal.paint(f"\nsettings {_HOW_SETTINGS_WERE_READ[env.probe_mode]}", "dim")


def finding_text(finding: Finding, terminal: Terminal) -> str:
    """One finding in full: message, why, fix, check, evidence."""
    head = f"{terminal.severity(finding.severity)} {terminal.paint(finding.code, 'bold')} {finding.subject}"
    location = f"  {terminal.paint(finding.location, 'dim')}" if finding.location else ""
    rows = [("", finding.message), ("why", finding.why), ("fix", finding.fix), ("check", finding.check)]
    rows += [("cause", finding.cause)] if finding.cause else []
    rows += [("" if index else "evidence", _evidence(e)) for index, e in enumerate(finding.evidence)]
    indent = " " * (_LABEL_WIDTH + 3)
    body = [terminal.wrap(text, indent=indent, first=f"  {label:<{_LABEL_WIDTH}} ") for label, text in rows if text]
    return "\n".join([head + location, *body])


def _one_line(finding: Finding, terminal: Terminal) -> str:
    first = f"{terminal.severity(finding.severity)} {terminal.paint(finding.code, 'bold')} "
    return terminal.wrap(finding.message, indent=" " * 16, first=first)


def facts_text(env: Environment, terminal: Terminal) -> str:
    """The facts about the machine, one line each."""
    rows = [(label, text) for label, text in environment_facts(env) if text]
    width = max(len(label) for label, _ in rows)
    return "\n".join(
        terminal.wrap(text, indent=" " * (width + 4), first=f"  {terminal.paint(f'{label:<{width}}', 'dim')}  ")
        for label, text in rows
    )


def environment_facts(env: Environment) -> Iterator[tuple[str, str]]:
    """Yield label and text of each fact, for the text and the HTML page."""
    changed = [name for name, setting in env.settings.items() if setting.changed]
    yield "machine", f"{env.host.system}, {env.host.cores} cores, {_size(env.host.memory_bytes)}"
    yield "devices", ", ".join(_count(f"{d.name} {d.arch} {_size(d.memory_bytes)}" for d in env.devices))
    yield "driver", env.driver
    if env.container:
        yield "container", " ".join(filter(None, (env.container.engine, env.container.image)))
    yield "image fingerprint", env.image_fingerprint
    if env.torch:
        hip = f", HIP {env.torch.hip}" if env.torch.hip else f", CUDA {env.torch.cuda}" if env.torch.cuda else ""
        yield "torch", f"{env.torch.version}{hip}{_config_files(env)}"
    yield "packages", ", ".join(f"{name} {version}" for name, version in env.packages.items() if name != "torch")
    yield "compiler", env.host.compiler or "none"
    yield (
        "settings",
        f"{len(env.settings)} read, {len(changed)} changed"
        + (f": {', '.join(changed[:_MAX_SETTINGS_LISTED])}" if changed else ""),
    )
    yield "variables", ", ".join(f"{name}={_short(value)}" for name, value in env.variables.items())
    yield "start-up files", ", ".join(f"{h.kind} {h.file}" for h in env.startup_hooks)
    yield "caches", ", ".join(f"{c.name} {c.folder} ({_size(c.free_bytes)} free)" for c in env.caches)
    yield "tools", ", ".join(f"{t.name}: {t.status.value} ({t.seconds:.1f} s)" for t in env.tools)
    yield "active checks", ", ".join(f"{c.name}: {c.status.value}" for c in env.active_checks)
    yield from (("not checked", text) for text in env.unknowns)


def set_by(setting: SettingValue) -> str:
    """What set the value, such as `environment variable TORCHINDUCTOR_MAX_AUTOTUNE`."""
    return f"{_ORIGIN_TEXTS[setting.origin]} {setting.set_by}".strip()


def _config_files(env: Environment) -> str:
    states = sorted({file.integrity.value for file in env.torch.files}) if env.torch else []
    if not states:
        return ""
    return ", config files as released" if states == ["released"] else f", config files: {', '.join(states)}"


def summary_line(findings: Sequence[Finding], terminal: Terminal, *, hidden: int = 0) -> str:
    """The number of findings by severity; if the details of some are `hidden`, also how to see them."""
    counts = {s: sum(f.severity is s for f in findings) for s in reversed(Severity)}
    words = {Severity.CRITICAL: "critical", Severity.WARNING: "warning", Severity.INFO: "info"}
    parts = [f"{n} {words[s]}{'s' if n != 1 and s is Severity.WARNING else ''}" for s, n in counts.items() if n]
    if not parts:
        return terminal.paint("no findings", "green", "bold")
    more = "; -v shows INFO findings in full; details: `rocsolid explain CODE`" if hidden else ""
    counted = ", ".join(parts)
    return terminal.wrap(counted + more, indent="  ", first="").replace(counted, terminal.paint(counted, "bold"), 1)


def difference_text(difference: ProbeDifference, terminal: Terminal) -> str:
    """What changed between two probes."""
    if difference.empty:
        return "no difference\n"
    blocks = []
    for title, changes in (
        ("facts", difference.facts),
        ("settings", difference.settings),
        ("variables", difference.variables),
    ):
        if changes:
            blocks.append("\n".join([terminal.paint(title, "bold"), *(_change(c, terminal) for c in changes)]))
    for title, findings in (("no longer found", difference.gone_findings), ("newly found", difference.new_findings)):
        if findings:
            blocks.append("\n".join([terminal.paint(title, "bold"), *(_one_line(f, terminal) for f in findings)]))
    return "\n\n".join(blocks) + "\n"


def _change(change: ValueChange, terminal: Terminal) -> str:
    before, after = _value(change.before), _value(change.after)
    return f"  {change.name}: {terminal.paint(before, 'red')} → {terminal.paint(after, 'green')}"


def _value(value: object) -> str:
    if value is None or value == "":
        return "(not set)"
    return value if isinstance(value, str) else repr(value)


def images_text(entries: Sequence[ImageEntry], terminal: Terminal) -> str:
    """The ledger, about two lines per image."""
    blocks = []
    for entry in entries:
        image, torch, rocm, findings, date = image_row(entry)
        versions = "" if entry.record is None else f"torch {torch}, ROCm {rocm}"
        text = "; ".join(filter(None, (versions, findings, date)))
        blocks.append(terminal.paint(image, "bold") + "\n" + terminal.wrap(text, indent="  "))
    return "\n".join(blocks) + "\n"


def image_row(entry: ImageEntry) -> tuple[str, str, str, str, str]:
    """Image, torch, ROCm, findings and date of one entry."""
    if entry.record is None:
        guides = ", ".join(e.ref for e in entry.evidence)
        return entry.image, "?", "?", entry.note, f"not probed; according to: {guides}"
    env = entry.record.environment
    findings = [f for f in entry.record.findings if f.severity > Severity.INFO]
    finding_names = ", ".join(f"{f.code} {f.subject}" for f in findings) or "no findings"
    return (
        entry.image,
        env.torch_version or "none",
        env.rocm_version or "-",
        finding_names,
        f"{entry.recorded_at[:10]} {entry.source}",
    )


def images_markdown(entries: Sequence[ImageEntry]) -> str:
    """The ledger as a Markdown table."""
    rows = [("Image", "Torch", "ROCm", "Findings", "Recorded"), ("---",) * 5, *(image_row(e) for e in entries)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows) + "\n"


def _evidence(evidence: Evidence) -> str:
    return f"{evidence.rank.name.lower()}: {evidence.statement} {evidence.url or evidence.ref}"


def _count(texts: Iterable[str]) -> list[str]:
    """`8 × name` instead of the name eight times."""
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    return [f"{count} × {text}" if count > 1 else text for text, count in counts.items()]


def _short(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_LENGTH else text[:_MAX_VALUE_LENGTH] + "…"


def _size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "?"
    return f"{size_bytes / 1024**3:.0f} GB" if size_bytes >= 1024**3 else f"{size_bytes / 1024**2:.0f} MB"
