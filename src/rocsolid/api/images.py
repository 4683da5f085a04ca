"""Record a probe in the ledger, under the container image it ran in."""

from pathlib import Path

from rocsolid.errors import UsageError
from rocsolid.model.saved_probe import ImageEntry, ProbeRecord
from rocsolid.probe.ledger import Ledger, default_file


def record_probe(record: ProbeRecord, *, image: str = "", file: Path | None = None) -> ImageEntry:
    """Write a probe into the ledger and return its entry.

    The name of the entry is `image`; without it, the name that the container reports; without that, the image fingerprint.
    """
    env = record.environment
    if env.pretended:
        msg = f"cannot record this probe: its chip {env.pretended} is pretended, and the ledger accepts only real machines"
        raise UsageError(msg)
    container = env.container
    name = image or (container.image if container else "") or f"fingerprint:{env.image_fingerprint}"
    digest = (container.image_id if container else "") or env.image_fingerprint
    entry = ImageEntry(image=name, digest=digest, recorded_at=env.taken_at, source="probe", record=record)
    Ledger(file or default_file()).add([entry])
    return entry
