"""Writing results to files, pipes and links."""

import os
import stat
import threading
from pathlib import Path

from rocsolid.cli.output import write


def test_writes_through_pipes_and_links(tmp_path: Path) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write("through\n", pipe)
    reader.join(20)
    assert read == ["through\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)

    link.symlink_to(file)
    write("linked\n", link)
    assert link.is_symlink()
    assert file.read_text() == "linked\n"


def test_replaces_a_file_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    write("one\n", tmp_path / "new" / "file")
    write("two\n", tmp_path / "new" / "file")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["file"]
    assert (tmp_path / "new" / "file").read_text() == "two\n"
