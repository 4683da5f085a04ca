"""Run the commands of the tutorials, and write their output into the pages.

python scripts/tutorials.py                  # all pages, in a minute or so
python scripts/tutorials.py two-traces       # one of them

In a page of docs/tutorial that has the mark below in its first lines,
- a code block with a title is a file that the reader writes,
- a `console` block is run; variables that it exports are set for the rest of the page,
- a `text` block right after it is replaced by the output.

The build of the site runs them again, as a hook of mkdocs, and shows the output of that run.

A comment before a `console` block may contain `show 12` (keep only that many lines), `exit 1` (the expected exit code), or
`holds WORDS` (words that must be in the output, because the text mentions them).
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
MARK = "<!-- The outputs of this page are written by scripts/tutorials.py, which runs its commands. -->"
AS_WRITTEN = "ROCSOLID_DOCS_AS_WRITTEN"  # with this variable, the site shows the outputs as they are in the pages
DEADLINE_S = 120  # per block, on a busy machine
_BLOCK = re.compile(
    r'^```(?P<kind>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<body>.*?)^```\n'
    r"(?P<shown>\n```text\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
_COMMENT = re.compile(r"<!-- (.*?) -->\n\Z")
# Text that may differ between runs and machines.
_VARIABLE_TEXT = (
    (re.compile(r"/[\w.\-/]+/(site-packages|lib/python[\d.]+)"), "/…"),
    (re.compile(r"[\d.,]+(e[+-]?\d+)?"), "0"),
    (re.compile(r"\b0 ?(ns|µs|ms|s|KiB|MiB|GiB|kB|MB|GB|TB)\b"), "0 units"),
    (re.compile(r"[─━═█▏▎▍▌▋▊▉░▒▓·\-=~^+]{2,}"), "-"),
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One console block: its commands, exit code and output."""

    commands: tuple[str, ...]
    code: int
    output: str
    expected_texts: tuple[str, ...]
    expected_code: int
    block: re.Match[str]


def pages() -> list[Path]:
    """The tutorials with the mark."""
    return [file for file in sorted((DOCS / "tutorial").glob("*.md")) if is_marked(file.read_text(encoding="utf-8"))]


def is_marked(markdown: str) -> bool:
    """Whether the mark is in the first lines of a page."""
    return MARK in markdown.splitlines()[:4]


def run(page: Path, folder: Path) -> list[Step]:
    """Run the page in an empty folder."""
    text = page.read_text(encoding="utf-8")
    home = folder / "project"
    home.mkdir(parents=True)
    env = _environment(folder)
    (folder / "exported").touch()
    return list(_steps(text, home, env))


def _steps(text: str, home: Path, env: Mapping[str, str]) -> Iterator[Step]:
    for block in _BLOCK.finditer(text):
        if block["title"]:
            file = home / block["title"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block["body"], encoding="utf-8")
        elif block["kind"] == "console":
            comment = _COMMENT.search(text, 0, block.start())
            yield _step(block, comment[1] if comment else "", home, env)


