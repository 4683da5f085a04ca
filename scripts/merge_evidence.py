"""Add a record of `rocsolid prove` to the evidence, after checking that it was not edited.

    python scripts/merge_evidence.py record.json [--check]

Refuses a record that was edited, contradicts itself, or is simulated, with the reason. Otherwise it copies the record into evidence/,
writes the page of claims again, and lists what changes: claims confirmed, claims refuted (a test fails until the catalogue is
corrected), and predictions that are off by more than their stated error. With --check nothing is written.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from rocsolid.errors import InputError
from rocsolid.model.proof import Claim, ClaimVerdict, ProofRecord
from rocsolid.prove.check import all_claims
from rocsolid.prove.record import objections

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Check the record, and merge it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("--check", action="store_true", help="only check; write nothing")
    parser.add_argument("--evidence", type=Path, default=ROOT / "evidence", help=argparse.SUPPRESS)
    args = parser.parse_args()
    try:
        text = args.record.read_text(encoding="utf-8")
        record, reasons = objections(text, args.record.name, all_claims())
    except (InputError, OSError, UnicodeDecodeError) as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    for reason in reasons:
        print(f"refused: {args.record.name}: {reason}", file=sys.stderr)
    if reasons:
        return 1
    target = args.evidence / name_of(record)
    for line in changes(record, all_claims()):
        print(line)
    if args.check:
        return 0
    target.write_text(text, encoding="utf-8")
    print(f"wrote {target.name}")
    if args.evidence == ROOT / "evidence":
        subprocess.run([sys.executable, str(ROOT / "scripts/gen_docs.py")], check=True)
    return 0


def name_of(record: ProofRecord) -> str:
    """The name of the file: chip, torch release and the start of the hash."""
    chip = record.machine.archs[0] if record.machine.archs else "cpu"
    parts = ["proof", chip, record.machine.torch, record.seal[:8]]
    return re.sub(r"[^\w.-]+", "-", "-".join(parts)) + ".json"


def changes(record: ProofRecord, claims: tuple[Claim, ...]) -> list[str]:
    """What the record says about the claims that still have the same statement."""
    current = {claim.id: claim.digest for claim in claims}
    valid = [row for row in record.results if current.get(row.claim) == record.claims[row.claim]]
    stale = sum(1 for _ in record.results) - len(valid)
    confirmed = sorted(row.claim for row in valid if row.verdict is ClaimVerdict.CONFIRMED)
    lines = [str(record.machine), f"confirmed ({len(confirmed)}): {', '.join(confirmed)}"]
    lines += [f"refuted: {row.claim}: {row.detail}" for row in valid if row.verdict is ClaimVerdict.REFUTED]
    lines += [f"prediction off: {row.claim}: {p}" for row in valid for p in row.predictions if not p.holds]
    lines += [f"{stale} results are about statements that have changed since; they are not used"] if stale else []
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
