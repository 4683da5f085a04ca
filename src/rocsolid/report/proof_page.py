"""The HTML page of `rocsolid prove`, and the page of the documentation that lists all claims and who proved them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rocsolid.model.proof import CheckRun, Claim, ClaimKind, ClaimVerdict, ProofRecord
from rocsolid.report.html import Node, tag
from rocsolid.report.html_page import definitions, page
from rocsolid.report.sortable_table import Cell, sortable

_CLASSES: Final = {ClaimVerdict.REFUTED: "critical", ClaimVerdict.CONFIRMED: "good"}
_READS: Final = ("settings", "variables", "cited-source")  # checks that read files instead of running something
_NOTES: Final = {
    ClaimKind.CAPTURE_RULE: (
        "Where a runtime has several outcomes, they are those of different capture modes: "
        "[this table](capture-rules.md) shows the outcome in each mode."
    ),
    ClaimKind.GUIDE: "[Guides against facts](guides-against-facts.md) has the evidence for each.",
}
_ORDER: Final = (ClaimVerdict.REFUTED, ClaimVerdict.COULD_NOT_RUN, ClaimVerdict.CONFIRMED, ClaimVerdict.NOT_APPLICABLE)


def proof_html(record: ProofRecord) -> str:
    """Return the page: the machine, the counts, every verdict, and every check with its raw output."""
    counts = [
        tag("li", tag("b", count, class_=_CLASSES.get(verdict)), verdict.value)
        for verdict, count in record.counts().items()
    ]
    body: list[Node] = [
        tag("p", tag("b", f"SIMULATED: {record.simulated}. This record is no evidence.", class_="critical"))
        if record.simulated
        else None,
        tag("ul", counts, class_="counts"),
        tag("h2", "Machine"),
        definitions(_machine(record)),
        tag("h2", "Verdicts"),
        sortable("verdicts", ("verdict", "claim", "check", "what was seen"), _rows(record)),
        tag("h2", "Checks"),
        [_check(run) for run in record.checks],
    ]
    if record.not_run:
        body += [tag("h2", "No time"), tag("p", ", ".join(record.not_run))]
    return page("Claims checked on this machine", str(record.machine), *body, styles=("trace.css",))


def _machine(record: ProofRecord) -> dict[str, Node]:
    machine = record.machine
    rows = {
        "host (hash)": machine.host,
        "system": machine.system,
        "platform": machine.platform,
        "chips": ", ".join(f"{chip} ({arch})" for chip, arch in zip(machine.chips, machine.archs, strict=False)),
        "ROCm": machine.rocm,
        "CUDA": machine.cuda,
        "driver": machine.driver,
        "torch": machine.torch,
        "HIP of torch": machine.hip,
        "Triton": machine.triton,
        "Python": machine.python,
        "container": machine.container,
        "date": record.started_at,
        "rocsolid": f"{record.rocsolid}, code {record.code}",
        "hash of the record": record.seal,
    }
    return {label: text for label, text in rows.items() if text}


def _rows(record: ProofRecord) -> list[list[Cell]]:
    found = [(row, run.check) for run in record.checks for row in run.results]
    found.sort(key=lambda one: _ORDER.index(one[0].verdict))  # what needs attention first
    return [[row.verdict.value, row.claim, check, row.detail or "-"] for row, check in found]


def _check(run: CheckRun) -> Node:
    values = {
        row.claim: ", ".join(f"{name} = {value}" for name, value in row.seen.items()) for row in run.results if row.seen
    }
    predictions = [tag("li", str(prediction)) for row in run.results for prediction in row.predictions]
    return tag(
        "details",
        tag("summary", tag("code", run.check), f" {run.ended}, {run.seconds:.1f} s, claims: {len(run.results)}"),
        definitions(values) if values else None,
        tag("ul", predictions) if predictions else None,
        tag("pre", run.output) if run.output else None,
    )


def claims_page(claims: Sequence[Claim], decides: Mapping[str, str], records: Mapping[str, ProofRecord]) -> str:
    """Return the Markdown page of all claims. `decides` is what each check means, `records` the stored ones by name."""
    checked = [claim for claim in claims if claim.check]
    reading = sum(claim.check.partition(":")[0] in _READS for claim in checked)
    share = 100 * len(checked) / len(claims)
    on_amd = [name for name, record in records.items() if record.machine.platform == "rocm"]
    lines = [
        "# Claims and who proved them",
        "",
        (
            f"rocsolid makes {len(claims)} statements that concern ROCm, each with an id. {len(checked)} of them ({share:.0f} %) have a check "
            f"that a machine runs: for {len(checked) - reading} it runs a program, for {reading} it reads the installed files. "
            f"The other {len(claims) - len(checked)} say why no machine decides them."
        ),
        "",
        "`rocsolid prove` runs the checks; [Prove it on your GPU](../how-to/prove.md) explains how to send a record.",
        "",
        (
            f"Records from AMD GPUs: {', '.join(on_amd) or 'none yet'}. Records from other machines: "
            f"{', '.join(name for name in records if name not in on_amd) or 'none yet'}. "
            "A record says something only about its own machine: a capture rule that was confirmed on an NVIDIA GPU is confirmed for CUDA. "
            "What the rules state about HIP was seen with [the real HIP libraries, without a GPU](../background/hip-rig.md)."
        ),
        "",
        "## What each check decides",
        "",
        "| Check | A claim is confirmed if |",
        "|---|---|",
        *(f"| `{name}` | {text} |" for name, text in decides.items()),
    ]
    for kind in ClaimKind:
        group = [claim for claim in claims if claim.kind is kind]
        if group:
            count = sum(bool(claim.check) for claim in group)
            lines += [
                "",
                f"## {kind.value}: {len(group)} claims, {count} with a check",
                "",
                *([_NOTES[kind], ""] if kind in _NOTES else []),
                "| Claim | Check | Proved by |",
                "|---|---|---|",
            ]
            lines += [_claim_row(claim, records) for claim in group]
    return "\n".join(lines) + "\n"


def _claim_row(claim: Claim, records: Mapping[str, ProofRecord]) -> str:
    statement = claim.statement.replace("|", "\\|").replace("\n", " ")
    check = f"`{claim.check}`" if claim.check else f"no machine decides it: {claim.undecidable}"
    return f"| `{claim.id}`: {statement} | {check} | {'; '.join(_proofs(claim, records)) or 'nobody yet'} |"


def _proofs(claim: Claim, records: Mapping[str, ProofRecord]) -> Iterator[str]:
    """Yield the verdicts of the records in which this very statement was checked."""
    for record in records.values():
        if record.claims.get(claim.id) != claim.digest:
            continue
        for row in record.results:
            if row.claim == claim.id and row.verdict in (ClaimVerdict.CONFIRMED, ClaimVerdict.REFUTED):
                chip = ", ".join(dict.fromkeys(record.machine.archs)) or "CPU"
                mark = f"**{row.verdict.value}**" if row.verdict is ClaimVerdict.REFUTED else row.verdict.value
                yield f"{mark} on {chip}, {record.started_at[:10]}"


def refuted_claims(claims: Sequence[Claim], records: Mapping[str, ProofRecord]) -> list[str]:
    """Return the claims that a record refutes, and that have not been corrected since."""
    current = {claim.id: claim.digest for claim in claims}
    return [
        f"{row.claim}: {row.detail} ({name})"
        for name, record in records.items()
        for row in record.results
        if row.verdict is ClaimVerdict.REFUTED and current.get(row.claim) == record.claims.get(row.claim)
    ]
