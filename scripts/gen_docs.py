"""Write the documentation pages that are generated from declarations; with --check, only report outdated pages.

python scripts/gen_docs.py            # after a change in catalog/ or rules/
python scripts/gen_docs.py --check    # in CI: exit 1 if a page is outdated, missing or left over
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the benchmarks, which are not part of the package

from benchmarks.draw import drawn, page

import rocsolid
from rocsolid.catalog.breaks import BREAK_CAUSES
from rocsolid.catalog.counters import HARDWARE_COUNTERS
from rocsolid.catalog.device_peaks import DEVICE_PEAKS
from rocsolid.catalog.problems import all_problems
from rocsolid.catalog.profiles import PROFILES
from rocsolid.catalog.recompiles import RECOMPILE_CAUSES
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
GUIDES = {  # name on the pages, title of the guide
    "overview": ("overview guide", "torch.compile and CUDAGraph on ROCm"),
    "porting": ("porting guide", "torch.compile Safety on ROCm (Porting)"),
    "graphs": ("graph guide", "CUDAGraph / HIP Graph Strategy on ROCm"),
    "inductor-config": ("Inductor config guide", "Complete Inductor Configuration for ROCm"),
    "docker-defaults": ("Docker defaults guide", "Inductor & Dynamo Defaults on ROCm Docker Images"),
}
VERDICTS = {  # name on the pages, meaning
    "confirmed": ("confirmed", "correct as written"),
    "partly-confirmed": ("partly confirmed", "correct in part; the entry says which part is not"),
    "outdated": ("outdated", "was correct up to an older version"),
    "no-effect": ("no effect", "the advice changes nothing"),
    "harmful": ("harmful", "following the advice causes an error or wrong results"),
    "refuted": ("refuted", "wrong: code or a measurement shows otherwise"),
    "not-proven": ("not proven", "no workload or version is given, and we could not confirm it"),
}
GUIDE_PAGES = {  # file: title, and its sections with their titles
    "guides-modes": ("Guides checked: torch.compile modes", {"modes": "Modes"}),
    "guides-autotuning": ("Guides checked: autotuning", {"autotuning": "Autotuning"}),
    "guides-settings": (
        "Guides checked: Inductor and Dynamo settings",
        {
            "settings": "Fusion and other settings",
            "inductor-graphs": "Inductor's graphs and memory planning",
            "recompiles": "Recompile limit",
        },
    ),
    "guides-environment": (
        "Guides checked: environment variables and container images",
        {"variables": "Environment variables", "images": "Container images"},
    ),
    "guides-capture": (
        "Guides checked: CUDA graph and HIP graph capture",
        {"capture": "Capturing graphs", "rng": "Random numbers during a capture"},
    ),
    "guides-kernels-and-profiling": (
        "Guides checked: vendor operators, profiling, Triton",
        {"vendor-ops": "Vendor operators", "profiling": "Profiling", "triton": "Triton"},
    ),
}


def main() -> None:
    """Write all pages, or compare them with the files on disk."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is outdated")
    args = parser.parse_args()
    wanted = {DOCS / name: MARK + text for name, text in pages()}
    there = {file for folder in FOLDERS for file in (DOCS / folder).glob("*.md")}
    stale = [f for f, text in wanted.items() if not f.exists() or f.read_text(encoding="utf-8") != text]
    left_over = sorted(there - wanted.keys())
    if args.check:
        for file in (*stale, *left_over):
            print(f"{file.relative_to(DOCS.parent)} is outdated: run `make generate`")
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
    yield from guide_pages()
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
    """CONTRIBUTING.md as a page of the site; links that lead outside the site become plain names."""
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
    """The default in each known release; releases with the same default are merged into one line."""
    if setting.owner not in (Owner.INDUCTOR, Owner.DYNAMO):
        return ""
    rows: list[tuple[str, object]] = []
    for release in known_releases():
        table = upstream(release)
        if table and setting.id in table.values:
            rows.append((release, table.values[setting.id]))
    if not rows:
        return "\n## Default by release\nThe default depends on the machine.\n"
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


def guide_pages() -> Iterator[tuple[str, str]]:
    """An overview of the five guides, and one page per subject with every claim and its verdict."""
    claims: list[dict[str, Any]] = json.loads((DOCS / "data/guides.json").read_text(encoding="utf-8"))
    yield "generated/guides-against-facts.md", guides_overview(claims)
    for file, (title, sections) in GUIDE_PAGES.items():
        lines = [
            f"# {title}",
            "",
            "The guides and verdicts are explained in the [overview](guides-against-facts.md).",
            "",
        ]
        for topic, heading in sections.items():
            lines += [f"## {heading}", ""] if len(sections) > 1 else []
            lines += [line for c in claims if c["topic"] == topic for line in claim_lines(c)]
        yield f"generated/{file}.md", "\n".join(lines)


def guides_overview(claims: list[dict[str, Any]]) -> str:
    """Which guides were checked, what the verdicts mean, and how many claims got which verdict."""
    lines = [
        "# ROCm torch.compile guides, checked",
        "",
        (
            "Five public guides describe `torch.compile` and CUDA/HIP graphs on AMD GPUs. Much in them is correct. "
            f"We compared each of their {len(claims)} claims with torch's code, with public issues and with our own runs. "
            "Nothing was run on AMD hardware; for every statement about ROCm the source is named."
        ),
        "",
        "| Name on these pages | Title of the guide |",
        "|---|---|",
        *(f"| {name} | {title} |" for name, title in GUIDES.values()),
        "",
        "| Verdict | Meaning | Claims |",
        "|---|---|---|",
        *(
            f"| {name} | {meaning} | {sum(c['verdict'] == v for c in claims)} |"
            for v, (name, meaning) in VERDICTS.items()
        ),
        "",
        "## The claims",
        "",
    ]
    for file, (title, sections) in GUIDE_PAGES.items():
        found = [c for c in claims if c["topic"] in sections]
        wrong = sum(c["verdict"] in ("refuted", "harmful", "no-effect") for c in found)
        subject = title.removeprefix("Guides checked: ")
        lines.append(
            f"- [{subject}]({file}.md): {len(found)} claims, {wrong} of them refuted, harmful or without effect"
        )
    return "\n".join(lines) + "\n"


