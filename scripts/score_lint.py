"""Measure the linter on public repositories: how many findings are right, and how many real fixes it would have found.

python scripts/score_lint.py fetch           # clone the repositories at the judged commits (not committed)
python scripts/score_lint.py run             # lint them
python scripts/score_lint.py sample --seed 7 --count 50   # findings without a verdict, with their code
python scripts/score_lint.py score           # compare the verdicts with the findings; writes evidence/lint-precision.json
python scripts/score_lint.py recall          # lint the files before each fix; writes the results into evidence/lint-fixes.json

The verdicts are in evidence/lint-verdicts.json, each with its reason, from the finding and the code alone. `seen` marks findings that
were read before the rules were final.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rocsolid.lint.options import Options
from rocsolid.lint.project import lint
from rocsolid.lint.worker_pool import default_jobs
from rocsolid.model.finding import Finding
from rocsolid.rules.engine import source_rules

ROOT: Final = Path(__file__).parents[1]
VERDICTS: Final = ROOT / "evidence/lint-verdicts.json"
PRECISION: Final = ROOT / "evidence/lint-precision.json"
FIXES: Final = ROOT / "evidence/lint-fixes.json"
CORPUS: Final = ROOT / "build/lint-corpus"
_CONTEXT_LINES: Final = 8
_NEAR_LINES: Final = 15  # between a finding and a line that a fix changes; each was then checked by hand


def main() -> None:
    """Run one of the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("fetch", "run", "sample", "score", "recall"))
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder of the repositories")
    parser.add_argument("--only", nargs="*", default=(), help="repositories")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--per-rule", type=int, default=1000, help="at most so many findings of one rule in a sample")
    parser.add_argument("--default-only", action="store_true", help="sample only what is reported by default")
    parser.add_argument("--jobs", type=int, default=default_jobs())
    args = parser.parse_args()
    repositories = read(VERDICTS)["repositories"]
    chosen = {name: about for name, about in repositories.items() if not args.only or name in args.only}
    if args.step == "fetch":
        fetch(chosen, args.corpus)
    elif args.step == "run":
        run(chosen, args.corpus, args.jobs)
    elif args.step == "sample":
        sample(chosen, args)
    elif args.step == "score":
        score(repositories, args.corpus)
    else:
        recall(args.corpus)


def read(file: Path) -> Any:
    """The content of a JSON file."""
    return json.loads(file.read_text(encoding="utf-8"))


def write(file: Path, data: object) -> None:
    """Write JSON, one row of a list per line."""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")


def fetch(repositories: Mapping[str, Any], corpus: Path) -> None:
    """Clone each repository at its commit, with its history but without old file contents."""
    for name, about in repositories.items():
        folder = corpus / name
        if not folder.exists():
            git("clone", "--filter=blob:none", "--no-checkout", f"https://github.com/{about['github']}", str(folder))
        git("-C", str(folder), "checkout", "--quiet", about["commit"])


