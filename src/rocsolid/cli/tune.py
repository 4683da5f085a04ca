"""Find the fastest settings for a workload. Each variant runs in its own process, which may hang or crash without harm.

Examples:
  rocsolid tune model.py:build                              takes 10 minutes, starts from the profile fast, writes plan.toml
  rocsolid tune model.py:build --budget 30m --search exhaustive
  rocsolid tune model.py:build --vary inductor.freezing --vary form=compiled,eager
  rocsolid tune model.py:build --set inductor.shape_padding=false --exclude graph
  rocsolid tune model.py:build --deadline compile=120 --memory 64G
  rocsolid tune model.py:build --output html --out study.html
  rocsolid tune model.py:build --engine local                one trial on each visible GPU
  rocsolid tune model.py:build --engine ray://head:10001 --study postgresql://me@head/studies
  rocsolid tune train.py:step --ranks 2                      two processes per trial, started as torchrun does
  rocsolid tune export --catalog --out evidence/NAME.json    the last study as evidence that the catalogue can cite
  rocsolid tune dashboard                                    show the studies in a browser, also while they run

What is varied:
  form     compiled: compile the whole model; regional: compile each repeated layer; eager: do not compile
  graph    true: capture the whole call in a CUDA graph or HIP graph
  ID       a setting by its id; `rocsolid settings` lists them

The search starts from the baseline: the profile, compiled and, on a GPU, captured in a graph. Each variant's results are compared with
eager before it is timed. In a final comparison, the best variants and the baseline take turns in fresh processes. A gain that is smaller
than the difference between identical processes counts as none. After an interruption, the same command continues the study.
Use the result with rs.optimize(model, x, plan="plan.toml") or rocsolid run --plan plan.toml serve.py.

"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rocsolid.cli.output import add_output, announce_plan, note, require_writable, write
from rocsolid.cli.parse_units import seconds, size
from rocsolid.cli.tune_actions import ACTIONS, act, last_study
from rocsolid.errors import InputError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from rocsolid.model.plan import Plan
    from rocsolid.tune.effort import Progress, TrialUpdate
    from rocsolid.tune.isolate.trial import Limits


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "workload",
        metavar="WORKLOAD",
        help="file.py:function that returns (callable, args, kwargs); or `export` or `dashboard`",
    )
    parser.add_argument("record", nargs="?", type=Path, help="for `export`: a saved study (default: the last one)")
    parser.add_argument("--profile", default="fast", help="profile of the baseline (default: fast)")
    parser.add_argument("--from-plan", metavar="FILE", help="use a saved plan as the baseline instead of the profile")
    add_restrictions(parser)
    parser.add_argument(
        "--search", choices=("tpe", "one-at-a-time", "exhaustive"), help="default: tpe, or one-at-a-time without Optuna"
    )
    parser.add_argument(
        "--budget", default="10m", metavar="TIME", help="for the whole study: 90s, 10m, 2h (default: 10m)"
    )
    parser.add_argument("--trials", type=int, default=40, metavar="N", help="maximum number of trials (default: 40)")
    parser.add_argument(
        "--finalists", type=int, default=4, metavar="N", help="variants in the final comparison (default: 4)"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=40,
        metavar="N",
        help="maximum number of rounds of the final comparison (default: 40)",
    )
    parser.add_argument(
        "--min-gain", type=float, default=0.02, metavar="R", help="a smaller gain counts as none (default: 0.02)"
    )
    parser.add_argument(
        "--max-device-memory",
        default="0",
        metavar="SIZE",
        help="do not choose a variant that uses more GPU memory: 40G",
    )
    parser.add_argument(
        "--max-setup", default="0", metavar="TIME", help="do not choose a variant that takes longer to set up: 2m"
    )
    parser.add_argument(
        "--also-minimize",
        choices=("memory", "setup"),
        default="",
        help="also search for variants that need little of this (only with --search tpe); the report shows the trade-off",
    )
    add_limits(parser)
    parser.add_argument("--cold", action="store_true", help="flush the GPU's caches before every call")
    parser.add_argument(
        "--study",
        default=".rocsolid/tune.db",
        metavar="FILE|URL",
        help="where the study is stored, so that the same command resumes it: a file or postgresql://… (default: .rocsolid/tune.db)",
    )
    parser.add_argument("--fresh", action="store_true", help="discard the results of an earlier run of this study")
    parser.add_argument(
        "--engine",
        default="",
        metavar="ENGINE",
        help="local: one trial on each visible GPU; ray or ray://HOST:PORT: a Ray cluster (default: one trial at a time)",
    )
    parser.add_argument(
        "--parallel-trials",
        type=int,
        default=0,
        metavar="N",
        help="how many trials run at the same time (default: one per GPU)",
    )
    parser.add_argument(
        "--ranks", type=int, default=1, metavar="N", help="processes per trial, started as torchrun does (default: 1)"
    )
    parser.add_argument(
        "--plan",
        type=Path,
        default=Path("plan.toml"),
        metavar="FILE",
        help="write the best plan here (default: plan.toml)",
    )
    parser.add_argument(
        "--catalog", action="store_true", help="for `export`: write an evidence record instead of the plan"
    )
    parser.add_argument("--host", default="127.0.0.1", help="for `dashboard`: address to serve on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, help="for `dashboard`: port to serve on (default: 8080)")
    parser.add_argument("-v", "--verbose", action="store_true", help="show all trials")
    add_output(parser, ("text", "json", "html"))


def add_restrictions(parser: argparse.ArgumentParser) -> None:
    """Add `--set`, `--vary`, `--exclude` and `--space`."""
    for option, metavar, text in (
        ("--set", "ID=VALUE", "give every variant this value (repeatable)"),
        (
            "--vary",
            "ID[=A,B]",
            "vary only this (repeatable); if a value contains a comma, separate the values with `;`",
        ),
        ("--exclude", "ID", "do not vary this (repeatable)"),
    ):
        parser.add_argument(option, action="append", default=[], metavar=metavar, help=text)
    parser.add_argument(
        "--space", type=Path, metavar="FILE", help="a TOML file with tables `set` and `vary` and a list `exclude`"
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add `--deadline`, `--memory` and `--grad`."""
    parser.add_argument(
        "--deadline",
        action="append",
        default=[],
        metavar="PHASE=TIME",
        help="deadline of a phase: import, build, compile (default: 10m), capture, verify or measure (repeatable)",
    )
    parser.add_argument(
        "--memory", default="0", metavar="SIZE", help="limit on the host memory of a trial and all its processes: 64G"
    )
    parser.add_argument("--grad", action="store_true", help="leave gradients on, as for training")


