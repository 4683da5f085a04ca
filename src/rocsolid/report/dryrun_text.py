"""A dry run as text for a terminal, and as JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rocsolid.model.codec import dumps
from rocsolid.model.dryrun import DRYRUN_SCHEMA, DryRun, DryRunGraph, DryRunKernel, DryRunRecord, KernelConfig
from rocsolid.model.finding import Finding, Severity
from rocsolid.report.probe_text import finding_text, summary_line
from rocsolid.report.terminal import Terminal
from rocsolid.version import __version__

HEADINGS = (
    "configuration",
    "VGPR",
    "AGPR",
    "SGPR",
    "spills",
    "scratch",
    "LDS",
    "waves",
    "lanes",
    "matrix instr.",
    "code bytes",
    "compile s",
)
_PROBLEMS = {  # of one kernel, and of several
    "fails": ("fails", "fail"),
    "spills": ("spills in every configuration", "spill in every configuration"),
    "lds": ("exceeds the LDS limit", "exceed the LDS limit"),
}
_LESS_IMPORTANT = ("AGPR", "matrix instr.", "code bytes", "compile s")  # columns that a narrow terminal leaves out
_MAX_KERNELS = 20  # with more, only those with a problem are listed
_MAX_SKIPPED = 10
_MAX_LISTED = 3  # kernels; more are summed up in one line
_HEADINGS_CUDA = {"VGPR": "regs", "LDS": "shared"}


def dryrun_json(record: DryRunRecord) -> str:
    """Return the whole record as JSON."""
    parts = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return dumps(DRYRUN_SCHEMA, rocsolid=__version__, **parts)


def dryrun_text(record: DryRunRecord, terminal: Terminal, *, verbose: bool = False) -> str:
    """Graphs and kernels of each chip, the differences from the compared chip, and the findings."""
    blocks = [_headline(record, terminal)]
    for run in record.runs:
        blocks += list(_run(run, terminal, verbose=verbose))
        if record.compared:
            blocks.append(_comparison(run, record.compared, terminal))
    blocks += [
        terminal.paint(terminal.wrap(f"{failed.target} failed: {failed.error}", indent="  ", first=""), "red")
        for failed in record.failed
    ]
    findings = _grouped(record.findings, [run.target for run in record.runs])
    full = [f for f in findings if verbose or f.severity > Severity.INFO]
    short = [f for f in findings if f not in full]
    blocks += [finding_text(f, terminal) for f in full]
    if short:
        notes = (
            terminal.wrap(f.message, indent=" " * 16, first=f"{terminal.severity(f.severity)} {f.code} ") for f in short
        )
        blocks.append("\n".join(notes))
    blocks.append("\n".join(terminal.wrap(line, indent="  ", first="") for line in porting_lines(record)))
    blocks.append(summary_line(findings, terminal, hidden=len(short)))
    return "\n\n".join(blocks) + "\n"


def _grouped(findings: Sequence[Finding], targets: Sequence[str]) -> list[Finding]:
    """Findings that differ only in the chip become one, which names all chips."""
    groups: dict[tuple[str, ...], list[tuple[str, Finding]]] = {}
    for finding in findings:
        target = next((t for t in targets if finding.subject.partition(" ")[0] == t), "")
        words = (finding.code, finding.subject, finding.message, finding.why, finding.fix)
        key = (*(text.replace(target, "{}") if target else text for text in words), finding.location)
        groups.setdefault(key, []).append((target, finding))
    return [_one_of(group) if len(group) > 1 else group[0][1] for group in groups.values()]


def _one_of(group: Sequence[tuple[str, Finding]]) -> Finding:
    target, first = group[0]
    names = ", ".join(name for name, _ in group)
    changed = {field: getattr(first, field).replace(target, names) for field in ("subject", "message", "why", "fix")}
    return replace(first, check=first.check.replace(target, names.replace(", ", " --target ")), **changed)


def _headline(record: DryRunRecord, terminal: Terminal) -> str:
    headline = f"{record.workload} · {record.mode}"
    headline += " · training" if record.train else ""
    headline += f" · profile {record.profile}" if record.profile else ""
    return terminal.paint(headline, "bold")


def _run(run: DryRun, terminal: Terminal, *, verbose: bool) -> Iterator[str]:
    configs = sum(len(kernel.configs) for kernel in run.kernels)
    head = f"{run.target} {run.product} · {_count(len(run.kernels), 'kernel')} in {_count(configs, 'configuration')}"
    versions = f"torch {run.torch}, Triton {run.triton}; no kernel was executed"
    yield terminal.paint(head, "bold") + terminal.paint(f"\n{versions}", "dim")
    if run.notes:
        yield "\n".join(terminal.wrap(note, indent="  ", first="  note: ") for note in run.notes)
    if run.graphs:
        yield "\n".join(line for graph in run.graphs for line in graph_lines(graph, terminal))
    for found in run.breaks:
        yield terminal.wrap(f"graph break at {found.location or 'an unknown line'}: {found.reason}", indent="  ")
    for search in run.searches:
        choices = f"autotuning of {search.op} {search.shapes}: {search.choices} choices, {search.compiled} compiled"
        yield terminal.wrap(f"{choices} in {search.seconds:.0f} s, {search.failed} failed", indent="  ")
    shown = run.kernels if verbose or len(run.kernels) <= _MAX_KERNELS else [k for k in run.kernels if k.problems]
    yield from (_kernel(kernel, run, terminal, verbose=verbose) for kernel in shown)
    if len(shown) < len(run.kernels):
        yield f"  {len(run.kernels) - len(shown)} kernels without a problem are not listed: see --verbose, or --output html"
    for skipped in run.skipped[: None if verbose else _MAX_SKIPPED]:
        yield terminal.wrap(
            f"{skipped.name}  {_short(skipped.location)}: {skipped.reason}", indent="    ", first="  not compiled: "
        )
    if len(run.skipped) > _MAX_SKIPPED and not verbose:
        yield f"  {len(run.skipped) - _MAX_SKIPPED} more kernels were not compiled: see --verbose"


def porting_lines(record: DryRunRecord) -> Iterator[str]:
    """How many kernels of a project compile, spill or need too much LDS, one line per chip."""
    for run in (*record.runs, *([record.compared] if record.compared else [])):
        counts = Counter(problem for kernel in run.kernels for problem in kernel.problems)
        compiled = len(run.kernels) - counts["fails"]
        problems = [f"{counts[kind]} {words[counts[kind] > 1]}" for kind, words in _PROBLEMS.items() if counts[kind]]
        if not problems and run.kernels:
            problems = list(_verdict([config for kernel in run.kernels for config in kernel.configs]))
        verb = "compiles" if len(run.kernels) == 1 else "compile"
        yield ", ".join([f"{run.target}: {compiled} of {_count(len(run.kernels), 'kernel')} {verb}", *problems])
    if record.runs and record.runs[0].skipped:
        yield f"{_count(len(record.runs[0].skipped), 'kernel')} not compiled, see the reasons above; a signature can be given with --signatures FILE"


def _verdict(configs: Sequence[KernelConfig]) -> Iterator[str]:
    """Sentences about kernels that all have a configuration which compiles, does not spill and fits."""
    used = [config.resources for config in configs if config.resources]
    spilling, too_large = sum(u.spills > 0 for u in used), sum(not u.fits for u in used)
    for number, words in ((len(configs) - len(used), _PROBLEMS["fails"]), (spilling, ("spills", "spill"))):
        if number:
            yield f"{_count(number, 'configuration')} {words[number > 1]}"
    if not spilling:
        yield "no spills"
    words = _PROBLEMS["lds"]
    yield f"{_count(too_large, 'configuration')} {words[too_large > 1]}" if too_large else "LDS fits"


def graph_lines(graph: DryRunGraph, terminal: Terminal) -> Iterator[str]:
    """Launches and library calls of a graph, and whether it can be captured; HTML shows the same lines."""
    state = "cannot be captured" if graph.capture_blockers else "can be captured"
    parts = f", {graph.partitions} partitions" if graph.partitions > 1 else ""
    calls = sum(extern.count for extern in graph.externs)
    launches = f"{_count(len(graph.kernels), 'launch', 'launches')}, {_count(calls, 'library call')}{parts}"
    head = terminal.wrap(f"{graph.name} ({graph.kind}): {launches}; {state}", indent="    ", first="  ")
    yield head.replace(state, terminal.paint(state, "red" if graph.capture_blockers else "green"))
    for blocker in graph.capture_blockers:
        yield terminal.wrap(f"{blocker.reason} {blocker.location}".strip(), indent="      ", first="    reason: ")
    for extern in graph.externs:
        yield f"    {extern.count} × {extern.name} → {extern.library}{_location(extern.locations, terminal)}"


def _kernel(kernel: DryRunKernel, run: DryRun, terminal: Terminal, *, verbose: bool) -> str:
    lines = [f"{terminal.paint(kernel.name, 'bold')}{_location(kernel.locations, terminal)}"]
    common = kernel.common_values
    if common:
        listed = " ".join(f"{name}={value}" for name, value in common.items())
        lines.append(terminal.paint(terminal.wrap(listed, indent="  "), "dim"))
    rows = [headings(run), *(config_cells(config, common) for config in kernel.configs if config.resources)]
    if len(rows) > 1:
        lines += _columns(rows if verbose else _fitting(rows, terminal.width), terminal.width)
    lines += [f"  {c.label_without(common)}: {terminal.paint(c.error, 'red')}" for c in kernel.configs if c.error]
    if verbose:
        lines += [f"  {c.label_without(common)}: grid {' × '.join(map(str, c.grid))}" for c in kernel.configs if c.grid]
    return "\n".join(lines)


def headings(run: DryRun) -> list[str]:
    """Column headings of the resource table, in the vendor's terms."""
    return [_HEADINGS_CUDA.get(h, h) if run.target.startswith("sm") else h for h in HEADINGS]


