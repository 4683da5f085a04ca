"""A dry run as text for a terminal."""

from collections.abc import Iterator, Sequence

from rocsolid.model.codec import dumps
from rocsolid.model.dryrun import DRYRUN_SCHEMA, DryGraph, DryRun, DryRunRecord, Kernel, KernelConfig
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
    """The whole record; the schema is a contract."""
    parts = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return dumps(DRYRUN_SCHEMA, rocsolid=__version__, **parts)


def dryrun_text(record: DryRunRecord, terminal: Terminal, *, verbose: bool = False) -> str:
    """Each chip's graphs and kernels, what differs on the other vendor's, and what was found."""
    blocks = [_headline(record, terminal)]
    for run in record.runs:
        blocks += list(_run(run, terminal, verbose=verbose))
        if record.against:
            blocks.append(_against(run, record.against, terminal))
    blocks += [
        terminal.paint(terminal.wrap(f"nothing for {failed.target}: {failed.error}", indent="  ", first=""), "red")
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
    made = f"torch {run.torch}, Triton {run.triton}; nothing was run on a device"
    yield terminal.paint(head, "bold") + terminal.paint(f"\n{made}", "dim")
    if run.notes:
        yield "\n".join(terminal.wrap(note, indent="  ", first="  note: ") for note in run.notes)
    if run.graphs:
        yield "\n".join(line for graph in run.graphs for line in graph_lines(graph, terminal))
    for seen in run.breaks:
        yield terminal.wrap(f"graph break at {seen.place or 'an unknown line'}: {seen.reason}", indent="  ")
    for search in run.searches:
        said = f"autotuning of {search.op} {search.shapes}: {search.choices} choices, {search.compiled} compiled"
        yield terminal.wrap(f"{said} in {search.seconds:.0f} s, {search.failed} of them failed", indent="  ")
    yield from (_kernel(kernel, run, terminal, verbose=verbose) for kernel in run.kernels)


def graph_lines(graph: DryGraph, terminal: Terminal) -> Iterator[str]:
    """What a graph launches, what it calls, and whether it can be captured; HTML shows the same lines."""
    fit = "fit for capture" if not graph.unfit else "not fit for capture"
    parts = f", {graph.partitions} partitions" if graph.partitions > 1 else ""
    calls = sum(extern.count for extern in graph.externs)
    launches = f"{_many(len(graph.kernels), 'launch', 'launches')}, {_many(calls, 'library call')}{parts}"
    yield f"  {graph.name} ({graph.kind}): {launches}; {terminal.paint(fit, 'red' if graph.unfit else 'green')}"
    for unfit in graph.unfit:
        yield terminal.wrap(f"{unfit.reason} {unfit.place}".strip(), indent="      ", first="    because ")
    for extern in graph.externs:
        place = f"  {terminal.paint(_short(extern.places[0]), 'dim')}" if extern.places else ""
        yield f"    {extern.count} × {extern.name} → {extern.library}{place}"


def _kernel(kernel: Kernel, run: DryRun, terminal: Terminal, *, verbose: bool) -> str:
    place = f"  {terminal.paint(_short(kernel.places[0]), 'dim')}" if kernel.places else ""
    more = terminal.paint(f" and {_many(len(kernel.places) - 1, 'more line')}", "dim") if len(kernel.places) > 1 else ""
    lines = [f"{terminal.paint(kernel.name, 'bold')}{place}{more}"]
    rows = [headings(run), *(config_cells(config) for config in kernel.configs if config.resources)]
    if len(rows) > 1:
        lines += _columns(rows)
    lines += [f"  {c.label}: {terminal.paint(c.error, 'red')}" for c in kernel.configs if c.error]
    if verbose:
        lines += [f"  {c.label}: grid {' × '.join(map(str, c.grid))}" for c in kernel.configs if c.grid]
    return "\n".join(lines)


def headings(run: DryRun) -> list[str]:
    """Of the resource table, in the vendor's words."""
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
    """What is so here and not there, a sentence each."""
    there = {kernel.name: kernel for kernel in other.kernels}
    here = {kernel.name for kernel in run.kernels}
    tuned: list[tuple[str, int, int, int]] = []  # kernels with other configurations: how many here, there, in both
    for kernel in run.kernels:
        twin = there.get(kernel.name)
        if twin is None:
            yield f"{kernel.name} is made for {run.target} only"
            continue
        ours, theirs = least_spills(kernel), least_spills(twin)
        if ours and not theirs:
            yield f"{kernel.name} spills {ours} registers at best on {run.target}, and none on {other.target}"
        failed = [sum(bool(c.error) for c in k.configs) for k in (kernel, twin)]
        if failed[0] and not failed[1]:
            yield f"{kernel.name} fails on {run.target} and compiles on {other.target}"
        tried = [{(tuple(c.values.items()), c.warps) for c in k.configs} for k in (kernel, twin)]
        if tried[0] != tried[1]:
            tuned.append((kernel.name, len(kernel.configs), len(twin.configs), len(tried[0] & tried[1])))
    yield from (f"{name} is made for {other.target} only" for name in there if name not in here)
    if len(tuned) > _FEW:
        sums = [sum(counts) for counts in list(zip(*tuned, strict=True))[1:]]
        tuned = [(f"each of {len(tuned)} kernels", *sums)]
    for name, ours, theirs, both in tuned:
        counts = f"{ours} on {run.target}, {theirs} on {other.target}"
        yield f"{name} has other configurations: {counts}, {both} of them the same"


def least_spills(kernel: Kernel) -> int:
    """Spilled registers of the configuration that spills least."""
    return min((config.resources.spills for config in kernel.configs if config.resources), default=0)


def _against(run: DryRun, other: DryRun, terminal: Terminal) -> str:
    lines = [terminal.wrap(line, indent="    ", first="  ") for line in differences(run, other)]
    title = terminal.paint(f"{run.target} against {other.target} ({other.product})", "bold")
    return "\n".join([title, *(lines or ["  the same kernels in the same configurations"])])


def _many(number: int, one: str, more: str = "") -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"


def _short(place: str) -> str:
    """The last two parts of a path are enough to find it."""
    return "/".join(place.split("/")[-2:])
