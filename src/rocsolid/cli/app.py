"""The command line: the table of commands, and the exit code of each error."""

import argparse
import errno
import importlib
import io
import os
import re
import signal
import sys
from contextlib import suppress
from typing import Final, NoReturn

from rocsolid.errors import InputError, RocsolidError, UnknownNameError
from rocsolid.version import __version__

OK, FINDINGS, USAGE, CANNOT_RUN, TIMED_OUT, INTERRUPTED = 0, 1, 2, 3, 124, 130

# Each command is a module with `arguments(parser)` and `run(args)`. Only the module of the given command is imported.
COMMANDS: Final = {
    "probe": "find what makes torch.compile or CUDA/HIP graphs hang, crash or return wrong results on this machine",
    "ledger": "record and compare probes of container images",
    "settings": "list the settings: what each does, what the profiles choose, its value on this machine",
    "explain": "explain a rule, setting, profile, known problem, runtime call or runtime error",
    "env": "print the environment variables to set before a process starts",
    "run": "run an unchanged Python program with safe settings",
    "optimize": "find the fastest form of a workload whose results match eager",
    "verify": "decide whether compiled or captured results are wrong or only different, and find the culprit",
    "compiles": "show what torch.compile did with a workload: graphs, phases, kernels, recompiles",
    "breaks": "list the graph breaks of a workload, with cause and fix",
    "profile": "profile a workload and show where its time goes",
    "trace": "show where the time of a profiled run goes, and what to change",
    "compare": "compare two profiled runs: kernels, idle time and its causes",
    "lint": "find source code that breaks or slows down torch.compile and graph capture, or fails on ROCm",
    "tune": "find the fastest settings for a workload, each tried in a child process",
    "ab": "compare two profiles, plans or settings on one workload",
    "prove": "check every statement about ROCm on this machine, and write a record that can be merged",
    "dryrun": "compile a workload for a GPU that is not present: the cost of each kernel, problems to expect",
    "cache": "show or clear what rocsolid stores for later processes, and where torch stores compiled code",
    "report": "render a saved JSON result as text or HTML",
    "doctor": "print what to attach to a bug report, without secrets; nothing is sent",
    "completion": "print a completion script for bash, zsh or fish",
}
# The user gave a file that cannot be used; anything else is a problem of the machine.
_WRONG_NAME: Final = (
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EEXIST,
)  # fmt: skip
_NOT_OUR_DEPENDENCIES: Final = ("torch", "triton")
_MISSING_PACKAGE: Final = (
    "this command needs {name}, which is not installed for {python}; install rocsolid into the environment that has "
    "{name} (python -m pip install rocsolid), and run it as python -m rocsolid"
)
_EPILOG: Final = """\
Examples:
  rocsolid probe                        what will hang, crash or give wrong results on this machine?
  rocsolid probe --active               also run small computations, a compile and captures on this machine
  rocsolid probe --fix                  print the commands that fix the findings
  rocsolid explain CFG001               what does that finding mean?
  rocsolid explain safe                 which values does the profile choose, and why?
  rocsolid run --deadline 300 serve.py  run a program with safe settings, without editing it
  rocsolid optimize work.py:build       use the fastest form (eager, compiled, graph) whose results match eager
  rocsolid verify work.py:build         are its compiled results wrong, or only different?
  rocsolid lint src                     which lines break a compile or a capture?
  rocsolid trace trace.json.gz          where does the time go?

exit codes: 0 clean, 1 findings at or above --fail-on, 2 wrong usage, 3 could not run, 124 timed out, 130 interrupted
"""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of descriptions and examples, and wraps those that are wider than the terminal."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = re.sub(r"(?<=\S)\n(?=\S)", " ", text)  # lines of one paragraph
        return "\n".join(f"{indent}{line}" for long in paragraphs.splitlines() for line in _wrap_line(long, width))


