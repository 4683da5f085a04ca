"""Every statement about ROCm that rocsolid makes, as a claim with an id and, where a machine can decide it, a check.

Nothing is declared here: ids, statements and conditions are those of the settings, known problems, capture rules, errors, chips,
guides and the support table. A problem or hazard that no machine can decide says so in its own declaration.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rocsolid.catalog.capture_errors import MEANINGS, meaning_of_code
from rocsolid.catalog.capture_rules import CAPTURE_RULES
from rocsolid.catalog.chips import CHIPS
from rocsolid.catalog.problems import all_problems
from rocsolid.catalog.registry import all_settings
from rocsolid.catalog.runtime_errors import RUNTIME_ERRORS
from rocsolid.catalog.support import COSTS, KERNELS, MODELS, ROCM_SUPPORT
from rocsolid.model.capture_rule import Behavior, CaptureMode, Runtime
from rocsolid.model.evidence import Evidence, Rank
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.platform import Platform
from rocsolid.model.proof import Claim, ClaimKind
from rocsolid.model.setting import Condition, Hazard, Owner, Setting, on

CITED: Final = re.compile(r"(torch|triton) (\d+\.\d+)\S*(?: to \S+)? (?:torch/)?([\w./]+\.(?:py|h))(?: ([\w.]+))?.*")
_FACT: Final = re.compile(r"(?:compiler|capture)-facts-[\w.-]+#([\w-]+)")
_STRINGS: Final = re.compile(r"(?:HIP runtime|libamdhip64).*string")
_BEHAVIOUR: Final = "HIP runtime 6.4.3 and 7.2.4, run against a simulated GPU"
_NO_WORKLOAD: Final = "it names no workload, version or number that could be measured"
_PUBLIC_REPORT: Final = "it rests on public reports of workloads that this kit cannot run"


def concerns_rocm(when: Condition) -> bool:
    """Whether a statement can hold on ROCm."""
    return not when.platforms or Platform.ROCM in when.platforms


def rocm_claims(guides: Sequence[Mapping[str, Any]] = ()) -> tuple[Claim, ...]:
    """Return every claim; `guides` is the content of docs/data/guides.json, which is not part of the package."""
    claims = (
        *_settings(), *_problems(), *_capture_rules(), *_errors(), *_chips(), *_guides(guides),
        *(Claim(id=f"support:{name}", kind=ClaimKind.SUPPORT, statement=says, check=check) for name, says, check in ROCM_SUPPORT),
        *(Claim(id=f"kernel:{name}", kind=ClaimKind.KERNEL, statement=says, check="kernels") for name, says in KERNELS),
        *(Claim(id=f"cost:{name}", kind=ClaimKind.COST, statement=says, check=f"cost:{name}") for name, says in COSTS),
        *(Claim(id=f"model:{name}", kind=ClaimKind.COST, statement=says, check=f"model:{name}") for name, says in MODELS),
    )  # fmt: skip
    ids = [claim.id for claim in claims]
    if len(set(ids)) != len(ids):
        msg = f"claims with the same id: {sorted({i for i in ids if ids.count(i) > 1})}"
        raise ValueError(msg)
    return claims


def by_check(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """Return the claims that each check decides."""
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        if claim.check:
            found.setdefault(claim.check, []).append(claim)
    return found


def problem_check(problem: KnownProblem) -> str:
    """The check of a known problem; empty if no machine can decide it."""
    return "" if problem.undecidable else problem.check or f"problem:{problem.id}"


def _settings() -> Iterator[Claim]:
    for setting in all_settings():
        if not concerns_rocm(setting.valid):
            continue
        check = "variables" if setting.owner is Owner.PROCESS else "settings"
        yield Claim(
            id=f"setting:{setting.id}",
            kind=ClaimKind.SETTING,
            statement=setting.no_effect or setting.summary,
            when=setting.valid,
            check=check,
        )
        yield from _recommendations(setting)
        yield from _hazards(setting)


def _recommendations(setting: Setting) -> Iterator[Claim]:
    decided: set[str] = set()  # the first recommendation of a profile that holds everywhere on ROCm is the last one
    for advice in setting.recommendations:
        if not concerns_rocm(advice.when) or advice.profile in decided:
            continue
        if _all_of_rocm(advice.when):
            decided.add(advice.profile)
        yield Claim(
            id=f"setting:{setting.id}/{advice.profile}{_suffix(advice.when)}",
            kind=ClaimKind.SETTING,
            statement=f"Profile {advice.profile} sets {setting.id} to {advice.value!r}, and the value takes effect. {advice.why}",
            when=_both(advice.when, setting.valid),
            check="profiles",
            refs=(setting.id, advice.profile, repr(advice.value)),
        )


def _hazards(setting: Setting) -> Iterator[Claim]:
    decided: set[object] = set()
    grouped: dict[tuple[str, Condition], list[Hazard]] = {}
    for hazard in setting.hazards:
        if not concerns_rocm(hazard.when) or repr(hazard.value) in decided:
            continue
        if _all_of_rocm(hazard.when):
            decided.add(repr(hazard.value))
        grouped.setdefault((hazard.why, hazard.when), []).append(hazard)
    for (why, when), hazards in grouped.items():
        values = ",".join(str(hazard.value) for hazard in hazards)
        check, refs = hazards[0].check, (setting.id, *(str(hazard.value) for hazard in hazards))
        if not check:
            check, refs = _decided_by(hazards[0].evidence, refs, names_variable=setting.owner is Owner.PROCESS)
        yield Claim(
            id=f"setting:{setting.id}/harmful:{values or 'any'}{_suffix(when)}",
            kind=ClaimKind.SETTING,
            statement=f"{setting.id} = {values or 'any value'}: {why}",
            when=_both(when, setting.valid),
            check=check,
            undecidable="" if check else hazards[0].undecidable or _PUBLIC_REPORT,
            refs=refs,
        )


def _problems() -> Iterator[Claim]:
    for problem in all_problems():
        if not concerns_rocm(problem.when):
            continue
        yield Claim(
            id=f"problem:{problem.id}",
            kind=ClaimKind.PROBLEM,
            statement=f"{problem.title}. {problem.symptom}",
            when=problem.when,
            check=problem_check(problem),
            undecidable=problem.undecidable,
            refs=_sources(problem.evidence) if problem.check == "cited-source" else (),
        )


def _capture_rules() -> Iterator[Claim]:
    for rule in CAPTURE_RULES:
        seen = "; ".join(f"{runtime.label}: {_in_modes(rule.behaviors[runtime])}" for runtime in Runtime)
        yield Claim(
            id=f"capture-rule:{rule.id}",
            kind=ClaimKind.CAPTURE_RULE,
            statement=f"{rule.call} {rule.situation}".strip() + f" during a capture. {seen}.",
            check="capture-rules",
        )


def _in_modes(behaviors: Mapping[CaptureMode, Behavior]) -> str:
    """What happens in every mode, or in each if they differ."""
    modes: dict[str, list[str]] = {}
    for mode, behavior in behaviors.items():
        text = behavior.outcome.value + (f" ({behavior.error})" if behavior.error else "")
        modes.setdefault(text, []).append(mode.value)
    if len(modes) == 1:
        return next(iter(modes))
    return ", ".join(f"{text} in {' and '.join(names)} mode" for text, names in modes.items())


def _errors() -> Iterator[Claim]:
    for error in RUNTIME_ERRORS:
        meaning = meaning_of_code(error.number)
        yield Claim(
            id=f"error:{error.number}",
            kind=ClaimKind.ERROR,
            statement=f"Error {error.number} is {error.hip or 'not in HIP'} ({error.hip_text or error.text}): {meaning.message}.",
            check="errors",
        )
    for meaning in MEANINGS:
        if not meaning.codes:
            yield Claim(
                id=f"error:{meaning.cause.value.replace(' ', '-')}",
                kind=ClaimKind.ERROR,
                statement=f"A torch error that contains {meaning.texts[0]!r} means that {meaning.message}.",
                check="capture-mistakes",
                refs=meaning.texts,
            )


def _chips() -> Iterator[Claim]:
    for chip in CHIPS:
        if chip.platform is not Platform.ROCM:
            continue
        figures = f"wavefronts of {chip.wavefront_size}, {chip.compute_units} units, {chip.lds_bytes} bytes of LDS, {chip.memory_gib} GiB"
        yield Claim(
            id=f"chip:{chip.arch}",
            kind=ClaimKind.CHIP,
            statement=f"{chip.product} ({chip.arch}): {figures}, fp8 types: {', '.join(chip.fp8) or 'none'}.",
            when=on(Platform.ROCM, archs=(chip.arch,)),
            check="chips",
        )


def _guides(guides: Sequence[Mapping[str, Any]]) -> Iterator[Claim]:
    for guide in guides:
        evidence = tuple(
            Evidence(rank=Rank[e["rank"].upper()], ref=e["ref"], statement=e["statement"]) for e in guide["evidence"]
        )
        check, refs = str(guide.get("check", "")), tuple[str, ...]()
        if not check and not guide.get("undecidable"):
            check, refs = _decided_by(evidence, ())
        if guide["verdict"] == "not-proven" and not check.startswith("fact:"):
            check = ""
        reason = guide.get("undecidable") or (_NO_WORKLOAD if guide["verdict"] == "not-proven" else _PUBLIC_REPORT)
        name = hashlib.sha256(guide["claim"].encode()).hexdigest()[:6]
        yield Claim(
            id=f"guide:{guide['topic']}-{name}",
            kind=ClaimKind.GUIDE,
            statement=f"A guide says: {guide['claim']}. We say: {guide['verdict'].replace('-', ' ')}. {guide['fact']}",
            check=check,
            undecidable="" if check else reason,
            refs=refs,
        )


def _decided_by(
    evidence: Sequence[Evidence], refs: tuple[str, ...], *, names_variable: bool = False
) -> tuple[str, tuple[str, ...]]:
    """Return the check that repeats the evidence, and what it looks at: an experiment, a problem, the runtime, a library, a source file."""
    for cited in evidence:
        if match := _FACT.match(cited.ref):
            return f"fact:{match[1]}", refs
    threads = {cited.ref for cited in evidence if cited.rank is Rank.ISSUE}
    for problem in all_problems():
        if problem_check(problem) and concerns_rocm(problem.when) and threads & {e.ref for e in problem.evidence}:
            return problem_check(problem), refs
    if any(cited.ref == _BEHAVIOUR for cited in evidence):
        return "capture-rules", ("stream-synchronize", "device-synchronize")
    if names_variable and any(_STRINGS.match(cited.ref) for cited in evidence):
        return "variables", refs
    sources = _sources(evidence)
    return ("cited-source", sources) if sources else ("", refs)


def _sources(evidence: Sequence[Evidence]) -> tuple[str, ...]:
    return tuple(cited.ref for cited in evidence if cited.rank is Rank.SOURCE and CITED.fullmatch(cited.ref))


def _all_of_rocm(when: Condition) -> bool:
    """Whether a statement holds on every ROCm release, so that later ones for the same value are never used there."""
    return str(when) in ("ROCm", "all platforms")


def _suffix(when: Condition) -> str:
    return "" if _all_of_rocm(when) else "@" + re.sub(r"[^\w.]+", "-", str(when))


def _both(first: Condition, second: Condition) -> Condition:
    """Return the narrower of two conditions; in the catalogue one of them has no limits of releases and chips."""
    return second if str(first) in ("all platforms", "ROCm") and str(second) != "all platforms" else first
