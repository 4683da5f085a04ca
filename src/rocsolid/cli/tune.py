"""Find the settings that are really best for a workload; each is tried in a process of its own that may hang or die.

Examples:
  rocsolid tune model.py:build                              ten minutes from the fast profile; writes plan.toml
  rocsolid tune model.py:build --budget 30m --search exhaustive
  rocsolid tune model.py:build --vary inductor.freezing --vary form=compiled,eager
  rocsolid tune model.py:build --set inductor.shape_padding=false --no graph
  rocsolid tune model.py:build --deadline compile=120 --memory 64G
  rocsolid tune model.py:build --output html --out study.html
  rocsolid tune model.py:build --engine local                a trial on each visible GPU
  rocsolid tune model.py:build --engine ray://head:10001 --study postgresql://me@head/studies
  rocsolid tune train.py:step --ranks 2                      two processes a trial, as torchrun starts them
  rocsolid tune export --catalog --out evidence/NAME.json    the last study as evidence that the catalogue can cite
  rocsolid tune dashboard                                    the studies in a browser, also while they run

What is varied: `form` (compiled, regional, eager), `graph` (whether the whole call is captured), and settings by their id, as
`rocsolid settings` lists them. Each variant must answer as eager does before it is timed. The best are raced in turns beside a
control; a gain below its noise is no gain. Interrupted, the same command goes on where it was.
Then: rs.optimize(model, x, plan="plan.toml"), or rocsolid run --plan plan.toml serve.py.

"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rocsolid.cli.output import add_output, require_writable, write
from rocsolid.cli.parse_units import seconds, size
from rocsolid.cli.tune_actions import ACTIONS, act, last_study
from rocsolid.errors import InputError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from rocsolid.model.plan import Plan
    from rocsolid.model.study import TrialRecord
    from rocsolid.tune.effort import Progress
    from rocsolid.tune.isolate.trial import Limits

_BAR = 20  # characters


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "workload",
        metavar="WORKLOAD",
        help="file.py:function, which returns (callable, args, kwargs); or `export`, or `dashboard`",
    )
    parser.add_argument("record", nargs="?", type=Path, help="of `export`: a saved study (default: the last one)")
    parser.add_argument("--profile", default="fast", help="where the search begins (default: fast)")
    parser.add_argument("--from-plan", metavar="FILE", help="begin with a saved plan in place of the profile")
    add_narrowing(parser)
    parser.add_argument(
        "--search", choices=("tpe", "one-at-a-time", "exhaustive"), help="default: tpe, or one-at-a-time without Optuna"
    )
    parser.add_argument("--budget", default="10m", metavar="TIME", help="for all of it: 90s, 10m, 2h (default: 10m)")
    parser.add_argument("--trials", type=int, default=40, metavar="N", help="at most so many (default: 40)")
    parser.add_argument("--finalists", type=int, default=4, metavar="N", help="in the race at the end (default: 4)")
    parser.add_argument("--rounds", type=int, default=40, metavar="N", help="of that race, at most (default: 40)")
    parser.add_argument("--least-gain", type=float, default=0.02, metavar="R", help="less is no gain (default: 0.02)")
    parser.add_argument("--max-device-memory", default="0", metavar="SIZE", help="choose nothing that takes more: 40G")
    parser.add_argument("--max-setup", default="0", metavar="TIME", help="choose nothing that takes longer to set up")
    parser.add_argument(
        "--second",
        choices=("memory", "setup"),
        default="",
        help="search for what is good at this too; the report shows the trade",
    )
    add_limits(parser)
    parser.add_argument("--cold", action="store_true", help="empty the device's caches before every call")
    parser.add_argument(
        "--study",
        default=".rocsolid/tune.db",
        metavar="FILE|URL",
        help="where it is kept, and found again by the same command: a file, or postgresql://… (default: .rocsolid/tune.db)",
    )
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run of this study found")
    parser.add_argument(
        "--engine",
        default="",
        metavar="WHERE",
        help="local: one trial on each visible GPU; ray or ray://HOST:PORT: a cluster",
    )
    parser.add_argument(
        "--slots", type=int, default=0, metavar="N", help="how many trials at once (default: as many as GPUs)"
    )
    parser.add_argument(
        "--ranks", type=int, default=1, metavar="N", help="processes of one trial, started as torchrun does"
    )
    parser.add_argument(
        "--plan",
        type=Path,
        default=Path("plan.toml"),
        metavar="FILE",
        help="write the winner here (default: plan.toml)",
    )
    parser.add_argument("--catalog", action="store_true", help="of `export`: an evidence record, not the plan")
    parser.add_argument("--host", default="127.0.0.1", help="of `dashboard` (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, help="of `dashboard` (default: 8080)")
    parser.add_argument("-v", "--verbose", action="store_true", help="show all trials")
    add_output(parser, ("text", "json", "html"))


def add_narrowing(parser: argparse.ArgumentParser) -> None:
    """`--set`, `--vary`, `--no` and `--space`."""
    for option, metavar, said in (
        ("--set", "ID=VALUE", "a value that every variant has (repeatable)"),
        ("--vary", "ID[=A,B]", "vary this, and only what is named so; with `;` between values that hold commas"),
        ("--no", "ID", "do not vary this (repeatable)"),
    ):
        parser.add_argument(option, action="append", default=[], metavar=metavar, help=said)
    parser.add_argument("--space", type=Path, metavar="FILE", help="a TOML file with tables set and vary and a list no")


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Deadlines, memory and gradients of a trial."""
    parser.add_argument(
        "--deadline",
        action="append",
        default=[],
        metavar="PHASE=TIME",
        help="of import, build, compile (10m), capture, verify or measure; what takes longer is ended (repeatable)",
    )
    parser.add_argument(
        "--memory", default="0", metavar="SIZE", help="host memory of a trial and all its processes: 64G"
    )
    parser.add_argument("--grad", action="store_true", help="leave gradients on, as for training")


