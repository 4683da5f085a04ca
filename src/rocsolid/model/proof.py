"""Claims about ROCm and CUDA, and the record of a run of `rocsolid prove` that confirms or refutes them."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from rocsolid.model.codec import dumps, encode
from rocsolid.model.notebook import NotebookResult
from rocsolid.model.redact import redact_all
from rocsolid.model.setting import EVERYWHERE, Condition

PROVE_SCHEMA = "rocsolid/prove/1"
_DIGEST_CHARS = 16
_SHOWN_REFUTED = 20


class ClaimKind(Enum):
    """The part of the project that makes the statement."""

    SETTING = "setting"
    PROBLEM = "problem"
    CAPTURE_RULE = "capture-rule"
    ERROR = "error"
    GUIDE = "guide"
    SUPPORT = "support"
    CHIP = "chip"
    KERNEL = "kernel"
    COST = "cost"


class ClaimVerdict(Enum):
    """What a check found out about a claim on one machine."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    NOT_APPLICABLE = "not applicable"  # the claim is about another version, chip or platform
    COULD_NOT_RUN = "could not run"  # the check hung, crashed, lacked something, or does not decide


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement that concerns ROCm. Its id is made of the catalogue's own ids."""

    id: str  # `kind:name`, such as `capture-rule:malloc`
    kind: ClaimKind
    statement: str
    when: Condition = EVERYWHERE
    check: str = ""  # the check that decides it, `name` or `name:argument`
    undecidable: str = ""  # without a check: why no machine can decide it
    refs: tuple[str, ...] = ()  # what the check looks at: a cited file and symbol, a variable

    @property
    def digest(self) -> str:
        """A hash of the statement. A result is only valid for the statement that was checked."""
        text = json.dumps([self.id, self.statement, str(self.when), self.check, self.refs])
        return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A number that was predicted, next to the number that was seen."""

    what: str
    predicted: float
    seen: float
    allowed: float  # the largest relative error that the prediction states

    @property
    def holds(self) -> bool:
        """Whether the error is as small as stated."""
        return abs(self.seen - self.predicted) <= self.allowed * abs(self.predicted)

    def __str__(self) -> str:
        return f"{self.what}: predicted {self.predicted:g}, seen {self.seen:g}, allowed error {self.allowed:.0%}"


@dataclass(frozen=True, kw_only=True)
class ClaimResult:
    """The verdict on one claim, with what was seen."""

    claim: str
    verdict: ClaimVerdict
    detail: str = ""
    seen: Mapping[str, object] = field(default_factory=dict)
    predictions: tuple[Prediction, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckRun:
    """One check: a child process, how it ended, and its verdicts."""

    check: str
    ended: str  # ok, failed, crashed, hung
    seconds: float
    results: tuple[ClaimResult, ...]
    output: str = ""  # what it printed besides the verdicts


@dataclass(frozen=True, kw_only=True)
class ProofMachine:
    """The machine of a record. Names of hosts are hashed."""

    platform: str  # rocm, cuda, cpu
    host: str
    system: str
    chips: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    rocm: str = ""
    cuda: str = ""
    driver: str = ""
    torch: str = ""
    hip: str = ""  # the HIP version that torch was built with
    triton: str = ""
    python: str = ""
    container: str = ""  # engine, image and digest, where they are visible

    def __str__(self) -> str:
        chips = ", ".join(f"{count} x {chip}" for chip, count in Counter(self.chips).items()) or "no GPU"
        versions = [f"{name} {text}" for name, text in (("ROCm", self.rocm), ("CUDA", self.cuda)) if text]
        return ", ".join([chips, *versions, f"torch {self.torch or 'not installed'}", f"Python {self.python}"])


def seal_of(document: Mapping[str, object]) -> str:
    """The hash that a record must have: of everything in its JSON document but the hash itself."""
    content = {name: value for name, value in document.items() if name != "seal"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class ProofRecord(NotebookResult):
    """All verdicts of one machine. `seal` is a hash of everything else: an edited record is noticed, a forged one is not."""

    rocsolid: str
    code: str  # hash of the package's files
    started_at: str
    machine: ProofMachine
    claims: Mapping[str, str]  # the digest of every claim
    checks: tuple[CheckRun, ...]
    not_run: tuple[str, ...] = ()  # checks for which there was no time
    simulated: str = ""  # how the record was made, if not on a machine; such a record is no evidence
    seal: str = ""

    def sealed(self) -> "ProofRecord":
        """Return the record without secrets and with its hash."""
        clean = redact_all(replace(self, seal=""))
        return replace(clean, seal=seal_of(json.loads(clean.json())))

    @property
    def results(self) -> Iterator[ClaimResult]:
        """The verdicts of all checks."""
        return (result for check in self.checks for result in check.results)

    def counts(self) -> dict[ClaimVerdict, int]:
        """How many claims have each verdict."""
        found = Counter(result.verdict for result in self.results)
        return {verdict: found[verdict] for verdict in ClaimVerdict}

    def json(self) -> str:
        """Return the record as a JSON document."""
        return dumps(PROVE_SCHEMA, **{name: value for name, value in encode(self).items() if name != "schema"})

    def __str__(self) -> str:
        refuted = [result for result in self.results if result.verdict is ClaimVerdict.REFUTED]
        wrong = [prediction for result in self.results for prediction in result.predictions if not prediction.holds]
        lines = [str(self.machine)]
        lines += [f"SIMULATED: {self.simulated}. This record is no evidence."] if self.simulated else []
        lines.append(", ".join(f"{count} {verdict.value}" for verdict, count in self.counts().items()))
        lines += [f"refuted  {result.claim}: {result.detail}" for result in refuted[:_SHOWN_REFUTED]]
        lines += [f"and {len(refuted) - _SHOWN_REFUTED} more refuted"] if len(refuted) > _SHOWN_REFUTED else []
        lines += [f"prediction off: {prediction}" for prediction in wrong]
        ended = [run for run in self.checks if run.ended != "ok"]
        lines += [f"{run.ended}  {run.check} after {run.seconds:.0f} s" for run in ended]
        if self.not_run:
            lines.append(f"no time for {len(self.not_run)} checks: run `rocsolid prove` again, it continues")
        return "\n".join(lines)