def run(args: argparse.Namespace) -> int:
    """Tune, write the plan, print the study."""
    if args.workload in ACTIONS:
        return act(args)
    if args.record is not None:
        msg = f"give only one workload, not both {args.workload} and {args.record}"
        raise UsageError(msg)
    from rocsolid.api.tune import tune
    from rocsolid.cli.render import render_study
    from rocsolid.tune.effort import Effort

    for file in filter(None, (args.plan, args.out)):
        require_writable(file)  # report this before the study, not after ten minutes
    if args.from_plan:
        announce_plan(args.from_plan)
    effort = Effort(
        budget_s=seconds(args.budget),
        trials=args.trials,
        finalists=max(2, args.finalists),
        rounds=args.rounds,
        min_gain=args.min_gain,
        max_device_bytes=size(args.max_device_memory),
        max_setup_s=seconds(args.max_setup),
        second_objective=args.also_minimize,
    )
    on_interrupt = "finished trials are saved; run the same command again to continue\n"
    with show_progress(effort.budget_s, on_interrupt) as progress:
        study = tune(
            args.workload,
            profile=args.profile,
            plan=args.from_plan,
            settings=pairs(args.set, "--set"),
            vary={name: split(text) for name, text in (v.partition("=")[::2] for v in args.vary)},
            exclude=args.exclude,
            space=args.space,
            search=args.search,
            effort=effort,
            limits=limits_of(args),
            grad=args.grad,
            cold=args.cold,
            file=args.study,
            fresh=args.fresh,
            engine=args.engine,
            parallel_trials=args.parallel_trials,
            ranks=args.ranks,
            progress=progress,
        )
    with suppress(OSError):  # only `export` needs this file; the trials themselves are already stored
        last_study(args.study).write_text(study.json(), encoding="utf-8")
    _save(study.best, args.plan)
    write(render_study(study, args.output, verbose=args.verbose, to_file=args.out is not None), args.out)
    note(f"wrote {args.plan}; use it with: rocsolid run --plan {args.plan} SCRIPT")
    return 0


