"""Run the tests with every supported torch release, each in its own environment, and keep the results.

    python scripts/torch_matrix.py                         every release, every test (hours)
    python scripts/torch_matrix.py --release 2.15.0        one release
    python scripts/torch_matrix.py --ends --deadline 480   a few tests with the oldest and the newest release

Each folder of tests runs in a process of its own. Its result is written to evidence/torch-matrix.json when it ends, and it is not run
again for the same commit, so an interrupted run continues where it stopped. An environment takes 5 to 8 GB below --folder.
"""

import argparse
import datetime as dt
import json
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "evidence/torch-matrix.json"
# The Triton release that belongs to each torch release.
RELEASES = {
    "2.9.1": "3.5.1",
    "2.10.0": "3.6.0",
    "2.11.0": "3.6.0",
    "2.12.1": "3.7.0",
    "2.13.0": "3.7.1",
    "2.14.1": "3.8.0",
    "2.15.0": "3.9.0",
}
# What differs most between releases, and fits into a CI run of 30 minutes next to the whole suite.
CI_TESTS = ("tests/torchapi/test_private_api.py", "tests/torchapi/test_closed_names.py", "tests/ops/test_vendor_op.py")


def main() -> None:
    """Run the parts that have no result yet; exit 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tests", nargs="*", help="test files or folders; all if none is given")
    parser.add_argument("--release", action="append", choices=RELEASES, help="only this release; can be repeated")
    parser.add_argument(
        "--ends", action="store_true", help="a few tests with the oldest and the newest; keep no result"
    )
    parser.add_argument("--install-only", action="store_true", help="make the environments and stop")
    parser.add_argument("--folder", type=Path, default=ROOT / ".rocsolid/torch", help="where the environments are")
    parser.add_argument("--deadline", type=float, default=None, help="seconds for all tests together")
    args = parser.parse_args()
    names = list(RELEASES)
    releases = [names[0], names[-1]] if args.ends else args.release or names
    ends_at = time.monotonic() + args.deadline if args.deadline else None
    failed = False
    for release in releases:
        python = make_environment(release, args.folder)
        if python is None or args.install_only:
            continue
        for part in [" ".join(CI_TESTS)] if args.ends else args.tests or all_parts():
            kept = read_results()["releases"].get(release, {"parts": {}})["parts"].get(part)
            if not args.ends and kept and kept["commit"] == commit():
                print(f"matrix: torch {release}: {part}: done before for this commit", flush=True)
                failed |= bool(kept["failed"])
                continue
            left_s = None if ends_at is None else ends_at - time.monotonic()
            if left_s is not None and left_s <= 0:
                print(f"matrix: torch {release}: {part}: NOT RUN, no time is left", flush=True)
                continue
            result = run_tests(python, part, left_s)
            if result is None:
                print(
                    f"matrix: torch {release}: {part}: NOT FINISHED, its log is in {args.folder / release}", flush=True
                )
                continue
            skipped = sum(result["skipped"].values())
            counts = f"{result['passed']} passed, {skipped} skipped, {len(result['failed'])} failed"
            print(f"matrix: torch {release}: {part}: {counts} in {result['seconds']} s", flush=True)
            for test in result["failed"]:
                print(f"  {test}", flush=True)
            failed |= bool(result["failed"])
            if part in all_parts():
                keep(release, build(python), part, result)
    sys.exit(1 if failed else 0)


def all_parts() -> list[str]:
    """Every folder of tests, and every file that is in none."""
    tests = {file.relative_to(ROOT).parts[:2] for file in (ROOT / "tests").rglob("test_*.py")}
    return sorted("/".join(part) for part in tests)


def make_environment(release: str, folder: Path) -> Path | None:
    """Return the Python of an environment with this release; None, with a line that says so, where it cannot be installed."""
    target = folder / release
    started = time.monotonic()
    command = ["make", "--silent", f"VENV={target}", f"TORCH=torch=={release}", f"TRITON=triton=={RELEASES[release]}"]
    done = subprocess.run([*command, f"{target}/.test"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"matrix: torch {release}: NOT RUN, it cannot be installed here ({last[:200]})", flush=True)
        return None
    print(f"matrix: torch {release}: environment ready after {time.monotonic() - started:.0f} s", flush=True)
    return target / "bin/python"


def run_tests(python: Path, part: str, deadline_s: float | None) -> dict[str, Any] | None:
    """Run pytest with this Python; None if it did not end in time, or was interrupted."""
    report = python.parents[1] / "report.xml"
    report.unlink(missing_ok=True)
    started = time.monotonic()
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *part.split()]
    at = commit()
    with (python.parents[1] / "log.txt").open("a", encoding="utf-8") as log:
        try:
            done = subprocess.run(command, cwd=ROOT, check=False, timeout=deadline_s, stdout=log, stderr=log)
        except subprocess.TimeoutExpired:
            return None
    if done.returncode not in (0, 1):  # interrupted, killed, or not started: the report is missing or incomplete
        return None
    return {
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "commit": at,
        "seconds": round(time.monotonic() - started),
        **read_report(report),
    }


def build(python: Path) -> dict[str, str]:
    """The versions in an environment."""
    code = "import platform, torch, triton; print(torch.__version__, triton.__version__, platform.python_version())"
    told = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return dict(zip(("build", "triton", "python"), told.stdout.split(), strict=True))


def read_report(report: Path) -> dict[str, Any]:
    """Count passes, skips by reason and failures in a JUnit file that pytest wrote."""
    skipped: Counter[str] = Counter()
    failed: list[str] = []
    passed = 0
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif (skip := case.find("skipped")) is not None:
            skipped[skip.get("message", "")] += 1
        else:
            passed += 1
    return {"passed": passed, "skipped": dict(sorted(skipped.items())), "failed": sorted(failed)}


def commit() -> str:
    """The commit of the working tree, with a mark if files were changed since."""
    commands = (["git", "rev-parse", "--short=12", "HEAD"], ["git", "status", "--porcelain", "src", "tests"])
    head, changed = (
        subprocess.run(c, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip() for c in commands
    )
    return head + ("+changes" if changed else "")


def read_results() -> dict[str, Any]:
    """The kept results."""
    empty = {"schema": "rocsolid/torch-matrix/2", "command": "make matrix", "releases": {}}
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else empty
    return results


def keep(release: str, versions: dict[str, str], part: str, result: dict[str, Any]) -> None:
    """Add the result of one part to the file."""
    results = read_results()
    parts = results["releases"].get(release, {"parts": {}})["parts"]
    results["releases"][release] = {**versions, "parts": dict(sorted({**parts, part: result}.items()))}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def matrix_page() -> str:
    """The page with the results, for the documentation."""
    lines = [
        "# Tests by torch release",
        "",
        "`make matrix` runs the tests with every supported release and writes this table.",
        "A test that cannot apply to a release is skipped, with the reason; no test is skipped because it fails.",
        "A part is a folder of tests. A failed test is listed with the commit it ran at, until its part is run again.",
        "",
        "| torch | Triton | Python | Tests | Passed | Skipped | Failed | Date |",
        "|---|---|---|---|--:|--:|--:|---|",
    ]
    results = read_results()["releases"]
    everything = set(all_parts())
    notes = []
    for release in sorted({*RELEASES, *results}, key=lambda r: [int(part) for part in r.split(".")]):
        row = results.get(release)
        if row is None:
            lines.append(f"| {release} | {RELEASES[release]} | | not run yet | | | | |")
            continue
        parts = row["parts"]
        passed, skipped, failed = (sum(count(part)[i] for part in parts.values()) for i in range(3))
        missing = sorted(everything - {*parts})
        dates = sorted({part["date"] for part in parts.values()})
        when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        tests = f"{len(everything) - len(missing)} of {len(everything)} parts" if missing else "all"
        versions = f"| {row['build']} | {row['triton']} | {row['python']}"
        lines.append(f"{versions} | {tests} | {passed} | {skipped} | {failed} | {when} |")
        if missing:
            notes += ["", f"## Not run with {release}", "", *(f"- `{part}`" for part in missing)]
        if failed:
            names = [f"- `{test}` at {part['commit']}" for part in parts.values() for test in part["failed"]]
            notes += ["", f"## Failed with {release}", "", *names]
    return "\n".join([*lines, *notes]) + "\n"


def releases_table() -> str:
    """What was run with each release, for docs/reference/support.md."""
    lines = ["| torch | tests on the CPU | on a GPU |", "|---|---|---|"]
    results, gpu = read_results()["releases"], run_on_gpu()
    for release in RELEASES:
        row = results.get(release)
        on_cpu = "not run for this table yet"
        if row is not None:
            passed, skipped, failed = (sum(count(part)[i] for part in row["parts"].values()) for i in range(3))
            parts = f"{len(row['parts'])} of {len(all_parts())} parts, " if missing_parts(row) else ""
            last = max(part["date"] for part in row["parts"].values())
            versions = f"{row['build']}, Triton {row['triton']}, Python {row['python']}"
            on_cpu = f"{passed:,} passed, {skipped:,} skipped, {failed} failed ({parts}{versions}, {last})"
        if release == ci_release():
            on_cpu = f"CI runs every test with it; {on_cpu}"
        on_gpu = f"{gpu['device']}, {gpu['torch']}" if gpu["torch"].startswith(release) else "not run"
        lines.append(f"| {release} | {on_cpu} | {on_gpu} |")
    return "\n".join(lines)


def releases_line() -> str:
    """The same in a line, for the README."""
    from rocsolid.catalog.support import SUPPORTED_TORCH  # not installed where only the tests are run

    results, gpu = read_results()["releases"], run_on_gpu()
    failures = {r: sum(count(part)[2] for part in row["parts"].values()) for r, row in results.items()}
    partly = [r for r in RELEASES if r in results and missing_parts(results[r])]
    states = {
        "every test that ran passed with": [r for r in RELEASES if failures.get(r) == 0],
        "tests failed with": [f"{r} ({failures[r]})" for r in RELEASES if failures.get(r)],
        "this table has no run yet of": [r for r in RELEASES if r not in results],
        "some parts were not run with": partly,
    }
    said = "; ".join(f"{state} {', '.join(releases)}" for state, releases in states.items() if releases)
    return (
        f"- torch {SUPPORTED_TORCH}, Python 3.10 to 3.14, Linux. CI runs every test with {ci_release()} on the CPU. "
        f"In [the table by release](docs/generated/torch-releases.md) {said}. "
        f"On a GPU: {gpu['torch']} on one {gpu['device']} ([details](docs/reference/support.md))."
    )


def missing_parts(row: dict[str, Any]) -> bool:
    """Whether parts of the tests have no result."""
    return bool({*all_parts()} - {*row["parts"]})


def ci_release() -> str:
    """The release that `make test` uses."""
    found = re.search(r"^TORCH \?= torch==(\S+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return found[1]


def run_on_gpu() -> dict[str, str]:
    """The GPU, and the torch, of the stored measurements."""
    record: dict[str, str] = json.loads((ROOT / "evidence/quiet-on-h200.json").read_text(encoding="utf-8"))
    return record


def count(part: dict[str, Any]) -> tuple[int, int, int]:
    """Passed, skipped and failed tests of one part."""
    return part["passed"], sum(part["skipped"].values()), len(part["failed"])


if __name__ == "__main__":
    main()
