"""Find hazards for torch.compile, CUDA graphs and ROCm in Python source; nothing is run or imported.

Examples:
  rocsolid lint src                                findings in compiled or captured code, and in functions it calls
  rocsolid lint src --confidence anywhere          findings in all code
  rocsolid lint src --select SRC2 --ignore SRC213  rules by prefix of a code, by code or by name
  rocsolid lint src --target gfx942                also settings that cause problems on that GPU
  rocsolid lint . --all-files                      also tests, benchmarks, examples and scripts
  rocsolid lint src --diff                         show what --fix would change
  rocsolid lint src --write-baseline known.json    store all current findings
  rocsolid lint src --baseline known.json          report only new findings
  rocsolid lint src --output sarif --out lint.sarif

The comment `# rocsolid: allow[hazard-name] reason` allows a finding on its line. `[tool.rocsolid.lint]` in pyproject.toml
sets select, ignore, exclude, confidence, fail-on, baseline, target, all-files and per-file-ignores.

"""

import argparse
import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rocsolid.cli.fail_on import FAIL_ON, exit_code_of
from rocsolid.cli.output import add_output, write, write_file
from rocsolid.cli.render import render_lint
from rocsolid.errors import CannotRunError, UsageError

if TYPE_CHECKING:
    from rocsolid.lint.options import Options
    from rocsolid.model.lint import LintRecord


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="files and folders, linted as one project (default: .)"
    )
    parser.add_argument(
        "--select", type=_names, metavar="RULES", help="only these rules, separated by commas; SRC: every rule"
    )
    parser.add_argument("--ignore", type=_names, metavar="RULES", help="not these rules, separated by commas")
    parser.add_argument(
        "--exclude", type=_names, metavar="PATTERNS", help="files and folders to skip, separated by commas"
    )
    parser.add_argument(
        "--confidence",
        choices=("inside", "reachable", "anywhere"),
        help="minimum confidence to report (default: reachable)",
    )
    parser.add_argument(
        "--all-files", action="store_true", default=None, help="also tests, benchmarks, examples and scripts"
    )
    parser.add_argument(
        "--target", metavar="CHIP[@RELEASE]", help="judge values of settings for this GPU, for example gfx942@7.2.1"
    )
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="do not report the findings in FILE")
    parser.add_argument("--write-baseline", type=Path, metavar="FILE", help="write all findings to FILE, exit code 0")
    parser.add_argument("--fix", action="store_true", help="apply the safe fixes (needs the extra: fix)")
    parser.add_argument("--diff", action="store_true", help="show what --fix would change")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a pyproject.toml to use instead of the nearest")
    parser.add_argument("--jobs", type=int, metavar="N", help="number of worker processes (default: one per core)")
    parser.add_argument("--no-cache", action="store_true", help="do not use the cache of earlier results")
    parser.add_argument("--fail-on", choices=FAIL_ON, help="minimum severity for exit code 1 (default: warning)")
    parser.add_argument("-v", "--verbose", action="store_true", help="print why and fix for every finding")
    add_output(parser, ("text", "json", "sarif", "github", "html"))


def run(args: argparse.Namespace) -> int:
    """Lint, then report, fix, or write a baseline."""
    if args.jobs is not None and args.jobs < 1:
        msg = f"--jobs must be at least 1, not {args.jobs}"
        raise UsageError(msg)
    options, record = _lint(args)
    if args.write_baseline:
        from rocsolid.lint.baseline import baseline_text

        write(baseline_text(record.findings), args.write_baseline)
        return 0
    if args.fix or args.diff:
        changed = _fix(record, args)
        if args.fix and changed:
            options, record = _lint(args)
    if not args.diff:
        write(render_lint(record, args.output, verbose=args.verbose, to_file=args.out is not None), args.out)
    return exit_code_of(record.findings, options.fail_on)


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
        all_files=args.all_files,
        target=args.target,
        baseline="" if args.write_baseline else str(args.baseline) if args.baseline else None,
    )
    root = file.parent if file else Path()
    return options, run_lint(paths, options, root=root, jobs=args.jobs, cache=not args.no_cache)


def _tuple(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _fix(record: "LintRecord", args: argparse.Namespace) -> int:
    """Apply or show the fixes; returns how many files they change."""
    from rocsolid.api.lint import propose_fixes

    proposed = [fixed for fixed in propose_fixes(record) if fixed.after != fixed.before]
    for fixed in proposed:
        if args.diff:
            before, after = fixed.before.splitlines(keepends=True), fixed.after.splitlines(keepends=True)
            write("".join(difflib.unified_diff(before, after, f"a/{fixed.file}", f"b/{fixed.file}")), args.out)
        else:
            try:
                write_file(Path(fixed.file), fixed.after.encode("utf-8"))
            except OSError as error:
                msg = f"cannot write {fixed.file}: {error.strerror}; it was not changed"
                raise CannotRunError(msg) from error
    count = sum(len(fixed.findings) for fixed in proposed)
    verb = "can be fixed" if args.diff else "fixed"
    files = f"{len(proposed)} file{'s' if len(proposed) != 1 else ''}"
    sys.stderr.write(f"{count} finding{'s' if count != 1 else ''} {verb} in {files}\n")
    return len(proposed)
