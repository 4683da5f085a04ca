"""Makes the record of a run, and decides whether a record may become evidence."""

import datetime as dt
import getpass
import hashlib
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from rocsolid.model.codec import decode, loads
from rocsolid.model.environment import CheckStatus, Environment
from rocsolid.model.proof import PROVE_SCHEMA, CheckRun, Claim, ClaimVerdict, ProofMachine, ProofRecord, seal_of
from rocsolid.report.doctor import mask_text
from rocsolid.version import __version__

_PACKAGE: Final = Path(__file__).parents[1]
_CODE_FILES: Final = (".py", ".json", ".c")
_MIN_NAME_CHARS: Final = 3  # a shorter user or host name would be found inside of words
_DIGEST_CHARS: Final = 16
_ENDS: Final = {status.value for status in CheckStatus}


@cache
def code_digest() -> str:
    """A hash of the package's files: which code produced a record."""
    digest = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*")):
        if file.suffix in _CODE_FILES and "__pycache__" not in file.parts:
            digest.update(f"{file.relative_to(_PACKAGE)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:_DIGEST_CHARS]


def describe_machine(env: Environment, packages: Mapping[str, str]) -> ProofMachine:
    """Return what a record says about the machine."""
    container = env.container
    torch = env.torch
    return ProofMachine(
        platform=env.platform.value,
        host=hashlib.sha256(socket.gethostname().encode()).hexdigest()[:_DIGEST_CHARS],
        system=env.host.system,
        chips=tuple(device.name for device in env.devices),
        archs=tuple(device.arch for device in env.devices),
        rocm=env.rocm_version,
        cuda=env.cuda_version,
        driver=env.driver or next((device.driver for device in env.devices if device.driver), ""),
        torch=torch.version if torch else "",
        hip=torch.hip if torch else "",
        triton=next((version for name, version in packages.items() if "triton" in name), ""),
        python=env.python,
        container=" ".join(filter(None, (container.engine, container.image, container.image_id))) if container else "",
    )


def make_record(
    machine: ProofMachine,
    claims: Sequence[Claim],
    runs: Sequence[CheckRun],
    not_run: Sequence[str] = (),
    simulated: str = "",
) -> ProofRecord:
    """Return the sealed record, without names of users and hosts."""
    clean = _without_names()
    record = ProofRecord(
        rocsolid=__version__,
        code=code_digest(),
        started_at=dt.datetime.now(tz=dt.timezone.utc).isoformat(timespec="seconds"),
        machine=replace(machine, container=clean(machine.container)),
        claims={claim.id: claim.digest for claim in claims},
        checks=tuple(_cleaned(run, clean) for run in runs),
        not_run=tuple(not_run),
        simulated=simulated,
    )
    return record.sealed()


def _without_names() -> Callable[[str], str]:
    """Return a function that removes the user's name, the host's name and the user's folders from a text."""
    names = {socket.gethostname(), os.environ.get("USER", ""), _user()} - {"root", "user", "localhost"}
    masked = {name for name in names if len(name) >= _MIN_NAME_CHARS}

    def clean(text: str) -> str:
        text = text.replace(str(_PACKAGE), _PACKAGE.name).replace(f"{Path.cwd()}{os.sep}", "")
        for name in masked:
            text = text.replace(name, "(name)")
        return mask_text(text)

    return clean


def _cleaned(run: CheckRun, clean: Callable[[str], str]) -> CheckRun:
    results = tuple(replace(row, detail=clean(row.detail), seen=_map_texts(row.seen, clean)) for row in run.results)
    return replace(run, output=clean(run.output), results=results)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return ""


def _map_texts(data: Any, change: Callable[[str], str]) -> Any:
    if isinstance(data, str):
        return change(data)
    if isinstance(data, Mapping):
        return {str(key): _map_texts(value, change) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_map_texts(value, change) for value in data]
    return data


def read_proof(text: str, name: str) -> ProofRecord:
    """Parse a record; raises InputError."""
    return decode(ProofRecord, loads(text, name), name)


def stored_proofs(folder: Path) -> dict[str, ProofRecord]:
    """Return the records in the folder `evidence`, by name."""
    return {
        file.stem: read_proof(file.read_text(encoding="utf-8"), file.name)
        for file in sorted(folder.glob("proof-*.json"))
    }


def objections(text: str, name: str, claims: Sequence[Claim]) -> tuple[ProofRecord, list[str]]:
    """Return a record, and why it must not become evidence; raises InputError if it cannot be read."""
    data = loads(text, name)
    record = decode(ProofRecord, data, name)
    found = []
    if data["schema"] != PROVE_SCHEMA:
        found.append(f"its schema is {data['schema']}, not {PROVE_SCHEMA}")
    if record.seal != seal_of(data):
        found.append("it was edited: its content does not have the hash that it states")
    if record.simulated:
        found.append(f"it is simulated: {record.simulated}")
    found += _inconsistencies(record, claims)
    return record, found


def _inconsistencies(record: ProofRecord, claims: Sequence[Claim]) -> Iterator[str]:
    machine = record.machine
    if (machine.platform == "rocm") != bool(machine.hip):
        yield f"its platform is {machine.platform}, and torch's HIP version is {machine.hip or 'empty'}"
    if machine.platform == "rocm" and not any(arch.startswith("gfx") for arch in machine.archs):
        yield "its platform is rocm, and it names no AMD chip"
    yield from _contradictions(record, {claim.id: claim for claim in claims})
    try:
        started = dt.datetime.fromisoformat(record.started_at)
    except ValueError:
        yield f"its date is {record.started_at!r}"
        return
    if started.tzinfo is None or started > dt.datetime.now(tz=dt.timezone.utc) + dt.timedelta(days=1):
        yield f"its date is {record.started_at}, which is in the future or has no time zone"


def _contradictions(record: ProofRecord, known: Mapping[str, Claim]) -> Iterator[str]:
    """Yield verdicts that no run can have."""
    names = [run.check for run in record.checks]
    if len(set(names)) != len(names):
        yield "a check occurs twice"
    yield from (f"{name} ran and did not run" for name in record.not_run if name in names)
    verdicts = Counter(row.claim for row in record.results)
    yield from (f"{name} has two verdicts" for name, count in verdicts.items() if count > 1)
    for name, asked in known.items():
        if asked.check in names and record.claims.get(name) == asked.digest and name not in verdicts:
            yield f"{name} has no verdict, although its check ran"
    for run in record.checks:
        if run.ended not in _ENDS:
            yield f"{run.check} ended with {run.ended!r}"
        for row in run.results:
            claim = known.get(row.claim)
            if row.claim not in record.claims:
                yield f"{row.claim} is not among its claims"
            elif claim and claim.digest == record.claims[row.claim] and claim.check != run.check:
                yield f"{row.claim} is decided by {claim.check}, not by {run.check}"
            if row.verdict is ClaimVerdict.CONFIRMED and any(not prediction.holds for prediction in row.predictions):
                yield f"{row.claim} is confirmed, but a prediction is off by more than its stated error"
