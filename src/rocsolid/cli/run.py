"""Run a program that nobody may edit, with the compiler made safe in it and in every Python it starts.

Examples:
  rocsolid run train.py --epochs 3                  a script and its own arguments
  rocsolid run -m torch.distributed.run train.py    a module
  rocsolid run -c 'import torch; ...'               code
  rocsolid run --deadline 300 serve.py              no compile takes longer; it falls back to eager
  rocsolid run --plan plan.toml serve.py            a plan that was saved
  rocsolid run --report run.jsonl serve.py          what was changed, a line of JSON per process
  rocsolid run --pretend gfx942 train.py            what would be done on an MI300X, with the program on the CPU
  rocsolid run --pretend gfx950@7.2.1 -m rocsolid probe   what the probe would say of that chip and ROCm 7.2.1

Options of rocsolid come before the program; everything after it is the program's. Signals and the exit code are the program's.
On ROCm the environment is cleaned and what the profile insists on is pinned; on CUDA and CPU the program's choices are left alone.
A Python that the program starts with -I, -S or -E cannot be protected, and that is said.

"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rocsolid.errors import UsageError

_TAKES_VALUE = ("--profile", "--plan", "--deadline", "--report", "--pretend")


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes; used for --help only, because the program's own options must pass untouched."""
    parser.usage = "rocsolid run [OPTIONS] (SCRIPT | -m MODULE | -c CODE) [ARGS ...]"
    parser.add_argument("--profile", default="safe", help="whose values hold (default: safe)")
    parser.add_argument("--plan", metavar="FILE", help="a saved plan in place of the profile")
    parser.add_argument(
        "--anywhere", action="store_true", help="use the plan even when it was made for another platform"
    )
    parser.add_argument("--deadline", metavar="TIME", help="call off a compile that takes longer: 90s, 10m")
    parser.add_argument(
        "--report", metavar="FILE", help="append what was changed to FILE instead of telling it on stderr"
    )
    parser.add_argument(
        "--pretend",
        metavar="CHIP[@RELEASE]",
        help="for development: torch says that it was built for this chip, such as gfx942 or gfx942@7.2.1; nothing runs on one",
    )
    parser.add_argument("target", nargs=argparse.REMAINDER, metavar="SCRIPT | -m MODULE | -c CODE", help="the program")


def launch_from(argv: Sequence[str]) -> NoReturn:
    """Take our options off the front and become the program."""
    from rocsolid.runtime.launch.command import launch

    options: dict[str, str] = {}
    words = list(argv)
    while words and words[0].startswith("--"):
        name, equals, value = words.pop(0).partition("=")
        if name == "--":
            break
        if name == "--anywhere":
            options["anywhere"] = "1"
        elif name in _TAKES_VALUE:
            if not equals and not words:
                _fail(f"{name} needs a value")
            options[name.removeprefix("--")] = value if equals else words.pop(0)
        else:
            _fail(f"unknown option {name}; options of the program come after it")
    _check(options, words)
    launch(words, **options)


def _check(options: dict[str, str], words: list[str]) -> None:
    """Say what is wrong before the program starts, not in the middle of it."""
    if not words or (words[0] in ("-m", "-c") and len(words) == 1):
        _fail("nothing to run: give a script, -m MODULE or -c CODE")
    if words[0].startswith("-") and words[0] not in ("-m", "-c"):
        _fail(f"unknown option {words[0]}; options of the program come after it")
    if "deadline" in options:
        from rocsolid.cli.parse_units import deadline

        try:
            options["deadline"] = str(deadline(options["deadline"]))
        except argparse.ArgumentTypeError as wrong:
            _fail(f"--deadline: {wrong}")
    if options.get("profile", "safe") != "safe":
        from rocsolid.catalog.profiles import profile

        profile(options["profile"])
    for name in ("plan", "report"):  # the program may change its folder
        if name in options:
            options[name] = str(Path(options[name]).resolve())
    if "pretend" in options:
        options["pretend"] = _pretending(options["pretend"])
    if "plan" in options:
        from rocsolid.model.plan import Plan

        Plan.load(options["plan"])


def _pretending(text: str) -> str:
    """Say once, before the program says anything, that what follows is of no real chip."""
    from rocsolid.catalog.chips import parse_pretended_chip
    from rocsolid.probe.pretended import require_no_gpu

    given = parse_pretended_chip(text)
    require_no_gpu()
    sys.stderr.write(f"rocsolid: pretending to have {given.label}; the program runs on the CPU\n")
    return str(given)


def _fail(why: str) -> NoReturn:
    msg = f"run: {why} (see rocsolid run --help)"
    raise UsageError(msg)


def run(args: argparse.Namespace) -> int:
    """Never reached with a program: `launch_from` has become it."""
    del args
    sys.stderr.write("rocsolid run: nothing to run\n")
    return 2
