"""Run a program with safe compiler settings, without editing it. This also covers the Python processes that it starts.

Examples:
  rocsolid run train.py --epochs 3                  a script and its own arguments
  rocsolid run -m torch.distributed.run train.py    a module
  rocsolid run -c 'import torch; ...'               code
  rocsolid run --deadline 300 serve.py              cancel a compile after 300 s; the function runs in eager
  rocsolid run --plan plan.toml serve.py            use a saved plan
  rocsolid run --report run.jsonl serve.py          write the changes as JSON, one line per process
  rocsolid run --best-effort train.py               run the program even if it cannot be protected
  rocsolid run --pretend gfx942 train.py            simulate an MI300X; the program runs on the CPU
  rocsolid run --pretend gfx950@7.2.1 -m rocsolid breaks model.py:build

Put rocsolid's options before the program; everything after it belongs to the program. Signals and the exit code are passed through.
On ROCm, unsafe variables are removed, and the program cannot change the values that the profile insists on.
On CUDA and CPU the values that the program sets are kept.
A Python process that the program starts with -I, -S or -E cannot be covered; a warning is printed.

"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rocsolid.errors import UsageError

_FLAGS = ("--ignore-platform", "--best-effort")
_OPTIONS_WITH_VALUE = ("--profile", "--plan", "--deadline", "--report", "--pretend")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for --help. `launch_from` does the parsing, because argparse would also parse the program's own options."""
    parser.usage = "rocsolid run [OPTIONS] (SCRIPT | -m MODULE | -c CODE) [ARGS ...]"
    parser.add_argument("--profile", default="safe", help="profile to enforce (default: safe)")
    parser.add_argument("--plan", metavar="FILE", help="use a saved plan instead of a profile")
    parser.add_argument(
        "--ignore-platform", action="store_true", help="accept a plan that was made for another platform"
    )
    parser.add_argument(
        "--best-effort",
        action="store_true",
        help="run the program without protection, with a warning, if it cannot be protected (default: stop with exit code 3)",
    )
    parser.add_argument(
        "--deadline",
        metavar="TIME",
        help="cancel a compile that takes longer than this and run the function in eager: 90s, 10m",
    )
    parser.add_argument(
        "--report", metavar="FILE", help="append the changes to FILE as JSON instead of printing them to stderr"
    )
    parser.add_argument(
        "--pretend",
        metavar="CHIP[@RELEASE]",
        help="for tests without a GPU: torch reports a build for this chip, such as gfx942 or gfx942@7.2.1; the program runs on the CPU",
    )
    parser.add_argument(
        "target", nargs=argparse.REMAINDER, metavar="SCRIPT | -m MODULE | -c CODE", help="the program to run"
    )


def launch_from(argv: Sequence[str]) -> NoReturn:
    """Parse rocsolid's options, then replace this process by the program."""
    from rocsolid.runtime.launch.command import launch

    options: dict[str, str] = {}
    words = list(argv)
    taken = ""  # by the last option, if the words end there
    while words and words[0].startswith("--"):
        name, equals, value = words.pop(0).partition("=")
        if name == "--":
            break
        if name in _FLAGS:
            options[name.removeprefix("--").replace("-", "_")] = "1"
        elif name in _OPTIONS_WITH_VALUE:
            if not equals and not words:
                _fail(f"{name} needs a value")
            options[name.removeprefix("--")] = value if equals else words.pop(0)
            taken = f"{name} took {options[name.removeprefix('--')]!r} as its value" if not equals else ""
        else:
            _fail(f"unknown option {name}; put the program's own options after the program")
    if taken and not words:
        _fail(f"no program given: {taken}; add a script, -m MODULE or -c CODE")
    _check_options(options, words)
    launch(words, **options)


def _check_options(options: dict[str, str], words: list[str]) -> None:
    """Check the options before the program starts, and convert their values."""
    if not words or (words[0] in ("-m", "-c") and len(words) == 1):
        _fail("no program given: name a script, -m MODULE or -c CODE")
    if words[0].startswith("-") and words[0] not in ("-m", "-c"):
        _fail(f"unknown option {words[0]}; put the program's own options after the program")
    if "deadline" in options:
        from rocsolid.cli.parse_units import deadline

        try:
            options["deadline"] = str(deadline(options["deadline"]))
        except argparse.ArgumentTypeError as error:
            _fail(f"--deadline: {error}")
    if options.get("profile", "safe") != "safe":
        from rocsolid.catalog.profiles import profile

        profile(options["profile"])
    if "pretend" in options:
        options["pretend"] = _announce_pretended_chip(options["pretend"])
    if "report" in options or "plan" in options:
        _check_files(options)


def _check_files(options: dict[str, str]) -> None:
    """Check the files, and make their paths absolute, because the program may change its working directory."""
    from rocsolid.cli.output import announce_plan, require_writable

    for name, check in (("report", require_writable), ("plan", announce_plan)):
        if name in options:
            file = Path(options[name]).resolve()
            check(file)
            options[name] = str(file)


def _announce_pretended_chip(text: str) -> str:
    """Print once, before any output of the program, that the chip is simulated; return the chip and release."""
    from rocsolid.catalog.chips import parse_pretended_chip
    from rocsolid.probe.pretended import require_no_gpu

    chip = parse_pretended_chip(text)
    require_no_gpu()
    sys.stderr.write(f"rocsolid: torch reports a simulated {chip.label}; the program runs on the CPU\n")
    return str(chip)


def _fail(why: str) -> NoReturn:
    msg = f"run: {why} (see rocsolid run --help)"
    raise UsageError(msg)


def run(args: argparse.Namespace) -> int:
    """Report that the program is missing: with a program, `launch_from` has already replaced this process."""
    del args
    sys.stderr.write("rocsolid run: no program given: name a script, -m MODULE or -c CODE\n")
    return 2
