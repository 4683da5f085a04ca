"""Record a probe in the ledger, under the container image it ran in."""

from pathlib import Path

from rocsolid.errors import UsageError
from rocsolid.model.saved_probe import ImageEntry, ProbeRecord
from rocsolid.probe.ledger import Ledger, default_file


def record_probe(record: ProbeRecord, *, image: str = "", file: Path | None = None) -> ImageEntry:
    """Write a probe into the ledger and return its entry.

    The entry is named `image`, or after the image that the container reports, or after the content id.
    """
    env = record.environment
    if env.pretended:
        msg = f"cannot record this probe: its chip {env.pretended} is pretended, and the ledger is for real images"
        raise UsageError(msg)
    container = env.container
    name = image or (container.image if container else "") or f"contents:{env.content_id}"
    digest = (container.image_id if container else "") or env.content_id
    entry = ImageEntry(image=name, digest=digest, recorded_at=env.taken_at, source="probe", record=record)
    Ledger(file or default_file()).add([entry])
    return entry