def claim_lines(claim: dict[str, Any]) -> Iterator[str]:
    """One claim: the claim as heading, the verdict with its reason, the evidence, and what rocsolid offers instead."""
    until = f" (correct up to {claim['until']})" if claim.get("until") else ""
    verdict = VERDICTS[claim["verdict"]][0]
    yield f"### {claim['claim']}"
    yield ""
    yield f"**{verdict[0].upper()}{verdict[1:]}{until}.** {claim['fact']}"
    yield ""
    backing = tuple(
        Evidence(rank=Rank[e["rank"].upper()], ref=e["ref"], statement=e["statement"]) for e in claim["evidence"]
    )
    yield from evidence_list(backing)
    yield ""
    yield f"With rocsolid: {claim['instead']}{planned(claim['instead'])}"
    yield ""
    yield f"*Claimed in: {claimed_in(claim['lines'])}.*"
    yield ""


def claimed_in(lines: list[str]) -> str:
    """`overview:7`, `overview:14` as "overview guide, lines 7 and 14"."""
    by_guide: dict[str, list[str]] = {}
    for line in lines:
        guide, _, number = line.partition(":")
        by_guide.setdefault(GUIDES[guide][0], []).append(number)
    return "; ".join(
        f"{guide}, {'line' if len(numbers) == 1 else 'lines'} {' and '.join(filter(None, [', '.join(numbers[:-1]), numbers[-1]]))}"
        for guide, numbers in by_guide.items()
    )


def planned(text: str) -> str:
    """A note if the text names something that rocsolid does not have yet."""
    names = re.findall(r"`rs\.(\w+)", text) + re.findall(r"`rocsolid (\w+)", text)
    missing = [n for n in dict.fromkeys(names) if n not in rocsolid.__all__ and n not in COMMANDS]
    return f" (Not implemented yet: {', '.join(missing)}.)" if missing else ""


def graph_breaks() -> str:
    """Every known cause of a graph break or a recompile, with its fix."""
    lines = [
        "# Graph breaks and recompiles: causes and fixes",
        "",
        (
            "`rocsolid breaks` and `rocsolid compiles` recognise these causes. "
            "A graph break is recognised by torch's name for it (shown with each entry) and the source line, "
            "a recompile by the Dynamo guard that failed."
        ),
        "",
        "## Graph breaks",
        "",
    ]
    lines += [line for same in by_cause(BREAK_CAUSES) for line in cause_lines(same)]
    lines += ["## Recompiles", ""]
    lines += [line for same in by_cause(RECOMPILE_CAUSES) for line in cause_lines(same)]
    return "\n".join(lines)


def by_cause(causes: tuple[KnownCause, ...]) -> list[list[KnownCause]]:
    """Entries with the same cause together: torch can report one construct under several names."""
    groups: dict[str, list[KnownCause]] = {}
    for cause in causes:
        groups.setdefault(cause.cause, []).append(cause)
    return list(groups.values())


def chips() -> str:
    """Peak figures of GPU chips, and what each hardware counter means."""
    lines = [
        "# Chips and counters",
        "",
        "`rocsolid trace` compares the hardware counters of rocprofv3 with these peak figures.",
        "For a chip that is not listed, figures are shown without a peak.",
        "Bandwidths are the vendor's figures, computed from bus and clock; we did not measure them.",
        "On a card with two dies, each die is a separate device with half of the card's memory.",
        "",
        "| Chip | Target | Memory, GB/s | Compute units | Wavefronts per unit |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {c.name} | {c.arch} | {c.memory_gb_per_s:,.1f} | {c.compute_units} | {c.waves_per_unit or 'unknown'} |"
        for c in DEVICE_PEAKS
    ]
    evidence = {str(e): e for chip in DEVICE_PEAKS for e in chip.evidence}
    lines += ["", "## Sources of the figures", "", *evidence_list(tuple(evidence.values())), ""]
    lines += ["## Counters", "", "| Counter | Figure | Meaning |", "|---|---|---|"]
    lines += [
        f"| `{m.counter}` | {m.figure.value}, value × {m.scale:g} | {m.evidence[0].statement} |"
        for m in HARDWARE_COUNTERS.values()
    ]
    return "\n".join(lines) + "\n"


def cause_lines(same: list[KnownCause]) -> Iterator[str]:
    """One cause: heading, fix, code before and after, torch's names."""
    cause = same[0]
    yield f"### {cause.cause[0].upper()}{cause.cause[1:]}"
    yield ""
    yield f"Fix: {cause.fix}."
    yield ""
    if cause.before and cause.after:
        changed = [f"- {line}" for line in cause.before.splitlines()]
        changed += [f"+ {line}" for line in cause.after.splitlines()]
        yield from ("```diff", *changed, "```", "")
    if gb_types := dict.fromkeys(gb_type.strip() for entry in same for gb_type in entry.gb_types):
        yield f"Torch's name: {', '.join(f'*{gb_type}*' for gb_type in gb_types)}."
        yield ""


def command_line() -> str:
    """The `--help` text of every command."""
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
