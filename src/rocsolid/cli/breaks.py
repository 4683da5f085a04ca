"""List the graph breaks of a workload: the line, the cause and the fix of each.

Examples:
  rocsolid breaks work.py:build                      every graph break with its cause and fix
  rocsolid breaks work.py:build --fail-on warning    for CI: exit code 1 if there is a graph break
  rocsolid breaks step.py:build --as-is              a training step: only the breaks in what it compiles itself
  rocsolid breaks work.py:build --quick              trace only, without Inductor
  rocsolid breaks work.py:build --output github      annotations for GitHub

"""

import argparse
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

from rocsolid.cli.fail_on import add_fail_on, drop_allowed, exit_code_of
from rocsolid.cli.output import add_output, add_workload, check_workload, write
from rocsolid.cli.render import render_breaks
from rocsolid.torchapi.private_api import COMPILER_PACKAGES

if TYPE_CHECKING:
    from rocsolid.model.compile_log import BreakReport


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_workload(parser)
    parser.add_argument("--quick", action="store_true", help="trace only: count operators instead of kernel launches")
    parser.add_argument(
        "--as-is",
        action="store_true",
        help="do not wrap the workload in torch.compile: list the breaks in what it compiles itself, such as the model of a training step",
    )
    add_fail_on(parser, "never")
    add_output(parser, ("text", "json", "sarif", "github", "html"))


def run(args: argparse.Namespace) -> int:
    """Compile from scratch, call once, and report the graph breaks."""
    check_workload(args.workload)
    from rocsolid.observe.findings import break_findings

    report = _report(args)
    write(render_breaks(report, args.output, to_file=args.out is not None), args.out)
    return exit_code_of(drop_allowed(break_findings(report.breaks, len(report.graphs)), args.allow), args.fail_on)


def _report(args: argparse.Namespace) -> "BreakReport":
    from rocsolid.cli.compiles import call_workload
    from rocsolid.measure.load_workload import load_workload
    from rocsolid.model.progress import Step
    from rocsolid.observe.break_fix import with_fixes
    from rocsolid.observe.breaks import find_breaks
    from rocsolid.report.progress import show_steps

    reports: list[BreakReport] = []
    backend = "eager" if args.quick else "inductor"
    with show_steps() as on_step, _quiet_dynamo():
        on_step(Step(what="importing torch and building the workload", done=0, total=3))
        with redirect_stdout(sys.stderr):
            workload = load_workload(args.workload)
        on_step(Step(what="compiling and calling it", done=1, total=3))
        call_workload(
            lambda: reports.append(
                find_breaks(workload.callable, workload.args, workload.kwargs, backend=backend, as_is=args.as_is)
            ),
            args.workload,
        )
        on_step(Step(what="checking fixes", done=2, total=3))
        with redirect_stdout(sys.stderr):
            return with_fixes(reports[0], workload.callable, workload.args, workload.kwargs, as_is=args.as_is)


@contextmanager
def _quiet_dynamo() -> Iterator[None]:
    """Silence Dynamo's own warnings about graph breaks; the report contains them."""
    log = logging.getLogger(COMPILER_PACKAGES[0])
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
