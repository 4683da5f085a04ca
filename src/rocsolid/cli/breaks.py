"""Say where the graph of a workload breaks, why, and what to write instead.

Examples:
  rocsolid breaks work.py:build                      every break with its cause and fix
  rocsolid breaks work.py:build --fail-on break      for CI: exit code 1 when there is one
  rocsolid breaks work.py:build --quick              without Inductor: operators instead of launches
  rocsolid breaks work.py:build --output github      annotations at the lines

"""

import argparse
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

from rocsolid.cli.output import add_output, add_workload, write
from rocsolid.cli.render import render_breaks

if TYPE_CHECKING:
    from rocsolid.model.compile_log import BreakReport

FAIL_ON = ("break", "never")


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_workload(parser)
    parser.add_argument("--quick", action="store_true", help="trace only: count operators instead of kernel launches")
    parser.add_argument(
        "--fail-on", choices=FAIL_ON, default="never", help="what makes the exit code 1 (default: never)"
    )
    add_output(parser, ("text", "json", "sarif", "github", "html"))


def run(args: argparse.Namespace) -> int:
    """Compile afresh, call once, and show what broke."""
    report = _report(args)
    write(render_breaks(report, args.output, to_file=args.out is not None), args.out)
    return int(args.fail_on == "break" and bool(report.breaks))


def _report(args: argparse.Namespace) -> "BreakReport":
    from rocsolid.cli.compiles import called
    from rocsolid.measure.load_workload import load_workload
    from rocsolid.observe.breaks import find_breaks

    with redirect_stdout(sys.stderr):
        workload = load_workload(args.workload)
    reports: list[BreakReport] = []
    backend = "eager" if args.quick else "inductor"
    with _quiet_dynamo():
        called(
            lambda: reports.append(find_breaks(workload.callable, workload.args, workload.kwargs, backend=backend)),
            args.workload,
        )
    return reports[0]


@contextmanager
def _quiet_dynamo() -> Iterator[None]:
    """Dynamo warns of some breaks itself; the report says the same with its fix, and once."""
    log = logging.getLogger("torch._dynamo")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
