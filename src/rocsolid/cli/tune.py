"""Find the fastest settings for a workload. Each variant runs in its own process, which may hang or crash.

Examples:
  rocsolid tune model.py:build                              10 minutes, starts from the fast profile; writes plan.toml
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

What is varied: `form` (compiled, regional, eager), `graph` (whether the whole call is captured in a graph), and settings by their
id, as `rocsolid settings` lists them. Each variant's results are compared with eager before it is timed. The best variants are
then raced in interleaved rounds together with a control; a gain below the noise counts as none. After an interruption, the same
command continues where it was.
Use the result with rs.optimize(model, x, plan="plan.toml") or rocsolid run --plan plan.toml serve.py.

"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rocsolid.cli.output import add_output, require_writable, write
from rocsolid.cli.parse_units import seconds, size
from rocsolid.cli.tune_actions import ACTIONS, act, last_study
from rocsolid.errors import InputError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from rocsolid.model.plan import Plan
    from rocsolid.tune.effort import Progress, TrialUpdate
    from rocsolid.tune.isolate.trial import Limits

_BAR_CHARS = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument(
        "workload",
        metavar="WORKLOAD",
        help="file.py:function that returns (callable, args, kwargs); or `export` or `dashboard`",
    )
    parser.add_argument("record", nargs="?", type=Path, help="for `export`: a saved study (default: the last one)")
    parser.add_argument("--profile", default="fast", help="profile that the search starts from (default: fast)")
    parser.add_argument("--from-plan", metavar="FILE", help="start from a saved plan instead of the profile")
    add_restrictions(parser)
    parser.add_argument(
        "--search", choices=("tpe", "one-at-a-time", "exhaustive"), help="default: tpe, or one-at-a-time without Optuna"
    )
    parser.add_argument(
        "--budget", default="10m", metavar="TIME", help="for the whole study: 90s, 10m, 2h (default: 10m)"
    )
    parser.add_argument("--trials", type=int, default=40, metavar="N", help="maximum number of trials (default: 40)")
    parser.add_argument("--finalists", type=int, default=4, metavar="N", help="variants in the final race (default: 4)")
    parser.add_argument(
        "--rounds", type=int, default=40, metavar="N", help="maximum rounds of the final race (default: 40)"
    )
    parser.add_argument(
        "--min-gain", type=float, default=0.02, metavar="R", help="a smaller gain counts as none (default: 0.02)"
    )
    parser.add_argument(
        "--max-device-memory", default="0", metavar="SIZE", help="a variant that uses more cannot win: 40G"
    )
    parser.add_argument(
        "--max-setup", default="0", metavar="TIME", help="a variant that takes longer to set up cannot win"
    )
    parser.add_argument(
        "--also-minimize",
        choices=("memory", "setup"),
        default="",
        help="search for variants that are good at this too (only with --search tpe); the report shows the trade-off",
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
        metavar="MACHINE_FIELDS",
        help="local: one trial on each visible GPU; ray or ray://HOST:PORT: a Ray cluster (default: one trial at a time)",
    )
    parser.add_argument(
        "--slots", type=int, default=0, metavar="N", help="how many trials run at once (default: one per GPU)"
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
    parser.add_argument("--host", default="127.0.0.1", help="for `dashboard` (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, help="for `dashboard` (default: 8080)")
    parser.add_argument("-v", "--verbose", action="store_true", help="show all trials")
    add_output(parser, ("text", "json", "html"))


def add_restrictions(parser: argparse.ArgumentParser) -> None:
    """`--set`, `--vary`, `--exclude` and `--space`."""
    for option, metavar, text in (
        ("--set", "ID=VALUE", "give every variant this value (repeatable)"),
        ("--vary", "ID[=A,B]", "vary only this (repeatable); separate values that contain commas with `;`"),
        ("--exclude", "ID", "do not vary this (repeatable)"),
    ):
        parser.add_argument(option, action="append", default=[], metavar=metavar, help=text)
    parser.add_argument(
        "--space", type=Path, metavar="FILE", help="a TOML file with tables `set` and `vary` and a list `exclude`"
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Deadlines, memory and gradients of a trial."""
    parser.add_argument(
        "--deadline",
        action="append",
        default=[],
        metavar="PHASE=TIME",
        help="for the phase import, build, compile (default: 10m), capture, verify or measure (repeatable)",
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
        msg = f"give one workload at a time: {args.record} is a second one"
        raise UsageError(msg)
    from rocsolid.api.tune import tune
    from rocsolid.cli.render import render_study
    from rocsolid.tune.effort import Effort

    for file in filter(None, (args.plan, args.out)):
        require_writable(file)  # fail before ten minutes are spent, not after
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
            slots=args.slots,
            ranks=args.ranks,
            progress=progress,
        )
    with suppress(OSError):  # only `export` needs this file; the trials themselves are already stored
        last_study(args.study).write_text(study.json(), encoding="utf-8")
    _save(study.best, args.plan)
    write(render_study(study, args.output, verbose=args.verbose, to_file=args.out is not None), args.out)
    sys.stderr.write(f"wrote {args.plan}; use it with: rocsolid run --plan {args.plan} SCRIPT\n")
    return 0


