"""Checks one file: decodes it, parses it, runs the rules over it, and collects the facts."""

import re
import traceback
from collections.abc import Iterator, Sequence
from typing import Final

from rocsolid.lint.collect_facts import collect_facts, line_count
from rocsolid.lint.facts import FileFacts, RuleMatch
from rocsolid.lint.parse import read_source
from rocsolid.lint.shell_scripts import as_python, is_shell
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.engine import RuleFile, source_rules
from rocsolid.rules.source.syncs import REDUCTIONS

MAX_LINE_BYTES: Final = 1_000_000
MAX_FILE_BYTES: Final = 20_000_000
# Compiled code calls no function of a module without any of these words, in lower case, that matters to a rule.
_RELEVANT: Final = (
    b"torch", b"cuda", b"triton", b"environ", b".item(", b".cpu(", b".numpy(", b".tolist(", b".compile(", b".replay(", b"rocm", b"amd",
    b"nvidia", b"hsa_", b"hip", b"gfx", b"warp", b"float8", b"miopen", b"nccl", b"rccl", b"getenv", b"putenv", b"import_module",
    b"max-autotune", b"reduce-overhead", b"nvcc", b"nvmath", b"tensorrt", b"cutlass", b"flash_attn", b"flashinfer",
    b"deep_gemm", b"cudf", b"cuml", b"rocsolid", b"tensor", b".shape", b".sum(", b".mean(", b".max(", b".min(",
    b".any(", b".all(", b".norm(", b".clamp(", b".view(",
)  # fmt: skip
# In a module without any of these, in lower case, no rule matches and no region starts. Parsing takes most of the time.
_MATCHING: Final = (
    # value reads, synchronization and conditions on tensors
    b".item(", b".tolist(", b".cpu(", b".numpy(", b".query(", b"synchronize", b".any(", b".all(", b"equal(", b"allclose(", b"is_nonzero(",
    # random numbers and data of the host
    b"random.", b"random import", b"random as", b"rng_state", b"initial_seed", b"manual_seed", b".seed(",
    b".tensor(", b"as_tensor", b"from_numpy", b"floattensor",
    # compiles, captures and settings
    b"support_torch_compile", b"make_graphed", b"rocsolid", b"capture_begin", b"graph(", b"cuda.graphs", b".replay(", b"inductor", b"dynamo",
    b"functorch", b"compiler", b"fx.experimental", b"torch.fx import", b"putenv", b"environ.setdefault", b"environ.update", b"environ as",
    b"from torch.cuda import", b"max-autotune", b"reduce-overhead",
    # GPUs and vendors
    b"device_capability", b"get_device_properties", b"get_device_name", b"shared_memory_per_block_optin", b"version.cuda", b"fnuz",
    b"scaled_mm", b"scaled_grouped_mm", b"warp_size", b"warpsize", b"threads_per_warp", b"warp_threads", b"begin_capture_to",
    b"get_graph_data", b"greencontext", b"gdsfile", b"gds_", b"nvidia-smi", b"nvcc", b"tensorrt", b"flash_attn_", b"deep_gemm",
    b"cudf", b"cuml", b"nvmath",
)  # fmt: skip
_MATCHING_PATTERNS: Final = tuple(
    map(
        re.compile,
        (
            rb"\.compile\b(?<!\bre\.compile)",
            rb"[\"']compile[\"']",
            rb"from torch import (?!(?:nn|tensor|nn, tensor|tensor, nn)\s*\n)",
            rb"environ\s*\[[^\]]*\]\s*(?:[+|:]?=(?!=)|:[^\n]*=)",
            rb"import random\b",
            rb"import [^\n]*\b(?:aiter|cuda|cutlass|flashinfer|nvidia)\b",
            rb"from (?:aiter|cuda|cutlass|flashinfer|nvidia)\b",
        ),
    )
)
_NUMBER_CONVERSION: Final = re.compile(
    rb"\b(?:float|int|bool)\((?!\s*[\w.\"'\[\]-]*\s*[,)])"
)  # not of a name or literal
_REDUCTIONS: Final = tuple(f".{name}(".encode() for name in REDUCTIONS)
_COUNTER: Final = re.compile(rb"self\.[^\n]*[+-]=[\s(\\-]*\d")
_MAX_LINE_CHARACTERS: Final = 160  # of a source line in a report
_MAX_MARKED_COLUMN: Final = 1000  # a line is kept up to the end of the marked expression


def check_text(
    data: bytes,
    *,
    file: str,
    module: str,
    package: bool,
    rules: Sequence[RuleFile] | None = None,
    complete: bool = False,
) -> FileFacts:
    """Return the facts of a file, given its bytes. If it cannot be parsed, the facts have an `error`; nothing is raised.

    A file in which no rule can match is not parsed, except with `complete`.
    """
    try:
        text = _decoded(data)
        if not complete and not is_shell(file):
            relevant = package or is_relevant(data)
            if not relevant or not may_match(data):
                return FileFacts(module=module, package=package, lines=line_count(text), deferred=relevant)
        python = as_python(text) if is_shell(file) else text
        source = read_source(python, file=file, module=module, package=package)
    except SyntaxError as error:
        line = f"line {error.lineno}: " if error.lineno else ""
        return FileFacts(module=module, error=f"{line}{error.msg}")
    except (ValueError, LookupError) as error:
        return FileFacts(module=module, error=str(error))
    except (RecursionError, MemoryError):
        return FileFacts(module=module, error="an expression is nested too deeply for the parser")
    matches = _matches(source, text, source_rules() if rules is None else rules, shell=is_shell(file))
    return collect_facts(source, text, list(matches), package=package)


def is_relevant(data: bytes) -> bool:
    """Whether compiled code may call a function in a Python file that matters to a rule."""
    return _contains(data.lower(), _RELEVANT)


def may_match(data: bytes) -> bool:
    """Whether a rule could match, or a region could start, in a Python file."""
    lower = data.lower()
    return (
        _contains(lower, _MATCHING)
        or (b"triton" in lower and _contains(lower, (b"jit", b"num_warps")))
        or (_contains(lower, _REDUCTIONS) and bool(_NUMBER_CONVERSION.search(lower)))
        or (b"Module" in data and bool(_COUNTER.search(lower)))
        or any(pattern.search(lower) for pattern in _MATCHING_PATTERNS)
    )


def _contains(text: bytes, words: Sequence[bytes]) -> bool:
    return any(word in text for word in words)


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


def _matches(source: Source, text: str, rules: Sequence[RuleFile], *, shell: bool) -> Iterator[RuleMatch]:
    lines: list[str] = []
    for rule_file in rules:
        if rule_file.check_source is None:
            continue
        try:
            for found in list(rule_file.check_source(source)):
                lines = lines or text.splitlines()
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
