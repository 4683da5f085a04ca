"""List the settings, or show one: what it does, what moves it, what the profiles choose, and what it is here.

Examples:
  rocsolid settings                                 all settings, a line each
  rocsolid settings inductor.freezing               one of them
  rocsolid settings --here                          every value in force here that somebody moved
  rocsolid settings --live inductor.max_autotune    its value in a fresh interpreter, and who set it
  rocsolid settings --here --all --output json      all values in force

"""

import argparse
import sys

from rocsolid.cli.output import add_output, write


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("id", nargs="?", default="", metavar="ID", help="a setting's id, a former id, or its variable")
    parser.add_argument(
        "--here", action="store_true", help="show values in force, read from torch's source and the environment"
    )
    parser.add_argument(
        "--live", action="store_true", help="show values in force, read in a fresh interpreter (slower)"
    )
    parser.add_argument("--all", action="store_true", help="with --here or --live: also those nobody moved")
    add_output(parser, ("text", "json"))


def run(args: argparse.Namespace) -> int:
    """Print the declarations, or the values in force."""
    from rocsolid.catalog import registry
    from rocsolid.model.codec import dumps

    if args.here or args.live:
        return _values(args)
    settings = [registry.setting(args.id)] if args.id else list(registry.all_settings())
    if args.output == "json":
        write(dumps("rocsolid/settings/1", settings=settings), args.out)
        return 0
    from rocsolid.report.page_index import listing
    from rocsolid.report.reference_pages import setting_page
    from rocsolid.report.terminal import Terminal, page_text, terminal_of

    text = setting_page(settings[0]) if args.id else listing("settings") or ""
    write(page_text(text, Terminal() if args.out else terminal_of()), args.out)
    return 0


def _values(args: argparse.Namespace) -> int:
    from rocsolid.api.probe import probe
    from rocsolid.catalog import registry
    from rocsolid.errors import UnknownNameError
    from rocsolid.model.codec import dumps

    if args.live:
        sys.stderr.write("reading settings in a fresh interpreter; importing torch's compiler takes several seconds\n")
    found = probe(live=args.live).settings
    if args.id:
        known = registry.find(args.id)
        name = args.id if args.id in found or known is None else known.id
        if name not in found:
            raise UnknownNameError(kind="setting of the installed torch", name=args.id, known=found)
        found = {name: found[name]}
    elif not args.all:
        found = {name: observed for name, observed in found.items() if observed.moved}
    if args.output == "json":
        write(dumps("rocsolid/values/1", values=found), args.out)
        return 0
    lines = [
        f"{name} = {seen.value!r}"
        + (f"   (release: {seen.upstream!r}; {seen.origin.value} {seen.by})" if seen.moved else "")
        for name, seen in found.items()
    ]
    write("\n".join(lines or ["every setting has the default of this release"]) + "\n", args.out)
    return 0