def _save(plan: "Plan", file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        plan.save(file)
    except OSError as error:
        msg = f"cannot write {file}: {error.strerror}"
        raise InputError(msg) from error


def limits_of(args: argparse.Namespace) -> "Limits":
    """The limits of a trial, from `--deadline` and `--memory`."""
    from dataclasses import replace

    from rocsolid.tune.isolate.trial import Limits

    limits = Limits()
    given = {phase: seconds(text) for phase, text in pairs(args.deadline, "--deadline").items()}
    for phase in given:
        if phase not in limits.phases:
            raise UnknownNameError(kind="phase", name=phase, known=list(limits.phases))
    return replace(limits, phases={**limits.phases, **given}, memory_bytes=size(args.memory))


def pairs(texts: Sequence[str], option: str) -> Mapping[str, str]:
    """Split each `name=value`."""
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
    """Show on stderr what runs: one line that is rewritten on a terminal, a line every ten seconds elsewhere.

    A line for each finished trial stays.
    """
    from rocsolid.cli.progress import progress
    from rocsolid.tune.effort import Progress

    on_terminal = sys.stderr.isatty()
    clear = "\r\033[K" if on_terminal else ""
    started = time.monotonic()
    best = status = ""

    def line() -> str:
        if not status:
            return ""
        elapsed_s = time.monotonic() - started
        bar = ""
        if budget_s and on_terminal:
            bar = f"[{'#' * round(_BAR_CHARS * min(1.0, elapsed_s / budget_s)):<{_BAR_CHARS}}] "
        clock = f"{elapsed_s:.0f} s of {budget_s:.0f} s" if budget_s else f"{elapsed_s:.0f} s"
        return f"{bar}{clock}: {status}{best}"

    def on_status(text: str) -> None:
        nonlocal status
        status = text

    def on_trial(update: "TrialUpdate") -> None:
        nonlocal best
        text, best = trial_line(update)
        sys.stderr.write(f"{clear}{text}\n")

    try:
        with progress(line):
            yield Progress(on_status=on_status, on_trial=on_trial)
    except KeyboardInterrupt:
        sys.stderr.write(f"{clear}{on_interrupt}")
        raise


def trial_line(update: "TrialUpdate") -> tuple[str, str]:
    """The line for a finished trial, and the best time so far as the end of later progress lines."""
    record = update.record
    measured = [(t.timing.median_ms, t) for t in update.finished if t.timing]
    fastest = min(measured, key=lambda pair: pair[0])[1] if measured else None
    best = f"; best so far {str(fastest.timing).partition(' [')[0]} ({fastest.name})" if fastest else ""
    outcome = str(record.timing) if record.timing else f"{record.kind}, {record.reason}"
    text = (
        f"trial {record.number} of at most {update.max_trials}: {record.name}: {outcome}{best}; "
        f"{update.elapsed_s:.0f} s elapsed, at most {update.left_s:.0f} s left for trials"
    )
    return text, best
