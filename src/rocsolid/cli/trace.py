"""Say where the time of a profiled run goes: what the device did, what it waited for, and what to do about it.

Examples:
  rocsolid trace trace.json.gz                         figures, kernels, idle time with its cause, advice
  rocsolid trace trace.json.gz --output json           the same for programs; every time in whole nanoseconds
  rocsolid trace trace.json.gz --output html --out trace.html
  rocsolid trace trace.json.gz --stacks                also the lines of Python that launched the hottest kernels
  rocsolid trace trace.json.gz --open-perfetto p.json.gz   a trace for ui.perfetto.dev with gaps and findings in it
  rocsolid trace trace.json.gz --torch-trace logs/     the user's line for each compiled region and graph break
  rocsolid trace 4242_results.json                     rocprofv3's JSON; also its CSV and .db files
  rocsolid trace traces/ --ranks                       one trace for each rank: the straggler, exposed communication
  rocsolid trace traces/ --ranks --torch-trace logs/   the same, each rank with what its own compiler wrote
  rocsolid trace traces/ --engine ray                  the same, read by a Ray cluster that sees the folder
  rocsolid trace before.json.gz after.json.gz          two at once; rocsolid compare sets them side by side
  rocsolid trace trace.json.gz --fail-on warning       exit code 1 when there is advice

"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rocsolid.cli.fail_on import add_fail_on, fails, not_allowed
from rocsolid.cli.output import add_output, write
from rocsolid.errors import InputError, UsageError
from rocsolid.model.trace import TraceRecord
from rocsolid.model.trace_view import Timeline


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="a trace of torch's profiler or of rocprofv3; with --ranks a folder",
    )
    parser.add_argument(
        "--ranks", action="store_true", help="the files are the ranks of one job: set them side by side"
    )
    parser.add_argument(
        "--engine", choices=("processes", "ray"), help="who reads the files of --ranks, which this asks for too"
    )
    parser.add_argument(
        "--stacks", action="store_true", help="find the lines of Python that launched the hottest kernels"
    )
    parser.add_argument("--open-perfetto", type=Path, metavar="FILE", help="also write a trace that Perfetto opens")
    parser.add_argument(
        "--torch-trace",
        type=Path,
        metavar="DIR",
        help="what TORCH_TRACE wrote in the same run: compiled regions and graph breaks get the user's line",
    )
    parser.add_argument("--parquet", type=Path, metavar="DIR", help="also keep the events as Parquet files")
    add_fail_on(parser, "never")
    parser.add_argument("-v", "--verbose", action="store_true", help="show longer tables, and notes in full")
    add_output(parser, ("text", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Read, answer, judge, show."""
    # Reading multiplies no matrices. Threads for that take time, and beside them this process could not copy itself.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if args.ranks or args.engine:
        if args.stacks or args.open_perfetto or args.parquet:
            msg = "--stacks, --open-perfetto and --parquet are about one file; leave out --ranks and --engine"
            raise UsageError(msg)
        return _ranks(args)
    return answer(args.files, args)


def answer(files: Sequence[Path], args: argparse.Namespace) -> int:
    """Answer about files one after another; `rocsolid profile` ends here too."""
    from rocsolid.api.trace import read_traces

    found = read_traces(
        files,
        picture=args.output == "html",
        stacks=args.stacks,
        perfetto=getattr(args, "open_perfetto", None),
        parquet=getattr(args, "parquet", None),
        torch_trace=getattr(args, "torch_trace", None),
    )
    for written in filter(None, (getattr(args, "open_perfetto", None), getattr(args, "parquet", None))):
        sys.stderr.write(f"wrote {written}\n")
    return _show(found.record, args, found.timelines)


def _ranks(args: argparse.Namespace) -> int:
    from rocsolid.api.trace import trace_ranks

    record, refused = trace_ranks(args.files, engine=args.engine or "processes", torch_trace=args.torch_trace)
    for line in refused:
        sys.stderr.write(f"rocsolid: {line}\n")
    if not record.files:
        msg = "none of the files could be read"
        raise InputError(msg)
    return _show(record, args, {})


def _show(record: TraceRecord, args: argparse.Namespace, timelines: Mapping[str, Timeline]) -> int:
    from rocsolid.cli.render import render_trace

    shown = replace(record, findings=not_allowed(record.findings, args.allow))
    for file in shown.files:
        if file.damage or file.skipped_events:
            said = "; ".join(file.damage) or "part of it is broken"
            sys.stderr.write(f"rocsolid: {file.file}: {said}; {file.skipped_events:,} events skipped\n")
    to_file = args.out is not None
    write(render_trace(shown, args.output, verbose=args.verbose, to_file=to_file, timelines=timelines), args.out)
    return fails(shown.findings, args.fail_on)
