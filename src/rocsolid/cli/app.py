"""The command line: one table of commands, one place where errors become exit codes."""

import argparse
import importlib
import os
import sys
from typing import Final, NoReturn

from rocsolid.errors import RocsolidError, UnknownNameError
from rocsolid.version import __version__

OK, FINDINGS, USAGE, CANNOT_RUN, TIMED_OUT, INTERRUPTED = 0, 1, 2, 3, 124, 130

# Each command lives in a module of its own with `arguments(parser)` and `run(args)`; only the one called is imported.
COMMANDS: Final = {
    "probe": "what in this machine, container and build will hang, crash or slow down a compile",
    "ledger": "what was seen in which container image",
    "settings": "every setting we speak of: what it does, what we advise, what it is here",
    "explain": "the page of a rule, a setting, a profile or a known problem",
    "env": "the variables that must be set before a process starts",
    "run": "run a program that nobody may edit, made safe",
    "optimize": "the fastest form of a workload that answers rightly",
    "compiles": "what the compiler did with a workload: graphs, phases, kernels, and why again",
    "breaks": "where the graph of a workload breaks, why, and what to write instead",
    "profile": "profile a workload and say where its time goes",
    "trace": "where the time of a profiled run goes, and what to do about it",
    "compare": "two profiled runs side by side: kernels, idle time and its causes",
    "lint": "hazards of compiled, captured and ported code, found in source",
    "tune": "find the settings that are really best for a workload, in processes that may die",
    "ab": "compare two profiles, plans or settings on one workload",
    "dryrun": "compile a workload for a chip that is not here: what each kernel costs, what will not work",
    "report": "render a saved JSON result as text or HTML",
    "doctor": "what to attach to a report of a bug; nothing secret, nothing sent",
    "completion": "a script that lets bash, zsh or fish complete commands and options",
}
_THE_USERS: Final = ("torch", "triton")  # what rocsolid never installs
_NEEDS: Final = (
    "this command needs {name}, which {python} does not have; install rocsolid into the environment that has it "
    "(python -m pip install rocsolid), and call it as python -m rocsolid"
)
_EPILOG: Final = """\
Examples:
  rocsolid probe                        what here will hurt me?
  rocsolid probe --active               and does it compute, compile and capture rightly?
  rocsolid probe --fix                  what to run about it
  rocsolid explain CFG001               what does that finding mean?
  rocsolid explain safe                 which values does the profile choose, and why?
  rocsolid run --deadline 300 serve.py  a program nobody may edit, made safe
  rocsolid optimize work.py:build       the fastest form that answers rightly
  rocsolid lint src                     what in this source will hurt?
  rocsolid trace trace.json.gz          where does the time go?

exit codes: 0 clean, 1 findings at or above --fail-on, 2 wrong usage, 3 could not run, 124 timed out, 130 interrupted
"""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """One line, and where to read more."""
        self.exit(USAGE, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def run(argv: list[str]) -> int:
    """Parse and run; every error of ours is one line on stderr and an exit code."""
    try:
        return _run(argv)
    except RocsolidError as error:
        sys.stderr.write(f"rocsolid: error: {error}\n")
        return error.exit_code
    except SystemExit as ended:  # argparse has said what is wrong, or shown the help that was asked for
        if not isinstance(ended.code, int):
            raise
        return ended.code
    except KeyboardInterrupt:
        sys.stderr.write("rocsolid: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone, as with `| head`. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except ModuleNotFoundError as missing:
        if missing.name not in _THE_USERS:
            return _unexpected(missing, argv)
        sys.stderr.write(f"rocsolid: error: {_NEEDS.format(name=missing.name, python=sys.executable)}\n")
        return CANNOT_RUN
    except Exception as error:  # noqa: BLE001 - the last net: what falls through becomes a report
        return _unexpected(error, argv)


def _unexpected(error: Exception, argv: list[str]) -> int:
    """A mistake of ours: a report in a file, and one line."""
    from rocsolid.cli.crash import DEBUG, tell

    if os.environ.get(DEBUG):
        raise error
    sys.stderr.write(f"rocsolid: error: {tell(error, argv)}\n")
    return CANNOT_RUN


def _run(argv: list[str]) -> int:
    if argv[:1] == ["run"] and argv[1:2] not in ([], ["--help"], ["-h"]):
        from rocsolid.cli.run import launch_from

        launch_from(argv[1:])
    name = next((word for word in argv if not word.startswith("-")), "")
    if name and name not in COMMANDS:
        raise UnknownNameError(kind="command", name=name, known=COMMANDS)
    parser = parser_of(name)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        prog = f"rocsolid {args.command}" if args.command else "rocsolid"
        Parser(prog=prog).error(f"unrecognized arguments: {' '.join(unknown)}")
    if not args.command:
        parser.print_help()
        return USAGE
    return int(importlib.import_module(f"rocsolid.cli.{args.command}").run(args))


def parser_of(*names: str) -> Parser:
    """The whole command line, with the arguments of the commands named; the others are not even imported."""
    parser = Parser(
        prog="rocsolid",
        description="torch.compile and device graphs, safe, then fast, on ROCm and on CUDA.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rocsolid {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for command, summary in COMMANDS.items():
        sub = commands.add_parser(command, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        if command in names:
            module = importlib.import_module(f"rocsolid.cli.{command}")
            sub.description, _, sub.epilog = str(module.__doc__).strip().partition("\n\n")
            module.arguments(sub)
    return parser
