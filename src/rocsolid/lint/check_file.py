"""Checks one file: decodes it, parses it, runs the rules over it, and collects the facts."""

import traceback
from collections.abc import Iterator, Sequence
from typing import Final

from rocsolid.lint.collect_facts import collect_facts, line_count
from rocsolid.lint.facts import FileFacts, RuleMatch
from rocsolid.lint.parse import read_source
from rocsolid.lint.shell_scripts import as_python, is_shell
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.engine import RuleFile, source_rules

MAX_LINE_BYTES: Final = 1_000_000
MAX_FILE_BYTES: Final = 20_000_000
# In a module without any of these words, in lower case, no rule can be right. It is not parsed, which takes most of the time.
_RELEVANT: Final = (
    b"torch", b"cuda", b"triton", b"environ", b".item(", b".cpu(", b".numpy(", b".tolist(", b".compile(", b".replay(", b"rocm", b"amd",
    b"nvidia", b"hsa_", b"hip", b"gfx", b"warp", b"float8", b"miopen", b"nccl", b"rccl", b"getenv", b"putenv", b"import_module",
    b"max-autotune", b"reduce-overhead", b"nvcc", b"pynvml", b"nvtx", b"nvmath", b"tensorrt", b"cutlass", b"flash_attn", b"flashinfer",
    b"deep_gemm", b"cudf", b"cuml", b"apex_c", b"amp_c", b"rocsolid", b"tensor", b".shape", b".sum(", b".mean(", b".max(", b".min(",
    b".any(", b".all(", b".norm(", b".clamp(", b".view(",
)  # fmt: skip
_MAX_LINE_CHARACTERS: Final = 160  # of a source line in a report
_MAX_MARKED_COLUMN: Final = 1000  # a line is kept up to the end of the marked expression


def check_text(
    data: bytes, *, file: str, module: str, package: bool, rules: Sequence[RuleFile] | None = None
) -> FileFacts:
    """Return the facts of a file, given its bytes. If it cannot be parsed, the facts have an `error`; nothing is raised."""
    try:
        text = _decoded(data)
        if not package and not is_shell(file) and not is_relevant(data):
            return FileFacts(module=module, lines=line_count(text))
        python = as_python(text) if is_shell(file) else text
        source = read_source(python, file=file, module=module, package=package)
    except SyntaxError as error:
        line = f"line {error.lineno}: " if error.lineno else ""
        return FileFacts(module=module, error=f"{line}{error.msg}")
    except (ValueError, LookupError) as error:
        return FileFacts(module=module, error=str(error))
    except (RecursionError, MemoryError):
        return FileFacts(module=module, error="an expression is nested too deeply for the parser")
    matches = _matches(source, text.splitlines(), source_rules() if rules is None else rules, shell=is_shell(file))
    return collect_facts(source, text, list(matches), package=package)


def is_relevant(data: bytes) -> bool:
    """Whether a rule could match in a Python file."""
    lower = data.lower()
    return any(word in lower for word in _RELEVANT)


def _decoded(data: bytes) -> str:
    if len(data) > MAX_FILE_BYTES:
        msg = f"the file is larger than {MAX_FILE_BYTES:,} bytes ({len(data):,})"
        raise ValueError(msg)
    if len(data) > MAX_LINE_BYTES and max(map(len, data.split(b"\n"))) > MAX_LINE_BYTES:
        msg = f"a line is longer than {MAX_LINE_BYTES:,} bytes"
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
    for rule_file in rules:
        if rule_file.check_source is None:
            continue
        try:
            for found in list(rule_file.check_source(source)):
                line = lines[found.line - 1].rstrip() if found.line <= len(lines) else ""
                yield _match(rule_file.rule.code, found, line, shell=shell)
        except Exception as crash:  # noqa: BLE001 - a rule that crashes must not hide the matches of the others
            facts = {
                "name": rule_file.rule.name,
                "error": f"{type(crash).__name__}: {crash}",
                "trace": traceback.format_exc(),
            }
            yield RuleMatch(
                code="INT001", found=SourceMatch(line=1, column=1, subject=rule_file.rule.code, scope="", facts=facts)
            )


def _match(code: str, found: SourceMatch, line: str, *, shell: bool) -> RuleMatch:
    """Return a match with the columns to underline: those of the expression, or of the variable in a shell script."""
    if shell:
        start = max(line.find(found.subject), 0)
        end = start + len(found.subject)
    else:
        data = line.encode()  # `ast` counts bytes
        start = len(data[: found.column - 1].decode(errors="replace"))
        end = len(data[: found.end_column - 1].decode(errors="replace")) if found.end_column else len(line)
    indent = len(line) - len(line.lstrip())
    length = max(indent + _MAX_LINE_CHARACTERS, min(end, _MAX_MARKED_COLUMN))
    return RuleMatch(code=code, found=found, line=line[:length], start=start, end=end)
