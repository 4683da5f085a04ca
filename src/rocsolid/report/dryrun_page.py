"""A dry run as one self-contained HTML page."""

from collections.abc import Iterator
from html import escape

from rocsolid.model.dryrun import DryRun, DryRunKernel, DryRunRecord
from rocsolid.report.dryrun_text import config_cells, differences, graph_lines, headings
from rocsolid.report.html_page import finding_html, page, table
from rocsolid.report.probe_page import counts_html
from rocsolid.report.terminal import Terminal

_MAX_NAME_CHARACTERS = 26


def dryrun_html(record: DryRunRecord) -> str:
    """Findings, then for each chip its graphs, a table of all configurations, and the source of each kernel."""
    findings = "".join(finding_html(f) for f in record.findings)
    parts = [
        counts_html(record.findings),
        "<h2>Findings</h2>",
        findings or '<p class="good">No findings.</p>',
    ]
    parts += [
        f'<p class="critical">{escape(failed.target)} failed: {escape(failed.error)}</p>' for failed in record.failed
    ]
    for run in record.runs:
        parts += list(_run(run, record.compared))
    if record.compared:
        parts += list(_run(record.compared, None))
    training = " · training" if record.train else ""
    profile = f" · profile {record.profile}" if record.profile else ""
    subtitle = f"{record.workload} · {record.mode}{training}{profile}"
    return page("Dry run", subtitle, "\n".join(parts))


def _run(run: DryRun, compared: DryRun | None) -> Iterator[str]:
    yield f"<h2>{escape(run.target)} <span class='faint'>{escape(run.product)}</span></h2>"
    yield (
        f'<p class="faint">torch {escape(run.torch)}, Triton {escape(run.triton)}, {run.seconds:.0f} s; '
        "no kernel was executed, so the fastest configuration is not known</p>"
    )
    yield from (f"<p>{escape(note)}</p>" for note in run.notes)
    if run.graphs:
        lines = [line for graph in run.graphs for line in graph_lines(graph, Terminal())]
        yield f"<pre>{escape(chr(10).join(lines))}</pre>"
    yield from (f"<p>graph break at <code>{escape(b.location)}</code>: {escape(b.reason)}</p>" for b in run.breaks)
    for search in run.searches:
        yield (
            f"<p>autotuning of <code>{escape(search.op)}</code> {escape(search.shapes)}: {search.choices} choices, "
            f"{search.compiled} compiled in {search.seconds:.0f} s, {search.failed} failed</p>"
        )
    if compared:
        items = "".join(f"<li>{escape(line)}</li>" for line in differences(run, compared))
        yield f"<h3>Compared with {escape(compared.target)}</h3>"
        yield f"<ul>{items}</ul>" if items else "<p>Same kernels, same configurations.</p>"
    yield table(
        f"kernels-{run.target}",
        ["kernel", *headings(run)],
        list(_rows(run)),
        checkbox=_checkbox_label(run),
        checked=False,
    )
    yield "<h3>Sources</h3>"
    yield from (_source(run, kernel) for kernel in run.kernels)


def _rows(run: DryRun) -> Iterator[tuple[str, list[str]]]:
    for kernel in run.kernels:
        for config in kernel.configs:
            label, *figures = map(escape, config_cells(config))
            link = f'<a href="#{_anchor(run, kernel)}" title="{escape(kernel.name)}">{escape(_short_name(kernel.name))}</a>'
            cells = [f"<code>{link}</code>", label]
            cells += [f'<span class="number">{figure}</span>' for figure in figures]
            resources = config.resources
            if resources is None:
                cells[1] += f'<br><span class="critical">{escape(config.error)}</span>'
            yield "highlighted" if resources is None or resources.spills or not resources.fits else "", cells


def _checkbox_label(run: DryRun) -> str:
    return "only configurations that spill, exceed the LDS limit or fail" if any(kind for kind, _ in _rows(run)) else ""


def _anchor(run: DryRun, kernel: DryRunKernel) -> str:
    return escape(f"{run.target} {kernel.graph} {kernel.name}".replace(" ", "-"))


def _short_name(name: str) -> str:
    """Return the beginning and the end of a long name; Inductor's names list every operation and end with a number."""
    return (
        name
        if len(name) <= _MAX_NAME_CHARACTERS
        else f"{name[: _MAX_NAME_CHARACTERS // 2]}…{name[-_MAX_NAME_CHARACTERS // 2 + 1 :]}"
    )


def _source(run: DryRun, kernel: DryRunKernel) -> str:
    locations = " ".join(f"<code>{escape(location)}</code>" for location in kernel.locations)
    asm = "".join(
        f"<details><summary>assembly, {escape(config.label)}</summary><pre>{escape(config.asm)}</pre></details>"
        for config in kernel.configs
        if config.asm
    )
    return (
        f'<details class="finding is-info" id="{_anchor(run, kernel)}"><summary><code>{escape(kernel.name)}</code> '
        f'<span class="faint">{escape(kernel.origin)}, {escape(kernel.graph)}</span></summary>'
        f"<div><p>{locations}</p><pre>{escape(kernel.source.strip())}</pre>{asm}</div></details>"
    )
