"""Probes a container image from outside: starts it once, with our source mounted, and reads what the probe inside says."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocsolid.errors import CannotRunError
from rocsolid.model.codec import decode, loads
from rocsolid.model.environment import Ending
from rocsolid.model.saved_probe import ImageEntry, ProbeRecord
from rocsolid.process.run_command import Command, run_with_deadline

_INSIDE: Final = "/rocsolid-source"
# Images call it python3 or python, and some have it only on the path of their own entry point.
_START: Final = 'exec "$(command -v python3 || command -v python)" -m rocsolid probe --output json --fail-on never'


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A container tool, and how it is told to run one command."""

    name: str
    greeting: tuple[str, ...]  # a command that only a working tool answers

    def command(self, image: str, source: Path, script: str) -> list[str]:
        """Run `script` in the image, our source mounted read-only, without network."""
        if self.name == "apptainer":
            return [
                "apptainer", "exec", "--containall", "--bind", f"{source}:{_INSIDE}:ro",
                "--env", f"PYTHONPATH={_INSIDE}", image, "sh", "-c", script,
            ]  # fmt: skip
        return [
            self.name, "run", "--rm", "--network", "none", "--volume", f"{source}:{_INSIDE}:ro",
            "--env", f"PYTHONPATH={_INSIDE}", "--entrypoint", "sh", image, "-c", script,
        ]  # fmt: skip

    def digest_command(self, image: str) -> list[str]:
        """Ask for the image's digest; Apptainer has none to give."""
        if self.name == "apptainer":
            return []
        return [self.name, "image", "inspect", "--format", "{{json .RepoDigests}} {{.Id}}", image]


ENGINES: Final = (
    Engine(name="docker", greeting=("docker", "version", "--format", "{{.Server.Version}}")),
    Engine(name="podman", greeting=("podman", "version")),
    Engine(name="apptainer", greeting=("apptainer", "--version")),
)


def scan(image: str, *, engine: str = "", live: bool = False, deadline_s: float = 900) -> ImageEntry:
    """Probe an image; raises CannotRunError when no container tool is there or the image cannot be probed."""
    chosen = _engine(engine)
    script = _START + (" --live" if live else "")
    question = Command(
        name=f"{chosen.name} run {image}",
        command=chosen.command(image, Path(__file__).parents[2], script),
        deadline_s=deadline_s,
    )
    reply = run_with_deadline(question)
    if reply.check.ending is not Ending.ANSWERED:
        said = reply.check.detail or "no output"
        msg = f"{chosen.name} could not probe {image} ({reply.check.ending.value}): {said}"
        raise CannotRunError(msg)
    data = loads(reply.stdout, f"the output of {image}")
    record = decode(ProbeRecord, data, "probe")
    return ImageEntry(
        image=image,
        digest=_digest(chosen, image) or record.environment.content_id,
        recorded_at=record.environment.taken_at,
        source="scan",
        record=record,
    )


def _engine(name: str) -> Engine:
    """The first container tool that is installed and answers: a Docker client without its daemon does not."""
    said = []
    for engine in ENGINES:
        if name and engine.name != name:
            continue
        reply = run_with_deadline(Command(name=engine.name, command=engine.greeting, deadline_s=20))
        if reply.check.ending is Ending.ANSWERED:
            return engine
        if reply.check.ending is not Ending.MISSING:
            said.append(f"{engine.name}: {reply.check.detail}")
    names = name or ", ".join(engine.name for engine in ENGINES[:-1]) + f" or {ENGINES[-1].name}"
    why = f" ({'; '.join(said)})" if said else ""
    msg = (
        f"to look into an image, {names} must be installed and running{why}; "
        "inside the container `rocsolid probe --record --image NAME` does the same"
    )
    raise CannotRunError(msg)


def _digest(engine: Engine, image: str) -> str:
    command = engine.digest_command(image)
    if not command:
        return ""
    reply = run_with_deadline(Command(name="inspect", command=command, deadline_s=60))
    if reply.check.ending is not Ending.ANSWERED:
        return ""
    listed, _, own = reply.stdout.strip().rpartition(" ")
    digests: Sequence[str] = json.loads(listed or "null") or []
    return digests[0].partition("@")[2] if digests else own
