"""A dry run as text for a terminal, and as JSON."""

from collections.abc import Iterator, Sequence

from rocsolid.model.codec import dumps
from rocsolid.model.dryrun import DRYRUN_SCHEMA, DryRun, DryRunGraph, DryRunKernel, DryRunRecord, KernelConfig
from rocsolid.model.finding import Severity
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
    "matrix",
    "code",
    "s",
)
_FEW = 3
_HEADINGS_CUDA = {"VGPR": "regs", "LDS": "shared"}


def dryrun_json(record: DryRunRecord) -> str:
    """The whole record; users rely on its schema."""
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
    loud = [f for f in record.findings if verbose or f.severity > Severity.INFO]
    quiet = [f for f in record.findings if f not in loud]
    blocks += [finding_text(f, terminal) for f in loud]
    if quiet:
        notes = (
            terminal.wrap(f.message, indent=" " * 16, first=f"{terminal.severity(f.severity)} {f.code} ") for f in quiet
        )
        blocks.append("\n".join(notes))
    blocks.append(summary_line(record.findings, terminal, hidden=len(quiet)))
    return "\n\n".join(blocks) + "\n"


def _headline(record: DryRunRecord, terminal: Terminal) -> str:
    what = f"{record.workload} · {record.mode}"
    what += " · training" if record.train else ""
    what += f" · profile {record.profile}" if record.profile else ""
    return terminal.paint(what, "bold")


def _run(run: DryRun, terminal: Terminal, *, verbose: bool) -> Iterator[str]:
    configs = sum(len(kernel.configs) for kernel in run.kernels)
    head = f"{run.target} {run.product} · {_many(len(run.kernels), 'kernel')} in {_many(configs, 'configuration')}"
    made = f"torch {run.torch}, Triton {run.triton}; no kernel was executed"
    yield terminal.paint(head, "bold") + terminal.paint(f"\n{made}", "dim")
    if run.notes:
        yield "\n".join(terminal.wrap(note, indent="  ", first="  note: ") for note in run.notes)
    if run.graphs:
        yield "\n".join(line for graph in run.graphs for line in graph_lines(graph, terminal))
    for found in run.breaks:
        yield terminal.wrap(f"graph break at {found.location or 'an unknown line'}: {found.reason}", indent="  ")
    for search in run.searches:
        choices = f"autotuning of {search.op} {search.shapes}: {search.choices} choices, {search.compiled} compiled"
        yield terminal.wrap(f"{choices} in {search.seconds:.0f} s, {search.failed} failed", indent="  ")
    yield from (_kernel(kernel, run, terminal, verbose=verbose) for kernel in run.kernels)


def graph_lines(graph: DryRunGraph, terminal: Terminal) -> Iterator[str]:
    """Launches and library calls of a graph, and whether it can be captured; HTML shows the same lines."""
    state = "cannot be captured" if graph.capture_blockers else "can be captured"
    parts = f", {graph.partitions} partitions" if graph.partitions > 1 else ""
    calls = sum(extern.count for extern in graph.externs)
    launches = f"{_many(len(graph.kernels), 'launch', 'launches')}, {_many(calls, 'library call')}{parts}"
    yield f"  {graph.name} ({graph.kind}): {launches}; {terminal.paint(state, 'red' if graph.capture_blockers else 'green')}"
    for blocker in graph.capture_blockers:
        yield terminal.wrap(f"{blocker.reason} {blocker.location}".strip(), indent="      ", first="    because ")
    for extern in graph.externs:
        location = f"  {terminal.paint(_short(extern.locations[0]), 'dim')}" if extern.locations else ""
        yield f"    {extern.count} × {extern.name} → {extern.library}{location}"


