"""Compile a workload and report every graph: compile time by phase, kernels, cache hits, recompiles and graph breaks.

Examples:
  rocsolid compiles work.py:build                     compile, call twice, report
  rocsolid compiles work.py:build --backward          also run the backward pass
  rocsolid compiles work.py:build --code              with the generated kernels and the lines they come from
  rocsolid compiles work.py:build --output html --out compiles.html
  rocsolid compiles work.py:build --deadline 600      end after ten minutes; prints the current phase and stack
  rocsolid compiles --torch-trace /tmp/trace          read the files of an earlier run with TORCH_TRACE=/tmp/trace
  rocsolid compiles --torch-debug torch_compile_debug read the folder of an earlier run with TORCH_COMPILE_DEBUG=1

"""

import argparse
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocsolid.cli.fail_on import add_fail_on, drop_allowed, exit_code_of
from rocsolid.cli.output import add_output, add_workload, check_workload, write
from rocsolid.cli.parse_units import count, deadline
from rocsolid.cli.render import render_compiles
from rocsolid.errors import UsageError

if TYPE_CHECKING:
    from rocsolid.model.compile_log import CompileLog


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_workload(parser, optional=True)
    parser.add_argument("--torch-trace", type=Path, metavar="DIR", help="read a folder or file that TORCH_TRACE wrote")
    parser.add_argument(
        "--torch-debug", type=Path, metavar="DIR", help="read a folder that TORCH_COMPILE_DEBUG=1 wrote"
    )
    parser.add_argument("--calls", type=count, default=2, metavar="N", help="number of calls (default: 2)")
    parser.add_argument("--backward", action="store_true", help="also run backward on the sum of the result")
    parser.add_argument("--mode", help="mode= of torch.compile")
    parser.add_argument("--as-is", action="store_true", help="do not wrap the workload in torch.compile")
    parser.add_argument("--code", action="store_true", help="show the generated kernels and the lines they come from")
    parser.add_argument(
        "--deadline",
        type=deadline,
        metavar="TIME",
        help="end the command after this time (90s, 10m), print the current phase and stack, exit code 124",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="at the deadline, print the stacks of all threads")
    add_fail_on(parser, "never")
    add_output(parser, ("text", "json", "html", "github"))


def run(args: argparse.Namespace) -> int:
    """Compile and record, or read the files of an earlier run, then report."""
    given = [name for name in ("workload", "torch_trace", "torch_debug") if getattr(args, name)]
    if len(given) != 1:
        msg = "give exactly one of WORKLOAD, --torch-trace DIR and --torch-debug DIR (see rocsolid compiles --help)"
        raise UsageError(msg)
    if args.workload:
        check_workload(args.workload)
    from rocsolid.observe.findings import break_findings, recompile_findings

    log = _recorded(args) if args.workload else _read(args)
    write(render_compiles(log, args.output, code=args.code, to_file=args.out is not None), args.out)
    findings = [*break_findings(log.breaks, len(log.graphs)), *recompile_findings(log.graphs)]
    return exit_code_of(drop_allowed(findings, args.allow), args.fail_on)


def _recorded(args: argparse.Namespace) -> "CompileLog":
    from dataclasses import replace

    from rocsolid.api.observe import compiled_workload, record_compiles
    from rocsolid.measure.load_workload import load_workload
    from rocsolid.report.progress import progress
    from rocsolid.torchapi.dynamo.compile_phase import all_stacks, thread_stack

    with redirect_stdout(sys.stderr):
        workload = load_workload(args.workload)
    recorder = record_compiles()

    def current() -> str:
        return "; ".join(str(compile_) for compile_ in recorder.running())

    def stack() -> str:
        return f"  stack of the main thread, innermost call last (-v prints all threads):\n{thread_stack(main_thread)}"

    main_thread = threading.main_thread().ident or 0
    with progress(current, deadline_s=args.deadline, stacks=all_stacks if args.verbose else stack), recorder:
        call = compiled_workload(workload, mode=args.mode, as_is=args.as_is)
        for _ in range(args.calls):
            call_workload(call, args.workload, backward=args.backward)
    return replace(recorder.log, workload=args.workload)


def call_workload(call: Callable[[], Any], name: str, *, backward: bool = False) -> None:
    """Call the workload once. Its output goes to stderr; an error is raised again as a CannotRunError of one line."""
    from rocsolid.errors import CannotRunError, RocsolidError, first_line

    try:
        with redirect_stdout(sys.stderr):
            result = call()
            if backward:
                sum_for_backward(result).backward()
    except RocsolidError:
        raise
    except SystemExit as ended:
        msg = f"the workload {name} called sys.exit({ended.code!r}) before it was finished"
        raise CannotRunError(msg) from ended
    except Exception as error:
        msg = f"the workload {name} failed: {type(error).__name__}: {first_line(error)}"
        raise CannotRunError(msg) from error


def sum_for_backward(result: Any) -> Any:  # noqa: ANN401 - whatever the workload returns
    """The sum of all tensors in the result that require gradients."""
    from rocsolid.torchapi.pytree import leaves

    found = [leaf for leaf in leaves(result) if getattr(leaf, "requires_grad", False)]
    if not found:
        msg = "--backward: no tensor in the workload's result has requires_grad=True"
        raise UsageError(msg)
    return sum(leaf.float().sum() for leaf in found)


def _read(args: argparse.Namespace) -> "CompileLog":
    if args.torch_trace:
        from rocsolid.observe.torch_trace_files import read_trace

        return read_trace(args.torch_trace)
    from rocsolid.observe.debug_files import read_debug

    return read_debug(args.torch_debug)
