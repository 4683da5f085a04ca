"""The baseline: a file of known findings that are not reported again, so that only new ones are."""

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
    """The baseline as text, one finding per line so that it merges and reviews well."""
    rows = Counter((f.location.rpartition(":")[0], f.code, fingerprint(f)) for f in findings)
    lines = [json.dumps([file, code, finding_id, count]) for (file, code, finding_id), count in sorted(rows.items())]
    return f'{{"schema": "{SCHEMA}", "findings": [\n' + ",\n".join(lines) + "\n]}\n"


def read_baseline(file: Path) -> Counter[str]:
    """The number of known findings by fingerprint."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"cannot read the baseline {file}: {error}; create one with --write-baseline FILE"
        raise InputError(msg) from error
    data = loads(text, str(file))
    if data["schema"] != SCHEMA:
        msg = f"{file} is not a baseline: its schema is {data['schema']}, expected {SCHEMA}"
        raise InputError(msg)
    known: Counter[str] = Counter()
    try:
        for _, _, finding_id, count in data["findings"]:
            known[str(finding_id)] += int(count)
    except (KeyError, TypeError, ValueError) as error:
        msg = f"{file} is not a valid baseline: each finding must be [file, code, fingerprint, count]"
        raise InputError(msg) from error
    return known


def split_known(findings: Iterable[Finding], known: Counter[str]) -> tuple[list[Finding], int]:
    """The new findings, and how many were known; each entry of the baseline covers one finding."""
    remaining = known.copy()
    new: list[Finding] = []
    matched = 0
    for finding in findings:
        finding_id = fingerprint(finding)
        if remaining[finding_id] > 0:
            remaining[finding_id] -= 1
            matched += 1
        else:
            new.append(finding)
    return new, matched