def git(*arguments: str) -> str:
    """The output of a git command."""
    command = ["git", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout


def run(repositories: Mapping[str, Any], corpus: Path, jobs: int) -> None:
    """Lint each repository with every rule and all files, and store the findings next to it."""
    for name in repositories:
        rows, lines = lint_repository(corpus / name, jobs)
        write(corpus / f"{name}.findings.json", {"lines": lines, "findings": rows})
        sys.stdout.write(
            f"{name}: {len(rows)} findings, {sum(r['default'] for r in rows)} by default, {lines:,} lines\n"
        )


def lint_repository(folder: Path, jobs: int) -> tuple[list[dict[str, Any]], int]:
    """Return the findings of a repository, and its number of lines. `default` marks what is reported by default."""
    cache = folder.parent / ".rocsolid/lint.db"
    everything = lint([folder], Options(select=("SRC",), all_files=True), jobs=jobs, cache=cache)
    by_default = lint([folder], Options(), jobs=jobs, cache=cache)
    shown = {key(folder, finding) for finding in by_default.findings}
    rows = [row(folder, finding, default=key(folder, finding) in shown) for finding in everything.findings]
    # Regions that start in a test are not followed by default, so a finding may exist in one run only.
    known = {key(folder, finding) for finding in everything.findings}
    rows += [row(folder, f, default=True) for f in by_default.findings if key(folder, f) not in known]
    return rows, everything.lines


def key(folder: Path, finding: Finding) -> tuple[str, int, str]:
    """What identifies a finding: file, line and rule."""
    file, _, line = finding.location.rpartition(":")
    return str(Path(file).absolute().relative_to(folder.absolute())), int(line), finding.code


def row(folder: Path, finding: Finding, *, default: bool) -> dict[str, Any]:
    """A finding as a row."""
    file, line, code = key(folder, finding)
    return {
        "file": file,
        "line": line,
        "code": code,
        "severity": finding.severity.name,
        "default": default,
        "role": finding.facts["role"],
        "message": finding.message,
        "chain": finding.facts["chain"],
    }


def sample(repositories: Mapping[str, Any], args: argparse.Namespace) -> None:
    """Print findings that have no verdict yet, chosen at random, with the code around them."""
    judged = {(v["repository"], v["file"], v["line"], v["code"]) for v in read(VERDICTS)["verdicts"]}
    candidates = [
        (name, finding)
        for name in repositories
        for finding in read(args.corpus / f"{name}.findings.json")["findings"]
        if (name, finding["file"], finding["line"], finding["code"]) not in judged
        and (finding["default"] or not args.default_only)
    ]
    random.Random(args.seed).shuffle(candidates)  # noqa: S311 - a sample, not a secret
    taken: dict[str, int] = {}
    chosen: list[tuple[str, dict[str, Any]]] = []
    for name, finding in candidates:
        taken[finding["code"]] = taken.get(finding["code"], 0) + 1
        if taken[finding["code"]] <= args.per_rule and len(chosen) < args.count:
            chosen.append((name, finding))
    for name, finding in sorted(chosen, key=lambda c: (c[1]["code"], c[0], c[1]["file"], c[1]["line"])):
        default = "default" if finding["default"] else f"off {finding['role']}"
        sys.stdout.write(
            f"=== {finding['code']} {name} {finding['file']}:{finding['line']} [{default}] {finding['message']}\n"
        )
        if finding["chain"]:
            sys.stdout.write(f"  via {' > '.join(finding['chain'])}\n")
        lines = (args.corpus / name / finding["file"]).read_text(encoding="utf-8", errors="replace").splitlines()
        for number in range(finding["line"] - _CONTEXT_LINES, finding["line"] + _CONTEXT_LINES // 2 + 1):
            if 0 < number <= len(lines):
                sys.stdout.write(f"{'>' if number == finding['line'] else ' '}{lines[number - 1][:120]}\n")


def score(repositories: Mapping[str, Any], corpus: Path) -> None:
    """Count the verdicts on findings that are still reported: by rule, and of what is reported by default."""
    found: dict[tuple[str, str, int, str], dict[str, Any]] = {}
    lines = defaults = 0
    for name, about in repositories.items():
        if not (corpus / f"{name}.findings.json").exists():
            sys.stdout.write(f"{name} was not linted\n")
            continue
        data = read(corpus / f"{name}.findings.json")
        if about["in_bar"]:
            lines += data["lines"]
            defaults += sum(finding["default"] for finding in data["findings"])
        found |= {(name, f["file"], f["line"], f["code"]): f for f in data["findings"]}
    judged = [
        (verdict, found[place])
        for verdict in read(VERDICTS)["verdicts"]
        if (place := (verdict["repository"], verdict["file"], verdict["line"], verdict["code"])) in found
    ]
    reported = [(v, f) for v, f in judged if f["default"]]
    in_bar = [(v, f) for v, f in reported if repositories[v["repository"]]["in_bar"]]
    rules = {
        file.rule.code: {
            "on_by_default": file.rule.on_by_default,
            **counts([(v, f) for v, f in judged if v["code"] == file.rule.code]),
        }
        for file in source_rules()
    }
    result: dict[str, Any] = {
        "lines": lines,
        "default_findings": defaults,
        "lines_per_default_finding": round(lines / defaults) if defaults else None,
        "default": counts(in_bar),
        "default_critical": counts([(v, f) for v, f in reported if f["severity"] == "CRITICAL"]),
        "all": counts(judged),
        "by_repository": {
            name: counts([(v, f) for v, f in reported if v["repository"] == name]) for name in repositories
        },
        "rules": {code: row for code, row in rules.items() if row["judged"]},
    }
    write(PRECISION, result)
    sys.stdout.write(json.dumps({name: result[name] for name in list(result)[:6]}, indent=1) + "\n")
    for code, row in result["rules"].items():
        sys.stdout.write(f"{code} {row}\n")


def counts(judged: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, int]:
    """How many findings were judged, are true, and are worth reporting."""
    return {
        "judged": len(judged),
        "true": sum(verdict["true"] for verdict, _ in judged),
        "useful": sum(verdict["useful"] for verdict, _ in judged),
    }


def recall(corpus: Path) -> None:
    """Lint the files that each fix changes, as they were before it; a finding at a line that the fix removes counts."""
    data = read(FIXES)
    for fix in data["fixes"]:
        folder = str(corpus / fix["repository"])
        fix["found"] = sorted(set(found_before(folder, fix)))
    write(FIXES, data)
    classes = sorted({fix["cause"] for fix in data["fixes"]})
    for cause in classes:
        fixes = [fix for fix in data["fixes"] if fix["cause"] == cause]
        sys.stdout.write(f"{cause}: {sum(bool(fix['found']) for fix in fixes)} of {len(fixes)}\n")
    sys.stdout.write(f"all: {sum(bool(fix['found']) for fix in data['fixes'])} of {len(data['fixes'])}\n")


def found_before(folder: str, fix: Mapping[str, Any]) -> Iterator[str]:
    """The codes of the findings that a fix removes."""
    with tempfile.TemporaryDirectory() as temporary:
        for file in fix["files"]:
            path = Path(temporary, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(git("-C", folder, "show", f"{fix['commit']}^:{file}"), encoding="utf-8")
        before = lint([Path(temporary)], Options(), jobs=1, cache=None)
        for file in fix["files"]:
            changed = removed_lines(git("-C", folder, "diff", "-U0", f"{fix['commit']}^", fix["commit"], "--", file))
            for finding in before.findings:
                name, line, code = key(Path(temporary), finding)
                if name == file and any(abs(line - number) <= _NEAR_LINES for number in changed):
                    yield code


def removed_lines(diff: str) -> set[int]:
    """The line numbers, in the old file, that a diff removes or after which it inserts."""
    found: set[int] = set()
    for line in diff.splitlines():
        if line.startswith("@@"):
            first, _, count = line.split()[1].removeprefix("-").partition(",")
            found |= set(range(int(first), int(first) + max(int(count or 1), 1)))
    return found


if __name__ == "__main__":
    main()
