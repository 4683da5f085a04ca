"""Write the documentation pages that are made from declarations; with --check, say whether they are fresh.

python scripts/gen_docs.py            # after a change in catalog/ or rules/
python scripts/gen_docs.py --check    # in CI: exit 1 when a page is stale, missing or left over
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the benchmarks, which are no part of the package

from benchmarks.draw import drawn, page

import rocsolid
from rocsolid.catalog.breaks import BREAKS
from rocsolid.catalog.counters import HARDWARE_COUNTERS
from rocsolid.catalog.device_peaks import DEVICE_PEAKS
from rocsolid.catalog.problems import all_problems
from rocsolid.catalog.profiles import PROFILES
from rocsolid.catalog.recompiles import RECOMPILES
from rocsolid.catalog.registry import all_settings
from rocsolid.cli.app import COMMANDS
from rocsolid.model.evidence import Evidence, Rank
from rocsolid.model.known_cause import KnownCause
from rocsolid.model.setting import Owner, Setting
from rocsolid.report.capture_rules import table_page
from rocsolid.report.reference_pages import evidence_list, problem_page, profile_page, rule_page, setting_page
from rocsolid.rules.engine import all_rules
from rocsolid.torchapi.config.upstream import known_releases, upstream

DOCS = Path(__file__).parents[1] / "docs"
FOLDERS = ("rules", "settings", "problems", "profiles", "generated")
MARK = "<!-- Written by scripts/gen_docs.py from the declarations; edit those. -->\n"
VERDICTS = {
    "true": "true",
    "partly": "partly true",
    "until": "true until",
    "no-effect": "no effect",
    "harmful": "harmful",
    "wrong": "wrong",
    "unproven": "unproven",
}
TOPICS = {
    "modes": "Modes",
    "settings": "Settings",
    "variables": "Environment variables",
    "capture": "Capturing graphs",
    "rng": "Random numbers and captures",
    "vendor-ops": "Vendor operators",
    "profiling": "Profiling",
    "triton": "Triton",
    "images": "Container images",
}


def main() -> None:
    """Write all pages, or compare them with what is there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is not fresh")
    args = parser.parse_args()
    wanted = {DOCS / name: MARK + text for name, text in pages()}
    there = {file for folder in FOLDERS for file in (DOCS / folder).glob("*.md")}
    stale = [f for f, text in wanted.items() if not f.exists() or f.read_text(encoding="utf-8") != text]
    left_over = sorted(there - wanted.keys())
    if args.check:
        for file in (*stale, *left_over):
            print(f"{file.relative_to(DOCS.parent)} is not fresh: run `make generate`")
        sys.exit(1 if stale or left_over else 0)
    for file in left_over:
        file.unlink()
    for file in stale:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(wanted[file], encoding="utf-8")
    print(f"{len(wanted)} pages, {len(stale)} written, {len(left_over)} removed")


def pages() -> Iterator[tuple[str, str]]:
    """Every generated page: its path below docs/ and its text."""
    rules = all_rules()
    yield (
        "rules/index.md",
        listing("Rules", [(f"{r.rule.code} {r.rule.name}", f"{r.rule.name}.md", first(r.page)) for r in rules]),
    )
    yield from ((f"rules/{r.rule.name}.md", rule_page(r)) for r in rules)
    settings = all_settings()
    yield "settings/index.md", settings_index()
    yield from ((f"settings/{s.id}.md", setting_page(s) + defaults(s)) for s in settings)
    problems = all_problems()
    rows = [(p.title, f"{p.id}.md", f"{p.severity.name.lower()}, {p.when}") for p in problems]
    yield "problems/index.md", listing("Known problems", rows)
    yield from ((f"problems/{p.id}.md", problem_page(p)) for p in problems)
    yield "profiles/index.md", listing("Profiles", [(p.name, f"{p.name}.md", p.intent) for p in PROFILES])
    yield from ((f"profiles/{p.name}.md", profile_page(p)) for p in PROFILES)
    yield "generated/guides-against-facts.md", guides()
    yield "generated/command-line.md", command_line()
    yield "generated/graph-breaks.md", graph_breaks()
    yield "generated/capture-rules.md", table_page()
    yield "generated/chips.md", chips()
    measured, autotuned, programs = (
        json.loads((DOCS.parent / f"evidence/{name}-on-h200.json").read_text(encoding="utf-8"))
        for name in ("models", "max-autotune", "programs")
    )
    yield "generated/models.md", page(measured, "models-on-h200.svg", autotuned, programs)
    yield "generated/models-on-h200.svg", drawn(measured)
    yield "generated/contributing.md", contributing()


