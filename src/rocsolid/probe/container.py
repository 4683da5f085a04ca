"""Find the container that this process runs in, and the name of its image if that is visible inside the container."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from rocsolid.model.environment import Container
from rocsolid.probe.read_file import read_text

_FINGERPRINT_DIGITS = 16


def find_container(variables: Mapping[str, str], root: Path = Path("/")) -> Container | None:
    """The container that this process runs in; None outside of containers.

    The image's name is visible inside Apptainer and privileged Podman containers, not inside Docker and Kubernetes.
    """
    podman_file = root / "run/.containerenv"
    if podman_file.exists():  # it is empty unless the container is privileged
        fields = dict(line.split("=", 1) for line in read_text(podman_file).splitlines() if "=" in line)
        return Container(
            engine="podman",
            image=fields.get("image", "").strip('"'),
            image_id=fields.get("imageid", "").strip('"'),
        )
    for prefix in ("APPTAINER", "SINGULARITY"):
        if image := variables.get(f"{prefix}_CONTAINER") or variables.get(f"{prefix}_NAME"):
            return Container(engine="apptainer", image=image)
    if (root / ".singularity.d").is_dir():
        return Container(engine="apptainer")
    if "KUBERNETES_SERVICE_HOST" in variables:
        return Container(engine="kubernetes")
    if (root / ".dockerenv").exists() or "docker" in read_text(root / "proc/1/cgroup"):
        return Container(engine="docker")
    return None


def image_fingerprint(versions: Iterable[str], files: Iterable[Path]) -> str:
    """Return a digest of the versions and of the names and sizes of the files.

    It identifies an image whose name is not visible inside the container.
    """
    digest = hashlib.sha256()
    for version in versions:
        digest.update(version.encode() + b"\0")
    for file in sorted(files):
        try:
            digest.update(f"{file.name} {file.stat().st_size}".encode() + b"\0")
        except OSError:
            digest.update(f"{file.name} ?".encode() + b"\0")
    return digest.hexdigest()[:_FINGERPRINT_DIGITS]