def config_cells(config: KernelConfig, common: Mapping[str, object]) -> list[str]:
    """One row of the resource table; `common` are the values that the kernel lists once."""
    resources = config.resources
    label = config.label_without(common)
    if resources is None:
        return [label, *[""] * (len(HEADINGS) - 1)]
    figures = (
        resources.registers,
        resources.matrix_registers,
        resources.scalar_registers,
        resources.spills,
        resources.scratch_bytes,
    )
    return [
        label,
        *map(str, figures),
        f"{resources.lds_bytes}{'' if resources.fits else ' (too much)'}",
        str(resources.occupancy),
        f"{resources.lanes_used:.0%}",
        str(resources.matrix_instructions),
        str(resources.code_bytes),
        f"{config.seconds:.1f}",
    ]


def _fitting(rows: Sequence[Sequence[str]], width: int) -> Sequence[Sequence[str]]:
    """The rows without the less important columns, if the table is wider than the terminal."""
    needed = sum(max(len(row[column]) for row in rows) + 2 for column in range(len(rows[0])))
    if needed <= width:
        return rows
    kept = [column for column, heading in enumerate(rows[0]) if heading not in _LESS_IMPORTANT]
    return [[row[column] for column in kept] for row in rows]


def _columns(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Align the cells. A table wider than the terminal is continued below, with the first column repeated."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    parts: list[list[int]] = [[0]]
    for column in range(1, len(widths)):
        if sum(widths[c] + 2 for c in (*parts[-1], column)) > width and len(parts[-1]) > 1:
            parts.append([0])
        parts[-1].append(column)
    return [
        "  " + "  ".join(row[c].rjust(widths[c]) if c else row[c].ljust(widths[c]) for c in part)
        for part in parts
        for row in rows
    ]


def differences(run: DryRun, other: DryRun) -> Iterator[str]:
    """The differences between two chips, one sentence each."""
    other_kernels = {kernel.name: kernel for kernel in other.kernels}
    names = {kernel.name for kernel in run.kernels}
    # Kernels whose configurations differ: name, and how many configurations are in `run`, in `other`, in both.
    different: list[tuple[str, int, int, int]] = []
    for kernel in run.kernels:
        other_kernel = other_kernels.get(kernel.name)
        if other_kernel is None:
            yield f"{kernel.name} exists only for {run.target}"
            continue
        spills, other_spills = min_spills(kernel), min_spills(other_kernel)
        if spills and not other_spills:
            yield f"{kernel.name} spills at least {spills} registers on {run.target}, none on {other.target}"
        failed = [sum(bool(c.error) for c in k.configs) for k in (kernel, other_kernel)]
        if failed[0] and not failed[1]:
            yield f"{kernel.name} fails to compile for {run.target}, but compiles for {other.target}"
        tried = [{(tuple(c.values.items()), c.warps) for c in k.configs} for k in (kernel, other_kernel)]
        if tried[0] != tried[1]:
            different.append((kernel.name, len(kernel.configs), len(other_kernel.configs), len(tried[0] & tried[1])))
    yield from (f"{name} exists only for {other.target}" for name in other_kernels if name not in names)
    if len(different) > _MAX_LISTED:
        sums = [sum(counts) for counts in list(zip(*different, strict=True))[1:]]
        different = [(f"{len(different)} kernels have different configurations: in total", *sums)]
    else:
        different = [(f"{name} has different configurations:", a, b, both) for name, a, b, both in different]
    for text, count, other_count, common in different:
        yield f"{text} {count} on {run.target}, {other_count} on {other.target}, {common} in common"


def min_spills(kernel: DryRunKernel) -> int:
    """Spilled registers of the configuration with the fewest spills."""
    return min((config.resources.spills for config in kernel.configs if config.resources), default=0)


def _comparison(run: DryRun, other: DryRun, terminal: Terminal) -> str:
    lines = [terminal.wrap(line, indent="    ", first="  ") for line in differences(run, other)]
    title = terminal.paint(f"{run.target} compared with {other.target} ({other.product})", "bold")
    return "\n".join([title, *(lines or ["  same kernels, same configurations"])])


def _count(number: int, singular: str, plural: str = "") -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def _location(locations: Sequence[str], terminal: Terminal) -> str:
    """The first line, and how many more there are."""
    if not locations:
        return ""
    more = f" and {_count(len(locations) - 1, 'more line')}" if len(locations) > 1 else ""
    return f"  {terminal.paint(_short(locations[0]) + more, 'dim')}"


def _short(location: str) -> str:
    """The last two parts of the path."""
    return "/".join(location.split("/")[-2:])
