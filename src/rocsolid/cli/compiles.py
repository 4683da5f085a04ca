"""Compile a workload and say what the compiler did: which graphs, how long in each phase, which kernels, and why again.

Examples:
  rocsolid compiles work.py:build                     compile, call twice, tell
  rocsolid compiles work.py:build --backward          call backward on the result as well
  rocsolid compiles work.py:build --code              with the generated kernels beside the lines they came from
  rocsolid compiles work.py:build --output html --out compiles.html
  rocsolid compiles work.py:build --deadline 600      after ten minutes: all stacks, and what it was doing
  rocsolid compiles --trace /tmp/trace                read what TORCH_TRACE wrote in a run that is over
  rocsolid compiles --debug torch_compile_debug       read what TORCH_COMPILE_DEBUG=1 wrote

"""

import argparse
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocsolid.cli.output import add_output, add_workload, write
from rocsolid.cli.parse_units import count, deadline
from rocsolid.cli.render import render_compiles
from rocsolid.errors import UsageError

if TYPE_CHECKING:
    from rocsolid.model.compile_log import CompileLog

FAIL_ON = ("break", "recompile", "never")


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_workload(parser, optional=True)
    parser.add_argument("--trace", type=Path, metavar="DIR", help="read a folder or file that TORCH_TRACE wrote")
    parser.add_argument("--debug", type=Path, metavar="DIR", help="read a folder that TORCH_COMPILE_DEBUG=1 wrote")
    parser.add_argument("--calls", type=count, default=2, metavar="N", help="how often to call it (default: 2)")
    parser.add_argument("--backward", action="store_true", help="also call backward on the sum of the result")
    parser.add_argument("--mode", help="the mode of torch.compile")
    parser.add_argument("--as-is", action="store_true", help="do not put torch.compile around the workload")
    parser.add_argument("--code", action="store_true", help="show the generated kernels and the lines they came from")
    parser.add_argument(
        "--deadline", type=deadline, metavar="TIME", help="end after so long with all stacks: 90s, 10m (exit code 124)"
    )
    parser.add_argument(
        "--fail-on", choices=FAIL_ON, default="never", help="what makes the exit code 1 (default: never)"
    )
    add_output(parser, ("text", "json", "html", "github"))


def run(args: argparse.Namespace) -> int:
    """Compile and watch, or read what was written down, then show it."""
    given = [name for name in ("workload", "trace", "debug") if getattr(args, name)]
    if len(given) != 1:
        msg = "give a WORKLOAD, --trace DIR or --debug DIR, and one of them only (see rocsolid compiles --help)"
        raise UsageError(msg)
    log = _watched(args) if args.workload else _read(args)
    write(render_compiles(log, args.output, code=args.code, to_file=args.out is not None), args.out)
    failed = {"break": bool(log.breaks), "recompile": any(g.recompile for g in log.graphs)}
    return int(failed.get(args.fail_on, False))


def _watched(args: argparse.Namespace) -> "CompileLog":
    from dataclasses import replace

    from rocsolid.api.observe import compiled_workload, record_compiles
    from rocsolid.cli.progress import progress
    from rocsolid.measure.load_workload import load_workload
    from rocsolid.torchapi.dynamo.compile_phase import all_stacks

    with redirect_stdout(sys.stderr):
        workload = load_workload(args.workload)
    recorder = record_compiles()

    def doing() -> str:
        return "; ".join(str(compiling) for compiling in recorder.running())

    with progress(doing, deadline_s=args.deadline, stacks=all_stacks), recorder:
        call = compiled_workload(workload, mode=args.mode, as_is=args.as_is)
        for _ in range(args.calls):
            called(call, args.workload, backward=args.backward)
    return replace(recorder.log, workload=args.workload)


def called(call: Callable[[], Any], name: str, *, backward: bool = False) -> None:
    """One call, and backward if asked; what the workload raises becomes one line, what it prints stays out of our output."""
    from rocsolid.errors import CannotRunError, RocsolidError, first_line

    try:
        with redirect_stdout(sys.stderr):
            result = call()
            if backward:
                total(result).backward()
    except RocsolidError:
        raise
    except Exception as error:
        msg = f"the workload {name} failed when called: {type(error).__name__}: {first_line(error)}"
        raise CannotRunError(msg) from error


def total(result: Any) -> Any:  # noqa: ANN401 - whatever the workload returns
    """The sum of every tensor in the result that wants gradients."""
    from rocsolid.torchapi.pytree import leaves

    found = [leaf for leaf in leaves(result) if getattr(leaf, "requires_grad", False)]
    if not found:
        msg = "nothing in the workload's result wants gradients, so that --backward has nothing to do"
        raise UsageError(msg)
    return sum(leaf.float().sum() for leaf in found)


def _read(args: argparse.Namespace) -> "CompileLog":
    if args.trace:
        from rocsolid.observe.torch_trace_files import read_trace

        return read_trace(args.trace)
    from rocsolid.observe.debug_files import read_debug

    return read_debug(args.debug)
