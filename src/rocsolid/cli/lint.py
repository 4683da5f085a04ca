"""Find hazards of compiled, captured and ported code in Python source; nothing is run or imported.

Examples:
  rocsolid lint src                                what stands in compiled or captured code, or is reached from it
  rocsolid lint src --confidence anywhere          and what might
  rocsolid lint src --select SRC2 --ignore SRC213  rules by beginning of code, by code or by name
  rocsolid lint src --diff                         what --fix would change
  rocsolid lint src --write-baseline known.json    keep what there is, and from then on:
  rocsolid lint src --baseline known.json          only what is new
  rocsolid lint src --output sarif --out lint.sarif

`# rocsolid: allow[hazard-name] reason` allows a finding in its line; `[tool.rocsolid.lint]` in pyproject.toml holds
select, ignore, exclude, confidence, fail-on, baseline and per-file-ignores.

"""

import argparse
import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rocsolid.cli.fail_on import FAIL_ON, fails
from rocsolid.cli.output import add_output, write
from rocsolid.cli.render import render_lint
from rocsolid.errors import UsageError

if TYPE_CHECKING:
    from rocsolid.lint.options import Options
    from rocsolid.model.lint import LintRecord


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="files and folders, linted as one project (default: .)"
    )
    parser.add_argument("--select", type=_names, metavar="RULES", help="only these rules, separated by commas")
    parser.add_argument("--ignore", type=_names, metavar="RULES", help="without these rules")
    parser.add_argument("--exclude", type=_names, metavar="PATTERNS", help="files and folders to leave out")
    parser.add_argument(
        "--confidence",
        choices=("inside", "reachable", "anywhere"),
        help="the least confidence that is shown (default: reachable)",
    )
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="leave out the findings that FILE knows")
    parser.add_argument("--write-baseline", type=Path, metavar="FILE", help="write all findings to FILE and end with 0")
    parser.add_argument("--fix", action="store_true", help="carry out the fixes that are safe (extra: fix)")
    parser.add_argument("--diff", action="store_true", help="show what --fix would change, and change nothing")
    parser.add_argument("--config", type=Path, metavar="FILE", help="another pyproject.toml than the nearest")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes that read files (default: one for each core)")
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write .rocsolid/lint.db")
    parser.add_argument(
        "--fail-on", choices=FAIL_ON, help="least severity that makes the exit code 1 (default: warning)"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="why and fix with every finding, notes in full")
    add_output(parser, ("text", "json", "sarif", "github", "html"))


def run(args: argparse.Namespace) -> int:
    """Lint, then show, mend or keep."""
    if args.jobs is not None and args.jobs < 1:
        msg = f"--jobs is {args.jobs}; at least one process is needed"
        raise UsageError(msg)
    options, record = _lint(args)
    if args.write_baseline:
        from rocsolid.lint.baseline import baseline_text

        write(baseline_text(record.findings), args.write_baseline)
        return 0
    if args.fix or args.diff:
        changed = _mend(record, args)
        if args.fix and changed:
            options, record = _lint(args)
    if not args.diff:
        write(render_lint(record, args.output, verbose=args.verbose, to_file=args.out is not None), args.out)
    return fails(record.findings, options.fail_on)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _lint(args: argparse.Namespace) -> "tuple[Options, LintRecord]":
    from rocsolid.api.lint import run_lint
    from rocsolid.lint.options import find_pyproject, read_options

    paths = args.paths or [Path()]
    file = args.config or find_pyproject(paths[0])
    options = read_options(
        file,
        select=_tuple(args.select),
        ignore=_tuple(args.ignore),
        exclude=_tuple(args.exclude),
        confidence=args.confidence,
        fail_on=args.fail_on,
        baseline="" if args.write_baseline else str(args.baseline) if args.baseline else None,
    )
    root = file.parent if file else Path()
    return options, run_lint(paths, options, root=root, jobs=args.jobs, cache=not args.no_cache)


def _tuple(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _mend(record: "LintRecord", args: argparse.Namespace) -> int:
    """Write or show the fixes; how many files they change."""
    from rocsolid.api.lint import propose_fixes

    proposed = [fixed for fixed in propose_fixes(record) if fixed.after != fixed.before]
    for fixed in proposed:
        if args.diff:
            before, after = fixed.before.splitlines(keepends=True), fixed.after.splitlines(keepends=True)
            write("".join(difflib.unified_diff(before, after, f"a/{fixed.file}", f"b/{fixed.file}")), args.out)
        else:
            Path(fixed.file).write_bytes(fixed.after.encode("utf-8"))
    count = sum(len(fixed.findings) for fixed in proposed)
    verb = "would be mended" if args.diff else "mended"
    sys.stderr.write(f"{count} finding{'s' if count != 1 else ''} {verb} in {len(proposed)} files\n")
    return len(proposed)
