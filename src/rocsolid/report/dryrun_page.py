"""A dry run as one self-contained HTML page."""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun, DryRunKernel, DryRunRecord
from rocsolid.report.dryrun_text import config_cells, differences, graph_lines, headings, porting_lines
from rocsolid.report.html import Html, Node, make_id, tag
from rocsolid.report.html_page import counts_html, findings_html, page, table
from rocsolid.report.terminal import Terminal

_MAX_NAME_CHARACTERS = 26


def dryrun_html(record: DryRunRecord) -> str:
    """Findings, then for each chip its graphs, a table of all configurations, and the source of each kernel."""
    failures = [tag("p", f"{f.target} failed: {f.error}", class_="critical") for f in record.failed]
    training = " · training" if record.train else ""
    profile = f" · profile {record.profile}" if record.profile else ""
    return page(
        "Dry run",
        f"{record.workload} · {record.mode}{training}{profile}",
        counts_html(record.findings),
        [tag("p", line) for line in porting_lines(record)] if record.mode == "kernels" else None,
        tag("h2", "Findings"),
        findings_html(record.findings),
        failures,
        [_run(run, record.compared) for run in record.runs],
        _run(record.compared, None) if record.compared else None,
    )


def _run(run: DryRun, compared: DryRun | None) -> Iterator[Html]:
    yield tag("h2", f"{run.target} ", tag("span", run.product, class_="faint"))
    yield tag(
        "p",
        f"torch {run.torch}, Triton {run.triton}, {run.seconds:.0f} s; "
        "no kernel was executed, so the fastest configuration is not known",
        class_="faint",
    )
    yield from (tag("p", note) for note in run.notes)
    if run.graphs:
        yield tag("pre", "\n".join(line for graph in run.graphs for line in graph_lines(graph, Terminal())))
    yield from (tag("p", "graph break at ", tag("code", b.location), f": {b.reason}") for b in run.breaks)
    for search in run.searches:
        yield tag(
            "p",
            "autotuning of ",
            tag("code", search.op),
            f" {search.shapes}: {search.choices} choices, "
            f"{search.compiled} compiled in {search.seconds:.0f} s, {search.failed} failed",
        )
    if compared:
        items = [tag("li", line) for line in differences(run, compared)]
        yield tag("h3", f"Compared with {compared.target}")
        yield tag("ul", items) if items else tag("p", "Same kernels, same configurations.")
    yield table(
        f"kernels-{run.target}",
        ["kernel", *headings(run)],
        list(_rows(run)),
        checkbox=_checkbox_label(run),
        checked=False,
    )
    if run.skipped:
        rows: list[tuple[str, list[Node]]] = [
            ("", [tag("code", s.name), tag("code", s.location), s.reason]) for s in run.skipped
        ]
        yield tag("h3", "Not compiled")
        yield table(f"skipped-{run.target}", ["kernel", "location", "reason"], rows)
    yield tag("h3", "Sources")
    yield from (_source(run, kernel) for kernel in run.kernels)


def _rows(run: DryRun) -> Iterator[tuple[str, list[Node]]]:
    for kernel in run.kernels:
        for config in kernel.configs:
            label, *figures = config_cells(config, kernel.common_values)
            link = tag("a", _short_name(kernel.name), href=f"#{_anchor(run, kernel)}", title=kernel.name)
            resources = config.resources
            error = [tag("br"), tag("span", config.error, class_="critical")] if resources is None else None
            cells: list[Node] = [tag("code", link), [label, error]]
            cells += [tag("span", figure, class_="number") for figure in figures]
            yield "highlighted" if resources is None or resources.spills or not resources.fits else "", cells


def _checkbox_label(run: DryRun) -> str:
    return "only configurations that spill, exceed the LDS limit or fail" if any(kind for kind, _ in _rows(run)) else ""


def _anchor(run: DryRun, kernel: DryRunKernel) -> str:
    return make_id(f"{run.target} {kernel.graph} {kernel.name}")


def _short_name(name: str) -> str:
    """Return the beginning and the end of a long name; Inductor's names list every operation and end with a number."""
    return (
        name
        if len(name) <= _MAX_NAME_CHARACTERS
        else f"{name[: _MAX_NAME_CHARACTERS // 2]}…{name[-_MAX_NAME_CHARACTERS // 2 + 1 :]}"
    )


def _source(run: DryRun, kernel: DryRunKernel) -> Html:
    locations: list[Node] = [[tag("code", location), " "] for location in kernel.locations]
    asm = [
        tag("details", tag("summary", f"assembly, {config.label}"), tag("pre", config.asm))
        for config in kernel.configs
        if config.asm
    ]
    origin = tag("span", f"{kernel.origin}, {kernel.graph}", class_="faint")
    signature = tag("p", tag("code", kernel.signature)) if kernel.signature else None
    common = " ".join(f"{name}={value}" for name, value in kernel.common_values.items())
    return tag(
        "details",
        tag("summary", tag("code", kernel.name), " ", origin),
        tag(
            "div",
            tag("p", locations),
            signature,
            tag("p", tag("code", common)) if common else None,
            tag("pre", kernel.source.strip()),
            asm,
        ),
        class_="finding is-info",
        id=_anchor(run, kernel),
    )