def _kernel(kernel: DryRunKernel, run: DryRun, terminal: Terminal, *, verbose: bool) -> str:
    location = f"  {terminal.paint(_short(kernel.locations[0]), 'dim')}" if kernel.locations else ""
    more = (
        terminal.paint(f" and {_many(len(kernel.locations) - 1, 'more line')}", "dim")
        if len(kernel.locations) > 1
        else ""
    )
    lines = [f"{terminal.paint(kernel.name, 'bold')}{location}{more}"]
    rows = [headings(run), *(config_cells(config) for config in kernel.configs if config.resources)]
    if len(rows) > 1:
        lines += _columns(rows)
    lines += [f"  {c.label}: {terminal.paint(c.error, 'red')}" for c in kernel.configs if c.error]
    if verbose:
        lines += [f"  {c.label}: grid {' × '.join(map(str, c.grid))}" for c in kernel.configs if c.grid]
    return "\n".join(lines)


def headings(run: DryRun) -> list[str]:
    """Column headings of the resource table, in the vendor's terms."""
    return [_HEADINGS_CUDA.get(h, h) if run.target.startswith("sm") else h for h in HEADINGS]


def config_cells(config: KernelConfig) -> list[str]:
    """One row of the resource table."""
    used = config.resources
    if used is None:
        return [config.label, *[""] * (len(HEADINGS) - 1)]
    figures = (used.registers, used.matrix_registers, used.scalar_registers, used.spills, used.scratch_bytes)
    return [
        config.label,
        *map(str, figures),
        f"{used.lds_bytes}{'' if used.fits else ' over'}",
        str(used.occupancy),
        f"{used.lanes_used:.0%}",
        str(used.matrix_instructions),
        str(used.code_bytes),
        f"{config.seconds:.1f}",
    ]


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            cell.ljust(w) if n == 0 else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def differences(run: DryRun, other: DryRun) -> Iterator[str]:
    """The differences between two chips, one sentence each."""
    there = {kernel.name: kernel for kernel in other.kernels}
    here = {kernel.name for kernel in run.kernels}
    tuned: list[
        tuple[str, int, int, int]
    ] = []  # kernels whose configurations differ: how many in run, in other, in both
    for kernel in run.kernels:
        twin = there.get(kernel.name)
        if twin is None:
            yield f"{kernel.name} exists only for {run.target}"
            continue
        ours, theirs = least_spills(kernel), least_spills(twin)
        if ours and not theirs:
            yield f"{kernel.name} spills at least {ours} registers on {run.target}, none on {other.target}"
        failed = [sum(bool(c.error) for c in k.configs) for k in (kernel, twin)]
        if failed[0] and not failed[1]:
            yield f"{kernel.name} fails to compile for {run.target}, but compiles for {other.target}"
        tried = [{(tuple(c.values.items()), c.warps) for c in k.configs} for k in (kernel, twin)]
        if tried[0] != tried[1]:
            tuned.append((kernel.name, len(kernel.configs), len(twin.configs), len(tried[0] & tried[1])))
    yield from (f"{name} exists only for {other.target}" for name in there if name not in here)
    if len(tuned) > _FEW:
        sums = [sum(counts) for counts in list(zip(*tuned, strict=True))[1:]]
        tuned = [(f"each of {len(tuned)} kernels", *sums)]
    for name, ours, theirs, both in tuned:
        counts = f"{ours} on {run.target}, {theirs} on {other.target}"
        yield f"{name} has different configurations: {counts}, {both} in common"


def least_spills(kernel: DryRunKernel) -> int:
    """Spilled registers of the configuration with the fewest spills."""
    return min((config.resources.spills for config in kernel.configs if config.resources), default=0)


def _comparison(run: DryRun, other: DryRun, terminal: Terminal) -> str:
    lines = [terminal.wrap(line, indent="    ", first="  ") for line in differences(run, other)]
    title = terminal.paint(f"{run.target} compared with {other.target} ({other.product})", "bold")
    return "\n".join([title, *(lines or ["  same kernels, same configurations"])])


def _many(number: int, one: str, more: str = "") -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"


def _short(location: str) -> str:
    """The last two parts of the path."""
    return "/".join(location.split("/")[-2:])