def _wrap_line(line: str, width: int) -> list[str]:
    """Wrap a line; the explanation of an example, which follows two spaces, moves to its own line."""
    if len(line) <= width:
        return [line]
    import textwrap

    lead = line[: len(line) - len(line.lstrip())]
    example, gap, explanation = line.lstrip().partition("  ")
    if lead and gap:
        return [
            lead + example,
            *textwrap.wrap(explanation.strip(), width, initial_indent=f"{lead}    ", subsequent_indent=f"{lead}    "),
        ]
    return textwrap.wrap(
        line, width, subsequent_indent=f"{lead}    " if lead else "", break_long_words=False, break_on_hyphens=False
    )


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 and one line that names the problem and the help command."""
        from rocsolid.cli.output import note

        note(f"{self.prog}: error: {message} (see {self.prog} --help)")
        self.exit(USAGE)


def run(argv: list[str]) -> int:
    """Parse the arguments and run the command. An error becomes one line on stderr and an exit code."""
    _prepare_streams()
    try:
        return _run_and_flush(argv)
    except RocsolidError as error:
        _print_error(str(error))
        return error.exit_code
    except SystemExit as exit_:  # argparse has printed an error or the help
        if not isinstance(exit_.code, int):
            raise
        return exit_.code
    except KeyboardInterrupt:
        sys.stderr.write("rocsolid: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()  # the program that reads our output has exited, as `| head` does
        return OK
    except OSError as error:
        return _report_system_error(error, argv)
    except ModuleNotFoundError as missing:
        if missing.name not in _NOT_OUR_DEPENDENCIES:
            return _report_crash(missing, argv)
        _print_error(_MISSING_PACKAGE.format(name=missing.name, python=sys.executable))
        return CANNOT_RUN
    except Exception as error:  # noqa: BLE001 - an unexpected error becomes a crash report
        return _report_crash(error, argv)


def _report_crash(error: Exception, argv: list[str]) -> int:
    """Write a crash report for a bug in rocsolid, print one line, and return the exit code."""
    from rocsolid.cli.crash import DEBUG_VARIABLE, write_crash_report

    if os.environ.get(DEBUG_VARIABLE):
        raise error
    if isinstance(error, KeyError) and "getpwuid" in str(error):
        _print_error(f"user {os.getuid()} has no entry in the password file: set the variables USER and HOME")
        return CANNOT_RUN
    _print_error(write_crash_report(error, argv))
    return CANNOT_RUN


def _prepare_streams() -> None:
    """Make output possible whatever the terminal is: closed, or unable to show a letter."""
    if sys.stdout is None:
        # Writing fails when it is flushed, and that is reported.
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for the whole run; pathlib is slow to import
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_error(message: str) -> None:
    from rocsolid.cli.output import note

    note(f"rocsolid: error: {message}")


def _report_system_error(error: OSError, argv: list[str]) -> int:
    """Report what the system refused: a full disk, a closed stdout, a folder that may not be written."""
    if error.errno is None:
        return _report_crash(error, argv)
    if error.filename is not None:
        _print_error(f"{os.fsdecode(error.filename)}: {error.strerror}")
        return USAGE if error.errno in _WRONG_NAME else CANNOT_RUN
    if error.errno == errno.ENOENT and not _has_folder():
        _print_error("the current folder no longer exists; change to another one")
        return CANNOT_RUN
    _print_error(f"cannot write the output: {error.strerror}")
    _discard_output()
    return CANNOT_RUN


def _has_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109
    except OSError:
        return False
    return True


def _discard_output() -> None:
    """Without this, Python prints an error when it closes stdout."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_and_flush(argv: list[str]) -> int:
    code = _run(argv)
    sys.stdout.flush()  # here, where an error becomes a sentence
    return code


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
    module = importlib.import_module(f"rocsolid.cli.{args.command}")
    try:
        return int(module.run(args))
    except SystemExit as ended:  # only a workload does this, and it has not been measured to its end
        if ended.code == 128 + signal.SIGTERM:  # `ab` cleans up when it is ended
            raise
        msg = f"the workload called sys.exit({ended.code!r}) before it was finished"
        raise InputError(msg) from ended


def build_parser(*names: str) -> Parser:
    """Return the parser of all commands. Only the named commands are imported and have their arguments."""
    parser = Parser(
        prog="rocsolid",
        description="Make torch.compile and CUDA/HIP graphs safe, then fast, on ROCm and on CUDA.",
        epilog=_EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rocsolid {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for command, summary in COMMANDS.items():
        sub = commands.add_parser(command, help=summary, formatter_class=HelpFormatter)
        if command in names:
            module = importlib.import_module(f"rocsolid.cli.{command}")
            sub.description, _, sub.epilog = str(module.__doc__).strip().partition("\n\n")
            module.arguments(sub)
    return parser
