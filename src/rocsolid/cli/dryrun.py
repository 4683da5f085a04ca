"""Compile a workload for GPUs that are not present: resource usage of each kernel, and what fails on them.

Examples:
  rocsolid dryrun model.py:build --target gfx942
  rocsolid dryrun model.py:build --target gfx942 --target gfx950 --train
  rocsolid dryrun model.py:build --mode max-autotune --max-choices 20
  rocsolid dryrun model.py:build --compare cuda --output html --out dryrun.html
  rocsolid dryrun model.py:build --save kernels/
  rocsolid dryrun --kernels src/mypackage --target gfx942 --target gfx1100 --configs first
  rocsolid dryrun --kernels src/mypackage --tests tests/test_ops.py --target gfx942
  rocsolid dryrun --kernels add.py --kernel 'add(x=*fp32, y=*fp32, n=i32, BLOCK=1024, num_warps=4)'

A workload is a function that returns (callable, args, kwargs). A dry run needs torch and its matching Triton, but no GPU, no
ROCm and no AMD driver. No kernel is executed, so it cannot tell which configuration is fastest.
--kernels compiles every @triton.jit kernel of files and folders, without a workload. How a kernel is called is inferred from its
source and the lines that launch it, unless --kernel or --signatures says so, or --tests launches it.
Targets: gfx90a (MI210), gfx942 (MI300X), gfx950 (MI355X), gfx1100 (RX 7900 XTX), gfx1201 (RX 9070 XT).

"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rocsolid.cli.fail_on import add_fail_on, drop_allowed, exit_code_of
from rocsolid.cli.output import add_output, note, require_writable, write
from rocsolid.cli.parse_units import deadline
from rocsolid.cli.render import render_dryrun
from rocsolid.errors import UsageError
from rocsolid.model.dryrun import DryRunRecord
from rocsolid.model.progress import OnStep, Step

_DEADLINE_S = 900.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("workload", nargs="?", default="", metavar="WORKLOAD", help="file.py:function")
    parser.add_argument(
        "--kernels", nargs="+", default=[], metavar="PATH", help="compile the Triton kernels of these files and folders"
    )
    parser.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="CHIP",
        help="chip to compile for (default: gfx942; repeatable)",
    )
    parser.add_argument("--train", action="store_true", help="also compile the backward pass")
    parser.add_argument(
        "--mode", default="default", help="mode= of torch.compile: default, reduce-overhead, max-autotune, …"
    )
    parser.add_argument("--profile", default="", help="a profile whose options are added to the compile")
    parser.add_argument("--dynamic", action="store_true", help="compile with dynamic=True")
    parser.add_argument(
        "--compare", choices=("cuda",), default="", help="also compile for an H100, and report the differences"
    )
    parser.add_argument(
        "--configs",
        choices=("all", "best", "first"),
        default="all",
        help="configurations of an autotuned kernel: all that its pruning leaves, the best by spills and occupancy, or the first",
    )
    parser.add_argument(
        "--max-choices", type=int, default=8, metavar="N", help="kernels to compile per autotuning search (default: 8)"
    )
    parser.add_argument(
        "--kernel",
        action="append",
        default=[],
        metavar="SIGNATURE",
        help="with --kernels: compile only this one, 'name(argument=type, CONSTANT=value, num_warps=4)' (repeatable)",
    )
    parser.add_argument(
        "--tests",
        nargs="+",
        default=[],
        metavar="PATH",
        help="with --kernels: run these tests on fake tensors, and compile the kernels as they launch them",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="KERNEL",
        help="with --kernels: compile only this one, name or file.py:name (repeatable)",
    )
    parser.add_argument(
        "--signatures", type=Path, metavar="FILE", help="with --kernels: signatures, one per line; others are inferred"
    )
    parser.add_argument("--asm", action="store_true", help="include the assembly of each kernel in JSON and HTML")
    parser.add_argument(
        "--save", type=Path, metavar="DIR", help="write intermediate code, assembly and object files to DIR"
    )
    parser.add_argument(
        "--deadline",
        type=deadline,
        default=_DEADLINE_S,
        metavar="TIME",
        help="time limit per chip: 90s, 10m (default: 15m)",
    )
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="cache of compiled kernels (default: ~/.cache/rocsolid/dryrun)"
    )
    add_fail_on(parser, "critical")
    parser.add_argument("-v", "--verbose", action="store_true", help="show INFO findings in full, and grid sizes")
    add_output(parser, ("text", "json", "sarif", "github", "html"))


def run(args: argparse.Namespace) -> int:
    """Compile, check, report."""
    from dataclasses import replace

    if args.out:
        require_writable(args.out)
    from rocsolid.report.progress import show_steps

    with show_steps() as on_step:
        record = _record(args, on_step)
    record = replace(record, findings=drop_allowed(record.findings, args.allow))
    write(render_dryrun(record, args.output, verbose=args.verbose, to_file=args.out is not None), args.out)
    for failed in record.failed:
        note(f"rocsolid: error: {failed.error}")
    return record.failed[0].exit_code if record.failed else exit_code_of(record.findings, args.fail_on)


def _record(args: argparse.Namespace, on_step: OnStep) -> DryRunRecord:
    from rocsolid.api.dryrun import dryrun, dryrun_kernels

    shared = {
        "target": args.target or ["gfx942"],
        "compare": args.compare,
        "configs": args.configs,
        "asm": args.asm,
        "save": args.save,
        "deadline_s": args.deadline,
        "cache": args.cache,
    }
    if args.kernels:
        from rocsolid.dryrun.kernel_signature import parse_signature, read_signatures

        if args.workload:
            msg = f"pass a workload or --kernels PATH, not both; got {args.workload!r}"
            raise UsageError(msg)
        _refuse(args, "dryrun --kernels has no option", ("train", "dynamic", "profile", "mode"))
        given = [parse_signature(text) for text in args.kernel]
        signatures = [*given, *(read_signatures(args.signatures) if args.signatures else ())]
        return dryrun_kernels(
            args.kernels,
            signatures=signatures,
            tests=args.tests,
            only=[*args.only, *(signature.name for signature in given)],
            progress=lambda line: on_step(Step(what=line)),
            **shared,
        )
    if not args.workload:
        msg = "pass a workload (file.py:function), or --kernels PATH"
        raise UsageError(msg)
    _refuse(args, "the kernels of a workload are found automatically; drop", ("kernel", "tests", "only", "signatures"))
    return dryrun(
        args.workload,
        train=args.train,
        mode=args.mode,
        profile=args.profile,
        dynamic=True if args.dynamic else None,
        max_choices=args.max_choices,
        progress=on_step,
        **shared,
    )


def _refuse(args: argparse.Namespace, message: str, options: Sequence[str]) -> None:
    """Raise UsageError for options that would have no effect."""
    given = [option for option in options if getattr(args, option) not in (False, "", [], None, "default")]
    if given:
        msg = f"{message} --{given[0]}"
        raise UsageError(msg)
