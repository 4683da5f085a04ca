"""Print a script that lets a shell complete commands, options, and the names of rules and settings.

Examples:
  rocsolid completion bash > ~/.local/share/bash-completion/completions/rocsolid
  rocsolid completion zsh > ~/.zfunc/_rocsolid               with ~/.zfunc in fpath, before compinit
  rocsolid completion fish > ~/.config/fish/completions/rocsolid.fish
  eval "$(rocsolid completion bash)"                         for this shell only

The script holds all words itself, so that pressing Tab starts nothing. Write it anew after an upgrade.

"""

import argparse

from rocsolid.cli.output import write

SHELLS = ("bash", "zsh", "fish")


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    from pathlib import Path

    parser.add_argument("shell", choices=SHELLS, help="whose script")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to a file instead of the terminal")


def run(args: argparse.Namespace) -> int:
    """Ask every command for its options, and write them down as the shell wants them."""
    from rocsolid.cli.app import COMMANDS, parser_of
    from rocsolid.report.completion import Spoken, script

    commands = [
        Spoken(name=name, summary=COMMANDS[name], options=tuple(_options(sub)), words=tuple(_words(name, sub)))
        for name, sub in _subparsers(parser_of(*COMMANDS)).items()
    ]
    write(script(args.shell, commands), args.out)
    return 0


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def _options(parser: argparse.ArgumentParser) -> "list[tuple[str, str, tuple[str, ...], bool]]":
    """Each option: how it is written, what it does, which values it takes, and whether it takes one at all."""
    found = []
    for action in parser._actions:  # noqa: SLF001
        summary = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
        values = tuple(_profiles()) if action.dest == "profile" else tuple(map(str, action.choices or ()))
        found += [(name, summary, values, action.nargs != 0) for name in action.option_strings]
    for sub in _subparsers(parser).values():  # options of an action such as `ledger show` are offered with its command
        known = {name for name, *_ in found}
        found += [option for option in _options(sub) if option[0] not in known]
    return found


def _words(name: str, parser: argparse.ArgumentParser) -> list[str]:
    """What may stand without a dash, where that is a closed set; everything else is a file."""
    if name in ("explain", "settings"):
        return _names(settings_only=name == "settings")
    choices = [a.choices for a in parser._actions if not a.option_strings and a.choices]  # noqa: SLF001
    return [str(word) for group in choices for word in group]


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
    rules = [word for r in all_rules() for word in (r.rule.code, r.rule.name)]
    return [*rules, *settings, *_profiles(), *(problem.id for problem in all_problems()), "problems", "rules", "calls"]
