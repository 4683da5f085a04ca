"""Find the container this process runs in, and its image where that is visible from inside."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from rocsolid.model.environment import Container
from rocsolid.probe.read_file import read_text


def find_container(variables: Mapping[str, str], root: Path = Path("/")) -> Container | None:
    """The container around this process; None outside of containers.

    The image's name is visible inside Apptainer and privileged Podman containers, not inside Docker and Kubernetes.
    """
    podman = root / "run/.containerenv"
    if podman.exists():  # empty unless the container is privileged
        fields = dict(line.split("=", 1) for line in read_text(podman).splitlines() if "=" in line)
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


def content_id(parts: Iterable[str], files: Iterable[Path]) -> str:
    """Return a digest of the torch and ROCm files; it identifies an image whose name cannot be read from inside."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0")
    for file in sorted(files):
        try:
            digest.update(f"{file.name} {file.stat().st_size}".encode() + b"\0")
        except OSError:
            digest.update(f"{file.name} ?".encode() + b"\0")
    return digest.hexdigest()[:16]
