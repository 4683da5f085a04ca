"""A file of findings that are known and left for later: old code stays quiet, new code does not."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rocsolid.errors import InputError
from rocsolid.model.codec import loads
from rocsolid.model.finding import Finding
from rocsolid.model.lint import fingerprint

SCHEMA: Final = "rocsolid/lint-baseline/1"


def baseline_text(findings: Iterable[Finding]) -> str:
    """The baseline as a file, a line a finding, so that it merges and reviews well."""
    rows = Counter((f.location.rpartition(":")[0], f.code, fingerprint(f)) for f in findings)
    lines = [json.dumps([file, code, mark, count]) for (file, code, mark), count in sorted(rows.items())]
    return f'{{"schema": "{SCHEMA}", "findings": [\n' + ",\n".join(lines) + "\n]}\n"


def read_baseline(file: Path) -> Counter[str]:
    """How often each finding is known."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as refused:
        msg = f"cannot read the baseline {file}: {refused}; write one with --write-baseline"
        raise InputError(msg) from refused
    data = loads(text, str(file))
    if data["schema"] != SCHEMA:
        msg = f"{file} holds {data['schema']}, and a baseline is {SCHEMA}"
        raise InputError(msg)
    known: Counter[str] = Counter()
    try:
        for _, _, mark, count in data["findings"]:
            known[str(mark)] += int(count)
    except (KeyError, TypeError, ValueError) as broken:
        msg = f"{file} is no baseline: a finding is [file, code, fingerprint, count]"
        raise InputError(msg) from broken
    return known


def split(findings: Iterable[Finding], known: Counter[str]) -> tuple[list[Finding], int]:
    """What is new, and how many were known; each known one excuses one finding."""
    left = known.copy()
    new: list[Finding] = []
    excused = 0
    for finding in findings:
        mark = fingerprint(finding)
        if left[mark] > 0:
            left[mark] -= 1
            excused += 1
        else:
            new.append(finding)
    return new, excused
