"""Analyze profiler traces: GPU time by kernel, idle time by cause, and findings with fixes.

Examples:
  rocsolid trace trace.json.gz                         summary, kernels, idle time by cause, findings
  rocsolid trace trace.json.gz --output json           the same as JSON; all times in integer nanoseconds
  rocsolid trace trace.json.gz --output html --out trace.html
  rocsolid trace trace.json.gz --stacks                also the Python lines that launched the slowest kernels
  rocsolid trace trace.json.gz --perfetto p.json.gz    write a trace for ui.perfetto.dev with gaps and findings
  rocsolid trace trace.json.gz --torch-trace logs/     file:line for each compiled region and graph break
  rocsolid trace replay.json.gz --capture capture.json.gz   operators and shapes of kernels in graph replays
  rocsolid trace 4242_results.json                     rocprofv3 JSON; its CSV and .db files work too
  rocsolid trace traces/ --ranks                       one trace per rank: straggler, exposed communication
  rocsolid trace traces/ --ranks --torch-trace logs/   the same, each rank with its own TORCH_TRACE log
  rocsolid trace traces/ --engine ray                  the same, read by a Ray cluster with access to the folder
  rocsolid trace before.json.gz after.json.gz          two reports; to compare them, use rocsolid compare
  rocsolid trace trace.json.gz --fail-on warning       exit code 1 when there are findings

"""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rocsolid.cli.fail_on import add_fail_on, drop_allowed, exit_code_of
from rocsolid.cli.output import add_output, note, write
from rocsolid.errors import InputError, UsageError
from rocsolid.model.trace import TraceReport
from rocsolid.model.trace_view import Timeline


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="a trace of torch.profiler or rocprofv3; with --ranks, a folder",
    )
    parser.add_argument("--ranks", action="store_true", help="compare the ranks of one job: each file is one rank")
    parser.add_argument(
        "--engine",
        choices=("processes", "ray"),
        help="where the files of the ranks are read: in processes on this machine (default) or on a Ray cluster; implies --ranks",
    )
    parser.add_argument(
        "--stacks", action="store_true", help="find the Python lines that launched the kernels with the most time"
    )
    parser.add_argument("--perfetto", type=Path, metavar="FILE", help="also write a trace for ui.perfetto.dev")
    parser.add_argument(
        "--torch-trace",
        type=Path,
        metavar="DIR",
        help="the TORCH_TRACE folder of the same run: adds file:line to compiled regions and graph breaks",
    )
    parser.add_argument(
        "--capture",
        type=Path,
        metavar="FILE",
        help="a trace of the capture of the replayed graphs, or a folder of such traces (rs.capture(..., annotate=True)): "
        "gives their kernels operators, shapes, modules and Python lines",
    )
    parser.add_argument("--parquet", type=Path, metavar="DIR", help="also write the events as Parquet files")
    add_fail_on(parser, "never")
    parser.add_argument("-v", "--verbose", action="store_true", help="longer tables, and INFO findings in full")
    add_output(parser, ("text", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Analyze the files and print the report."""
    # Nothing here multiplies matrices. OpenBLAS threads would take time to start, and would prevent a fork for --ranks.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if args.ranks or args.engine:
        if args.stacks or args.perfetto or args.parquet or args.capture:
            msg = "--stacks, --perfetto, --parquet and --capture work on one file; remove --ranks and --engine"
            raise UsageError(msg)
        return _run_ranks(args)
    return analyze_and_print(args.files, args)


def analyze_and_print(files: Sequence[Path], args: argparse.Namespace) -> int:
    """Analyze files and print the report; also used by `rocsolid profile`."""
    from rocsolid.api.trace import analyze_traces

    analyzed = analyze_traces(
        files,
        timeline=args.output == "html",
        stacks=args.stacks,
        perfetto_file=getattr(args, "perfetto", None),
        parquet_folder=getattr(args, "parquet", None),
        torch_trace=getattr(args, "torch_trace", None),
        capture=getattr(args, "capture", None),
    )
    for written in filter(None, (getattr(args, "perfetto", None), getattr(args, "parquet", None))):
        note(f"wrote {written}")
    return _print(analyzed.report, args, analyzed.timelines)


def _run_ranks(args: argparse.Namespace) -> int:
    from rocsolid.api.trace import trace_ranks

    report, errors = trace_ranks(args.files, engine=args.engine or "processes", torch_trace=args.torch_trace)
    for line in errors:
        note(f"rocsolid: {line}")
    if not report.files:
        msg = "none of the files could be read"
        raise InputError(msg)
    return _print(report, args, {})


def _print(report: TraceReport, args: argparse.Namespace, timelines: Mapping[str, Timeline]) -> int:
    from rocsolid.cli.render import render_trace

    shown = replace(report, findings=drop_allowed(report.findings, args.allow))
    for file in shown.files:
        if file.damage or file.skipped_events:
            damage = "; ".join(file.damage) or "some events are broken"
            skipped = f"{file.skipped_events:,} event{'' if file.skipped_events == 1 else 's'} skipped"
            note(f"rocsolid: {file.file}: {damage}; {skipped}")
    to_file = args.out is not None
    write(render_trace(shown, args.output, verbose=args.verbose, to_file=to_file, timelines=timelines), args.out)
    return exit_code_of(shown.findings, args.fail_on)
