"""One file: read it, run the rules over it, and keep the facts."""

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from rocsolid.lint.collect_facts import gather
from rocsolid.lint.facts import Facts, Seen
from rocsolid.lint.parse import read_source
from rocsolid.lint.shell_scripts import as_python, is_shell
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.engine import RuleFile, source_rules

LONGEST_LINE_BYTES: Final = 1_000_000
LARGEST_FILE_BYTES: Final = 20_000_000
_SHOWN: Final = 160


def check_text(data: bytes, *, file: str, module: str, package: bool, rules: Sequence[RuleFile] | None = None) -> Facts:
    """The facts of a file, from its bytes; what cannot be read is a reason, never an error."""
    try:
        text = _decoded(data)
        read = as_python(text) if is_shell(file) else text
        source = read_source(read, file=file, module=module, package=package)
    except SyntaxError as broken:
        where = f"line {broken.lineno}: " if broken.lineno else ""
        return Facts(module=module, refused=f"{where}{broken.msg}")
    except (ValueError, LookupError) as broken:
        return Facts(module=module, refused=str(broken))
    except (RecursionError, MemoryError):
        return Facts(module=module, refused="an expression is nested too deeply to be parsed")
    seen = _seen(source, text.splitlines(), source_rules() if rules is None else rules)
    return gather(source, text, list(seen), package=package)


def _decoded(data: bytes) -> str:
    if len(data) > LARGEST_FILE_BYTES:
        msg = f"the file has {len(data):,} bytes; at most {LARGEST_FILE_BYTES:,} are read"
        raise ValueError(msg)
    if len(data) > LONGEST_LINE_BYTES and max(map(len, data.split(b"\n"))) > LONGEST_LINE_BYTES:
        msg = f"a line has more than {LONGEST_LINE_BYTES:,} bytes"
        raise ValueError(msg)
    if b"\0" in data:
        msg = "the file holds null bytes"
        raise ValueError(msg)
    if data.isascii():
        return data.decode("ascii")
    from io import BytesIO
    from tokenize import detect_encoding

    encoding, _ = detect_encoding(BytesIO(data).readline)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as broken:
        msg = f"the file says or implies that it is {encoding}, and byte {broken.start} is not"
        raise ValueError(msg) from broken


def _seen(source: Source, lines: Sequence[str], rules: Sequence[RuleFile]) -> Iterator[Seen]:
    for file in rules:
        if file.check_source is None:
            continue
        try:
            for match in list(file.check_source(source)):
                line = lines[match.line - 1] if match.line <= len(lines) else ""
                placed = _in_shell_line(match, line) if is_shell(source.file) else _in_characters(match, line)
                yield Seen(code=file.rule.code, match=placed, text=line.rstrip()[: _indent(line) + _SHOWN])
        except Exception as crash:  # noqa: BLE001 - whatever a rule raises must not hide what the others see
            facts = {
                "name": file.rule.name,
                "error": f"{type(crash).__name__}: {crash}",
                "trace": traceback.format_exc(),
            }
            yield Seen(
                code="INT001", match=SourceMatch(line=1, column=1, subject=file.rule.code, scope="", facts=facts)
            )


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _in_characters(match: SourceMatch, line: str) -> SourceMatch:
    """The match with columns in characters (`ast` counts UTF-8 bytes), and the line's end where the expression goes on."""
    data = line.encode()
    column = len(data[: match.column - 1].decode(errors="replace")) + 1
    end = len(data[: match.end_column - 1].decode(errors="replace")) if match.end_column else len(line.rstrip())
    return replace(match, column=column, end_column=max(column, end + 1))


def _in_shell_line(match: SourceMatch, line: str) -> SourceMatch:
    """The match with the columns of the variable in a line of a shell script."""
    start = max(line.find(match.subject), 0)
    return replace(match, column=start + 1, end_column=start + 1 + len(match.subject))
