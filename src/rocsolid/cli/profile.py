"""Profile a workload and say where its time goes: warms up, records a few steps, then answers as `rocsolid trace` does.

Examples:
  rocsolid profile workload.py:build                       writes trace.json.gz and prints the answers
  rocsolid profile workload.py:build --steps 5 --memory    also the allocator's curve
  rocsolid profile workload.py:build --stacks              also which line of Python launched what; slower
  rocsolid profile workload.py:build --output html --out profile.html
  rocsolid profile workload.py:build --rocprof             with rocprofv3 instead of torch's profiler; hardware counters too
  rocsolid profile workload.py:build --rocprof --no-counters   one run instead of four
  rocsolid profile workload.py:build --rocprof --counter SQ_WAVES --counter GRBM_GUI_ACTIVE

"""

import argparse
import sys
from pathlib import Path

from rocsolid.cli.fail_on import add_fail_on
from rocsolid.cli.output import add_output, add_workload
from rocsolid.cli.parse_units import count


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_workload(parser)
    parser.add_argument("--steps", type=count, default=3, metavar="N", help="how many calls to record (default: 3)")
    parser.add_argument("--warmups", type=count, default=3, metavar="N", help="how many calls before (default: 3)")
    parser.add_argument(
        "--trace",
        type=Path,
        default=Path("trace.json.gz"),
        metavar="FILE",
        help="where to keep it (default: trace.json.gz)",
    )
    parser.add_argument("--no-shapes", action="store_true", help="do not record the shapes of inputs")
    parser.add_argument("--stacks", action="store_true", help="record Python stacks; slower, and larger traces")
    parser.add_argument("--memory", action="store_true", help="record what the allocator does")
    parser.add_argument("--rocprof", action="store_true", help="use rocprofv3; its files go to FILE's folder")
    parser.add_argument(
        "--counter",
        action="append",
        default=[],
        metavar="NAME",
        help="with --rocprof: count this, in one run, in place of what occupancy, cache hits and bandwidth need",
    )
    parser.add_argument(
        "--no-counters", action="store_true", help="with --rocprof: one run for the trace, none for counters"
    )
    add_fail_on(parser, "never")
    parser.add_argument("-v", "--verbose", action="store_true", help="show longer tables, and notes in full")
    parser.set_defaults(ranks=False)
    add_output(parser, ("text", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Record, then answer."""
    from rocsolid.cli.trace import answer
    from rocsolid.trace.read import need_extra

    need_extra()  # said before the work, not after
    if args.rocprof:
        from rocsolid.api.profile import rocprof_workload

        folder = args.trace.with_name(f"{args.trace.name.partition('.')[0]}-rocprof")
        counters = [] if args.no_counters else args.counter or None
        wrote = rocprof_workload(args.workload, folder, steps=args.steps, warmups=args.warmups, counters=counters)
        sys.stderr.write(f"wrote {', '.join(map(str, wrote.files))}\n")
        for line in wrote.refused:
            sys.stderr.write(f"rocsolid: {line}\n")
        return answer(wrote.files, args)
    from rocsolid.api.profile import profile_workload

    done = profile_workload(
        args.workload,
        args.trace,
        steps=args.steps,
        warmups=args.warmups,
        shapes=not args.no_shapes,
        stacks=args.stacks,
        memory=args.memory,
    )
    sys.stderr.write(
        f"wrote {done.file}; a step takes {done.plain_ms:.2f} ms, under the profiler {done.profiled_ms:.2f} ms "
        f"({done.overhead:+.0%})\n"
    )
    return answer([done.file], args)
