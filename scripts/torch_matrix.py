"""Run the tests with every supported torch release, each in its own environment, and keep the results.

    python scripts/torch_matrix.py                          every release, every test (hours)
    python scripts/torch_matrix.py --release 2.15.0         one release
    python scripts/torch_matrix.py --ends --deadline 1500   what CI runs: parts of the tests with the oldest and the newest release

Each folder of tests runs in a process of its own. Its result is written to evidence/torch-matrix.json when it ends, and it is not run
again for the same commit, so an interrupted run continues where it stopped. An environment takes 5 to 8 GB below --folder.
"""

import argparse
import contextlib
import datetime as dt
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

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
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
# A process group that can be ended. Not a session: Linux gives each session an equal share of the CPU, whatever `nice` says.
_GROUP: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}
_AGAIN_S = 120.0  # for tests that failed at a low priority, next to all others: some have a deadline, or measure time
INTERRUPTED = -signal.SIGINT  # the exit code of a program that was ended because no time was left
FREE_BYTES = 18e9  # for two environments at once, with what pip downloads for them
# What CI runs with the oldest and the newest release, the most telling first, because time may end. Left out are the tests that take
# long and repeat with a whole program what others of the same folder test alone: routes, searches through random programs, programs
# under `rocsolid run`, dry runs, child processes that compile again; and checks of the source, which no release changes.
LEFT_OUT = (
    "tests/torchapi/test_closed_names.py::test_all_scenarios_together_use_every_name",
    "tests/torchapi/test_closed_names.py::test_with_names_closed_a_dry_run_works_or_says_what_it_needs",
    "tests/torchapi/test_closed_names.py::test_a_torch_that_does_not_exist_yet_is_probed_once_and_works",
    "tests/torchapi/test_private_api.py::test_every_private_name_of_torch_is_declared_before_it_is_used",
    "tests/observe/test_trace_and_debug_files.py::test_a_trace_lists_every_graph",
    "tests/probe/test_settings.py::test_pth_file_is_reported_with_the_line_it_runs",
    "tests/probe/test_settings.py::test_sitecustomize_is_reported_with_file_and_line",
    "tests/probe/test_active_checks.py::test_reports_how_a_vendor_attention_fails",
    "tests/probe/test_active_checks.py::test_runs_the_remaining_checks_after_a_crash",
    "tests/runtime/test_compiled.py::test_a_trial_in_a_child_process_survives_hangs_and_crashes",
    "tests/runtime/test_launch.py",
    "tests/runtime/test_routes.py",
    "tests/runtime/capture/test_reached_state.py",
    "tests/runtime/capture/test_state_machine.py",
    "tests/optimize/test_budget.py",
    "tests/optimize/test_child_race.py",
    "tests/optimize/test_dynamo_traces.py::test_a_form_without_a_graph_keeps_all_its_guards",
    "tests/optimize/test_dynamo_traces.py::test_the_next_process_does_not_trace_an_unchanged_model",
    "tests/optimize/test_kernels_per_layer.py",
    "tests/optimize/test_optimize.py::test_a_compile_in_a_later_call_is_reported_and_can_be_avoided",
    "tests/optimize/test_progressive.py",
    "tests/optimize/test_warm_start.py",
)
CI_PARTS = ("tests/torchapi", "tests/runtime", "tests/observe", "tests/optimize", "tests/probe")


