"""Say where the time of a profiled run goes: what the device did, what it waited for, and what to do about it.

Examples:
  rocsolid trace trace.json.gz                         figures, kernels, idle time with its cause, advice
  rocsolid trace trace.json.gz --output json           the same for programs; every time in whole nanoseconds
  rocsolid trace trace.json.gz --output html --out trace.html
  rocsolid trace 4242_results.json                     rocprofv3's JSON; also its CSV and .db files
  rocsolid trace before.json.gz after.json.gz          two at once; rocsolid compare sets them side by side
  rocsolid trace trace.json.gz --fail-on warning       exit code 1 when there is advice

"""

import argparse
import sys
from pathlib import Path

from rocsolid.cli.output import add_output, write
from rocsolid.cli.probe import FAIL_ON, allowed, fails


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="a trace of torch's profiler or of rocprofv3"
    )
    parser.add_argument(
        "--allow", action="append", default=[], metavar="NAME", help="leave out findings by code, rule or subject"
    )
    parser.add_argument(
        "--fail-on", choices=FAIL_ON, default="never", help="least severity that makes the exit code 1 (default: never)"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show longer tables, and notes in full")
    add_output(parser, ("text", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Read, answer, judge, show."""
    from dataclasses import replace

    from rocsolid.api.tracing import trace, trace_with_timelines
    from rocsolid.cli.records import render_trace

    timelines = None
    if args.output == "html":
        record, timelines = trace_with_timelines(args.files)
    else:
        record = trace(*args.files)
    record = replace(record, findings=tuple(f for f in record.findings if not allowed(f, args.allow)))
    for file in record.files:
        if file.damage or file.skipped_events:
            said = "; ".join(file.damage) or "part of it is broken"
            sys.stderr.write(f"rocsolid: {file.file}: {said}; {file.skipped_events:,} events skipped\n")
    to_file = args.out is not None
    write(render_trace(record, args.output, verbose=args.verbose, to_file=to_file, timelines=timelines), args.out)
    return fails(record.findings, args.fail_on)
