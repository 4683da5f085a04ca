"""Print a script that makes bash, zsh or fish complete the commands and options, and the names of rules and settings.

Examples:
  rocsolid completion bash > ~/.local/share/bash-completion/completions/rocsolid
  rocsolid completion zsh > ~/.zfunc/_rocsolid               with ~/.zfunc in fpath, before compinit
  rocsolid completion fish > ~/.config/fish/completions/rocsolid.fish
  eval "$(rocsolid completion bash)"                         for this shell only

The script contains all names, so completing is fast. Write it again after an upgrade of rocsolid.

"""

import argparse

from rocsolid.cli.output import write

SHELLS = ("bash", "zsh", "fish")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    from pathlib import Path

    parser.add_argument("shell", choices=SHELLS, help="the shell that will use the script")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to a file instead of the terminal")


def run(args: argparse.Namespace) -> int:
    """Collect the options of every command and write the script."""
    from rocsolid.cli.app import COMMANDS, build_parser
    from rocsolid.report.completion import CommandSpec, completion_script

    commands = [
        CommandSpec(
            name=name, summary=COMMANDS[name], options=tuple(_options(sub)), arguments=tuple(_arguments(name, sub))
        )
        for name, sub in _subparsers(build_parser(*COMMANDS)).items()
    ]
    write(completion_script(args.shell, commands), args.out)
    return 0


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public API for this
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def _options(parser: argparse.ArgumentParser) -> "list[tuple[str, str, tuple[str, ...], bool]]":
    """Return name, summary, choices and "takes a value" of each option."""
    options = []
    for action in parser._actions:  # noqa: SLF001
        summary = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
        values = tuple(_profiles()) if action.dest == "profile" else tuple(map(str, action.choices or ()))
        options += [(name, summary, values, action.nargs != 0) for name in action.option_strings]
    # The options of an action, such as `ledger show`, are offered as options of the command.
    for sub in _subparsers(parser).values():
        known = {name for name, *_ in options}
        options += [option for option in _options(sub) if option[0] not in known]
    return options


def _arguments(name: str, parser: argparse.ArgumentParser) -> list[str]:
    """The possible values of a command's positional arguments; empty if these are files."""
    if name in ("explain", "settings"):
        return _names(settings_only=name == "settings")
    choices = [a.choices for a in parser._actions if not a.option_strings and a.choices]  # noqa: SLF001
    return [str(choice) for group in choices for choice in group]


def _profiles() -> list[str]:
    from rocsolid.catalog.profiles import PROFILES

    return [profile.name for profile in PROFILES]


def _names(*, settings_only: bool) -> list[str]:
    from rocsolid.catalog.problems import all_problems
    from rocsolid.catalog.registry import all_settings
    from rocsolid.rules.engine import all_rules

    settings = [setting.id for setting in all_settings()]
    if settings_only:
        return settings
    rules = [name for r in all_rules() for name in (r.rule.code, r.rule.name)]
    return [*rules, *settings, *_profiles(), *(problem.id for problem in all_problems()), "problems", "rules", "calls"]