def main() -> None:
    """Run the parts that have no result yet; exit 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tests", nargs="*", help="test files or folders; all if none is given")
    parser.add_argument("--release", action="append", choices=RELEASES, help="only this release; can be repeated")
    parser.add_argument(
        "--ends", action="store_true", help="parts of the tests with the oldest and the newest; keep no result"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".rocsolid/torch", help="where the environments are")
    parser.add_argument("--deadline", type=float, default=None, help="seconds for everything, with the installation")
    args = parser.parse_args()
    ends_at = time.monotonic() + args.deadline if args.deadline is not None else None
    if args.ends:
        sys.exit(1 if run_ends(args.folder, ends_at) else 0)
    failed = False
    for release in args.release or RELEASES:
        python = make_environment(release, args.folder)
        if python is None:
            continue
        for part in args.tests or all_parts():
            kept = read_results()["releases"].get(release, {"parts": {}})["parts"].get(part)
            if kept and kept["commit"] == commit():
                print(f"matrix: torch {release}: {part}: done before for this commit", flush=True)
                failed |= bool(kept["failed"])
                continue
            result = run_part(release, python, part, left(ends_at))
            failed |= bool(result["failed"]) if result is not None else left(ends_at) != 0
            if result is not None and not result.pop("interrupted", False) and part in all_parts():
                keep(release, build(python), part, result)
    sys.exit(1 if failed else 0)


def run_ends(folder: Path, ends_at: float | None) -> bool:
    """Run the parts for CI with both releases at once; return whether something failed. What has no time left is only listed."""

    def run(release: str) -> bool:
        python = make_environment(release, folder, "ends", left(ends_at))
        failed = False
        if python is None:
            return failed
        for part in CI_PARTS:
            result = run_part(release, python, part, left(ends_at), LEFT_OUT, again=True)
            failed |= bool(result["failed"]) if result is not None else left(ends_at) != 0
        return failed

    names = list(RELEASES)
    with ThreadPoolExecutor() as pool:
        return any(list(pool.map(run, (names[-1], names[0]))))


def left(ends_at: float | None) -> float | None:
    """The seconds until then, at least 0; None without a deadline."""
    return None if ends_at is None else max(0.0, ends_at - time.monotonic())


def run_part(
    release: str, python: Path, part: str, left_s: float | None, left_out: tuple[str, ...] = (), *, again: bool = False
) -> dict[str, Any] | None:
    """Run a part of the tests and print the result; None if it has no result. With `again`, what failed is run once more."""
    if left_s == 0:
        print(f"matrix: torch {release}: {part}: NOT RUN, no time is left", flush=True)
        return None
    log = python.parents[1] / "log.txt"
    begin = log.stat().st_size if log.exists() else 0
    result = run_tests(python, part, left_s, left_out)
    if result is None:
        print(f"matrix: torch {release}: {part}: NOT FINISHED, its log is {log}", flush=True)
        return None
    if again and result["failed"]:
        second = run_tests(python, part, _AGAIN_S, left_out, again=True)
        passed = {*result["failed"]} - {*(second or result)["failed"]}
        if second is not None and passed and not second.get("interrupted"):
            print(f"matrix: torch {release}: {part}: passed when run again: {sorted(passed)}", flush=True)
            result |= {"passed": result["passed"] + len(passed), "failed": second["failed"]}
    skipped = sum(result["skipped"].values())
    counts = f"{result['passed']} passed, {skipped} skipped, {len(result['failed'])} failed"
    until = "until no time was left" if result.get("interrupted") else f"in {result['seconds']} s"
    print(f"matrix: torch {release}: {part}: {counts} {until}", flush=True)
    if result["failed"]:
        with log.open(encoding="utf-8", errors="replace") as text:
            text.seek(begin)
            print(text.read().rpartition("= FAILURES =")[2], flush=True)
    return result


def all_parts() -> list[str]:
    """Every folder of tests, and every file that is in none."""
    tests = {file.relative_to(ROOT).parts[:2] for file in (ROOT / "tests").rglob("test_*.py")}
    return sorted("/".join(part) for part in tests)


def make_environment(release: str, folder: Path, kind: str = "test", left_s: float | None = None) -> Path | None:
    """Return the Python of an environment with this release; None, with a line that says so, where it cannot be installed."""
    target = folder / release
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    if not (target / f".{kind}").exists() and shutil.disk_usage(folder).free < FREE_BYTES:
        print(f"matrix: torch {release}: NOT RUN, less than {FREE_BYTES / 1e9:.0f} GB are free in {folder}", flush=True)
        return None
    command = ["make", "--silent", f"VENV={target}", f"TORCH=torch=={release}", f"TRITON=triton=={RELEASES[release]}"]
    command += [f"TORCH_INDEX=--extra-index-url {CPU_WHEELS}"] if is_reachable(CPU_WHEELS) else []
    # No bytecode of what is never imported. Not the flags and jobs of a `make` that runs this.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")} | {"PIP_NO_COMPILE": "1"}
    code, output = run_until([*command, f"{target}/.{kind}"], left_s, env)
    if code:
        last = next((line for line in reversed(output.splitlines()) if not line.startswith("make: ")), "no message")
        reason = f"it cannot be installed here ({last[:200]})" if code > 0 else "no time was left to install it"
        print(f"matrix: torch {release}: NOT RUN, {reason}", flush=True)
        return None
    print(f"matrix: torch {release}: environment ready after {time.monotonic() - started:.0f} s", flush=True)
    return target / "bin/python"


def is_reachable(address: str) -> bool:
    """Whether a page can be read. The registry of Python has CUDA builds, which are larger than those for the CPU."""
    try:
        with urllib.request.urlopen(f"{address}/torch/", timeout=5):  # noqa: S310 - https
            return True
    except (urllib.error.URLError, TimeoutError):
        return False


def run_until(
    command: list[str], left_s: float | None, env: dict[str, str], log: IO[str] | None = None
) -> tuple[int, str]:
    """Run a program; return its exit code, and its stderr if that is not in `log`. Where no time is left, end all its processes."""
    out, err = log or subprocess.DEVNULL, log or subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=env, text=True, stdout=out, stderr=err, **_GROUP) as process:
        try:
            stderr = process.communicate(timeout=left_s)[1]
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # pytest then writes its report
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return INTERRUPTED, ""
        return process.returncode, stderr or ""


def run_tests(
    python: Path, part: str, left_s: float | None, left_out: tuple[str, ...] = (), *, again: bool = False
) -> dict[str, Any] | None:
    """Run pytest with this Python; None if it wrote no report, "interrupted" in the result if no time was left."""
    report = python.parents[1] / "report.xml"
    report.unlink(missing_ok=True)
    started = time.monotonic()
    command = [str(python), "-m", "pytest", "-q", "-rf", "-o", f"cache_dir={python.parents[1] / 'cache'}"]
    command += [f"--junitxml={report}", part, *(f"--deselect={test}" for test in left_out), *["--last-failed"] * again]
    at = commit()
    # CI requires tools that only its own environment has.
    env = {name: value for name, value in os.environ.items() if name != "ROCSOLID_CI"}
    with (python.parents[1] / "log.txt").open("a", encoding="utf-8") as log:
        code, _ = run_until(command, left_s, env, log)
    if code not in (0, 1, INTERRUPTED) or not report.exists():  # killed, not started, or no tests were found
        return None
    result = {
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "commit": at,
        "seconds": round(time.monotonic() - started),
        **read_report(report),
    }
    if code == INTERRUPTED:  # the last test has an entry, but no result
        result |= {"interrupted": True, "passed": max(0, result["passed"] - 1)}
    return result


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
    oldest, *_, newest = RELEASES
    said = "; ".join(f"{state} {', '.join(releases)}" for state, releases in states.items() if releases)
    return (
        f"- torch {SUPPORTED_TORCH}, Python 3.10 to 3.14, Linux. CI runs every test with {ci_release()} on the CPU, "
        f"and a part of them with {oldest} and {newest}. "
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
