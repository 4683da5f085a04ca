"""Show or clear what rocsolid stores in the user's cache, and show where torch and Triton store compiled code.

Examples:
  rocsolid cache                       folders, sizes and numbers of files
  rocsolid cache --clear               delete the files of rocsolid
  rocsolid cache --clear artefacts     delete only the compiled code that rs.optimize saved

Nothing is lost but time: the next process compiles or measures again. The folders of torch and Triton are shown, but not deleted.

"""

import argparse
import getpass
import os
import shutil
import tempfile
from pathlib import Path

from rocsolid.cli.output import add_output, write
from rocsolid.errors import CannotRunError
from rocsolid.measure.user_cache import cache_folder

_KINDS = {
    "artefacts": "compiled code and the fastest form, saved by rs.optimize",
    "dryrun": "kernels compiled by rocsolid dryrun",
    "lint": "what rocsolid lint found in unchanged files",
    "native": "the C reader of rocsolid trace",
    "tunableop": "GEMM tuning results of rocsolid run",
}
_ALL = "all"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--clear", nargs="?", const=_ALL, choices=(_ALL, *_KINDS), help="delete all, or only the files of one kind"
    )
    add_output(parser, ("text", "json"))


def run(args: argparse.Namespace) -> int:
    """Show the folders; with `--clear`, delete those of rocsolid first."""
    for kind in _KINDS:
        if args.clear in (_ALL, kind):
            _delete(cache_folder(kind))
    rows = [(kind, cache_folder(kind), what) for kind, what in _KINDS.items()] + _folders_of_others()
    if args.output == "json":
        from rocsolid.model.codec import dumps

        folders = [{"kind": kind, "path": str(path), "what": what, **_size(path)} for kind, path, what in rows]
        write(dumps("rocsolid/cache/1", folders=folders), args.out)
        return 0
    from rocsolid.report import units
    from rocsolid.report.terminal import Terminal, terminal_of

    terminal = Terminal() if args.out else terminal_of()
    lines = []
    for kind, path, what in rows:
        size = _size(path)
        files = f"{size['files']} file{'' if size['files'] == 1 else 's'}"
        lines.append(f"{terminal.paint(f'{kind:<10}', 'bold')} {units.size(size['bytes']):>9}  {files:>11}  {path}")
        lines.append(terminal.wrap(what, indent=" " * 11))
    lines.append(
        terminal.wrap("next: rocsolid cache --clear deletes the first five; pip uninstall rocsolid leaves them.")
    )
    write("\n".join(lines) + "\n", args.out)
    return 0


def _folders_of_others() -> list[tuple[str, Path, str]]:
    inductor = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or f"{tempfile.gettempdir()}/torchinductor_{getpass.getuser()}"
    triton = os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache"
    return [
        ("inductor", Path(inductor), "compiled code of torch.compile; not deleted here"),
        ("triton", Path(triton), "compiled Triton kernels; not deleted here"),
    ]


def _size(folder: Path) -> dict[str, int]:
    files = [Path(parent) / name for parent, _, names in os.walk(folder) for name in names]
    return {
        "files": len(files),
        "bytes": sum(file.lstat().st_size for file in files if file.is_symlink() or file.exists()),
    }


def _delete(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        msg = f"cannot delete {folder}: {error.strerror}"
        raise CannotRunError(msg) from error
