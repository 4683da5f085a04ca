"""The argument `--target CHIP[@RELEASE]`: report what is true on that chip and release instead of this machine."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from rocsolid.errors import UsageError


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add `--target CHIP[@RELEASE]`."""
    parser.add_argument(
        "--target",
        default="",
        metavar="CHIP[@RELEASE]",
        help="as on a machine with this chip and ROCm release, such as gfx942 or gfx942@7.2.1; nothing runs on a GPU",
    )


@contextmanager
def on_target(args: argparse.Namespace, *refused: str) -> Iterator[None]:
    """Simulate the chip of `--target`, if there is one. The `refused` options need the real machine."""
    if not args.target:
        yield
        return
    for option in refused:
        if getattr(args, option.removeprefix("--").replace("-", "_"), False):
            msg = f"{option} needs the real machine: drop it, or drop --target {args.target}"
            raise UsageError(msg)
    from rocsolid.probe.pretended import simulate_target

    with simulate_target(args.target):
        yield