def _save(plan: "Plan", file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        plan.save(file)
    except OSError as error:
        msg = f"cannot write {file}: {error.strerror}"
        raise InputError(msg) from error


def limits_of(args: argparse.Namespace) -> "Limits":
    """Return the limits of a trial, from `--deadline` and `--memory`."""
    from dataclasses import replace

    from rocsolid.tune.isolate.trial import Limits

    limits = Limits()
    deadlines = {phase: seconds(text) for phase, text in pairs(args.deadline, "--deadline").items()}
    for phase in deadlines:
        if phase not in limits.phases:
            raise UnknownNameError(kind="phase", name=phase, known=list(limits.phases))
    return replace(limits, phases={**limits.phases, **deadlines}, memory_bytes=size(args.memory))


def pairs(texts: Sequence[str], option: str) -> Mapping[str, str]:
    """Return the names and values of texts such as `name=value`."""
    for text in texts:
        if "=" not in text:
            msg = f"{option} takes NAME=VALUE, but {text!r} has no '='"
            raise UsageError(msg)
    return {text.partition("=")[0]: text.partition("=")[2] for text in texts}


def split(text: str) -> list[str]:
    """Split values at `;`, or at `,` if there is no `;`."""
    return [value for value in text.split(";" if ";" in text else ",") if value]


@contextmanager
def show_progress(budget_s: float = 0.0, on_interrupt: str = "") -> "Iterator[Progress]":
    """Show the progress on stderr: on a terminal one line that is rewritten, otherwise a line every ten seconds.

    Each finished trial has its own line.
    """
    from rocsolid.model.progress import Step
    from rocsolid.report.progress import show_steps
    from rocsolid.tune.effort import Progress

    clear_line = "\r\033[K" if sys.stderr.isatty() else ""
    best = ""

    def on_trial(update: "TrialUpdate") -> None:
        nonlocal best
        text, best = trial_line(update)
        sys.stderr.write(clear_line)
        note(text)

    try:
        with show_steps(budget_s=budget_s) as on_step:
            yield Progress(
                on_status=lambda text: on_step(Step(what=text, best=best)), on_trial=on_trial, on_step=on_step
            )
    except KeyboardInterrupt:
        sys.stderr.write(f"{clear_line}{on_interrupt}")
        raise


def trial_line(update: "TrialUpdate") -> tuple[str, str]:
    """Return the line for a finished trial, and the fastest trial so far, which later progress lines end with."""
    from rocsolid.tune.effort import fastest_so_far

    record = update.record
    best = fastest_so_far(update.finished)
    outcome = str(record.timing) if record.timing else f"{record.kind}, {record.reason}"
    text = (
        f"trial {record.number} of at most {update.max_trials}: {record.name}: {outcome}"
        f"{f'; fastest so far: {best}' if best else ''}; "
        f"{update.elapsed_s:.0f} s elapsed, at most {update.left_s:.0f} s left for trials"
    )
    return text, best
