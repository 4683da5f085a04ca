"""Checks one file: decode it, parse it, run the rules over it, and collect the facts."""

import traceback
from collections.abc import Iterator, Sequence
from typing import Final

from rocsolid.lint.collect_facts import collect_facts
from rocsolid.lint.facts import FileFacts, RuleMatch
from rocsolid.lint.parse import read_source
from rocsolid.lint.shell_scripts import as_python, is_shell
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.engine import RuleFile, source_rules

LONGEST_LINE_BYTES: Final = 1_000_000
LARGEST_FILE_BYTES: Final = 20_000_000
_SHOWN: Final = 160  # characters of a line


def check_text(
    data: bytes, *, file: str, module: str, package: bool, rules: Sequence[RuleFile] | None = None
) -> FileFacts:
    """The facts of a file, from its bytes; a file that cannot be parsed gets an `error` instead of raising."""
    try:
        text = _decoded(data)
        read = as_python(text) if is_shell(file) else text
        source = read_source(read, file=file, module=module, package=package)
    except SyntaxError as broken:
        where = f"line {broken.lineno}: " if broken.lineno else ""
        return FileFacts(module=module, error=f"{where}{broken.msg}")
    except (ValueError, LookupError) as broken:
        return FileFacts(module=module, error=str(broken))
    except (RecursionError, MemoryError):
        return FileFacts(module=module, error="an expression is nested too deeply for the parser")
    matches = _matches(source, text.splitlines(), source_rules() if rules is None else rules, shell=is_shell(file))
    return collect_facts(source, text, list(matches), package=package)


def _decoded(data: bytes) -> str:
    if len(data) > LARGEST_FILE_BYTES:
        msg = f"the file is larger than {LARGEST_FILE_BYTES:,} bytes ({len(data):,})"
        raise ValueError(msg)
    if len(data) > LONGEST_LINE_BYTES and max(map(len, data.split(b"\n"))) > LONGEST_LINE_BYTES:
        msg = f"a line is longer than {LONGEST_LINE_BYTES:,} bytes"
        raise ValueError(msg)
    if b"\0" in data:
        msg = "the file contains null bytes"
        raise ValueError(msg)
    if data.isascii():
        return data.decode("ascii")
    from io import BytesIO
    from tokenize import detect_encoding

    encoding, _ = detect_encoding(BytesIO(data).readline)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as broken:
        msg = f"byte {broken.start} is not valid {encoding}"
        raise ValueError(msg) from broken


def _matches(source: Source, lines: Sequence[str], rules: Sequence[RuleFile], *, shell: bool) -> Iterator[RuleMatch]:
    for file in rules:
        if file.check_source is None:
            continue
        try:
            for found in list(file.check_source(source)):
                line = lines[found.line - 1].rstrip() if found.line <= len(lines) else ""
                yield _match(file.rule.code, found, line, shell=shell)
        except Exception as crash:  # noqa: BLE001 - a rule that crashes must not hide the matches of the others
            facts = {
                "name": file.rule.name,
                "error": f"{type(crash).__name__}: {crash}",
                "trace": traceback.format_exc(),
            }
            yield RuleMatch(
                code="INT001", found=SourceMatch(line=1, column=1, subject=file.rule.code, scope="", facts=facts)
            )


def _match(code: str, found: SourceMatch, line: str, *, shell: bool) -> RuleMatch:
    """A match with the columns to underline: the expression, or in a shell script the variable."""
    if shell:
        start = max(line.find(found.subject), 0)
        end = start + len(found.subject)
    else:
        data = line.encode()  # `ast` counts bytes
        start = len(data[: found.column - 1].decode(errors="replace"))
        end = len(data[: found.end_column - 1].decode(errors="replace")) if found.end_column else len(line)
    indent = len(line) - len(line.lstrip())
    return RuleMatch(code=code, found=found, line=line[: indent + _SHOWN], start=start, end=end)
