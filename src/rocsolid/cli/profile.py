"""Profile a workload: warm up, record a few steps, then print the same report as `rocsolid trace`.

Examples:
  rocsolid profile workload.py:build                       writes trace.json.gz and prints the report
  rocsolid profile workload.py:build --steps 5 --memory    also allocated memory over time
  rocsolid profile workload.py:build --stacks              also the Python line that launched each kernel; slower
  rocsolid profile workload.py:build --output html --out profile.html
  rocsolid profile workload.py:build --rocprof             with rocprofv3 instead of torch.profiler, and hardware counters
  rocsolid profile workload.py:build --rocprof --no-counters   one run instead of four
  rocsolid profile workload.py:build --rocprof --counter SQ_WAVES --counter GRBM_GUI_ACTIVE

"""

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path

from rocsolid.cli.fail_on import add_fail_on
from rocsolid.cli.output import add_output, add_workload, check_workload, note
from rocsolid.cli.parse_units import count


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_workload(parser)
    parser.add_argument("--steps", type=count, default=3, metavar="N", help="how many calls to record (default: 3)")
    parser.add_argument("--warmups", type=count, default=3, metavar="N", help="how many warm-up calls (default: 3)")
    parser.add_argument(
        "--trace",
        type=Path,
        default=Path("trace.json.gz"),
        metavar="FILE",
        help="where to write the trace (default: trace.json.gz)",
    )
    parser.add_argument("--no-shapes", action="store_true", help="do not record input shapes")
    parser.add_argument("--stacks", action="store_true", help="record Python stacks; slower, and the trace is larger")
    parser.add_argument("--memory", action="store_true", help="record memory allocations")
    parser.add_argument(
        "--rocprof",
        action="store_true",
        help="profile with rocprofv3 instead of torch.profiler; writes to a folder next to FILE",
    )
    parser.add_argument(
        "--counter",
        action="append",
        default=[],
        metavar="NAME",
        help="with --rocprof: collect this counter (repeatable) instead of those for occupancy, L2 hit rate and bandwidth",
    )
    parser.add_argument("--no-counters", action="store_true", help="with --rocprof: record the trace only, in one run")
    add_fail_on(parser, "never")
    parser.add_argument("-v", "--verbose", action="store_true", help="longer tables, and INFO findings in full")
    parser.set_defaults(ranks=False)
    add_output(parser, ("text", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Record a trace and print the report about it."""
    from rocsolid.cli.trace import analyze_and_print
    from rocsolid.trace.read import require_extra

    check_workload(args.workload)
    require_extra()  # fail before the workload runs, not after
    if args.rocprof:
        from rocsolid.api.profile import rocprof_workload

        folder = args.trace.with_name(f"{args.trace.name.partition('.')[0]}-rocprof")
        counters = [] if args.no_counters else args.counter or None
        rocprof_run = rocprof_workload(args.workload, folder, steps=args.steps, warmups=args.warmups, counters=counters)
        note(f"wrote {', '.join(map(str, rocprof_run.files))}")
        for line in rocprof_run.failed_counters:
            note(f"rocsolid: {line}")
        return analyze_and_print(rocprof_run.files, args)
    from rocsolid.api.profile import profile_workload
    from rocsolid.report.progress import show_steps

    with show_steps() as on_step, redirect_stdout(sys.stderr):
        profiled = profile_workload(
            args.workload,
            args.trace,
            steps=args.steps,
            warmups=args.warmups,
            shapes=not args.no_shapes,
            stacks=args.stacks,
            memory=args.memory,
            on_step=on_step,
        )
    note(
        f"wrote {profiled.file}; a step takes {profiled.plain_ms:.2f} ms without the profiler and "
        f"{profiled.profiled_ms:.2f} ms with it ({profiled.overhead:+.0%})"
    )
    if profiled.without_stacks:
        note(profiled.without_stacks)
    return analyze_and_print([profiled.file], args)
