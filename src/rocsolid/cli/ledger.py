"""Record and compare probes of container images.

Examples:
  rocsolid ledger                                       list the recorded images
  rocsolid ledger show rocm/pytorch:latest              show the whole probe of one image
  rocsolid ledger diff rocm/pytorch:7.1 rocm/pytorch:7.2
  rocsolid ledger scan rocm/pytorch:latest              probe an image from outside, with docker, podman or apptainer
  rocsolid ledger export > images.md                    print a Markdown table
  rocsolid ledger merge colleague.db                    add the entries of another ledger

Inside a container, `rocsolid probe --record` records the image.

"""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from rocsolid.cli.output import add_output, note, write
from rocsolid.cli.parse_units import deadline
from rocsolid.model.redact import redact_all

if TYPE_CHECKING:
    from rocsolid.probe.ledger import Ledger


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="the ledger file (default: $ROCSOLID_LEDGER, or a file in your data folder)",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    examples = str(__doc__).splitlines()
    add_output(actions.add_parser("list", help="list the recorded images (the default action)"), ("text", "json"))
    show = actions.add_parser("show", help="show the whole probe of one image")
    show.add_argument("image", metavar="IMAGE", help="the image's name, as `rocsolid ledger` lists it")
    show.add_argument("-v", "--verbose", action="store_true", help="show INFO findings in full")
    add_output(show, ("text", "json", "html"))
    diff = actions.add_parser("diff", help="show what differs between two images")
    diff.add_argument("before", metavar="BEFORE", help="the old image")
    diff.add_argument("after", metavar="AFTER", help="the new image")
    add_output(diff, ("text", "json"))
    scan = actions.add_parser("scan", help="probe an image from outside and record it")
    scan.add_argument("image", metavar="IMAGE", help="the image's name, as your container tool writes it")
    scan.add_argument(
        "--engine",
        choices=("docker", "podman", "apptainer"),
        default="",
        help="the container tool (default: the first that works)",
    )
    scan.add_argument("--live", action="store_true", help="read settings in a fresh interpreter inside the image")
    scan.add_argument(
        "--deadline",
        type=deadline,
        default=900.0,
        metavar="TIME",
        help="stop after this time: 90s, 10m (default: 15m)",
    )
    export = actions.add_parser("export", help="print a Markdown table of all images")
    export.add_argument("--out", type=Path, metavar="FILE", help="write to a file instead of the terminal")
    merge = actions.add_parser("merge", help="add the entries of another ledger")
    merge.add_argument("file", type=Path, metavar="FILE", help="the other ledger")
    for name, sub in actions.choices.items():
        matching = [line for line in examples if line.startswith(f"  rocsolid ledger {name}")]
        sub.formatter_class = argparse.RawDescriptionHelpFormatter
        sub.epilog = "\n".join(["Examples:", *(matching or [f"  rocsolid ledger {name}"])])


def run(args: argparse.Namespace) -> int:
    """Open the ledger and run the action."""
    from rocsolid.probe.ledger import Ledger, default_file

    ledger = Ledger(args.ledger or default_file())
    match args.action:
        case "show":
            return _show(ledger, args)
        case "diff":
            return _diff(ledger, args)
        case "scan":
            from rocsolid.probe.image_scan import scan

            note(f"starting {args.image}; loading a large image can take minutes")
            entry = scan(args.image, engine=args.engine, live=args.live, deadline_s=args.deadline)
            ledger.add([entry])
            note(f"recorded as {entry.key}")
            return 0
        case "export":
            from rocsolid.report.probe_text import images_markdown

            write(images_markdown(redact_all(ledger.entries())), args.out)
            return 0
        case "merge":
            count = ledger.merge(_open_existing(args.file))
            note(f"{count} new {'entry' if count == 1 else 'entries'} from {args.file}")
            return 0
    return _list(ledger, args)


def _open_existing(file: Path) -> "Ledger":
    from rocsolid.errors import InputError
    from rocsolid.probe.ledger import Ledger

    if not file.exists():
        msg = f"cannot read {file}: No such file or directory"
        raise InputError(msg)
    return Ledger(file)


def _list(ledger: "Ledger", args: argparse.Namespace) -> int:
    if getattr(args, "output", "text") == "json":
        from rocsolid.model.codec import dumps

        write(dumps("rocsolid/ledger/1", images=ledger.entries()), args.out)
        return 0
    from rocsolid.report.probe_text import images_text
    from rocsolid.report.terminal import terminal_of

    write(images_text(redact_all(ledger.entries()), terminal_of()), getattr(args, "out", None))
    return 0


def _show(ledger: "Ledger", args: argparse.Namespace) -> int:
    from rocsolid.cli.render import render
    from rocsolid.model.codec import dumps

    entry = redact_all(ledger.find(args.image))
    if entry.record is None:
        text = f"{entry.image}: {entry.note}\n" + "".join(f"  {e}\n" for e in entry.evidence)
        write(dumps("rocsolid/image/1", image=entry) if args.output == "json" else text, args.out)
    else:
        write(render(entry.record, args.output, verbose=args.verbose, to_file=args.out is not None), args.out)
    return 0


def _diff(ledger: "Ledger", args: argparse.Namespace) -> int:
    from rocsolid.errors import InputError
    from rocsolid.model.codec import dumps
    from rocsolid.probe.diff import compare_probes
    from rocsolid.report.probe_text import difference_text
    from rocsolid.report.terminal import terminal_of

    records = []
    for name in (args.before, args.after):
        entry = ledger.find(name)
        if entry.record is None:
            msg = (
                f"{entry.image} was not probed, the ledger only has what a public guide says about it; "
                f"run `rocsolid ledger scan {shlex.quote(entry.image)}` first"
            )
            raise InputError(msg)
        records.append(entry.record)
    change = redact_all(compare_probes(*records))
    as_json = args.output == "json"
    write(
        dumps("rocsolid/difference/1", difference=change) if as_json else difference_text(change, terminal_of()),
        args.out,
    )
    return 0
