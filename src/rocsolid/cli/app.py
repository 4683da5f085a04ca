"""The command line: the table of commands, and the exit code for each error."""

import argparse
import importlib
import os
import sys
from typing import Final, NoReturn

from rocsolid.errors import RocsolidError, UnknownNameError
from rocsolid.version import __version__

OK, FINDINGS, USAGE, CANNOT_RUN, TIMED_OUT, INTERRUPTED = 0, 1, 2, 3, 124, 130

# Each command is a module with `arguments(parser)` and `run(args)`. Only the module of the given command is imported.
COMMANDS: Final = {
    "probe": "find what makes torch.compile or CUDA/HIP graphs hang, crash or return wrong results here",
    "ledger": "record and compare probes of container images",
    "settings": "list the settings: what each does, what the profiles choose, its value here",
    "explain": "explain a rule, setting, profile, known problem, runtime call or runtime error",
    "env": "print the environment variables to set before a process starts",
    "run": "run an unchanged Python program with safe settings",
    "optimize": "find the fastest form of a workload whose results match eager",
    "compiles": "show what torch.compile did with a workload: graphs, phases, kernels, recompiles",
    "breaks": "list the graph breaks of a workload, with cause and fix",
    "profile": "profile a workload and show where its time goes",
    "trace": "show where the time of a profiled run goes, and what to change",
    "compare": "compare two profiled runs: kernels, idle time and its causes",
    "lint": "find hazards for torch.compile, graph capture and porting in source code",
    "tune": "find the fastest settings for a workload, each tried in a child process",
    "ab": "compare two profiles, plans or settings on one workload",
    "dryrun": "compile a workload for a GPU that is not present: cost of each kernel, problems to expect",
    "report": "render a saved JSON result as text or HTML",
    "doctor": "print what to attach to a bug report; nothing secret, nothing is sent",
    "completion": "print a completion script for bash, zsh or fish",
}
_NOT_INSTALLED_BY_US: Final = ("torch", "triton")
_MISSING_PACKAGE: Final = (
    "this command needs {name}, which {python} does not have; install rocsolid into the environment that has {name} "
    "(python -m pip install rocsolid), and run it as python -m rocsolid"
)
_EPILOG: Final = """\
Examples:
  rocsolid probe                        what will hang, crash or give wrong results on this machine?
  rocsolid probe --active               also compute, compile and capture for real
  rocsolid probe --fix                  print the commands that fix the findings
  rocsolid explain CFG001               what does that finding mean?
  rocsolid explain safe                 which values does the profile choose, and why?
  rocsolid run --deadline 300 serve.py  run a program with safe settings, without editing it
  rocsolid optimize work.py:build       the fastest form whose results match eager
  rocsolid lint src                     hazards in source code
  rocsolid trace trace.json.gz          where does the time go?

exit codes: 0 clean, 1 findings at or above --fail-on, 2 wrong usage, 3 could not run, 124 timed out, 130 interrupted
"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 and one line that names the problem and the help command."""
        self.exit(USAGE, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def run(argv: list[str]) -> int:
    """Parse and run; an error becomes one line on stderr and an exit code."""
    try:
        return _run(argv)
    except RocsolidError as error:
        sys.stderr.write(f"rocsolid: error: {error}\n")
        return error.exit_code
    except SystemExit as ended:  # argparse has printed an error or the help
        if not isinstance(ended.code, int):
            raise
        return ended.code
    except KeyboardInterrupt:
        sys.stderr.write("rocsolid: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe has exited, as `| head` does. Without this, Python prints an error when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except ModuleNotFoundError as missing:
        if missing.name not in _NOT_INSTALLED_BY_US:
            return _unexpected(missing, argv)
        sys.stderr.write(f"rocsolid: error: {_MISSING_PACKAGE.format(name=missing.name, python=sys.executable)}\n")
        return CANNOT_RUN
    except Exception as error:  # noqa: BLE001 - an unexpected error becomes a crash report
        return _unexpected(error, argv)


def _unexpected(error: Exception, argv: list[str]) -> int:
    """A bug in rocsolid: write a crash report, and print one line."""
    from rocsolid.cli.crash import DEBUG, write_crash_report

    if os.environ.get(DEBUG):
        raise error
    sys.stderr.write(f"rocsolid: error: {write_crash_report(error, argv)}\n")
    return CANNOT_RUN


def _run(argv: list[str]) -> int:
    if argv[:1] == ["run"] and argv[1:2] not in ([], ["--help"], ["-h"]):
        from rocsolid.cli.run import launch_from

        launch_from(argv[1:])
    name = next((word for word in argv if not word.startswith("-")), "")
    if name and name not in COMMANDS:
        raise UnknownNameError(kind="command", name=name, known=COMMANDS)
    parser = build_parser(name)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        prog = f"rocsolid {args.command}" if args.command else "rocsolid"
        Parser(prog=prog).error(f"unrecognized arguments: {' '.join(unknown)}")
    if not args.command:
        parser.print_help()
        return USAGE
    return int(importlib.import_module(f"rocsolid.cli.{args.command}").run(args))


def build_parser(*names: str) -> Parser:
    """The parser of all commands, with the arguments of the named ones; the others are not imported."""
    parser = Parser(
        prog="rocsolid",
        description="Make torch.compile and CUDA/HIP graphs safe, then fast, on ROCm and on CUDA.",
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