def contributing() -> str:
    """CONTRIBUTING.md as a page of the site; what lies outside the site is named and not linked."""
    text = (DOCS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/", "](../", text)
    return re.sub(r"\[([^\]]+)\]\((?!\.\./|http)[^)]+\)", r"`\1`", text)


def first(page: str) -> str:
    """The first sentence of a page."""
    return page.strip().partition("\n")[0]


def listing(title: str, rows: list[tuple[str, str, str]]) -> str:
    """An index page."""
    return "\n".join([f"# {title}", "", *(f"- [{name}]({file}): {text}" for name, file, text in rows)]) + "\n"


def settings_index() -> str:
    """All settings by owner."""
    titles = {
        Owner.INDUCTOR: "TorchInductor",
        Owner.DYNAMO: "TorchDynamo",
        Owner.COMPILE: "Arguments of torch.compile",
        Owner.PROCESS: "Environment variables",
    }
    lines = ["# Settings", ""]
    for owner, title in titles.items():
        rows = [f"- [{s.name}]({s.id}.md): {s.summary}" for s in all_settings() if s.owner is owner]
        lines += [f"## {title}", "", *rows, ""]
    return "\n".join(lines)


def defaults(setting: Setting) -> str:
    """The default in each release we hold, told once where it never changed."""
    if setting.owner not in (Owner.INDUCTOR, Owner.DYNAMO):
        return ""
    rows: list[tuple[str, object]] = []
    for release in known_releases():
        table = upstream(release)
        if table and setting.id in table.values:
            rows.append((release, table.values[setting.id]))
    if not rows:
        return "\n## Default by release\nIt depends on the machine.\n"
    rocm = upstream(rows[-1][0])
    differs = rocm and setting.id in rocm.hip_values
    lines = ["", "## Default by release"]
    spans: list[list[Any]] = []
    for release, value in rows:
        if spans and spans[-1][2] == value:
            spans[-1][1] = release
        else:
            spans.append([release, release, value])
    lines += [f"- {a if a == b else f'{a} to {b}'}: `{value!r}`" for a, b, value in spans]
    if differs and rocm:
        lines.append(f"- on ROCm builds: `{rocm.hip_values[setting.id]!r}`")
    return "\n".join(lines) + "\n"


def guides() -> str:
    """Every claim of the five guides with its verdict."""
    claims: list[dict[str, Any]] = json.loads((DOCS / "data/guides.json").read_text(encoding="utf-8"))
    counts = {v: sum(c["verdict"] == v for c in claims) for v in VERDICTS}
    said = ", ".join(f"{n} {VERDICTS[v]}" for v, n in counts.items() if n)
    lines = [
        "# Guides against facts",
        "",
        (
            "Five public guides on `torch.compile` and device graphs for AMD GPUs circulate, here called S0 to S4. "
            "They are why rocsolid exists, and much in them is right. "
            f"This page holds every claim of theirs against the code and against runs of our own: {said}. "
            "Each place is guide and line. Nothing here was run on AMD hardware; where a statement is about ROCm, its source is named."
        ),
        "",
    ]
    for topic, title in TOPICS.items():
        lines += [f"## {title}", ""]
        lines += [line for c in claims if c["topic"] == topic for line in claim_lines(c)]
    return "\n".join(lines)


def claim_lines(claim: dict[str, Any]) -> Iterator[str]:
    """One claim: what is said, the verdict, what is so, and what rocsolid does instead."""
    until = f" {claim['until']}" if claim.get("until") else ""
    yield f"### {claim['claim']}"
    yield ""
    yield f"**{VERDICTS[claim['verdict']]}{until}** ({', '.join(claim['places'])}). {claim['fact']}"
    yield ""
    backing = tuple(Evidence(rank=Rank[e["rank"].upper()], ref=e["ref"], says=e["says"]) for e in claim["evidence"])
    yield from evidence_list(backing)
    yield ""
    yield f"*Instead:* {claim['instead']}{planned(claim['instead'])}"
    yield ""


def planned(text: str) -> str:
    """A word of warning where a text names what is not built yet."""
    names = re.findall(r"`rs\.(\w+)", text) + re.findall(r"`rocsolid (\w+)", text)
    missing = [n for n in dict.fromkeys(names) if n not in rocsolid.__all__ and n not in COMMANDS]
    return f" (Not built yet: {', '.join(missing)}.)" if missing else ""


def graph_breaks() -> str:
    """Every cause of a break or a recompile that we have words for."""
    lines = [
        "# Graph breaks and recompiles",
        "",
        (
            "What `rocsolid breaks` and `rocsolid compiles` say about each cause, and the fix. "
            "A graph break is recognised by torch's own name for it, a recompile by the guard that failed."
        ),
        "",
        "## Why graphs break",
        "",
    ]
    lines += [line for fix in BREAKS for line in cure_lines(fix)]
    lines += ["## Why functions are compiled again", ""]
    lines += [line for fix in RECOMPILES for line in cure_lines(fix)]
    return "\n".join(lines)


def chips() -> str:
    """What counters are held against: peaks of chips, and what each counter means."""
    lines = [
        "# Chips and counters",
        "",
        "What `rocsolid trace` holds the hardware counters of rocprofv3 against.",
        "A chip that is not listed has no peak: its figures are shown without one.",
        "Bandwidths are what the vendor computes from bus and clock; we measured none.",
        "Of a card with two dies each die is a device, with half of the card's memory.",
        "",
        "| Chip | Target | Memory, GB/s | Compute units | Wavefronts a unit |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {c.name} | {c.arch} | {c.memory_gb_per_s:,.1f} | {c.compute_units} | {c.waves_per_unit or 'unknown'} |"
        for c in DEVICE_PEAKS
    ]
    evidence = {str(e): e for chip in DEVICE_PEAKS for e in chip.evidence}
    lines += ["", "## Where the figures are from", "", *evidence_list(tuple(evidence.values())), ""]
    lines += ["## Counters", "", "| Counter | Gives | Meaning |", "|---|---|---|"]
    lines += [
        f"| `{m.counter}` | {m.metric.value}, value × {m.scale:g} | {m.evidence[0].says} |"
        for m in HARDWARE_COUNTERS.values()
    ]
    return "\n".join(lines) + "\n"


def cure_lines(fix: KnownCause) -> Iterator[str]:
    """One cause: what it is, what to do, and the code before and after."""
    yield f"### {fix.cause[0].upper()}{fix.cause[1:]}"
    yield ""
    yield f"{fix.fix[0].upper()}{fix.fix[1:]}."
    yield ""
    if fix.before and fix.after:
        changed = [f"- {line}" for line in fix.before.splitlines()] + [f"+ {line}" for line in fix.after.splitlines()]
        yield from ("```diff", *changed, "```", "")
    if fix.kinds:
        yield f"Torch calls it: {', '.join(f'*{kind.strip()}*' for kind in fix.kinds)}."
        yield ""


def command_line() -> str:
    """The help of every command, as it prints it."""
    lines = ["# Command line", ""]
    for command in ("", *COMMANDS):
        done = subprocess.run(
            [sys.executable, "-m", "rocsolid", *command.split(), "--help"],
            capture_output=True,
            text=True,
            check=True,
            env={"COLUMNS": "100", "NO_COLOR": "1", "PYTHONPATH": str(DOCS.parent / "src")},
        )
        lines += [f"## rocsolid {command}".rstrip(), "", "```text", done.stdout.rstrip(), "```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
