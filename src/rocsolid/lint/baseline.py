"""The baseline: a file of known findings that are not reported again, so that only new ones are."""

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rocsolid.errors import InputError
from rocsolid.model.codec import loads, read_text
from rocsolid.model.finding import Finding
from rocsolid.model.lint import fingerprint

_MAX_BYTES: Final = 64 << 20
SCHEMA: Final = "rocsolid/lint-baseline/1"


def baseline_text(findings: Iterable[Finding]) -> str:
    """The baseline as text, one finding per line so that it merges and reviews well."""
    rows = Counter((f.location.rpartition(":")[0], f.code, fingerprint(f)) for f in findings)
    lines = [json.dumps([file, code, finding_id, count]) for (file, code, finding_id), count in sorted(rows.items())]
    return f'{{"schema": "{SCHEMA}", "findings": [\n' + ",\n".join(lines) + "\n]}\n"


def read_baseline(file: Path) -> Counter[str]:
    """The number of known findings by fingerprint."""
    if not file.is_file():  # also not a device: it is named by the linted project
        reason = "not a regular file" if os.path.lexists(file) else "no such file"
        msg = f"cannot read the baseline {file}: {reason}; create one with --write-baseline FILE"
        raise InputError(msg)
    data = loads(read_text(file, max_bytes=_MAX_BYTES), str(file))
    if data["schema"] != SCHEMA:
        msg = f"{file} is not a baseline: its schema is {data['schema']}, expected {SCHEMA}"
        raise InputError(msg)
    known: Counter[str] = Counter()
    try:
        for _, _, finding_id, count in data["findings"]:
            known[str(finding_id)] += int(count)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
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