def run(args: argparse.Namespace) -> int:
    """Tune, write the plan, show the study."""
    if args.workload in ACTIONS:
        return act(args)
    if args.record is not None:
        msg = f"one workload at a time: {args.record} is one too many"
        raise UsageError(msg)
    from rocsolid.api.tune import tune
    from rocsolid.cli.render import render_study
    from rocsolid.tune.effort import Effort

    for file in filter(None, (args.plan, args.out)):
        require_writable(file)  # said before ten minutes are spent, not after
    effort = Effort(
        budget_s=seconds(args.budget),
        trials=args.trials,
        finalists=max(2, args.finalists),
        rounds=args.rounds,
        least_gain=args.least_gain,
        device_bytes=size(args.max_device_memory),
        setup_s=seconds(args.max_setup),
        second=args.second,
    )
    resumes = "what was tried is kept; the same command goes on from there\n"
    with progress(effort.budget_s, when_interrupted=resumes) as heard:
        study = tune(
            args.workload,
            profile=args.profile,
            plan=args.from_plan,
            settings=pairs(args.set, "--set"),
            vary={name: split(text) for name, text in (v.partition("=")[::2] for v in args.vary)},
            without=args.no,
            space=args.space,
            search=args.search,
            effort=effort,
            limits=limits_of(args),
            grad=args.grad,
            cold=args.cold,
            file=args.study,
            fresh=args.fresh,
            engine=args.engine,
            slots=args.slots,
            ranks=args.ranks,
            progress=heard,
        )
    with suppress(OSError):  # a convenience for `export`; the trials themselves are kept already
        last_study(args.study).write_text(study.json(), encoding="utf-8")
    _save(study.best, args.plan)
    write(render_study(study, args.output, verbose=args.verbose, to_file=args.out is not None), args.out)
    sys.stderr.write(f"the plan is in {args.plan}\n")
    return 0


def _save(plan: "Plan", file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        plan.save(file)
    except OSError as refused:
        msg = f"cannot write {file}: {refused.strerror}"
        raise InputError(msg) from refused


def limits_of(args: argparse.Namespace) -> "Limits":
    """What a trial may take, by the options."""
    from dataclasses import replace

    from rocsolid.tune.isolate.trial import Limits

    limits = Limits()
    given = {phase: seconds(text) for phase, text in pairs(args.deadline, "--deadline").items()}
    for phase in given:
        if phase not in limits.phases:
            raise UnknownNameError(kind="phase", name=phase, known=list(limits.phases))
    return replace(limits, phases={**limits.phases, **given}, memory_bytes=size(args.memory))


def pairs(texts: Sequence[str], option: str) -> Mapping[str, str]:
    """`name=value` from each."""
    for text in texts:
        if "=" not in text:
            msg = f"{option} takes name=value, and {text!r} has no '='"
            raise UsageError(msg)
    return {text.partition("=")[0]: text.partition("=")[2] for text in texts}


def split(text: str) -> list[str]:
    """Values apart from each other."""
    return [value for value in text.split(";" if ";" in text else ",") if value]


@contextmanager
def progress(budget_s: float = 0.0, when_interrupted: str = "") -> "Iterator[Progress]":
    """A bar over the budget with the best so far, rewritten in place on a terminal; elsewhere a line for each trial."""
    from rocsolid.cli.progress import progress as shown
    from rocsolid.tune.effort import Progress

    on_terminal = sys.stderr.isatty()
    clear = "\r\033[K" if on_terminal else ""
    begun = time.monotonic()
    best_so_far = at = ""

    def doing() -> str:
        spent = min(1.0, (time.monotonic() - begun) / budget_s) if budget_s else 0.0
        bar = f"[{'#' * round(_BAR * spent):<{_BAR}}] " if budget_s else ""
        return f"{bar}{best_so_far}{at}"

    def phase(text: str) -> None:
        nonlocal at
        at = text

    def trial(record: "TrialRecord", done: "Sequence[TrialRecord]", left_s: float) -> None:
        nonlocal best_so_far
        best = min((t for t in done if t.timing), key=lambda t: t.timing.median_ms if t.timing else 0.0, default=None)
        best_so_far = f"best {best.timing} · " if best else ""
        came_to = str(record.timing) if record.timing else f"{record.kind}, {record.reason}"
        so_far = f"; best {best.timing} ({best.name})" if best else ""
        line = f"{record.number}: {record.name}: {came_to}{so_far}; {left_s:.0f} s left for trials"
        sys.stderr.write(f"{clear}{line}\n")

    try:
        with shown(doing) if on_terminal else nullcontext():
            yield Progress(phase=phase, trial=trial)
    except KeyboardInterrupt:
        sys.stderr.write(f"{clear}{when_interrupted}")
        raise
