"""Keep what a probe saw under the image it ran in."""

from pathlib import Path

from rocsolid.errors import UsageError
from rocsolid.model.saved_probe import ImageEntry, ProbeRecord
from rocsolid.probe.ledger import Ledger, default_file


def keep(record: ProbeRecord, *, image: str = "", file: Path | None = None) -> ImageEntry:
    """Write a probe into the ledger.

    The image is the one named, or the one the container tells, or a name made of what torch and ROCm consist of.
    """
    env = record.environment
    if env.pretended:
        msg = f"the probe is of {env.pretended}, which was pretended: the ledger is for images as they are"
        raise UsageError(msg)
    container = env.container
    name = image or (container.image if container else "") or f"contents:{env.content_id}"
    digest = (container.image_id if container else "") or env.content_id
    entry = ImageEntry(image=name, digest=digest, recorded_at=env.taken_at, source="probe", record=record)
    Ledger(file or default_file()).add([entry])
    return entry
