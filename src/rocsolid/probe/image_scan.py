"""Probe a container image from outside: start it once with rocsolid's source mounted, and read the JSON that it prints."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocsolid.errors import CannotRunError, UsageError
from rocsolid.model.codec import decode, loads
from rocsolid.model.environment import CheckStatus
from rocsolid.model.saved_probe import ImageEntry, ProbeRecord
from rocsolid.process.run_command import Command, run_with_deadline

_MOUNT_POINT: Final = "/rocsolid-source"
# Some images have python3 and some only python. The shell searches the PATH that the image sets.
_PROBE_COMMAND: Final = (
    'exec "$(command -v python3 || command -v python)" -m rocsolid probe --output json --fail-on never'
)

_VERSION_DEADLINE_S: Final = 20.0
_INSPECT_DEADLINE_S: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class ContainerEngine:
    """A container tool, and the commands to run an image with it."""

    name: str
    version_command: tuple[str, ...]  # succeeds only if the tool works and its daemon runs

    def command(self, image: str, source: Path, script: str) -> list[str]:
        """The command that runs `script` in the image, without network, with rocsolid's source mounted read-only."""
        if self.name == "apptainer":
            return [
                "apptainer", "exec", "--containall", "--bind", f"{source}:{_MOUNT_POINT}:ro",
                "--env", f"PYTHONPATH={_MOUNT_POINT}", image, "sh", "-c", script,
            ]  # fmt: skip
        return [
            self.name, "run", "--rm", "--network", "none", "--volume", f"{source}:{_MOUNT_POINT}:ro",
            "--env", f"PYTHONPATH={_MOUNT_POINT}", "--entrypoint", "sh", image, "-c", script,
        ]  # fmt: skip

    def digest_command(self, image: str) -> list[str]:
        """The command that prints the image's digest; empty for Apptainer, which has none."""
        if self.name == "apptainer":
            return []
        return [self.name, "image", "inspect", "--format", "{{json .RepoDigests}} {{.Id}}", image]


ENGINES: Final = (
    ContainerEngine(name="docker", version_command=("docker", "version", "--format", "{{.Server.Version}}")),
    ContainerEngine(name="podman", version_command=("podman", "version")),
    ContainerEngine(name="apptainer", version_command=("apptainer", "--version")),
)


def scan(image: str, *, engine: str = "", live: bool = False, deadline_s: float = 900) -> ImageEntry:
    """Probe an image; raises CannotRunError when no container tool works or the image cannot be probed."""
    if image.startswith("-"):
        msg = f"{image!r} is not the name of an image: the container tool would take it for an option"
        raise UsageError(msg)
    container_engine = _find_engine(engine)
    script = _PROBE_COMMAND + (" --live" if live else "")
    command = Command(
        name=f"{container_engine.name} run {image}",
        command=container_engine.command(image, Path(__file__).parents[2], script),
        deadline_s=deadline_s,
    )
    reply = run_with_deadline(command)
    if reply.check.status is not CheckStatus.OK:
        detail = reply.check.detail or "no output"
        msg = f"{container_engine.name} could not probe {image} ({reply.check.status.value}): {detail}"
        raise CannotRunError(msg)
    data = loads(reply.stdout, f"the output of {image}")
    record = decode(ProbeRecord, data, "probe")
    return ImageEntry(
        image=image,
        digest=_digest(container_engine, image) or record.environment.image_fingerprint,
        recorded_at=record.environment.taken_at,
        source="scan",
        record=record,
    )


def _find_engine(name: str) -> ContainerEngine:
    """The first container tool that is installed and works. A Docker client without its daemon does not work."""
    failures = []
    for engine in ENGINES:
        if name and engine.name != name:
            continue
        reply = run_with_deadline(
            Command(name=engine.name, command=engine.version_command, deadline_s=_VERSION_DEADLINE_S)
        )
        if reply.check.status is CheckStatus.OK:
            return engine
        if reply.check.status is not CheckStatus.MISSING:
            failures.append(f"{engine.name}: {reply.check.detail}")
    names = name or ", ".join(engine.name for engine in ENGINES[:-1]) + f" or {ENGINES[-1].name}"
    why = f" ({'; '.join(failures)})" if failures else ""
    msg = (
        f"scanning an image needs {names}, installed and running{why}; "
        "or run `rocsolid probe --record --image NAME` inside the container"
    )
    raise CannotRunError(msg)


def _digest(engine: ContainerEngine, image: str) -> str:
    command = engine.digest_command(image)
    if not command:
        return ""
    reply = run_with_deadline(Command(name="inspect", command=command, deadline_s=_INSPECT_DEADLINE_S))
    if reply.check.status is not CheckStatus.OK:
        return ""
    repo_digests_json, _, image_id = reply.stdout.strip().rpartition(" ")
    repo_digests: Sequence[str] = json.loads(repo_digests_json or "null") or []
    return repo_digests[0].partition("@")[2] if repo_digests else image_id
