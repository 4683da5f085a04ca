"""List the settings, or show one: what it does, what changes it, what the profiles choose. Or show the values in effect.

Examples:
  rocsolid settings                                 list all settings
  rocsolid settings inductor.freezing               one setting; `freezing` alone works too
  rocsolid settings --values                        the values on this machine that differ from torch's defaults
  rocsolid settings --live inductor.max_autotune    its value in a fresh interpreter, and what set it
  rocsolid settings --values --all --output json    all values on this machine
  rocsolid settings freezing --target gfx942@7.2.1  also what the profiles choose on that chip, and which values are harmful

"""

import argparse
import sys
from typing import TYPE_CHECKING

from rocsolid.cli.output import add_output, write
from rocsolid.cli.target import add_target, on_target
from rocsolid.errors import UsageError
from rocsolid.model.redact import redact

if TYPE_CHECKING:
    from rocsolid.model.setting import Setting


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "id",
        nargs="?",
        default="",
        metavar="ID",
        help="a setting's id, the last part of its id, a former id, or its environment variable",
    )
    parser.add_argument(
        "--values", action="store_true", help="show the values in effect, read from torch's source and the environment"
    )
    parser.add_argument(
        "--live", action="store_true", help="show the values in effect, read in a fresh interpreter (slow)"
    )
    parser.add_argument(
        "--all", action="store_true", help="with --values or --live: also show settings that have their default"
    )
    add_target(parser)
    add_output(parser, ("text", "json"))


def run(args: argparse.Namespace) -> int:
    """Print the descriptions of the settings, or the values in effect."""
    with on_target(args, "--live", "--values"):
        return _show_values(args) if args.values or args.live else _show_pages(args)


def _show_pages(args: argparse.Namespace) -> int:
    from rocsolid.api.explain import on_simulated_chip
    from rocsolid.catalog import registry
    from rocsolid.model.codec import dumps

    if args.target and not args.id:
        msg = f"--target needs a setting: rocsolid settings ID --target {args.target}; all values of a profile: rocsolid explain safe --target {args.target}"
        raise UsageError(msg)
    settings = [_find_or_raise(args.id)] if args.id else list(registry.all_settings())
    if args.output == "json":
        simulated = {"on_target": on_simulated_chip(settings[0])} if args.target else {}
        write(dumps("rocsolid/settings/1", settings=settings, **simulated), args.out)
        return 0
    from rocsolid.report.page_index import list_names
    from rocsolid.report.reference_pages import setting_page
    from rocsolid.report.terminal import Terminal, page_text, terminal_of

    text = setting_page(settings[0]) + on_simulated_chip(settings[0]) if args.id else list_names("settings") or ""
    write(page_text(text, Terminal() if args.out else terminal_of()), args.out)
    return 0


def _find_or_raise(name: str) -> "Setting":
    from rocsolid.api.explain import find_setting
    from rocsolid.catalog import registry

    return find_setting(name) or registry.setting(name)


def _show_values(args: argparse.Namespace) -> int:
    from rocsolid.api.explain import find_setting
    from rocsolid.api.probe import probe
    from rocsolid.errors import UnknownNameError
    from rocsolid.model.codec import dumps
    from rocsolid.report.probe_text import set_by

    if args.live:
        sys.stderr.write("reading settings in a fresh interpreter; importing torch's compiler takes several seconds\n")
    settings = probe(live=args.live).settings
    if args.id:
        known = find_setting(args.id)
        name = args.id if args.id in settings or known is None else known.id
        if name not in settings:
            raise UnknownNameError(kind="setting", name=args.id, known=settings, where="the installed torch")
        settings = {name: settings[name]}
    elif not args.all:
        settings = {name: setting for name, setting in settings.items() if setting.changed}
    if args.output == "json":
        write(dumps("rocsolid/values/1", values=settings), args.out)
        return 0
    lines = [
        f"{name} = {setting.value!r}"
        + (f"   (default: {setting.default!r}; set by: {set_by(setting)})" if setting.changed else "")
        for name, setting in settings.items()
    ]
    write(redact("\n".join(lines or ["every setting has the default of the installed torch"])) + "\n", args.out)
    return 0