def _step(block: re.Match[str], comment: str, home: Path, env: Mapping[str, str]) -> Step:
    commands = tuple(re.sub(r"^[$>] ", "", line, count=1) for line in block["body"].splitlines())
    exported = home.parent / "exported"  # the variables that a block exports, for the next block
    script = "\n".join([f". {exported}", *commands, "code=$?", f"export -p > {exported}", "exit $code"])
    done = subprocess.run(
        ["/bin/bash", "--norc", "--noprofile", "-c", script], cwd=home, env=env, text=True, timeout=DEADLINE_S,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    output = done.stdout.replace(str(home), "~/project").replace(str(home.parent), "~")
    output = re.sub(
        r"/[\w./-]+/site-packages/", "site-packages/", output.replace(f"{DOCS.parent / 'src'}/", "site-packages/")
    )
    options = [word.strip() for word in comment.split(";")]
    show = next((int(w.removeprefix("show ")) for w in options if w.startswith("show ")), 0)
    return Step(
        commands=commands,
        code=done.returncode,
        output=_first_lines("\n".join(line.rstrip() for line in output.splitlines()).strip("\n"), show),
        expected_texts=tuple(w.removeprefix("holds ") for w in options if w.startswith("holds ")),
        expected_code=next((int(w.removeprefix("exit ")) for w in options if w.startswith("exit ")), 0),
        block=block,
    )


def _first_lines(text: str, most: int) -> str:
    lines = text.splitlines()
    return "\n".join(lines) if not most or len(lines) <= most else "\n".join([*lines[:most], "…"])


def _environment(folder: Path) -> dict[str, str]:
    """The environment of a reader: `rocsolid` on the PATH, and no variable that changes a setting."""
    source = str(DOCS.parent / "src")
    binaries = folder / "bin"
    binaries.mkdir()
    command = binaries / "rocsolid"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rocsolid "$@"\n')
    command.chmod(0o755)
    python = binaries / "python"  # not a symlink: Python finds its virtual environment by its own path
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return {
        "PATH": f"{binaries}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": source,
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "COLUMNS": "88",
        "OMP_NUM_THREADS": "1",
    }


def filled(text: str, steps: list[Step]) -> str:
    """The page with the outputs of its commands."""
    for step in reversed(steps):
        if step.block["shown"] is not None:
            begin, end = step.block.span("shown")
            text = f"{text[:begin]}\n```text\n{step.output}\n```\n{text[end:]}"
    return text


def problems(step: Step) -> Iterator[str]:
    """Yield what differs from the page: exit codes, words, output."""
    yield from contradictions(step)
    if step.block["shown"] is not None and (ratio := similarity(step.block["output"], step.output)) < MIN_SIMILARITY:
        yield f"{step.commands[-1]}: the output on the page is out of date ({ratio:.0%} similar); run scripts/tutorials.py:\n{step.output}"


def contradictions(step: Step) -> Iterator[str]:
    """Yield wrong exit codes and missing words."""
    if step.code != step.expected_code:
        yield f"{step.commands[-1]} ended with {step.code}, not {step.expected_code}:\n{step.output}"
    for words in step.expected_texts:
        if words not in " ".join(step.output.split()):
            yield f"{step.commands[-1]} did not print {words!r}:\n{step.output}"


MIN_SIMILARITY = 0.7  # machines differ in notes, numbers and the settings that rs.optimize has time to try


def similarity(before: str, after: str) -> float:
    """The similarity of two outputs without numbers, paths and wrapping."""
    return difflib.SequenceMatcher(None, normalised_words(before), normalised_words(after), autojunk=False).ratio()


def normalised_words(text: str) -> list[str]:
    """The words of an output, with replaceable text normalised."""
    for pattern, word in _VARIABLE_TEXT:
        text = pattern.sub(word, text)
    return text.split()


def on_startup(command: str, **_: object) -> None:
    """Called by mkdocs: `mkdocs serve` shows pages without running them."""
    _serving[:] = [command] if command == "serve" else []


_serving: list[str] = []


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Called by mkdocs for every page: insert the output of this build, unless it contradicts the text."""
    if _serving or os.environ.get(AS_WRITTEN) or not is_marked(markdown):
        return markdown
    with tempfile.TemporaryDirectory() as folder:
        steps = run(Path(page.file.abs_src_path), Path(folder))
    bad = [wrong for step in steps for wrong in contradictions(step)]
    print(f"{page.file.src_uri}: " + (f"shown unchanged, because {bad[0]}" if bad else f"{len(steps)} blocks run"))
    return markdown if bad else filled(markdown, steps)


def main() -> None:
    """Run the pages and write the outputs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="pages, without .md (default: all)")
    names = parser.parse_args().names
    for page in pages():
        if names and page.stem not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            steps = run(page, Path(folder))
        text = page.read_text(encoding="utf-8")
        page.write_text(filled(text, steps), encoding="utf-8")
        bad = [wrong for step in steps for wrong in contradictions(step)]
        print(f"{page.stem}: {len(steps)} steps" + "".join(f"\n  {line}" for line in bad))


if __name__ == "__main__":
    main()
